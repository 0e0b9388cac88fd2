//! Cancellation: who is to stop, and how.
//!
//! **Who asks.** A handle asks for one fiber; a token, a deadline, a failure or [`Scope::cancel`](crate::Scope::cancel) for a scope and all
//! that is inside it; the end of a run or of the runtime for a root. Each gives a
//! [`CancelReason`](crate::waiter::cancel_reason::CancelReason), and the first stays.
//!
//! **What is flagged.** Two bits of a waiter say that it is cancelled: `CANCEL` that the fiber is, for good; `CANCEL_BODY` that a scope is
//! whose body it runs, until that scope is closed. Children that have not started see the mark of their root or scope when they start,
//! and end. `waiter::flags` has the table of all bits.
//!
//! **How a parked waiter is claimed.** The canceller raises the flag and then looks at the waiter's word; the waiter commits its park and
//! then looks at its flags. So one of the two sees the other, and completes the wait with the arm `ARM_CANCEL`, like any completion owner:
//! a match or a time-out that was faster wins, and the cancellation comes at the next wait. Both sides of this handshake are in
//! `waiter::revoke`, which models run as it is.
//!
//! **What is inside.** Scopes that a body opens are linked from the outside in, and a fiber keeps the outermost scope that it has opened.
//! Whoever cancels a scope goes inwards under locks that are taken hand over hand, notes whose children have to be told, and tells them
//! when no lock is held: fibers that have started are in lists of their workers, each worker walks its own. That scopes drain, and that a
//! grace is over, is told on the same way: [`Order`](crate::sched::members::scope::Order).
//!
//! **Levels.** A fiber stands in several scopes at once: the one it is a child of, and those whose bodies it runs. A shield holds off what
//! comes from outside of it, not the time-out of a scope that is opened inside. So each open scope remembers how much was held off when it
//! was opened (its `hold`), and is concerned if no more than that is held off now; the fiber itself, if nothing is. Behind a shield with a
//! scope inside, waits are revocable for the inner scope only: the flag `BARRIER` and the scopes' `barrier` tell cancellers.
//!
//! **Cleanup.** An unwinding holds off for as long as it lasts (a second one out of a destructor would abort the process), and so counts
//! for more than any number of shields, also in a scope that a destructor opens meanwhile: `CLEANUP`, and the scopes' `cleanups`, tell that
//! to the one who ends a grace.
//!
//! **Grace.** Shields end when a cancelled scope has given them the time that it grants: `OVERDUE`.
//!
//! **Delivery.** On entry to a blocking call, or when its wait was claimed for it, the waiter unwinds with a private payload, without a
//! panic hook, up to the scope that was cancelled or to the end of the fiber; never on the way out of a wait that was completed. Code
//! that catches the payload and goes on is cancelled again at its next blocking call: others get a turn first, and it is reported once.
//! Where the runtime cancels *cooperatively* nothing is unwound: waits stay, and programs ask.
//!
//! **Who unwinds** is counted, since `thread::panicking()` belongs to the whole worker: `unwinding.rs`.
//!
//! In reading order:
//!
//! ```text
//! request.rs    cancelling one fiber, or all of a root: the canceller's side
//! scopes.rs     cancelling a scope and what is open inside it; draining
//! telling.rs    the scopes' children, on whichever worker, and the listeners
//! failure.rs    a child's failure cancels its scope
//! levels.rs     what of this concerns the one that runs here, and what may end its wait
//! shield.rs     holding it off
//! unwinding.rs  is it this fiber that unwinds?
//! grace.rs      the end of shields
//! delivery.rs   unwinding
//! rules.rs      what the scheduler and the waist ask
//! ```
//!
//! Below: `fiber::top::CancelState`, what a fiber or thread keeps for this; `sched::here`, which finds it; `sched::members::scope`, the
//! record of a scope; `waiter::flags` and `waiter::revoke`. The scheduler and the waist call this room by `sched::rules`, which is given to
//! each runtime. Above: `scope`, whose handles, scopes and tokens are what programs see of it.

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
    request::{cancel_daemons, cancel_fiber, cancel_started, cancel_waiting, end_shields_of},
    rules::Rules,
    scopes::cancel_all,
    shield::Shield,
    unwinding::{Unwinding, unwinding},
};

/// Does what runs here unwind, so that a panic that leaves a destructor would be the second one, and abort?
pub(crate) fn is_unwinding() -> bool {
    #[cfg(not(any(loom, shuttle)))]
    return unwinding().is_some();
    #[cfg(any(loom, shuttle))]
    std::thread::panicking()
}
