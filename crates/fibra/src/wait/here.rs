//! The waiter: the fiber that runs on this worker, or this plain thread; and which cancellations concern a plain thread.
//!
//! Models have neither workers nor scopes: for them `here_model.rs` takes the place of this file. It holds no step of the protocol. Above:
//! everything that waits. Below: `park`, `fiber.rs`, `thread.rs`, `sched::current`.

use std::any::Any;
use std::panic::resume_unwind;

pub(crate) use super::budget::*;
use super::fiber::{FiberParker, yield_fiber};
use super::park::{Manner, wait_as, wait_as_if_plain};
use super::waitable::{Wait, Waitable};
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::policy;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::worker::Worker;
use crate::waiter::node::Outcome;
use crate::waiter::record::ThreadRecord;
use crate::waiter::word::{CompletedBy, WaitKind};

/// Unwinds the current fiber or thread, which is cancelled and may be unwound: from the caller's own stack frame, see
/// [`CancelRules::prepare_delivery`](crate::sched::rules::CancelRules::prepare_delivery).
#[inline(always)]
pub(crate) fn deliver() -> ! {
    resume_unwind(prepare_delivery())
}

#[cold]
#[inline(never)]
fn prepare_delivery() -> Box<dyn Any + Send> {
    let here = Here::new().expect("only fibers, and threads in a scope, are cancelled");
    here.rules().expect("a thread is cancelled with a scope").prepare_delivery(here)
}

/// Waits, as the current fiber or thread.
#[inline(always)]
pub(super) fn wait_here(waitable: impl Waitable + Copy, how: Wait, manner: Manner) -> (Outcome, Option<CompletedBy>) {
    match current::worker() {
        // (Copies: what the usual way needs stays in registers.)
        None => wait_on_thread(&{ waitable }, &{ how }, manner),
        Some(worker) => match worker.current.get() {
            Some(frame) => wait_as(FiberParker { worker, frame }, waitable, how, manner),
            None => {
                panic!("fibra: a blocking call on a worker's own stack, where only machines run: they must not block")
            }
        },
    }
}

/// Waits, as the fiber that runs here, for a caller that knows it. Cancellation unwinds it.
#[inline(always)]
pub(crate) fn wait_as_fiber(worker: &Worker, frame: FrameRef, waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    let (ended, _) = wait_as(FiberParker { worker, frame }, waitable, how, Manner::Plain);
    if ended == Outcome::Cancelled {
        deliver();
    }
    ended
}

/// A revocable wait as the fiber that runs here, if nothing about it needs a closer look; cancellation unwinds it. None: nothing was done,
/// and the caller has to [`wait`](super::park::wait). For callers that want a small stack frame: what the other cases need is not in it.
#[inline(always)]
pub(crate) fn wait_if_plain(waitable: impl Waitable + Copy, how: Wait) -> Option<Outcome> {
    let worker = current::worker()?;
    let frame = worker.current.get()?;
    let ended = wait_as_if_plain(FiberParker { worker, frame }, waitable, how)?;
    if ended == Outcome::Cancelled {
        deliver();
    }
    Some(ended)
}

/// Waits, as this thread, with the record of which the awaited object was told: not every time with the same one, see
/// [`ThreadRecord::with_mine`]. Cancellation unwinds it.
pub(crate) fn wait_with(record: &'static ThreadRecord, waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    match wait_as(record, waitable, how, Manner::Plain).0 {
        Outcome::Cancelled => deliver(),
        ended => ended,
    }
}

#[inline(never)]
fn wait_on_thread(waitable: &impl Waitable, how: &Wait, manner: Manner) -> (Outcome, Option<CompletedBy>) {
    ThreadRecord::with_mine(|record| wait_as(record, waitable, *how, manner))
}

/// Is a thread's wait one that nothing can cancel? Only the scopes whose bodies it runs can be cancelled.
pub(super) fn is_thread_plain(record: &'static ThreadRecord) -> bool {
    Here::on_thread(record).innermost().is_none()
}

/// Which cancellations may end a revocable wait of this thread that begins now.
pub(super) fn thread_wait_kind(record: &'static ThreadRecord) -> WaitKind {
    let here = Here::on_thread(record);
    here.rules().map_or(WaitKind::Revocable, |rules| rules.wait_kind(here))
}

/// May the cancellation behind this thread's flags end such a wait?
pub(super) fn may_end_on_thread(record: &'static ThreadRecord, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool {
    let here = Here::on_thread(record);
    here.rules().is_some_and(|rules| rules.may_end(here, kind, settled))
}

/// Has this deadline come?
pub(super) fn is_over(deadline: u64) -> bool {
    deadline <= policy::now()
}

/// Nanoseconds until then.
pub(super) fn time_left(deadline: u64) -> u64 {
    deadline.saturating_sub(policy::now())
}

/// Is the current fiber or thread cancelled, whether that may be delivered or not? The answer of a look in passing.
pub(crate) fn is_cancelled() -> bool {
    Here::new().is_some_and(|here| {
        here.flags().has(flag::ANY_CANCEL) && here.rules().is_some_and(|rules| rules.is_observable(here))
    })
}

/// Lets others run first. On a plain thread this is the system's yield.
#[inline]
pub(crate) fn yield_now() {
    match current::worker() {
        Some(worker) => match worker.current.get() {
            Some(frame) => yield_fiber(worker, frame),
            None => panic!("fibra: yield_now on a worker's own stack"),
        },
        None => {
            thread_entry(|| true, checkpoint);
            crate::prim::thread::yield_now();
        }
    }
}
