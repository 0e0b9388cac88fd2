//! At the runtime's cap of fibers no work is lost in silence: a child that cannot be started fails its scope, unless it is joined.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fibra::{Builder, CancelReason, CancelToken, JoinHandle, JoinSet, Runtime, Scope, ScopeError, TryScopeError};

use crate::support;

const LONG: Duration = Duration::from_secs(3600);

/// Runs `body` on a fiber of a runtime with room for so many others, which is full of fibers that end with the token.
fn in_a_full_runtime(others: usize, body: impl FnOnce(&CancelToken, Vec<JoinHandle<()>>) + Send) {
    let runtime = Runtime::builder().workers(1).max_fibers(others).build().unwrap();
    runtime.run(|| {
        let room = CancelToken::new();
        let filler = |room: CancelToken| Builder::new().spawn(move || drop(room.wait()));
        let fillers: Vec<_> = std::iter::from_fn(|| filler(room.clone()).ok()).collect();
        assert_eq!(fillers.len(), others);
        body(&room, fillers);
        room.cancel();
    });
}

/// The text of the panic of `f`.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("it panics");
    payload.downcast::<String>().map_or_else(|_| "no text".to_owned(), |text| *text)
}

fn says_why(text: &str) {
    assert!(text.contains("could not be started") && text.contains("max_fibers"), "{text}");
}

#[test]
fn a_scope_fails_whose_child_was_refused() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(2, |_, _| {
        let ran = AtomicUsize::new(0);
        let child = || ran.fetch_add(1, SeqCst);
        says_why(&panic_of(|| fibra::scope(|s| drop(s.spawn(child)))));
        says_why(&panic_of(|| fibra::scope(|s| drop(s.spawn_local(child)))));
        says_why(&panic_of(|| fibra::scope(|s| drop(s.spawn_future(async { child() })))));
        says_why(&panic_of(|| fibra::try_scope(|s| Ok::<_, ()>(s.spawn(|| Ok(child())).is_finished()))));
        says_why(&panic_of(|| fibra::try_scope(|s| Ok::<_, ()>(s.spawn_local(|| Ok(child())).is_finished()))));
        let text = panic_of(|| fibra::scope(|s| (0..3).for_each(|_| drop(s.spawn(child)))));
        assert!(text.contains("3 fibers"), "{text}");
        assert_eq!(Scope::builder().run(|s| drop(s.spawn(child))), Err(ScopeError::NotStarted));
        let outcome = Scope::builder().try_run(|s| Ok::<_, &str>(s.spawn(|| Ok(child())).is_finished()));
        assert_eq!(outcome, Err(TryScopeError::NotStarted));
        assert!(outcome.unwrap_err().to_string().contains("max_fibers"));
        assert_eq!(ran.load(SeqCst), 0);
    });
}

#[test]
fn a_body_that_waits_is_cancelled_when_a_child_was_refused() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(2, |room, mut fillers| {
        let outcome = Scope::builder().run(|s| {
            // Room for one more, and no more than that.
            let filler = fillers.pop().unwrap();
            filler.cancel();
            let _ = filler.join();
            let reason = s.spawn(|| {
                let waits = catch_unwind(|| fibra::sleep(LONG)).unwrap_err();
                assert!(fibra::is_cancellation(&*waits));
                assert_eq!(fibra::cancel_reason(), Some(CancelReason::NotStarted));
            });
            let refused = s.spawn(|| ());
            fibra::sleep(Duration::from_millis(1));
            assert!(!fibra::is_cancelled(), "it may yet be joined");
            drop((reason, refused));
            fibra::sleep(LONG);
        });
        assert_eq!(outcome, Err(ScopeError::NotStarted));
        assert!(!room.is_cancelled());
    });
}

#[test]
fn the_joiner_of_a_refused_child_knows_and_the_scope_goes_on() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(2, |_, _| {
        let value = fibra::scope(|s| {
            let error = s.spawn(|| ()).join().unwrap_err();
            assert_eq!(error.cancel_reason(), Some(CancelReason::Full));
            let error = s.spawn(|| ()).join_timeout(LONG).unwrap().unwrap_err();
            assert!(error.is_cancelled());
            assert!(s.spawn(|| ()).try_join().unwrap().is_err());
            assert!(fibra::block_on(s.spawn(|| ()).into_future()).is_err());
            let (waited_for, first, second) = (s.spawn(|| ()), s.spawn(|| ()), s.spawn(|| ()));
            waited_for.wait();
            fibra::sleep(Duration::from_millis(1));
            assert!(first.join().is_err() && second.join().is_err() && waited_for.join().is_err());
            let mut set = JoinSet::new();
            set.insert(s.spawn(|| ()));
            set.insert(s.spawn(|| ()));
            assert!(set.join_next().unwrap().is_err() && set.join_next().unwrap().is_err());
            let late = s.spawn(|| ());
            fibra::select! { join(late) -> result => assert!(result.is_err()) }
            fibra::sleep(Duration::from_millis(1));
            7
        });
        assert_eq!(value, 7);
    });
}

