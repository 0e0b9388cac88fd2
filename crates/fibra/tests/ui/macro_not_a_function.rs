//! Only functions can be entry points.
#[fibra::main]
struct Main;

#[fibra::test]
const T: u32 = 1;

fn main() {}
