//! `spawn_future`: tasks that own no stack between polls and move between workers.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::collections::HashSet;
use std::future::{IntoFuture, poll_fn};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::support::{eventually, watchdog, workers};
use crate::tools::{Counter, Event, Rng, turns};

async fn yield_once() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

// S0-67, S1-29: between polls a task is as free as a fiber that has not started: its spawner's worker computes until the task, which was
// polled there first, has been polled on another one.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a poll's OS thread is its stack there, not its worker")]
fn tasks_move_between_polls() {
    let _watchdog = watchdog(120);
    workers(2).run(|| {
        let here = std::thread::current().id();
        let (polls, event) = (Arc::new(Mutex::new(Vec::new())), Event::new());
        let task = {
            let (polls, event) = (polls.clone(), event.clone());
            fibra::spawn_future(async move {
                let mut happened = std::pin::pin!(event.happened());
                poll_fn(|cx| {
                    let polled = happened.as_mut().poll(cx);
                    // After the poll: what is set now wakes the task, it is not found at once.
                    polls.lock().unwrap().push(std::thread::current().id());
                    polled
                })
                .await;
            })
        };
        while polls.lock().unwrap().is_empty() {
            fibra::yield_now();
        }
        // Woken by code on this worker, it is this worker's surplus; which is only run elsewhere while this one computes.
        event.set();
        while polls.lock().unwrap().len() < 2 {
            std::hint::spin_loop();
        }
        assert_ne!(polls.lock().unwrap()[1], here);
        task.join().unwrap();
    });
}

// S0-102, S0-15: a task that goes from worker to worker notices nothing but the thread: who it is, what it keeps across its awaits and what
// others see of it stay the same; and so do its end, with a value or with a panic.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a poll's OS thread is its stack there, not its worker")]
fn a_task_that_moves_notices_nothing_but_the_thread() {
    /// Pending once; a plain thread wakes it, so that any worker may go on with it.
    async fn elsewhere(wakers: &std::sync::mpsc::Sender<Waker>) {
        let mut asked = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            wakers.send(cx.waker().clone()).unwrap();
            Poll::Pending
        })
        .await;
    }
    let _watchdog = watchdog(120);
    let rt = workers(3);
    for panics in [false, true] {
        let (wakers, to_wake) = std::sync::mpsc::channel::<Waker>();
        let waker = std::thread::spawn(move || to_wake.into_iter().for_each(Waker::wake));
        let task = {
            let _entered = rt.handle().enter();
            fibra::spawn_future(async move {
                let id = fibra::current().unwrap().id();
                let (mut threads, mut kept, mut steps) = (HashSet::new(), vec![0u64; 16], 0u64);
                while threads.len() < 2 || steps < 200 {
                    kept[steps as usize % 16] += steps;
                    let sum: u64 = kept.iter().sum();
                    threads.insert(std::thread::current().id());
                    elsewhere(&wakers).await;
                    steps += 1;
                    assert_eq!(kept.iter().sum::<u64>(), sum, "plain memory, as it was left");
                    assert_eq!(fibra::current().unwrap().id(), id, "the same one, wherever");
                }
                assert!(!panics, "on purpose");
                (steps, kept.iter().sum::<u64>())
            })
        };
        match task.join() {
            Ok((steps, sum)) => assert!(!panics && sum == steps * (steps - 1) / 2),
            Err(error) => assert!(panics && error.is_panic() && error.message().contains("on purpose"), "{error}"),
        }
        waker.join().unwrap();
    }
}

// Ten thousand tasks, woken at random by threads and by one another, polled by three workers: all end, each polled by one at a time.
#[test]
fn ten_thousand_tasks_with_random_wakers_all_end() {
    let _watchdog = watchdog(120);
    let rt = workers(3);
    let count = turns(10_000);
    let wakers: Arc<Vec<Mutex<Option<Waker>>>> = Arc::new((0..count).map(|_| Mutex::new(None)).collect());
    let ended = Arc::new(AtomicUsize::new(0));
    let mut rng = Rng::new();
    let (workers, all) = (Arc::new(Mutex::new(HashSet::new())), wakers.clone());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (wakers, ended, mut rng) = (&wakers, &ended, rng.fork());
            scope.spawn(move || {
                while ended.load(SeqCst) < count {
                    let waker = wakers[rng.below(count)].lock().unwrap().clone();
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
            });
        }
        rt.run(|| {
            let tasks: Vec<_> = (0..count)
                .map(|index| {
                    let (wakers, ended, workers) = (all.clone(), ended.clone(), workers.clone());
                    let wanted = rng.below(4);
                    fibra::spawn_future(async move {
                        let (mut polls, alone) = (0, AtomicBool::new(false));
                        poll_fn(|cx| {
                            assert!(!alone.swap(true, SeqCst), "polled twice at a time");
                            *wakers[index].lock().unwrap() = Some(cx.waker().clone());
                            polls += 1;
                            workers.lock().unwrap().insert(std::thread::current().id());
                            alone.store(false, SeqCst);
                            if polls > wanted { Poll::Ready(()) } else { Poll::Pending }
                        })
                        .await;
                        ended.fetch_add(1, SeqCst);
                        index
                    })
                })
                .collect();
            for (index, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.join().unwrap(), index);
            }
        });
    });
    let metrics = rt.metrics();
    assert_eq!((metrics.parked, metrics.live), (0, 0));
    // Late calls find no task.
    all.iter().for_each(|waker| waker.lock().unwrap().as_ref().unwrap().wake_by_ref());
    drop(rt);
    all.iter().for_each(|waker| waker.lock().unwrap().take().unwrap().wake());
}

