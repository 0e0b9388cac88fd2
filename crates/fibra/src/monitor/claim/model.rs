//! Models of the claim word: requests, handlers that run late, and the buffer between them, whose accesses must not overlap.

use std::sync::Arc;

use super::{CaptureClaim, Withdrawn};
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};

struct Buffer {
    claim: CaptureClaim,
    /// The number of the thread that has written it, twice: a torn answer shows as two different numbers.
    answer: UnsafeCell<(u32, u32)>,
}

// SAFETY: the claim word decides which thread touches the answer; the models check it.
unsafe impl Sync for Buffer {}
// SAFETY: numbers.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new() -> Arc<Self> {
        Arc::new(Self { claim: CaptureClaim::new(), answer: UnsafeCell::new((0, 0)) })
    }

    /// The handler's part.
    fn answer(&self, thread: u32) {
        if self.claim.claim(thread) {
            self.answer.with_mut(|answer| {
                // SAFETY: claimed.
                unsafe { *answer = (thread, thread) };
            });
            self.claim.publish(thread);
        }
    }

    /// The asking thread's part: it looks once and does not wait. The answer must be that of the thread it asked.
    fn ask(&self, asked: u32) {
        if !self.claim.ask(asked) {
            return;
        }
        let answered = self.claim.is_answered() || self.claim.withdraw(asked) == Withdrawn::Answered;
        if answered {
            self.answer.with(|answer| {
                // SAFETY: answered, and not yet released.
                assert_eq!(unsafe { *answer }, (asked, asked));
            });
            self.claim.release();
        }
    }
}

#[test]
fn model_an_answer_against_its_withdrawal() {
    check(3, || {
        let buffer = Buffer::new();
        let other = buffer.clone();
        let handler = thread::spawn(move || other.answer(1));
        buffer.ask(1);
        buffer.ask(1);
        handler.join().unwrap();
    });
}

#[test]
fn model_a_late_handler_against_the_next_request() {
    check(2, || {
        let buffer = Buffer::new();
        let handlers = [1, 2].map(|id| {
            let buffer = buffer.clone();
            thread::spawn(move || buffer.answer(id))
        });
        buffer.ask(1);
        buffer.ask(2);
        handlers.into_iter().for_each(|handler| handler.join().unwrap());
    });
}
