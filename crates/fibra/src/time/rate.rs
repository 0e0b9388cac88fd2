//! [`RateLimiter`]: so much per second; a caller that comes too soon waits for its turn.
//!
//! Above: users. Below: `sleep`, and for futures a receiver that time feeds. There is no queue and no timer of its own: the bucket is
//! one number, the moment at which everything booked so far will have been paid for (the "theoretical arrival time" of GCRA). Booking is
//! one compare-exchange that moves it on and tells the caller when its turn is; so turns come in the order of booking, and a waiter
//! needs nothing but a clock.
//!
//! Invariant: between any two moments no more is let through than the burst and what the time between them pays for. Nothing that is given
//! back may break that: a wait that ends early gives its tokens back only if no other caller has booked behind it.

use std::fmt;
use std::time::Duration;

use super::Instant;
use super::sleep::sleep_until;
use crate::channel;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::policy;
use crate::wait::park;

/// The clock of the bucket counts sixteenths of a nanosecond, so that the price of a token is right also at high rates. (It
/// runs for 36 years.) If filling the bucket takes years, it counts in steps that are twice as long, or four times, and so on.
const PARTS: u64 = 16;

/// Filling the bucket takes less than this, so that the bookings do not reach the end of the clock before the burst is used up.
const FULL: u64 = 1 << 60;

/// Lets so many through per second, evenly, with a burst if wanted: a token bucket.
///
/// A caller books its turn and waits until that has come, so that waiters are served in the order in which they asked; the bucket is full
/// at first. It can be shared by fibers, threads and async code. Waiting is sleeping: it can be cancelled, and is never over too early.
///
/// ```
/// use fibra::time::{Instant, RateLimiter};
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let limiter = RateLimiter::new(1000).with_burst(2);
///     let begin = Instant::now();
///     for _ in 0..5 {
///         limiter.acquire(); // the first two at once, then one per millisecond
///     }
///     assert!(begin.elapsed() >= Duration::from_millis(3));
/// });
/// ```
pub struct RateLimiter {
    /// The moment when everything booked so far is paid for, on the bucket's clock.
    paid: AtomicU64,
    /// The price of a token, in parts.
    price: u64,
    burst: u32,
    /// The clock of `paid` counts parts shifted right by so many bits.
    shift: u32,
}

/// Why [`RateLimiter`] said no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RateError {
    /// More tokens at once than the burst allows: that would never be possible.
    TooMany {
        /// How many were asked for.
        wanted: u32,
        /// How many there are at most.
        burst: u32,
    },
    /// The tokens would not be there in time. Nothing was taken.
    TimedOut,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { wanted, burst } => {
                write!(f, "{wanted} tokens at once were asked of a rate limiter whose burst is {burst}")
            }
            Self::TimedOut => f.write_str("the rate limiter would not have let this through in time"),
        }
    }
}

impl std::error::Error for RateError {}

/// Tokens that were booked and not used yet: given back unless kept.
struct Booking<'a> {
    limiter: &'a RateLimiter,
    /// The value of `paid` before, and after.
    before: u64,
    after: u64,
    due: Instant,
}

