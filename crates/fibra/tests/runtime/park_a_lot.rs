//! Parking and waking in great numbers: no fiber stays behind, goes on too early, or gets another's wake.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use crate::support::{watchdog, workers};
use crate::tools::{Counter, Event, Rng, many, turns};

// S0-26, S0-85: thousands of fibers park, each until its predecessor on a random ring wakes it; threads call wakers at random.
#[test]
fn stress_thousands_park_and_wake_one_another() {
    let _watchdog = watchdog(120);
    let (fibers, rounds) = (many(2_000), 20);
    let mut rng = Rng::new();
    let rt = workers(3);
    let counters: Arc<Vec<Counter>> = Arc::new((0..fibers).map(|_| Counter::new()).collect());
    // A random ring: each fiber counts the next one up and waits to be counted up itself.
    let mut ring: Vec<usize> = (0..fibers).collect();
    (1..fibers).rev().for_each(|index| ring.swap(index, rng.below(index + 1)));
    let mut next = vec![0; fibers];
    (0..fibers).for_each(|index| next[ring[index]] = ring[(index + 1) % fibers]);
    let next = Arc::new(next);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, counters) = (&stop, &counters);
        for _ in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    // Adding nothing calls the waiters there in vain.
                    counters[rng.below(fibers)].add(0);
                }
            });
        }
        rt.run(|| {
            let handles: Vec<_> = (0..fibers)
                .map(|me| {
                    let (counters, next) = (counters.clone(), next.clone());
                    fibra::spawn(move || {
                        for round in 1..=rounds {
                            counters[next[me]].add(1);
                            counters[me].wait(round);
                        }
                        me
                    })
                })
                .collect();
            for (me, handle) in handles.into_iter().enumerate() {
                assert_eq!(handle.join().unwrap(), me);
            }
        });
        stop.store(true, SeqCst);
    });
    assert_eq!(rt.metrics().parked, 0);
}

// Joins across the tree: every node waits for two children, down to some thousands of leaves.
#[test]
fn thousands_join_one_another() {
    fn tree(depth: u32) -> usize {
        if depth == 0 {
            return 1;
        }
        let (left, right) = (fibra::spawn(move || tree(depth - 1)), fibra::spawn(move || tree(depth - 1)));
        left.join().unwrap() + right.join().unwrap()
    }
    let _watchdog = watchdog(120);
    let depth = many(4_096).ilog2();
    assert_eq!(workers(4).run(move || tree(depth)), 1 << depth);
}

// S0-85: wakes in vain, at random, from threads and from fibers: `block_on` returns only when the future is ready.
#[test]
fn spurious_wakes_do_not_end_a_wait() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let events: Arc<Vec<Event>> = Arc::new((0..200).map(|_| Event::new()).collect());
    let mut rng = Rng::new();
    let polls = Arc::new(AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        for _ in 0..2 {
            let (events, mut rng) = (events.clone(), rng.fork());
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    events[rng.below(200)].wake_in_vain();
                }
            });
        }
        rt.run(|| {
            let fibers: Vec<_> = (0..200)
                .map(|index| {
                    let (events, polls) = (events.clone(), polls.clone());
                    fibra::spawn(move || {
                        let mut waited = std::pin::pin!(events[index].happened());
                        fibra::block_on(poll_fn(|cx| {
                            polls.fetch_add(1, SeqCst);
                            waited.as_mut().poll(cx)
                        }));
                        assert!(events[index].is_set(), "block_on returned before its future was ready");
                    })
                })
                .collect();
            // Until plenty of calls came in vain.
            while polls.load(SeqCst) < turns(20_000) {
                events[rng.below(200)].wake_in_vain();
                fibra::yield_now();
            }
            events.iter().for_each(Event::set);
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
        done.store(true, SeqCst);
    });
}

