//! [`Event`]: a flag that fibers, threads and futures can wait for. Above: users. Below: `turns`.

use std::fmt;
use std::panic::Location;

use super::turns::{TurnArm, TurnFuture, Turns, TurnsWord, wait_forms};
use crate::prim::bug::seeded_bug;
use crate::wait::park;
use crate::wait::reason::WaitReason;

/// A flag that can be waited for: set by hand, reset by hand.
///
/// Setting it lets all waiters go, and all that come until it is reset. No waiter that was there when it was set is left behind, however
/// soon it is reset. A waiter that was let go sees what was done before `set`.
///
/// ```
/// use fibra::sync::Event;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let ready = Arc::new(Event::new());
///     let waiting = ready.clone();
///     let fiber = fibra::spawn(move || waiting.wait());
///     ready.set();
///     fiber.join().unwrap();
///     ready.wait(); // still set
///     ready.reset();
///     assert!(!ready.wait_timeout(std::time::Duration::from_millis(1)));
/// });
/// ```
pub struct Event {
    turns: Turns,
}

impl Event {
    /// An event that is not set.
    ///
    /// ```
    /// use fibra::sync::Event;
    /// static STARTED: Event = Event::new();
    /// assert!(!STARTED.is_set());
    /// ```
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { turns: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }) }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { turns: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }) }
    }

    /// Sets it, and lets all waiters go. If it is set already, nothing happens.
    pub fn set(&self) {
        let _ = self.turns.change(|state| {
            let next = if seeded_bug("event_same_turn") { state } else { state.next_turn() };
            (!state.open).then_some(TurnsWord { open: true, ..next })
        });
    }

    /// Resets it: callers wait from now on.
    pub fn reset(&self) {
        let _ = self.turns.change(|state| state.open.then_some(TurnsWord { open: false, ..state }));
    }

    /// Is it set?
    #[must_use]
    pub fn is_set(&self) -> bool {
        park::count_call();
        self.turns.state().open
    }

    fn wait_until(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        self.wait_as(WaitReason::EventWait, deadline, site)
    }

    /// Waits until it is set, for a reason of the caller's.
    pub(crate) fn wait_as(&self, reason: WaitReason, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        self.turns.wait_open(reason, deadline, site)
    }

    /// Waits until it is set, as a future.
    ///
    /// ```
    /// let event = fibra::sync::Event::new();
    /// event.set();
    /// fibra::block_on(event.wait_async());
    /// ```
    pub fn wait_async(&self) -> TurnFuture<'_> {
        TurnFuture::new(&self.turns)
    }

    /// Waiting until it is set, as an arm of [`select!`](crate::select).
    ///
    /// ```
    /// use std::time::Duration;
    /// let event = fibra::sync::Event::new();
    /// fibra::select! {
    ///     on(event.waiting()) => unreachable!("it is never set"),
    ///     after(Duration::from_millis(1)) => {}
    /// }
    /// ```
    pub fn waiting(&self) -> TurnArm<'_> {
        self.turns.arm()
    }
}

wait_forms! {
    Event,
    /// Waits until it is set.
    wait,
    /// Waits until it is set, for at most `timeout`. True if it was.
    wait_timeout,
    /// Waits until it is set, until `deadline` at most. True if it was.
    wait_deadline
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("is_set", &self.turns.state().open).finish()
    }
}
