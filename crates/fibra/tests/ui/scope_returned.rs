//! A scope is over when its body is: it cannot be had outside.
fn main() {
    fibra::run(|| {
        let scope = fibra::scope(|s| s);
        scope.spawn(|| ());
    });
}
