//! An option given twice is a mistake, whatever the values.
#[fibra::main(workers = 1, name = "a", workers = 1)]
fn main() {}