/// A future that is ready at its second poll, and leaves its waker behind.
fn leave_waker(wakers: &Mutex<Vec<Waker>>, calls: &AtomicUsize) {
    let mut polled = false;
    fibra::block_on(poll_fn(|cx| {
        calls.fetch_add(1, SeqCst);
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        wakers.lock().unwrap().push(cx.waker().clone());
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
}

// Frames are used again and again while the wakers of their former owners are called. The new owner may poll once too often
// for it (decision 51), but no wait of its ends early, with or without a node, and no fiber runs twice.
#[test]
fn stress_wakers_of_ended_fibers_do_not_touch_their_successors() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
    let mut rng = Rng::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, stale) = (&done, &wakers);
        for _ in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    let waker = {
                        let mut stale = stale.lock().unwrap();
                        // Enough of them to hit every frame, not more than memory wants.
                        let keep = stale.len().min(4_000);
                        stale.truncate(keep);
                        if stale.is_empty() { None } else { Some(stale[rng.below(keep)].clone()) }
                    };
                    match waker {
                        Some(waker) => waker.wake(),
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
        rt.run(|| {
            for round in 0..turns(1_000) {
                let count = 20;
                let parked: Vec<_> = (0..count)
                    .map(|_| {
                        let (wakers, event, calls) = (wakers.clone(), Event::new(), Arc::new(AtomicUsize::new(0)));
                        let (sender, receiver) = fibra::channel::rendezvous();
                        let fiber = {
                            let (event, calls) = (event.clone(), calls.clone());
                            fibra::spawn(move || {
                                leave_waker(&wakers, &calls);
                                fibra::block_on(event.happened());
                                assert!(event.is_set(), "a future that was not ready");
                                assert_eq!(receiver.recv(), Ok(round), "a wait that ended early");
                            })
                        };
                        (fiber, event, calls, sender)
                    })
                    .collect();
                if round % 2 == 0 {
                    fibra::yield_now();
                }
                for (fiber, event, calls, sender) in parked {
                    event.set();
                    sender.send(round).unwrap();
                    fiber.join().unwrap();
                    assert_eq!(calls.load(SeqCst), 2);
                }
            }
        });
        done.store(true, SeqCst);
    });
    assert!(rt.metrics().stacks_reused > 0);
    // The runtime is gone, the wakers are not.
    drop(rt);
    wakers.lock().unwrap().drain(..).for_each(Waker::wake);
}

// S0-20: a fiber or a task that is in a queue already is woken again and again, here and from a thread: it runs once.
#[test]
fn waking_what_is_queued_changes_nothing() {
    let _watchdog = watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        for is_task in [false, true] {
            let (polls, waker) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None::<Waker>)));
            let future = {
                let (polls, waker) = (polls.clone(), waker.clone());
                std::future::poll_fn(move |cx| {
                    *waker.lock().unwrap() = Some(cx.waker().clone());
                    if polls.fetch_add(1, SeqCst) == 200 { Poll::Ready(()) } else { Poll::Pending }
                })
            };
            let waiting = if is_task { fibra::spawn_future(future) } else { fibra::spawn(|| fibra::block_on(future)) };
            // What a thread has woken may be in the injector, which is looked at every 61st turn.
            let settle = || (0..130).for_each(|_| fibra::yield_now());
            settle();
            for round in 1..=200 {
                let waker = waker.lock().unwrap().clone().unwrap();
                let wakes = || (0..10).for_each(|_| waker.wake_by_ref());
                if round % 2 == 0 {
                    wakes();
                } else {
                    std::thread::scope(|scope| drop(scope.spawn(wakes)));
                }
                assert_eq!(polls.load(SeqCst), round, "it is queued, and has not run");
                settle();
                assert_eq!(polls.load(SeqCst), round + 1, "ten wakes, one turn");
            }
            waiting.join().unwrap();
        }
    });
}

/// Two that hand a count to and fro so often: every round, one goes to sleep while the other wakes it.
fn race(rounds: u64, left: impl FnOnce(Box<dyn FnOnce() + Send>) + Send, right: impl FnOnce(Box<dyn FnOnce() + Send>)) {
    let (ping, pong) = (Counter::new(), Counter::new());
    let side = |mine: Counter, other: Counter| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            for round in 1..=rounds {
                other.add(1);
                mine.wait(round);
            }
        })
    };
    let (a, b) = (side(ping.clone(), pong.clone()), side(pong, ping));
    std::thread::scope(|scope| {
        scope.spawn(move || left(a));
        right(b);
    });
}

// a thread that is just going to sleep is woken, 100,000 times.
#[test]
fn a_parking_thread_is_woken_every_time() {
    let _watchdog = watchdog(120);
    race(turns(100_000) as u64, |side| side(), |side| side());
}

// X-05, S0-96: a fiber against a thread: the worker goes to sleep, and is woken, about as often.
#[test]
fn a_parking_fiber_is_woken_by_a_thread_every_time() {
    let _watchdog = watchdog(120);
    let rt = workers(1);
    race(turns(100_000) as u64, |side| side(), |side| rt.run(side));
}

// two fibers of two runtimes.
#[test]
fn stress_fibers_of_two_runtimes_wake_each_other_every_time() {
    let _watchdog = watchdog(120);
    let (one, other) = (workers(1), workers(2));
    race(turns(50_000) as u64, |side| one.run(side), |side| other.run(side));
}
