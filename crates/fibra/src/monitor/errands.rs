//! What sysmon has other threads do: printing, and calling wakers. A pipe that nothing reads holds up a thread that writes to it, and a
//! waker is user code, which may block; sysmon rescues fibers and must wait for neither.
//!
//! Above: sysmon and what runs on its thread (`elastic.rs`, `stall.rs`, `inspect::total`). Beside: `blocking::strays`, whose threads no
//! shutdown waits for. Below: `sched::call_wakers`, which is told how wakers are called on this thread.
//!
//! Invariants
//! * One thread at a time prints, so texts come out whole and in order. At most [`MOST_TEXTS`] wait for it; those that find no room are
//!   counted, and the number is printed when there is room again.
//! * A waker is never left out: each batch is called on a thread of its own, since a waker that blocks must not hold up the next one.
//!   Where no thread is free and none can be started they are called by sysmon after all: a wake must not be lost, nor wait behind a call
//!   that hangs. While wakers are called, or are about to be, they are counted: any of them may wake a fiber ([`are_wakers_called`]).

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::per_process::PerProcess;
use crate::blocking::strays;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::policy;
use crate::prim::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::call_wakers;
use crate::waiter::record::call_wakers;

/// Texts that wait for the thread that prints.
const MOST_TEXTS: usize = 64;

static PRINTER: PerProcess<Printer> = PerProcess::new(Printer::default);
/// Batches of wakers that other threads call, or have been asked to call.
static CALLING: PerProcess<AtomicUsize> = PerProcess::new(|| AtomicUsize::new(0));

