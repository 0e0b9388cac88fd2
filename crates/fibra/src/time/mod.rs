//! Points in time.
//!
//! [`Instant`] is a moment on fibra's clock, which is monotonic and the same for every timer, deadline and time-out. Wherever
//! a deadline is asked for, a [`std::time::Instant`] will do as well.

mod instant;

pub use instant::Instant;
