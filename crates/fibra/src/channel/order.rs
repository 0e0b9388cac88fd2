//! The order in which locks are taken: channels by id, ascending, and several at once only in a select (S0-48, S0-86). Debug builds
//! check it: a thread locks a channel only while it holds neither a channel with the same or a higher id nor a spin lock around a value,
//! which is what the locks of the floors below are. Below channels come the locks of join lists, of waiter records, of gates and of the
//! scheduler, none of which is held while a channel is locked.
//!
//! Above: `chan`, which calls this when it locks and unlocks. Below: `prim`.

/// A new channel's place in the order: its id, which is never given again.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn next_id() -> u64 {
    use crate::prim::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: unique and ascending, that is all.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Models have no statics of their own; the ids of their channels come from an atomic of std.
#[cfg(any(loom, shuttle))]
#[allow(clippy::disallowed_types)]
pub(super) fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: as above.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod checked {
    use std::cell::Cell;

    thread_local! {
        /// The highest id among the channels this thread has locked, and how many it has locked.
        static HELD: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }

    pub(crate) fn enter(id: u64) {
        // Not checked while the thread is being torn down.
        let _ = HELD.try_with(|held| {
            let (highest, count) = held.get();
            assert!(
                id > highest,
                "fibra: channel {id} is locked while channel {highest} is held: channels are locked in ascending order \
                 (a bug in fibra, please report it)"
            );
            let others = crate::prim::spin::held::count();
            assert!(
                others == 0,
                "fibra: channel {id} is locked under {others} locks that come after channels (a bug in fibra, please \
                 report it)"
            );
            held.set((id, count + 1));
        });
    }

    pub(crate) fn leave() {
        let _ = HELD.try_with(|held| {
            let (highest, count) = held.get();
            held.set(if count == 1 { (0, 0) } else { (highest, count - 1) });
        });
    }
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
pub(crate) use checked::{enter, leave};

#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
#[inline(always)]
pub(crate) fn enter(_: u64) {}
#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
#[inline(always)]
pub(crate) fn leave() {}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::{enter, leave};

    // S0-86: a channel under a lock of the floors below is found; such a lock under a channel's is in order.
    #[test]
    fn channels_come_first() {
        let lower = crate::prim::spin::SpinLock::new(());
        enter(5);
        lower.with(|()| ());
        leave();
        let caught = std::thread::spawn(move || lower.with(|()| enter(5)));
        assert!(caught.join().is_err(), "a channel under a lower lock");
        enter(5);
        leave();
    }

    // S0-48, S0-86: ascending is fine, anything else is found.
    #[test]
    fn the_order_is_checked() {
        enter(3);
        enter(7);
        leave();
        enter(8);
        leave();
        leave();
        enter(2);
        for wrong in [1, 2] {
            let caught = std::thread::spawn(move || {
                enter(2);
                enter(wrong);
            });
            assert!(caught.join().is_err(), "{wrong} after 2");
        }
        leave();
    }
}
