//! Points in time, sleeping, and what is made of both: limiting a rate, trying again.
//!
//! [`Instant`] is a moment on fibra's clock, which is monotonic and the same for every timer, deadline and time-out. Wherever
//! a deadline is asked for, a [`std::time::Instant`] will do as well.

#[cfg(not(any(loom, shuttle)))]
mod rate;
#[cfg(not(any(loom, shuttle)))]
mod retry;
#[cfg(not(any(loom, shuttle)))]
mod sleep;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use crate::prim::instant::Instant;
#[cfg(not(any(loom, shuttle)))]
pub use rate::{RateError, RateLimiter};
#[cfg(not(any(loom, shuttle)))]
pub use retry::{Always, RetryError, RetryIf, RetryPolicy, retry, retry_async, retry_with};
#[cfg(not(any(loom, shuttle)))]
pub use sleep::{sleep, sleep_until};
