//! `join(a, b)`: both results, whichever worker runs the halves; no fiber unless the second half was taken; what becomes of panics,
//! cancellation, fiber-locals and borrowed memory.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, workers};
use fibra::{CancelToken, Cancellation, Runtime, Scope, channel, join};

const LONG: Duration = Duration::from_secs(3600);

/// A gate that one side opens and the other waits at, in turns with other fibers.
#[derive(Default)]
struct Gate(AtomicBool);

impl Gate {
    fn open(&self) {
        self.0.store(true, SeqCst);
    }
    fn is_open(&self) -> bool {
        self.0.load(SeqCst)
    }
    /// Lets other fibers of this worker run meanwhile.
    fn pass(&self) {
        while !self.is_open() {
            fibra::yield_now();
        }
    }
    /// Keeps the worker: only another one can open it.
    fn pass_alone(&self) {
        while !self.is_open() {
            std::hint::spin_loop();
        }
    }
}

/// Counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A panic that prints nothing.
fn quiet_panic(text: &'static str) -> ! {
    resume_unwind(Box::new(text))
}

/// What a panic in `f` says.
fn panic_of<T>(f: impl FnOnce() -> T) -> &'static str {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("it panics");
    payload.downcast_ref::<&str>().copied().expect("the panic is one of this test's")
}

/// Runs both halves at once, on whatever workers there are: the first returns only after the second has begun.
fn together<A, B: Send>(a: impl FnOnce() -> A, b: impl FnOnce() -> B + Send) -> (A, B) {
    let begun = Gate::default();
    join(
        || {
            begun.pass();
            a()
        },
        || {
            begun.open();
            b()
        },
    )
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn both_results_in_order_and_borrowed() {
    workers(2).run(|| {
        let mut log = Vec::new();
        let text = String::from("borrowed");
        let not_send = Rc::new(7);
        let (a, b) = join(
            || {
                log.push("a");
                *not_send
            },
            || text.len(),
        );
        assert_eq!((a, b, log), (7, 8, vec!["a"]));
        let mut numbers = [1, 2, 3, 4];
        let (left, right) = numbers.split_at_mut(2);
        join(|| left.reverse(), || right.reverse());
        assert_eq!(numbers, [2, 1, 4, 3]);
        // Values that own something, large ones, and none at all.
        assert_eq!(join(|| vec![1], || vec![2]), (vec![1], vec![2]));
        assert_eq!(join(|| [1_u64; 100], || [2_u64; 100]), ([1; 100], [2; 100]));
        assert_eq!(join(|| (), || ()), ((), ()));
        assert_eq!(fib(16), 987);
    });
}

#[test]
fn no_fiber_is_spawned_for_a_half_that_no_thief_took() {
    let runtime = workers(1);
    let (spawned, order) = runtime.run(|| {
        let before = runtime.metrics();
        let order = RefCell::new(Vec::new());
        join(|| order.borrow_mut().push("a"), || ());
        assert_eq!(fib(15), 610);
        let after = runtime.metrics();
        assert_eq!((before.live, after.live), (1, 1));
        assert_eq!((after.switches, after.stacks_fresh), (before.switches, before.stacks_fresh));
        (after.spawned - before.spawned, order.into_inner())
    });
    assert_eq!((spawned, order), (0, vec!["a"]));
}

#[test]
fn a_half_that_was_taken_is_a_fiber_and_counts_as_one() {
    let runtime = workers(1);
    runtime.run(|| {
        let before = runtime.metrics();
        let me = fibra::current().unwrap().id();
        let ((mine, during), (other, live)) = together(
            || (fibra::current().unwrap().id(), runtime.metrics()),
            || {
                fibra::yield_now();
                (fibra::current().unwrap().id(), runtime.metrics().live)
            },
        );
        assert!(mine == me && other != me);
        assert_eq!((during.live, live), (2, 2));
        let after = runtime.metrics();
        assert_eq!((after.spawned - before.spawned, after.live), (1, 1));
    });
    assert_eq!(runtime.metrics().live, 0);
}

// While one half waits, its worker runs the other: on one worker too.
#[test]
fn halves_may_talk_to_each_other() {
    for workers in [1, 2] {
        support::workers(workers).run(|| {
            let (to_a, from_b) = channel::rendezvous();
            let (to_b, from_a) = channel::rendezvous();
            let (a, b) = join(
                || {
                    to_b.send(1).unwrap();
                    from_b.recv().unwrap()
                },
                || {
                    let got: i32 = from_a.recv().unwrap();
                    to_a.send(got + 1).unwrap();
                    got
                },
            );
            assert_eq!((a, b), (2, 1));
        });
    }
}

// The first half keeps its worker until another one has run the second.
#[test]
fn another_worker_takes_the_half_of_one_that_computes() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    runtime.run(|| {
        let ran = Gate::default();
        let here = std::thread::current().id();
        let (a, b) = join(
            || {
                ran.pass_alone();
                std::thread::current().id()
            },
            || {
                ran.open();
                std::thread::current().id()
            },
        );
        assert!(a == here && b != here);
    });
    assert!(runtime.metrics().stolen >= 1);
}

