//! Attacks on channels and select, found by reading the code for interleavings and for safe programs that break it. Each test is one
//! attack; the first line of its comment says what went wrong, or what would.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

mod support;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use fibra::channel::{
    self, Overflow, Receiver, RecvError, Select, SendFuture, Sender, after, bounded, rendezvous, tick,
};
use fibra::select;
use support::watchdog;

/// A waker that runs a closure.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(call: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(call)))
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A channel whose ends may be borrowed for ever.
fn leaked<T>(capacity: usize) -> (&'static Sender<T>, &'static Receiver<T>) {
    /// Where they are: what can be found from here is no leak, for a sanitizer that looks for some.
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let (tx, rx) = bounded(capacity);
    let ends: (&'static Sender<T>, &'static Receiver<T>) = (Box::leak(Box::new(tx)), Box::leak(Box::new(rx)));
    let kept = [std::ptr::from_ref(ends.0).expose_provenance(), std::ptr::from_ref(ends.1).expose_provenance()];
    KEPT.lock().unwrap().extend(kept);
    ends
}

/// Counts how often it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// ---- User code and locks ------------------------------------------------------------------------------------------------

/// Wakers that a select on a plain thread owes were called when the first of its channels was unlocked, and the others were not.
#[test]
fn wakers_of_a_parking_select_may_use_all_its_channels() {
    let _watchdog = watchdog(20);
    let (tx_a, rx_a) = rendezvous::<u32>();
    let (tx_b, rx_b) = rendezvous::<u32>();
    let sent = Arc::new(AtomicUsize::new(0));
    let waker = {
        let (tx_b, sent) = (tx_b.clone(), sent.clone());
        waker(move || {
            sent.fetch_add(1, Ordering::SeqCst);
            tx_b.try_send(7).unwrap();
        })
    };
    // Waits for a receiver at the channel with the lower id; the select below is one, so this waker is called by it.
    let mut reserve = tx_a.reserve_async();
    assert!(poll(&mut reserve, &waker).is_pending());
    let got = select! {
        recv(rx_a) -> got => got,
        recv(rx_b) -> got => got,
    };
    assert_eq!((got, sent.load(Ordering::SeqCst)), (Ok(7), 1));
}

/// A peer that was claimed was set going only after the wakers that the same operation owed: a waker that drops the peer's future
/// waited for itself.
#[test]
fn a_waker_may_end_the_peer_of_the_operation_that_calls_it() {
    let _watchdog = watchdog(20);
    let (tx, rx) = leaked::<u32>(1);
    let quiet = waker(|| ());
    let sending: Arc<Mutex<Option<SendFuture<'static, u32>>>> = Arc::default();
    let ends_it = {
        let sending = sending.clone();
        waker(move || drop(sending.lock().unwrap().take()))
    };
    let (mut first, mut second, mut third) = (rx.recv_async(), rx.recv_async(), rx.recv_async());
    assert!(poll(&mut first, &quiet).is_pending());
    assert!(poll(&mut second, &quiet).is_pending());
    assert!(poll(&mut third, &ends_it).is_pending());
    tx.try_send(1).unwrap();
    let mut send = tx.send_async(2);
    assert!(poll(&mut send, &quiet).is_pending());
    *sending.lock().unwrap() = Some(send);
    // Takes the first value, moves the second into its place, and calls the third receiver.
    assert_eq!(rx.try_recv(), Ok(1));
    assert!(sending.lock().unwrap().is_none());
    assert_eq!(rx.try_recv(), Ok(2), "it was sent before its future was dropped");
}

/// The same for a select, whose operation is over when it says so.
#[test]
fn a_waker_may_end_the_peer_of_the_select_that_calls_it() {
    let _watchdog = watchdog(20);
    let (tx, rx) = leaked::<u32>(1);
    let quiet = waker(|| ());
    let sending: Arc<Mutex<Option<SendFuture<'static, u32>>>> = Arc::default();
    let ends_it = {
        let sending = sending.clone();
        waker(move || drop(sending.lock().unwrap().take()))
    };
    let mut waiting: Vec<_> = (0..3).map(|_| rx.recv_async()).collect();
    for (index, future) in waiting.iter_mut().enumerate() {
        assert!(poll(future, if index == 2 { &ends_it } else { &quiet }).is_pending());
    }
    tx.try_send(1).unwrap();
    let mut send = tx.send_async(2);
    assert!(poll(&mut send, &quiet).is_pending());
    *sending.lock().unwrap() = Some(send);
    let got = select! { recv(rx) -> got => got, default => panic!("there is one") };
    assert_eq!((got, rx.try_recv()), (Ok(1), Ok(2)));
}

