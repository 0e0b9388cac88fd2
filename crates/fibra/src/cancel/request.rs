//! Requests: cancelling one fiber, or all of a root. The canceller's side of the handshake of `waiter::revoke`, with a way into the run
//! queues. Which scopes are cancelled together is said in `scopes.rs`, and how the waiter then unwinds in `delivery.rs`.

use super::telling::Told;
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::sched::enqueue::{Place, enqueue};
use crate::sched::members::scope::Order;
use crate::sched::shared::{Command, RootRef, Shared};
use crate::sched::worker::Worker;
use crate::wait::watch::Interrupt;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};
use crate::waiter::node::WaiterRef;
use crate::waiter::revoke;

/// Cancels a fiber and the scopes that are open on it. The caller keeps the frame from being recycled, and holds no lock.
pub(crate) fn cancel_fiber(frame: FrameRef, reason: &CancelReason) {
    let mut told = Told::default();
    told.fiber(frame, reason);
    told.tell();
}

/// Cancels the fiber that waits there, if one does, and the scopes that are open on it. The caller holds no lock.
pub(crate) fn cancel_waiting(fiber: &Interrupt, reason: &CancelReason) {
    let mut told = Told::default();
    // (The lock of the interrupt keeps the frame from being recycled; the locks that are taken under it are never held around it.)
    fiber.with(|frame| told.fiber(frame, reason));
    told.tell();
}

/// Cancels the daemons of `root`, or all: what has started now, what has not when it does.
pub(crate) fn cancel_daemons(shared: &Shared, root: Option<RootRef>, reason: ReasonKind) {
    root.unwrap_or(shared.daemons).cancel_daemons(reason);
    cancel_started(shared, root, true, reason);
}

/// Cancels everything started in `root` (or everywhere), eagerly. What has not started sees the root's flag when it does.
pub(crate) fn cancel_started(shared: &Shared, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind) {
    // Nobody waits until the workers have read it: by then the root may serve another run.
    let life = root.map(|root| (root, root.life()));
    shared.post_all(Command::Cancel { root: life, daemons_only, reason });
    // Tasks live on no worker between polls. A task leaves this map before its frame is recycled, so under the lock all are alive.
    let (mut told, reason) = (Told::default(), reason.without_words());
    for frame in shared.tasks.lock().values() {
        if is_meant(frame, root, daemons_only) {
            told.fiber(frame, &reason);
        }
    }
    // Without the lock: what they have opened may have tasks, too.
    told.tell();
}

/// The part of [`cancel_started`] that each worker does for itself.
pub(super) fn cancel_started_here(worker: &Worker, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind) {
    let (mut told, order) = (Told::default(), Order::Cancel(reason.without_words()));
    let mut at = worker.started.get();
    // SAFETY: frames live for ever; the list is this worker's and does not change while we walk it (cancelling only enqueues).
    while let Some(frame) = unsafe { at.as_ref() } {
        at = frame.next_started.get();
        if is_meant(frame, root, daemons_only) {
            told.fiber_here(frame, &order);
        }
    }
    told.tell();
}

fn is_meant(frame: &Frame, root: Option<RootRef>, daemons_only: bool) -> bool {
    root.is_none_or(|root| frame.root.get() == root.as_ptr()) && (!daemons_only || frame.has(flag::DAEMON))
}

/// Requests cancellation of a fiber for `reason`. False if it was requested before: the first reason stays. Scopes that are open
/// on it are the caller's to see to: [`cancel_fiber`].
pub(super) fn request(frame: FrameRef, reason: ReasonKind) -> bool {
    revoke::request(frame.waiter_ref(), reason, enqueue_woken)
}

/// The second half: ends the wait of a waiter whose flag is set, if that is revocable.
pub(super) fn interrupt(waiter: WaiterRef) {
    revoke::interrupt(waiter, enqueue_woken);
}

/// The same for a waiter behind a shield: only if it wants to know.
pub(super) fn interrupt_watcher(waiter: WaiterRef) {
    revoke::interrupt_watcher(waiter, enqueue_woken);
}

/// The body of a scope that was cancelled has had the time that is given to shields: they hold nothing off any more. `reaches`: see
/// [`revoke::end_shields`].
pub(super) fn end_shields(waiter: WaiterRef, reaches: bool) {
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
