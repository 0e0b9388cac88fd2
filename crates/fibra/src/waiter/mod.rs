//! Waiters: the part of a fiber, a thread or an async wait that wakers, cancellers and reports use. The lowest floor, beside `prim`.
//!
//! In reading order:
//!
//! ```text
//! word.rs           the state machine: one AtomicU64 per waiter
//! flags.rs          what a waiter is told and notes about itself: named bits
//! cancel_reason.rs  why something is cancelled: flags and the records of scopes keep it
//! node.rs           the waiters of an object: nodes and lists
//! record.rs         the records of threads and async waits, and unparking
//! answer.rs         the record of a question whose answer is written to the waiter's stack
//! revoke.rs         cancel against park, both sides
//! ```
//!
//! Above: `fiber`, whose frames begin with a waiter; `sched`, which commits parks and resumes by the word; `wait`, the waist. Below:
//! nothing but `prim`.

pub(crate) mod answer;
pub(crate) mod cancel_reason;
pub(crate) mod flags;
pub(crate) mod node;
pub(crate) mod record;
pub(crate) mod revoke;
pub(crate) mod word;
