//! Workers that come and go.
//!
//! In reading order:
//!
//! ```text
//! seats.rs    places for workers: the protocols of taking one and leaving it
//! elastic.rs  adding a worker, and how one leaves
//! threads.rs  the thread of a worker
//! ```
//!
//! Above: `monitor`, which decides when one is added, and `runtime`. Below: `idle`, `reach`, `prim`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod elastic;
pub(crate) mod seats;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod threads;
