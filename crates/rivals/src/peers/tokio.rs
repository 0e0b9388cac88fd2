//! tokio's multi-thread runtime. Its tasks await, so each workload has a body of its own for tokio; this file runs such a body.
//! Its channel has one receiver and no rendezvous: capacity 0 is 1.

use tokio::sync::mpsc;

use super::{AsyncChannels, Setup};

/// Starts the runtime and runs `body` as one of its tasks: on a worker, as a server's code would be.
pub(crate) fn run<F>(setup: Setup, body: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(setup.workers)
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async { tokio::spawn(body).await.expect("the benchmark does not panic") })
}

pub(crate) struct Mpsc;

impl AsyncChannels for Mpsc {
    type Sender<T: Send + 'static> = mpsc::Sender<T>;
    type Receiver<T: Send + 'static> = mpsc::Receiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (mpsc::Sender<T>, mpsc::Receiver<T>) {
        mpsc::channel(capacity.max(1))
    }

    async fn send<T: Send + 'static>(sender: &mpsc::Sender<T>, value: T) {
        assert!(sender.send(value).await.is_ok(), "a receiver reads");
    }

    async fn receive<T: Send + 'static>(receiver: &mut mpsc::Receiver<T>) -> Option<T> {
        receiver.recv().await
    }

    fn share<T: Send + 'static>(_receiver: &mpsc::Receiver<T>) -> mpsc::Receiver<T> {
        panic!("tokio's channel has one receiver: it takes no part where several read")
    }
}
