//! Futures as tasks: they may make blocking calls inside a poll, move between polls, and are cancelled wherever they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::Runtime;

// S4-05, S4-19: a blocking call inside a poll parks the stack it runs on, as in any fiber.
#[test]
fn a_poll_may_make_blocking_calls() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for _ in 0..100 {
        let sum: u64 = runtime.run(|| {
            let tasks: Vec<_> = (0..10u64)
                .map(|i| {
                    fibra::spawn_future(async move {
                        let local = [i; 8];
                        let child = fibra::spawn(move || {
                            fibra::sleep(Duration::from_micros(50));
                            i
                        });
                        let joined = child.join().unwrap();
                        fibra::yield_now();
                        fibra::sleep(Duration::from_micros(10));
                        let blocked = fibra::blocking(|| local[7]);
                        let other = fibra::spawn(move || i);
                        let awaited = other.await.unwrap();
                        assert!(joined == i && blocked == i && awaited == i);
                        i
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).sum()
        });
        assert_eq!(sum, 45);
    }
}

// S4-15, S4-103: cancelled inside such a call, the poll unwinds; between polls, the future is dropped.
#[test]
fn a_task_is_cancelled_wherever_it_is() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    for blocking in [true, false] {
        let started = Arc::new(AtomicBool::new(false));
        let dropped = Arc::new(AtomicBool::new(false));
        struct Flag(Arc<AtomicBool>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let flag = Flag(dropped.clone());
        let starts = started.clone();
        let _entered = runtime.handle().enter();
        let task = fibra::spawn_future(async move {
            let _flag = flag;
            starts.store(true, SeqCst);
            if blocking {
                fibra::sleep(Duration::from_secs(3600));
            } else {
                std::future::pending::<()>().await;
            }
        });
        support::eventually(|| started.load(SeqCst), || "it does not start".to_owned());
        support::eventually(|| runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
        task.cancel();
        assert!(task.join().unwrap_err().is_cancelled());
        assert!(dropped.load(SeqCst));
    }
}

// S4-15: shutdown cancels tasks too.
#[test]
fn shutdown_cancels_tasks() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let entered = runtime.handle().enter();
    let tasks: Vec<_> = (0..50).map(|_| fibra::spawn_future(std::future::pending::<()>())).collect();
    drop(entered);
    drop(runtime);
    for task in tasks {
        assert!(task.join().unwrap_err().is_cancelled());
    }
}

// a poll that panics is a panic of the task.
#[test]
fn a_poll_that_panics_is_a_panic_of_the_task() {
    fibra::run(|| {
        let task = fibra::spawn_future(async {
            fibra::spawn(|| ()).await.unwrap();
            panic!("in a poll");
        });
        let error: fibra::JoinError = task.join().map(|(): ()| ()).unwrap_err();
        assert!(error.is_panic() && error.message() == "in a poll");
    });
}
