//! Trees of cancel tokens: a descendant is cancelled with every ancestor, whatever was dropped in between, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use fibra::sync::Mutex;
use fibra::{CancelReason, CancelToken, Scope, ScopeError};

use crate::support;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_grandchild_is_cancelled_although_the_token_between_was_dropped() {
    let top = CancelToken::new();
    let grandchild = top.child().child();
    assert!(!grandchild.is_cancelled());
    top.cancel_with("enough");
    assert_eq!(grandchild.reason(), Some(CancelReason::from("enough")));
    assert_eq!(grandchild.child().reason(), Some(CancelReason::from("enough")), "late children are born cancelled");
}

#[test]
fn a_token_between_that_is_dropped_after_its_child_was_cloned_changes_nothing() {
    let top = CancelToken::new();
    let middle = top.child();
    let lower = middle.child();
    let clone = lower.clone();
    drop((middle, lower));
    let other = top.child();
    clone.cancel();
    assert!(!top.is_cancelled() && !other.is_cancelled(), "cancellation goes down only");
    let lowest = other.child().child().child();
    top.cancel();
    assert!(lowest.is_cancelled());
}

#[test]
fn a_scope_with_a_grandchild_token_is_cancelled_with_the_top() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let top = CancelToken::new();
        let scope = Scope::builder().token(top.child().child());
        let outcome = scope.run(|s| {
            s.spawn(|| top.cancel());
            fibra::sleep(LONG);
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
    });
}

#[test]
fn a_child_of_a_scopes_own_token_is_cancelled_with_the_scope() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let token = fibra::scope(|s| {
            let token = s.token().child().child();
            s.cancel();
            token
        });
        assert_eq!(token.reason(), Some(CancelReason::Scope));
    });
}

/// On a thread with a small stack: neither cancelling nor dropping a long chain may go down it call by call.
#[test]
fn a_chain_of_a_hundred_thousand_tokens_is_cancelled_and_dropped_on_a_small_stack() {
    let _watchdog = support::watchdog(120);
    let all = || {
        for (cancel, from_the_top) in [(true, true), (true, false), (false, true), (false, false)] {
            let top = CancelToken::new();
            let mut kept = vec![top.clone()];
            for _ in 0..100_000 {
                kept.push(kept.last().unwrap().child());
            }
            let lowest = kept.last().unwrap().clone();
            if from_the_top {
                kept.clear();
            }
            if cancel {
                top.cancel();
                assert!(lowest.is_cancelled());
            }
            kept.clear();
            drop(lowest);
            assert_eq!(top.is_cancelled(), cancel);
        }
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(all).unwrap().join().unwrap();
}

/// Threads that make and drop descendants while the top is cancelled: every one that is left knows.
#[test]
fn stress_descendants_made_and_dropped_during_a_cancellation_are_all_cancelled() {
    let _watchdog = support::watchdog(120);
    for round in 0..200 {
        let top = CancelToken::new();
        let (ready, go) = (AtomicUsize::new(0), AtomicBool::new(false));
        let left: Vec<CancelToken> = std::thread::scope(|s| {
            let maker = |kind: usize| {
                let (top, ready, go) = (&top, &ready, &go);
                s.spawn(move || {
                    let mut kept = vec![top.child()];
                    ready.fetch_add(1, SeqCst);
                    for n in 0..500 {
                        let from = kept[n % kept.len()].clone();
                        match (n + kind) % 3 {
                            0 => kept.push(from.child().child()),
                            1 => drop(kept.swap_remove(n % kept.len())),
                            _ => kept.push(top.child()),
                        }
                        if kept.is_empty() {
                            kept.push(from.child());
                        }
                        if n == 50 {
                            go.store(true, SeqCst);
                        }
                    }
                    kept
                })
            };
            let makers = [maker(0), maker(1), maker(2)];
            while ready.load(SeqCst) < makers.len() || !go.load(SeqCst) {
                std::thread::yield_now();
            }
            top.cancel();
            makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect()
        });
        assert!(left.iter().all(CancelToken::is_cancelled), "round {round}");
    }
}

/// Many scopes with one token: each leaves it without going through the others.
#[test]
fn thousands_of_scopes_of_one_token_each_leave_it() {
    let _watchdog = support::watchdog(120);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let token = CancelToken::new();
        fibra::scope(|s| {
            let (tx, rx) = fibra::channel::unbounded::<()>();
            for _ in 0..crate::tools::stacks(20_000) {
                let (token, rx) = (token.clone(), rx.clone());
                s.spawn(move || {
                    let outcome = Scope::builder().token(token).run(|_| rx.recv().is_err());
                    assert_eq!(outcome, Ok(true));
                });
            }
            fibra::yield_now();
            drop(tx);
        });
        assert!(!token.is_cancelled());
    });
}

/// A waker that drops the last clones of the tokens it was called by, and makes and cancels more.
struct Last {
    tokens: Mutex<Vec<CancelToken>>,
    called: AtomicBool,
}

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        let tokens = std::mem::take(&mut *self.tokens.lock());
        for token in &tokens {
            assert!(token.is_cancelled() && token.child().is_cancelled());
            token.cancel();
        }
        drop(tokens);
        self.called.store(true, SeqCst);
    }
}

#[test]
fn a_waker_may_drop_the_token_that_calls_it() {
    let _watchdog = support::watchdog(60);
    let top = CancelToken::new();
    let middle = top.child();
    // Waits are there for as long as the future, which borrows; leaked, it outlives the clones that the waker drops.
    let leaf: &'static CancelToken = Box::leak(Box::new(middle.child()));
    let last = Arc::new(Last { tokens: Mutex::new(vec![top.clone(), middle, leaf.clone()]), called: false.into() });
    let waker = Waker::from(last.clone());
    let mut wait = Box::pin(leaf.cancelled());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    top.cancel();
    assert!(last.called.load(SeqCst));
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}
