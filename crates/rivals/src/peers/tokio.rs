//! tokio's multi-thread runtime. Its tasks await, so each workload has a body of its own for it; this is how such a body is run.

use super::Setup;

/// Starts the runtime and runs `body` as one of its tasks: on a worker, as a server's code would be.
pub(crate) fn run<F>(setup: Setup, body: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(setup.workers)
        .enable_time()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async { tokio::spawn(body).await.expect("the benchmark does not panic") })
}
