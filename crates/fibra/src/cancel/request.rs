//! Requests: cancelling one fiber, or everything in a root. This is the canceller's side of the handshake of `waiter::revoke`, with a way
//! into the run queues. `scopes.rs` decides which scopes are cancelled together; `delivery.rs` unwinds the waiter afterwards.
//!
//! Above: `scopes.rs`, `telling.rs`, `grace.rs`, handles, the end of a run. Below: `waiter::revoke`, `sched`.

use super::telling::Told;
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::prim::atomic::Ordering;
use crate::sched::enqueue::{QueueEnd, enqueue};
use crate::sched::flight;
use crate::sched::members::scope::Order;
use crate::sched::shared::{Command, RootRef, RuntimeShared};
use crate::sched::worker::Worker;
use crate::wait::watch::Interrupt;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};
use crate::waiter::node::WaiterRef;
use crate::waiter::revoke;

/// Cancels a fiber and the scopes that are open on it. The caller keeps the frame from being recycled, and holds no
/// lock.
pub(crate) fn cancel_fiber(frame: FrameRef, reason: &CancelReason) {
    let mut told = Told::default();
    told.fiber(frame, reason);
    told.tell();
}

/// Cancels the fiber that waits there, if one does and if it `is_meant`, and the scopes that are open on it. The caller holds no lock.
/// `is_meant` is asked while the fiber cannot leave its wait; it calls no user code.
pub(crate) fn cancel_waiting(fiber: &Interrupt, reason: &CancelReason, is_meant: impl FnOnce() -> bool) {
    let mut told = Told::default();
    // (The lock of the interrupt keeps the frame from being recycled; the locks that are taken under it are never held around it.)
    fiber.with(|frame| {
        if is_meant() {
            told.fiber(frame, reason);
        }
    });
    told.tell();
}

/// Cancels the daemons of `root`, or of all roots: those that have started now, the others when they start.
pub(crate) fn cancel_daemons(shared: &RuntimeShared, root: Option<RootRef>, reason: ReasonKind) {
    root.unwrap_or(shared.daemons).cancel_daemons(reason);
    cancel_started(shared, root, true, reason);
}

/// Cancels everything started in `root` (or everywhere), eagerly. A fiber that has not started sees the root's flag
/// when it starts.
pub(crate) fn cancel_started(shared: &RuntimeShared, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind) {
    // The life goes along with the root: no thread waits until the workers have read the order, and by then the root's
    // record may serve another run.
    let life = root.map(|root| (root, root.life()));
    shared.post_all(Command::Cancel { root: life, daemons_only, reason });
    // Tasks live on no worker between polls. A task leaves this map before its frame is recycled, so under the lock all are alive.
    let (mut told, reason) = (Told::default(), reason.without_words());
    for frame in shared.tasks.lock().values() {
        if is_meant(frame, root, daemons_only) {
            told.fiber(frame, &reason);
        }
    }
    // Without the lock: the scopes that they have opened may have tasks, too.
    told.tell();
}

/// The part of [`cancel_started`] that each worker does for itself.
pub(super) fn cancel_started_here(worker: &Worker, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind) {
    cancel_here(worker, reason, |frame| is_meant(frame, root, daemons_only));
}

/// Cancels the fiber with this number, if it has started; see [`JoinHandle::cancel`](crate::JoinHandle::cancel). For a caller that has no
/// handle, and so nothing that keeps the frame: the worker on which the fiber lives looks for it, between two fibers.
pub(crate) fn cancel_numbered(shared: &RuntimeShared, id: u64) {
    shared.post_all(Command::CancelFiber(id));
    // As in `cancel_started`.
    let mut told = Told::default();
    if let Some(task) = shared.tasks.lock().get(&id) {
        told.fiber(task, &CancelReason::Handle);
    }
    told.tell();
}

/// The part of [`cancel_numbered`] that each worker does for itself.
pub(super) fn cancel_numbered_here(worker: &Worker, id: u64) {
    // Relaxed: the number of a started fiber of this worker changes on this worker only.
    cancel_here(worker, ReasonKind::Handle, |frame| frame.id.load(Ordering::Relaxed) == id);
}

/// Cancels those of the worker's started fibers that are meant.
fn cancel_here(worker: &Worker, reason: ReasonKind, is_meant: impl Fn(&Frame) -> bool) {
    let (mut told, order) = (Told::default(), Order::Cancel(reason.without_words()));
    let mut at = worker.residents.started.get();
    // SAFETY: frames live for ever; the list is this worker's and does not change while we walk it (cancelling only enqueues).
    while let Some(frame) = unsafe { at.as_ref() } {
        at = frame.next_started.get();
        if is_meant(frame) {
            told.fiber_here(frame, &order);
        }
    }
    told.tell();
}

fn is_meant(frame: &Frame, root: Option<RootRef>, daemons_only: bool) -> bool {
    root.is_none_or(|root| frame.root.get() == root.as_ptr()) && (!daemons_only || frame.has(flag::DAEMON))
}

/// Requests cancellation of a fiber for `reason`. False if it was requested before: the first reason stays. The caller
/// also has to cancel the scopes that are open on the fiber: [`cancel_fiber`] does both.
pub(super) fn request(frame: FrameRef, reason: ReasonKind) -> bool {
    let first = revoke::request(frame.waiter_ref(), reason, enqueue_woken);
    if first && flight::is_on() {
        flight::note_cancel(frame);
    }
    first
}

/// The second half: ends the wait of a waiter whose flag is set, if that wait is revocable.
pub(super) fn interrupt(waiter: WaiterRef) {
    revoke::interrupt(waiter, enqueue_woken);
}

/// The same for a waiter behind a shield: only if its wait asks to be told of cancellation.
pub(super) fn interrupt_watcher(waiter: WaiterRef) {
    revoke::interrupt_watcher(waiter, enqueue_woken);
}

/// The time that is given to shields is over for the body of a cancelled scope: shields hold nothing off any more.
/// `reaches`: see [`revoke::end_shields`].
pub(super) fn end_shields(waiter: WaiterRef, reaches: bool) {
    revoke::end_shields(waiter, || reaches, enqueue_woken);
}

/// The same for a fiber that was cancelled.
pub(crate) fn end_shields_of(frame: FrameRef) {
    // The look at the word comes before. The flag is raised before the first wait behind it, as BARRIER is: see `revoke::request`.
    let reaches = || !frame.waiter.flags.look_after_word().has(flag::CLEANUP);
    revoke::end_shields(frame.waiter_ref(), reaches, enqueue_woken);
}

fn enqueue_woken(fiber: WaiterRef) {
    enqueue(Frame::from_waiter(fiber), QueueEnd::Tail);
}
