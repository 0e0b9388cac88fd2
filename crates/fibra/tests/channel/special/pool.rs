//! `pool`: never more items than its capacity; what is out comes back, whatever happens to its borrower.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{self, Pool, PoolError, PoolTimeoutError, Pooled, TryPoolError};

const LONG: Duration = Duration::from_secs(3600);

/// Items are numbered in the order of their creation; `reset` counts in the second field.
fn numbered(capacity: usize) -> Pool<(usize, usize), String> {
    let made = AtomicUsize::new(0);
    channel::pool(
        capacity,
        move || Ok((made.fetch_add(1, SeqCst), 0)),
        |item: &mut (usize, usize)| {
            item.1 += 1;
            true
        },
    )
}

// S1-83, S1-84: created on demand, reset on return, the last returned first.
#[test]
fn items_are_created_lent_and_reset() {
    let pool = numbered(2);
    assert_eq!((pool.len(), pool.idle(), pool.capacity(), pool.is_empty()), (0, 0, 2, true));
    let first = pool.get().unwrap();
    let second = pool.get().unwrap();
    assert_eq!((*first, *second, pool.len(), pool.idle()), ((0, 0), (1, 0), 2, 0));
    assert_eq!(pool.try_get().unwrap_err(), TryPoolError::Empty);
    assert_eq!(pool.get_timeout(Duration::from_millis(1)).unwrap_err(), PoolTimeoutError::Timeout);
    drop(first);
    assert_eq!((pool.len(), pool.idle()), (2, 1));
    let mut again = pool.get().unwrap();
    assert_eq!(*again, (0, 1));
    again.1 = 10;
    drop(again);
    assert_eq!(*pool.try_get().unwrap(), (0, 11));
    Pooled::discard(pool.get().unwrap());
    assert_eq!((pool.len(), pool.idle()), (1, 0));
    assert_eq!(Pooled::detach(pool.get().unwrap()), (2, 0));
    assert_eq!(pool.len(), 1);
    drop(second);
    assert_eq!((pool.len(), pool.idle()), (1, 1));
}

#[test]
fn broken_items_and_failures_leave_room() {
    let tries = AtomicUsize::new(0);
    let create = move || match tries.fetch_add(1, SeqCst) {
        0 => Err("refused"),
        1 => panic!("in create"),
        n => Ok(n),
    };
    let pool = channel::pool(1, create, |item: &mut usize| {
        assert!(*item != 3, "in reset");
        *item > 2
    });
    assert_eq!(pool.get().unwrap_err(), PoolError::Create("refused"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(pool.get())));
    assert!(caught.is_err());
    let item = pool.try_get().unwrap();
    assert_eq!(*item, 2);
    drop(item); // broken
    assert_eq!(pool.len(), 0);
    let item = pool.get().unwrap();
    assert_eq!(*item, 3);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(item))).is_err());
    assert_eq!((pool.len(), *pool.get().unwrap()), (0, 4));
    assert_eq!((pool.len(), pool.idle()), (1, 1));
    assert_eq!(PoolError::Create("refused").to_string(), "creating an item of a pool: refused");
}

#[test]
fn every_context_waits_and_is_told_of_the_end() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let pool = numbered(1);
        let held = pool.get().unwrap();
        let (a, b, c, d) = (pool.clone(), pool.clone(), pool.clone(), pool.clone());
        let fiber = fibra::spawn(move || drop(a.get().unwrap()));
        let thread = std::thread::spawn(move || drop(b.get().unwrap()));
        let task = fibra::spawn_future(async move { drop(c.get_async().await.unwrap()) });
        let arm = fibra::spawn(move || {
            fibra::select! {
                on(d.getting()) -> item => drop(item.unwrap()),
                after(LONG) => unreachable!("it comes back"),
            }
        });
        fibra::yield_now();
        drop(held);
        fiber.join().unwrap();
        task.join().unwrap();
        arm.join().unwrap();
        fibra::blocking(|| thread.join().unwrap());

        let held = pool.get().unwrap();
        let other = pool.clone();
        let waiting = fibra::spawn(move || other.get().map(drop));
        fibra::yield_now();
        pool.close();
        assert_eq!(waiting.join().unwrap(), Err(PoolError::Closed));
        assert!(pool.is_closed() && pool.try_get().is_err() && fibra::block_on(pool.get_async()).is_err());
        fibra::select! {
            on(pool.getting()) -> item => assert!(item.is_err()),
        }
        assert_eq!(held.0, 0);
        drop(held);
        assert_eq!((pool.len(), pool.idle()), (0, 0));
    });
}

