//! A debugger finds the fibers of a stopped process: `gdb/fibra.py`, tried on this program.
#![cfg(all(target_arch = "x86_64", not(any(fibra_asan, fibra_tsan))))] // gdb cannot follow the sanitizers' shadow memory.
#![cfg(not(any(fibra_context = "corosensei", fibra_context = "thread")))] // The script knows the own switch.

use std::path::Path;
use std::process::Command;

use crate::support::{is_child, myself, watchdog};

const TEST: &str = "gdb_lists_fibers_and_unwinds_a_parked_one";

#[inline(never)]
fn waits_for_an_errand(errands: &fibra::channel::Receiver<u8>) -> u8 {
    std::hint::black_box(errands.recv().unwrap_or_default())
}

#[test]
fn gdb_lists_fibers_and_unwinds_a_parked_one() {
    if is_child(TEST) {
        return stop_with_a_parked_fiber();
    }
    let _watchdog = watchdog(120);
    if Command::new("gdb").arg("--version").output().is_err() {
        return eprintln!("skipped: gdb is not installed");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gdb/fibra.py");
    let child = myself(TEST);
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "run", "-ex"]);
    gdb.arg(format!("source {}", script.display()));
    for command in
        ["fibra fibers", "fibra bt 2", "fibra bt 1", "fibra bt 99", "fibra bt x", "fibra select 2", "fibra thread"]
    {
        gdb.args(["-ex", command]);
    }
    gdb.arg("--args").arg(child.get_program()).args(child.get_args());
    gdb.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = gdb.output().expect("gdb can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("Could not trace the inferior process") || said.contains("ptrace: Operation not permitted") {
        return eprintln!("skipped: this machine does not let gdb trace a process");
    }
    for part in [
        "fiber #2 \"waiting\" PARKED \"idle\": receiving from a channel",
        "from_debugger.rs:",
        "waits_for_an_errand", // On the stack of fiber 2.
        "fiber 1 is RUNNING: only the stack of a parked fiber lies still",
        "there is no fiber #99",
        "which fiber?",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let (_, stack) =
        said.split_once("\nfiber #2 \"waiting\" PARKED").and_then(|(_, rest)| rest.split_once("\n#1 ")).unwrap();
    let stack = &stack[..stack.find("fiber 1 is RUNNING").unwrap_or(stack.len())];
    assert!(stack.contains("waits_for_an_errand"), "not in the stack:\n{stack}");
    assert!(!stack.contains("corrupt stack"), "{stack}");
}

fn stop_with_a_parked_fiber() {
    fibra::run(|| {
        let (tx, rx) = fibra::channel::bounded::<u8>(1);
        let waiting = fibra::Builder::new().name("waiting");
        let waiting = waiting.spawn(move || {
            fibra::current().expect("a fiber").set_status("idle");
            waits_for_an_errand(&rx)
        });
        let waiting = waiting.unwrap();
        while !fibra::inspect::snapshot().fibers().iter().any(|fiber| fiber.id == waiting.id() && fiber.wait.is_some())
        {
            fibra::yield_now();
        }
        // SAFETY: stops this very process, in which gdb waits for it; without gdb it ends.
        assert_eq!(unsafe { libc::raise(libc::SIGTRAP) }, 0);
        drop(tx);
        let _ = waiting.join();
    });
}
