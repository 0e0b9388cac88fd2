//! Starts a fiber with thread-locals of its own: [`Builder::own_locals`](crate::Builder::own_locals).
//!
//! Above: `builder.rs`. Below: `fiber::donor` (a thread that lends its thread-locals), `wait::own_locals` (the switch), futures to wait for
//! the donor.

use std::io;

use super::fiber::{shield, yield_now};
use super::futures::block_on;
use crate::fiber::donor::{Donor, Stage};
use crate::wait::own_locals;

/// The thread-locals of a fiber that has not started.
#[derive(Debug)]
pub(super) struct Lent(Donor);

impl Lent {
    /// Takes a loan. Fails where it cannot be had: see [`Builder::own_locals`](crate::Builder::own_locals).
    pub(super) fn take(name: Option<&str>) -> io::Result<Self> {
        Donor::start(name.unwrap_or("fibra-locals")).map(Self)
    }

    /// Runs `f`, the whole of the current fiber, with them; they have been dropped when this returns.
    pub(super) fn run<R>(self, f: impl FnOnce() -> R) -> R {
        let Self(donor) = self;
        // Cancelled meanwhile: the fiber has not begun, and unwinds here.
        block_on(donor.reached(Stage::Here));
        let mut f = Some(f);
        let result = loop {
            let ran = own_locals::within(&donor, || f.take().map(|f| f()));
            match ran {
                Some(result) => break result,
                // The donor is on its way into the system call in which it stands still.
                None => yield_now(),
            }
        };
        let ended = donor.reached(Stage::Ended);
        drop(donor);
        shield(|| block_on(ended));
        match result {
            Ok(value) => value.expect("it has run"),
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}
