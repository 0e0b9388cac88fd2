//! [`Instant`]: a moment on fibra's one clock, in 64 bits.
//!
//! Above: everything that takes a deadline, and users. Below: `prim::policy`. std's instant is twice as large, panics when it
//! overflows and knows only the real clock; this one saturates, so that "in `Duration::MAX`" simply means never, and in a
//! simulation it follows virtual time.

use crate::prim::policy;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// A moment on fibra's monotonic clock.
///
/// It is used like [`std::time::Instant`]; one of those converts into it, compares with it and can be subtracted from it, and the other
/// way round. Unlike there, arithmetic with operators does not panic: it
/// stops at the end of time, [`Instant::FAR_FUTURE`] (about 584 years after the program started), and at its beginning. Waiting until
/// `FAR_FUTURE` is waiting for ever.
///
/// ```
/// use fibra::time::Instant;
/// use std::time::Duration;
///
/// let start = Instant::now();
/// let deadline = start + Duration::from_millis(250);
/// assert!(deadline > start);
/// assert_eq!(deadline - start, Duration::from_millis(250));
/// assert_eq!(start - deadline, Duration::ZERO);
/// assert_eq!(start + Duration::MAX, Instant::FAR_FUTURE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The end of time: later than everything else, never reached.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The current moment.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// let first = Instant::now();
    /// assert!(Instant::now() >= first);
    /// ```
    #[must_use]
    pub fn now() -> Self {
        Self(policy::now())
    }

    /// The moment that lies `duration` from now; [`Instant::FAR_FUTURE`] if that is beyond the end of time.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// assert!(Instant::after(Duration::from_secs(1)) > Instant::now());
    /// assert_eq!(Instant::after(Duration::MAX), Instant::FAR_FUTURE);
    /// ```
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self::now().saturating_add(duration)
    }

    /// How long ago this moment was; zero if it is still to come.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// let start = Instant::now();
    /// std::thread::sleep(Duration::from_millis(2));
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// assert_eq!(Instant::FAR_FUTURE.elapsed(), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// How long from now until this moment; zero if it has passed.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// assert!(Instant::after(Duration::from_secs(60)).remaining() > Duration::from_secs(1));
    /// assert_eq!(Instant::now().remaining(), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.saturating_duration_since(Self::now())
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// let (a, b) = { let a = Instant::now(); (a, a + Duration::from_secs(3)) };
    /// assert_eq!(b.duration_since(a), Duration::from_secs(3));
    /// assert_eq!(a.duration_since(b), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// The time from `earlier` to this moment, or `None` if `earlier` is the later one.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// let (a, b) = { let a = Instant::now(); (a, a + Duration::from_secs(3)) };
    /// assert_eq!(b.checked_duration_since(a), Some(Duration::from_secs(3)));
    /// assert_eq!(a.checked_duration_since(b), None);
    /// ```
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// The same as [`duration_since`](Self::duration_since), under the name that std has for it.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment and `duration`, or `None` if that is beyond the end of time.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// let now = Instant::now();
    /// assert_eq!(now.checked_add(Duration::from_secs(1)), Some(now + Duration::from_secs(1)));
    /// assert_eq!(now.checked_add(Duration::MAX), None);
    /// ```
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(u64::try_from(duration.as_nanos()).ok()?).map(Instant)
    }

    /// This moment less `duration`, or `None` if that is before the beginning of the clock, which is when the program first used it.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// use std::time::Duration;
    /// let now = Instant::now();
    /// assert_eq!((now + Duration::from_secs(1)).checked_sub(Duration::from_secs(1)), Some(now));
    /// assert_eq!(now.checked_sub(Duration::MAX), None);
    /// ```
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(u64::try_from(duration.as_nanos()).ok()?).map(Instant)
    }

    /// This moment and `duration`, at most [`Instant::FAR_FUTURE`]. The same as `+`.
    #[must_use]
    pub fn saturating_add(&self, duration: Duration) -> Instant {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// This moment less `duration`, at least the beginning of the clock. The same as `-`.
    #[must_use]
    pub fn saturating_sub(&self, duration: Duration) -> Instant {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }

    /// The same moment for std, or `None` if std cannot represent it.
    ///
    /// ```
    /// use fibra::time::Instant;
    /// let now = Instant::now();
    /// assert_eq!(Instant::from(now.to_std().unwrap()), now);
    /// ```
    #[must_use]
    #[allow(clippy::disallowed_types)] // The bridge to std.
    pub fn to_std(&self) -> Option<std::time::Instant> {
        policy::to_std(self.0)
    }

    /// The moment with this number on fibra's clock.
    #[inline(always)]
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment beside those of std: see [`policy::position_of_std`].
    fn position(self) -> i128 {
        self.0.into()
    }

    /// The moment as `prim::policy` counts, for timers.
    #[inline]
    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment before the program first used fibra's clock becomes the beginning of that clock, which is in the past all the same.
///
/// ```
/// use fibra::time::Instant;
/// use std::time::Duration;
/// let start = Instant::now();
/// let deadline = std::time::Instant::now() + Duration::from_secs(5);
/// assert!(Instant::from(deadline) >= start + Duration::from_secs(5));
/// ```
#[allow(clippy::disallowed_types)] // The bridge to std.
impl From<std::time::Instant> for Instant {
    fn from(instant: std::time::Instant) -> Self {
        Self(policy::from_std(instant))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        self.saturating_add(duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        self.saturating_sub(duration)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// The time between the two; zero if the right one is later.
impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

// ---- Beside std's -------------------------------------------------------------------------------------------------------

/// The same moment? Moments before fibra's clock began are told from it and from each other.
///
/// ```
/// use fibra::time::Instant;
/// let now = Instant::now();
/// assert_eq!(now.to_std().unwrap(), now);
/// ```
#[allow(clippy::disallowed_types)] // The bridge to std.
impl PartialEq<std::time::Instant> for Instant {
    fn eq(&self, other: &std::time::Instant) -> bool {
        self.position() == policy::position_of_std(*other)
    }
}

#[allow(clippy::disallowed_types)] // The bridge to std.
impl PartialEq<Instant> for std::time::Instant {
    fn eq(&self, other: &Instant) -> bool {
        other == self
    }
}

/// ```
/// let start = std::time::Instant::now();
/// let due = fibra::channel::after(std::time::Duration::from_millis(1)).recv().unwrap();
/// assert!(due > start && start < due);
/// ```
#[allow(clippy::disallowed_types)] // The bridge to std.
impl PartialOrd<std::time::Instant> for Instant {
    fn partial_cmp(&self, other: &std::time::Instant) -> Option<Ordering> {
        self.position().partial_cmp(&policy::position_of_std(*other))
    }
}

#[allow(clippy::disallowed_types)] // The bridge to std.
impl PartialOrd<Instant> for std::time::Instant {
    fn partial_cmp(&self, other: &Instant) -> Option<Ordering> {
        other.partial_cmp(self).map(Ordering::reverse)
    }
}

/// The time between the two; zero if the right one is later.
///
/// ```
/// use std::time::Duration;
/// let start = std::time::Instant::now();
/// let due = fibra::channel::after(Duration::from_millis(1)).recv().unwrap();
/// assert!(due - start >= Duration::from_millis(1));
/// assert_eq!(start - due, Duration::ZERO);
/// ```
#[allow(clippy::disallowed_types)] // The bridge to std.
impl Sub<std::time::Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: std::time::Instant) -> Duration {
        between(policy::position_of_std(earlier), self.position())
    }
}

/// The time between the two; zero if the right one is later.
#[allow(clippy::disallowed_types)] // The bridge to std.
impl Sub<Instant> for std::time::Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        between(earlier.position(), policy::position_of_std(self))
    }
}

