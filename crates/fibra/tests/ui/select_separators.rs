//! Where a body ends.
use fibra::channel::bounded;

fn main() {
    let (tx, rx) = bounded::<u8>(1);
    fibra::select! {
        recv(rx) -> m => drop(m)
        send(tx, 1) => {}
    }
    fibra::select! {
        recv(rx) -> m => drop(m)
        default => {}
    }
}