impl Booking<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        // The turn of a caller that booked behind this one depends on this booking: then the tokens stay spent. Relaxed: as in `book`.
        let _ = self.limiter.paid.compare_exchange(self.after, self.before, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl RateLimiter {
    /// Lets `per_second` tokens through per second: any number, also less than one (`0.1` is one in ten seconds).
    ///
    /// The time a token takes is rounded up to a sixteenth of a nanosecond.
    ///
    /// # Panics
    /// If `per_second` is not a number, zero, negative or infinite.
    ///
    /// ```
    /// use fibra::time::RateLimiter;
    /// let limiter = RateLimiter::new(0.5); // one every two seconds
    /// assert!(limiter.try_acquire());
    /// assert!(!limiter.try_acquire());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(per_second: impl Into<f64>) -> Self {
        let per_second = per_second.into();
        assert!(
            per_second.is_finite() && per_second > 0.0,
            "fibra: a rate limiter for {per_second} tokens per second: the rate must be a finite number above zero"
        );
        // A float beyond the range becomes the end of it.
        Self::priced((1e9 * PARTS as f64 / per_second).ceil() as u64)
    }

    /// Lets `count` tokens through per `period`.
    ///
    /// # Panics
    /// If `count` or `period` is zero.
    ///
    /// ```
    /// use fibra::time::RateLimiter;
    /// use std::time::Duration;
    /// let limiter = RateLimiter::per(100, Duration::from_secs(60)).with_burst(10);
    /// assert_eq!(limiter.burst(), 10);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn per(count: u32, period: Duration) -> Self {
        assert!(count > 0, "fibra: a rate limiter that lets nothing through: its rate must be above zero");
        assert!(!period.is_zero(), "fibra: a rate limiter with a period of zero: that is no limit");
        let parts = period.as_nanos().saturating_mul(u128::from(PARTS)).div_ceil(u128::from(count));
        Self::priced(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    fn priced(price: u64) -> Self {
        Self { paid: AtomicU64::new(0), price: price.max(1), burst: 1, shift: 0 }.wound_up()
    }

    /// With the clock that is right for its price and its burst.
    fn wound_up(mut self) -> Self {
        let full = u128::from(self.price) * u128::from(self.burst);
        // At most 37: the product has 96 bits.
        self.shift = (u128::BITS - full.leading_zeros()).saturating_sub(FULL.trailing_zeros());
        self
    }

    /// The same, letting up to `burst` tokens through at once after it has been left alone for long enough. It is 1 at first.
    ///
    /// # Panics
    /// If `burst` is zero.
    #[must_use]
    #[track_caller]
    pub fn with_burst(mut self, burst: u32) -> Self {
        assert!(burst > 0, "fibra: a rate limiter with a burst of zero would let nothing through");
        self.burst = burst;
        self.wound_up()
    }

    /// How many tokens can be had at once, at most.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Books `count` tokens, if they are due by `latest`. The caller keeps the booking, or drops it.
    fn book(&self, count: u32, latest: Instant) -> Result<Booking<'_>, RateError> {
        self.book_at(policy::now(), count, latest.as_nanos())
    }

    /// A moment on the bucket's clock.
    fn on_clock(&self, nanos: u64) -> u64 {
        u64::try_from((u128::from(nanos) * u128::from(PARTS)) >> self.shift).unwrap_or(u64::MAX)
    }

    /// The first whole nanosecond that is not before this moment on the bucket's clock.
    fn moment_at(&self, moment: u64) -> Instant {
        let parts = u128::from(moment) << self.shift;
        u64::try_from(parts.div_ceil(u128::from(PARTS))).map_or(Instant::FAR_FUTURE, Instant::from_nanos)
    }

    /// `book` at a given time; all in nanoseconds.
    fn book_at(&self, now: u64, count: u32, latest: u64) -> Result<Booking<'_>, RateError> {
        if count > self.burst {
            return Err(RateError::TooMany { wanted: count, burst: self.burst });
        }
        if count == 0 {
            // At once, even if others wait: it costs nothing, and changes nothing.
            return Ok(Booking { limiter: self, before: u64::MAX, after: u64::MAX, due: Instant::from_nanos(now) });
        }
        // A caller without a deadline is never refused, even on a clock that goes beyond the end of time.
        let latest = if latest == u64::MAX { u64::MAX } else { self.on_clock(latest) };
        let now = self.on_clock(now);
        // Up, on a coarse clock too. Neither is above `FULL` and a bit for every token: no overflow.
        let price = (u128::from(self.price)).div_ceil(1 << self.shift) as u64;
        let (cost, credit) = (price * u64::from(count), price * u64::from(self.burst));
        // Relaxed, all of them: it is one variable, and tells nothing about any other.
        let mut paid = self.paid.load(Ordering::Relaxed);
        loop {
            let before = paid.max(now);
            let after = before.saturating_add(cost);
            let due = after.saturating_sub(credit);
            if due > latest.max(now) {
                return Err(RateError::TimedOut);
            }
            // Relaxed: as above.
            match self.paid.compare_exchange_weak(paid, after, Ordering::Relaxed, Ordering::Relaxed) {
                // The end of time never comes.
                Ok(_) if after == u64::MAX && due > now => {
                    return Ok(Booking { limiter: self, before, after, due: Instant::FAR_FUTURE });
                }
                // Rounded up: a nanosecond that is not over does not count.
                Ok(_) => return Ok(Booking { limiter: self, before, after, due: self.moment_at(due) }),
                Err(current) => paid = current,
            }
        }
    }

    #[track_caller]
    fn wait(&self, count: u32, latest: Instant) -> Result<(), RateError> {
        park::count_call();
        let booking = self.book(count, latest)?;
        if booking.due > Instant::now() {
            sleep_until(booking.due);
        }
        booking.keep();
        Ok(())
    }

    /// Takes a token if there is one now.
    ///
    /// ```
    /// use fibra::time::RateLimiter;
    /// let limiter = RateLimiter::new(0.001).with_burst(2);
    /// assert!(limiter.try_acquire() && limiter.try_acquire());
    /// assert!(!limiter.try_acquire(), "the next one comes in a quarter of an hour");
    /// ```
    #[must_use = "says whether a token was taken"]
    pub fn try_acquire(&self) -> bool {
        self.try_acquire_many(1).is_ok()
    }

    /// Takes `count` tokens if there are so many now; otherwise none ([`RateError::TimedOut`]).
    ///
    /// # Errors
    /// See [`RateError`].
    pub fn try_acquire_many(&self, count: u32) -> Result<(), RateError> {
        park::count_call();
        self.book(count, Instant::from_nanos(0)).map(Booking::keep)
    }

    /// Takes a token, waiting for its turn.
    ///
    /// If the wait is cancelled, the token is given back if no other caller has booked meanwhile; otherwise it is lost, since turns are
    /// fixed when they are booked.
    #[track_caller]
    pub fn acquire(&self) {
        // Cannot fail: the burst is at least one, and there is no hurry.
        let _ = self.wait(1, Instant::FAR_FUTURE);
    }

    /// Takes `count` tokens at once, waiting for their turn. Zero are had at once.
    ///
    /// # Errors
    /// [`RateError::TooMany`] if `count` is above the [burst](Self::with_burst).
    ///
    /// ```
    /// use fibra::time::{RateError, RateLimiter};
    /// let limiter = RateLimiter::new(1_000_000).with_burst(64);
    /// limiter.acquire_many(64).unwrap();
    /// assert_eq!(limiter.acquire_many(65), Err(RateError::TooMany { wanted: 65, burst: 64 }));
    /// ```
    #[track_caller]
    pub fn acquire_many(&self, count: u32) -> Result<(), RateError> {
        self.wait(count, Instant::FAR_FUTURE)
    }

    /// Takes a token if its turn comes within `timeout`. Whether it does is known at once: if not, it fails without waiting.
    ///
    /// # Errors
    /// [`RateError::TimedOut`]
    #[track_caller]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<(), RateError> {
        self.acquire_many_deadline(1, Instant::after(timeout))
    }

    /// Takes a token if its turn comes by `deadline`; see [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    /// [`RateError::TimedOut`]
    #[track_caller]
    pub fn acquire_deadline(&self, deadline: impl Into<Instant>) -> Result<(), RateError> {
        self.acquire_many_deadline(1, deadline)
    }

    /// Takes `count` tokens if their turn comes within `timeout`; see [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    /// See [`RateError`].
    #[track_caller]
    pub fn acquire_many_timeout(&self, count: u32, timeout: Duration) -> Result<(), RateError> {
        self.acquire_many_deadline(count, Instant::after(timeout))
    }

    /// Takes `count` tokens if their turn comes by `deadline`; see [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    /// See [`RateError`].
    #[track_caller]
    pub fn acquire_many_deadline(&self, count: u32, deadline: impl Into<Instant>) -> Result<(), RateError> {
        self.wait(count, deadline.into())
    }

    /// Takes a token, waiting for its turn as a future does. It is booked by the first poll; dropping the future is like cancelling
    /// [`acquire`](Self::acquire).
    ///
    /// A future has no timer of its own: while it waits, a daemon fiber (or a thread, where there is no runtime) keeps its time.
    ///
    /// ```
    /// let limiter = fibra::time::RateLimiter::new(1000);
    /// fibra::block_on(async {
    ///     limiter.acquire_async().await;
    ///     limiter.acquire_async().await; // a millisecond later
    /// });
    /// ```
    pub async fn acquire_async(&self) {
        let _ = self.acquire_many_async(1).await;
    }

    /// Takes `count` tokens; see [`acquire_async`](Self::acquire_async).
    ///
    /// # Errors
    /// [`RateError::TooMany`] if `count` is above the [burst](Self::with_burst).
    pub async fn acquire_many_async(&self, count: u32) -> Result<(), RateError> {
        let booking = self.book(count, Instant::FAR_FUTURE)?;
        if booking.due > Instant::now() {
            let turn = channel::at(booking.due);
            let _ = turn.recv_async().await;
        }
        booking.keep();
        Ok(())
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = Duration::from_nanos(self.price.div_ceil(PARTS));
        f.debug_struct("RateLimiter").field("interval", &interval).field("burst", &self.burst).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn prices_are_rounded_up() {
        assert_eq!(RateLimiter::new(1000).price, 1_000_000 * PARTS);
        assert_eq!(RateLimiter::new(3).price, 5_333_333_334);
        assert_eq!(RateLimiter::per(3, Duration::from_secs(1)).price, 5_333_333_334);
        assert_eq!(RateLimiter::new(1e300).price, 1);
        assert_eq!(RateLimiter::new(f64::MIN_POSITIVE).price, u64::MAX);
        assert_eq!(RateLimiter::per(1, Duration::MAX).price, u64::MAX);
        assert_eq!(RateLimiter::per(u32::MAX, Duration::from_nanos(1)).price, 1);
    }

    // A wait that ended early: the tokens of the last booking come back, those of an earlier one do not.
    #[test]
    fn only_the_last_booking_comes_back() {
        let limiter = RateLimiter::new(0.001);
        limiter.acquire();
        let (first, second) =
            (limiter.book(1, Instant::FAR_FUTURE).unwrap(), limiter.book(1, Instant::FAR_FUTURE).unwrap());
        assert!(first.due < second.due);
        let due = second.due;
        drop(second);
        let third = limiter.book(1, Instant::FAR_FUTURE).unwrap();
        assert_eq!(third.due, due);
        drop(first);
        assert!(limiter.book(1, Instant::FAR_FUTURE).unwrap().due > due);
    }

    // The whole promise, with made-up times: in no window is more let through than the burst and what the window pays for.
    #[test]
    fn no_window_holds_too_much() {
        let limiter = RateLimiter::per(7, Duration::from_micros(50)).with_burst(5);
        let (mut turns, mut now) = (Vec::new(), 1_u64);
        for round in 0..3000_u32 {
            // Now and then no caller comes for long enough to fill the bucket.
            now += if round % 101 == 0 { 100_000 } else { u64::from(round * 7919 % 16_000) };
            let (count, cancelled) = (1 + round % 3, round % 17 == 0);
            let booking = limiter.book_at(now, count, u64::MAX).unwrap();
            if !cancelled {
                (0..count).for_each(|_| turns.push(booking.due.as_nanos().max(now)));
                booking.keep();
            }
        }
        for begin in 0..turns.len() {
            for end in begin..turns.len().min(begin + 40) {
                let paid = (turns[end] - turns[begin]) as f64 * 7.0 / 50_000.0;
                assert!(((end - begin + 1) as f64) <= 5.0 + paid + 1e-3, "{begin}..={end}: {:?}", &turns[begin..=end]);
            }
        }
        // And it is not too strict either: with people always waiting, all but a few of the tokens that time pays for are given.
        let paid = (turns[turns.len() - 1] - turns[0]) as f64 * 7.0 / 50_000.0;
        assert!(turns.len() as f64 > paid * 0.7, "{} of {paid}", turns.len());
    }
}
