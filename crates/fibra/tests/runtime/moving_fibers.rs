//! Fibers with thread-locals of their own that go on on other workers (`Builder::moving`).

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::own_locals::{LIST, NUMBER};
use crate::support;
use fibra::{Builder, JoinHandle, Runtime};

/// The thread of the system that this runs on.
#[inline(never)]
pub(crate) fn system_thread() -> i32 {
    // SAFETY: a question.
    unsafe { libc::gettid() }
}

/// Like [`start`], of a fiber that may go on on another worker.
pub(crate) fn start_moving<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    // SAFETY: the code of these tests keeps nothing that belongs to a thread of the system.
    match unsafe { Builder::new().own_locals().moving() }.spawn(f) {
        Ok(fiber) => Some(fiber),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            None
        }
    }
}

/// Runs `f` as a fiber that goes to the next of three workers whenever it yields.
pub(crate) fn with_moves<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let runtime = Runtime::builder().workers(3).force_moves().build().unwrap();
    runtime.run(|| start_moving(f).map(|fiber| fiber.join().unwrap()))
}

// What miscompiles without thread-locals of their own (decision 1): the address of a thread-local is kept over suspensions after which
// the fiber goes on on another thread. Every value is right.
#[test]
fn an_address_of_a_thread_local_is_kept_over_moves() {
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        let name = std::thread::current().id();
        let mut sum = 0;
        for round in 0..300u64 {
            let thread = system_thread();
            NUMBER.with(|mine| {
                let before = mine.get();
                fibra::yield_now();
                mine.set(before + round);
            });
            assert_ne!(system_thread(), thread, "it has gone on elsewhere");
            sum += round;
            LIST.with_borrow_mut(|list| {
                fibra::yield_now();
                list.push(round);
            });
            assert_eq!(std::thread::current().id(), name);
            let caught = std::panic::catch_unwind(|| {
                fibra::yield_now();
                std::panic::resume_unwind(Box::new(round));
            });
            assert_eq!(*caught.unwrap_err().downcast::<u64>().unwrap(), round);
            assert!(!std::thread::panicking());
            assert_eq!((NUMBER.get(), LIST.with_borrow(Vec::len) as u64), (sum, round + 1));
        }
    });
}

// What it shares with local fibers need not be `Send`: from the first local fiber on it stays with them.
#[test]
fn it_stays_with_local_fibers() {
    let _watchdog = support::watchdog(60);
    with_moves(|| {
        let moves = || {
            let before = system_thread();
            fibra::yield_now();
            system_thread() != before
        };
        assert!(moves() && moves());
        let shared = std::rc::Rc::new(Cell::new(0));
        let local = {
            let shared = shared.clone();
            fibra::spawn_local(move || {
                for _ in 0..100 {
                    shared.set(shared.get() + 1);
                    fibra::yield_now();
                }
            })
        };
        for _ in 0..100 {
            shared.set(shared.get() + 1);
            assert!(!moves());
        }
        local.join().unwrap();
        assert_eq!((shared.get(), std::rc::Rc::strong_count(&shared)), (200, 1));
        assert!(!moves());
    });
}

// Also with a local fiber that it starts in a scope of its parent.
#[test]
fn it_stays_with_local_children_of_another_fibers_scope() {
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        fibra::scope(|s| {
            let moves = || {
                let before = system_thread();
                fibra::yield_now();
                system_thread() != before
            };
            // SAFETY: as in `start_moving`.
            let child = unsafe { Builder::new().own_locals().moving() }.spawn_scoped(s, move || {
                assert!(moves() && moves());
                let shared = std::rc::Rc::new(Cell::new(0));
                let its = shared.clone();
                let local = s.spawn_local(move || (0..50).for_each(|_| (its.set(its.get() + 1), fibra::yield_now()).1));
                for _ in 0..50 {
                    shared.set(shared.get() + 1);
                    assert!(!moves());
                }
                local.join().unwrap();
                assert_eq!(shared.get(), 100);
            });
            match child {
                Ok(child) => child.join().unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
            }
        });
    });
}

