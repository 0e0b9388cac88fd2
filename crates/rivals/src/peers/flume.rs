//! flume: channels for async code and threads, here between tasks of tokio.

use flume::{Receiver, Sender};

use super::AsyncChannels;

pub(crate) struct Flume;

impl AsyncChannels for Flume {
    type Sender<T: Send + 'static> = Sender<T>;
    type Receiver<T: Send + 'static> = Receiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        flume::bounded(capacity)
    }

    async fn send<T: Send + 'static>(sender: &Sender<T>, value: T) {
        assert!(sender.send_async(value).await.is_ok(), "a receiver reads");
    }

    async fn receive<T: Send + 'static>(receiver: &mut Receiver<T>) -> Option<T> {
        receiver.recv_async().await.ok()
    }

    fn share<T: Send + 'static>(receiver: &Receiver<T>) -> Receiver<T> {
        receiver.clone()
    }
}
