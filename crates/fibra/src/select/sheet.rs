//! The operations that a parked select waits for, written down for reports on the stack of the waiting fiber.
//!
//! The wait record of a fiber has one word for the object. That of a select is the address of a [`Sheet`]: which operations on which
//! channels, and whether there are other arms. It is written when a select parks, never by one that finds an arm ready, and read by the
//! kernel (`prim::peek`) from any thread: what was read counts if the fiber is still in the same wait afterwards.
//!
//! Above: `inspect`. Below: `case.rs`.

use super::case::{Case, CaseKind};
use crate::channel::op::ChanOpKind;

/// The most arms that are written down.
const ARMS: usize = 8;

/// See the header. Plain words: `[channels, others, arm, arm, ..]`.
#[repr(transparent)]
pub(super) struct Sheet([usize; ARMS + 2]);

/// The objects that a select waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arms {
    /// Channels by their number, and whether the arm sends.
    pub(crate) channels: Vec<(u64, bool)>,
    /// There are arms that are no operations on channels, or more than are written down.
    pub(crate) others: bool,
}

impl Sheet {
    pub(super) fn of(cases: &[Case<'_>]) -> Self {
        let mut words = [0; ARMS + 2];
        for case in cases {
            match &case.kind {
                CaseKind::Channel { operation, .. } if words[0] < ARMS => {
                    let sends = matches!(
                        operation.op(),
                        ChanOpKind::Send | ChanOpKind::Reserve | ChanOpKind::ReserveInvited | ChanOpKind::ReadySend
                    );
                    words[2 + words[0]] = (operation.chan().order() as usize) << 1 | usize::from(sends);
                    words[0] += 1;
                }
                // Time ends the wait, and cancellation may end any.
                CaseKind::Off | CaseKind::Cancelled | CaseKind::After(_) | CaseKind::At(_) => {}
                CaseKind::Channel { .. } | CaseKind::Object(_) => words[1] = 1,
            }
        }
        Self(words)
    }

    /// The address that the wait record names. (Exposed: other threads read the memory behind it.)
    pub(super) fn address(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// Reads a sheet that may be gone.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn read(address: usize) -> Option<Arms> {
    let words: [usize; ARMS + 2] = crate::prim::peek::peek_words(address)?;
    let arms = words[2..].iter().take(words[0].min(ARMS));
    Some(Arms { channels: arms.map(|arm| ((arm >> 1) as u64, arm & 1 == 1)).collect(), others: words[1] != 0 })
}
