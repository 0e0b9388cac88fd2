//! What a worker decides about a fiber that has just parked.

use super::*;

/// What runs here, which is a fiber.
fn here() -> Here<'static> {
    let worker = current::worker().expect("on a worker");
    Here::on(worker, worker.current.get().expect("on a fiber"))
}

// The grace of a scope around the shield may end after the fiber has looked and before its park is committed; the one who ends it then
// finds no wait, and leaves it to the worker.
#[test]
fn grace_that_ends_while_a_fiber_parks_in_a_scope_behind_a_shield_ends_its_wait() {
    crate::run(|| {
        crate::shield(|| {
            crate::scope(|_| {
                let here = here();
                let flags = &here.waiter.get().flags;
                assert_eq!(here.wait_kind(), WaitKind::Revocable);
                // SeqCst, all: a test.
                flags.fetch_or(flag::CANCEL, Ordering::SeqCst);
                assert!(!here.may_end_parked(WaitKind::Revocable), "through the shield");
                flags.fetch_or(flag::OVERDUE, Ordering::SeqCst);
                assert!(here.may_end_parked(WaitKind::Revocable), "for ever behind a shield whose time is over");
                // One that unwinds is not ended, whatever else there is.
                here.standing.left_unwinding.set(true);
                assert!(!here.may_end_parked(WaitKind::Revocable), "unwound in a destructor");
                here.standing.left_unwinding.set(false);
                flags.fetch_and(!(flag::CANCEL | flag::OVERDUE), Ordering::SeqCst);
            });
        });
    });
}
