//! `join_all`, `try_join_all`, `race`, `any`, `par_map`: results, borrowing, panics, cancellation from outside, nothing lost, in fibers
//! and on threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{bounded, rendezvous, unbounded};
use fibra::{CancelToken, Runtime, Scope, ScopeError};

const LONG: Duration = Duration::from_secs(3600);

type Boxed<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs a test on fibers of one worker, of two, and on a plain thread that has entered a runtime.
fn everywhere(test: impl Fn() + Sync) {
    let _watchdog = support::watchdog(120);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        runtime.run(&test);
        let entered = runtime.handle().enter();
        test();
        drop(entered);
        // No fiber is left behind.
        assert_eq!(runtime.metrics().parked, 0);
        runtime.shutdown_timeout(Duration::from_secs(10)).unwrap();
    }
}

fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

/// What a panic of `f` says.
#[track_caller]
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("it panics");
    message(&*payload).to_owned()
}

fn silent<T>(text: &'static str) -> T {
    std::panic::resume_unwind(Box::new(text))
}

/// Counts how many there are.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicUsize) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Runs `f` in a scope whose token is cancelled when a fiber sends to the channel that `f` is given; says how that ended.
fn cancelled_from_outside<T>(f: impl FnOnce(fibra::channel::Sender<()>) -> T) -> Result<T, ScopeError> {
    let token = CancelToken::new();
    let (ready, is_ready) = unbounded();
    let button = token.clone();
    let canceller = fibra::spawn(move || {
        is_ready.recv().unwrap();
        button.cancel();
    });
    let outcome = Scope::builder().token(token).run(|_| f(ready));
    canceller.join().unwrap();
    outcome
}

// ---- join_all and try_join_all --------------------------------------------------------------------------------------------

#[test]
fn join_all_gives_results_in_order() {
    everywhere(|| {
        let words = ["a", "bb", "ccc"].map(String::from);
        let lengths = fibra::join_all(words.iter().enumerate().map(|(index, word)| {
            move || {
                // The later ones end first.
                (index..5).for_each(|_| fibra::yield_now());
                (word, word.len())
            }
        }));
        assert_eq!(lengths, [(&words[0], 1), (&words[1], 2), (&words[2], 3)]);
        assert!(fibra::join_all(Vec::<fn() -> u32>::new()).is_empty());
        let many = fibra::join_all((0..10_000_u64).map(|n| move || n * 2));
        assert!(many.into_iter().eq((0..10_000).map(|n| n * 2)));
    });
}

// All of them run at once: each waits for the other.
#[test]
fn join_all_runs_them_concurrently() {
    everywhere(|| {
        let (tx, rx) = rendezvous();
        let sum = fibra::join_all([
            Box::new(|| tx.send(5).map_or(0, |()| 1)) as Boxed<'_, i32>,
            Box::new(|| rx.recv().unwrap_or(0)),
        ]);
        assert_eq!(sum, [1, 5]);
    });
}

#[test]
fn a_panic_in_join_all_cancels_the_others_and_goes_on() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let (go, gone) = bounded(1);
        let text = panic_of(|| {
            fibra::join_all((0..20).map(|n| {
                let (alive, go, gone) = (&alive, &go, &gone);
                move || {
                    let counted = Counted::new(alive);
                    match n {
                        // Values that no caller gets are dropped.
                        0 => return counted,
                        3 => gone.recv().unwrap(),
                        10 => {
                            go.send(()).unwrap();
                            fibra::sleep(LONG);
                        }
                        _ => fibra::sleep(LONG),
                    }
                    silent("number three")
                }
            }))
        });
        assert_eq!(text, "number three");
        assert_eq!(alive.load(SeqCst), 0);
        // A panic of the iterator is one of the body.
        let text = panic_of(|| {
            fibra::join_all((0..20).map(|n| {
                let counted = Counted::new(&alive);
                assert!(n < 10, "no more of them");
                move || {
                    fibra::sleep(LONG);
                    drop(counted);
                }
            }))
        });
        assert_eq!(text, "no more of them");
        assert_eq!(alive.load(SeqCst), 0);
    });
}

