//! fibra itself, through its public interface only.

use std::time::Duration;

use super::{Blocking, Setup};

pub(crate) struct Fibra;

impl Blocking for Fibra {
    type Handle<T: Send + 'static> = fibra::JoinHandle<T>;

    fn run<T: Send + 'static>(setup: Setup, body: impl FnOnce() -> T + Send + 'static) -> T {
        let runtime = fibra::Runtime::builder().workers(setup.workers).build().expect("the runtime starts");
        runtime.run(body)
    }

    #[inline(always)]
    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
        fibra::spawn(body)
    }

    fn spawn_spread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
        fibra::Builder::new().spread().spawn(body).expect("a fiber can be spawned")
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
