//! For tests of what unwinds: a fiber that is parked in a destructor beside the one that is tested, and a destructor that waits.
#![allow(dead_code)] // Every test file uses another part.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fibra::JoinHandle;
use fibra::channel::{Receiver, Sender, rendezvous, unbounded};

pub(crate) const LONG: Duration = Duration::from_secs(3600);
pub(crate) const SHORT: Duration = Duration::from_millis(10);

/// Waits in its destructor, until the sender of `gate` is gone.
pub(crate) struct WaitsInDrop {
    entered: Sender<()>,
    gate: Receiver<()>,
}

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        self.entered.send(()).unwrap();
        assert!(self.gate.recv().is_err(), "the gate is opened by dropping its sender");
    }
}

/// How the neighbour came into its destructor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Neighbour {
    Panicked,
    Cancelled,
}

/// A fiber of this worker that is parked in a destructor.
pub(crate) struct Parked {
    neighbour: Option<JoinHandle<()>>,
    gate: Option<Sender<()>>,
    how: Neighbour,
}

impl Parked {
    pub(crate) fn new(how: Neighbour) -> Self {
        let (entered, has_entered) = unbounded();
        let (gate, closed) = rendezvous();
        let neighbour = fibra::spawn_local(move || {
            let _waits = WaitsInDrop { entered, gate: closed };
            match how {
                Neighbour::Panicked => resume_unwind(Box::new("the neighbour's")),
                Neighbour::Cancelled => fibra::sleep(LONG),
            }
        });
        fibra::yield_now();
        if matches!(how, Neighbour::Cancelled) {
            neighbour.cancel();
        }
        has_entered.recv().unwrap();
        Self { neighbour: Some(neighbour), gate: Some(gate), how }
    }

    pub(crate) fn go_on(&mut self) {
        drop(self.gate.take());
        let error = self.neighbour.take().unwrap().join().unwrap_err();
        assert_eq!(error.is_cancelled(), matches!(self.how, Neighbour::Cancelled));
    }
}

/// Notes that its destructor, which waits, came to its end.
pub(crate) struct WaitsAndCounts<'a>(pub(crate) &'a AtomicUsize);

impl Drop for WaitsAndCounts<'_> {
    fn drop(&mut self) {
        fibra::yield_now();
        fibra::sleep(Duration::from_millis(1));
        self.0.fetch_add(1, SeqCst);
    }
}
