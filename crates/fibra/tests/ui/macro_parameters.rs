//! No caller would pass the arguments.
#[fibra::main]
fn main(arguments: Vec<String>) {
    drop(arguments);
}

#[fibra::test]
fn t(n: u32) {}
