//! Two children cannot write to the same place, nor the body while a child does.
fn main() {
    fibra::run(|| {
        let mut count = 0;
        fibra::scope(|s| {
            s.spawn(|| count += 1);
            s.spawn(|| count += 1);
            count += 1;
        });
    });
}
