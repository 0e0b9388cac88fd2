//! How a plain thread waits: [`Parker`] for threads. A thread owns its stack, so it commits the park itself, and takes its wait back when
//! its time is up. Scopes, whose bodies threads may run too, are looked up in `here`. Above: `park`. Below: `waiter::record`.

use std::time::Duration;

use super::here;
use super::park::Parker;
use super::waitable::Wait;
use crate::waiter::node::WaiterRef;
use crate::waiter::record::ThreadRecord;
use crate::waiter::word::{Ticket, WaitKind};

impl Parker for &'static ThreadRecord {
    fn waiter(self) -> WaiterRef {
        self.waiter_ref()
    }

    fn is_plain(self) -> bool {
        here::is_thread_plain(self)
    }

    fn kind(self, asked: WaitKind, _: &Wait) -> WaitKind {
        if asked == WaitKind::Revocable { here::thread_wait_kind(self) } else { asked }
    }

    fn is_due(self, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool {
        here::may_end_on_thread(self, kind, settled)
    }

    fn is_over(self, deadline: u64) -> bool {
        here::is_over(deadline)
    }

    /// The system preempts threads: nothing to do.
    fn pass(self) {}

    fn leave(self, _: Ticket, how: &Wait, _: bool) {
        let left = || how.deadline.map(|deadline| Duration::from_nanos(here::time_left(deadline)));
        self.leave_until(left, |kind| self.is_due(kind, &|| false));
    }

    fn await_owner(self) {
        // Claimed already: there is no wait left that cancellation could end.
        self.leave_until(|| None, |_| false);
    }
}
