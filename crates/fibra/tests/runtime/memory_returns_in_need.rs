//! Giving memory back needs none: at a limit of address space it works, or is left alone, and does not end the process. And a process that
//! forks meanwhile has a child that works.
#![cfg(all(not(any(fibra_asan, fibra_tsan)), target_os = "linux"))] // The sanitizers reserve terabytes.

use std::time::Duration;

use fibra::Runtime;

use crate::support::{self, is_child, rerun_self, thread_names};

/// So many frames at once, without stacks; then none.
fn flood(rt: &Runtime, count: usize) {
    let handles: Vec<_> = (0..count).map(|n| rt.spawn(move || n)).collect();
    handles.into_iter().for_each(|handle| _ = handle.join().unwrap());
}

fn has_trimmer() -> bool {
    thread_names().iter().any(|name| name == "fibra-trim")
}

#[test]
fn memory_goes_back_although_there_is_none_left_to_do_it_with() {
    let test = "memory_goes_back_although_there_is_none_left_to_do_it_with";
    if !is_child(test) {
        let ended = rerun_self(test, &[("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(55);
    let rt = Runtime::builder().workers(1).build().unwrap();
    flood(&rt, 300_000);
    support::eventually(has_trimmer, || format!("{:?}", thread_names()));
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let in_use = statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    for rlim_cur in [in_use, libc::RLIM_INFINITY] {
        let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        if rlim_cur == in_use {
            // Long enough for three looks. (If there were fewer, then it is as with more memory.)
            std::thread::sleep(Duration::from_millis(3500));
        }
    }
    support::eventually(|| !has_trimmer(), || format!("{:?}", thread_names()));
}

#[test]
fn a_child_that_is_forked_while_memory_goes_back_works() {
    let test = "a_child_that_is_forked_while_memory_goes_back_works";
    if !is_child(test) {
        let ended = rerun_self(test, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(100);
    let rt = Runtime::builder().workers(1).build().unwrap();
    for _ in 0..3 {
        flood(&rt, 200_000);
        support::eventually(has_trimmer, || format!("{:?}", thread_names()));
        let mut forks = 0;
        while has_trimmer() {
            // SAFETY: the child uses fibra, which is prepared for it, and ends without destructors.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends a child that hangs.
                unsafe { libc::alarm(20) };
                let rt = Runtime::builder().workers(1).build().unwrap();
                flood(&rt, 20_000);
                std::thread::sleep(Duration::from_millis(if forks % 8 == 0 { 2500 } else { 0 }));
                flood(&rt, 20_000);
                // SAFETY: ends the process.
                unsafe { libc::_exit(7) };
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: the pointer is to a local.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
            forks += 1;
        }
    }
}
