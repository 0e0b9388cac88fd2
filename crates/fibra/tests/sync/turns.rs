//! `Event`, `Barrier`, `WaitGroup`: no waiter is left behind, none goes too early, and one that gives up is not counted.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{panic_of, until_parked, watchdog, workers};
use fibra::sync::{Barrier, Event, WaitGroup};
use fibra::time::Instant;

// ---- Event ----------------------------------------------------------------------------------------------------------------

// However many and whatever they are, and however soon it is reset: every waiter goes on.
#[test]
fn a_set_event_leaves_no_waiter_behind() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    let event = Arc::new(Event::new());
    for _ in 0..20 {
        let fibers: Vec<_> = (0..9)
            .map(|way| {
                let event = event.clone();
                rt.spawn(move || match way % 3 {
                    0 => event.wait(),
                    1 => fibra::block_on(event.wait_async()),
                    _ => fibra::select! { on(event.waiting()) => {} },
                })
            })
            .collect();
        until_parked(&rt, 9);
        event.set();
        event.reset();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert!(!event.is_set() && !event.wait_timeout(Duration::ZERO));
    }
    // A future that was polled before, and not while it was set.
    let mut future = pin!(event.wait_async());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    event.set();
    event.reset();
    assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready(()));
}

#[test]
fn a_cancelled_waiter_leaves_the_event_as_it_was() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let event = Arc::new(Event::new());
    let fibers: Vec<_> = (0..3)
        .map(|_| {
            let event = event.clone();
            rt.spawn(move || event.wait())
        })
        .collect();
    until_parked(&rt, 3);
    fibers[1].cancel();
    fibers[1].wait();
    let thread = std::thread::spawn({
        let event = event.clone();
        move || event.wait_timeout(Duration::MAX)
    });
    assert!(!event.is_set() && !fibers[0].is_finished());
    event.set();
    event.set();
    let cancelled: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().is_err()).collect();
    assert_eq!(cancelled, [false, true, false]);
    assert!(thread.join().unwrap());
    assert!(event.wait_timeout(Duration::ZERO) && event.wait_deadline(Instant::now()));
    println!("{event:?}");
}

// ---- Barrier --------------------------------------------------------------------------------------------------------------

#[test]
fn a_barrier_of_none_is_like_one_of_one() {
    for size in [0, 1] {
        let barrier = Barrier::new(size);
        for _ in 0..3 {
            assert!(barrier.wait().is_leader());
            assert!(barrier.wait_timeout(Duration::ZERO).unwrap().is_leader());
            assert!(fibra::block_on(barrier.wait_async()).is_leader());
        }
    }
    assert!(panic_of(|| drop(Barrier::new(usize::MAX))).contains("16,777,215"));
}

