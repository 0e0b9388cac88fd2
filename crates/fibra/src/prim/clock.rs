//! The one clock: nanoseconds of the monotonic clock since the process first asked, and the cheap cycle counter that
//! decides when to look at that clock again.

use std::sync::OnceLock;

/// The moment that counts as 1 ns on fibra's clock. One nanosecond and not zero, so that 0 can mean "never".
#[allow(clippy::disallowed_types)] // This is the facade the lint points to.
fn anchor() -> std::time::Instant {
    static ANCHOR: OnceLock<std::time::Instant> = OnceLock::new();
    *ANCHOR.get_or_init(std::time::Instant::now)
}

/// Nanoseconds since the anchor; never 0, never backwards. Costs a `clock_gettime` (about 26 ns).
pub(crate) fn now() -> u64 {
    // 2^64 ns are 584 years: the cast cannot lose anything in the life of a process.
    anchor().elapsed().as_nanos() as u64 + 1
}

/// Where `instant` lies on fibra's clock; moments before the anchor are 0, which is always in the past.
#[allow(clippy::disallowed_types)]
pub(crate) fn from_std(instant: std::time::Instant) -> u64 {
    match instant.checked_duration_since(anchor()) {
        Some(since) => u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).saturating_add(1),
        None => 0,
    }
}

/// Like [`from_std`], but moments before the anchor keep their distance from it: they are negative, or 0.
#[allow(clippy::disallowed_types)]
pub(crate) fn position_of_std(instant: std::time::Instant) -> i128 {
    match anchor().checked_duration_since(instant) {
        // A `Duration` has less than 2^94 nanoseconds.
        Some(before) => 1 - before.as_nanos() as i128,
        None => from_std(instant).into(),
    }
}

/// The std instant that corresponds to `nanos` on fibra's clock, if std can represent it.
#[allow(clippy::disallowed_types)]
pub(crate) fn to_std(nanos: u64) -> Option<std::time::Instant> {
    anchor().checked_add(std::time::Duration::from_nanos(nanos.saturating_sub(1)))
}

/// A counter that grows with time, cheap to read and of unknown but constant pace (1 to 5 per nanosecond).
/// Only differences mean something, and only as "a bounded time has passed".
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `rdtsc` reads a counter and has no other effect; every x86_64 has it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    now()
}
