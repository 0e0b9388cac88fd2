//! `#[fibra::main(current_thread)]`, `#[fibra::main(cancellation = "cooperative")]` and `#[fibra::test(timeout = ..)]`.

use std::time::Duration;

use crate::support;

#[fibra::main(workers = 1, panic_exit = 7)]
fn ends_with_seven() {
    drop(fibra::spawn(|| panic!("on purpose, told to no joiner")));
}

#[fibra::main(workers = 1)]
fn ends_as_it_is_told() {
    drop(fibra::spawn(|| panic!("on purpose, told to no joiner")));
}

#[fibra::main(workers = 1, panic_exit = 7)]
fn fails_in_its_own_way() -> Result<(), u8> {
    drop(fibra::spawn(|| panic!("on purpose, told to no joiner")));
    Err(3)
}

#[fibra::main(workers = 1, panic_exit = 7)]
fn all_is_told() {
    fibra::spawn(|| panic!("on purpose")).join().unwrap_err();
}

// The exit code after a panic that no joiner was told of: as the attribute says, or the environment.
#[test]
fn a_panic_that_is_not_joined_sets_the_exit_code_if_asked_to() {
    const NAME: &str = "a_panic_that_is_not_joined_sets_the_exit_code_if_asked_to";
    let _watchdog = support::watchdog(100);
    if support::is_child(NAME) {
        match std::env::var("FIBRA_TEST_STEP").as_deref() {
            Ok("attribute") => ends_with_seven(),
            Ok("failed") => assert_eq!(fails_in_its_own_way(), Err(3)),
            Ok("told") => all_is_told(),
            _ => ends_as_it_is_told(),
        }
        return;
    }
    let code = |step: &str, variables: &[(&str, &str)]| {
        let ended = support::rerun_self(NAME, &[&[("FIBRA_TEST_STEP", step)], variables].concat());
        let is_told = ended.stderr.contains("no joiner was told (1 in all");
        (ended.status.code(), is_told)
    };
    let environment = [("FIBRA_PANIC_EXIT", "9")];
    assert_eq!(code("attribute", &[]), (Some(7), true));
    assert_eq!(code("attribute", &environment), (Some(7), true), "what the program says comes first");
    assert_eq!(code("failed", &[]), (Some(0), false), "its own failure is its result");
    assert_eq!(code("told", &environment), (Some(0), false));
    assert_eq!(code("environment", &[]), (Some(0), false), "the default");
    assert_eq!(code("environment", &environment), (Some(9), true));
    assert_eq!(code("environment", &[("FIBRA_PANIC_EXIT", "0")]), (Some(0), false));
    let refused = support::rerun_self(NAME, &[("FIBRA_TEST_STEP", "environment"), ("FIBRA_PANIC_EXIT", "256")]);
    assert!(refused.stderr.contains("FIBRA_PANIC_EXIT=256: expected an exit code"), "{refused:?}");
}

const LONG: Duration = Duration::from_secs(3600);

#[fibra::main(current_thread)]
fn on_this_thread() -> usize {
    let here = std::thread::current().id();
    let fibers: Vec<_> = (0..10).map(|_| fibra::spawn(|| std::thread::current().id())).collect();
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap() == here));
    support::threads()
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "every fiber is a thread there")]
fn a_main_on_the_current_thread_starts_no_other() {
    const NAME: &str = "a_main_on_the_current_thread_starts_no_other";
    let _watchdog = support::watchdog(100);
    if support::is_child(NAME) {
        let before = support::threads();
        assert_eq!(on_this_thread(), before);
        return;
    }
    let ended = support::rerun_self(NAME, &[]);
    assert!(ended.status.success(), "{ended:?}");
}

#[fibra::main(cancellation = "cooperative", workers = 1)]
fn cooperatively() -> bool {
    let (begun, has_begun) = fibra::channel::unbounded();
    let sleeper = fibra::spawn(move || {
        begun.send(()).unwrap();
        while !fibra::is_cancelled() {
            fibra::sleep(Duration::from_millis(1));
        }
        fibra::sleep(Duration::from_millis(1));
        "went on"
    });
    has_begun.recv().unwrap();
    sleeper.cancel();
    sleeper.join().is_ok_and(|said| said == "went on")
}