// Groups of fibers, threads and futures, round after round: none is a round ahead, and each has one leader.
#[test]
fn no_fiber_is_ahead_of_the_others() {
    let _watchdog = watchdog(60);
    const ROUNDS: usize = 200;
    let rt = workers(2);
    let barrier = Arc::new(Barrier::new(5));
    let (arrived, leaders) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let round = |barrier: &Barrier, way: usize| match way {
        0 => fibra::block_on(barrier.wait_async()),
        1 => barrier.wait_timeout(Duration::MAX).unwrap(),
        _ => barrier.wait(),
    };
    let body = {
        let (barrier, arrived, leaders) = (barrier.clone(), arrived.clone(), leaders.clone());
        move |way: usize| {
            for number in 0..ROUNDS {
                arrived.fetch_add(1, SeqCst);
                let result = round(&barrier, way);
                let seen = arrived.load(SeqCst);
                assert!(seen >= (number + 1) * 5, "round {number} with only {seen}");
                leaders.fetch_add(usize::from(result.is_leader()), SeqCst);
                round(&barrier, way);
            }
        }
    };
    let fibers: Vec<_> = (0..3)
        .map(|way| {
            let body = body.clone();
            rt.spawn(move || body(way))
        })
        .collect();
    let threads: Vec<_> = (0..2)
        .map(|way| {
            let body = body.clone();
            std::thread::spawn(move || body(way + 1))
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((leaders.load(SeqCst), arrived.load(SeqCst)), (ROUNDS, ROUNDS * 5));
}

#[test]
fn a_waiter_that_gives_up_at_a_barrier_is_not_counted() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let barrier = Arc::new(Barrier::new(2));
    assert!(barrier.wait_timeout(Duration::ZERO).is_none());
    assert!(barrier.wait_timeout(Duration::from_millis(1)).is_none());
    assert!(barrier.wait_deadline(Instant::now()).is_none());
    let waiting = barrier.clone();
    let fiber = rt.spawn(move || waiting.wait().is_leader());
    until_parked(&rt, 1);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    {
        let mut future = pin!(barrier.wait_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(format!("{barrier:?}"), "Barrier { size: 2, here: 1 }");
    }
    assert_eq!(format!("{barrier:?}"), "Barrier { size: 2, here: 0 }");
    let waiting = barrier.clone();
    let other = rt.spawn(move || waiting.wait().is_leader());
    until_parked(&rt, 1);
    assert!(barrier.wait().is_leader());
    assert!(!other.join().unwrap());
}

// ---- WaitGroup ------------------------------------------------------------------------------------------------------------

#[test]
fn by_handles_and_by_numbers() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    let done = Arc::new(AtomicUsize::new(0));
    let group = WaitGroup::new();
    for way in 0..20 {
        let (group, done) = (group.clone(), done.clone());
        drop(rt.spawn(move || {
            if way % 2 == 0 {
                fibra::sleep(Duration::from_millis(1));
            }
            done.fetch_add(1, SeqCst);
            drop(group);
        }));
    }
    group.wait();
    assert_eq!(done.load(SeqCst), 20);
    assert!(group.is_done() && group.wait_timeout(Duration::ZERO));
    // By numbers, shared by reference; and again.
    for _ in 0..2 {
        group.add(3);
        assert!(!group.is_done() && !group.wait_timeout(Duration::ZERO) && !group.wait_deadline(Instant::now()));
        std::thread::scope(|s| {
            (0..3).for_each(|_| drop(s.spawn(|| group.done())));
            group.wait();
        });
    }
    group.add(0);
    group.wait();
    println!("{group:?}");
}

#[test]
fn handles_can_wait_for_each_other() {
    let _watchdog = watchdog(60);
    let group = WaitGroup::new();
    let arrived = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|way| {
            let (group, arrived) = (group.clone(), arrived.clone());
            std::thread::spawn(move || {
                arrived.fetch_add(1, SeqCst);
                match way {
                    0 => fibra::block_on(group.wait_async()),
                    1 => fibra::select! { on(group.waiting()) => {} },
                    _ => group.wait(),
                }
                assert_eq!(arrived.load(SeqCst), 5);
            })
        })
        .collect();
    arrived.fetch_add(1, SeqCst);
    group.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn below_zero_is_a_clear_panic() {
    let group = WaitGroup::new();
    assert!(panic_of(|| group.done()).contains("more often"));
    group.add(1);
    group.done();
    assert!(panic_of(|| group.done()).contains("more often"));
    assert!(panic_of(|| group.add(usize::MAX)).contains("16,777,215"));
    group.wait();
}

#[test]
fn a_cancelled_waiter_of_a_group_leaves_it_usable() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let waiting = group.clone();
    let fiber = rt.spawn(move || waiting.wait());
    until_parked(&rt, 1);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert!(!group.wait_timeout(Duration::ZERO));
    group.done();
    group.wait();
    // A fiber that is cancelled with a handle drops it: that is what it stood for.
    let handle = group.as_ref().clone();
    let fiber = rt.spawn(move || {
        let _handle = handle;
        fibra::sleep(Duration::from_secs(3600));
    });
    until_parked(&rt, 1);
    assert!(!group.is_done());
    fiber.cancel();
    group.wait();
}

#[test]
fn stress_events_barriers_and_groups() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let until = Instant::now() + Duration::from_millis(300);
    let event = Arc::new(Event::new());
    let fibers: Vec<_> = (0..6)
        .map(|way: usize| {
            let event = event.clone();
            rt.spawn(move || {
                let mut round = way;
                while Instant::now() < until {
                    round += 1;
                    match round % 4 {
                        0 => event.wait(),
                        1 => fibra::block_on(event.wait_async()),
                        2 => drop(event.wait_timeout(Duration::from_micros(20))),
                        _ => {
                            let event = event.clone();
                            let child = fibra::spawn(move || event.wait());
                            fibra::yield_now();
                            child.cancel();
                            child.wait();
                        }
                    }
                }
            })
        })
        .collect();
    while Instant::now() < until {
        event.set();
        std::thread::yield_now();
        event.reset();
    }
    event.set();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}
