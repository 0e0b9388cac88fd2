//! The function is a plain `fn`.
#[fibra::test]
unsafe fn t() {}

#[fibra::test]
extern "C" fn u() {}

#[fibra::test]
const fn v() {}

#[fibra::test]
fn no_body();

fn main() {}