#[fibra::main(cancellation = "unwind", workers = 1)]
fn by_unwinding() -> bool {
    let sleeper = fibra::spawn(|| fibra::sleep(LONG));
    sleeper.cancel();
    sleeper.join().is_err_and(|error| error.is_cancelled())
}

#[test]
fn a_main_says_how_cancellation_arrives() {
    let _watchdog = support::watchdog(60);
    assert!(cooperatively());
    assert!(by_unwinding());
}

#[fibra::test(timeout = 600, workers = 1, leak_timeout = 1.5)]
fn a_test_that_ends_in_time_passes() -> Result<(), fibra::JoinError> {
    fibra::spawn(|| fibra::sleep(Duration::from_millis(1))).join()
}

#[fibra::test(timeout = Duration::from_secs(600))]
#[should_panic(expected = "the panic of the body")]
fn a_test_that_panics_in_time_panics() {
    panic!("the panic of the body");
}

/// How long `hangs` may take, in milliseconds: its parent says.
const LIMIT: &str = "FIBRA_TEST_LIMIT";

fn limit() -> Duration {
    Duration::from_millis(std::env::var(LIMIT).map_or(200, |millis| millis.parse().expect("milliseconds")))
}

#[fibra::test(timeout = limit())]
#[ignore = "takes too long on purpose: run by the one below"]
fn hangs() {
    let _waiter = fibra::Builder::new().name("the one that waits").spawn(|| fibra::sleep(LONG)).unwrap();
    fibra::scope(|s| {
        s.spawn(|| fibra::sleep(LONG));
    });
}

#[test]
fn a_test_that_takes_too_long_lists_its_fibers_and_fails() {
    let _watchdog = support::watchdog(100);
    // The limit counts from before there is a runtime. On a busy machine its fibers may not wait yet when the shortest is over.
    for (limit, in_words) in [("200", "200ms"), ("2000", "2s"), ("20000", "20s")] {
        let ended = support::rerun_self("hangs", &[("RUST_BACKTRACE", "0"), (LIMIT, limit)]);
        assert_eq!(ended.status.code(), Some(101), "{ended:?}");
        assert!(ended.stdout.contains("hangs ... FAILED"), "{ended:?}");
        assert!(ended.stderr.contains(&format!("did not end within {in_words} (timeout)")), "{ended:?}");
        let waits = ended.stderr.contains("\"the one that waits\": sleeping");
        if waits && ended.stderr.contains("\"main\": waiting for the fibers of its scope") {
            return;
        }
    }
    panic!("who waits for what is not listed");
}

#[fibra::test(timeout = 0.2, leak_timeout = 0)]
#[ignore = "takes too long on purpose: run by the one below"]
fn hangs_and_may_not_leak() {
    fibra::sleep(LONG);
}

// It is given time to unwind, also if its fibers are given none.
#[test]
fn a_test_that_may_not_leak_and_takes_too_long_fails_and_ends_nothing_else() {
    let _watchdog = support::watchdog(100);
    let ended = support::rerun_self("hangs_and_may_not_leak", &[("RUST_BACKTRACE", "0")]);
    assert_eq!(ended.status.code(), Some(101), "{ended:?}");
    assert!(ended.stdout.contains("hangs_and_may_not_leak ... FAILED"), "{ended:?}");
}

#[fibra::test(timeout = 0.2, leak_timeout = 0.2)]
#[ignore = "cannot be ended on purpose: run by the one below"]
fn blocks_its_thread() {
    std::thread::sleep(LONG);
}

#[test]
fn a_test_that_cannot_be_cancelled_ends_the_process() {
    let _watchdog = support::watchdog(100);
    let ended = support::rerun_self("blocks_its_thread", &[]);
    assert_eq!(ended.signal(), Some(libc::SIGABRT), "{ended:?}");
    assert!(ended.stderr.contains("has still not ended after another 5.2s (5 seconds and leak_timeout)"), "{ended:?}");
}
