//! A child may run on another worker: what it takes along must be `Send`.
use std::rc::Rc;

fn main() {
    fibra::run(|| {
        let shared = Rc::new(5);
        fibra::scope(|s| {
            s.spawn(|| println!("{shared}"));
        });
    });
}