// What it has opened goes along: a scope, a lock, what it borrows; and its children find it.
#[test]
fn scopes_and_locks_move_along() {
    let _watchdog = support::watchdog(120);
    let sum = with_moves(|| {
        let lock = fibra::sync::Mutex::new(0u64);
        for _ in 0..50 {
            let mut held = lock.lock();
            fibra::yield_now();
            *held += 1;
            drop(held);
            fibra::scope(|s| {
                let first = s.spawn(|| *lock.lock() += 1);
                fibra::yield_now();
                let second = s.spawn(|| *lock.lock() += 1);
                fibra::yield_now();
                first.join().unwrap();
                second.join().unwrap();
                // Left to the end of the scope.
                drop(s.spawn(|| *lock.lock() += 1));
            });
            let cut_short = fibra::scope(|s| {
                let child = s.spawn(|| fibra::sleep(Duration::from_secs(3600)));
                fibra::yield_now();
                s.cancel();
                child.join().is_err()
            });
            assert!(cut_short);
        }
        *lock.lock()
    });
    assert!(sum.is_none_or(|sum| sum == 200), "{sum:?}");
}

// All of fibra works for a fiber that moves at any wait: its scopes, children, locks, channels, time-outs, sockets, cancellation.
#[test]
fn stress_everything_works_while_moving() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        let lock = Arc::new(fibra::sync::Mutex::new(0u64));
        let (tx, rx) = fibra::channel::bounded::<u64>(4);
        let fibers: Vec<_> = (0..16u64)
            .filter_map(|number| {
                let (lock, tx) = (lock.clone(), tx.clone());
                start_moving(move || {
                    let me = fibra::current().unwrap().id();
                    for round in 0..30 {
                        NUMBER.set(NUMBER.get() + 1);
                        tx.send(number).unwrap();
                        *lock.lock() += 1;
                        let sum = fibra::scope(|s| {
                            let children: Vec<_> = (0..3).map(|n| s.spawn(move || n + number)).collect();
                            fibra::yield_now();
                            let late = s.spawn(fibra::yield_now);
                            let sum = children.into_iter().map(|child| child.join().unwrap()).sum::<u64>();
                            late.join().unwrap();
                            sum
                        });
                        assert_eq!(sum, 3 + 3 * number);
                        let late = fibra::timeout(Duration::from_micros(200), || {
                            fibra::yield_now();
                            fibra::sleep(Duration::from_secs(3600));
                        });
                        assert!(late.is_err());
                        let (a, b) = fibra::join(|| (fibra::yield_now(), 1).1, || 2);
                        assert_eq!(a + b, 3);
                        assert_eq!(fibra::blocking(|| 5), 5);
                        assert_eq!((fibra::current().unwrap().id(), NUMBER.get()), (me, round + 1));
                        let caught = std::panic::catch_unwind(|| {
                            fibra::yield_now();
                            std::panic::resume_unwind(Box::new(number));
                        });
                        assert_eq!(*caught.unwrap_err().downcast::<u64>().unwrap(), number);
                    }
                })
            })
            .collect();
        drop(tx);
        let (count, got) = (fibers.len() as u64, rx.iter().count() as u64);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!((got, *lock.lock()), (count * 30, count * 30));
    });
}

// One that is parked on no worker is found by its canceller, by its scope and by shutdown; its thread-locals are dropped.
#[test]
fn moving_fibers_are_cancelled_wherever_they_are() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local!(static KEPT: RefCell<Option<Counts>> = const { RefCell::new(None) });
    fn parks(rx: &fibra::channel::Receiver<()>, here: &AtomicUsize) {
        KEPT.set(Some(Counts));
        fibra::yield_now();
        here.fetch_add(1, Ordering::Relaxed);
        let _ = rx.recv();
    }
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let count = runtime.run(|| {
        let (tx, rx) = fibra::channel::bounded::<()>(1);
        let here = Arc::new(AtomicUsize::new(0));
        let start = || {
            let (rx, here) = (rx.clone(), here.clone());
            start_moving(move || parks(&rx, &here))
        };
        let Some(by_handle) = start() else { return 0 };
        // Left to the end of the run.
        let (daemons_rx, daemons_here) = (rx.clone(), here.clone());
        // SAFETY: as in `start_moving`.
        let daemon = unsafe { Builder::new().daemon(true).own_locals().moving() };
        drop(daemon.spawn(move || parks(&daemons_rx, &daemons_here)).unwrap());
        fibra::scope(|s| {
            // SAFETY: as in `start_moving`.
            let moving = unsafe { Builder::new().own_locals().moving() };
            let child = moving.spawn_scoped(s, || parks(&rx, &here)).unwrap();
            while here.load(Ordering::Relaxed) < 3 {
                fibra::yield_now();
            }
            by_handle.cancel();
            assert!(by_handle.join().unwrap_err().is_cancelled());
            s.cancel();
            assert!(child.join().unwrap_err().is_cancelled());
        });
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
        // Cancellation has ended the waits, and not the end of the channel.
        drop(tx);
        3
    });
    drop(runtime);
    assert_eq!(DROPPED.load(Ordering::Relaxed), count);
}

