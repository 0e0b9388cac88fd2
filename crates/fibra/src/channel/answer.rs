//! One answer, from stack to stack: the caller has room for it on its own stack, and waits there; [`Answerer`] is the right to write it.
//!
//! Above: the calls of `actor`. Below: `waiter::answer`, the record that both sides know, and `park`. Nothing is allocated: a worker keeps
//! free records. (`oneshot` is the general form: its receiver may move, be an arm of a select, and outlive the function that made it.)
//!
//! Invariants
//! * [`Asked`] stays where it is while there is an answerer: only [`ask`] makes one, on its own stack, and lends it out.
//! * It is left only when the question is closed or answered, also by a panic: its destructor sees to that.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::task::Waker;

use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::current;
use crate::wait::park::{self, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Published, linked_or};
use crate::wait::wake::{self, QueueEnd};
#[cfg(not(any(loom, shuttle)))]
use crate::waiter::answer::{ANSWERS, AnswerCache};
use crate::waiter::answer::{AnswerRecord, Question};
use crate::waiter::node::{Node, Outcome};
use crate::waiter::record::Claimed;
use crate::waiter::word::ARM_FIRST;

/// Calls `f` with a question and the right to answer it. The question is over when `f` has returned.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn ask<T: Send, R>(f: impl FnOnce(&Asked<'_, T>, Answerer<T>) -> R) -> R {
    let slot = UnsafeCell::new(None);
    let question = take_record().open(std::ptr::from_ref(&slot).cast_mut().cast());
    // (Borrows the slot, which therefore stays where it is; and is dropped before it.)
    let asked = Asked { slot: &slot, question };
    f(&asked, Answerer { question, of: PhantomData })
}

/// A question, on the stack of the fiber or thread that asks; see [`ask`].
pub(crate) struct Asked<'a, T> {
    slot: &'a UnsafeCell<Option<T>>,
    question: Question,
}

impl<T> Asked<'_, T> {
    /// Waits until there is an answer, or the answerer is gone without one. Cancellation unwinds. False: it took too long, and there will
    /// be no answer any more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn wait(&self, reason: WaitReason, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        if !self.question.is_answered() {
            let how = Wait { reason, object: self.question.object(), site, deadline };
            // (If time was up, the answer may have come in the last moment.)
            if park::wait(self, how) == Outcome::TimedOut && self.question.close() {
                return false;
            }
        }
        true
    }

    /// The answer, once it was waited for; `None` if it will not come, or was taken before. (Apart from the wait: put together with an
    /// error of another size, it would go through memory in odd pieces; see `prim::slot`.)
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn take(&self) -> Option<T> {
        if !self.question.is_answered() {
            return None;
        }
        // SAFETY: answered: the answerer has written, and does not touch the slot any more.
        self.slot.with_mut(|slot| unsafe { (*slot).take() })
    }
}

impl<T> Waitable for Asked<'_, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn publish(&self, node: &Node) -> Published {
        linked_or(self.question.publish(node), Outcome::Done)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.question.unpublish();
    }
}

impl<T> Drop for Asked<'_, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn drop(&mut self) {
        // (An answer that was not taken is dropped with the slot.)
        self.question.close();
        give_record(self.question.record());
    }
}

/// The right to answer a question, once. Dropped without an answer, it tells the caller that there will be none.
pub(crate) struct Answerer<T> {
    question: Question,
    of: PhantomData<fn(T)>,
}

// SAFETY: an answer may come from any thread, and is sent to that of the caller.
unsafe impl<T: Send> Send for Answerer<T> {}
// SAFETY: shared it can only be asked whether the question is closed.
unsafe impl<T: Send> Sync for Answerer<T> {}

impl<T> Answerer<T> {
    /// Answers; never waits.
    ///
    /// # Errors
    /// The answer, if the caller does not wait any more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn send(self, answer: T) -> Result<(), T> {
        let this = ManuallyDrop::new(self);
        match this.end(Some(answer)) {
            Err(Some(answer)) => Err(answer),
            _ => Ok(()),
        }
    }

    /// Does the caller not wait any more?
    pub(crate) fn is_closed(&self) -> bool {
        self.question.is_closed()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn end(&self, answer: Option<T>) -> Result<(), Option<T>> {
        // SAFETY: the one answerer: it is not cloned, and `send` and the destructor exclude each other. The slot is that of `ask`.
        let target = unsafe { self.question.answer(answer)? };
        if let Some((waiter, ticket)) = target
            && let Some(claimed) = Claimed::of(waiter, ticket, ARM_FIRST)
        {
            // The partner of the running fiber runs next, as in a rendezvous. It is a fiber or a thread, so there is no waker.
            let none = wake::make_runnable(claimed, QueueEnd::Next);
            debug_assert!(none.is_none(), "no future waits here");
        }
        Ok(())
    }
}

impl<T> Drop for Answerer<T> {
    #[cold]
    fn drop(&mut self) {
        if !seeded_bug("answerer_dropped_silently") {
            let _ = self.end(None);
        }
    }
}

impl<T> fmt::Debug for Answerer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer").field("is_closed", &self.is_closed()).finish()
    }
}

#[cfg_attr(not(debug_assertions), inline(always))]
#[cfg(not(any(loom, shuttle)))]
fn take_record() -> &'static AnswerRecord {
    match current::worker() {
        Some(worker) => worker.caches.answers.with(AnswerCache::take),
        None => ANSWERS.take(),
    }
}

#[cfg_attr(not(debug_assertions), inline(always))]
#[cfg(not(any(loom, shuttle)))]
fn give_record(record: &'static AnswerRecord) {
    match current::worker() {
        Some(worker) => worker.caches.answers.with(|answers| answers.give(record)),
        None => ANSWERS.give(record),
    }
}

/// Models have no statics: their records are leaked, and live for the rest of the model.
#[cfg(any(loom, shuttle))]
fn take_record() -> &'static AnswerRecord {
    Box::leak(Box::new(AnswerRecord::new()))
}

#[cfg(any(loom, shuttle))]
fn give_record(_: &'static AnswerRecord) {}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
