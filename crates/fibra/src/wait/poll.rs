//! Waits without a node: a fiber or a thread polls a future and sleeps until its waker is called.
//!
//! A waker may be called at any time, from anywhere, any number of times, also long after the wait is over. It is the address of the
//! waiter's record, which is in memory that is never given another type: to clone or drop it costs nothing, and a call that comes late
//! finds a record that polls something else, or nothing. So a call completes nothing by itself. It raises the waiter's NOTIFIED flag and
//! then looks at the word: a wait that says that notices end it is claimed. The waiter lowers the flag before each poll and reads it when
//! its park is committed (`revoke.rs`, where both sides are; the same handshake as that of cancellation). What a late call can cause is
//! one poll too many, which every future allows for.
//!
//! A wait inside another (a future that calls `block_on` itself) has a flag of its own, and only that flag ends its waits: a call for the
//! outer wait stays for the outer one. Waits that are still deeper share the inner flag and cannot tell for which of them a call was: a
//! wait that has lowered it raises it when it ends, and the next one out polls once more.

use std::cell::Cell;
use std::task::Waker;

use super::waitable::{Published, Waitable, linked_or};
use crate::prim::bug::seeded_bug;
use crate::waiter::node::{Node, Outcome, WaiterRef};
use crate::waiter::revoke::flag_of;
use crate::waiter::word::WakerNotice;

/// Is a polling that begins now inside another one, of which so many are open?
#[inline(always)]
pub(crate) fn is_inside(open: &Cell<u32>) -> bool {
    open.get() > 0 && !seeded_bug("notice_eaten_inside")
}

/// The polling of one future by one waiter; `INSIDE`: in the poll of another future.
#[derive(Debug)]
pub(crate) struct Polling<'a, const INSIDE: bool> {
    waiter: WaiterRef,
    /// How many of these are open on this fiber or thread.
    open: &'a Cell<u32>,
    /// This one has lowered its flag.
    has_answered: Cell<bool>,
}

impl<'a, const INSIDE: bool> Polling<'a, INSIDE> {
    /// Which notices are for this polling.
    const NOTICE: WakerNotice = if INSIDE { WakerNotice::Inner } else { WakerNotice::Outer };

    /// For the waiter that runs here; `INSIDE` is what [`is_inside`] says of `open`.
    #[inline(always)]
    pub(crate) fn for_waiter(waiter: WaiterRef, open: &'a Cell<u32>) -> Self {
        debug_assert_eq!(is_inside(open), INSIDE, "what is told to the outer one is not for the inner one");
        open.set(open.get() + 1);
        Self { waiter, open, has_answered: Cell::new(false) }
    }

    /// Before each poll: the poll answers all calls up to now.
    #[inline(always)]
    pub(crate) fn begin_poll(&self) {
        if self.is_called() {
            // The poll sees what was written before the calls.
            self.waiter.get().flags.retract(flag_of(Self::NOTICE));
            self.has_answered.set(true);
        }
    }

    /// Was there a call since the last poll began?
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        self.waiter.get().flags.has(flag_of(Self::NOTICE))
    }

    /// Names what is waited for in reports.
    pub(crate) fn object(&self) -> u64 {
        self.waiter.as_ptr().addr().get() as u64
    }
}

impl<const INSIDE: bool> Drop for Polling<'_, INSIDE> {
    #[inline(always)]
    fn drop(&mut self) {
        let around = self.open.get() - 1;
        self.open.set(around);
        // The polling two levels further out has the same flag.
        if INSIDE && around > 1 && self.has_answered.get() && !seeded_bug("notice_eaten_deep_inside") {
            // The waiter raises its own flag.
            self.waiter.get().flags.raise(flag_of(Self::NOTICE));
        }
    }
}

impl<const INSIDE: bool> Waitable for Polling<'_, INSIDE> {
    #[inline(always)]
    fn ended_by(&self) -> Option<WakerNotice> {
        Some(Self::NOTICE)
    }

    /// `Retry`: it was called already.
    #[inline(always)]
    fn publish(&self, node: &Node) -> Published {
        debug_assert!(node.is_of(Some(self.waiter)), "a future is awaited by the waiter that polls it");
        linked_or(!self.is_called(), Outcome::Retry)
    }

    #[inline(always)]
    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {}
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use glue::{polls_of, polls_of_thread};

#[cfg(not(any(loom, shuttle)))]
mod glue {
    use std::cell::Cell;
    use std::ptr::NonNull;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    use super::Polling;
    use crate::fiber::frame::{Frame, FrameRef};
    use crate::sched::enqueue::{QueueEnd, enqueue};
    use crate::waiter::node::{Waiter, WaiterRef};
    use crate::waiter::revoke;
    use crate::waiter::word::WakerNotice;

    /// The futures that a fiber is polling.
    #[inline(always)]
    pub(crate) fn polls_of<'a>(frame: FrameRef) -> &'a Cell<u32> {
        &frame.top().expect("a running fiber has a stack").polls
    }

    /// The futures that this thread is polling.
    pub(crate) fn polls_of_thread<'a>() -> &'a Cell<u32> {
        thread_local! {
            static POLLS: Cell<u32> = const { Cell::new(0) };
        }
        // SAFETY: it has no destructor, so it is there until the thread ends, and is used by code that runs on this thread.
        POLLS.with(|polls| unsafe { &*std::ptr::from_ref(polls) })
    }

    impl<const INSIDE: bool> Polling<'_, INSIDE> {
        /// The waker to poll with. It may be kept for ever.
        #[inline(always)]
        pub(crate) fn waker(&self) -> Waker {
            // SAFETY: the table below keeps the contract for the address of a waiter, which is good for ever.
            unsafe { Waker::from_raw(raw(self.waiter, Self::NOTICE)) }
        }
    }

    fn raw(waiter: WaiterRef, notice: WakerNotice) -> RawWaker {
        let table = match notice {
            WakerNotice::Outer => &OUTER,
            WakerNotice::Inner => &INNER,
        };
        RawWaker::new(waiter.as_ptr().as_ptr().cast_const().cast(), table)
    }

    static OUTER: RawWakerVTable =
        RawWakerVTable::new(|data| raw(waiter(data), WakerNotice::Outer), call_outer, call_outer, |_| ());
    static INNER: RawWakerVTable =
        RawWakerVTable::new(|data| raw(waiter(data), WakerNotice::Inner), call_inner, call_inner, |_| ());

    fn waiter(data: *const ()) -> WaiterRef {
        let waiter = NonNull::new(data.cast_mut().cast::<Waiter>()).expect("made from a waiter");
        // SAFETY: `raw` made it from a `WaiterRef`.
        unsafe { WaiterRef::new(waiter) }
    }

    fn call_outer(data: *const ()) {
        raise(waiter(data), WakerNotice::Outer);
    }

    fn call_inner(data: *const ()) {
        raise(waiter(data), WakerNotice::Inner);
    }

    fn raise(waiter: WaiterRef, notice: WakerNotice) {
        revoke::raise_notice(waiter, notice, |fiber| enqueue(Frame::from_waiter(fiber), QueueEnd::Tail));
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
