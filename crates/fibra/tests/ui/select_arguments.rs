//! Too few, too many.
use fibra::channel::bounded;

fn main() {
    let (tx, rx) = bounded::<u8>(1);
    fibra::select! {
        recv => {}
    }
    fibra::select! {
        recv() -> m => drop(m),
    }
    fibra::select! {
        recv(rx, std::time::Duration::ZERO) -> m => drop(m),
    }
    fibra::select! {
        send(tx) => {}
    }
    fibra::select! {
        send(tx, 1, 2) => {}
    }
    fibra::select! {
        send(, 1) => {}
    }
    fibra::select! {
        recv(rx) => {}
        after() => {}
    }
    fibra::select! {
        recv(rx) => {}
        default(std::time::Duration::ZERO, 2) => {}
    }
}
