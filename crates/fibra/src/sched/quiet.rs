//! When nothing runs any more: sysmon calls the inspector, which finds out whether that is a deadlock. Where there is no sysmon
//! (a current-thread runtime, `FIBRA_SYSMON=0`), a worker does it that is about to sleep with nothing of its own to wake it ([`OwnLook`]).
//!
//! Workers pay nothing for it. Sysmon sees anyway that all of them have slept from one of its looks to the next: then it has the look taken
//! ([`QuietLook`], which lies above: `inspect::total`), and if that is not sure yet, again after the time it asks for, as long as nothing
//! wakes. How often: not more than once in [`PAUSE`], and never so often that looking takes more than a hundredth of the time.
//!
//! A worker that looks itself first sleeps for [`PAUSE`], so that a runtime which only waits for the next request never looks: it pays
//! for a sleep with a time-out instead of one without, and for one wake when it has become idle.
//!
//! Above: `monitor::sysmon`, `search.rs`. The look itself, and what comes of it, is `inspect`'s.

use std::sync::Arc;
use std::time::Duration;

use super::monitoring::QuietLook;
use super::shared::RuntimeShared;
use crate::prim::policy;
use crate::prim::sync::Mutex;

/// Between the beginnings of two looks, at least.
const PAUSE: u64 = 50_000_000;
/// A look that took some time is not taken again before so many times that time.
const COST: u64 = 100;

/// Sysmon's memory of it.
#[derive(Debug)]
pub(crate) struct Quiet {
    ask: Option<QuietLook>,
    /// Since when all sleep, as far as it knows.
    since: u64,
    /// When the next look is due, if one is.
    due: Option<u64>,
    /// No look before.
    not_before: u64,
    memory: u64,
}

impl Quiet {
    pub(crate) fn new(ask: Option<QuietLook>) -> Self {
        Self { ask, since: 0, due: None, not_before: 0, memory: 0 }
    }

    /// All workers sleep now.
    pub(crate) fn begin(&mut self) {
        self.since = policy::now();
        self.due = self.ask.map(|_| self.since.max(self.not_before));
    }

    /// A worker has woken.
    pub(crate) fn end(&mut self) {
        self.due = None;
    }

    /// How long until the next look, if there is to be one.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.due.map(|due| Duration::from_nanos(due.saturating_sub(policy::now())))
    }

    /// The look.
    pub(crate) fn look(&mut self, shared: &Arc<RuntimeShared>) {
        let Some(ask) = self.ask else { return };
        let before = policy::now();
        let again = ask(shared, Duration::from_nanos(before.saturating_sub(self.since)), &mut self.memory);
        let after = policy::now();
        let took = after.saturating_sub(before);
        self.not_before = (before + PAUSE).max(after.saturating_add(took.saturating_mul(COST)));
        self.due = again.map(|again| after.saturating_add(again.as_nanos() as u64).max(self.not_before));
    }
}

/// The look of a runtime that has no sysmon for it.
#[derive(Debug)]
pub(crate) struct OwnLook(Mutex<Own>);

#[derive(Debug)]
struct Own {
    quiet: Quiet,
    /// The switches of all workers when this quiet began.
    switches: Option<u64>,
}

impl OwnLook {
    pub(super) fn new(ask: QuietLook) -> Self {
        Self(Mutex::new(Own { quiet: Quiet::new(Some(ask)), switches: None }))
    }

    /// By a worker that has announced its sleep and has nothing to wake it: looks, if that is due, and says when it has to be back.
    #[cold]
    #[inline(never)]
    pub(super) fn before_sleep(&self, shared: &Arc<RuntimeShared>) -> Option<u64> {
        let own = &mut *self.0.lock();
        let switches = shared.remotes.iter().map(|remote| remote.stats.switches.get()).sum();
        if own.switches.replace(switches) != Some(switches) {
            own.quiet.begin();
            own.quiet.due = own.quiet.due.map(|due| due.max(own.quiet.since + PAUSE));
        }
        if own.quiet.left() == Some(Duration::ZERO) {
            // Several come back for it at the same moment: the last of them to announce its sleep sees all the others asleep, and looks.
            // The others are back a little later, should that one not have come here: it may have something of its own to wait for now.
            if (0..shared.seats.made()).any(|seat| shared.idle.is_awake(seat)) {
                return Some(policy::now() + 2 * PAUSE);
            }
            own.quiet.look(shared);
        }
        own.quiet.due
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::Runtime;

    pub(crate) fn of_one_worker() -> Runtime {
        Runtime::builder().workers(1).max_workers(1).build().unwrap()
    }

    /// Runs `during` while a fiber keeps the only worker awake.
    pub(crate) fn with_busy_worker<R>(runtime: &Runtime, during: impl FnOnce() -> R) -> R {
        let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let fiber = runtime.spawn({
            let (begun, over) = (begun.clone(), over.clone());
            move || {
                begun.store(true, Ordering::SeqCst);
                while !over.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
        });
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let result = during();
        over.store(true, Ordering::SeqCst);
        fiber.join().unwrap();
        result
    }

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    fn ask(_: &Arc<RuntimeShared>, _: Duration, _: &mut u64) -> Option<Duration> {
        ASKED.fetch_add(1, Ordering::SeqCst);
        Some(Duration::from_secs(1))
    }

    #[test]
    fn a_worker_that_finds_another_one_awake_comes_back() {
        let runtime = of_one_worker();
        let shared = runtime.handle().shared().clone();
        let own = OwnLook::new(ask);
        assert!(own.before_sleep(&shared).is_some_and(|due| due > 0), "the first look is due after a pause");
        // The next look is due now, and no fiber has run since the last one.
        let due_now = || {
            let mut own = own.0.lock();
            own.quiet.due = Some(0);
            own.switches = Some(shared.remotes.iter().map(|remote| remote.stats.switches.get()).sum());
            policy::now()
        };
        with_busy_worker(&runtime, || {
            let now = due_now();
            assert!(own.before_sleep(&shared).is_some_and(|due| due > now), "one is awake: back a little later");
        });
        assert_eq!(ASKED.load(Ordering::SeqCst), 0);
        // Until the worker sleeps, which it does soon, it is as before.
        while ASKED.load(Ordering::SeqCst) == 0 {
            let now = due_now();
            assert!(
                own.before_sleep(&shared).is_some_and(|due| due > now),
                "awake, or the look has asked for another one"
            );
        }
    }
}
