//! Waits without a node: a fiber or a thread polls a future and sleeps until its waker is called.
//!
//! A waker may be called at any time, from anywhere, any number of times, also long after the wait is over. It is the address of the
//! waiter's record, which is in memory that is never given another type: to clone or drop it costs nothing, and a call that comes late
//! finds a record that polls something else, or nothing. So a call completes nothing by itself. It raises the waiter's NOTIFIED flag and
//! then looks at the word: a wait that says that notices end it is claimed. The waiter lowers the flag before each poll and reads it when
//! its park is committed (`revoke.rs`, where both sides are; the same handshake as that of cancellation). What a late call can cause is
//! one poll too many, which every future allows for.
//!
//! One flag serves for all polls of a fiber. One inside another (a future that calls `block_on` itself) cannot tell for whom a call was: if
//! it has lowered the flag, it raises it when it ends, and the outer one polls once more.

use std::cell::Cell;

use super::node::{WaiterRef, flag};
use super::waitable::Waitable;
use super::word::Ticket;
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;

/// The polling of one future by one waiter.
#[derive(Debug)]
pub(crate) struct Notify<'a> {
    waiter: WaiterRef,
    /// How many of these are open on this fiber or thread.
    open: &'a Cell<u32>,
    /// This one has lowered the flag.
    has_answered: Cell<bool>,
}

impl<'a> Notify<'a> {
    /// For the waiter that runs here; `open` is 0 where no polling is open.
    pub(crate) fn for_waiter(waiter: WaiterRef, open: &'a Cell<u32>) -> Self {
        open.set(open.get() + 1);
        Self { waiter, open, has_answered: Cell::new(false) }
    }

    /// Before each poll: calls up to now are answered by it.
    #[inline(always)]
    pub(crate) fn begin_poll(&self) {
        if self.is_called() {
            // SeqCst: acquire: what was written before the calls is seen by the poll.
            self.waiter.get().flags.fetch_and(!flag::NOTIFIED, Ordering::SeqCst);
            self.has_answered.set(true);
        }
    }

    /// Was there a call since the last poll began?
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        // Relaxed: the waiter reads it again when its park is committed.
        self.waiter.get().flags.load(Ordering::Relaxed) & flag::NOTIFIED != 0
    }

    /// Names what is waited for in reports.
    pub(crate) fn object(&self) -> u64 {
        self.waiter.as_ptr().addr().get() as u64
    }
}

impl Drop for Notify<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() > 0 && self.has_answered.get() && !seeded_bug("notify_eaten_inside") {
            // Relaxed: the waiter's own word to itself.
            self.waiter.get().flags.fetch_or(flag::NOTIFIED, Ordering::Relaxed);
        }
    }
}

impl Waitable for Notify<'_> {
    const BY_NOTICE: bool = true;

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
            unsafe { Waker::from_raw(raw(self.waiter)) }
        }
    }

    fn raw(waiter: WaiterRef) -> RawWaker {
        RawWaker::new(waiter.as_ptr().as_ptr().cast_const().cast(), &TABLE)
    }

    static TABLE: RawWakerVTable = RawWakerVTable::new(|data| raw(waiter(data)), call, call, |_| ());

    fn waiter(data: *const ()) -> WaiterRef {
        let waiter = NonNull::new(data.cast_mut().cast::<Waiter>()).expect("made from a waiter");
        // SAFETY: `raw` made it from a `WaiterRef`.
        unsafe { WaiterRef::new(waiter) }
    }

    fn call(data: *const ()) {
        revoke::notify(waiter(data), |fiber| enqueue(Frame::from_waiter(fiber), Place::Tail));
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