// The joining fiber parks while the other half is on its way, so its worker runs others.
#[test]
fn others_run_while_a_half_is_waited_for() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let go = Arc::new(Gate::default());
        let opener = fibra::spawn_local({
            let go = go.clone();
            move || go.open()
        });
        together(|| (), || go.pass());
        opener.join().unwrap();
    });
}

#[test]
fn the_panic_of_one_half_comes_out_of_join() {
    for workers in [1, 2] {
        support::workers(workers).run(|| {
            let drops = AtomicUsize::new(0);
            // The first one panics, and no thief has taken the second: it never runs, and goes.
            let counted = Counted(&drops);
            let said = panic_of(|| {
                join(
                    || quiet_panic("a"),
                    move || {
                        let _counted = counted;
                        fibra::sleep(LONG);
                    },
                )
            });
            assert_eq!((said, drops.load(SeqCst)), ("a", 1));
            // The second one panics, here or as a fiber; what the first returned goes.
            assert_eq!(panic_of(|| join(|| Counted(&drops), || quiet_panic("b"))), "b");
            assert_eq!(panic_of(|| together(|| Counted(&drops), || quiet_panic("b"))), "b");
            assert_eq!(drops.load(SeqCst), 3);
            // Both.
            assert_eq!(panic_of(|| together(|| quiet_panic("a"), || quiet_panic("b"))), "a");
            assert_eq!(panic_of(|| join(|| quiet_panic("a"), || quiet_panic("b"))), "a");
            // The first one, when the second has returned: that goes.
            let returned = Gate::default();
            let said = panic_of(|| {
                join(
                    || {
                        returned.pass();
                        quiet_panic("a")
                    },
                    || {
                        returned.open();
                        Counted(&drops)
                    },
                )
            });
            assert_eq!((said, drops.load(SeqCst)), ("a", 4));
            // Nothing is left behind that would disturb what follows.
            fibra::sleep(Duration::from_millis(1));
            assert!(!fibra::is_cancelled());
            assert_eq!(fib(10), 55);
        });
    }
}

// The half that runs elsewhere is told, and waited for: it borrows from here.
#[test]
fn a_panic_of_the_first_half_cancels_the_second() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let drops = AtomicUsize::new(0);
        let reason = AtomicBool::new(false);
        let said = panic_of(|| {
            together(
                || quiet_panic("a"),
                || {
                    let _counted = Counted(&drops);
                    let caught = catch_unwind(|| fibra::sleep(LONG)).unwrap_err();
                    reason.store(fibra::cancel_reason() == Some(fibra::CancelReason::OtherHalf), SeqCst);
                    resume_unwind(caught)
                },
            )
        });
        assert_eq!((said, drops.load(SeqCst), reason.load(SeqCst)), ("a", 1, true));
        assert!(!fibra::is_cancelled(), "that was for the half alone");
        fibra::sleep(Duration::from_millis(1));
    });
}

