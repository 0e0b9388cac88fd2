//! What a runtime and a fiber refuse, and how: every error names the option or variable and its value.

use std::io::ErrorKind;

use crate::support::{is_child, rerun_self};
use fibra::{Builder, Runtime, RuntimeBuilder};

/// The text of the error that building gives.
#[track_caller]
fn refused(builder: RuntimeBuilder) -> String {
    let error = builder.build().expect_err("this cannot be built");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error.to_string()
}

#[test]
fn zero_workers_are_refused() {
    let text = refused(Runtime::builder().workers(0));
    assert!(text.contains("workers = 0"), "{text}");
}

#[test]
fn absurdly_many_workers_are_refused() {
    let text = refused(Runtime::builder().workers(usize::MAX));
    assert!(text.contains(&usize::MAX.to_string()), "{text}");
    let text = refused(Runtime::builder().workers(1).max_workers(usize::MAX));
    assert!(text.contains("max_workers"), "{text}");
}

#[test]
fn fewer_workers_at_most_than_at_first_are_refused() {
    let text = refused(Runtime::builder().workers(4).max_workers(3));
    assert!(text.contains("max_workers = 3") && text.contains('4'), "{text}");
}

// S1-11: the size of stacks can be set; impossible ones are errors, not surprises.
#[test]
fn impossible_stack_sizes_are_refused() {
    for bytes in [0, 1 << 10, 1 << 40, usize::MAX] {
        let text = refused(Runtime::builder().stack_size(bytes));
        assert!(text.contains("stack_size") && text.contains(&bytes.to_string()), "{text}");
    }
}

