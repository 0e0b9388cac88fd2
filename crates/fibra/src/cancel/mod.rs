//! Cancellation: which fibers, scopes and roots are to stop, and how they do.
//!
//! **Requests.** A handle asks for one fiber; a token, a deadline, a failure or [`Scope::cancel`](crate::Scope::cancel)
//! for a scope and everything inside it; the end of a run or of the runtime for a root. Each request gives a
//! [`CancelReason`](crate::waiter::cancel_reason::CancelReason), and the first reason stays.
//!
//! **Flags.** Two bits of a waiter say that it is cancelled: `CANCEL` says that the fiber is, for good; `CANCEL_BODY`
//! says that a scope is whose body the fiber runs, until that scope is closed. Children that have not started see the
//! mark of their root or scope when they start, and end. `waiter::flags` has the table of all bits.
//!
//! **Claiming a parked waiter.** The canceller raises the flag and then looks at the waiter's word; the waiter commits
//! its park and then looks at its flags. So one of the two sees the other, and completes the wait with the arm
//! `ARM_CANCEL`, like any completion owner: a match or a time-out that was faster wins, and the cancellation comes at
//! the next wait. Both sides of this handshake are in `waiter::revoke`, which the models run unchanged.
//!
//! **Scopes inside scopes.** Scopes that a body opens are linked from the outside in, and a fiber keeps the outermost
//! scope that it has opened. The canceller of a scope goes inwards under locks that it takes hand over hand, notes the
//! scopes whose children have to be told, and tells them when it holds no lock: fibers that have started are in lists
//! of their workers, and each worker walks its own list. The requests to drain and the end of a grace take the same
//! way: [`Order`](crate::sched::members::scope::Order).
//!
//! **Levels.** A fiber is in several scopes at once: the one it is a child of, and those whose bodies it runs. A shield
//! holds off a cancellation from outside the shield, but not the time-out of a scope that is opened inside. So each
//! open scope remembers how much was held off when it was opened (its `hold`), and its cancellation concerns the fiber
//! if no more than that is held off now; a cancellation of the fiber itself, if nothing is held off. Behind a shield
//! with a scope inside, waits are revocable for the inner scope only: the flag `BARRIER` and the scopes' `barrier` tell
//! cancellers so.
//!
//! **Cleanup.** An unwinding holds cancellation off for as long as it lasts (a second unwinding out of a destructor
//! would abort the process), and so counts for more than any number of shields, also in a scope that a destructor opens
//! meanwhile: the flag `CLEANUP` and the scopes' `cleanups` tell this to the end of a grace.
//!
//! **Grace.** Shields end when a cancelled scope has given them the time that it grants: `OVERDUE`.
//!
//! **Delivery.** On entry to a blocking call, or when its wait was ended by a canceller, the waiter unwinds with a
//! private payload, without a panic hook, up to the scope that was cancelled or to the end of the fiber; never on the
//! way out of a wait that was completed. Code that catches the payload and goes on is cancelled again at its next
//! blocking call: other fibers get a turn first, and it is reported once. Where the runtime cancels *cooperatively*
//! nothing is unwound: waits stay, and programs ask.
//!
//! **Unwinding fibers** are found by counting, since `thread::panicking()` belongs to the whole worker: `unwinding.rs`.
//!
//! In reading order:
//!
//! ```text
//! request.rs    cancelling one fiber, or all of a root: the canceller's side
//! scopes.rs     cancelling a scope and what is open inside it; draining
//! telling.rs    the scopes' children, on whichever worker, and the listeners
//! failure.rs    a child's failure cancels its scope
//! levels.rs     which cancellations concern the current fiber, and which may end its wait
//! shield.rs     holding cancellation off
//! unwinding.rs  is it this fiber that unwinds, or a neighbour?
//! grace.rs      the end of shields
//! delivery.rs   unwinding
//! rules.rs      the questions of the scheduler and of the waist
//! ```
//!
//! Below: `fiber::top::CancelState`, the cancellation state of one fiber or thread; `sched::here`, which finds it;
//! `sched::members::scope`, the record of a scope; `waiter::flags` and `waiter::revoke`. The scheduler and the waist
//! call this module through `sched::rules`, a table that each runtime is given. Above: `scope`, whose handles, scopes
//! and tokens are the public side of cancellation.

#[cfg(not(any(loom, shuttle)))]
mod delivery;
#[cfg(not(any(loom, shuttle)))]
mod failure;
#[cfg(not(any(loom, shuttle)))]
mod grace;
#[cfg(not(any(loom, shuttle)))]
mod levels;
#[cfg(not(any(loom, shuttle)))]
mod request;
#[cfg(not(any(loom, shuttle)))]
mod rules;
#[cfg(not(any(loom, shuttle)))]
mod scopes;
#[cfg(not(any(loom, shuttle)))]
mod shield;
#[cfg(not(any(loom, shuttle)))]
mod telling;
#[cfg(not(any(loom, shuttle)))]
mod unwinding;

#[cfg(not(any(loom, shuttle)))]
pub use self::delivery::is_cancellation;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::{
    delivery::{checkpoint, deliver, pass_on, payload, unwind_quietly},
    levels::reason_of,
    request::{cancel_daemons, cancel_fiber, cancel_numbered, cancel_started, cancel_waiting, end_shields_of},
    rules::Rules,
    scopes::cancel_all,
    shield::Shield,
    unwinding::{Unwinding, unwinding},
};

/// Does the current fiber or thread unwind, so that a panic that leaves a destructor would be the second one, and
/// abort?
pub(crate) fn is_unwinding() -> bool {
    #[cfg(not(any(loom, shuttle)))]
    return unwinding().is_some();
    #[cfg(any(loom, shuttle))]
    std::thread::panicking()
}
