//! Helpers for the tests of this folder, and for other tests of process-wide state: running a test in a process of its own,
//! and running code on a stack without a scheduler.
//!
//! Pools, registry and signal handlers belong to the whole process, and an overflow ends it. So most tests start the
//! test binary again, for this one test only, with a variable that says so; the child runs the body and the parent
//! looks at how it ended.

use super::stack::Stack;
use std::process::{Command, Output};

const CHILD: &str = "FIBRA_TEST_CHILD";
/// The line that a child prints before it begins.
const STARTED: &str = "child of a fibra test";

/// Runs `body` in a process of its own, which has the given variables, and returns how that ended. `test` is the full
/// path of the calling test.
pub(super) fn run_in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Output {
    if std::env::var_os(CHILD).is_some_and(|child| child == test) {
        eprintln!("{STARTED}");
        body();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(CHILD, test).env_remove("FIBRA_GUARD");
    command.env_remove("RUST_BACKTRACE").envs(variables.iter().copied());
    let output = command.output().expect("the test binary starts");
    // A misspelt path selects no test, and a binary that runs no test succeeds.
    assert!(String::from_utf8_lossy(&output.stderr).contains(STARTED), "there is no test {test}");
    output
}

/// [`run_in_child`] for a body that must end normally.
pub(crate) fn passes_in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    let output = run_in_child(test, variables, body);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{stdout}");
    assert!(output.status.success(), "{test} with {variables:?}: {}\n{stdout}\n{stderr}", output.status);
}

/// Runs `body` on `stack`, from its top. A panic must not leave `body`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn call_on(stack: &Stack, body: extern "C" fn()) {
    // SAFETY: `top` is the aligned end of memory that the caller owns; the old stack pointer waits in a register that
    // the callee preserves.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {body}",
            "mov rsp, r12",
            top = in(reg) stack.top(),
            body = in(reg) body,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {body}",
            "mov sp, x20",
            top = in(reg) stack.top(),
            body = in(reg) body,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

/// The address of a value on the stack: close enough to the stack pointer.
#[inline(never)]
pub(super) fn about_stack_pointer() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// Whether the byte at `address` can be written, without a fault: the kernel is asked to write there. If it can, the old
/// value of the byte is lost. (By the system call: the C library's function may write in user space.)
pub(super) fn is_writable(address: *mut u8) -> bool {
    // SAFETY: the kernel checks the address; the tests that ask own the byte, if there is one.
    unsafe { libc::syscall(libc::SYS_getrandom, address, 1_usize, 0) == 1 }
}

/// How many mappings this process has.
pub(super) fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count()
}

/// A figure of /proc/self/status in bytes, such as VmRSS or VmPTE.
pub(crate) fn status_bytes(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(key)).expect("a line of that name");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}
