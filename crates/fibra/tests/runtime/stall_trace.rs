//! The report of a stalled worker names the code: a backtrace with the user's functions and lines, once per place, and what to use instead.
//!
//! Every test runs in a process of its own, whose standard error the parent reads.
#![cfg(not(fibra_context = "thread"))] // There the fiber's thread is another one than the worker's, which merely waits for it.
#![allow(clippy::disallowed_types)] // Flags of plain threads.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::stall::{BACKTRACES, HERE, has, one_report, reports};
use crate::support::{eventually, is_child, rerun_self, watchdog};
use fibra::{Builder, Handle, Runtime};

/// Stalls that the runtime has counted, kept up to date by a plain thread: code under test calls nothing of fibra.
fn count_stalls(handle: Handle) -> Arc<AtomicU64> {
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    std::thread::spawn(move || {
        loop {
            count.store(handle.metrics().stalls, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    counted
}

/// Computes until so many stalls were counted.
#[inline(never)]
fn walk_in_circles(counted: &AtomicU64, until: u64) {
    while counted.load(Ordering::Relaxed) < until {
        std::hint::spin_loop();
    }
}

/// The same, in other words: of two functions with the same instructions an optimised build keeps one.
#[inline(never)]
fn walk_elsewhere(counted: &AtomicU64, until: u64) {
    let mut steps = 0_u64;
    while counted.load(Ordering::Relaxed) < until {
        steps = std::hint::black_box(steps + 1);
    }
}

#[inline(never)]
fn fall_asleep(counted: &AtomicU64) {
    while counted.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(700));
    }
    std::hint::black_box(());
}

/// Runs it as a fiber of a runtime with one worker.
fn on_a_fiber(body: impl FnOnce(Arc<AtomicU64>) + Send + 'static) {
    let _watchdog = watchdog(50);
    let rt = Runtime::builder().workers(1).build().unwrap();
    let counted = count_stalls(rt.handle());
    let fiber = move || body(counted);
    rt.run(move || Builder::new().name("culprit").spawn(fiber).unwrap().join().unwrap());
}

// S1-116: which code it is, not only which fiber.
#[test]
fn code_that_computes_is_named_with_its_line() {
    const TEST: &str = "code_that_computes_is_named_with_its_line";
    if is_child(TEST) {
        return on_a_fiber(|counted| walk_in_circles(&counted, 1));
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["\"culprit\": running", "spinning or computing", "of processor time", "fibra::compute()"]);
    if BACKTRACES {
        let line = "at tests/runtime/stall_trace.rs:";
        has(&text, &[HERE, "walk_in_circles", line, "code_that_computes_is_named_with_its_line"]);
        let place = |what: &str| text.find(what).unwrap();
        assert!(place("walk_in_circles") < place("code_that_computes"), "innermost first: {text}");
        // Below those of our own lie those of the other switch, where it is used.
        let is_short = !text.contains("fibra::sched") && !text.contains("catch_unwind");
        assert!(is_short || cfg!(fibra_context = "corosensei"), "entry frames are left out: {text}");
    } else {
        assert!(!text.contains(HERE) && !text.contains("no backtrace"), "{text}");
    }
}

// S1-108: the line and the call, and what to use instead.
#[test]
fn code_that_sleeps_is_named_with_its_line_and_told_what_to_use() {
    const TEST: &str = "code_that_sleeps_is_named_with_its_line_and_told_what_to_use";
    if is_child(TEST) {
        return on_a_fiber(|counted| fall_asleep(&counted));
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["\"culprit\": running", "blocked in the system call clock_nanosleep", "use fibra::sleep()"]);
    if BACKTRACES {
        has(&text, &[HERE, "fall_asleep", "at tests/runtime/stall_trace.rs:"]);
    }
}

// S1-108.
#[test]
fn a_socket_of_std_is_told_what_to_use() {
    const TEST: &str = "a_socket_of_std_is_told_what_to_use";
    #[inline(never)]
    fn await_a_peer(listener: &std::net::TcpListener) {
        drop(listener.accept());
        std::hint::black_box(());
    }
    if is_child(TEST) {
        return on_a_fiber(|counted| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            std::thread::spawn(move || {
                eventually(|| counted.load(Ordering::Relaxed) > 0, || "nothing was reported".to_owned());
                drop(std::net::TcpStream::connect(address));
            });
            await_a_peer(&listener);
        });
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["blocked in the system call accept4", "on socket:[", "use fibra::net"]);
    if BACKTRACES {
        has(&text, &[HERE, "await_a_peer", "at tests/runtime/stall_trace.rs:"]);
    }
}

#[test]
fn a_place_is_printed_once_and_counted_each_time() {
    const TEST: &str = "a_place_is_printed_once_and_counted_each_time";
    if is_child(TEST) {
        return on_a_fiber(|counted| {
            for round in 1..=3 {
                walk_in_circles(&counted, round);
                fibra::yield_now();
            }
            walk_elsewhere(&counted, 4);
        });
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "200")]);
    assert!(ended.status.success(), "{ended:?}");
    // Without names, a place is where the fiber was spawned, and what it does.
    assert_eq!(reports(&ended), if BACKTRACES { 2 } else { 1 }, "{}", ended.stderr);
    has(&ended.stderr, &["Further stalls at this place are counted"]);
    if BACKTRACES {
        assert_eq!(ended.stderr.matches("walk_in_circles").count(), 1, "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("walk_elsewhere").count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn backtraces_can_be_switched_off() {
    const TEST: &str = "backtraces_can_be_switched_off";
    if is_child(TEST) {
        return on_a_fiber(|counted| {
            walk_in_circles(&counted, 1);
            assert_eq!(action_of_sigurg(), libc::SIG_DFL, "no signal, so no handler");
        });
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200"), ("FIBRA_STALL_BACKTRACE", "0")]);
    has(&text, &["spinning or computing"]);
    assert!(!text.contains(HERE) && !text.contains("backtrace") && !text.contains("walk_in_circles"), "{text}");
}

fn action_of_sigurg() -> usize {
    // SAFETY: a zeroed sigaction is a valid one, and this only reads the present one into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGURG, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

static DELIVERED: AtomicU64 = AtomicU64::new(0);

extern "C" fn own_handler(_signal: libc::c_int) {
    DELIVERED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_programs_own_handler_is_left_alone() {
    const TEST: &str = "a_programs_own_handler_is_left_alone";
    if is_child(TEST) {
        let own = own_handler as *const () as usize;
        // SAFETY: the handler adds to an atomic number and does nothing else.
        unsafe { libc::signal(libc::SIGURG, own) };
        return on_a_fiber(move |counted| {
            walk_in_circles(&counted, 1);
            assert_eq!(action_of_sigurg(), own);
            assert_eq!(DELIVERED.load(Ordering::Relaxed), 0);
        });
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["spinning or computing"]);
    assert!(!text.contains(HERE), "{text}");
    if BACKTRACES {
        has(&text, &["There is no backtrace: the program has a handler of its own for SIGURG"]);
    }
}

/// Standard error of this process, from now on.
fn intercept_standard_error() -> BufReader<std::fs::File> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both ends, which are this function's from then on.
    let (read, write) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    // SAFETY: replaces descriptor 2, which no value owns.
    assert_eq!(unsafe { libc::dup2(write.as_raw_fd(), 2) }, 2);
    BufReader::new(read.into())
}

/// The calling thread runs on the first processor that it may use, and if `rarely`, only when no other thread wants that.
fn share_one_processor(rarely: bool) {
    // SAFETY: a zeroed set and zeroed parameters are valid ones; both calls concern the calling thread only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
        if rarely {
            let none: libc::sched_param = std::mem::zeroed();
            assert_eq!(libc::sched_setscheduler(0, libc::SCHED_IDLE, &none), 0);
        }
    }
}

// A worker that the machine gives no time to has done nothing wrong: no stall, but it is said once.
#[test]
fn a_worker_without_a_processor_is_called_descheduled() {
    const TEST: &str = "a_worker_without_a_processor_is_called_descheduled";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let lines = intercept_standard_error();
        let rt = Runtime::builder().workers(1).build().unwrap();
        let handle = rt.handle();
        std::thread::spawn(|| {
            share_one_processor(false);
            loop {
                std::hint::spin_loop();
            }
        });
        std::thread::spawn(move || {
            let said = lines.lines().map(Result::unwrap).find(|line| line.contains("is descheduled")).unwrap();
            assert!(said.contains("The machine's load is"), "{said}");
            assert_eq!(handle.metrics().stalls, 0);
            println!("said: {said}");
            // Without what runs at an exit: a sanitizer would list what the running fiber holds.
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        });
        rt.run(|| {
            share_one_processor(true);
            walk_in_circles(&AtomicU64::new(0), 1);
        });
        unreachable!("it is ended from outside");
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "100")]);
    assert!(ended.status.success(), "{ended:?}");
}

// Captures by signal while the program makes calls that a signal may interrupt, allocates, and throws.
#[test]
fn a_program_goes_on_unharmed_under_many_captures() {
    const TEST: &str = "a_program_goes_on_unharmed_under_many_captures";
    if is_child(TEST) {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        return on_a_fiber(move |counted| {
            let mut rounds = 0u64;
            while counted.load(Ordering::Relaxed) < 8 {
                let before = counted.load(Ordering::Relaxed);
                while counted.load(Ordering::Relaxed) == before {
                    rounds += 1;
                    let numbers: Vec<u64> = (0..rounds % 512).collect();
                    let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(numbers)));
                    assert!(caught.unwrap_err().downcast::<Vec<u64>>().unwrap().len() as u64 == rounds % 512);
                    assert!(std::fs::metadata("/").unwrap().is_dir());
                }
                fibra::yield_now();
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "10")]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(reports(&ended) >= 1, "{}", ended.stderr);
}
