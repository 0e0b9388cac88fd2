//! The phases of a worker: what the word of its seat may say, and which phase may follow which. One table, asserted on every edge in
//! debug builds and with `FIBRA_SPEC_ASSERT=1`, like that of the fibers' word.
//!
//! Above: `idle.rs`, which changes the words, and `monitor::metrics`, which shows them as [`WorkerState`]. Below: nothing.
//!
//! ```text
//!           arrive            search              no work anywhere
//!   DEAD ───────────▶ ACTIVE ◀──────▶ SPIN ──────────────┐
//!     ▲                │  ▲  └───────────────────────────▶ SLEEP ──▶ WOKEN (sent something) ─────────▶ ACTIVE
//!     │          drain │  │ wanted after all               │  └────▶ WOKEN_SEARCHER (surplus) ───────▶ ACTIVE
//!     │                ▼  │                                └───────▶ ACTIVE (timer, I/O)
//!     └───────────── DRAINING ◀──▶ DRAINING_SLEEP ──▶ WOKEN ──▶ DRAINING
//!       no fiber left
//! ```

use crate::waiter::word::is_spec_asserted;

/// What a worker is doing, as [`WorkerMetrics`](crate::WorkerMetrics) shows it.
///
/// ```
/// let rt = fibra::Runtime::builder().workers(1).max_workers(2).build()?;
/// for worker in rt.metrics().workers {
///     println!("worker {}: {}", worker.index, worker.state); // worker 0: ACTIVE
///     assert_ne!(worker.state, fibra::WorkerState::Dead);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum WorkerState {
    /// It runs fibers, or is about to.
    Active,
    /// It has nothing to run and looks for work of other workers, for a bounded time.
    IdleSpin,
    /// It sleeps until something arrives for it, a timer is due, or there is more work than the other workers can do.
    Sleep,
    /// It is leaving: it takes no new work, and stays only for fibers that have started on it.
    Draining,
    /// It has left.
    #[default]
    Dead,
}

impl WorkerState {
    /// Its name in capitals, as in reports: `ACTIVE`, `IDLE_SPIN`, `SLEEP`, `DRAINING`, `DEAD`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::IdleSpin => "IDLE_SPIN",
            Self::Sleep => "SLEEP",
            Self::Draining => "DRAINING",
            Self::Dead => "DEAD",
        }
    }
}

impl std::fmt::Display for WorkerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The word of a seat. The numbers are those of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    /// Running, or on its way to something to run.
    Active = 0,
    /// Searching for work.
    Spin = 1,
    /// Announced as asleep, and in the list: may be woken, by name or for surplus.
    Sleep = 2,
    /// Woken by name; a kick is under way.
    Woken = 3,
    /// Woken for surplus, and counted as searching; a kick is under way.
    WokenSearcher = 4,
    /// Leaving.
    Draining = 5,
    /// Leaving, and asleep until a fiber of its own can run: may be woken by name only.
    DrainingSleep = 6,
    /// No worker.
    Dead = 7,
}

/// The table: which phase may follow which.
const EDGES: &[(Phase, Phase)] = {
    use Phase::*;
    &[
        // A worker searches, and finds something or its time for that is over.
        (Active, Spin),
        (Spin, Active),
        // Going to sleep and waking.
        (Active, Sleep),
        (Spin, Sleep),
        (Sleep, Active),
        (Sleep, Woken),
        (Sleep, WokenSearcher),
        (Woken, Active),
        (WokenSearcher, Active),
        // Leaving, or staying after all. A worker that searches or sleeps becomes active first.
        (Active, Draining),
        (Draining, Active),
        (Draining, DrainingSleep),
        (DrainingSleep, Draining),
        (DrainingSleep, Woken),
        (Woken, Draining),
        (Draining, Dead),
        // A worker takes the seat.
        (Dead, Active),
    ]
};

impl Phase {
    const ALL: [Phase; 8] = {
        use Phase::*;
        [Active, Spin, Sleep, Woken, WokenSearcher, Draining, DrainingSleep, Dead]
    };

    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self::ALL[bits as usize]
    }

    /// Is it blocked, or about to be, and not woken yet?
    #[inline(always)]
    pub(crate) fn is_asleep(self) -> bool {
        matches!(self, Self::Sleep | Self::DrainingSleep)
    }

    /// May new work be sent to it? Not if it is leaving, or gone.
    pub(crate) fn accepts(self) -> bool {
        !matches!(self, Self::Draining | Self::DrainingSleep | Self::Dead)
    }

    /// How it is shown. A worker that was woken by name is as good as active.
    pub(crate) fn state(self) -> WorkerState {
        match self {
            Self::Active | Self::Woken => WorkerState::Active,
            Self::Spin | Self::WokenSearcher => WorkerState::IdleSpin,
            Self::Sleep => WorkerState::Sleep,
            Self::Draining | Self::DrainingSleep => WorkerState::Draining,
            Self::Dead => WorkerState::Dead,
        }
    }
}

/// Asserts that the table has this edge, in debug builds and with `FIBRA_SPEC_ASSERT=1`.
#[inline]
pub(super) fn check_edge(worker: usize, from: Phase, to: Phase) {
    if is_spec_asserted() {
        assert!(
            EDGES.contains(&(from, to)),
            "fibra: illegal transition of worker {worker}: {from:?} to {to:?} (a bug in fibra, please report it)"
        );
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // S4-75: every phase can be reached from DEAD and leads back to it, each is shown as one of five states, and what the table does not
    // name is refused.
    #[test]
    fn the_table_is_connected_and_closed() {
        crate::waiter::word::enable_spec_assert();
        let mut reached = vec![Phase::Dead];
        let mut back = vec![Phase::Dead];
        for _ in Phase::ALL {
            for &(from, to) in EDGES {
                if reached.contains(&from) && !reached.contains(&to) {
                    reached.push(to);
                }
                if back.contains(&to) && !back.contains(&from) {
                    back.push(from);
                }
            }
        }
        for (number, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, number);
            assert_eq!(Phase::from_bits(number as u32), phase);
            assert!(reached.contains(&phase) && back.contains(&phase), "{phase:?}");
            let refused = std::panic::catch_unwind(|| check_edge(0, phase, phase));
            assert!(refused.is_err(), "{phase:?} follows itself");
        }
        // S4-78: nothing leads from leaving to looking for work, or to sleeping among those that are woken for it.
        for phase in [Phase::Spin, Phase::Sleep, Phase::WokenSearcher] {
            assert!(!EDGES.contains(&(Phase::Draining, phase)) && !EDGES.contains(&(Phase::DrainingSleep, phase)));
        }
        let shown: Vec<_> = Phase::ALL.iter().map(|phase| phase.state().name()).collect();
        for name in ["ACTIVE", "IDLE_SPIN", "SLEEP", "DRAINING", "DEAD"] {
            assert!(shown.contains(&name), "{name}");
        }
    }
}
