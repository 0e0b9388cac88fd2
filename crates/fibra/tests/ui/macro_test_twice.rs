//! The attribute makes the function a test by itself.
#[fibra::test]
#[test]
fn a() {}

fn main() {}
