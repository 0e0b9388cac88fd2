//! The runtimes that are compared, each in its own file. Above: `workloads/`, which are written once against `Blocking` and once
//! for peers that await.
//!
//! Invariant: `run` gives the body a task of the peer to run on (not the main thread), on a runtime with exactly the workers asked for.

pub(crate) mod fibra;
pub(crate) mod may;
pub(crate) mod threads;
pub(crate) mod tokio;

use std::time::Duration;

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Fibra,
    Tokio,
    May,
    Threads,
}

impl Peer {
    /// In the order of the table's columns.
    pub(crate) const ALL: [Peer; 4] = [Peer::Fibra, Peer::Tokio, Peer::May, Peer::Threads];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Fibra => "fibra",
            Peer::Tokio => "tokio",
            Peer::May => "may",
            Peer::Threads => "threads",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Peer> {
        Peer::ALL.into_iter().find(|peer| peer.name() == name)
    }
}

/// How a peer is to be started.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) workers: usize,
    /// Tasks that live at once, for peers that must be told how many stacks to keep.
    pub(crate) kept_stacks: usize,
}

/// A peer whose tasks block: stackful fibers and threads. Implementations are inlined wherever a call more would be measured.
pub(crate) trait Blocking: 'static {
    type Handle<T: Send + 'static>: Send + 'static;

    /// Starts the runtime and runs `body` on one of its tasks.
    fn run<T: Send + 'static>(setup: Setup, body: impl FnOnce() -> T + Send + 'static) -> T;
    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T>;
    /// Spawns a long-lived task where the peer's documentation says such tasks should go.
    fn spawn_spread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T> {
        Self::spawn(body)
    }
    fn join<T: Send + 'static>(handle: Self::Handle<T>) -> T;
    fn yield_now();
    fn sleep(length: Duration);
}
