//! A thread that the runtime starts late, when the process has hardly any address space left: an error of the operation, or done without,
//! and never the end of the process.
//!
//! Each test tries with more and more room, from less than a thread's stack to plenty. In between lies the room where a thread gets its
//! stack and then not the little more that it maps when it begins.
#![cfg(all(not(any(fibra_asan, fibra_tsan)), target_os = "linux"))] // The sanitizers reserve terabytes.

use std::io::ErrorKind;
use std::time::Duration;

use fibra::Runtime;
use fibra::net::TcpListener;
use fibra::signal::{self, Signal};
use fibra::time::Instant;

use crate::support::{self, is_child, rerun_self};

/// The stack of a thread is 2 MiB; pages are added one by one around that.
const ROOMS: std::ops::Range<u64> = 500..560;
const PAGE: u64 = 4096;

/// The address space in use, in bytes.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<u64>().unwrap() * PAGE
}

/// The process may not have more than this from now on.
fn limit(to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// In a child: tries `operation` with so much room and then a little more, until it says that it has had its thread.
#[track_caller]
fn with_hardly_any_room(test: &str, mut operation: impl FnMut() -> bool) {
    if !is_child(test) {
        // One heap for all threads, with something to spare: an allocation that fails ends the process.
        let ended = rerun_self(test, &[("MALLOC_ARENA_MAX", "1"), ("MALLOC_TOP_PAD_", "4194304")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(50);
    let named = || support::thread_names().contains(&"watchdog".to_owned());
    support::eventually(named, || "the watchdog does not start".to_owned());
    for room in ROOMS {
        limit(address_space() + room * PAGE);
        let started = operation();
        limit(libc::RLIM_INFINITY);
        if started {
            break;
        }
    }
    // With plenty of it, it works.
    let until = Instant::now() + Duration::from_secs(20);
    while !operation() {
        assert!(Instant::now() < until, "it does not work with any amount of memory");
    }
}

#[test]
fn a_blocking_call_without_a_thread_runs_where_it_is() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    assert_eq!(runtime.run(|| 1), 1);
    with_hardly_any_room("a_blocking_call_without_a_thread_runs_where_it_is", || {
        let on = runtime.run(|| fibra::blocking(|| std::thread::current().name().unwrap_or_default().to_owned()));
        on.contains("blocking")
    });
}

#[test]
fn a_socket_of_a_plain_thread_without_a_thread_for_it_is_an_error() {
    with_hardly_any_room("a_socket_of_a_plain_thread_without_a_thread_for_it_is_an_error", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Long enough for the thread to begin, with the limit in force.
        let error = listener.accept_timeout(Duration::from_millis(50)).expect_err("no client connects");
        error.kind() == ErrorKind::TimedOut
    });
}

#[test]
fn listening_to_a_signal_without_a_thread_is_an_error() {
    with_hardly_any_room("listening_to_a_signal_without_a_thread_is_an_error", || {
        let Ok(signals) = signal::listen(Signal::USR1) else { return false };
        // SAFETY: the signal is listened to. It arrives through the thread, which has begun then, with the limit in force.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        signals.recv().is_ok()
    });
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber is an OS thread there, and this process gets no more of them")]
fn a_runtime_does_without_its_monitor() {
    // It maps what a run needs, and stays, so that the stacks of its own threads are not left for the next one.
    let another = Runtime::builder().workers(1).build().unwrap();
    assert_eq!(another.run(|| fibra::spawn(|| 1).join().unwrap()), 1);
    // The monitor starts with the first fiber beside the root.
    let mut tries = 0;
    with_hardly_any_room("a_runtime_does_without_its_monitor", || {
        let runtime = Runtime::current_thread().unwrap();
        let sum = runtime.run(|| {
            let sum = (0..200).map(|n| fibra::spawn(move || n).join().unwrap()).sum::<u32>();
            // Long enough for the thread to begin, with the limit in force.
            fibra::sleep(Duration::from_millis(10));
            sum
        });
        assert_eq!(sum, 19_900);
        tries += 1;
        tries > ROOMS.count()
    });
}
