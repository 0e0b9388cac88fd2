//! Futures that wait among fibers: they keep their place, pass on a call that they do not need, end with their channel, and outlive the
//! runtime they were polled on. What is refused is dropped once, on the thread it belongs to.
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::reentrant_wakers::{Counted, poll, waker};
use crate::support::watchdog;
use fibra::channel::{Receiver, RecvError, Select, Sender, after, bounded, rendezvous, tick};
use fibra::select;

/// The first waiter is served first, also if it is a future: a fiber behind it took what it was called for, each time.
#[test]
fn futures_keep_their_place_among_fibers() {
    let _watchdog = watchdog(20);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let quiet = waker(|| ());
        // The others run until they wait: on one thread that is an order, not a matter of time.
        let others_run = || (0..8).for_each(|_| fibra::yield_now());
        let (tx, rx) = bounded::<u32>(2);
        let mut future = rx.recv_async();
        assert!(poll(&mut future, &quiet).is_pending());
        let behind = rx.clone();
        let fiber = fibra::spawn(move || behind.recv().unwrap());
        others_run();
        tx.try_send(1).unwrap();
        others_run();
        assert_eq!(poll(&mut future, &quiet), Poll::Ready(Ok(1)));
        // Called and dropped: the next one gets it.
        let mut future = rx.recv_async();
        assert!(poll(&mut future, &quiet).is_pending());
        tx.try_send(2).unwrap();
        drop(future);
        assert_eq!(fiber.join().unwrap(), 2);

        // The same for places.
        let (tx, rx) = bounded::<u32>(1);
        tx.try_send(0).unwrap();
        let mut first = tx.reserve_async();
        assert!(poll(&mut first, &quiet).is_pending());
        let behind = tx.clone();
        let fiber = fibra::spawn(move || behind.send(9).unwrap());
        others_run();
        assert_eq!(rx.try_recv(), Ok(0));
        others_run();
        let Poll::Ready(Ok(permit)) = poll(&mut first, &quiet) else { panic!("it came first") };
        permit.send(8);
        assert_eq!((rx.recv(), rx.recv()), (Ok(8), Ok(9)));
        fiber.join().unwrap();
    });
}

/// Several values and several futures, called in any order, dropped or polled: none is left behind.
#[test]
fn called_futures_that_go_pass_the_call_on() {
    let _watchdog = watchdog(20);
    for pattern in 0..64_u32 {
        let (tx, rx) = bounded::<u32>(3);
        let called: Vec<_> = (0..6).map(|_| Arc::new(AtomicBool::new(false))).collect();
        let wakers: Vec<_> = called
            .iter()
            .map(|called| {
                let called = called.clone();
                waker(move || called.store(true, Ordering::SeqCst))
            })
            .collect();
        let mut futures: Vec<_> = (0..6).map(|_| Some(rx.recv_async())).collect();
        for (future, waker) in futures.iter_mut().zip(&wakers) {
            assert!(poll(future.as_mut().unwrap(), waker).is_pending());
        }
        for value in 0..3 {
            tx.try_send(value).unwrap();
        }
        // Those whose bit is set go when they are called; the others take what they find.
        let mut got = Vec::new();
        let mut progress = true;
        while mem::take(&mut progress) {
            for (index, future) in futures.iter_mut().enumerate() {
                if !called[index].swap(false, Ordering::SeqCst) {
                    continue;
                }
                progress = true;
                if pattern >> index & 1 == 1 {
                    *future = None;
                } else if let Some(waiting) = future
                    && let Poll::Ready(value) = poll(waiting, &wakers[index])
                {
                    got.push(value.unwrap());
                    *future = None;
                }
            }
        }
        let takers = 6 - pattern.count_ones() as usize;
        assert_eq!(got, (0..takers.min(3) as u32).collect::<Vec<_>>(), "{pattern:06b}");
        assert_eq!(rx.len(), 3 - got.len());
    }
}

/// A select that waits at both ends of one channel kept itself from seeing the close: its own send counted as something to come.
#[test]
fn close_ends_a_select_at_both_ends_of_one_channel() {
    let _watchdog = watchdog(20);
    for now in [false, true] {
        let (tx, rx) = rendezvous::<u32>();
        let (close, closer) = (tx.clone(), std::thread::current());
        let waits = Arc::new(AtomicBool::new(false));
        let about_to = waits.clone();
        let selecting = std::thread::spawn(move || {
            let value = 3;
            about_to.store(true, Ordering::SeqCst);
            closer.unpark();
            select! {
                send(tx, value) -> sent => sent.is_err(),
                recv(rx) -> got => got.is_err(),
            }
        });
        while !waits.load(Ordering::SeqCst) {
            std::thread::park();
        }
        // Best effort to find it parked; both orders have to end.
        std::thread::sleep(Duration::from_millis(20));
        if now {
            close.close_now();
        } else {
            close.close();
        }
        assert!(selecting.join().unwrap(), "no other waiter is there");
    }
}

/// The future of a receiver that time feeds never heard of its end.
#[test]
fn close_ends_a_timed_future() {
    let _watchdog = watchdog(20);
    for rx in [after(Duration::from_secs(3600)), tick(Duration::from_secs(3600))] {
        let called = Arc::new(AtomicUsize::new(0));
        let counts = called.clone();
        let waker = waker(move || {
            counts.fetch_add(1, Ordering::SeqCst);
        });
        let mut future = rx.recv_async();
        assert!(poll(&mut future, &waker).is_pending());
        rx.close();
        assert_eq!(called.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Err(RecvError)));
        assert_eq!(fibra::block_on(rx.recv_async()), Err(RecvError));
    }
}

