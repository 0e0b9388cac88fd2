//! A spawned fiber may outlive the function that spawned it: it cannot borrow from its stack (scopes can).
fn main() {
    fibra::run(|| {
        let local = String::from("on this stack");
        let _ = fibra::spawn(|| local.len()).join();
    });
}
