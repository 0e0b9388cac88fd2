//! Wakers and values that use, end or drop the very channels that call them.
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use crate::support::watchdog;
use fibra::channel::{self, Overflow, Receiver, SendFuture, Sender, after, bounded, rendezvous};
use fibra::select;

/// A waker that runs a closure.
pub(crate) struct Calls<F>(pub(crate) F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub(crate) fn waker(call: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(call)))
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
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
pub(crate) struct Counted(pub(crate) Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

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
/// code of the user.
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
