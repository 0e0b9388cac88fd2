//! What must not compile, and what the compiler says about it. Each file of `ui/` has its expected output beside it; write it
//! anew with `TRYBUILD=overwrite cargo test -p fibra --test house compile_fail`.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Runs the compiler: once is enough.
#![cfg(not(any(fibra_context = "corosensei", fibra_context = "thread")))] // Likewise.

/// Misuse of `#[fibra::main]` and `#[fibra::test]`: each is one error, at the offending token.
#[test]
fn misused_macros_explain_themselves() {
    trybuild::TestCases::new().compile_fail("tests/ui/macro_*.rs");
}

/// Law 1: what is not `Send` stays, what borrows from a stack cannot leave it.
#[test]
fn what_is_not_send_cannot_be_spawned() {
    trybuild::TestCases::new().compile_fail("tests/ui/spawn_*.rs");
}

/// Misuse of `select!`: of its grammar, each one error in words; of values and types, the compiler's, where the user wrote them.
#[test]
fn misused_selects_explain_themselves() {
    trybuild::TestCases::new().compile_fail("tests/ui/select_*.rs");
}

/// A port is written by one side only.
#[test]
fn machines_do_not_write_into_ports() {
    trybuild::TestCases::new().compile_fail("tests/ui/machine_*.rs");
}

/// Guards stay with the fiber that locked, and with what they guard.
#[test]
fn guards_stay_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/lock_*.rs");
}

/// What must compile in the strictest of crates.
#[test]
fn selects_are_quiet() {
    trybuild::TestCases::new().pass("tests/ui/quiet_select.rs");
}

/// Children borrow what outlives their scope, and nothing of a scope leaves it.
#[test]
fn what_belongs_to_a_scope_stays_in_it() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/scope_*.rs");
    cases.pass("tests/ui/quiet_scope.rs");
}
