//! The result of a stealable fiber crosses threads too.
use std::rc::Rc;

fn main() {
    fibra::run(|| {
        let _ = fibra::spawn(|| Rc::new(1)).join();
    });
}
