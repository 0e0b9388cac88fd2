//! Threads of the operating system: the cost of a program without a runtime; their channels are crossbeam's. The number of workers
//! only decides the pinning.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::{Blocking, Channels, Setup};

pub(crate) struct Threads;

/// Small, so that ten thousand fit into any address space limit.
const STACK: usize = 64 * 1024;

impl Blocking for Threads {
    type Handle<T: Send + 'static> = thread::JoinHandle<T>;

    fn run<T: Send + 'static>(_setup: Setup, body: impl FnOnce() -> T + Send + 'static) -> T {
        Self::join(Self::spawn(body))
    }

    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
        thread::Builder::new().stack_size(STACK).spawn(body).expect("the system gives another thread")
    }

    fn join<T: Send + 'static>(handle: thread::JoinHandle<T>) -> T {
        handle.join().expect("a task of the benchmark does not panic")
    }

    fn yield_now() {
        thread::yield_now();
    }

    fn sleep(length: Duration) {
        thread::sleep(length);
    }
}

impl Channels for Threads {
    type Tasks = Threads;
    type Sender<T: Send + 'static> = Sender<T>;
    type Receiver<T: Send + 'static> = Receiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        crossbeam_channel::bounded(capacity)
    }

    #[inline(always)]
    fn send<T: Send + 'static>(sender: &Sender<T>, value: T) {
        assert!(sender.send(value).is_ok(), "a receiver reads");
    }

    #[inline(always)]
    fn receive<T: Send + 'static>(receiver: &Receiver<T>) -> Option<T> {
        receiver.recv().ok()
    }
}
