//! Spawning from outside in bursts: the spawner is never held up, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::support::watchdog;
use crate::tools::{Counter, many};

// S1-36, S1-31, S1-33..S1-35: no worker takes anything while a plain thread spawns a hundred thousand: it is not held up, the ring
// overflows into the list, and all of it runs.
#[test]
fn a_hundred_thousand_spawns_never_block_the_spawner() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    let (holding, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holder = {
        let (holding, release) = (holding.clone(), release.clone());
        // The only worker does nothing else until it is released, so a spawn that waited for room would wait for ever.
        rt.spawn(move || {
            holding.store(true, SeqCst);
            while !release.load(SeqCst) {
                std::thread::yield_now();
            }
        })
    };
    while !holding.load(SeqCst) {
        std::thread::yield_now();
    }
    let count = 100_000;
    let ran = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..count)
        .map(|_| {
            let ran = ran.clone();
            rt.spawn(move || ran.fetch_add(1, SeqCst))
        })
        .collect();
    assert_eq!(ran.load(SeqCst), 0);
    assert_eq!(rt.metrics().live, count as u64 + 1);
    assert!(rt.metrics().injector_overflows >= count as u64 - 4_096, "{:?}", rt.metrics());
    release.store(true, SeqCst);
    for fiber in fibers {
        fiber.join().unwrap();
    }
    holder.join().unwrap();
    assert_eq!(ran.load(SeqCst), count);
    let metrics = rt.metrics();
    assert_eq!((metrics.live, metrics.spawned), (0, count as u64 + 1));
}

// S1-36, S1-31: several threads at once, and workers that take meanwhile.
#[test]
fn stress_bursts_of_several_threads_all_run() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).build().unwrap();
    let (done, each) = (Counter::new(), many(20_000));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..each {
                    let done = done.clone();
                    drop(rt.spawn(move || done.add(1)));
                }
            });
        }
    });
    done.wait(4 * each as u64);
}

// S0-67, S0-68: what one thread injects is shared out: with a fiber that holds its worker until as many have come as there are
// workers, all of them must have taken some.
#[test]
fn all_workers_take_their_share() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(3).build().unwrap();
    for _ in 0..20 {
        let come = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..3)
            .map(|_| {
                let come = come.clone();
                rt.spawn(move || {
                    come.fetch_add(1, SeqCst);
                    while come.load(SeqCst) < 3 {
                        std::thread::yield_now();
                    }
                    std::thread::current().id()
                })
            })
            .collect();
        let mut threads: Vec<_> = fibers.into_iter().map(|fiber| format!("{:?}", fiber.join().unwrap())).collect();
        threads.sort();
        threads.dedup();
        #[cfg(not(fibra_context = "thread"))]
        assert_eq!(threads.len(), 3, "each on a worker of its own");
    }
}