// S0-54, S1-94: a fiber that may move and is woken on a worker that makes no progress is run by another one.
#[test]
fn a_hog_does_not_strand_a_fiber_that_moves() {
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(2).build().unwrap().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let (tx, rx) = fibra::channel::unbounded::<()>();
        let waits = {
            let stop = stop.clone();
            start_moving(move || {
                rx.recv().unwrap();
                stop.store(true, Ordering::Relaxed);
            })
        };
        let Some(waits) = waits else { return };
        let hog = {
            let stop = stop.clone();
            fibra::spawn(move || {
                // Woken on the worker that is held up from now on, until the one that was woken ends that.
                tx.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        waits.join().unwrap();
        hog.join().unwrap();
    });
}

#[test]
fn moving_needs_own_locals() {
    fibra::run(|| {
        // SAFETY: nothing is started.
        let error = unsafe { Builder::new().moving() }.spawn(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("own_locals()"), "{error}");
    });
}

// S1-94, S1-103: the time of a fiber that may move is kept although the worker on which it lay down makes no progress.
#[test]
fn a_hog_does_not_hold_up_a_deadline_of_a_fiber_that_moves() {
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(2).max_workers(2).build().unwrap().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = fibra::channel::bounded::<i32>(1);
        let (_kept, never) = fibra::channel::bounded::<()>(1);
        let sleeps = {
            let stop = stop.clone();
            start_moving(move || {
                tell.send(system_thread()).unwrap();
                // (Two kinds of waits with a deadline.)
                fibra::sleep(Duration::from_millis(200));
                assert!(never.recv_timeout(Duration::from_millis(50)).is_err());
                stop.store(true, Ordering::Relaxed);
            })
        };
        let Some(sleeps) = sleeps else { return };
        let thread = told.recv().unwrap();
        // One on each worker: the one on the sleeper's computes until the sleeper ends that.
        let started = Arc::new(fibra::sync::Barrier::new(2));
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let (stop, started) = (stop.clone(), started.clone());
                let hog = move || {
                    started.wait();
                    while system_thread() == thread && !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                Builder::new().spread().spawn(hog).unwrap()
            })
            .collect();
        sleeps.join().unwrap();
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
    });
}

/// A fiber that was spread, on this thread: it computes until `stop` if it is sent `true`, wakes again and again until then if it is sent
/// `false`, and ends if it is sent nothing.
fn post(stop: &Arc<AtomicBool>) -> (i32, fibra::channel::Sender<bool>, JoinHandle<()>) {
    let (tell, told) = fibra::channel::bounded::<i32>(1);
    let (order, orders) = fibra::channel::bounded::<bool>(1);
    let stop = stop.clone();
    let body = move || {
        tell.send(system_thread()).unwrap();
        let Ok(computes) = orders.recv() else { return };
        while !stop.load(Ordering::Relaxed) {
            if computes {
                std::hint::spin_loop();
            } else {
                fibra::sleep(Duration::from_millis(1));
            }
        }
    };
    let fiber = Builder::new().spread().spawn(body).unwrap();
    (told.recv().unwrap(), order, fiber)
}

