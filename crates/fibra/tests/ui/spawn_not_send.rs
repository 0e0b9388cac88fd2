//! An unstarted fiber may be stolen, so what it captures must be `Send`.
use std::rc::Rc;

fn main() {
    fibra::run(|| {
        let shared = Rc::new(1);
        let _ = fibra::spawn(move || *shared).join();
    });
}