// A task awaits fibers and tasks, a fiber joins tasks, a thread too; a poll may even block.
#[test]
fn tasks_fibers_and_threads_wait_for_one_another() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let total = rt.run(|| {
        let tasks: Vec<_> = (0..100u64)
            .map(|index| {
                fibra::spawn_future(async move {
                    let fiber = fibra::spawn(move || index);
                    let task = fibra::spawn_future(async move {
                        yield_once().await;
                        index
                    });
                    if index % 10 == 0 {
                        fibra::sleep(Duration::from_micros(100));
                    }
                    fiber.await.unwrap() + task.await.unwrap()
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).sum::<u64>()
    });
    assert_eq!(total, 9_900);
    let _entered = rt.handle().enter();
    let task = fibra::spawn_future(async { fibra::spawn(|| 1).await.unwrap() });
    assert_eq!(fibra::block_on(task.into_future()).unwrap(), 1);
}

// A poll that blocks is a fiber until it ends: a waker that is called from its own worker, another one or a thread, resumes that poll and
// does not begin another; and cancellation unwinds it.
#[test]
fn a_poll_may_block() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    rt.run(|| {
        let tasks: Vec<_> = (0..turns(500))
            .map(|index| {
                let event = Event::new();
                let waker = event.clone();
                let task = fibra::spawn_future(async move {
                    let mut inside = 0;
                    for _ in 0..3 {
                        inside += fibra::spawn(|| 1).join().unwrap();
                        yield_once().await;
                    }
                    event.wait();
                    inside + fibra::blocking(|| 1)
                });
                match index % 3 {
                    0 => waker.set(),
                    1 => drop(fibra::spawn(move || waker.set())),
                    _ => drop(std::thread::spawn(move || waker.set())),
                }
                task
            })
            .collect();
        tasks.into_iter().for_each(|task| assert_eq!(task.join().unwrap(), 4));
        let held = Arc::new(());
        for _ in 0..turns(100) {
            let (inside, started) = (held.clone(), Event::new());
            let tell = started.clone();
            let task = fibra::spawn_future(async move {
                let _inside = inside;
                tell.set();
                fibra::sleep(Duration::from_secs(36_000));
            });
            started.wait();
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        }
        assert_eq!(Arc::strong_count(&held), 1);
    });
    assert_eq!((rt.metrics().parked, rt.metrics().live), (0, 0));
}

// A panic in a poll comes out of the join; cancellation drops the future.
#[test]
fn tasks_panic_and_are_cancelled() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    rt.run(|| {
        let task = fibra::spawn_future(async {
            yield_once().await;
            resume_unwind(Box::new("in a poll"))
        });
        assert_eq!(task.join().unwrap_err().message(), "in a poll");
        let held = Arc::new(());
        for _ in 0..100 {
            let (inside, event) = (held.clone(), Event::new());
            let task = fibra::spawn_future(async move {
                event.happened().await;
                drop(inside);
            });
            fibra::yield_now();
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        }
        assert_eq!(Arc::strong_count(&held), 1);
    });
}

// S0-66: pending tasks are cancelled, and dropped, when their runtime goes; their wakers may be called all the while.
#[test]
fn pending_tasks_end_with_their_runtime() {
    let _watchdog = watchdog(120);
    for round in 0..turns(100) {
        let rt = workers(2);
        let (held, event) = (Arc::new(()), Event::new());
        let _entered = rt.handle().enter();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (held, event) = (held.clone(), event.clone());
                fibra::spawn_future(async move {
                    event.happened().await;
                    drop(held);
                })
            })
            .collect();
        if round % 2 == 0 {
            eventually(|| event.waiting() == 100, || format!("{:?}", rt.metrics()));
        }
        let late = (round % 3 == 0).then(|| std::thread::spawn(move || event.set()));
        drop(rt);
        for task in tasks {
            let ended = task.join();
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
        }
        assert_eq!(Arc::strong_count(&held), 1);
        if let Some(late) = late {
            late.join().unwrap();
        }
    }
}

// A task that is woken while it is being polled is polled once more, not lost.
#[test]
fn a_wake_during_a_poll_is_not_lost() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let counter = Counter::new();
    rt.run(|| {
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let counter = counter.clone();
                fibra::spawn_future(async move {
                    for _ in 0..turns(2_000) {
                        yield_once().await;
                    }
                    counter.add(1);
                })
            })
            .collect();
        counter.wait(10);
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
}
