//! Waits without a node: somebody polls a future and sleeps until its waker is called.
//!
//! A waker may be called at any time, by anybody, any number of times, also long after the wait is over; so it carries no ticket.
//! The cell keeps two things instead: NOTIFIED, which remembers a call that found nobody asleep, and the ticket of the sleep that is
//! published now, if any. Sleeper: publish the ticket, then swap NOTIFIED. Waker: swap NOTIFIED, then swap the ticket. All are SeqCst
//! read-modify-writes, so one of the two sees the other.

//!
//! The protocol is compiled for the models too; what ties it to wakers and to `park` is in `glue`.

use super::node::WaiterRef;
use super::word::Ticket;
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;

/// See the header. One per polled future and waiter.
#[derive(Debug)]
pub(crate) struct Notify {
    waiter: WaiterRef,
    notified: AtomicBool,
    ticket: AtomicU64,
}

impl Notify {
    fn for_waiter(waiter: WaiterRef) -> Self {
        Self { waiter, notified: AtomicBool::new(false), ticket: AtomicU64::new(Ticket::NONE.to_bits()) }
    }

    /// Before each poll: calls up to now are answered by it.
    pub(crate) fn begin_poll(&self) {
        // SeqCst: see the header.
        self.notified.swap(false, Ordering::SeqCst);
    }

    /// The sleeper's side. False: there was a call, poll again.
    fn publish_ticket(&self, ticket: Ticket) -> bool {
        if seeded_bug("notify_looks_first") {
            let notified = self.notified.swap(false, Ordering::SeqCst);
            self.ticket.swap(ticket.to_bits(), Ordering::SeqCst);
            return !notified;
        }
        // SeqCst, both: see the header.
        self.ticket.swap(ticket.to_bits(), Ordering::SeqCst);
        if self.notified.swap(false, Ordering::SeqCst) {
            self.withdraw_ticket();
            return false;
        }
        true
    }

    fn withdraw_ticket(&self) {
        // SeqCst: see the header.
        self.ticket.swap(Ticket::NONE.to_bits(), Ordering::SeqCst);
    }

    /// The waker's side: the sleep that this call has to end, if there is one.
    fn call(&self) -> Option<Ticket> {
        // SeqCst: see the header. If it was set before, that caller sees to the ticket, or the sleeper sees the flag.
        if !seeded_bug("notify_unmarked") && self.notified.swap(true, Ordering::SeqCst) {
            return None;
        }
        // SeqCst: see the header.
        let ticket = Ticket::from_bits(self.ticket.swap(Ticket::NONE.to_bits(), Ordering::SeqCst));
        (ticket != Ticket::NONE).then_some(ticket)
    }
}

#[cfg(not(any(loom, shuttle)))]
mod glue {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::Notify;
    use crate::sched::enqueue::Place;
    use crate::sched::wake;
    use crate::wait::node::WaiterRef;
    use crate::wait::park::Waitable;
    use crate::wait::word::{ARM_FIRST, Ticket};

    impl Notify {
        pub(crate) fn new(waiter: WaiterRef) -> Arc<Self> {
            Arc::new(Self::for_waiter(waiter))
        }

        /// The waker to poll with.
        pub(crate) fn waker(self: &Arc<Self>) -> Waker {
            Waker::from(self.clone())
        }
    }

    impl Waitable for Notify {
        fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
            debug_assert_eq!(waiter, self.waiter, "a future is awaited by the one who polls it");
            self.publish_ticket(ticket)
        }

        fn unpublish(&self) {
            self.withdraw_ticket();
        }
    }

    impl Wake for Notify {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            if let Some(ticket) = self.call()
                && let Some(waker) = wake::complete(self.waiter, ticket, ARM_FIRST, Place::Tail)
            {
                waker.wake();
            }
        }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
