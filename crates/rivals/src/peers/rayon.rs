//! rayon: a pool of threads for dividing work. Its tasks are the two halves of a `join`, and must not wait for one another.

use super::Setup;

/// Starts a pool and runs `body` on one of its threads.
pub(crate) fn run<T: Send>(setup: Setup, body: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(setup.workers).build().expect("the pool starts");
    pool.install(body)
}