/// From one position on the clock to another; zero if they are the other way round.
fn between(from: i128, to: i128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let nanos = u128::try_from(to - from).unwrap_or(0);
    // The rest is less than a second, which fits.
    u64::try_from(nanos / SECOND).map_or(Duration::MAX, |seconds| Duration::new(seconds, (nanos % SECOND) as u32))
}

/// Shows the time since the clock's beginning: `Instant(+1.5s)`, or `Instant(far future)`.
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR_FUTURE {
            f.write_str("Instant(far future)")
        } else {
            write!(f, "Instant(+{:?})", Duration::from_nanos(self.0))
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_both_ends() {
        let mut t = Instant(10);
        t -= Duration::from_secs(1);
        assert_eq!(t, Instant(0));
        t += Duration::MAX;
        assert_eq!(t, Instant::FAR_FUTURE);
        assert_eq!(t + Duration::from_nanos(1), Instant::FAR_FUTURE);
        assert_eq!(t.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(Instant(0).checked_sub(Duration::from_nanos(1)), None);
        assert_eq!(Instant::FAR_FUTURE.as_nanos(), u64::MAX);
    }

    #[test]
    #[allow(clippy::disallowed_types)]
    fn std_instants_keep_their_distance() {
        let ours = Instant::now();
        let std = ours.to_std().unwrap() + Duration::from_nanos(12_345);
        assert_eq!(Instant::from(std) - ours, Duration::from_nanos(12_345));
        // Before the clock began, and beyond its end.
        assert_eq!(Instant::from(std - Duration::from_secs(3600)), Instant(0));
        assert_eq!(Instant::from(std + Duration::from_secs(1 << 40)), Instant::FAR_FUTURE);
    }

    #[test]
    #[allow(clippy::disallowed_types)]
    fn std_instants_from_before_the_clock_began_are_told_from_it() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let std = now.to_std().unwrap();
        let Some(before) = std.checked_sub(hour) else { return };
        assert!(before < now && before < Instant(0));
        assert!(now > before && before != now);
        assert_eq!((now - before, before - now), (hour, Duration::ZERO));
        assert!(std == now && std + hour == now + hour);
        // Beyond the clock's end.
        let beyond = std + Duration::from_secs(1 << 40);
        assert!(Instant::FAR_FUTURE > std && Instant::FAR_FUTURE == beyond && beyond > now);
        assert_eq!(beyond - now, Instant::FAR_FUTURE - now);
    }

    #[test]
    fn says_what_it_is() {
        assert_eq!(format!("{:?}", Instant(1_500_000_000)), "Instant(+1.5s)");
        assert_eq!(format!("{:?}", Instant::FAR_FUTURE), "Instant(far future)");
    }
}
