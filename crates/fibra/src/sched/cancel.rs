//! Asking a waiter to end: the protocol of `wait::revoke`, with a way into the run queues. How the waiter then unwinds is `wait::cancel`'s
//! business, and which fibers are cancelled together that of `scope.rs`.

use super::enqueue::{Place, enqueue};
use crate::cancel::reason::ReasonKind;
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::wait::node::WaiterRef;
use crate::wait::revoke;

/// Requests cancellation of a fiber for `reason`. False if it was requested before: the first reason stays. Scopes that are open
/// on it are the caller's to see to: `scope::cancel_fiber`.
pub(crate) fn request(frame: FrameRef, reason: ReasonKind) -> bool {
    revoke::request(frame.waiter_ref(), reason, enqueue_woken)
}

/// The second half: ends the wait of a waiter whose flag is set, if that is revocable.
pub(crate) fn interrupt(waiter: WaiterRef) {
    revoke::interrupt(waiter, enqueue_woken);
}

/// The same for a waiter behind a shield: only if it wants to know.
pub(crate) fn interrupt_watcher(waiter: WaiterRef) {
    revoke::interrupt_watcher(waiter, enqueue_woken);
}

/// The body of a scope that was cancelled has had the time that is given to shields: they hold nothing off any more. `reaches`: see
/// [`revoke::end_shields`].
pub(crate) fn end_shields(waiter: WaiterRef, reaches: bool) {
    revoke::end_shields(waiter, || reaches, enqueue_woken);
}

/// The same of a fiber that was cancelled.
pub(crate) fn end_shields_of(frame: FrameRef) {
    // The look at the word comes before. The flag is raised before the first wait behind it, as BARRIER is: see `revoke::request`.
    let reaches = || !frame.waiter.flags.look_after_word().has(flag::CLEANUP);
    revoke::end_shields(frame.waiter_ref(), reaches, enqueue_woken);
}

fn enqueue_woken(fiber: WaiterRef) {
    enqueue(Frame::from_waiter(fiber), Place::Tail);
}