/// An alarm that lived on a runtime died with it, and its future waited for ever.
#[test]
fn a_timed_future_outlives_the_runtime_it_was_polled_on() {
    let _watchdog = watchdog(20);
    let rx = after(Duration::from_millis(30));
    let future = RefCell::new(rx.recv_async());
    let quiet = waker(|| ());
    let pending = {
        let rx: &Receiver<_> = &rx;
        let mut first = rx.recv_async();
        let pending = fibra::run(|| {
            let pending = poll(&mut *future.borrow_mut(), &quiet).is_pending();
            pending && poll(&mut first, &quiet).is_pending()
        });
        drop(first);
        pending
    };
    if pending {
        assert!(fibra::block_on(future.into_inner()).is_ok());
    }
}

/// A future that moves from one task to another at the moment its alarm rings: the second waker came too late for it.
#[test]
fn a_timed_future_that_changes_hands_is_called() {
    let _watchdog = watchdog(30);
    for round in 0..60_u64 {
        let rx = after(Duration::from_micros(200 + 7 * round));
        let mut future = rx.recv_async();
        let quiet = waker(|| ());
        // Polled with wakers that do nothing, until the moment is near or over; then in earnest.
        let until = std::time::Instant::now() + Duration::from_micros(150 + 7 * round + round % 11 * 10);
        let mut ready = false;
        while !ready && std::time::Instant::now() < until {
            ready = poll(&mut future, &quiet).is_ready();
        }
        if !ready {
            assert!(fibra::block_on(future).is_ok());
        }
    }
}

/// Several who wait for one moment: one gets it, for the others it is at its end; a ticker serves them all in turn.
#[test]
fn timed_receivers_with_clones() {
    let _watchdog = watchdog(30);
    fibra::run(|| {
        let once = after(Duration::from_millis(5));
        let handles: Vec<_> = (0..4)
            .map(|_| {
                let once = once.clone();
                fibra::spawn(move || once.recv_timeout(Duration::from_millis(60)).is_ok())
            })
            .collect();
        let lucky = handles.into_iter().map(|handle| handle.join().unwrap()).filter(|got| *got).count();
        assert_eq!(lucky, 1);
        let ticks = tick(Duration::from_millis(1));
        let handles: Vec<_> = (0..4)
            .map(|index| {
                let ticks = ticks.clone();
                fibra::spawn(move || {
                    for _ in 0..3 {
                        let due = match index {
                            0 => ticks.recv(),
                            1 => fibra::block_on(ticks.recv_async()),
                            2 => select! { recv(ticks) -> due => due },
                            _ => {
                                let mut select = Select::new();
                                select.recv(&ticks);
                                select.select().recv(&ticks)
                            }
                        };
                        assert!(due.is_ok());
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

/// A value that is waiting to be sent, or named in a select, when a blocking call is refused or cancelled, is dropped once.
#[test]
fn refused_and_cancelled_sends_drop_once() {
    let _watchdog = watchdog(30);
    let drops = Arc::new(AtomicU32::new(0));
    fibra::run(|| {
        let (tx, rx) = rendezvous::<Counted>();
        let value = Counted(drops.clone());
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            fibra::no_suspend(|| {
                select! { send(tx, value) -> _ => {} }
            });
        }));
        assert!(refused.is_err());
        assert_eq!(drops.swap(0, Ordering::SeqCst), 1);
        for select_it in [false, true] {
            let (tx, drops, has_begun) = (tx.clone(), drops.clone(), Arc::new(AtomicBool::new(false)));
            let begins = has_begun.clone();
            let sender = fibra::spawn(move || {
                let value = Counted(drops);
                begins.store(true, Ordering::SeqCst);
                if select_it {
                    select! { send(tx, value) -> _ => {} }
                } else {
                    let _ = tx.send(value);
                }
            });
            // One that has not begun has no value.
            while !has_begun.load(Ordering::SeqCst) {
                fibra::yield_now();
            }
            sender.cancel();
            assert!(sender.join().unwrap_err().is_cancelled());
        }
        assert_eq!(drops.swap(0, Ordering::SeqCst), 2);
        assert!(rx.try_recv().is_err());
    });
}

/// What cannot be sent between threads can still go through a channel on one.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "every fiber has thread-locals of its own there")]
fn payloads_that_stay_on_one_thread() {
    let _watchdog = watchdog(20);
    type Ends<T> = (Sender<T>, Receiver<T>);
    thread_local! {
        static SHARED: RefCell<Option<Ends<Rc<Cell<u32>>>>> = const { RefCell::new(None) };
    }
    let runtime = fibra::Runtime::current_thread().unwrap();
    runtime.run(|| {
        SHARED.set(Some(rendezvous()));
        let receiver = fibra::spawn(|| {
            let rx = SHARED.with_borrow(|shared| shared.as_ref().unwrap().1.clone());
            rx.recv().unwrap().get()
        });
        let tx = SHARED.with_borrow(|shared| shared.as_ref().unwrap().0.clone());
        let value = Rc::new(Cell::new(5));
        select! { send(tx, value) -> sent => sent.unwrap() }
        assert_eq!(receiver.join().unwrap(), 5);
        SHARED.set(None);
    });
}