#[test]
fn waiting_for_a_refused_child_is_not_joining_it() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |_, _| {
        says_why(&panic_of(|| fibra::scope(|s| s.spawn(|| ()).wait())));
        says_why(&panic_of(|| {
            fibra::scope(|s| {
                let mut set = JoinSet::new();
                set.insert(s.spawn(|| ()));
            })
        }));
    });
}

#[test]
fn a_handle_that_outlives_the_scope_does_not_save_it() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |_, _| {
        let mut kept = None;
        let outcome = Scope::builder().run(|s| kept = Some(s.spawn(|| ())));
        assert_eq!(outcome, Err(ScopeError::NotStarted));
        assert_eq!(kept.unwrap().join().unwrap_err().cancel_reason(), Some(CancelReason::Full));
    });
}

#[test]
fn a_child_that_is_refused_a_child_of_its_own_may_join_that_one() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(2, |_, mut fillers| {
        let filler = fillers.pop().unwrap();
        filler.cancel();
        let _ = filler.join();
        // The body waits all the time: the scope is not cancelled before the spawner had a chance to join.
        let joined = fibra::scope(|s| s.spawn(|| s.spawn(|| ()).join().is_err()).join());
        assert!(joined.unwrap());
        let dropped = Scope::builder().run(|s| {
            drop(s.spawn(|| drop(s.spawn(|| ()))));
            fibra::sleep(LONG);
        });
        assert_eq!(dropped, Err(ScopeError::NotStarted));
        // After the body is over.
        let late = Scope::builder().run(|s| drop(s.spawn(|| drop(s.spawn(|| ())))));
        assert_eq!(late, Err(ScopeError::NotStarted));
    });
}

#[test]
fn in_an_isolated_scope_refused_children_are_counted() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |_, _| {
        let panics = Scope::builder().isolate().run(|s| {
            drop(s.spawn(|| ()));
            drop(s.spawn(|| ()));
            fibra::yield_now();
            s.panics()
        });
        assert_eq!(panics, Ok(2));
    });
}

#[test]
fn a_scope_of_a_plain_thread_fails_too() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).max_fibers(1).build().unwrap();
    let filler = runtime.spawn(|| fibra::sleep(LONG));
    let _entered = runtime.handle().enter();
    says_why(&panic_of(|| fibra::scope(|s| drop(s.spawn(|| ())))));
    let waits = Scope::builder().run(|s| {
        drop(s.spawn(|| ()));
        fibra::sleep(LONG);
    });
    assert_eq!(waits, Err(ScopeError::NotStarted));
    assert!(fibra::scope(|s| s.spawn(|| ()).join().is_err()));
    filler.cancel();
}

/// With one worker: the fibers that have to end first get their turn.
#[test]
fn spawning_and_joining_until_there_is_room_comes_to_an_end() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |room, _| {
        fibra::scope(|s| {
            room.cancel();
            while s.spawn(|| ()).join().is_err() {}
            let mut set = JoinSet::new();
            set.insert(s.spawn(fibra::yield_now));
            while {
                set.insert(s.spawn(|| ()));
                set.join_next().unwrap().is_err()
            } {}
        });
    });
}

#[test]
fn a_body_that_goes_on_spawning_in_a_full_runtime_ends_soon() {
    let _watchdog = support::watchdog(120);
    in_a_full_runtime(1, |_, _| {
        let text = panic_of(|| fibra::scope(|s| (0..200_000).for_each(|_| drop(s.spawn(|| ())))));
        assert!(text.contains("200000 fibers"), "{text}");
    });
}

// ---- Builders and combinators ---------------------------------------------------------------------------------------------------

#[test]
fn a_builder_gives_the_refusal_as_an_error_and_the_scope_goes_on() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |_, _| {
        fibra::scope(|s| {
            let error = Builder::new().name("one more").spawn_scoped(s, || ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
            assert!(error.to_string().contains("max_fibers"), "{error}");
            fibra::yield_now();
        });
    });
}

