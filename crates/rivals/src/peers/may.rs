//! may: stackful coroutines that move between workers, each with a stack of two mappings. Its channels are unbounded; a semaphore
//! of its own bounds them here, and capacity 0 is 1. `Unbounded` are its channels as they are, for workloads in which nothing
//! piles up.

use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Duration;

use may::coroutine;
use may::sync::{Semphore, mpmc};

use super::{Blocking, Channels, Setup};

pub(crate) struct May;

impl May {
    /// A listener of may's for one of std's.
    pub(crate) fn listener(listener: std::net::TcpListener) -> may::net::TcpListener {
        // SAFETY: the descriptor is given up for it.
        unsafe { may::net::TcpListener::from_raw_fd(listener.into_raw_fd()) }
    }
}

impl Blocking for May {
    type Handle<T: Send + 'static> = coroutine::JoinHandle<T>;

    fn run<T: Send + 'static>(setup: Setup, body: impl FnOnce() -> T + Send + 'static) -> T {
        may::config().set_workers(setup.workers).set_pool_capacity(setup.kept_stacks);
        Self::join(Self::spawn(body))
    }

    #[inline(always)]
    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> coroutine::JoinHandle<T> {
        // SAFETY: may asks that a coroutine neither overflows its stack nor uses thread-locals across a switch; the bodies here
        // are small and use none.
        unsafe { coroutine::spawn(body) }
    }

    #[inline(always)]
    fn join<T: Send + 'static>(handle: coroutine::JoinHandle<T>) -> T {
        handle.join().expect("a task of the benchmark does not panic")
    }

    #[inline(always)]
    fn yield_now() {
        coroutine::yield_now();
    }

    #[inline(always)]
    fn sleep(length: Duration) {
        coroutine::sleep(length);
    }
}

/// A queue and the semaphore that counts its free places.
pub(crate) struct Bounded<Q> {
    queue: Q,
    places: Arc<Semphore>,
}

impl<Q: Clone> Clone for Bounded<Q> {
    fn clone(&self) -> Self {
        Bounded { queue: self.queue.clone(), places: Arc::clone(&self.places) }
    }
}

impl Channels for May {
    type Tasks = May;
    type Sender<T: Send + 'static> = Bounded<mpmc::Sender<T>>;
    type Receiver<T: Send + 'static> = Bounded<mpmc::Receiver<T>>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        let (sender, receiver) = mpmc::channel();
        let places = Arc::new(Semphore::new(capacity.max(1)));
        (Bounded { queue: sender, places: Arc::clone(&places) }, Bounded { queue: receiver, places })
    }

    #[inline(always)]
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, value: T) {
        sender.places.wait();
        Unbounded::send(&sender.queue, value);
    }

    #[inline(always)]
    fn receive<T: Send + 'static>(receiver: &Self::Receiver<T>) -> Option<T> {
        let value = Unbounded::receive(&receiver.queue)?;
        receiver.places.post();
        Some(value)
    }
}

pub(crate) struct Unbounded;

impl Channels for Unbounded {
    type Tasks = May;
    type Sender<T: Send + 'static> = mpmc::Sender<T>;
    type Receiver<T: Send + 'static> = mpmc::Receiver<T>;

    fn bounded<T: Send + 'static>(_capacity: usize) -> (mpmc::Sender<T>, mpmc::Receiver<T>) {
        mpmc::channel()
    }

    #[inline(always)]
    fn send<T: Send + 'static>(sender: &mpmc::Sender<T>, value: T) {
        assert!(sender.send(value).is_ok(), "a receiver reads");
    }

    #[inline(always)]
    fn receive<T: Send + 'static>(receiver: &mpmc::Receiver<T>) -> Option<T> {
        receiver.recv().ok()
    }
}
