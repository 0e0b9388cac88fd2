//! Tests of runtimes from the inside: behaviour that the public interface does not show.
// The tests that fork are not compiled for the sanitizers, and they need most of this.
#![cfg_attr(any(fibra_asan, fibra_tsan), allow(unused_imports, dead_code))]

use super::{Runtime, run};
use crate::fiber::frame::flag;
use crate::fiber::testing::passes_in_child;
use crate::inspect::list;
use crate::monitor::fork;
use crate::prim::thread;
use crate::sched::current;
use crate::sched::here::Here;
use crate::scope::scope::scope;
use crate::task::fiber::shield;
use crate::task::{Builder, block_on, spawn};
use crate::time::sleep;
use crate::waiter::word::WaitKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

// A wait that ended before its time takes its timer back: nothing is left for the worker to wake for.
#[test]
fn a_wait_that_is_over_leaves_no_timer() {
    let rt = Runtime::builder().current_thread().build().unwrap();
    rt.run(|| {
        let (tx, rx) = crate::channel::bounded(1);
        let sender = spawn(move || tx.send(7).unwrap());
        assert_eq!(rx.recv_timeout(Duration::from_secs(3600)), Ok(7));
        sender.join().unwrap();
        assert_eq!(current::worker().unwrap().next_deadline(), None);
    });
}

// A wake for work that the worker has found by itself already: it searches in vain, and must not count as searching when it sleeps again.
#[test]
fn a_single_worker_woken_in_vain_can_be_woken_again() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let shared = rt.shared();
    let asleep = || {
        while shared.idle.sleeping() != 1 {
            thread::yield_now();
        }
    };
    for _ in 0..100 {
        asleep();
        // What `inject` does after its push, the push having been seen before.
        shared.wake_any_worker();
        asleep();
        assert_eq!(shared.idle.searching(), 0);
    }
    assert_eq!(rt.spawn(|| 7).join().unwrap(), 7);
}

// A current-thread runtime that is running already refuses another run, and loses nothing by it.
#[test]
fn a_refused_run_leaks_no_root() {
    let rt = Runtime::current_thread().unwrap();
    rt.run(|| {
        let before = rt.shared().roots_in_use();
        for _ in 0..3 {
            let second = std::thread::scope(|scope| scope.spawn(|| rt.run(|| ())).join());
            let text = *second.unwrap_err().downcast::<&str>().unwrap();
            assert!(text.contains("already running"), "{text}");
        }
        assert_eq!(rt.shared().roots_in_use(), before);
    });
    assert_eq!(rt.run(|| 7), 7);
}

#[cfg(not(any(fibra_asan, fibra_tsan)))]
/// Uses everything that the process shares: frames, names, stacks small and large, records of threads and of async waits.
fn use_everything() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let large = Builder::new().name("large").stack_size(4 << 20);
    let large = rt.handle().spawn_with(large, || 1).unwrap();
    let slow = rt.spawn(|| sleep(Duration::from_millis(1)));
    block_on(async move { slow.await.unwrap() });
    assert_eq!(rt.run(|| spawn(|| 2).join().unwrap()) + large.join().unwrap(), 3);
    list::fibers_of(rt.shared());
}

// Another thread holds the locks of the process at the moment of the fork. The fork waits for it, so the child finds them free. (Not with
// the sanitizers: their own locks and threads do not come through a fork.)
#[cfg(not(any(fibra_asan, fibra_tsan)))]
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a kept stack is a thread there, and a forked child has none of them")]
fn a_forked_child_finds_no_lock_taken() {
    passes_in_child("runtime::runtime::tests::a_forked_child_finds_no_lock_taken", &[], || {
        use_everything();
        for _ in 0..3 {
            let (tell, told) = mpsc::channel();
            let holder = std::thread::spawn(move || {
                let locks = fork::lock_everything();
                tell.send(()).unwrap();
                // Long enough that a fork which does not wait falls into it; one that waits does not care how long.
                std::thread::sleep(Duration::from_millis(30));
                drop(locks);
            });
            told.recv().unwrap();
            // SAFETY: the child uses what is under test, and leaves by `_exit`. If it hangs, the alarm ends it.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a system call without pointers.
                unsafe { libc::alarm(30) };
                let ended = catch_unwind(AssertUnwindSafe(use_everything));
                // SAFETY: ends the child without running the test harness's ends.
                unsafe { libc::_exit(i32::from(ended.is_err())) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child; `status` lives through the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "14: it hung and the alarm ended it");
            holder.join().unwrap();
            use_everything();
        }
    });
}

/// The current fiber.
fn here() -> Here<'static> {
    let worker = current::worker().expect("on a worker");
    Here::on(worker, worker.current.get().expect("on a fiber"))
}

// The grace of a scope around the shield may end after the fiber has looked and before its park is committed; the code that ends the grace
// then finds no wait, and leaves it to the worker.
#[test]
fn grace_that_ends_while_a_fiber_parks_in_a_scope_behind_a_shield_ends_its_wait() {
    run(|| {
        shield(|| {
            scope(|_| {
                let here = here();
                let flags = &here.waiter.get().flags;
                let (worker, _) = here.fiber.expect("a fiber");
                assert_eq!(worker.rules().wait_kind(here), WaitKind::Revocable);
                // SeqCst, all: a test.
                flags.announce(flag::CANCEL);
                assert!(!here.may_end_parked(WaitKind::Revocable), "through the shield");
                flags.announce(flag::OVERDUE);
                assert!(here.may_end_parked(WaitKind::Revocable), "for ever behind a shield whose time is over");
                // A fiber that unwinds is not ended, in any case.
                here.state.left_unwinding.set(true);
                assert!(!here.may_end_parked(WaitKind::Revocable), "unwound in a destructor");
                here.state.left_unwinding.set(false);
                flags.retract(flag::CANCEL | flag::OVERDUE);
            });
        });
    });
}
