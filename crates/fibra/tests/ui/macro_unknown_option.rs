//! Options are checked by name.
#[fibra::main(threads = 4)]
fn main() {}

#[fibra::test(worker = 1)]
fn t() {}

#[fibra::test(4)]
fn u() {}

#[fibra::main(leak_timeout = 3)]
fn v() {}
