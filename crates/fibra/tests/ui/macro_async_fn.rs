//! Fibers block; nothing here awaits.
#[fibra::main]
async fn main() {}

#[fibra::test]
pub(crate) async fn t() {}
