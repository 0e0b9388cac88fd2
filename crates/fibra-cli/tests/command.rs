//! The `fibra` command as a user calls it: a small tour, help, version, and the answer to a mistake.

use std::process::{Command, Output};

fn fibra(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fibra"));
    for variable in ["FIBRA_WORKERS", "FIBRA_MAX_WORKERS", "FIBRA_STACK_SIZE", "FIBRA_GUARD"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().expect("the command can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_small_tour_shows_every_part() {
    let output = fibra(&["tour", "--fibers", "1000"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for part in [
        "Many fibers at once",
        "1,000\n",
        "all parked",
        "bytes each",
        "all woken",
        "all joined",
        "Spawning and yielding",
        "Channels and select",
        "`default` goes on at once",
        "20,000 of them handed on",
        "\"the van is empty\"",
        "none came twice",
        "A pipeline",
        "five, each a fiber",
        "its end was dropped: all stages ended",
        "A supervised actor",
        "10,000 of them, without a stack",
        "is back under the same address",
        "Timers",
        "none early",
        "A panic stays in its fiber",
        "\"unlucky\" panicked: the disk is on fire",
        "Cancellation",
        "was cancelled",
        "A deadlock, explained",
        "CERTAIN deadlock: 2 fibers wait for each other",
        "A recording",
        "arrows from wakes",
        "\"ada\": waiting for a mutex",
        "grace went on after",
        "Sockets",
        "Machines",
        "no fiber and no stack for any of them",
        "16 are back",
        "from one machine to another and back",
        "Blocking work",
        "All in all",
    ] {
        assert!(out.contains(part), "no `{part}` in\n{out}");
    }
    assert_eq!(err, "", "nothing goes wrong on the tour");
}

#[test]
fn a_running_process_can_be_asked() {
    let folder = std::env::temp_dir().join(format!("fibra-command-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut tour = Command::new(env!("CARGO_BIN_EXE_fibra"))
        .args(["tour", "--fibers", "1000"])
        .env("FIBRA_INSPECT", "unix")
        .env("XDG_RUNTIME_DIR", &folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the command can be started");
    // (`top` asks twice, for the snapshot and for the deadlocks.)
    let ask = |target: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fibra"));
        command
            .args(["top", "--rounds", "1", target])
            .env("XDG_RUNTIME_DIR", &folder)
            .output()
            .expect("the command can be started")
    };
    // It listens as soon as its runtime is built, and until it ends.
    let mut last = String::new();
    while tour.try_wait().unwrap().is_none() {
        let output = ask(&tour.id().to_string());
        last = text(if output.status.success() { &output.stdout } else { &output.stderr });
        if output.status.success() {
            break;
        }
    }
    assert!(last.contains(" fibers, of which ") || last.contains("1 fiber, of which "), "{last}");
    tour.wait().unwrap();
    let output = fibra(&["dump", &std::process::id().to_string()]);
    assert!(!output.status.success() && text(&output.stderr).contains("FIBRA_INSPECT=unix"), "{output:?}");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn the_tour_stays_below_the_cap_of_heavy_guards_and_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_fibra"))
        .args(["tour", "--fibers", "10000000"])
        .env("FIBRA_GUARD", "mprotect")
        .output()
        .expect("the command can be started");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(!out.contains("10,000,000"), "{out}");
    assert!(out.contains("vm.max_map_count") || out.contains("memory"), "it says what set the limit:\n{out}");
    assert!(!out.contains("wait for a stack"), "every fiber that is started gets its stack:\n{out}\n{err}");
}

#[test]
fn help_version_and_the_way_to_the_benchmarks() {
    for (argument, expected) in [("--help", "usage: fibra"), ("--version", "fibra 0."), ("bench", "-p rivals")] {
        let output = fibra(&[argument]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains(expected), "{argument}: {}", text(&output.stdout));
    }
}

#[test]
fn a_mistake_is_named_and_answered_with_the_usage() {
    for arguments in [&["tuor"][..], &["--frobnicate"], &["tour", "--fibers", "many"], &["bench", "now"]] {
        let output = fibra(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let err = text(&output.stderr);
        assert!(err.contains("usage: fibra") && output.stdout.is_empty(), "{arguments:?}: {err}");
        assert!(err.contains(arguments.last().unwrap()), "{err}");
    }
}

#[test]
fn a_bad_environment_is_an_error_and_no_panic() {
    let output = Command::new(env!("CARGO_BIN_EXE_fibra"))
        .args(["tour", "--fibers", "10"])
        .env("FIBRA_WORKERS", "abc")
        .output()
        .expect("the command can be started");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("FIBRA_WORKERS=abc") && !err.contains("panicked"), "{err}");
}