#[test]
fn children_of_a_scope_may_be_spread_over_the_workers() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(4).build().unwrap();
    runtime.run(|| {
        let meet = fibra::sync::Barrier::new(4);
        let text = String::from("borrowed");
        let threads = fibra::scope(|s| {
            let children: Vec<_> = (0..4)
                .map(|_| {
                    let child = || {
                        meet.wait();
                        assert_eq!(text.len(), 8);
                        std::thread::current().id()
                    };
                    Builder::new().spread().spawn_scoped(s, child).unwrap()
                })
                .collect();
            children.into_iter().map(|child| child.join().unwrap()).collect::<std::collections::HashSet<_>>()
        });
        assert!(threads.len() > 1, "{threads:?}");
        // Cancelled with their scope, wherever they are.
        let outcome = Scope::builder().timeout(Duration::from_millis(5)).run(|s| {
            for _ in 0..8 {
                Builder::new().spread().spawn_scoped(s, || fibra::sleep(LONG)).unwrap();
            }
        });
        assert_eq!(outcome, Err(ScopeError::TimedOut));
        let daemon = fibra::scope(|s| Builder::new().daemon(true).spawn_scoped(s, || ()).unwrap_err());
        assert_eq!(daemon.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn no_combinator_loses_work_in_a_full_runtime() {
    let _watchdog = support::watchdog(60);
    in_a_full_runtime(1, |_, _| {
        says_why(&panic_of(|| fibra::join_all([|| 1, || 2])));
        says_why(&panic_of(|| fibra::try_join_all([|| Ok::<_, ()>(1), || Ok(2)])));
        let texts = [
            panic_of(|| fibra::par_map(0..3, 2, |n| n)),
            panic_of(|| fibra::race([|| 1, || 2])),
            panic_of(|| fibra::any([|| Err::<(), _>(1), || Err(2)])),
        ];
        for text in texts {
            assert!(text.contains("cap of fibers") && text.contains("never started"), "{text}");
        }
        let ((left, _far), (right, _end)) =
            (fibra::net::UnixStream::pair().unwrap(), fibra::net::UnixStream::pair().unwrap());
        let error = fibra::io::copy_bidirectional(&left, &right).unwrap_err();
        assert!(error.to_string().contains("cap of fibers"), "{error}");
        // These need no fiber, or can do without.
        assert_eq!(fibra::join(|| 1, || 2), (1, 2));
        assert_eq!(fibra::timeout(LONG, || fibra::join(|| 1, || 2)), Ok((1, 2)));
        let set: JoinSet<i32> = [|| 1, || 2].into_iter().collect();
        let text = panic_of(|| set.join_all());
        assert!(text.contains("cap of fibers"), "{text}");
    });
}

/// When the body is over and the scope fails, a join comes too late: siblings were cancelled because of it.
#[test]
fn a_join_after_the_body_is_over_does_not_make_good_what_was_cancelled() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).max_fibers(2).build().unwrap();
    runtime.run(|| {
        let done = AtomicUsize::new(0);
        let outcome = Scope::builder().run(|s| {
            let (give, given) = fibra::channel::unbounded::<JoinHandle<()>>();
            let (has, it_has) = fibra::channel::unbounded();
            s.spawn(move || {
                let refused = given.recv().unwrap();
                fibra::shield(|| {
                    has.send(()).unwrap();
                    while fibra::cancel_reason().is_none() {
                        fibra::yield_now();
                    }
                    assert!(refused.join().unwrap_err().is_cancelled());
                });
            });
            s.spawn(|| {
                fibra::sleep(Duration::from_millis(100));
                done.fetch_add(1, SeqCst);
            });
            give.send(s.spawn(|| ())).unwrap();
            it_has.recv().unwrap();
        });
        assert!(outcome == Err(ScopeError::NotStarted) || done.load(SeqCst) == 1, "all done, it says, and is not");
    });
}

/// The same of a panic.
#[test]
fn a_join_after_the_body_is_over_does_not_hide_a_panic() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let done = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            fibra::scope(|s| {
                let panicked = s.spawn(|| std::panic::resume_unwind(Box::new("no luck")));
                s.spawn(move || {
                    fibra::shield(|| {
                        while fibra::cancel_reason().is_none() {
                            fibra::yield_now();
                        }
                        assert!(panicked.join().is_err());
                    });
                });
                s.spawn(|| {
                    fibra::sleep(Duration::from_millis(100));
                    done.fetch_add(1, SeqCst);
                });
            });
        }));
        assert!(outcome.is_err() || done.load(SeqCst) == 1, "all done, it says, and is not");
    });
}