// An iterator may wait, and a panic reaches the one who asks it.
#[test]
fn a_panic_ends_the_wait_of_an_iterator() {
    everywhere(|| {
        let (_tx, jobs) = unbounded::<u32>();
        let first = std::iter::once(0).chain(jobs.iter());
        assert_eq!(panic_of(|| fibra::join_all(first.map(|_| || silent::<()>("first")))), "first");
        let first = std::iter::once(0).chain(jobs.iter());
        assert_eq!(panic_of(|| fibra::par_map(first, 4, |_| silent::<()>("first"))), "first");
    });
}

#[test]
fn join_all_is_cancelled_from_outside() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let outcome = cancelled_from_outside(|ready| {
            fibra::join_all((0..50).map(|n| {
                let (alive, ready) = (&alive, ready.clone());
                move || {
                    let counted = Counted::new(alive);
                    if n == 49 {
                        ready.send(()).unwrap();
                    }
                    if n > 0 {
                        fibra::sleep(LONG);
                    }
                    counted
                }
            }))
        });
        assert_eq!(outcome.err(), Some(ScopeError::Cancelled));
        assert_eq!(alive.load(SeqCst), 0);
    });
}

#[test]
fn try_join_all_gives_all_values_or_the_first_error() {
    everywhere(|| {
        let texts = ["1", "2", "3"].map(String::from);
        let parse = |text: &'_ String| text.parse::<i32>().map_err(|_| text.clone());
        assert_eq!(fibra::try_join_all(texts.iter().map(|text| move || parse(text))), Ok(vec![1, 2, 3]));
        assert_eq!(fibra::try_join_all(Vec::<fn() -> Result<u32, ()>>::new()), Ok(vec![]));
        // Errors may borrow, too; and what was there already is dropped.
        let alive = AtomicUsize::new(0);
        let (go, gone) = bounded(1);
        let failed = fibra::try_join_all((0..20).map(|n| {
            let (alive, texts, go, gone) = (&alive, &texts, &go, &gone);
            move || {
                let counted = Counted::new(alive);
                match n {
                    0 => return Ok(counted),
                    3 => gone.recv().unwrap(),
                    10 => {
                        go.send(()).unwrap();
                        fibra::sleep(LONG);
                    }
                    _ => fibra::sleep(LONG),
                }
                Err(&texts[n % 3])
            }
        }));
        assert_eq!(failed.err(), Some(&texts[0]));
        assert_eq!(alive.load(SeqCst), 0);
    });
}

#[test]
fn a_panic_in_try_join_all_is_no_error() {
    everywhere(|| {
        let closures: [Boxed<'_, Result<(), u32>>; 2] = [
            Box::new(|| silent("worse than an error")),
            Box::new(|| {
                fibra::sleep(LONG);
                Ok(())
            }),
        ];
        assert_eq!(panic_of(|| fibra::try_join_all(closures)), "worse than an error");
    });
}

// ---- race -----------------------------------------------------------------------------------------------------------------

#[test]
fn the_first_to_end_wins_and_the_others_are_waited_for() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let winner = fibra::race((0..100).map(|n| {
            let alive = &alive;
            move || {
                let _counted = Counted::new(alive);
                if n != 37 {
                    fibra::sleep(LONG);
                }
                n
            }
        }));
        assert_eq!(winner, 37);
        assert_eq!(alive.load(SeqCst), 0);
        assert_eq!(fibra::race([|| 5]), 5);
        let many = fibra::race((0..10_000).map(|n| move || n));
        assert!(many < 10_000);
    });
}

#[test]
fn a_race_without_runners_says_so() {
    everywhere(|| {
        let text = panic_of(|| fibra::race(Vec::<fn() -> u32>::new()));
        assert!(text.contains("iterator is empty"), "{text}");
    });
}

#[test]
fn a_panic_that_comes_first_wins() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let text = panic_of(|| {
            fibra::race((0..10).map(|n| {
                let alive = &alive;
                move || {
                    let _counted = Counted::new(alive);
                    if n == 3 {
                        silent("out of the race")
                    }
                    fibra::sleep(LONG);
                }
            }))
        });
        assert_eq!(text, "out of the race");
        assert_eq!(alive.load(SeqCst), 0);
    });
}

// How losers end is no news: one panics when it is told to stop.
#[test]
fn a_loser_that_panics_does_not_matter() {
    everywhere(|| {
        let (go, gone) = bounded(1);
        let winner = fibra::race([
            Box::new(|| {
                go.send(()).unwrap();
                let _ = catch_unwind(|| fibra::sleep(LONG));
                silent("too late")
            }) as Boxed<'_, u32>,
            Box::new(|| {
                gone.recv().unwrap();
                7
            }),
        ]);
        assert_eq!(winner, 7);
    });
}

