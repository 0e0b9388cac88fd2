//! Steady state allocates nothing: a counting allocator under yields, sleeps, parks, wakes and spawns with warm pools.
#![cfg(not(any(fibra_asan, fibra_tsan)))]

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::counting::allocations as counted_after;
use crate::support;
use fibra::Runtime;

/// How often `step` allocates in `count` rounds, once it is warm.
fn allocations(count: usize, step: impl FnMut()) -> usize {
    counted_after(2_000, count, step)
}

// X-19, S1-48, G-18: pools are warm, closures lie in their frames, waits on their stacks: nothing is allocated.
#[test]
fn steady_state_allocates_nothing() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let counted = runtime.run(|| {
        let yields = allocations(10_000, fibra::yield_now);
        let sleeps = allocations(500, || fibra::sleep(Duration::from_nanos(1)));
        let timeouts = {
            let never = fibra::spawn(|| fibra::sleep(Duration::from_secs(3600)));
            let counted = allocations(500, || assert!(!never.wait_timeout(Duration::from_nanos(1))));
            never.cancel();
            counted
        };
        // Park and wake: the joiner parks, the end of the child wakes it.
        let spawns = allocations(10_000, || {
            let (a, b, c) = (1u64, 2u64, 3u64);
            assert_eq!(fibra::spawn(move || a + b + c).join().unwrap(), 6);
        });
        let parks = allocations(10_000, || {
            let child = fibra::spawn(|| {
                fibra::yield_now();
                7u64
            });
            fibra::yield_now();
            assert_eq!(child.join().unwrap(), 7);
        });
        let detached = allocations(10_000, || {
            drop(fibra::spawn(|| ()));
            // Twice, so that it certainly had its turn: `ready` and `fresh` take turns.
            fibra::yield_now();
            fibra::yield_now();
        });
        let bursts = allocations(100, || {
            for _ in 0..50 {
                drop(fibra::spawn(|| ()));
            }
            (0..100).for_each(|_| fibra::yield_now());
        });
        // More stacks at once than a worker keeps for itself: they go to the depot and come back.
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let breaths = counted_after(20, 20, || {
            const MANY: usize = 1_000;
            ENDED.store(0, SeqCst);
            for _ in 0..MANY {
                drop(fibra::spawn(|| {
                    (0..3).for_each(|_| fibra::yield_now());
                    ENDED.fetch_add(1, SeqCst);
                }));
            }
            while ENDED.load(SeqCst) < MANY {
                fibra::yield_now();
            }
        });
        [
            ("a breath of a thousand fibers", breaths),
            ("yield", yields),
            ("sleep", sleeps),
            ("timed wait", timeouts),
            ("spawn and join", spawns),
            ("park and wake", parks),
            ("spawn and detach", detached),
            ("a burst of spawns", bursts),
        ]
    });
    for (what, count) in counted {
        assert_eq!(count, 0, "{what} allocates");
    }
}

// S4-11: closures that do not fit into their frame lie in memory of their scope, which serves one child after the other: a box each would
// be an allocation each.
#[test]
fn large_closures_of_a_scope_lie_in_its_memory() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let counted = runtime.run(|| {
        fibra::scope(|s| {
            let one_by_one = allocations(2_000, || {
                let large = [7u64; 60];
                assert_eq!(s.spawn(move || large.iter().sum::<u64>()).join().unwrap(), 420);
            });
            let at_once = allocations(100, || {
                for _ in 0..30 {
                    let large = [7u64; 30];
                    s.spawn(move || assert_eq!(large.iter().sum::<u64>(), 210));
                }
                (0..60).for_each(|_| fibra::yield_now());
            });
            [one_by_one, at_once]
        })
    });
    assert_eq!(counted, [0, 0]);
}
