//! No fiber starves: not beside a hot pair, not beside a fiber that yields for ever, not in the injector, not behind a hog elsewhere.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::support::{self, is_child, rerun_self, watchdog, workers};
use crate::tools::{Counter, Event, many};

/// Two fibers that wake each other until told to stop; returns how often one of them ran.
fn hot_pair(stop: &Arc<AtomicBool>) -> [fibra::JoinHandle<u64>; 2] {
    let (ping, pong) = (Counter::new(), Counter::new());
    let one = |mine: Counter, other: Counter, stop: Arc<AtomicBool>| {
        move || {
            let mut round = 0;
            while !stop.load(SeqCst) {
                round += 1;
                other.add(1);
                mine.wait(round);
            }
            // Let the other one see the flag, however far it is.
            other.add(u64::MAX / 2);
            round
        }
    };
    [fibra::spawn(one(ping.clone(), pong.clone(), stop.clone())), fibra::spawn(one(pong, ping, stop.clone()))]
}

/// The pair goes on until all other fibers have run: if one starved, it would go on for ever.
fn every_fiber_runs_beside_a_hot_pair(workers: usize) {
    let count = many(5_000);
    support::workers(workers).run(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let pair = hot_pair(&stop);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..count {
            let (ran, stop) = (ran.clone(), stop.clone());
            drop(fibra::spawn(move || {
                fibra::yield_now();
                if ran.fetch_add(1, SeqCst) + 1 == count {
                    stop.store(true, SeqCst);
                }
            }));
        }
        for fiber in pair {
            assert!(fiber.join().unwrap() > 0);
        }
        assert_eq!(ran.load(SeqCst), count);
    });
}

// 5,000 fibers beside a hot pair.
#[test]
fn five_thousand_run_beside_a_hot_pair_on_one_worker() {
    let _watchdog = watchdog(120);
    every_fiber_runs_beside_a_hot_pair(1);
}

//
#[test]
fn five_thousand_run_beside_a_hot_pair_on_four_workers() {
    let _watchdog = watchdog(120);
    every_fiber_runs_beside_a_hot_pair(4);
}

// hand-overs to the joiner run before the queue, but not for ever: a chain of joins beside one that waits for its turn.
#[test]
fn a_chain_of_joins_does_not_keep_a_ready_fiber_waiting() {
    let _watchdog = watchdog(120);
    workers(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let stopper = {
            let stop = stop.clone();
            fibra::spawn_local(move || {
                fibra::yield_now();
                stop.store(true, SeqCst);
            })
        };
        while !stop.load(SeqCst) {
            fibra::spawn(|| fibra::spawn(|| ()).join().unwrap()).join().unwrap();
        }
        stopper.join().unwrap();
    });
}

// X-07, S0-25, S1-104: a fiber that yields until the sleepers of its worker have woken: it must not hold them up.
#[test]
fn sleepers_wake_beside_a_fiber_that_yields_for_ever() {
    let _watchdog = watchdog(120);
    for workers in [1, 3] {
        support::workers(workers).run(|| {
            let woken = Arc::new(AtomicUsize::new(0));
            for index in 0..100 {
                let woken = woken.clone();
                drop(fibra::spawn(move || {
                    fibra::sleep(Duration::from_micros(100 * index));
                    woken.fetch_add(1, SeqCst);
                }));
            }
            while woken.load(SeqCst) < 100 {
                fibra::yield_now();
            }
        });
    }
}

// S1-37, S1-31, S0-65: the local queue is hot (two yield for ever); one lone fiber from outside runs all the same, and soon:
// within so many turns of this worker as its rule says, and a few for what it does besides.
#[test]
fn a_lone_injected_fiber_runs_beside_a_hot_queue() {
    let _watchdog = watchdog(120);
    let rt = workers(1);
    let handle = rt.handle();
    rt.run(move || {
        for _ in 0..100 {
            let ran = Arc::new(AtomicBool::new(false));
            let stop = Arc::new(AtomicBool::new(false));
            let other = {
                let stop = stop.clone();
                fibra::spawn_local(move || {
                    while !stop.load(SeqCst) {
                        fibra::yield_now();
                    }
                })
            };
            let (flag, handle) = (ran.clone(), handle.clone());
            // The worker waits meanwhile, so that no turn passes between the push and the count.
            std::thread::spawn(move || drop(handle.spawn(move || flag.store(true, SeqCst)))).join().unwrap();
            let mut turns = 0;
            while !ran.load(SeqCst) {
                // Two of them in the queue: two turns each time.
                fibra::yield_now();
                turns += 2;
            }
            assert!(turns <= 130, "a lone fiber in the injector had to wait for {turns} turns");
            stop.store(true, SeqCst);
            other.join().unwrap();
        }
    });
}

// S1-35, X-07: what was spawned from outside runs beside a worker that spawns and yields for ever.
#[test]
fn injected_fibers_run_beside_a_spawner() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let outside = Counter::new();
    let count = many(5_000) as u64;
    let done = outside.clone();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rt.run(|| {
                while !stop.load(SeqCst) {
                    drop(fibra::spawn(fibra::yield_now));
                    fibra::yield_now();
                }
            });
        });
        for _ in 0..count {
            let outside = outside.clone();
            drop(rt.spawn(move || outside.add(1)));
        }
        done.wait(count);
        stop.store(true, SeqCst);
    });
}