#[test]
fn a_race_is_cancelled_from_outside() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let outcome = cancelled_from_outside(|ready| {
            fibra::race((0..50).map(|n| {
                let (alive, ready) = (&alive, ready.clone());
                move || {
                    let _counted = Counted::new(alive);
                    if n == 49 {
                        ready.send(()).unwrap();
                    }
                    fibra::sleep(LONG);
                }
            }))
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        assert_eq!(alive.load(SeqCst), 0);
    });
}

// A winner that is there is returned, even if cancellation comes while the losers are waited for.
#[test]
fn a_winner_survives_late_cancellation() {
    struct Slow(fibra::channel::Sender<()>, fibra::channel::Receiver<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    everywhere(|| {
        let token = CancelToken::new();
        let ((started, has_started), (unwinds, has_unwound), (go, gone)) = (bounded(1), bounded(1), bounded(1));
        let button = token.clone();
        let canceller = fibra::spawn(move || {
            has_unwound.recv().unwrap();
            button.cancel();
            go.send(()).unwrap();
        });
        let outcome = Scope::builder().token(token).run(|_| {
            fibra::race([
                Box::new(move || {
                    let _slow = Slow(unwinds, gone);
                    started.send(()).unwrap();
                    fibra::sleep(LONG);
                    "late"
                }) as Boxed<'_, &str>,
                Box::new(move || {
                    has_started.recv().unwrap();
                    "first"
                }),
            ])
        });
        assert_eq!(outcome, Ok("first"));
        canceller.join().unwrap();
    });
}

#[test]
fn a_race_that_cannot_start_says_why() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).max_fibers(3).build().unwrap();
    let text = runtime.run(|| panic_of(|| fibra::join_all((0..10).map(|_| || fibra::sleep(Duration::from_millis(1))))));
    assert!(text.contains("max_fibers"), "{text}");
}

// ---- any ------------------------------------------------------------------------------------------------------------------

// the first success, an error only if all fail.
#[test]
fn any_gives_the_first_success_or_every_error() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let found = fibra::any((0..100_u32).map(|n| {
            let alive = &alive;
            move || {
                let counted = Counted::new(alive);
                match n {
                    0..50 => Err(counted),
                    50 => Ok(n),
                    _ => {
                        fibra::sleep(LONG);
                        Err(counted)
                    }
                }
            }
        }));
        assert_eq!(found.ok(), Some(50));
        assert_eq!(alive.load(SeqCst), 0, "errors that no caller gets are dropped");
        // In the order of the iterator, although the last one fails first.
        let errors = fibra::any((0..10).map(|n| {
            move || {
                (n..10).for_each(|_| fibra::yield_now());
                Err::<(), _>(n)
            }
        }));
        assert_eq!(errors.unwrap_err(), (0..10).collect::<Vec<_>>());
        assert_eq!(fibra::any(Vec::<fn() -> Result<u32, ()>>::new()), Err(vec![]));
        let errors = fibra::any((0..10_000).map(|n| move || Err::<(), _>(n))).unwrap_err();
        assert!(errors.into_iter().eq(0..10_000));
    });
}

#[test]
fn a_panic_in_any_ends_it() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let text = panic_of(|| {
            fibra::any((0..10).map(|n| {
                let alive = &alive;
                move || {
                    let _counted = Counted::new(alive);
                    match n {
                        0 => Err(()),
                        3 => silent("a bug"),
                        _ => {
                            fibra::sleep(LONG);
                            Ok(())
                        }
                    }
                }
            }))
        });
        assert_eq!(text, "a bug");
        assert_eq!(alive.load(SeqCst), 0);
    });
}

#[test]
fn any_is_cancelled_from_outside() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let outcome = cancelled_from_outside(|ready| {
            fibra::any((0..50).map(|n| {
                let (alive, ready) = (&alive, ready.clone());
                move || {
                    let counted = Counted::new(alive);
                    if n < 25 {
                        return Err(counted);
                    }
                    if n == 49 {
                        ready.send(()).unwrap();
                    }
                    fibra::sleep(LONG);
                    Ok(())
                }
            }))
            .is_ok()
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        assert_eq!(alive.load(SeqCst), 0);
    });
}

// ---- par_map --------------------------------------------------------------------------------------------------------------

