//! Deep trees of scopes are cancelled on a small stack.
#![allow(clippy::disallowed_types)] // These stand outside the runtime.

use std::future::pending;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::support::{in_child, workers};
use fibra::channel::bounded;
use fibra::{CancelToken, Runtime, Scope};

const LONG: Duration = Duration::from_secs(3600);

// The runtime's map of tasks was locked while a task in it was cancelled; what that task had open has tasks as well.
#[test]
fn a_task_that_has_a_scope_with_tasks_is_cancelled() {
    in_child("a_task_that_has_a_scope_with_tasks_is_cancelled", || {
        workers(1).run(|| {
            let ended = AtomicUsize::new(0);
            let token = CancelToken::new();
            let outcome = Scope::builder().token(token.clone()).run(|s| {
                let (tx, rx) = bounded::<()>(1);
                let ended = &ended;
                s.spawn_future(async move {
                    let _count = CountDrop(ended);
                    fibra::scope(|inner| {
                        inner.spawn_future(async move {
                            let _count = CountDrop(ended);
                            tx.send(()).unwrap();
                            pending::<()>().await;
                        });
                    });
                });
                rx.recv().unwrap();
                // From outside, while the only worker is busy here.
                std::thread::scope(|threads| _ = threads.spawn(|| token.cancel()).join());
            });
            assert!(outcome.is_err());
            assert_eq!(ended.load(SeqCst), 2);
        });
    });
}

struct CountDrop<'a>(&'a AtomicUsize);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A child that opens a scope with a child that opens a scope; the innermost waits for ever.
fn tree(depth: usize, at_the_bottom: &(dyn Fn() + Sync)) {
    if depth == 0 {
        at_the_bottom();
        fibra::sleep(LONG);
    }
    fibra::scope(|s| {
        s.spawn(move || tree(depth - 1, at_the_bottom));
    });
}

// The canceller's own stack grew with the depth of what it cancelled.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn a_deep_tree_is_cancelled_on_a_small_stack() {
    in_child("a_deep_tree_is_cancelled_on_a_small_stack", || {
        // The deadline comes when the tree has grown: four times as late as it took the first time, on this machine.
        let run = |deadline: Option<Duration>| {
            let begun = Instant::now();
            let mut grown = None;
            let rt = Runtime::builder().workers(1).stack_size(64 << 10).build().unwrap();
            rt.run(|| {
                fibra::scope(|s| {
                    let (tx, rx) = bounded::<()>(1);
                    s.spawn(move || {
                        let timeout = deadline.unwrap_or(LONG);
                        let _ = Scope::builder().timeout(timeout).run(|_| tree(3000, &|| _ = tx.try_send(())));
                    });
                    // If the deadline comes before that, because the machine does something else, the tree is cancelled as far as it is.
                    grown = rx.recv().ok().map(|()| begun.elapsed());
                    if deadline.is_none() {
                        s.spawn(|| s.cancel());
                    }
                });
            });
            grown
        };
        let grown = run(None).expect("there is no deadline");
        run(Some((4 * grown).clamp(Duration::from_millis(500), Duration::from_secs(10))));
    });
}

/// Scopes one inside the other on one fiber.
fn nest(depth: usize, at_the_bottom: &dyn Fn()) {
    if depth == 0 {
        return at_the_bottom();
    }
    fibra::scope(|_| nest(depth - 1, at_the_bottom));
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn a_deep_nest_of_bodies_is_cancelled_on_a_small_stack() {
    in_child("a_deep_nest_of_bodies_is_cancelled_on_a_small_stack", || {
        let rt = Runtime::builder().workers(1).stack_size(64 << 10).build().unwrap();
        rt.run(|| {
            let token = CancelToken::new();
            let cancel = token.clone();
            let outcome = Scope::builder().token(token).run(|_| {
                // This is the root fiber, which has 8 MiB.
                nest(2000, &|| {
                    fibra::spawn(move || ()).join().unwrap();
                    let cancel = cancel.clone();
                    fibra::spawn(move || cancel.cancel());
                    fibra::sleep(LONG);
                });
            });
            assert!(outcome.is_err());
        });
    });
}
