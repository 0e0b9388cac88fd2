//! Models of the answer that goes from stack to stack: an answer that was accepted is received, one that comes too late is given back, and
//! the caller never leaves its stack while the answerer writes there.
//!
//! In each model `ask` stays open until the answerer's thread has ended, so that a seeded bug writes to a slot that is still there.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use super::*;
use crate::channel::error::RecvTimeoutError;
use crate::prim::model::{check, thread};
use crate::wait::park::{cancel, me};

fn wait(asked: &Asked<'_, Box<u32>>, deadline: Option<u64>) -> Result<u32, RecvTimeoutError> {
    if !asked.wait(WaitReason::ActorCall, deadline, Location::caller()) {
        return Err(RecvTimeoutError::Timeout);
    }
    asked.take().map(|answer| *answer).ok_or(RecvTimeoutError::Disconnected)
}

// The answer is received, whether it comes before, during or after the caller goes to sleep.
#[test]
fn model_answer_against_wait() {
    check(2, || {
        ask(|asked, answerer| {
            let other = thread::spawn(move || answerer.send(Box::new(7)));
            assert_eq!(wait(asked, None), Ok(7));
            assert_eq!(other.join().unwrap(), Ok(()));
        });
    });
}

// An answerer that goes without an answer lets the caller go, too.
#[test]
fn model_no_answer_against_wait() {
    check(2, || {
        ask(|asked, answerer| {
            let other = thread::spawn(move || drop(answerer));
            assert_eq!(wait(asked, None), Err(RecvTimeoutError::Disconnected));
            other.join().unwrap();
        });
    });
}

// The answer against a deadline: it is received, or given back.
#[test]
fn model_answer_against_timeout() {
    check(2, || {
        ask(|asked, answerer| {
            let other = thread::spawn(move || answerer.send(Box::new(7)).map_err(|answer| *answer));
            let received = wait(asked, Some(1));
            let sent = other.join().unwrap();
            match received {
                Ok(answer) => assert_eq!((answer, sent), (7, Ok(()))),
                Err(error) => assert_eq!((error, sent), (RecvTimeoutError::Timeout, Err(7))),
            }
        });
    });
}

// The answer against cancellation: the caller unwinds, or has the answer; an answer that it did not take is dropped.
#[test]
fn model_answer_against_cancellation() {
    check(2, || {
        let caller = me();
        ask(|asked, answerer| {
            let other = thread::spawn(move || {
                cancel(caller);
                answerer.send(Box::new(7)).map_err(|answer| *answer)
            });
            let received = catch_unwind(AssertUnwindSafe(|| wait(asked, None)));
            let is_closed = asked.question.close();
            let sent = other.join().unwrap();
            match received {
                Ok(answer) => assert_eq!((answer, sent), (Ok(7), Ok(()))),
                Err(_) => assert_eq!(sent, if is_closed { Err(7) } else { Ok(()) }),
            }
        });
    });
}

// The record of a question that is over serves the next one: a late answerer of the first does not answer the second.
#[test]
fn model_late_answer_against_the_next_question() {
    check(2, || {
        let record = take_record();
        let slots = [UnsafeCell::new(None::<u32>), UnsafeCell::new(None::<u32>)];
        let open = |at: usize| record.open(std::ptr::from_ref(&slots[at]).cast_mut().cast());
        let first = Answerer::<u32> { question: open(0), of: PhantomData };
        let question = first.question;
        let late = thread::spawn(move || first.send(1));
        let is_closed = question.close();
        let second = open(1);
        let sent = late.join().unwrap();
        assert_eq!(sent, if is_closed { Err(1) } else { Ok(()) });
        assert!(!second.is_answered() && second.close());
        // SAFETY: the answerer has ended.
        assert_eq!(slots[1].with(|slot| unsafe { *slot }), None);
    });
}
