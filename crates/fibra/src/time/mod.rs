//! Points in time, and sleeping.
//!
//! [`Instant`] is a moment on fibra's clock, which is monotonic and the same for every timer, deadline and time-out. Wherever
//! a deadline is asked for, a [`std::time::Instant`] will do as well.

mod instant;
#[cfg(not(any(loom, shuttle)))]
mod sleep;

pub use instant::Instant;
#[cfg(not(any(loom, shuttle)))]
pub use sleep::{sleep, sleep_until};
