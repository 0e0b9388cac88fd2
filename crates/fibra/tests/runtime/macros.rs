//! `#[fibra::main]` and `#[fibra::test]` as a user meets them: options, return types, attributes, panics.

use std::time::Duration;

#[fibra::main]
fn plain() {
    assert!(fibra::current().is_some(), "the body runs in a fiber");
}

#[fibra::main(workers = 2, max_workers = 2 + 2, stack_size = 128 * 1024, name = "macros",)]
pub(crate) fn with_options() -> Result<u32, std::num::ParseIntError> {
    let n: u32 = "41".parse()?;
    Ok(n + 1)
}

#[fibra::main]
fn gives_a_trait() -> impl Iterator<Item = u32> {
    [1, 2, 3].into_iter()
}

#[derive(Debug, PartialEq)]
struct Bytes<const N: usize>([u8; N]);

/// The braces in the return type are not the body.
#[fibra::main(workers = 1)]
fn early_return() -> Bytes<{ 1 + 1 }> {
    if std::env::args().count() > 0 {
        return Bytes([1, 2]);
    }
    Bytes([0; 2])
}

#[test]
fn main_returns_what_the_body_returns() {
    plain();
    assert_eq!(with_options(), Ok(42));
    assert_eq!(gives_a_trait().sum::<u32>(), 6);
    assert_eq!(early_return(), Bytes([1, 2]));
}

#[fibra::test]
fn a_test_runs_in_a_fiber() {
    assert!(fibra::current().is_some());
}

#[fibra::test(workers = 1, leak_timeout = 1)]
fn a_test_may_return_a_result() -> Result<(), Box<dyn std::error::Error>> {
    let n: i32 = "1".parse()?;
    assert_eq!(n, 1);
    Ok(())
}

/// Documentation and the other attributes of a test stay in force.
#[fibra::test(leak_timeout = Duration::from_millis(2500), name = "expected")]
#[should_panic(expected = "the panic of the body")]
fn a_test_may_expect_a_panic() {
    panic!("the panic of the body");
}

#[fibra::test]
#[ignore = "shows that #[ignore] is kept: it would fail"]
fn an_ignored_test_does_not_run() {
    panic!("ignored tests do not run");
}
