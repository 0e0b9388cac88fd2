//! A unique reference that was sent is another's.
use fibra::channel::bounded;

fn main() {
    let mut number = 1;
    let (tx, rx) = bounded(1);
    let unique = &mut number;
    fibra::select! { send(tx, unique) -> result => drop(result) }
    *unique += 1;
    drop(rx.recv());
}
