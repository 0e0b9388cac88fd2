//! Values are checked where the macro can.
#[fibra::test(timeout = "30")]
fn a() {}

#[fibra::test(timeout = 0)]
fn b() {}

#[fibra::test(timeout = -1)]
fn c() {}

#[fibra::test(leak_timeout = 30s)]
fn d() {}

#[fibra::main(current_thread = true)]
fn e() {}

#[fibra::main(workers = 2, current_thread)]
fn f() {}

#[fibra::main(cancellation = "never")]
fn g() {}

#[fibra::main(cancellation = Cooperative)]
fn h() {}

#[fibra::main(timeout = 3)]
fn main() {}
