//! The runtimes that are compared, each in its own file (`go` is another program: its file finds a Go and builds it). Above:
//! `workloads/`, which are written once against `Blocking` and once for peers that await; those that need channels once against `Channels`
//! and once against `AsyncChannels`.
//!
//! Invariants: `run` gives the body a task of the peer to run on (not the main thread), on a runtime with exactly the workers asked
//! for; a channel of capacity 0 is a rendezvous where the peer has one, and otherwise the nearest it has (its file says which).

pub(crate) mod fibra;
pub(crate) mod flume;
pub(crate) mod go;
pub(crate) mod kanal;
pub(crate) mod may;
pub(crate) mod rayon;
pub(crate) mod threads;
pub(crate) mod tokio;

/// The sides of a workload over channels, one function for peers that block and one for peers that await.
macro_rules! channel_sides {
    ($blocking:ident, $awaiting:ident) => {
        channel_sides!($blocking, $awaiting, $crate::peers::may::May)
    };
    ($blocking:ident, $awaiting:ident, $may:ty) => {
        &[
            ($crate::peers::Peer::Fibra, $blocking::<$crate::peers::fibra::Fibra>),
            ($crate::peers::Peer::Tokio, $awaiting::<$crate::peers::tokio::Mpsc>),
            ($crate::peers::Peer::Kanal, $awaiting::<$crate::peers::kanal::Kanal>),
            ($crate::peers::Peer::Flume, $awaiting::<$crate::peers::flume::Flume>),
            ($crate::peers::Peer::May, $blocking::<$may>),
            ($crate::peers::Peer::Crossbeam, $blocking::<$crate::peers::threads::Threads>),
            ($crate::peers::Peer::Go, $crate::peers::go::side),
        ]
    };
}
pub(crate) use channel_sides;

/// The sides of a workload of tasks alone.
macro_rules! task_sides {
    ($blocking:ident, $tokio:ident) => {
        &[
            ($crate::peers::Peer::Fibra, $blocking::<$crate::peers::fibra::Fibra>),
            ($crate::peers::Peer::Tokio, $tokio),
            ($crate::peers::Peer::May, $blocking::<$crate::peers::may::May>),
            ($crate::peers::Peer::Threads, $blocking::<$crate::peers::threads::Threads>),
            ($crate::peers::Peer::Go, $crate::peers::go::side),
        ]
    };
}
pub(crate) use task_sides;

use std::time::Duration;

/// The runtimes that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Fibra,
    Tokio,
    /// tokio's tasks with the channels of kanal.
    Kanal,
    /// tokio's tasks with the channels of flume.
    Flume,
    May,
    Threads,
    /// Threads with the channels of crossbeam.
    Crossbeam,
    Rayon,
    Actix,
    Ractor,
    Kameo,
    /// A loop around epoll, without tasks: the limit.
    Epoll,
    /// Goroutines and Go's channels: a program of its own (`crates/rivals/go`), where there is a Go.
    Go,
}

impl Peer {
    /// In the order of the table's columns.
    pub(crate) const ALL: [Peer; 13] = [
        Peer::Fibra,
        Peer::Tokio,
        Peer::Kanal,
        Peer::Flume,
        Peer::May,
        Peer::Threads,
        Peer::Crossbeam,
        Peer::Rayon,
        Peer::Actix,
        Peer::Ractor,
        Peer::Kameo,
        Peer::Epoll,
        Peer::Go,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Fibra => "fibra",
            Peer::Tokio => "tokio",
            Peer::Kanal => "kanal",
            Peer::Flume => "flume",
            Peer::May => "may",
            Peer::Threads => "threads",
            Peer::Crossbeam => "crossbeam",
            Peer::Rayon => "rayon",
            Peer::Actix => "actix",
            Peer::Ractor => "ractor",
            Peer::Kameo => "kameo",
            Peer::Epoll => "epoll",
            Peer::Go => "go",
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
    /// Spawns a task that goes on where there is room after every wait, if the peer has two kinds of them.
    fn spawn_moving<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T> {
        Self::spawn(body)
    }
    /// Spawns in the way that the parameter `spread` of a workload says: 0, plainly; 1, spread; 2, so that it moves.
    fn spawn_by<T: Send + 'static>(spread: u64, body: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T> {
        match spread {
            0 => Self::spawn(body),
            1 => Self::spawn_spread(body),
            _ => Self::spawn_moving(body),
        }
    }
    fn join<T: Send + 'static>(handle: Self::Handle<T>) -> T;
    fn yield_now();
    fn sleep(length: Duration);
    /// Computes for long, as the peer's documentation says that such work should be done.
    fn compute(work: impl FnOnce() + Send) {
        work();
    }
}

/// The channels of a peer whose tasks block. No workload sends into a channel without a receiver.
pub(crate) trait Channels: 'static {
    type Tasks: Blocking;
    type Sender<T: Send + 'static>: Clone + Send + 'static;
    type Receiver<T: Send + 'static>: Clone + Send + 'static;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>);
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, value: T);
    /// `None` when every sender is gone and the channel is empty.
    fn receive<T: Send + 'static>(receiver: &Self::Receiver<T>) -> Option<T>;
}

/// The same for channels between tasks of tokio.
pub(crate) trait AsyncChannels: 'static {
    type Sender<T: Send + 'static>: Clone + Send + Sync + 'static;
    type Receiver<T: Send + 'static>: Send + 'static;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>);
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, value: T) -> impl Future<Output = ()> + Send;
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> impl Future<Output = Option<T>> + Send;
    /// Another receiver of the same channel.
    fn share<T: Send + 'static>(receiver: &Self::Receiver<T>) -> Self::Receiver<T>;
}
