//! Alarms of timed futures ring although the runtime they were set on does not run, or its only worker is stuck; and their wakers may do
//! what wakers do.
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::time::Duration;

use crate::reentrant_wakers::{poll, waker};
use crate::support::{self, watchdog};
use fibra::Runtime;
use fibra::channel::after;

/// Between two runs of a current-thread runtime no thread looks at its deadlines.
#[test]
fn an_alarm_rings_although_its_current_thread_runtime_does_not_run() {
    let _watchdog = watchdog(20);
    let rt = Runtime::current_thread().unwrap();
    let rx = after(Duration::from_millis(200));
    let mut future = rx.recv_async();
    let (calls, called) = mpsc::channel();
    let calls = Mutex::new(calls);
    let calls = waker(move || calls.lock().unwrap().send(()).unwrap());
    // If time was up before the poll, there is nothing to see here.
    if rt.run(|| poll(&mut future, &calls).is_ready()) {
        return;
    }
    loop {
        called.recv().unwrap();
        // Too early, the first time, or else the next one would come too late.
        if poll(&mut future, &calls).is_ready() {
            break;
        }
    }
    drop(rt);
}

/// The only worker waits for a thread that waits for the alarm.
#[test]
fn an_alarm_rings_although_the_only_worker_is_stuck() {
    let _watchdog = watchdog(20);
    Runtime::current_thread().unwrap().run(|| {
        let rx = after(Duration::from_millis(200));
        let mut future = rx.recv_async();
        // As above.
        if poll(&mut future, Waker::noop()).is_ready() {
            return;
        }
        // A blocking call, against all advice.
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(fibra::block_on(future).is_ok()));
        });
    });
}

/// The same if the future is not polled again: the thread that looks after the worker must have been started by then.
#[test]
fn an_alarm_of_a_stuck_run_with_one_worker_rings() {
    const TEST: &str = "an_alarm_of_a_stuck_run_with_one_worker_rings";
    if !support::is_child(TEST) {
        let ended = support::rerun_self(TEST, &[("FIBRA_WORKERS", "1")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(20);
    fibra::run(|| {
        let rx = after(Duration::from_millis(200));
        let mut future = rx.recv_async();
        let stuck = std::thread::current();
        let rung = Arc::new(AtomicBool::new(false));
        let says = rung.clone();
        let calls = waker(move || {
            says.store(true, Ordering::SeqCst);
            stuck.unpark();
        });
        // As above.
        if poll(&mut future, &calls).is_ready() {
            return;
        }
        while !rung.load(Ordering::SeqCst) {
            std::thread::park();
        }
    });
}

/// The worker is stuck, so that another thread of the runtime rings; and what rings holds the runtime.
#[test]
fn a_waker_drops_the_runtime_that_calls_it() {
    let _watchdog = watchdog(20);
    let rt = Arc::new(Mutex::new(Some(Runtime::builder().workers(2).build().unwrap())));
    let (tell, told) = mpsc::channel();
    let rung = Arc::new(AtomicBool::new(false));
    let drops = {
        let (rt, rung, tell) = (rt.clone(), rung.clone(), Mutex::new(tell));
        waker(move || {
            let rt = rt.lock().unwrap().take();
            rung.store(true, Ordering::SeqCst);
            let ended = catch_unwind(AssertUnwindSafe(|| drop(rt)));
            let _ = tell.lock().unwrap().send((std::thread::current().name().map(str::to_owned), ended.is_ok()));
        })
    };
    rt.lock().unwrap().as_ref().unwrap().spawn(move || {
        let rx = after(Duration::from_millis(30));
        let mut future = rx.recv_async();
        // As above; the other thread is told by the end of the waker.
        if poll(&mut future, &drops).is_ready() {
            return;
        }
        drop(drops);
        while !rung.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
    });
    let Ok((thread, ended)) = told.recv() else { return };
    assert!(ended, "on {thread:?}");
}

/// The thread that would ring is not there.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer does not allow threads to be started after a fork")]
fn an_alarm_of_a_thread_is_set_anew_in_the_child_of_a_fork() {
    const TEST: &str = "an_alarm_of_a_thread_is_set_anew_in_the_child_of_a_fork";
    if !support::is_child(TEST) {
        let ended = support::rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let rx = after(Duration::from_millis(500));
    let mut future = rx.recv_async();
    // As above.
    if poll(&mut future, Waker::noop()).is_ready() {
        return;
    }
    // SAFETY: the child does what is under test, which has to work there, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(20);
            assert!(fibra::block_on(future).is_ok());
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child ended with status {status:#x}");
    }
}
