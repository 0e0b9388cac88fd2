//! `watch`: receivers see the latest value and each sees that it changed; no receiver is left waiting.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::time::Duration;

use crate::support;
use fibra::channel::{self, RecvError, RecvTimeoutError};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_change_is_seen_once_by_each() {
    let (tx, rx) = channel::watch(1);
    let other = rx.clone();
    assert!(!rx.has_changed());
    tx.send(2).unwrap();
    tx.send(3).unwrap();
    assert!(rx.has_changed() && other.has_changed());
    assert_eq!((rx.changed(), rx.get()), (Ok(()), 3));
    assert!(!rx.has_changed() && other.has_changed());
    assert!(!tx.subscribe().has_changed(), "a new one has seen the present value");
    assert_eq!(*other.borrow_and_update(), 3);
    assert_eq!(other.try_changed(), Ok(false));
    assert_eq!(other.changed_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    drop(tx);
    assert_eq!(other.changed(), Err(RecvError));
    assert_eq!(other.get(), 3, "the last value stays");
}

#[test]
fn fibers_threads_and_futures_are_told() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::watch(0);
        let (a, b, c, d) = (rx.clone(), rx.clone(), rx.clone(), rx);
        let fiber = fibra::spawn(move || a.changed().map(|()| a.get()));
        let thread = std::thread::spawn(move || b.changed().map(|()| b.get()));
        let task = fibra::spawn_future(async move { c.changed_async().await.map(|()| c.get()) });
        let arm = fibra::spawn(move || {
            fibra::select! {
                on(d.changing()) -> changed => changed.map(|()| d.get()),
                after(LONG) => unreachable!("it changes"),
            }
        });
        fibra::yield_now();
        tx.modify(|value| *value = 7);
        assert_eq!((fiber.join().unwrap(), task.join().unwrap(), arm.join().unwrap()), (Ok(7), Ok(7), Ok(7)));
        assert_eq!(fibra::blocking(|| thread.join().unwrap()), Ok(7));
    });
}

#[test]
fn wait_for_sees_the_last_value() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for round in 0..200 {
            let (tx, rx) = channel::watch(0);
            let other = rx.clone();
            let waiting = fibra::spawn(move || rx.wait_for(|value| *value == 3).map(|value| *value));
            let task = fibra::spawn_future(async move { other.wait_for_async(|value| *value == 3).await });
            if round % 2 == 0 {
                fibra::yield_now();
            }
            for value in 1..=3 {
                tx.replace(value);
            }
            drop(tx); // and the senders are gone
            assert_eq!((waiting.join().unwrap(), task.join().unwrap()), (Ok(3), Ok(3)));
        }
        let (tx, rx) = channel::watch(0);
        assert!(
            rx.wait_for_timeout(|value| *value == 1, Duration::from_millis(1)).is_err_and(|error| error.is_timeout())
        );
        drop(tx);
        assert!(rx.wait_for(|value| *value == 1).is_err());
    });
}

#[test]
fn a_sender_learns_that_receivers_are_gone() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::watch(0);
        assert!(!tx.closed_timeout(Duration::ZERO));
        let other = rx.clone();
        drop(rx);
        let sender = tx.clone();
        let waiting = fibra::spawn(move || sender.closed());
        fibra::yield_now();
        assert!(!waiting.is_finished() && !tx.is_closed());
        drop(other);
        waiting.join().unwrap();
        assert_eq!(tx.send(1).unwrap_err().into_inner(), 1);
        fibra::select! {
            on(tx.closing()) => {}
        }
        fibra::block_on(tx.closed_async());
        let again = tx.subscribe();
        assert!(!tx.is_closed());
        tx.send(2).unwrap();
        assert_eq!(again.get(), 2);
    });
}

// The ledger: each receiver sees values that only grow, ends with the last one, and is told of it.
#[test]
fn values_grow_and_the_last_one_arrives() {
    let _watchdog = support::watchdog(120);
    const LAST: u64 = 3000;
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::watch(0u64);
        let watchers: Vec<_> = (0..4)
            .map(|way| {
                let rx = rx.clone();
                fibra::spawn(move || {
                    let (mut last, mut changes) = (0, 0u64);
                    loop {
                        let changed = match way {
                            0 => rx.changed(),
                            1 => fibra::block_on(rx.changed_async()),
                            2 => fibra::select! { on(rx.changing()) -> changed => changed },
                            _ => match rx.changed_timeout(Duration::from_micros(50)) {
                                Err(RecvTimeoutError::Timeout) => continue,
                                other => other.map_err(|_| RecvError),
                            },
                        };
                        if changed.is_err() {
                            return (last, changes);
                        }
                        let value = rx.get();
                        assert!(value >= last, "{value} after {last}");
                        last = value;
                        changes += 1;
                    }
                })
            })
            .collect();
        for value in 1..=LAST {
            assert!(tx.send_if_modified(|old| std::mem::replace(old, value) < value));
            if value % 64 == 0 {
                fibra::yield_now();
            }
        }
        drop(tx);
        for watcher in watchers {
            let (last, changes) = watcher.join().unwrap();
            assert_eq!(last, LAST);
            assert!((1..=LAST).contains(&changes));
        }
    });
}

// A receiver that is shared: what another one notes as seen does not keep a value from one that waits for it.
#[test]
fn a_value_that_was_seen_elsewhere_is_still_waited_for() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::builder().workers(1).build().unwrap().run(|| {
        let (tx, rx) = channel::watch(0);
        let rx = std::sync::Arc::new(rx);
        let (by_fiber, by_task) = (rx.clone(), rx.clone());
        let fiber = fibra::spawn(move || by_fiber.wait_for(|value| *value == 1).map(|value| *value));
        let task = fibra::spawn_future(async move { by_task.wait_for_async(|value| *value == 1).await });
        fibra::sleep(std::time::Duration::from_millis(5)); // both wait
        tx.send(1).unwrap();
        assert_eq!(rx.try_changed(), Ok(true));
        assert_eq!((fiber.join().unwrap(), task.join().unwrap()), (Ok(1), Ok(1)));
    });
}

// What was borrowed and noted as seen is not news again.
#[test]
fn a_change_is_told_once_stress() {
    let _watchdog = support::watchdog(60);
    let (tx, rx) = channel::watch(0);
    let sending = std::thread::spawn(move || (1..=200_000).for_each(|n| tx.send(n).unwrap()));
    loop {
        let seen = *rx.borrow_and_update();
        if rx.changed().is_err() {
            break;
        }
        assert!(rx.get() > seen, "{seen} was seen");
    }
    sending.join().unwrap();
}
