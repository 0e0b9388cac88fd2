//! What is not an arm.
use fibra::channel::bounded;

fn main() {
    let (tx, rx) = bounded::<u8>(1);
    fibra::select! {
        receive(rx) -> m => drop(m),
    }
    fibra::select! {
        message = rx.recv() => drop(message),
    }
    fibra::select! {
        Ok(1) => {}
    }
    fibra::select! {
        (rx) -> m => drop(m),
    }
    fibra::select_biased! {
        #[cfg(unix)]
        send(tx, 1) => {}
    }
    fibra::select! {
        recv(rx) -> m => drop(m),,
        default => {}
    }
}
