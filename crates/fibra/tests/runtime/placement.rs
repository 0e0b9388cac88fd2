//! Where fibers run: a started one stays on its thread, an unstarted one may be taken by an idle worker, and no fiber is stuck
//! behind a spawner that computes.
#![allow(clippy::disallowed_types)] // Shared state of the tests.
#![cfg(not(fibra_context = "thread"))] // A fiber's OS thread is its stack there, not its worker.

use std::collections::{BTreeMap, HashSet};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::support::{self, workers};
use crate::support::{is_child, rerun_self, watchdog};
use crate::tools::{Counter, Event, Rng, many, turns};

fn here() -> ThreadId {
    std::thread::current().id()
}

/// Computes, without a switch, until the condition holds.
fn compute_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::hint::spin_loop();
    }
}

// S0-28, S0-80, S0-81, S0-78, S1-92: however much is stolen around it, a started fiber finds itself on the same thread after every yield,
// sleep and park, and it never runs twice at a time.
#[test]
fn started_fibers_never_change_threads() {
    let _watchdog = watchdog(120);
    let rt = workers(4);
    let mut rng = Rng::new();
    rt.run(move || {
        let fibers: Vec<_> = (0..many(500))
            .map(|_| {
                let mut rng = rng.fork();
                fibra::spawn(move || {
                    let home = here();
                    let alone = Arc::new(AtomicBool::new(false));
                    for _ in 0..50 {
                        assert!(!alone.swap(true, SeqCst), "it runs twice");
                        let step = rng.below(5);
                        // Work for others to steal meanwhile.
                        let child = fibra::spawn(move || {
                            let home = here();
                            fibra::yield_now();
                            assert_eq!(here(), home);
                            step
                        });
                        alone.store(false, SeqCst);
                        match step {
                            0 => fibra::yield_now(),
                            1 => fibra::sleep(Duration::from_micros(rng.below(100) as u64)),
                            2 => assert_eq!(child.join().unwrap(), step),
                            3 => assert_eq!(fibra::block_on(child.into_future()).unwrap(), step),
                            _ => {
                                let event = Event::new();
                                let waker = event.clone();
                                drop(fibra::spawn(move || waker.set()));
                                event.wait();
                            }
                        }
                        assert_eq!(here(), home, "a started fiber has moved");
                    }
                })
            })
            .collect();
        // Some of them are stolen before they start: this one does not switch until that has been seen.
        compute_until(|| fibra::Handle::current().metrics().stolen > 0);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    assert!(rt.metrics().stolen > 0);
}

// S0-67, S1-29, S0-71, S0-75: the spawner computes until its children have run, which they can only elsewhere; each worker in turn
// is the one they are stolen from.
#[test]
fn fresh_work_behind_a_spawner_that_computes_is_rescued() {
    let _watchdog = watchdog(120);
    let rt = workers(3);
    let spawners = Arc::new(Mutex::new(HashSet::new()));
    // All three at rest, each spawner on the worker with the fewest fibers: round they go, as the first ones stay.
    let stay = Event::new();
    for _ in 0..3 {
        let (spawners, stay, done) = (spawners.clone(), stay.clone(), Event::new());
        let tell = done.clone();
        let spawner = move || {
            spawners.lock().unwrap().insert(here());
            let (ran, threads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
            for _ in 0..50 {
                let (ran, threads) = (ran.clone(), threads.clone());
                drop(fibra::spawn(move || {
                    threads.lock().unwrap().push(here());
                    ran.fetch_add(1, SeqCst);
                }));
            }
            compute_until(|| ran.load(SeqCst) == 50);
            assert!(!threads.lock().unwrap().contains(&here()), "only a worker steals from a worker");
            tell.set();
            stay.wait();
        };
        drop(rt.handle().spawn_with(fibra::Builder::new().spread(), spawner).unwrap());
        done.wait();
    }
    assert_eq!(spawners.lock().unwrap().len(), 3, "each worker was a victim");
    assert!(rt.metrics().stolen >= 150, "each of the fifty was stolen, some perhaps from a thief: {:?}", rt.metrics());
    stay.set();
}

// Without the system monitor the rescue is not promised, but nothing is lost: they run when the spawner switches.
#[test]
fn without_sysmon_fresh_work_waits_for_the_next_switch_at_most() {
    const TEST: &str = "without_sysmon_fresh_work_waits_for_the_next_switch_at_most";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let before = support::threads();
        let rt = workers(2);
        assert_eq!(support::threads(), before + 2, "two workers and no other thread");
        rt.run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..50 {
                let ran = ran.clone();
                drop(fibra::spawn(move || ran.fetch_add(1, SeqCst)));
            }
            let begin = Instant::now();
            compute_until(|| begin.elapsed() > Duration::from_millis(20));
            (0..200).for_each(|_| fibra::yield_now());
            // On this worker they have run by now; if another one took some, it runs them.
            compute_until(|| ran.load(SeqCst) == 50);
        });
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
    assert!(ended.status.success(), "{ended:?}");
}

// S0-65: a worker with fibers of its own does not steal, however long another one's children wait; when it has none, it does.
#[test]
fn a_worker_steals_only_when_it_has_nothing_itself() {
    let _watchdog = watchdog(120);
    // (No third one is added when the first is found stuck.)
    let rt = fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let handle = rt.handle();
    rt.run(move || {
        let (busy, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let other = {
            let (busy, free) = (busy.clone(), free.clone());
            // This fiber is on one worker, so it goes to the other one.
            fibra::Builder::new().spread().spawn(move || {
                while !free.load(SeqCst) {
                    busy.fetch_add(1, SeqCst);
                    fibra::yield_now();
                }
                here()
            })
        };
        compute_until(|| busy.load(SeqCst) > 0);
        let stolen = handle.metrics().stolen;
        let (ran, threads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        for _ in 0..20 {
            let (ran, threads) = (ran.clone(), threads.clone());
            drop(fibra::spawn(move || {
                threads.lock().unwrap().push(here());
                ran.fetch_add(1, SeqCst);
            }));
        }
        // Many turns of the other one, and several looks of the system monitor.
        let (turns, begin) = (busy.load(SeqCst), Instant::now());
        compute_until(|| busy.load(SeqCst) > turns + 10_000 && begin.elapsed() > Duration::from_millis(10));
        assert_eq!(ran.load(SeqCst), 0);
        assert_eq!(handle.metrics().stolen, stolen);
        free.store(true, SeqCst);
        compute_until(|| ran.load(SeqCst) == 20);
        let other = other.unwrap().join().unwrap();
        assert!(threads.lock().unwrap().iter().all(|thread| *thread == other));
        assert_eq!(handle.metrics().stolen, stolen + 20);
    });
}

// S0-74, S4-34, S4-129: a worker that has become free takes what is in the injector before it steals.
#[test]
fn the_injector_comes_before_stealing() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let handle = rt.handle();
    for _ in 0..20 {
        rt.run(|| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let (busy, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let other = {
                let (busy, free) = (busy.clone(), free.clone());
                fibra::Builder::new().spread().spawn(move || {
                    busy.store(true, SeqCst);
                    compute_until(|| free.load(SeqCst));
                })
            };
            compute_until(|| busy.load(SeqCst));
            // In the deque of this worker, which computes on; then, and so younger, in the injector.
            let say = |what: &'static str| {
                let log = log.clone();
                move || log.lock().unwrap().push((what, here()))
            };
            let stealable: Vec<_> = (0..8).map(|_| fibra::spawn(say("stolen"))).collect();
            let injected: Vec<_> = std::thread::scope(|scope| {
                let spawner = scope.spawn(|| (0..8).map(|_| handle.spawn(say("injected"))).collect());
                spawner.join().unwrap()
            });
            free.store(true, SeqCst);
            compute_until(|| log.lock().unwrap().len() == 16);
            let log: Vec<_> = log.lock().unwrap().clone();
            assert!(log.iter().all(|(_, thread)| *thread != here()), "all of them on the other one");
            let injected_first = log.iter().take_while(|(what, _)| *what == "injected").count();
            assert_eq!(injected_first, 8, "{log:?}");
            stealable.into_iter().chain(injected).for_each(|fiber| fiber.join().unwrap());
            other.unwrap().join().unwrap();
        });
    }
}

// S0-75: alone there is no worker to steal from.
#[test]
fn no_worker_steals_from_itself() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    rt.run(|| {
        let fibers: Vec<_> = (0..1_000).map(|_| fibra::spawn(fibra::yield_now)).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    assert_eq!(rt.metrics().stolen, 0);
}

// S1-32, S1-39, S1-92: woken fibers wait for their own worker, which computes; an idle one does not take them from its inbox.
#[test]
fn woken_fibers_wait_for_their_worker() {
    let _watchdog = watchdog(120);
    workers(3).run(|| {
        let (started, event, woken) = (Counter::new(), Event::new(), Arc::new(AtomicUsize::new(0)));
        let home = here();
        let fibers: Vec<_> = (0..100)
            .map(|_| {
                let (started, event, woken) = (started.clone(), event.clone(), woken.clone());
                fibra::spawn_local(move || {
                    started.add(1);
                    event.wait();
                    woken.fetch_add(1, SeqCst);
                    here()
                })
            })
            .collect();
        started.wait(100);
        while event.waiting() < 100 {
            fibra::yield_now();
        }
        // All are parked here (they gave their wakers, and this worker has run something since). A thread wakes them.
        fibra::yield_now();
        std::thread::spawn(move || event.set()).join().unwrap();
        let begin = Instant::now();
        compute_until(|| begin.elapsed() > Duration::from_millis(10));
        assert_eq!(woken.load(SeqCst), 0, "another worker ran them");
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), home);
        }
    });
}

