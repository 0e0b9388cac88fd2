//! Every option needs a value.
#[fibra::main(workers)]
fn main() {}

#[fibra::main(workers = )]
fn a() {}

#[fibra::main(workers(4))]
fn b() {}

#[fibra::main(, workers = 4)]
fn c() {}