// S1-94, S1-103: without sysmon, too, as long as another worker is awake: that one looks at the deadlines of those that are stuck.
#[test]
fn another_worker_keeps_the_time_of_one_that_is_stuck() {
    const TEST: &str = "another_worker_keeps_the_time_of_one_that_is_stuck";
    if !support::is_child(TEST) {
        let ended = support::rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
        return assert!(ended.status.success(), "{ended:?}");
    }
    let _watchdog = support::watchdog(30);
    Runtime::builder().workers(2).max_workers(2).build().unwrap().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = fibra::channel::bounded::<i32>(1);
        let sleeps = {
            let stop = stop.clone();
            start_moving(move || {
                tell.send(system_thread()).unwrap();
                fibra::sleep(Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
            })
        };
        let Some(sleeps) = sleeps else { return };
        let thread = told.recv().unwrap();
        let mut posted: Vec<(i32, fibra::channel::Sender<bool>, JoinHandle<()>)> = Vec::new();
        let mut on = |is_sleepers: bool| loop {
            if let Some(at) = posted.iter().position(|(at, ..)| (*at == thread) == is_sleepers) {
                break posted.swap_remove(at);
            }
            posted.push(post(&stop));
        };
        let (wakes, computes) = (on(false), on(true));
        wakes.1.send(false).unwrap();
        computes.1.send(true).unwrap();
        sleeps.join().unwrap();
        [wakes, computes].into_iter().for_each(|(.., fiber)| fiber.join().unwrap());
    });
}

// S1-16, S1-93, S4-80: a worker that leaves is not kept by fibers that move, wherever they have run; those that it has go on elsewhere.
#[test]
fn a_leaving_worker_hands_on_fibers_that_move() {
    let _watchdog = support::watchdog(120);
    // (No worker is added because a busy machine makes one look stuck.)
    let stall = Duration::from_secs(3600);
    let runtime = Runtime::builder().workers(3).max_workers(3).stall_after(stall).force_moves().build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, rx) = fibra::channel::bounded::<()>(1);
    let begun = Arc::new(AtomicUsize::new(0));
    let _entered = runtime.handle().enter();
    let fibers: Vec<_> = (0..6)
        .filter_map(|number| {
            let (stop, rx, begun) = (stop.clone(), rx.clone(), begun.clone());
            start_moving(move || {
                // On all three, before it is told to go on or to wait.
                (0..10).for_each(|_| fibra::yield_now());
                begun.fetch_add(1, Ordering::Relaxed);
                while number % 3 == 0 && !stop.load(Ordering::Relaxed) {
                    fibra::yield_now();
                }
                while number % 3 == 1 && !stop.load(Ordering::Relaxed) {
                    fibra::sleep(Duration::from_micros(100));
                }
                assert!(rx.recv().is_err());
            })
        })
        .collect();
    support::eventually(|| begun.load(Ordering::Relaxed) == fibers.len(), || format!("{begun:?} have begun"));
    for _ in 0..3 {
        runtime.set_workers(1).unwrap();
        let workers = || runtime.metrics().pool.workers;
        support::eventually(|| workers() == 1, || format!("{:?}", runtime.metrics()));
        assert!(fibers.iter().all(|fiber| !fiber.is_finished()));
        runtime.set_workers(3).unwrap();
        support::eventually(|| workers() == 3, || format!("{} workers", workers()));
    }
    runtime.set_workers(1).unwrap();
    stop.store(true, Ordering::Relaxed);
    drop(tx);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

// The gauge counts those that wait, and not those that could run.
#[test]
fn fibers_that_move_count_as_parked_while_they_wait() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).force_moves().build().unwrap();
    let (tx, rx) = fibra::channel::bounded::<()>(1);
    let _entered = runtime.handle().enter();
    let fibers: Vec<_> = (0..5)
        .filter_map(|number| {
            let rx = rx.clone();
            start_moving(move || {
                (0..20).for_each(|_| fibra::yield_now());
                if number % 2 == 0 { rx.recv().is_err() } else { rx.recv_timeout(Duration::from_secs(3600)).is_err() }
            })
        })
        .collect();
    let parked = || runtime.metrics().parked;
    support::eventually(|| parked() == fibers.len() as u64, || format!("{} are parked", parked()));
    drop(tx);
    fibers.into_iter().for_each(|fiber| assert!(fiber.join().unwrap()));
    assert_eq!(parked(), 0);
}