#[test]
fn cancellation_reaches_the_half_wherever_it_runs() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let drops = Arc::new(AtomicUsize::new(0));
    type Stage = (&'static str, fn(&AtomicUsize));
    let stages: [Stage; 4] = [
        // While the first half runs, and no thief has taken the second.
        ("untaken", |drops| {
            let counted = Counted(drops);
            let keep = AtomicBool::new(false);
            // A started half would count twice.
            join(
                || {
                    let _mine = Counted(drops);
                    while !keep.load(SeqCst) {
                        fibra::checkpoint();
                        // Other fibers of this worker must not start the second half: nothing is left but to be cancelled from outside.
                        std::thread::yield_now();
                    }
                },
                move || drop(counted),
            );
        }),
        // While the first half waits, and so does the second, as a fiber.
        ("both wait", |drops| {
            let waits = || {
                let _counted = Counted(drops);
                fibra::sleep(LONG);
            };
            join(waits, waits);
        }),
        // While the joiner waits for the second.
        ("joiner waits", |drops| {
            let _counted = Counted(drops);
            together(
                || (),
                || {
                    let _counted = Counted(drops);
                    fibra::sleep(LONG);
                },
            );
        }),
        // While the second half waits, here.
        ("inline", |drops| {
            let _counted = Counted(drops);
            join(
                || (),
                || {
                    let _counted = Counted(drops);
                    fibra::sleep(LONG);
                },
            );
        }),
    ];
    for (i, (name, stage)) in stages.into_iter().enumerate() {
        println!("{name}");
        drops.store(0, SeqCst);
        let begun = Arc::new(Gate::default());
        let fiber = runtime.spawn({
            let (drops, begun) = (drops.clone(), begun.clone());
            move || {
                begun.open();
                stage(&drops);
            }
        });
        support::eventually(|| begun.is_open(), || "it does not begin".to_owned());
        let parked = [0, 2, 2, 1][i];
        support::eventually(|| runtime.metrics().parked == parked, || format!("{name}: {:?}", runtime.metrics()));
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled(), "{name}");
        assert_eq!(drops.load(SeqCst), 2, "{name}");
        assert_eq!((runtime.metrics().parked, runtime.metrics().live), (0, 0), "{name}");
    }
}

// A half that panics beats the mere cancellation of the other.
#[test]
fn a_panic_is_not_lost_in_a_cancellation() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let fiber = runtime.spawn(|| {
        together(
            || fibra::sleep(LONG),
            || {
                let cancelled = catch_unwind(|| fibra::sleep(LONG)).unwrap_err();
                assert!(fibra::is_cancellation(&*cancelled));
                quiet_panic("on the way out")
            },
        );
    });
    support::eventually(|| runtime.metrics().parked == 2, || format!("{:?}", runtime.metrics()));
    fiber.cancel();
    assert_eq!(fiber.join().unwrap_err().message(), "on the way out");
}

#[test]
fn a_shield_around_a_join_shields_both_halves() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let (begun, go) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let done = Arc::new(AtomicUsize::new(0));
    let fiber = runtime.spawn({
        let (begun, go, done) = (begun.clone(), go.clone(), done.clone());
        move || {
            let half = || {
                begun.open();
                go.pass();
                // The second half is told when the first is over.
                while !fibra::is_cancelled() {
                    fibra::yield_now();
                }
                fibra::sleep(Duration::from_millis(1));
                done.fetch_add(1, SeqCst);
            };
            fibra::shield(|| together(half, half));
            fibra::checkpoint();
            done.store(99, SeqCst);
        }
    });
    support::eventually(|| begun.is_open(), || "it does not begin".to_owned());
    fiber.cancel();
    go.open();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(done.load(SeqCst), 2);
}

// A destructor that divides its work while its fiber unwinds.
#[test]
fn a_join_in_a_destructor_while_unwinding_completes() {
    let _watchdog = support::watchdog(60);
    struct Cleanup<'a>(&'a AtomicUsize);
    impl Drop for Cleanup<'_> {
        fn drop(&mut self) {
            let half = || {
                fibra::sleep(Duration::from_millis(1));
                self.0.fetch_add(1, SeqCst);
            };
            join(half, half);
            together(half, half);
        }
    }
    let runtime = workers(1);
    let done = Arc::new(AtomicUsize::new(0));
    let fiber = runtime.spawn({
        let done = done.clone();
        move || {
            let _cleanup = Cleanup(&done);
            fibra::sleep(LONG);
        }
    });
    support::eventually(|| runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(done.load(SeqCst), 4);
}

#[test]
fn the_end_of_a_runtime_ends_its_halves() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    let fibers: Vec<_> = (0..10)
        .map(|_| {
            runtime.spawn(|| together(|| fibra::sleep(LONG), || together(|| fibra::sleep(LONG), || fibra::sleep(LONG))))
        })
        .collect();
    support::eventually(|| runtime.metrics().parked == 30, || format!("{:?}", runtime.metrics()));
    drop(runtime);
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap_err().is_cancelled()));
}