/// A waker whose clone receives, and whose clones panic when dropped: between the moment the value is taken and `forget` there was
/// somebody's code.
#[test]
fn a_waker_that_panics_when_dropped_does_not_double_the_value() {
    let _watchdog = watchdog(20);
    struct Hostile {
        receive: Receiver<Counted>,
        received: Mutex<Vec<Counted>>,
        armed: AtomicBool,
    }
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: the test keeps it alive.
            let hostile = unsafe { &*data.cast::<Hostile>() };
            if hostile.armed.load(Ordering::SeqCst) {
                hostile.received.lock().unwrap().extend(hostile.receive.try_recv());
            }
            RawWaker::new(data, &VTABLE)
        },
        |_| (),
        |_| (),
        |data| {
            // SAFETY: the test keeps it alive.
            let hostile = unsafe { &*data.cast::<Hostile>() };
            assert!(!hostile.armed.load(Ordering::SeqCst), "a waker's destructor panics");
        },
    );
    let (tx, rx) = leaked::<Counted>(1);
    let drops = Arc::new(AtomicU32::new(0));
    tx.try_send(Counted(drops.clone())).unwrap();
    let hostile = Hostile { receive: rx.clone(), received: Mutex::default(), armed: AtomicBool::new(false) };
    // SAFETY: `hostile` outlives the waker; the table keeps the contract of wakers.
    let waker = unsafe { Waker::from_raw(RawWaker::new((&raw const hostile).cast(), &VTABLE)) };
    let mut send = tx.send_async(Counted(drops.clone()));
    assert!(poll(&mut send, &waker).is_pending());
    hostile.armed.store(true, Ordering::SeqCst);
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll(&mut send, &waker).is_ready()));
    hostile.armed.store(false, Ordering::SeqCst);
    drop(send);
    assert_eq!(drops.load(Ordering::SeqCst), 0, "one was received, one is in the channel ({polled:?})");
    hostile.received.lock().unwrap().clear();
    drop(rx.try_recv().unwrap());
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}

/// Values that use their own channel when they are dropped, wherever that happens.
#[test]
fn values_may_use_their_channel_when_dropped() {
    let _watchdog = watchdog(20);
    struct Echo(u32, Option<Sender<Echo>>, Arc<AtomicU32>);
    impl Drop for Echo {
        fn drop(&mut self) {
            self.2.fetch_add(1, Ordering::SeqCst);
            if let Some(tx) = self.1.take()
                && self.0 > 0
            {
                let (tx_too, count) = (tx.clone(), self.2.clone());
                let _ = tx.try_send(Echo(self.0 - 1, Some(tx_too), count));
                let (number, count) = (self.0 - 1, self.2.clone());
                select! { send(tx, Echo(number, None, count)) => {}, default => {} }
                let _ = format!("{tx:?} {} {}", tx.len(), tx.is_closed());
            }
        }
    }
    let drops = Arc::new(AtomicU32::new(0));
    for overflow in [Overflow::Block, Overflow::DropNewest, Overflow::DropOldest] {
        let (tx, rx) = channel::builder().bounded(2).overflow(overflow).build();
        for _ in 0..4 {
            drop(tx.try_send(Echo(3, Some(tx.clone()), drops.clone())));
        }
        drop(rx.recv());
        // The values in the buffer hold senders: these go with the last receiver.
        drop(rx);
        assert!(tx.send(Echo(0, None, drops.clone())).is_err());
    }
    assert!(drops.load(Ordering::SeqCst) > 12);
}

// ---- Reservations -------------------------------------------------------------------------------------------------------

/// Permits of a channel with a policy are never refused, and what they sent went beyond the capacity, for ever.
#[test]
fn permits_obey_the_overflow_policy() {
    let _watchdog = watchdog(20);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        for capacity in [0, 1, 3] {
            let evicted = Arc::new(Mutex::new(Vec::new()));
            let saw = evicted.clone();
            let (tx, rx) = channel::builder()
                .bounded(capacity)
                .overflow(overflow)
                .on_overflow(move |value: u32| saw.lock().unwrap().push(value))
                .build();
            for value in 0..5 {
                tx.reserve().unwrap().send(value);
            }
            let mut select = Select::new();
            select.send(&tx);
            select.select().send(&tx, 5).unwrap();
            assert!(rx.len() <= capacity, "{overflow:?}: {} in a buffer of {capacity}", rx.len());
            let mut all = evicted.lock().unwrap().clone();
            assert_eq!(all.len() as u64, rx.dropped());
            let kept: Vec<_> = rx.try_iter().collect();
            let expected: Vec<u32> = match overflow {
                Overflow::DropNewest => (0..capacity as u32).collect(),
                _ => (6 - capacity as u32..6).collect(),
            };
            assert_eq!(kept, expected, "{overflow:?} of {capacity}");
            all.extend(kept);
            all.sort_unstable();
            assert_eq!(all, (0..6).collect::<Vec<_>>(), "every value is received or handed to on_overflow");
        }
    }
}

