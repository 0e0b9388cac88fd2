//! Cancellation: who is to stop, and how.
//!
//! ```text
//! reason.rs   why something is cancelled (lowest floor: flags and scopes keep it)
//! ```

pub(crate) mod reason;
