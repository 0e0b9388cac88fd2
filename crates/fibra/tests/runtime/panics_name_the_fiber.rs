//! A panic's message names the fiber, not the thread of the worker, which is `main` for most; a hook of the program's is called as ever.
//!
//! Each test looks at what a child prints: the test harness has a hook of its own where it captures output.

use crate::support;

const NAMED: &str = "a_named_fiber_is_named";
const HOOKED: &str = "the_hook_of_the_program_is_called";

/// A fiber of that name, and one without, panic.
fn panic_twice() {
    fibra::run(|| {
        let reader = fibra::Builder::new().name("reader").spawn(|| panic!("no more {}", "lines")).unwrap();
        let joined: Result<(), _> = reader.join();
        assert_eq!(joined.unwrap_err().message(), "no more lines");
        let nameless = fibra::spawn(|| panic!("a literal"));
        let joined: Result<(), _> = nameless.join();
        assert_eq!(joined.unwrap_err().message(), "a literal");
        let odd = fibra::spawn(|| std::panic::panic_any(7_u32));
        let joined: Result<(), _> = odd.join();
        assert!(joined.is_err());
    });
}

#[test]
fn a_named_fiber_is_named() {
    let _watchdog = support::watchdog(100);
    if support::is_child(NAMED) {
        return panic_twice();
    }
    let file = file!();
    let quiet = support::rerun_self(NAMED, &[("RUST_BACKTRACE", "0")]);
    assert!(quiet.status.success(), "{quiet:?}");
    let lines: Vec<&str> = quiet.stderr.lines().collect();
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{quiet:?}"));
    let first = at("fiber #");
    let (fiber, place) = lines[first].split_once(" panicked at ").unwrap_or_else(|| panic!("{quiet:?}"));
    assert!(fiber.ends_with(" \"reader\"") && place.starts_with(file) && place.ends_with(':'), "{quiet:?}");
    assert_eq!(lines[first + 1], "no more lines");
    assert!(lines[first + 2].starts_with(&format!("note: it was spawned at {file}:")), "{quiet:?}");
    let second = at("a literal") - 1;
    let (fiber, _) = lines[second].split_once(" panicked at ").unwrap_or_else(|| panic!("{quiet:?}"));
    assert!(fiber.starts_with("fiber #") && !fiber.contains('"'), "{quiet:?}");
    assert!(quiet.stderr.contains("\nBox<dyn Any>\n"), "{quiet:?}");
    assert!(!quiet.stderr.contains("thread '") && !quiet.stderr.contains("stack backtrace"), "{quiet:?}");

    let long = support::rerun_self(NAMED, &[("RUST_BACKTRACE", "1")]);
    assert!(
        long.stderr.contains(" \"reader\" panicked at ") && long.stderr.contains("\nstack backtrace:\n   0: "),
        "{long:?}"
    );
    assert!(long.stderr.contains("panic_twice") && !long.stderr.contains("thread '"), "{long:?}");
    assert!(!long.stderr.contains("__rust_end_short_backtrace"), "{long:?}");
    let full = support::rerun_self(NAMED, &[("RUST_BACKTRACE", "full")]);
    assert!(full.stderr.contains("__rust_end_short_backtrace") && full.stderr.contains("panic_twice"), "{full:?}");
}

#[test]
fn the_hook_of_the_program_is_called() {
    let _watchdog = support::watchdog(100);
    if support::is_child(HOOKED) {
        std::panic::set_hook(Box::new(|info| eprintln!("the program's hook: {:?}", info.payload().is::<&str>())));
        return panic_twice();
    }
    let ended = support::rerun_self(HOOKED, &[("RUST_BACKTRACE", "0")]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr.matches("the program's hook: ").count(), 3, "{ended:?}");
    assert!(
        ended.stderr.contains("note: that was fiber #") && ended.stderr.contains(" \"reader\", spawned at "),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains("panicked at"), "{ended:?}");
}
