//! The tests' own tools work: the watchdog ends a hanging test and names it, the counters see what they count.

use std::time::Duration;

use crate::support;
use crate::support::{is_child, rerun_self};

#[test]
fn a_watchdog_names_the_test_that_hangs() {
    const TEST: &str = "a_watchdog_names_the_test_that_hangs";
    if is_child(TEST) {
        let _watchdog = support::watchdog(0);
        loop {
            std::thread::park();
        }
    }
    let ended = rerun_self(TEST, &[]);
    assert_eq!(ended.signal(), Some(libc::SIGABRT), "{ended:?}");
    assert!(ended.stderr.contains(&format!("watchdog: support_works::{TEST} did not end within 0ns")), "{ended:?}");
    assert!(ended.stderr.contains("support_works.rs:"), "it says where it was set: {ended:?}");
}

#[test]
fn a_watchdog_that_is_dropped_does_nothing() {
    const TEST: &str = "a_watchdog_that_is_dropped_does_nothing";
    if is_child(TEST) {
        let before = support::threads();
        let watchdog = support::watchdog(3600);
        assert_eq!(support::threads(), before + 1, "{:?}", support::thread_names());
        // A thread gives itself its name, a moment after it was started.
        let named = || support::thread_names().contains(&"watchdog".to_owned());
        support::eventually(named, || format!("{:?}", support::thread_names()));
        drop(watchdog);
        support::eventually(|| support::threads() == before, || format!("{:?}", support::thread_names()));
        return;
    }
    let ended = rerun_self(TEST, &[]);
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn the_counters_see_what_they_count() {
    const TEST: &str = "the_counters_see_what_they_count";
    if is_child(TEST) {
        assert_eq!(std::env::var("EXTRA").as_deref(), Ok("given"));
        let before = support::fds();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(support::fds(), before + 1);
        drop(file);
        assert_eq!(support::fds(), before);

        const BYTES: usize = 64 << 20;
        let (mappings, rss, tables) = (support::mappings(), support::rss(), support::page_tables());
        let mut memory = vec![0u8; BYTES];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        assert!(support::rss() >= rss + BYTES as u64 / 2, "{} after {rss}", support::rss());
        assert!(support::page_tables() >= tables);
        assert!(support::mappings() >= mappings);

        let used = support::cpu_time();
        support::eventually(
            || support::cpu_time() > used + Duration::from_millis(1),
            || "no CPU time passes".to_owned(),
        );
        return;
    }
    let ended = rerun_self(TEST, &[("EXTRA", "given")]);
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
#[should_panic(expected = "there is no test no_such_test in this binary")]
fn a_child_needs_a_test() {
    rerun_self("no_such_test", &[]);
}

#[test]
fn a_test_is_known_by_its_module() {
    assert_eq!(support::full_name("one"), "support_works::one");
}
