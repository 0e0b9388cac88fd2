//! Rates and pauses at the ends of their ranges.
#![allow(clippy::disallowed_types)] // std's threads and locks stand outside.

use std::mem;
use std::pin::pin;
use std::time::Duration;

use crate::channels::{Calls, poll};
use crate::support::watchdog;
use fibra::time::{RateLimiter, RetryPolicy};

/// "Zero are had at once", also if others wait.
#[test]
fn zero_tokens_are_had_at_once() {
    let _watchdog = watchdog(20);
    let limiter = RateLimiter::new(0.001);
    limiter.acquire();
    let mut waits = pin!(limiter.acquire_async());
    assert!(poll(waits.as_mut(), &Calls::new()).is_pending());
    assert_eq!(limiter.try_acquire_many(0), Ok(()));
    assert_eq!(limiter.acquire_many_timeout(0, Duration::ZERO), Ok(()));
}

/// A limit is a limit, however long a token takes and however large the burst is.
#[test]
fn rates_at_the_end_of_time() {
    let _watchdog = watchdog(20);
    for limiter in [
        RateLimiter::per(1, Duration::MAX),
        RateLimiter::new(f64::MIN_POSITIVE),
        RateLimiter::per(1, Duration::from_secs(1 << 32)),
    ] {
        assert!(limiter.try_acquire());
        assert!(!limiter.try_acquire(), "{limiter:?}");
        assert!(limiter.acquire_timeout(Duration::from_millis(1)).is_err());
        for _ in 0..3 {
            let mut waits = Box::pin(limiter.acquire_async());
            assert!(poll(waits.as_mut(), &Calls::new()).is_pending(), "{limiter:?}");
            mem::forget(waits); // It stays booked.
        }
    }
    let limiter = RateLimiter::per(1, Duration::from_secs(86_400)).with_burst(20_000);
    let had = (0..30_000).filter(|_| limiter.try_acquire()).count();
    assert_eq!(had, 20_000);
    let limiter = RateLimiter::per(1, Duration::from_secs(86_400)).with_burst(u32::MAX);
    assert!(limiter.try_acquire_many(u32::MAX).is_ok());
    assert!(!limiter.try_acquire());
}

/// The longest pause, with next to no chance in it.
#[test]
fn a_pause_of_all_time() {
    let _watchdog = watchdog(20);
    let mut operation =
        pin!(fibra::time::retry_async(RetryPolicy::fixed(Duration::MAX).jitter(1e-20), |_| async { Err::<(), _>(()) }));
    assert!(poll(operation.as_mut(), &Calls::new()).is_pending());
}
