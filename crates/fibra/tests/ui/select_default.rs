//! What comes last is not chosen among the others: one of them, no result, no guard.
use fibra::channel::bounded;

fn main() {
    let (_tx, rx) = bounded::<u8>(1);
    fibra::select! {
        default => {}
        recv(rx) => {}
        default(std::time::Duration::ZERO) => {}
    }
    fibra::select! {
        recv(rx) => {}
        default, if rx.is_empty() => {}
    }
    fibra::select! {
        recv(rx) => {}
        default -> nothing => {}
    }
    fibra::select! {
        recv(rx) => {}
        after(std::time::Duration::ZERO) -> _ => {}
    }
}