/// A batch of wakers, from before it is handed to another thread until all of them were called.
pub(crate) struct Calling(&'static AtomicUsize);

impl Calling {
    pub(crate) fn begin() -> Self {
        let count = CALLING.get();
        // Relaxed: the thread that looks for deadlocks is the one that hands the wakers out; or the wakers were taken off a socket after
        // this, under the lock of the socket's source, into which that thread looks first.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `are_wakers_called`; a thread that does not see the call any more sees what it woke.
        // (Acquire for `.ci/tsan` alone, which must be able to tell std's decrements from ours.)
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Does a thread of fibra that is no worker call wakers, or is one about to? They may do anything: wake a fiber, too.
pub(crate) fn are_wakers_called() -> bool {
    // Acquire: pairs with the release of the thread that has called them.
    CALLING.get().load(Ordering::Acquire) != 0
}

/// From now on the calling thread is sysmon's.
pub(super) fn this_is_the_monitor() {
    call_wakers::call_by(call_elsewhere);
}

/// Calls wakers on another thread.
fn call_elsewhere(wakers: Vec<Waker>) {
    if wakers.is_empty() {
        return;
    }
    // Kept by both: a call that finds no thread is dropped.
    let wakers = Arc::new(Mutex::new(wakers));
    let (taken, calling) = (wakers.clone(), Calling::begin());
    let call = move || {
        let _calling = calling;
        // (The lock is free when they are called.)
        let wakers = mem::take(&mut *taken.lock());
        call_wakers(wakers);
    };
    if strays::start_at_once(call).is_err() {
        let left = mem::take(&mut *wakers.lock());
        call_wakers(left);
    }
}

/// Something that another thread was asked to do for sysmon.
#[derive(Debug)]
pub(crate) struct Errand(Arc<(Mutex<bool>, Condvar)>);

/// Has this done on another thread, if one can be had: for what may block, such as writing a file.
pub(crate) fn have_done(what: impl FnOnce() + Send + 'static) -> Errand {
    let errand = Errand(Arc::default());
    let done = Finishes(errand.0.clone());
    // Without a thread it is not done, and `done` is dropped: there is nothing to wait for.
    let _ = strays::start_at_once(move || {
        let _done = done;
        what();
    });
    errand
}

/// Says that the errand is over, also if it panicked or was not begun.
struct Finishes(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Finishes {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

impl Errand {
    /// Waits until it is done, but not longer than this. False: that was not long enough.
    pub(crate) fn is_done_within(&self, most: Duration) -> bool {
        let (is_done, done) = &*self.0;
        wait_until(is_done.lock(), done, most, |is_done| *is_done).1
    }
}

/// Waits under this lock until `is_over`, but not longer than `most`. What it is then, and whether it is over.
fn wait_until<'a, T>(
    mut guard: MutexGuard<'a, T>,
    change: &Condvar,
    most: Duration,
    is_over: fn(&T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    let until = policy::now().saturating_add(most.as_nanos() as u64);
    while !is_over(&guard) {
        let left = until.saturating_sub(policy::now());
        if left == 0 {
            return (guard, false);
        }
        guard = change.wait_timeout(guard, Duration::from_nanos(left));
    }
    (guard, true)
}

/// Says something to people, on standard error, soon: for sysmon.
pub(crate) fn say_soon(text: String) {
    PRINTER.get().post(text);
}

/// Waits until what was to be said is said, but not longer than this. False: that was not long enough.
pub(crate) fn said_within(most: Duration) -> bool {
    PRINTER.get().is_done_within(most)
}

#[derive(Default)]
struct Printer {
    state: Mutex<Texts>,
    done: Condvar,
}

#[derive(Default)]
struct Texts {
    waiting: VecDeque<String>,
    left_out: u64,
    /// A thread prints, or has been asked to.
    is_printing: bool,
}

impl Texts {
    fn next(&mut self) -> Option<String> {
        match mem::take(&mut self.left_out) {
            0 => self.waiting.pop_front(),
            n => Some(format!("fibra: {n} reports were left out: standard error took none for a while")),
        }
    }
}

impl Printer {
    fn post(&'static self, text: String) {
        let mut state = self.state.lock();
        if state.waiting.len() < MOST_TEXTS {
            state.waiting.push_back(text);
        } else {
            state.left_out += 1;
        }
        drop(state);
        self.start();
    }

    /// Sees to it that a thread prints, if there is something to print. Without a thread the next text tries again.
    fn start(&'static self) {
        let mut state = self.state.lock();
        if state.is_printing || state.waiting.is_empty() {
            return;
        }
        state.is_printing = true;
        drop(state);
        if strays::start(|| self.print()).is_err() {
            self.state.lock().is_printing = false;
        }
    }

    fn print(&self) {
        while let Some(text) = self.next_or_done() {
            crate::prim::say(format_args!("{text}"));
        }
    }

    /// The next text, outside the lock; or the end of this thread's work, decided under it.
    fn next_or_done(&self) -> Option<String> {
        let mut state = self.state.lock();
        let text = state.next();
        if text.is_none() {
            state.is_printing = false;
            self.done.notify_all();
        }
        text
    }

    fn is_done_within(&'static self, most: Duration) -> bool {
        self.start();
        let (state, is_over) = wait_until(self.state.lock(), &self.done, most, |state| !state.is_printing);
        is_over && state.waiting.is_empty()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn texts_that_find_no_room_are_counted_and_the_number_is_said_first() {
        let printer = Printer::default();
        let mut state = printer.state.lock();
        // A thread is stuck with a text.
        state.is_printing = true;
        drop(state);
        // Never freed, like the one of the process.
        static KEPT: std::sync::OnceLock<Printer> = std::sync::OnceLock::new();
        let printer = KEPT.get_or_init(|| printer);
        (0..MOST_TEXTS + 3).for_each(|number| printer.post(number.to_string()));
        let told: Vec<String> = std::iter::from_fn(|| printer.next_or_done()).collect();
        assert_eq!(told.len(), MOST_TEXTS + 1);
        assert!(told[0].contains("3 reports were left out"), "{}", told[0]);
        assert_eq!((told[1].as_str(), told[MOST_TEXTS].as_str()), ("0", "63"));
        assert!(printer.is_done_within(Duration::ZERO));
    }
}
