//! fibra itself, through its public interface only.

use std::time::Duration;

use fibra::channel;

use super::{Blocking, Channels, Setup};

pub(crate) struct Fibra;

impl Blocking for Fibra {
    type Handle<T: Send + 'static> = fibra::JoinHandle<T>;

    fn run<T: Send + 'static>(setup: Setup, body: impl FnOnce() -> T + Send + 'static) -> T {
        let runtime = fibra::Runtime::builder().workers(setup.workers).build().expect("the runtime starts");
        runtime.run(body)
    }

    fn compute(work: impl FnOnce() + Send) {
        fibra::compute(work);
    }

    #[inline(always)]
    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
        fibra::spawn(body)
    }

    fn spawn_spread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
        fibra::Builder::new().spread().spawn(body).expect("a fiber can be spawned")
    }

    fn spawn_moving<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
        // SAFETY: tasks of the benchmarks keep nothing that belongs to a thread of the system over a wait.
        let moving = unsafe { fibra::Builder::new().own_locals().moving() };
        moving.spawn(body).expect("a fiber with thread-locals of its own can be spawned")
    }

    #[inline(always)]
    fn join<T: Send + 'static>(handle: fibra::JoinHandle<T>) -> T {
        handle.join().expect("a task of the benchmark does not panic")
    }

    #[inline(always)]
    fn yield_now() {
        fibra::yield_now();
    }

    #[inline(always)]
    fn sleep(length: Duration) {
        fibra::sleep(length);
    }
}

impl Channels for Fibra {
    type Tasks = Fibra;
    type Sender<T: Send + 'static> = channel::Sender<T>;
    type Receiver<T: Send + 'static> = channel::Receiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (channel::Sender<T>, channel::Receiver<T>) {
        channel::bounded(capacity)
    }

    #[inline(always)]
    fn send<T: Send + 'static>(sender: &channel::Sender<T>, value: T) {
        assert!(sender.send(value).is_ok(), "a receiver reads");
    }

    #[inline(always)]
    fn receive<T: Send + 'static>(receiver: &channel::Receiver<T>) -> Option<T> {
        receiver.recv().ok()
    }
}
