//! An arm is an operation and a body.
use fibra::channel::bounded;

fn main() {
    let (_tx, rx) = bounded::<u8>(1);
    fibra::select! {
        recv(rx)
    }
    fibra::select! {
        recv(rx) -> message
    }
    fibra::select! {
        recv(rx) -> message { drop(message) }
    }
    fibra::select! {
        recv(rx) -> => {}
    }
    fibra::select! {
        recv(rx) -> message =>
    }
    fibra::select! {
        recv(rx) -> message => , default => {}
    }
    fibra::select! {
        recv(rx) -> message, default => {}
    }
    fibra::select! {
        default
    }
}
