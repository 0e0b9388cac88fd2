//! Unit tests of how starts of threads wait for each other.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::{AMPLE, Found, MANY, ONE_AT_A_TIME, SOME, STACK, Starting, Starts, take_mappings};
use crate::fiber::testing::{passes_in_child, status_bytes};
use crate::prim::instant::Instant;
use crate::prim::page_size;

/// Begins `count` starts while one that began before is on its way. How many did so within that time?
fn begin_beside_one_on_its_way(count: usize, within: Duration) -> usize {
    let (begun, all) = mpsc::channel();
    let first = Starting::begin().unwrap();
    let others = std::thread::spawn(move || {
        for _ in 0..count {
            begun.send(Starting::begin().unwrap()).unwrap();
        }
    });
    let until = Instant::now() + within;
    let mut on_their_way = Vec::new();
    while on_their_way.len() < count {
        match all.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(starting) => on_their_way.push(starting),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends as many as are asked for"),
        }
    }
    let count = on_their_way.len();
    // All come to their bodies.
    drop((first, on_their_way));
    all.iter().for_each(drop);
    others.join().unwrap();
    count
}

/// So many begin beside one that is on its way, if this was found before.
#[track_caller]
fn all_begin_beside_one_on_its_way(count: usize, found: impl Fn() -> Found) {
    let mut most = 0;
    // Other tests may use up what is found; and it counts for a short time only.
    for _ in 0..20 {
        ONE_AT_A_TIME.lock().found = found();
        most = most.max(begin_beside_one_on_its_way(count, Duration::from_secs(1)));
        if most == count {
            return;
        }
    }
    panic!("{most} of {count}");
}

#[test]
fn many_threads_start_while_one_does_not_come_to_its_body() {
    all_begin_beside_one_on_its_way(MANY / 2, || Found::UsedUp(Instant::now()));
}

#[test]
fn what_was_used_up_soon_is_looked_for_in_greater_number() {
    let mut starts = Starts { ready: Vec::new(), found: Found::Nothing };
    // Room for this is in every process in which the tests run.
    starts.look_for_enough().unwrap();
    assert!(matches!(starts.found, Found::Enough(left, _) if left == SOME - 1));
    starts.found = Found::Enough(SOME - 1, Instant::now());
    for _ in 1..SOME {
        assert!(starts.has_enough());
    }
    assert!(!starts.has_enough() && matches!(starts.found, Found::UsedUp(_)));
    starts.look_for_enough().unwrap();
    assert!(matches!(starts.found, Found::Enough(left, _) if left == MANY - 1));
}

/// What the process has, and so much more.
fn limit_address_space(more: usize) {
    let limit = libc::rlimit { rlim_cur: (status_bytes("VmSize") + more) as u64, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

// What a start takes to see whether there is room may be all that a thread on its way can have.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "a sanitizer needs address space itself")]
fn where_address_space_is_scarce_threads_start_one_after_another() {
    let test = "prim::thread::starting::tests::where_address_space_is_scarce_threads_start_one_after_another";
    passes_in_child(test, &[], || {
        limit_address_space(SOME / 2 * AMPLE);
        assert_eq!(begin_beside_one_on_its_way(1, Duration::from_millis(100)), 0);
        // A limit that is far away holds up no start.
        limit_address_space(2 * MANY * AMPLE);
        all_begin_beside_one_on_its_way(SOME / 2, || Found::Nothing);
    });
}

#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "a sanitizer needs address space itself")]
fn mappings_that_cannot_be_looked_for_are_refused_if_a_thread_could_start() {
    let test = "prim::thread::starting::tests::mappings_that_cannot_be_looked_for_are_refused_if_a_thread_could_start";
    passes_in_child(test, &[], || {
        let many = 4 * STACK / page_size();
        limit_address_space(2 * STACK);
        take_mappings(many, || Ok(())).expect_err("there is no room to look for so many");
        limit_address_space(STACK / 2);
        take_mappings(many, || Ok(())).expect("no thread can start");
    });
}
