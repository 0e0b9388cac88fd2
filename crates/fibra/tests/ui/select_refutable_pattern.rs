//! The arm has won: its pattern has to match.
use fibra::channel::bounded;

fn main() {
    let (_tx, rx) = bounded::<u8>(1);
    fibra::select! {
        recv(rx) -> Ok(m) => drop(m),
    }
}
