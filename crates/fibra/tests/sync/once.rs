//! `Once`, `OnceLock`, `LazyLock`: once, however many come; and if that fails, the next one.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{panic_of, until_parked, watchdog, workers};
use fibra::sync::{Event, LazyLock, Once, OnceLock};
use fibra::time::Instant;

const LONG: Duration = Duration::from_secs(3600);

// Fibers, threads and futures at once; the one who makes it parks meanwhile.
#[test]
fn made_once_and_seen_by_all() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    for _ in 0..50 {
        let (value, made) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let make = |made: &AtomicUsize| {
            fibra::sleep(Duration::from_micros(50));
            made.fetch_add(1, SeqCst);
            "made".to_owned()
        };
        let fibers: Vec<_> = (0..4)
            .map(|way| {
                let (value, made) = (value.clone(), made.clone());
                rt.spawn(move || match way {
                    0 => fibra::block_on(value.get_or_init_async(|| async { make(&made) })).clone(),
                    1 => value.wait().clone(),
                    _ => value.get_or_init(|| make(&made)).clone(),
                })
            })
            .collect();
        let (here, counted) = (value.clone(), made.clone());
        let thread = std::thread::spawn(move || here.get_or_init(|| make(&counted)).clone());
        assert_eq!(thread.join().unwrap(), "made");
        fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), "made"));
        assert_eq!(made.load(SeqCst), 1);
    }
}

#[test]
fn a_caller_that_fails_is_followed_by_the_next() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    // Cancelled, panicked, an error, a dropped future: and each time a caller waits already.
    for way in 0..4 {
        let value = Arc::new(OnceLock::new());
        let (go, wait) = fibra::channel::bounded::<()>(1);
        let first = rt.spawn({
            let value = value.clone();
            move || match way {
                0 => assert_eq!(
                    value.get_or_init(|| {
                        fibra::sleep(LONG);
                        0
                    }),
                    &0
                ),
                1 => assert_eq!(
                    value.get_or_init(|| {
                        wait.recv().unwrap();
                        panic!("on purpose")
                    }),
                    &0
                ),
                2 => assert!(
                    value
                        .get_or_try_init(|| {
                            wait.recv().unwrap();
                            Err::<u32, ()>(())
                        })
                        .is_err()
                ),
                _ => {
                    let mut future = Box::pin(value.get_or_init_async(std::future::pending));
                    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    wait.recv().unwrap();
                }
            }
        });
        until_parked(&rt, 1);
        let second = rt.spawn({
            let value = value.clone();
            move || *value.get_or_init(|| 7)
        });
        let future = rt.spawn({
            let value = value.clone();
            move || *fibra::block_on(value.get_or_init_async(|| async { 7 }))
        });
        let waiting = rt.spawn({
            let value = value.clone();
            move || *value.wait()
        });
        until_parked(&rt, 4);
        // One that waits leaves, too.
        let third = rt.spawn({
            let value = value.clone();
            move || *value.get_or_init(|| 9)
        });
        until_parked(&rt, 5);
        third.cancel();
        assert!(third.join().is_err());
        if way == 0 {
            first.cancel()
        } else {
            go.send(()).unwrap()
        }
        assert_eq!(first.join().is_err(), way < 2);
        assert_eq!((second.join().unwrap(), future.join().unwrap(), waiting.join().unwrap()), (7, 7, 7), "way {way}");
    }
}

#[test]
fn asking_for_itself_is_a_clear_panic() {
    let value = OnceLock::new();
    let said = panic_of(|| assert_eq!(value.get_or_init(|| *value.get_or_init(|| 1)), &1));
    assert!(said.contains("asks for itself"), "{said}");
    assert_eq!(value.get_or_init(|| 2), &2, "it was not made");
    let once = Once::new();
    let said = panic_of(|| once.call_once(|| once.call_once(|| {})));
    assert!(said.contains("asks for itself"), "{said}");
    static LOOP: LazyLock<u32> = LazyLock::new(|| *LOOP + 1);
    fibra::run(|| assert!(panic_of(|| assert_eq!(LazyLock::force(&LOOP), &0)).contains("asks for itself")));
}

