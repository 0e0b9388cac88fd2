//! A child may borrow what outlives the scope; what the body owns does not.
fn main() {
    fibra::run(|| {
        fibra::scope(|s| {
            let local = String::from("gone when the body is over");
            s.spawn(|| println!("{local}"));
        });
    });
}