#[test]
fn halves_have_fiber_locals_of_their_own() {
    fibra::fiber_local! {
        static OWN: Cell<u32> = Cell::new(1);
        inherit static GIVEN: Cell<u32> = Cell::new(10);
    }
    fn see() -> (u32, u32) {
        let seen = (OWN.get(), GIVEN.get());
        OWN.set(77);
        GIVEN.set(78);
        seen
    }
    fibra::run(|| {
        // None before: what the first half leaves behind is not seen by the second.
        assert_eq!(join(see, see), ((1, 10), (1, 10)));
        assert_eq!((OWN.get(), GIVEN.get()), (77, 78), "the first half is this fiber");
        OWN.set(2);
        GIVEN.set(20);
        // Copied when the join begins, wherever the half runs.
        assert_eq!(join(see, see), ((2, 20), (1, 20)));
        GIVEN.set(30);
        assert_eq!(together(see, see), ((77, 30), (1, 30)));
        assert_eq!(fibra::no_suspend(|| join(see, see)), ((77, 78), (1, 78)));
        // Also after a panic.
        OWN.set(3);
        let _ = panic_of(|| {
            join(
                || (),
                || {
                    see();
                    quiet_panic("b")
                },
            )
        });
        assert_eq!(OWN.get(), 3);
    });
    // Those that a half makes are dropped at its end.
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    fibra::fiber_local! {
        static DROPPED: Counted<'static> = Counted(&DROPS);
    }
    fibra::run(|| {
        join(|| (), || DROPPED.with(|_| ()));
        assert_eq!(DROPS.load(SeqCst), 1);
        together(|| (), || DROPPED.with(|_| ()));
        assert_eq!(DROPS.load(SeqCst), 2);
        join(|| DROPPED.with(|_| ()), || ());
        assert_eq!(DROPS.load(SeqCst), 2, "that one is this fiber's");
    });
    assert_eq!(DROPS.load(SeqCst), 3);
}

#[test]
fn one_after_the_other_where_there_is_no_choice() {
    // On a plain thread, which may have entered a runtime.
    let order = RefCell::new(Vec::new());
    assert_eq!(join(|| order.borrow_mut().push(1), || 2), ((), 2));
    assert_eq!(fib(12), 144);
    let entered = workers(1);
    let guard = entered.handle().enter();
    assert_eq!(fib(12), 144);
    drop(guard);
    assert_eq!(panic_of(|| join(|| quiet_panic("a"), || quiet_panic("b"))), "a");
    workers(2).run(|| {
        // Where nothing may be waited for.
        assert_eq!(fibra::no_suspend(|| fib(12)), 144);
        fibra::blocking(|| assert_eq!(fib(12), 144));
    });
    // Where no more fibers may be. (The root does not count.)
    let full = Runtime::builder().workers(2).max_fibers(1).build().unwrap();
    full.run(|| {
        assert_eq!(fib(12), 144);
        let ran = Gate::default();
        let (there, _) = together(|| ran.is_open(), || ran.open());
        assert!(!there || ran.is_open());
        together(
            || (),
            || {
                let begun = AtomicBool::new(false);
                let (first, ()) = join(|| begun.load(SeqCst), || begun.store(true, SeqCst));
                assert!(!first, "this half is the one fiber");
            },
        );
    });
    assert!(full.spawn(|| fib(12)).join().is_ok(), "every place under the cap was given back");
}

#[test]
fn a_cooperative_runtime_waits_for_its_halves() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).cancellation(Cancellation::Cooperative).build().unwrap();
    assert_eq!(runtime.run(|| fib(12)), 144);
    let begun = Arc::new(Gate::default());
    let fiber = runtime.spawn({
        let begun = begun.clone();
        move || {
            let half = || {
                begun.open();
                while !fibra::is_cancelled() {
                    fibra::yield_now();
                }
            };
            // The first one sees it, and then it is passed on.
            together(half, half);
            "both saw it"
        }
    });
    support::eventually(|| begun.is_open(), || "it does not begin".to_owned());
    fiber.cancel();
    assert_eq!(fiber.join().unwrap(), "both saw it");
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn a_half_gets_a_stack_as_large_as_its_joiners() {
    fn dig(depth: usize) -> usize {
        let mut bytes = [0_u8; 1024];
        std::hint::black_box(&mut bytes);
        if depth == 0 { 0 } else { 1 + dig(depth - 1) + usize::from(bytes[0]) }
    }
    let big = fibra::Builder::new().stack_size(4 << 20);
    workers(1).run(move || {
        let fiber = big.spawn(|| together(|| (), || dig(2000)).1).unwrap();
        assert_eq!(fiber.join().unwrap(), 2000);
    });
}