/// Two workers; a fiber that moves and listens; and on each worker a fiber that calls `body`, once both are there: with whether that is
/// the worker on which the listener waits, what wakes the listener, and a flag that it sets then. Gives its threads before and after.
fn with_listener(
    body: impl Fn(bool, &fibra::channel::Sender<()>, &AtomicBool) + Send + Sync + 'static,
) -> Option<(i32, i32)> {
    let runtime = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    // (From a thread that is no worker: nothing but what is said is on the two.)
    let _entered = runtime.handle().enter();
    let (tx, rx) = fibra::channel::unbounded::<()>();
    let (tell, told) = fibra::channel::unbounded::<i32>();
    let stop = Arc::new(AtomicBool::new(false));
    let listener = {
        let stop = stop.clone();
        start_moving(move || {
            tell.send(system_thread()).unwrap();
            rx.recv().unwrap();
            stop.store(true, Ordering::Relaxed);
            tell.send(system_thread()).unwrap();
        })
    };
    let listener = listener?;
    let home = told.recv().unwrap();
    support::eventually(|| runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
    let both = on_both_workers(home, {
        let stop = stop.clone();
        move |is_home| body(is_home, &tx, &stop)
    });
    let after = told.recv().unwrap();
    both.into_iter().for_each(|fiber| fiber.join().unwrap());
    listener.join().unwrap();
    Some((home, after))
}

/// Called on a thread that is no worker: has a fiber call `body` on each of the two workers, with whether that is the one on the thread
/// `home`, once both are there. (Where `spread` sends a fiber depends on what the workers do, so there are as many tries as it takes.)
pub(crate) fn on_both_workers(home: i32, body: impl Fn(bool) + Send + Sync + 'static) -> Vec<JoinHandle<()>> {
    let body = Arc::new(body);
    let mut found = [None, None];
    while found.iter().any(Option::is_none) {
        let (tell, told) = fibra::channel::bounded::<i32>(1);
        let (begin, begins) = fibra::channel::bounded::<()>(1);
        let body = body.clone();
        let fiber = Builder::new().spread().spawn(move || {
            tell.send(system_thread()).unwrap();
            if begins.recv().is_ok() {
                body(system_thread() == home);
            }
        });
        let is_home = told.recv().unwrap() == home;
        found[usize::from(is_home)].get_or_insert((begin, fiber.unwrap()));
    }
    found.into_iter().flatten().map(|(begin, fiber)| (begin.send(()), fiber).1).collect()
}

fn spin_until(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Starts a fiber that moves, goes to another thread than this one, tells on which it is, and listens: and tells where it got each message.
fn listener(not_on: i32) -> Option<(i32, fibra::channel::Sender<()>, fibra::channel::Receiver<i32>)> {
    let (tx, rx) = fibra::channel::unbounded::<()>();
    let (tell, told) = fibra::channel::unbounded::<i32>();
    drop(start_moving(move || {
        while system_thread() == not_on {
            fibra::yield_now();
        }
        tell.send(system_thread()).unwrap();
        while rx.recv().is_ok() {
            tell.send(system_thread()).unwrap();
        }
    })?);
    Some((told.recv().unwrap(), tx, told))
}

// S1-92: fibers that move go on where they last ran, if that worker has nothing to do, and not on the one that would be woken next. (If a
// worker does not get a processor for long, another takes over what was sent to it: so there are several attempts.)
#[test]
fn a_woken_fiber_prefers_the_worker_where_it_last_ran() {
    let _watchdog = support::watchdog(60);
    let all_at_home = || {
        let runtime = Runtime::builder().workers(3).max_workers(3).force_moves().build().unwrap();
        let _entered = runtime.handle().enter();
        let first = listener(0)?;
        let both = [listener(first.0)?, first];
        let sleep = || runtime.metrics().workers.iter().all(|worker| worker.state == fibra::WorkerState::Sleep);
        Some((0..6).all(|round| {
            support::eventually(sleep, || format!("{:?}", runtime.metrics()));
            let (home, tx, told) = &both[round % 2];
            tx.send(()).unwrap();
            told.recv().unwrap() == *home
        }))
    };
    assert!((0..20).any(|_| all_at_home() != Some(false)));
}

// S1-94: but not while that worker computes.
#[test]
fn a_woken_fiber_does_not_wait_for_the_worker_where_it_last_ran() {
    let _watchdog = support::watchdog(60);
    for _ in 0..5 {
        let computes = AtomicBool::new(false);
        let moved = with_listener(move |is_home, tx, stop| {
            if is_home {
                computes.store(true, Ordering::Relaxed);
                spin_until(stop);
            } else {
                spin_until(&computes);
                // (A worker with other work sends the fiber that it wakes back.)
                let other = fibra::spawn_local(|| ());
                tx.send(()).unwrap();
                other.join().unwrap();
            }
        });
        let Some((home, after)) = moved else { return };
        assert_ne!(after, home);
    }
}