#[test]
fn par_map_keeps_order_and_never_runs_too_many() {
    everywhere(|| {
        for n in [1, 3, 16] {
            let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let pulled = AtomicUsize::new(0);
            let ended = AtomicUsize::new(0);
            let items = (0..200_usize).inspect(|_| {
                let ahead = pulled.fetch_add(1, SeqCst) + 1 - ended.load(SeqCst);
                assert!(ahead <= n, "{ahead} items were taken at once, of {n}");
            });
            let doubled = fibra::par_map(items, n, |item| {
                let _running = Counted::new(&running);
                most.fetch_max(running.load(SeqCst), SeqCst);
                (0..(item * 7) % 5).for_each(|_| fibra::yield_now());
                ended.fetch_add(1, SeqCst);
                item * 2
            });
            assert!(doubled.into_iter().eq((0..200).map(|item| item * 2)));
            assert!(most.load(SeqCst) <= n);
        }
        assert!(fibra::par_map(Vec::<u32>::new(), 4, |n| n).is_empty());
        let many = fibra::par_map(0..10_000_u64, 64, |n| n + 1);
        assert!(many.into_iter().eq(1..=10_000));
        // What does not fit into a frame.
        let large = fibra::par_map((0..1000_u64).map(|n| [n; 64]), 8, |item| item.map(|n| n + 1));
        assert!(large.iter().enumerate().all(|(n, item)| *item == [n as u64 + 1; 64]));
        let all = fibra::par_map([1, 2, 3], usize::MAX, |n| n);
        assert_eq!(all, [1, 2, 3]);
    });
}

// Two at a time: each waits for the other.
#[test]
fn par_map_runs_them_concurrently() {
    everywhere(|| {
        let (tx, rx) = rendezvous();
        let met = fibra::par_map(0..10, 2, |n| {
            if n % 2 == 0 {
                tx.send(n).unwrap();
                n
            } else {
                rx.recv().unwrap()
            }
        });
        assert_eq!(met, [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]);
    });
}

#[test]
fn par_map_of_none_at_a_time_says_so() {
    everywhere(|| {
        let text = panic_of(|| fibra::par_map([1, 2, 3], 0, |n| n));
        assert!(text.contains("n = 0"), "{text}");
    });
}

#[test]
fn a_panic_in_par_map_cancels_the_others() {
    everywhere(|| {
        let (alive, pulled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items = (0..).inspect(|_| _ = pulled.fetch_add(1, SeqCst)).map(|n| (n, Counted::new(&alive)));
        let text = panic_of(|| {
            fibra::par_map(items, 8, |(n, item)| {
                match n {
                    0..20 => return item,
                    20 => silent("number twenty"),
                    _ => fibra::sleep(LONG),
                }
                item
            })
        });
        assert_eq!(text, "number twenty");
        assert_eq!(alive.load(SeqCst), 0);
        assert!(pulled.load(SeqCst) <= 20 + 8 + 1);
    });
}

// An endless iterator, and a function that never waits: cancellation gets through all the same.
#[test]
fn par_map_of_an_endless_iterator_is_cancelled_from_outside() {
    everywhere(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        for waits in [true, false] {
            let outcome = cancelled_from_outside(|ready| {
                let items = (0_u64..).map(|n| (n, Counted::new(&alive)));
                fibra::par_map(items, 4, |(n, item)| {
                    if n == 1000 {
                        ready.send(()).unwrap();
                    }
                    if waits && n > 1000 {
                        fibra::sleep(LONG);
                    }
                    item
                })
                .len()
            });
            assert_eq!(outcome, Err(ScopeError::Cancelled));
            assert_eq!(alive.load(SeqCst), 0);
        }
    });
}

// What is inside is cancelled with what is outside: a deadline over three floors.
#[test]
fn they_nest() {
    everywhere(|| {
        let alive = AtomicUsize::new(0);
        let outcome = fibra::timeout(Duration::from_millis(5), || {
            fibra::race((0..3).map(|_| {
                || {
                    let _counted = Counted::new(&alive);
                    fibra::join_all((0..3).map(|_| {
                        || {
                            let _counted = Counted::new(&alive);
                            fibra::par_map(0..10, 2, |_| {
                                let _counted = Counted::new(&alive);
                                fibra::sleep(LONG);
                            })
                        }
                    }))
                }
            }))
        });
        assert!(outcome.is_err());
        assert_eq!(alive.load(SeqCst), 0);
    });
}
