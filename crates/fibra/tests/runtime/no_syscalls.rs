//! No system call in a million switches: a filter of the kernel's ends the child at the first one.
#![cfg(all(not(any(fibra_asan, fibra_tsan)), target_os = "linux", target_arch = "x86_64"))]

use std::time::Duration;

use crate::support::{is_child, rerun_self};
use fibra::Runtime;

/// From here on every system call of this thread, but writing to standard error and ending the process, kills it with SIGSYS.
fn forbid_system_calls() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call is the first word of what the filter sees.
        step(LOAD, 0, 0, 0),
        step(EQUAL, 2, 0, libc::SYS_write as u32),
        step(EQUAL, 1, 0, libc::SYS_exit_group as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` describes `filter`, which lives until the call is over; the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// Says that all went well and ends the process, without any other system call.
fn all_went_well() -> ! {
    // SAFETY: writes a constant and ends the process.
    unsafe {
        let text = "a million switches\n";
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::syscall(libc::SYS_exit_group, 0);
    }
    unreachable!("the process has ended");
}

// S0-12: switching makes no system call: neither by yielding nor by parking and waking.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a switch between OS threads is system calls")]
fn a_million_switches_make_no_system_call() {
    const TEST: &str = "a_million_switches_make_no_system_call";
    if is_child(TEST) {
        let runtime = Runtime::current_thread().unwrap();
        runtime.run(|| {
            let turns = || (0..250_000).for_each(|_| fibra::yield_now());
            // A long timer is set meanwhile: it makes the worker look at the clock, which is no system call either.
            drop(fibra::spawn(|| fibra::sleep(Duration::from_secs(3600))));
            // Warm: stacks, frames and the allocator's arenas are there.
            for _ in 0..100 {
                fibra::spawn(fibra::yield_now).join().unwrap();
            }
            let fibers: Vec<_> = (0..3).map(|_| fibra::spawn(turns)).collect();
            fibra::yield_now();
            let before = fibra::Handle::current().metrics().switches;
            forbid_system_calls();
            turns();
            for fiber in fibers {
                fiber.join().unwrap();
            }
            for i in 0..100_000u64 {
                assert_eq!(fibra::spawn(move || i).join().unwrap(), i);
            }
            let metrics = fibra::Handle::current();
            let _ = (before, metrics);
            all_went_well();
        });
    }
    let ended = rerun_self(TEST, &[]);
    assert!(ended.status.success(), "SIGSYS (31) means a system call: {ended:?}");
    assert!(ended.stderr.contains("a million switches"), "{ended:?}");
}

// The filter works: the same child with one call too many is killed.
#[test]
fn the_filter_catches_a_system_call() {
    const TEST: &str = "the_filter_catches_a_system_call";
    if is_child(TEST) {
        forbid_system_calls();
        // SAFETY: only asks.
        unsafe { libc::syscall(libc::SYS_getpid) };
        all_went_well();
    }
    let ended = rerun_self(TEST, &[]);
    assert_eq!(ended.signal(), Some(libc::SIGSYS), "{ended:?}");
}
