//! A variable is gone where its arm has won, and only there.
use fibra::channel::bounded;

fn main() {
    let (tx, rx) = bounded::<Vec<u8>>(1);
    let value = vec![1];
    fibra::select! {
        send(tx, value) -> result => {
            drop(result);
            println!("{value:?}");
        }
        recv(rx) -> _ => println!("{value:?}"),
    }

    let value = vec![1];
    fibra::select! {
        send(tx, value) -> result => drop(result),
        default => println!("{value:?}"),
    }
    println!("{value:?}");

    let value = vec![1];
    loop {
        fibra::select! {
            send(tx, value) -> result => drop(result),
            default => break,
        }
    }
}
