//! A task may block inside a poll, and is cancelled there or between two polls.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::time::Duration;

use crate::support::{within_a_minute, workers};

const HOUR: Duration = Duration::from_secs(3600);

// A poll that blocks: the fiber is woken on its own stack, not started anew on another one.
#[test]
fn a_task_may_block_in_its_poll() {
    within_a_minute(|| {
        for count in [1, 2] {
            let rt = workers(count);
            rt.run(|| {
                let tasks: Vec<_> = (0..20u64)
                    .map(|i| {
                        fibra::spawn_future(async move {
                            let child = fibra::spawn(move || {
                                fibra::sleep(Duration::from_millis(1));
                                i
                            });
                            let joined = child.join().unwrap();
                            joined + fibra::blocking(move || i)
                        })
                    })
                    .collect();
                for (i, task) in tasks.into_iter().enumerate() {
                    assert_eq!(task.join().unwrap(), 2 * i as u64);
                }
            });
        }
    });
}

// A task that waits inside its poll can be cancelled there.
#[test]
fn a_task_that_blocks_in_its_poll_can_be_cancelled() {
    within_a_minute(|| {
        workers(2).run(|| {
            let task = fibra::spawn_future(async { fibra::sleep(HOUR) });
            fibra::sleep(Duration::from_millis(5));
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        });
    });
}

// A pending task can be cancelled, and a runtime with pending tasks can be dropped.
#[test]
fn a_pending_task_can_be_cancelled() {
    within_a_minute(|| {
        let rt = workers(2);
        rt.run(|| {
            let task = fibra::spawn_future(std::future::pending::<()>());
            fibra::sleep(Duration::from_millis(5));
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        });
        let _entered = rt.handle().enter();
        let left = fibra::spawn_future(std::future::pending::<()>());
        rt.run(|| fibra::sleep(Duration::from_millis(5)));
        drop(rt);
        assert!(left.join().unwrap_err().is_cancelled());
    });
}
