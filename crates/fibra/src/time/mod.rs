//! Points in time, and sleeping.
//!
//! [`Instant`] is a moment on fibra's clock, which is monotonic and the same for every timer, deadline and time-out. Wherever
//! a deadline is asked for, a [`std::time::Instant`] will do as well.

mod instant;
mod sleep;

pub use instant::Instant;
pub use sleep::{sleep, sleep_until};
