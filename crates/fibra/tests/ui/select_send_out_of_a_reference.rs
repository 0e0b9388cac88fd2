//! What is behind a reference cannot be sent away.
use fibra::JoinHandle;
use fibra::channel::{Sender, bounded};

struct Owner {
    text: String,
    handle: JoinHandle<()>,
}

fn by_reference(owner: &Owner, tx: &Sender<String>) {
    fibra::select! { send(tx, owner.text) -> result => drop(result) }
    fibra::select! { join(owner.handle) -> result => drop(result) }
}

fn of_a_reference(handle: &JoinHandle<()>) {
    fibra::select! { join(handle) -> result => drop(result) }
}

fn main() {
    let (tx, _rx) = bounded(1);
    let owner = Owner { text: String::new(), handle: fibra::spawn(|| ()) };
    by_reference(&owner, &tx);
    of_a_reference(&owner.handle);
}