#[test]
fn impossible_stack_sizes_of_a_fiber_are_errors_of_its_spawn() {
    fibra::run(|| {
        for bytes in [0, 1 << 10, 1 << 40, usize::MAX] {
            let error = Builder::new().stack_size(bytes).spawn(|| ()).expect_err("no such stack");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        let error = Builder::new().spread().spawn_local(|| ()).expect_err("they exclude each other");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

// S1-11: every size between the limits works, and code may use it.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn sizes_between_the_limits_are_rounded_up() {
    // By addresses: how much a frame takes is the compiler's business, and more where nothing is optimised.
    fn use_stack(top: usize, bytes: usize) -> usize {
        let block = std::hint::black_box([1u8; 1024]);
        if top - block.as_ptr().addr() >= bytes {
            return 1;
        }
        usize::from(block[bytes % 1024]) + use_stack(top, bytes)
    }
    fibra::run(|| {
        for kib in [32, 33, 64, 100, 256, 1000, 1024, 1025, 8192] {
            let fiber = Builder::new().stack_size(kib << 10).spawn(move || {
                let top = std::hint::black_box(0u8);
                use_stack((&raw const top).addr(), (kib - 20) << 9)
            });
            assert!(fiber.unwrap().join().unwrap() > 0, "{kib} KiB");
        }
    });
}

#[test]
fn caps_of_zero_are_refused() {
    assert!(refused(Runtime::builder().max_fibers(0)).contains("max_fibers = 0"));
    assert!(refused(Runtime::builder().max_blocking_threads(0)).contains("max_blocking_threads = 0"));
}

/// Builds a runtime in a child with this variable; what the error said, or nothing.
#[track_caller]
fn with_variable(test: &str, variable: &str, value: &str) -> Option<String> {
    if is_child(test) {
        match Runtime::new() {
            Ok(runtime) => println!("built: {}", runtime.run(|| 42)),
            Err(error) => println!("refused: {:?}: {error}", error.kind()),
        }
        return None;
    }
    let ended = rerun_self(test, &[(variable, value)]);
    assert!(ended.status.success(), "{ended:?}");
    Some(ended.stdout)
}

/// One test per variable: the child reruns it by its name.
macro_rules! refuses_variable {
    ($($test:ident: $variable:literal = $value:literal;)*) => {$(
        // S1-11, X-24: the environment is read when a runtime is built, and what is wrong there is said by name.
        #[test]
        fn $test() {
            let Some(said) = with_variable(stringify!($test), $variable, $value) else { return };
            assert!(said.contains("refused: InvalidInput"), "{said}");
            assert!(said.contains($variable) && said.contains($value), "{said}");
        }
    )*};
}

refuses_variable! {
    workers_that_are_no_number: "FIBRA_WORKERS" = "abc";
    workers_that_are_negative: "FIBRA_WORKERS" = "-1";
    a_ceiling_that_is_no_number: "FIBRA_MAX_WORKERS" = "many";
    a_stack_size_that_is_no_number: "FIBRA_STACK_SIZE" = "256K";
    a_stack_size_that_is_too_small: "FIBRA_STACK_SIZE" = "1024";
    a_monitor_that_is_neither_on_nor_off: "FIBRA_SYSMON" = "7";
    a_stall_that_is_no_number: "FIBRA_STALL_MS" = "soon";
    a_backtrace_that_is_neither_on_nor_off: "FIBRA_STALL_BACKTRACE" = "full";
    a_guard_of_an_unknown_kind: "FIBRA_GUARD" = "x";
    an_assertion_that_is_neither_on_nor_off: "FIBRA_SPEC_ASSERT" = "yes";
}

macro_rules! takes_variable {
    ($($test:ident: $variable:literal = $value:literal;)*) => {$(
        // S1-11, S4-112: good values are taken.
        #[test]
        fn $test() {
            let Some(said) = with_variable(stringify!($test), $variable, $value) else { return };
            assert!(said.contains("built: 42"), "{said}");
        }
    )*};
}

takes_variable! {
    workers_from_the_environment: "FIBRA_WORKERS" = "3";
    a_stack_size_from_the_environment: "FIBRA_STACK_SIZE" = "65536";
    no_monitor: "FIBRA_SYSMON" = "0";
    no_reports_of_stalls: "FIBRA_STALL_MS" = "0";
    stalls_that_never_come: "FIBRA_STALL_MS" = "18446744073709551615";
    no_backtraces_of_stalls: "FIBRA_STALL_BACKTRACE" = "0";
    the_old_guards: "FIBRA_GUARD" = "mprotect";
    assertions_on: "FIBRA_SPEC_ASSERT" = "1";
}

#[test]
fn run_says_what_is_wrong_with_the_environment() {
    const TEST: &str = "run_says_what_is_wrong_with_the_environment";
    if is_child(TEST) {
        fibra::run(|| ());
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_WORKERS", "abc")]);
    assert!(!ended.status.success() && ended.signal().is_none(), "a panic, not an abort: {ended:?}");
    assert!(ended.stderr.contains("FIBRA_WORKERS=abc"), "{ended:?}");
}

// S1-02: code beats environment; workers are as many as asked for and have numbers.
#[test]
fn code_beats_the_environment() {
    const TEST: &str = "code_beats_the_environment";
    if is_child(TEST) {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let workers: Vec<usize> = runtime.metrics().workers.iter().map(|worker| worker.index).collect();
        assert_eq!(workers, [0, 1]);
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_WORKERS", "abc")]);
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn run_inside_a_fiber_says_what_to_do_instead() {
    let other = Runtime::builder().workers(1).build().unwrap();
    fibra::run(|| {
        let nested = fibra::spawn(|| fibra::run(|| ())).join().unwrap_err();
        assert!(nested.is_panic() && nested.message().contains("inside a fiber"), "{nested}");
        let other = &other;
        let nested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.run(|| ()))).unwrap_err();
        let text = nested.downcast_ref::<String>().map(String::as_str).or(nested.downcast_ref::<&str>().copied());
        assert!(text.unwrap().contains("inside a fiber"), "{text:?}");
    });
}

#[test]
fn dropping_a_runtime_in_its_own_fiber_panics_there() {
    let runtime = std::sync::Arc::new(Runtime::builder().workers(1).build().unwrap());
    let handle = runtime.handle();
    let (give, take) = std::sync::mpsc::channel::<std::sync::Arc<Runtime>>();
    let dropper = handle.spawn(move || {
        let runtime = fibra::blocking(move || take.recv()).unwrap();
        // The last one.
        while std::sync::Arc::strong_count(&runtime) > 1 {
            fibra::yield_now();
        }
        drop(runtime);
    });
    give.send(runtime).unwrap();
    let error = dropper.join().unwrap_err();
    assert!(error.is_panic() && error.message().contains("inside one of its own fibers"), "{error}");
}

#[test]
fn shutting_a_runtime_down_in_its_own_fiber_panics_there() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let slot = std::sync::Arc::new(std::sync::OnceLock::new());
    let other = slot.clone();
    let fiber = runtime.spawn(move || {
        while std::sync::Arc::strong_count(&other) > 1 {
            fibra::yield_now();
        }
        let runtime: Runtime = std::sync::Arc::into_inner(other).and_then(std::sync::OnceLock::into_inner).unwrap();
        let _ = runtime.shutdown_timeout(std::time::Duration::ZERO);
    });
    slot.set(runtime).unwrap();
    drop(slot);
    let error = fiber.join().unwrap_err();
    assert!(error.is_panic() && error.message().contains("inside one of its own fibers"), "{error}");
}

#[test]
fn spawning_without_a_runtime_names_the_way_out() {
    for what in [
        std::panic::catch_unwind(|| drop(fibra::spawn(|| ()))),
        std::panic::catch_unwind(|| drop(fibra::spawn_future(async {}))),
        std::panic::catch_unwind(|| drop(fibra::spawn_blocking(|| ()))),
        std::panic::catch_unwind(|| drop(Builder::new().spawn(|| ()))),
    ] {
        let payload = what.unwrap_err();
        let text = payload.downcast_ref::<String>().expect("a text");
        assert!(text.contains("Handle::enter"), "{text}");
    }
}

#[test]
fn a_current_thread_runtime_runs_once_at_a_time() {
    let runtime = Runtime::current_thread().unwrap();
    let started = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let parked = runtime.spawn({
        let started = started.clone();
        move || {
            started.store(true, std::sync::atomic::Ordering::SeqCst);
            fibra::sleep(std::time::Duration::from_secs(3600));
        }
    });
    runtime.run(|| {
        while !started.load(std::sync::atomic::Ordering::SeqCst) {
            fibra::yield_now();
        }
    });
    // A started fiber lives on this thread: another one may not run it.
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| runtime.run(|| ())).join());
    let text = elsewhere.unwrap_err().downcast::<&str>().unwrap();
    assert!(text.contains("started on another thread"), "{text}");
    drop(runtime);
    assert!(parked.join().unwrap_err().is_cancelled());
}
