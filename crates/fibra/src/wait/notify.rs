//! Waits without a node: somebody polls a future and sleeps until its waker is called.
//!
//! A waker may be called at any time, by anybody, any number of times, also long after the wait is over; so it carries no ticket.
//! The cell keeps two things instead: NOTIFIED, which remembers a call that found nobody asleep, and the ticket of the sleep that is
//! published now, if any. Sleeper: publish the ticket, then swap NOTIFIED. Waker: swap NOTIFIED, then swap the ticket. All are SeqCst
//! read-modify-writes, so one of the two sees the other.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::node::WaiterRef;
use super::park::Waitable;
use super::word::{ARM_FIRST, Ticket};
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sched::enqueue::Place;
use crate::sched::wake;

/// See the header. One per polled future and waiter.
#[derive(Debug)]
pub(crate) struct Notify {
    waiter: WaiterRef,
    notified: AtomicBool,
    ticket: AtomicU64,
}

impl Notify {
    pub(crate) fn new(waiter: WaiterRef) -> Arc<Self> {
        Arc::new(Self { waiter, notified: AtomicBool::new(false), ticket: AtomicU64::new(Ticket::NONE.to_bits()) })
    }

    /// The waker to poll with.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }

    /// Before each poll: calls up to now are answered by it.
    pub(crate) fn begin_poll(&self) {
        // SeqCst: see the header.
        self.notified.swap(false, Ordering::SeqCst);
    }
}

impl Waitable for Notify {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        debug_assert_eq!(waiter, self.waiter, "a future is awaited by the one who polls it");
        // SeqCst, both: see the header.
        self.ticket.swap(ticket.to_bits(), Ordering::SeqCst);
        if self.notified.swap(false, Ordering::SeqCst) {
            self.unpublish();
            return false;
        }
        true
    }

    fn unpublish(&self) {
        // SeqCst: see the header.
        self.ticket.swap(Ticket::NONE.to_bits(), Ordering::SeqCst);
    }
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SeqCst: see the header. If it was set before, that caller sees to the ticket, or the sleeper sees the flag.
        if self.notified.swap(true, Ordering::SeqCst) {
            return;
        }
        // SeqCst: see the header.
        let ticket = Ticket::from_bits(self.ticket.swap(Ticket::NONE.to_bits(), Ordering::SeqCst));
        if ticket != Ticket::NONE
            && let Some(waker) = wake::complete(self.waiter, ticket, ARM_FIRST, Place::Tail)
        {
            waker.wake();
        }
    }
}
