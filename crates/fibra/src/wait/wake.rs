//! Wake: setting a claimed waiter going, be it a fiber, a thread or a future. Above: everything that completes waits. Below: `sched`,
//! `waiter`.

use std::task::Waker;

#[cfg(not(any(loom, shuttle)))]
use crate::fiber::frame::Frame;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use crate::sched::call_wakers::call_wakers_where_fit;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::current;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use crate::sched::enqueue::QueueEnd;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::enqueue::enqueue;
use crate::waiter::record::Claimed;
pub(crate) use crate::waiter::record::{call_waker, call_wakers};

/// Lets a claimed waiter go on, its slot being filled. May be called under a lock of the object: no user code runs here. An async
/// waiter's waker is returned instead, to be called when no lock is held.
#[must_use]
#[inline(always)]
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn make_runnable(claimed: Claimed, place: QueueEnd) -> Option<Waker> {
    claimed.make_runnable_with(|fiber| enqueue(Frame::from_waiter(fiber), place))
}

/// The same for a fiber that [`Claimed::of_parked`] claimed.
#[inline(always)]
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn make_parked_runnable(claimed: Claimed, place: QueueEnd) {
    enqueue(Frame::from_waiter(claimed.into_fiber()), place);
}

/// Models have threads and tasks, and no queues.
#[cfg(any(loom, shuttle))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueEnd {
    Next,
    Tail,
}

#[cfg(any(loom, shuttle))]
#[must_use]
pub(crate) fn make_runnable(claimed: Claimed, _: QueueEnd) -> Option<Waker> {
    claimed.make_runnable_with(|_| unreachable!("no fibers in a model"))
}

/// Has wakers called soon, from a place where user code may not run because the caller is PARKING: on a fiber of their own. On a plain
/// thread they are called here; if one of them waits, it does so with another record.
pub(crate) fn call_wakers_soon(wakers: Vec<Waker>) {
    #[cfg(not(any(loom, shuttle)))]
    if let Some(worker) = current::worker() {
        return worker.spawn_call_of_wakers(wakers);
    }
    call_wakers(wakers);
}
