//! Nor through the result of a child.
fn main() {
    fibra::run(|| {
        let handle = fibra::scope(|s| s.spawn(move || s));
        handle.join().unwrap().spawn(|| ());
    });
}