// S1-38, S0-71: four workers, and fibers that compute until all four do: one spawner keeps them all busy.
#[test]
fn fibers_that_compute_keep_all_workers_busy() {
    let _watchdog = watchdog(120);
    let rt = workers(4);
    for _ in 0..20 {
        rt.run(|| {
            let computing = Arc::new(Mutex::new(HashSet::new()));
            let fibers: Vec<_> = (0..64)
                .map(|_| {
                    let computing = computing.clone();
                    fibra::spawn(move || {
                        computing.lock().unwrap().insert(here());
                        // On a busy machine a worker may come that helps out.
                        compute_until(|| computing.lock().unwrap().len() >= 4);
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
    }
}

// S0-62: `spread` puts each on the worker with the fewest started fibers.
#[test]
fn spread_fibers_are_shared_out_evenly() {
    let _watchdog = watchdog(120);
    let rt = workers(4);
    let (stop, homes) = (Event::new(), Arc::new(Mutex::new(Vec::new())));
    for index in 0..40 {
        let (event, homes) = (stop.clone(), homes.clone());
        let started = Event::new();
        let tell = started.clone();
        let fiber = move || {
            homes.lock().unwrap().push(here());
            tell.set();
            event.wait();
        };
        drop(rt.handle().spawn_with(fibra::Builder::new().spread(), fiber).unwrap());
        // One after the other: the choice goes by those that have started.
        started.wait();
        let metrics = rt.metrics();
        let loads: Vec<u64> = metrics.workers.iter().map(|worker| worker.started).collect();
        assert_eq!(loads.iter().sum::<u64>(), index + 1);
        assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
    }
    let mut counts = BTreeMap::new();
    for home in homes.lock().unwrap().iter() {
        *counts.entry(format!("{home:?}")).or_insert(0) += 1;
    }
    assert!(counts.len() == 4 && counts.values().all(|count| *count == 10), "{counts:?}");
    stop.set();
}

// S0-62: also if they are started faster than they begin: those that are on their way count.
#[test]
fn fibers_that_are_spread_in_a_row_are_shared_out_too() {
    let _watchdog = watchdog(120);
    let rt = workers(4);
    rt.run(|| {
        loop {
            let (stop, homes) = (Event::new(), Arc::new(Mutex::new(Vec::new())));
            let begun = Instant::now();
            let fibers: Vec<_> = (0..40)
                .map(|_| {
                    let (stop, homes) = (stop.clone(), homes.clone());
                    let fiber = move || {
                        homes.lock().unwrap().push(here());
                        stop.wait();
                    };
                    fibra::Builder::new().spread().spawn(fiber).unwrap()
                })
                .collect();
            let in_a_row = begun.elapsed() < Duration::from_millis(5);
            compute_until(|| {
                fibra::yield_now();
                homes.lock().unwrap().len() == 40
            });
            let mut counts = BTreeMap::new();
            for home in homes.lock().unwrap().iter() {
                *counts.entry(format!("{home:?}")).or_insert(0) += 1;
            }
            stop.set();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            if !in_a_row {
                // This worker had no processor meanwhile, and perhaps others too, which are then passed over: that says nothing. Again.
                continue;
            }
            // The root fiber is on one of them, and one that is just arriving may be overlooked.
            assert!(counts.len() == 4 && counts.values().all(|count| (7..=13).contains(count)), "{counts:?}");
            return;
        }
    });
}

// The worker with the fewest fibers computes: what is spread goes to the other one, though that one has many, and runs.
#[test]
fn fibers_are_not_spread_to_a_worker_that_computes() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap();
    rt.run(|| {
        let (stop, stay) = (Arc::new(AtomicBool::new(false)), Event::new());
        // A hundred that wait here.
        let waits: Vec<_> = (0..100)
            .map(|_| {
                fibra::spawn_local({
                    let stay = stay.clone();
                    move || stay.wait()
                })
            })
            .collect();
        (0..100).for_each(|_| fibra::yield_now());
        let (begun, computes) = (Arc::new(AtomicBool::new(false)), stop.clone());
        let begins = begun.clone();
        let computing = fibra::Builder::new().spread().spawn(move || {
            begins.store(true, SeqCst);
            compute_until(|| computes.load(SeqCst));
            here()
        });
        while !begun.load(SeqCst) {
            fibra::yield_now();
        }
        let spread = || fibra::Builder::new().spread().spawn(here).unwrap();
        // The first of them finds out how often it has switched, and may go there.
        let first = spread();
        fibra::sleep(Duration::from_millis(50));
        let home = here();
        for fiber in (0..50).map(|_| spread()).collect::<Vec<_>>() {
            assert_eq!(fiber.join().unwrap(), home);
        }
        stop.store(true, SeqCst);
        assert_ne!(computing.unwrap().join().unwrap(), home);
        first.join().unwrap();
        stay.set();
        waits.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

// S1-92: a local fiber runs where it was spawned, though the others are idle and its spawner computes.
#[test]
fn local_fibers_stay_with_their_spawner() {
    let _watchdog = watchdog(120);
    let rt = workers(4);
    rt.run(|| {
        for round in 0..turns(200) {
            let home = here();
            let fibers: Vec<_> = (0..20)
                .map(|_| {
                    fibra::spawn_local(move || {
                        assert_eq!(here(), home);
                        fibra::yield_now();
                        fibra::spawn_local(move || assert_eq!(here(), home)).join().unwrap();
                        here()
                    })
                })
                .collect();
            if round % 10 == 0 {
                let begin = Instant::now();
                compute_until(|| begin.elapsed() > Duration::from_millis(2));
            }
            for fiber in fibers {
                assert_eq!(fiber.join().unwrap(), home);
            }
        }
    });
    assert_eq!(rt.metrics().stolen, 0);
}

// A program that grows while its worker has more than it can run: the new fibers come to the idle worker, many in a row.
#[test]
fn new_fibers_of_a_worker_under_load_are_given_away() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap();
    rt.run(|| {
        let (stop, home) = (Arc::new(AtomicBool::new(false)), here());
        let busy: Vec<_> = (0..20)
            .map(|_| {
                fibra::spawn_local({
                    let stop = stop.clone();
                    move || {
                        while !stop.load(SeqCst) {
                            fibra::yield_now();
                        }
                    }
                })
            })
            .collect();
        let (elsewhere, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut spawned = 0;
        // A thief would find none of them: each starts at once.
        while elsewhere.load(SeqCst) < 200 {
            let (elsewhere, ended) = (elsewhere.clone(), ended.clone());
            drop(fibra::spawn(move || {
                elsewhere.fetch_add(usize::from(here() != home), SeqCst);
                ended.fetch_add(1, SeqCst);
            }));
            spawned += 1;
            (0..4).for_each(|_| fibra::yield_now());
        }
        while ended.load(SeqCst) < spawned {
            fibra::yield_now();
        }
        stop.store(true, SeqCst);
        busy.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}
