//! Comparative benchmarks.
fn main() {}