// The ledger: never more items than the capacity, each with one borrower, whatever becomes of borrowers; in the end all are back.
#[test]
fn each_item_has_one_borrower() {
    let _watchdog = support::watchdog(120);
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    let pool = {
        let made = made.clone();
        channel::pool(
            3,
            move || Ok::<_, ()>((made.fetch_add(1, SeqCst), 0u32)),
            |item: &mut (usize, u32)| item.1 % 50 != 49,
        )
    };
    let borrowed: Arc<Vec<AtomicUsize>> = Arc::new((0..10_000).map(|_| AtomicUsize::new(0)).collect());
    runtime.run(|| {
        fibra::scope(|s| {
            for round in 0..2000 {
                let (pool, borrowed) = (pool.clone(), borrowed.clone());
                let borrower = s.spawn(move || {
                    let item = match round % 4 {
                        0 => pool.get().ok(),
                        1 => fibra::block_on(pool.get_async()).ok(),
                        2 => pool.get_timeout(Duration::from_micros(100)).ok(),
                        _ => fibra::select! {
                            on(pool.getting()) -> item => item.ok(),
                            after(Duration::from_micros(100)) => None,
                        },
                    };
                    let Some(mut item) = item else { return };
                    assert_eq!(borrowed[item.0].fetch_add(1, SeqCst), 0, "borrowed twice");
                    item.1 += 1;
                    // Held off: it is marked as given back before it is.
                    fibra::shield(fibra::yield_now);
                    borrowed[item.0].fetch_sub(1, SeqCst);
                    match round % 101 {
                        0 => Pooled::discard(item),
                        1 => drop(Pooled::detach(item)),
                        _ => {}
                    }
                });
                if round % 16 == 8 {
                    borrower.cancel();
                }
            }
        });
    });
    assert_eq!(pool.len(), pool.idle());
    assert!(pool.len() <= 3 && made.load(SeqCst) < 1000, "{made:?}");
}

// An item that is discarded makes room when it is gone, not before: there are never more than `capacity`.
#[test]
fn no_item_is_created_before_the_discarded_one_is_gone() {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    struct Connection;
    impl Drop for Connection {
        fn drop(&mut self) {
            fibra::sleep(Duration::from_millis(20)); // says goodbye
            THERE.fetch_sub(1, SeqCst);
        }
    }
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let open = || {
            assert_eq!(THERE.fetch_add(1, SeqCst), 0, "the other one is still there");
            Ok::<_, ()>(Connection)
        };
        let pool = channel::pool(1, open, |_: &mut Connection| false);
        for discard in [false, true] {
            let item = pool.get().unwrap();
            let other = fibra::spawn({
                let pool = pool.clone();
                move || drop(pool.get().unwrap())
            });
            fibra::yield_now();
            if discard {
                Pooled::discard(item)
            } else {
                drop(item)
            }
            other.join().unwrap();
        }
        assert_eq!((pool.len(), pool.idle(), THERE.load(SeqCst)), (0, 0, 0));
    });
}

// A borrower that is cancelled, while its item is reset or created by functions that wait: the place is free again.
#[test]
fn functions_that_wait_are_cancelled_and_let_finish() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let pool = channel::pool(
            1,
            move || {
                if called.fetch_add(1, SeqCst) == 0 {
                    fibra::sleep(LONG);
                }
                Ok::<_, ()>(7)
            },
            |_: &mut i32| {
                fibra::sleep(Duration::from_millis(2));
                true
            },
        );
        let borrower = || {
            let pool = pool.clone();
            fibra::spawn(move || {
                let _item = pool.get().unwrap();
                fibra::sleep(LONG);
            })
        };
        let until_called = |times: usize| {
            while calls.load(SeqCst) < times {
                fibra::sleep(Duration::from_micros(100));
            }
        };
        let creating = borrower();
        until_called(1);
        creating.cancel();
        assert!(creating.join().unwrap_err().is_cancelled());
        let holding = borrower();
        until_called(2);
        holding.cancel();
        assert!(holding.join().unwrap_err().is_cancelled());
        assert_eq!(**pool.get().as_ref().unwrap(), 7);
        assert_eq!((pool.len(), pool.idle()), (1, 1));
    });
}