#[test]
fn once_is_once() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    let (once, calls) = (Arc::new(Once::new()), Arc::new(AtomicUsize::new(0)));
    assert!(!once.is_completed() && !once.wait_timeout(Duration::ZERO));
    assert!(panic_of(|| once.call_once(|| panic!("on purpose"))).contains("on purpose"));
    let waiting = rt.spawn({
        let once = once.clone();
        move || once.wait()
    });
    let awaiting = rt.spawn({
        let once = once.clone();
        move || fibra::block_on(once.wait_async())
    });
    until_parked(&rt, 2);
    let fibers: Vec<_> = (0..8)
        .map(|_| {
            let (once, calls) = (once.clone(), calls.clone());
            rt.spawn(move || {
                once.call_once(|| {
                    fibra::yield_now();
                    calls.fetch_add(1, SeqCst);
                });
                assert!(once.is_completed());
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    waiting.join().unwrap();
    awaiting.join().unwrap();
    assert_eq!(calls.load(SeqCst), 1);
    assert!(once.wait_timeout(Duration::MAX));
    println!("{once:?}");
}

#[test]
fn shapes_of_std() {
    let mut value = OnceLock::new();
    assert!(value.get().is_none() && value.get_mut().is_none() && value.take().is_none());
    assert_eq!(value.set(1), Ok(()));
    assert_eq!(value.set(2), Err(2));
    *value.get_mut().unwrap() += 10;
    assert_eq!(value.clone(), value);
    assert_eq!(format!("{value:?} {:?}", OnceLock::<u32>::new()), "OnceLock(11) OnceLock(<uninit>)");
    assert_eq!(value.take(), Some(11));
    assert_eq!(value.get(), None);
    assert_eq!(value.set(3), Ok(()));
    assert_eq!(value.into_inner(), Some(3));
    assert_eq!(OnceLock::from(5).get(), Some(&5));
    assert_eq!(OnceLock::<u32>::default().wait_timeout(Duration::ZERO), None);
    // Dropped once, whether set or not.
    let counted = Arc::new(());
    drop(OnceLock::from(counted.clone()));
    drop(OnceLock::<Arc<()>>::new());
    let mut taken = OnceLock::from(counted.clone());
    drop(taken.take());
    drop(taken);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn lazy_values_are_made_once_or_never() {
    let _watchdog = watchdog(60);
    let rt = workers(2);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static GO: Event = Event::new();
    static LAZY: LazyLock<usize> = LazyLock::new(|| {
        GO.wait();
        MADE.fetch_add(1, SeqCst)
    });
    assert_eq!(LazyLock::get(&LAZY), None);
    // The first is cancelled while it makes it, and makes it all the same; another one while it waits.
    let first = rt.spawn(|| *LAZY);
    until_parked(&rt, 1);
    let (second, third) = (rt.spawn(|| *LAZY), rt.spawn(|| *LAZY));
    until_parked(&rt, 3);
    first.cancel();
    third.cancel();
    assert!(third.join().unwrap_err().is_cancelled());
    assert!(!first.is_finished() && !second.is_finished());
    GO.set();
    assert_eq!(*LAZY, 0);
    drop(first.join());
    assert_eq!((second.join().unwrap(), MADE.load(SeqCst)), (0, 1));
    println!("{:?}", LAZY);
    let broken: LazyLock<u32> = LazyLock::new(|| panic!("on purpose"));
    assert!(panic_of(|| assert_eq!(LazyLock::force(&broken), &0)).contains("on purpose"));
    assert!(panic_of(|| assert_eq!(LazyLock::force(&broken), &0)).contains("has no value"));
    assert!(format!("{broken:?}").contains("uninit"));
}

#[test]
fn an_async_initialiser_that_is_polled_on_goes_on() {
    let value = OnceLock::new();
    let (tx, rx) = fibra::channel::bounded::<u32>(1);
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = pin!(value.get_or_init_async(|| async { rx.recv_async().await.unwrap() }));
    let mut second = pin!(value.get_or_init_async(|| async { 9 }));
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    tx.send(4).unwrap();
    assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(&4));
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(&4));
}

#[test]
fn stress_failing_initialisers() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let (value, made) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let fibers: Vec<_> = (0..8)
            .map(|way| {
                let (value, made) = (value.clone(), made.clone());
                rt.spawn(move || {
                    let _ = value.get_or_try_init(|| {
                        fibra::yield_now();
                        if way % 2 == 0 {
                            return Err(());
                        }
                        made.fetch_add(1, SeqCst);
                        Ok(way)
                    });
                })
            })
            .collect();
        fibers[3].cancel();
        fibers[4].cancel();
        fibers.into_iter().for_each(|fiber| drop(fiber.join()));
        assert_eq!(made.load(SeqCst), 1);
        assert!(value.get().is_some());
    }
}
