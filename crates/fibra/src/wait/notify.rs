//! Waits without a node: a fiber or a thread polls a future and sleeps until its waker is called.
//!
//! A waker may be called at any time, from anywhere, any number of times, also long after the wait is over. It is the address of the
//! waiter's record, which is in memory that is never given another type: to clone or drop it costs nothing, and a call that comes late
//! finds a record that polls something else, or nothing. So a call completes nothing by itself. It raises the waiter's NOTIFIED flag and
//! then looks at the word: a wait that says that notices end it is claimed. The waiter lowers the flag before each poll and reads it when
//! its park is committed (`revoke.rs`, where both sides are; the same handshake as that of cancellation). What a late call can cause is
//! one poll too many, which every future allows for.
//!
//! One inside another (a future that calls `block_on` itself) has a flag of its own, and its waits are ended by that one alone: what the
//! outer one is told meanwhile stays for it. Those still deeper share the inner flag and cannot tell for whom a call was: one that has
//! lowered it raises it when it ends, and the next one out polls once more.

use std::cell::Cell;

use super::node::WaiterRef;
use super::revoke::flag_of;
use super::waitable::Waitable;
use super::word::{Notice, Ticket};
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;

/// The polling of one future by one waiter.
#[derive(Debug)]
pub(crate) struct Notify<'a> {
    waiter: WaiterRef,
    /// How many of these are open on this fiber or thread.
    open: &'a Cell<u32>,
    /// Which notices are for this one.
    notice: Notice,
    /// This one has lowered its flag.
    has_answered: Cell<bool>,
}

impl<'a> Notify<'a> {
    /// For the waiter that runs here; `open` is 0 where no polling is open.
    pub(crate) fn for_waiter(waiter: WaiterRef, open: &'a Cell<u32>) -> Self {
        let around = open.get();
        open.set(around + 1);
        let is_inside = around > 0 && !seeded_bug("notify_eaten_inside");
        let notice = if is_inside { Notice::Inner } else { Notice::Outer };
        Self { waiter, open, notice, has_answered: Cell::new(false) }
    }

    /// Before each poll: calls up to now are answered by it.
    #[inline(always)]
    pub(crate) fn begin_poll(&self) {
        if self.is_called() {
            // SeqCst: acquire: what was written before the calls is seen by the poll.
            self.waiter.get().flags.fetch_and(!flag_of(self.notice), Ordering::SeqCst);
            self.has_answered.set(true);
        }
    }

    /// Was there a call since the last poll began?
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        // Relaxed: the waiter reads it again when its park is committed.
        self.waiter.get().flags.load(Ordering::Relaxed) & flag_of(self.notice) != 0
    }

    /// Names what is waited for in reports.
    pub(crate) fn object(&self) -> u64 {
        self.waiter.as_ptr().addr().get() as u64
    }
}

impl Drop for Notify<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let around = self.open.get() - 1;
        self.open.set(around);
        // The second around it has the same flag.
        if around > 1 && self.has_answered.get() && !seeded_bug("notify_eaten_deep_inside") {
            // Relaxed: the waiter's own word to itself.
            self.waiter.get().flags.fetch_or(flag_of(self.notice), Ordering::Relaxed);
        }
    }
}

impl Waitable for Notify<'_> {
    #[inline(always)]
    fn ended_by(&self) -> Option<Notice> {
        Some(self.notice)
    }

    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, _: Ticket) -> bool {
        debug_assert_eq!(waiter, self.waiter, "a future is awaited by the one who polls it");
        !self.is_called()
    }

    fn unpublish(&self) {}
}

#[cfg(not(any(loom, shuttle)))]
mod glue {
    use std::cell::Cell;
    use std::ptr::NonNull;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    use super::Notify;
    use crate::fiber::frame::{Frame, FrameRef};
    use crate::sched::current;
    use crate::sched::enqueue::{Place, enqueue};
    use crate::wait::node::{Waiter, WaiterRef};
    use crate::wait::revoke;
    use crate::wait::waker::ThreadRecord;
    use crate::wait::word::Notice;

    impl<'a> Notify<'a> {
        /// Of the fiber that runs here.
        #[inline(always)]
        pub(crate) fn of_fiber(frame: FrameRef) -> Self {
            let polls: &Cell<u32> = &frame.top().expect("a running fiber has a stack").standing.polls;
            Self::for_waiter(frame.waiter_ref(), polls)
        }

        /// Of this thread.
        pub(crate) fn of_thread(record: &'static ThreadRecord) -> Self {
            Self::for_waiter(record.waiter_ref(), &current::thread_standing().polls)
        }

        /// The waker to poll with. It may be kept for ever.
        #[inline(always)]
        pub(crate) fn waker(&self) -> Waker {
            // SAFETY: the table below keeps the contract for the address of a waiter, which is good for ever.
            unsafe { Waker::from_raw(raw(self.waiter, self.notice)) }
        }
    }

    fn raw(waiter: WaiterRef, notice: Notice) -> RawWaker {
        let table = match notice {
            Notice::Outer => &OUTER,
            Notice::Inner => &INNER,
        };
        RawWaker::new(waiter.as_ptr().as_ptr().cast_const().cast(), table)
    }

    static OUTER: RawWakerVTable =
        RawWakerVTable::new(|data| raw(waiter(data), Notice::Outer), call_outer, call_outer, |_| ());
    static INNER: RawWakerVTable =
        RawWakerVTable::new(|data| raw(waiter(data), Notice::Inner), call_inner, call_inner, |_| ());

    fn waiter(data: *const ()) -> WaiterRef {
        let waiter = NonNull::new(data.cast_mut().cast::<Waiter>()).expect("made from a waiter");
        // SAFETY: `raw` made it from a `WaiterRef`.
        unsafe { WaiterRef::new(waiter) }
    }

    fn call_outer(data: *const ()) {
        call(waiter(data), Notice::Outer);
    }

    fn call_inner(data: *const ()) {
        call(waiter(data), Notice::Inner);
    }

    fn call(waiter: WaiterRef, notice: Notice) {
        revoke::notify(waiter, notice, |fiber| enqueue(Frame::from_waiter(fiber), Place::Tail));
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
