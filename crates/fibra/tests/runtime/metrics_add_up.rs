//! Metrics: the numbers add up when everything has come to its end.

use std::time::Duration;

use crate::support::{eventually, watchdog};
use crate::tools::{Counter, Event, many};
use fibra::{Metrics, WorkerMetrics};

fn sum(metrics: &Metrics, field: fn(&WorkerMetrics) -> u64) -> u64 {
    metrics.workers.iter().map(field).sum()
}

// S0-62: spawned is ended, no fiber is alive or parked, and the workers' numbers are the runtime's.
#[test]
fn the_numbers_add_up_at_the_end() {
    let _watchdog = watchdog(120);
    for workers in [1, 3] {
        let rt = fibra::Runtime::builder().workers(workers).build().unwrap();
        assert_eq!(rt.metrics().workers.len(), workers);
        let count = many(1_000) as u64;
        rt.run(|| {
            let event = Event::new();
            let fibers: Vec<_> = (0..count)
                .map(|index| {
                    let event = event.clone();
                    fibra::spawn(move || match index % 5 {
                        0 => fibra::yield_now(),
                        1 => fibra::sleep(Duration::from_micros(index)),
                        2 => event.wait(),
                        3 => fibra::blocking(|| ()),
                        _ => fibra::spawn(|| ()).join().unwrap(),
                    })
                })
                .collect();
            let tasks: Vec<_> = (0..count / 10)
                .map(|_| {
                    let event = event.clone();
                    fibra::spawn_future(async move { event.happened().await })
                })
                .collect();
            let begun = Event::new();
            let begins = begun.clone();
            let sleeper = fibra::spawn(move || {
                begins.set();
                fibra::sleep(Duration::from_secs(36_000));
            });
            std::thread::spawn(move || event.set()).join().unwrap();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            tasks.into_iter().for_each(|task| task.join().unwrap());
            // One that has not begun would not unwind.
            begun.wait();
            sleeper.cancel();
            assert!(sleeper.join().unwrap_err().is_cancelled());
        });
        let outside: Vec<_> = (0..100).map(|_| rt.spawn(|| ())).collect();
        outside.into_iter().for_each(|fiber| fiber.join().unwrap());
        // A fiber is counted as ended on its worker before its joiner goes on; a waker's helper fiber may end a moment later.
        eventually(|| rt.metrics().live == 0, || format!("{:?}", rt.metrics()));
        let metrics = rt.metrics();
        let spawned = count + count / 5 + count / 10 + 1 + 1 + 100;
        assert!(metrics.spawned >= spawned, "{} of {spawned}", metrics.spawned);
        assert_eq!(metrics.spawned, sum(&metrics, |worker| worker.ended));
        assert_eq!((metrics.parked, metrics.live), (0, 0));
        assert_eq!(sum(&metrics, |worker| worker.started), 0);
        assert_eq!(sum(&metrics, |worker| worker.parked), 0);
        assert!(metrics.workers.iter().all(|worker| worker.queued == 0));
        assert_eq!(metrics.switches, sum(&metrics, |worker| worker.switches));
        assert_eq!(metrics.stolen, sum(&metrics, |worker| worker.stolen));
        assert_eq!(metrics.wakes_local, sum(&metrics, |worker| worker.wakes_local));
        assert_eq!(metrics.wakes_remote, sum(&metrics, |worker| worker.wakes_remote));
        assert_eq!(metrics.wakes_timer, sum(&metrics, |worker| worker.wakes_timer));
        assert!(metrics.switches >= spawned);
        assert_eq!(metrics.cancellations, 1);
        assert_eq!((metrics.detached_panics, metrics.blocking_queued), (0, 0));
        assert!(metrics.blocking_peak > 0);
        assert!(metrics.workers.iter().enumerate().all(|(index, worker)| worker.index == index));
    }
}

// S0-26: a waiter is counted as parked, fibers and tasks alike, and no more afterwards.
#[test]
fn those_who_wait_are_counted() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).build().unwrap();
    let event = Event::new();
    let (fibers, tasks) = (many(500) as u64, 300);
    let waiters: Vec<_> = (0..fibers)
        .map(|_| {
            let event = event.clone();
            rt.spawn(move || event.wait())
        })
        .collect();
    let _entered = rt.handle().enter();
    let futures: Vec<_> = (0..tasks)
        .map(|_| {
            let event = event.clone();
            fibra::spawn_future(async move { event.happened().await })
        })
        .collect();
    // The tasks count as parked from their spawn on; wait until they have asked, and the fibers are parked.
    eventually(
        || event.waiting() as u64 == fibers + tasks && rt.metrics().parked == fibers + tasks,
        || format!("{:?}", rt.metrics()),
    );
    assert_eq!(rt.metrics().live, fibers + tasks);
    assert_eq!(sum(&rt.metrics(), |worker| worker.started), fibers, "a task that waits has no stack");
    let before = rt.metrics();
    event.set();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    futures.into_iter().for_each(|future| future.join().unwrap());
    let after = rt.metrics();
    assert_eq!((after.parked, after.live), (0, 0));
    // A thread woke them: each fiber through its worker's inbox.
    assert_eq!(after.wakes_remote - before.wakes_remote, fibers);
}

// S0-70, S1-103: sleepers are woken by timers, local wakes are local, detached panics are counted.
#[test]
fn wakes_are_counted_by_their_kind() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    rt.run(|| (0..10).for_each(|_| fibra::sleep(Duration::from_millis(1))));
    assert!((1..=10).contains(&rt.metrics().wakes_timer), "{:?}", rt.metrics());
    let local = rt.metrics().wakes_local;
    rt.run(|| {
        let (ping, pong) = (Counter::new(), Counter::new());
        let other = {
            let (ping, pong) = (ping.clone(), pong.clone());
            fibra::spawn_local(move || {
                for round in 1..=100 {
                    ping.wait(round);
                    pong.add(1);
                }
            })
        };
        for round in 1..=100 {
            ping.add(1);
            pong.wait(round);
        }
        other.join().unwrap();
    });
    assert!(rt.metrics().wakes_local >= local + 199, "{:?}", rt.metrics());
    assert_eq!(rt.metrics().wakes_remote, 0);
    rt.run(|| drop(fibra::spawn(|| std::panic::resume_unwind(Box::new("no joiner is told")))));
    assert_eq!(rt.metrics().detached_panics, 1);
}
