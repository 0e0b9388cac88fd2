//! kanal: channels for async code, here between tasks of tokio. The fastest rival in most channel workloads.

use kanal::{AsyncReceiver, AsyncSender};

use super::AsyncChannels;

pub(crate) struct Kanal;

impl AsyncChannels for Kanal {
    type Sender<T: Send + 'static> = AsyncSender<T>;
    type Receiver<T: Send + 'static> = AsyncReceiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (AsyncSender<T>, AsyncReceiver<T>) {
        kanal::bounded_async(capacity)
    }

    async fn send<T: Send + 'static>(sender: &AsyncSender<T>, value: T) {
        assert!(sender.send(value).await.is_ok(), "a receiver reads");
    }

    async fn receive<T: Send + 'static>(receiver: &mut AsyncReceiver<T>) -> Option<T> {
        receiver.recv().await.ok()
    }

    fn share<T: Send + 'static>(receiver: &AsyncReceiver<T>) -> AsyncReceiver<T> {
        receiver.clone()
    }
}