/// Receivers held back by permits that are given up all at once.
#[test]
fn permits_given_up_let_everybody_go() {
    let _watchdog = watchdog(20);
    fibra::run(|| {
        for _ in 0..50 {
            let (tx, rx) = rendezvous::<u32>();
            let receivers: Vec<_> = (0..3)
                .map(|_| {
                    let rx = rx.clone();
                    fibra::spawn(move || rx.recv().unwrap())
                })
                .collect();
            let permits: Vec<_> = (0..3).map(|_| tx.reserve().unwrap()).collect();
            assert!(tx.try_send(9).is_err(), "all three are spoken for");
            let senders: Vec<_> = (0..3)
                .map(|value| {
                    let tx = tx.clone();
                    fibra::spawn(move || tx.send(value).unwrap())
                })
                .collect();
            fibra::yield_now();
            drop(permits);
            let sum: u32 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert_eq!(sum, 3);
        }
    });
}

/// Forgotten permits and forgotten futures together: the last sender's end told one receiver and left the others asleep.
#[test]
fn what_forgotten_permits_held_back_is_delivered_in_the_end() {
    let _watchdog = watchdog(20);
    let (tx, rx) = rendezvous::<u32>();
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            std::thread::spawn(move || rx.recv())
        })
        .collect();
    let mut permits = 0;
    while permits < 3 {
        if let Ok(permit) = tx.try_reserve() {
            mem::forget(permit);
            permits += 1;
        }
        std::thread::yield_now();
    }
    let quiet = waker(|| ());
    for value in 1..=3 {
        let mut send = tx.send_async(value);
        assert!(poll(&mut send, &quiet).is_pending());
        mem::forget(send);
    }
    drop(tx);
    let mut got: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3]);
}

// ---- Order --------------------------------------------------------------------------------------------------------------

/// Whoever came first is served first, also if it is a future: a fiber behind it took what it was called for, each time.
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

// ---- Closing ------------------------------------------------------------------------------------------------------------

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
        assert!(selecting.join().unwrap(), "nobody else is there");
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

// ---- Time ---------------------------------------------------------------------------------------------------------------

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
        // Polled with wakers that call nobody, until the moment is near or over; then in earnest.
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

/// Several who wait for one moment: one gets it, the others go on waiting; a ticker serves them all in turn.
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

// ---- Odd places ---------------------------------------------------------------------------------------------------------

/// Channels in the destructors of thread-locals: waiting there takes a borrowed record.
#[test]
fn channels_in_destructors_of_thread_locals() {
    let _watchdog = watchdog(20);
    struct Last(Sender<u32>, Receiver<u32>);
    impl Drop for Last {
        fn drop(&mut self) {
            let (tx, rx) = (&self.0, &self.1);
            tx.send(1).unwrap();
            let got = select! { recv(rx) -> got => got.unwrap(), default(Duration::from_secs(10)) => 0 };
            let waited = after(Duration::from_millis(1)).recv().is_ok();
            assert!(rx.recv_timeout(Duration::from_millis(1)).is_err());
            tx.send(got + u32::from(waited)).unwrap();
        }
    }
    thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let (up, from_thread) = rendezvous();
    let (to_thread, down) = rendezvous();
    let thread = std::thread::spawn(move || {
        // One registered before fibra's own thread-locals, one after.
        EARLY.set(Some(Last(up.clone(), down.clone())));
        assert_eq!(down.recv(), Ok(0));
        LATE.set(Some(Last(up, down)));
    });
    to_thread.send(0).unwrap();
    for _ in 0..2 {
        assert_eq!(from_thread.recv(), Ok(1));
        to_thread.send(41).unwrap();
        assert_eq!(from_thread.recv(), Ok(42));
    }
    thread.join().unwrap();
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
            let (tx, drops) = (tx.clone(), drops.clone());
            let sender = fibra::spawn(move || {
                let value = Counted(drops);
                if select_it {
                    select! { send(tx, value) -> _ => {} }
                } else {
                    let _ = tx.send(value);
                }
            });
            fibra::yield_now();
            sender.cancel();
            assert!(sender.join().unwrap_err().is_cancelled());
        }
        assert_eq!(drops.swap(0, Ordering::SeqCst), 2);
        assert!(rx.try_recv().is_err());
    });
}

/// What cannot be sent between threads can still go through a channel on one.
#[test]
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
