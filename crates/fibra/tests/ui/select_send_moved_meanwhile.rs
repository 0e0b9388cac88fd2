//! An arm's expression moves, or changes, what another arm would send.
use fibra::channel::bounded;

fn main() {
    let (tx, _rx) = bounded::<Vec<u8>>(1);
    let value = vec![1];
    fibra::select! {
        send(tx, value) -> result => drop(result),
        send(tx, { value }) -> result => drop(result),
    }

    let value = vec![1];
    fibra::select! {
        send(tx, { value }) -> result => drop(result),
        send(tx, value) -> result => drop(result),
    }

    let mut value = vec![1];
    fibra::select! {
        send(tx, value) -> result => drop(result),
        send(tx, { value.push(2); vec![] }) -> result => drop(result),
    }

    let value = vec![1];
    fibra::select! {
        send(tx, value) -> result => drop(result),
        recv(_rx) -> result, if { drop(value); true } => drop(result),
    }
}