#[test]
fn deep_and_lopsided_recursions() {
    // As deep as the stack allows: an OS thread's is a quarter of what the first fiber has.
    const DEPTH: usize = if cfg!(fibra_context = "thread") { 500 } else { 2000 };
    fn left(depth: usize) -> usize {
        if depth == 0 { 0 } else { join(|| left(depth - 1), || 1).0 + 1 }
    }
    fn right(depth: usize) -> usize {
        if depth == 0 { 0 } else { join(|| 1, || right(depth - 1)).1 + 1 }
    }
    for workers in [1, 2, 4] {
        support::workers(workers).run(|| assert_eq!(join(|| left(DEPTH), || right(DEPTH)), (DEPTH, DEPTH)));
    }
}

// What lies above the offer in the queue, or the offer itself, may be anywhere when it is wanted back.
#[test]
fn an_offer_below_other_fibers_is_taken_back() {
    let runtime = workers(1);
    let stale = runtime.run(|| {
        let before = runtime.metrics();
        for round in 1..=100 {
            let (handle, b) = join(|| fibra::spawn(|| 5), || 6);
            assert_eq!(runtime.metrics().spawned - before.spawned, round, "the half was not one of them");
            assert_eq!((handle.join().unwrap(), b), (5, 6));
        }
        fibra::yield_now();
        runtime.metrics().workers[0].stale_entries - before.workers[0].stale_entries
    });
    assert!(stale > 0, "the entries of the offers were left behind");
}

// A scope reaches the halves of its children and of its body, and only what is inside it.
#[test]
fn scopes_and_halves() {
    let _watchdog = support::watchdog(60);
    for workers in [1, 2] {
        support::workers(workers).run(|| {
            // The deadline of a scope around a join, on the fiber that joins: both halves unwind, and nothing beyond the scope.
            let (begun, drops) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let waits = || {
                let _counted = Counted(&drops);
                begun.fetch_add(1, SeqCst);
                fibra::sleep(LONG);
            };
            // (It may come before the second half has begun, which is then not run.)
            assert!(fibra::timeout(Duration::from_millis(5), || join(waits, waits)).is_err());
            assert!(fibra::timeout(Duration::from_millis(5), || together(|| (), waits)).is_err());
            assert_eq!(drops.load(SeqCst), begun.load(SeqCst));
            // The same by a token, when all of them have begun.
            let (both, one) = (|| _ = join(waits, waits), || _ = together(|| (), waits));
            let cases: [(&dyn Fn(), usize); 2] = [(&both, 2), (&one, 1)];
            for (halves, count) in cases {
                let token = CancelToken::new();
                begun.store(0, SeqCst);
                drops.store(0, SeqCst);
                let outcome = fibra::scope(|s| {
                    s.spawn(|| {
                        while begun.load(SeqCst) < count {
                            fibra::sleep(Duration::from_micros(100));
                        }
                        token.cancel();
                    });
                    Scope::builder().token(token.clone()).run(|_| halves())
                });
                assert!(outcome.is_err());
                assert_eq!(drops.load(SeqCst), count);
            }
            assert!(!fibra::is_cancelled());
            fibra::sleep(Duration::from_millis(1));
            // A child of a scope that joins, cancelled with its siblings; the body goes on.
            let both = &Gate::default();
            fibra::scope(|s| {
                let child = s.spawn(move || {
                    together(
                        || fibra::sleep(LONG),
                        || {
                            both.open();
                            fibra::sleep(LONG);
                        },
                    )
                });
                both.pass();
                s.cancel();
                assert!(child.join().unwrap_err().is_cancelled());
            });
            // The body's own halves are not children.
            let sum = fibra::scope(|s| {
                let (a, b) = together(
                    || {
                        s.cancel();
                        fibra::sleep(Duration::from_millis(1));
                        1
                    },
                    || {
                        fibra::sleep(Duration::from_millis(1));
                        2
                    },
                );
                a + b
            });
            assert_eq!(sum, 3);
            // Both halves may spawn into a scope, and open their own.
            let count = AtomicUsize::new(0);
            let count = &count;
            fibra::scope(|s| {
                let half = || {
                    drop(s.spawn(|| count.fetch_add(1, SeqCst)));
                    fibra::scope(|inner| {
                        drop(inner.spawn(|| count.fetch_add(1, SeqCst)));
                    });
                };
                together(half, half);
                join(half, half);
            });
            assert_eq!(count.load(SeqCst), 8);
            // A child's half that panics.
            let said = panic_of(|| fibra::scope(|s| drop(s.spawn(|| together(|| (), || quiet_panic("b"))))));
            assert_eq!(said, "b");
        });
    }
}
