//! may: stackful coroutines that move between workers, each with a stack of two mappings.

use std::time::Duration;

use may::coroutine;

use super::{Blocking, Setup};

pub(crate) struct May;

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