// a heartbeat on another worker goes on beside a hog, which computes until it has heard enough of it.
#[test]
fn a_heartbeat_goes_on_beside_a_hog_on_another_worker() {
    let _watchdog = watchdog(120);
    workers(2).run(|| {
        let beats = Arc::new(AtomicUsize::new(0));
        let stop = Event::new();
        let started = Event::new();
        let heart = {
            let (beats, stop, started) = (beats.clone(), stop.clone(), started.clone());
            // This fiber is on one worker, so the other has the fewest.
            fibra::Builder::new().spread().spawn(move || {
                started.set();
                while !stop.is_set() {
                    fibra::sleep(Duration::from_millis(1));
                    beats.fetch_add(1, SeqCst);
                }
                std::thread::current().id()
            })
        };
        started.wait();
        while beats.load(SeqCst) < 20 {
            std::hint::spin_loop();
        }
        stop.set();
        assert_ne!(heart.unwrap().join().unwrap(), std::thread::current().id());
    });
}

// sleeps that are over before they begin, and waits whose time is up, are yields: the loop goes on until the others have run.
#[test]
fn waits_without_time_let_others_run() {
    let _watchdog = watchdog(120);
    workers(1).run(|| {
        for nanos in [0, 1, 30, 100, 1_000] {
            let stop = Arc::new(AtomicBool::new(false));
            let others: Vec<_> = (0..10)
                .map(|index| {
                    let stop = stop.clone();
                    fibra::spawn(move || {
                        fibra::yield_now();
                        stop.fetch_or(index == 9, SeqCst);
                    })
                })
                .collect();
            while !stop.load(SeqCst) {
                fibra::sleep(Duration::from_nanos(nanos));
            }
            let last = fibra::spawn_local(fibra::yield_now);
            while !last.wait_timeout(Duration::from_nanos(nanos)) {}
            others.into_iter().for_each(|other| other.join().unwrap());
        }
    });
}

/// Pending once, and woken by itself: what async code calls a yield.
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

// futures that wake themselves, as tasks and under `block_on`, let all other fibers run: they go on until the others have.
#[test]
fn futures_that_wake_themselves_let_others_run() {
    let _watchdog = watchdog(120);
    workers(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| async move {
            while !stop.load(SeqCst) {
                yield_once().await;
            }
        };
        let tasks: Vec<_> = (0..2).map(|_| fibra::spawn_future(spin(stop.clone()))).collect();
        let blocked = {
            let future = spin(stop.clone());
            fibra::spawn(move || fibra::block_on(future))
        };
        let fibers: Vec<_> = (0..100).map(|_| fibra::spawn(|| fibra::sleep(Duration::from_micros(10)))).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        stop.store(true, SeqCst);
        tasks.into_iter().for_each(|task| task.join().unwrap());
        blocked.join().unwrap();
    });
}

/// A fiber that keeps its worker's deque long and goes on switching, until `stop`: an owner that makes progress.
fn busy_owner(stop: &Arc<AtomicBool>) -> fibra::JoinHandle<()> {
    let stop = stop.clone();
    fibra::spawn(move || {
        while !stop.load(SeqCst) {
            for _ in 0..64 {
                drop(fibra::spawn(|| ()));
            }
            for _ in 0..32 {
                fibra::yield_now();
            }
        }
    })
}

// a thief leaves an owner alone that makes progress, but not for ever: what such an owner does not get to is taken at last.
#[test]
fn an_owner_that_makes_progress_is_taken_from_at_last() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let owner = busy_owner(&stop);
        while fibra::Handle::current().metrics().stolen == 0 {
            fibra::yield_now();
        }
        stop.store(true, SeqCst);
        owner.join().unwrap();
    });
}

// a fiber that blocks its thread in a system call uses no processor time; what was spawned there runs elsewhere all the same.
#[test]
fn fibers_behind_a_thread_that_blocks_run_elsewhere() {
    let _watchdog = watchdog(120);
    workers(2).run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let ran = ran.clone();
            drop(fibra::spawn(move || ran.fetch_add(1, SeqCst)));
        }
        while ran.load(SeqCst) < 50 {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

// the oldest of a deque whose owner takes the newest: beside an owner that spawns for ever each of a hundred runs.
#[test]
fn the_oldest_runs_beside_an_owner_that_spawns_for_ever() {
    let _watchdog = watchdog(120);
    for workers in [1, 2, 4] {
        support::workers(workers).run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            let stop = Arc::new(AtomicBool::new(false));
            for _ in 0..100 {
                let (ran, stop) = (ran.clone(), stop.clone());
                drop(fibra::spawn(move || {
                    if ran.fetch_add(1, SeqCst) + 1 == 100 {
                        stop.store(true, SeqCst);
                    }
                }));
            }
            busy_owner(&stop).join().unwrap();
        });
    }
}

// Without the system monitor, no other thread calls a sleeper for surplus that appears beside a fiber which does not switch again.
#[test]
fn surplus_beside_a_spinner_is_fetched_without_a_monitor() {
    const TEST: &str = "surplus_beside_a_spinner_is_fetched_without_a_monitor";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap().run(|| {
        for round in 0..300 {
            let ran = Arc::new(AtomicBool::new(false));
            let (sets, spins) = (ran.clone(), ran);
            let child = fibra::spawn(move || sets.store(true, SeqCst));
            let spinner = fibra::spawn(move || {
                while !spins.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            child.join().unwrap();
            spinner.join().unwrap();
            // The other worker falls asleep, at some moment of the time in which it is not to be woken again.
            let until = fibra::time::Instant::now() + Duration::from_micros(round % 200);
            while fibra::time::Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    });
}
