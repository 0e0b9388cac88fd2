//! What a channel promises: order, hand-off, one drop per value, and the same behaviour for fibers, threads and async code.
//!
//! Closing is in `closing`, cancellation in `cancelled`; permits, pushing out and overflow are in `permits_and_overflow`.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::channels;
use crate::channels::{Calls, Ledger, SIDES, Side, Started, alone, poll, ready, runtime, start, until_parked};
use crate::support::watchdog;
use crate::tools::turns;
use fibra::Handle;
use fibra::channel::{
    Receiver, RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, Sender, TryRecvError, TrySendError,
    bounded, rendezvous, unbounded,
};

const LONG: Duration = Duration::from_secs(3600);

type Ends<T> = (Sender<T>, Receiver<T>);

/// Sends them all, on this side; says how each went.
fn send_all<T: Send + 'static>(
    side: Side,
    handle: &Handle,
    tx: Sender<T>,
    values: Vec<T>,
) -> Started<Vec<Result<(), SendError<T>>>> {
    let shared = Arc::new(Mutex::new(Some((tx, values))));
    let taken = shared.clone();
    let blocking = move || {
        let (tx, values) = shared.lock().unwrap().take().unwrap();
        values.into_iter().map(|value| tx.send(value)).collect()
    };
    let future = async move {
        let (tx, values) = taken.lock().unwrap().take().unwrap();
        let mut answers = Vec::new();
        for value in values {
            answers.push(tx.send_async(value).await);
        }
        answers
    };
    start(side, handle, blocking, future)
}

/// Receives until the end, on this side.
fn recv_all<T: Send + 'static>(side: Side, handle: &Handle, rx: Receiver<T>) -> Started<Vec<T>> {
    let shared = Arc::new(Mutex::new(Some(rx)));
    let taken = shared.clone();
    let blocking = move || shared.lock().unwrap().take().unwrap().into_iter().collect();
    let future = async move {
        let rx = taken.lock().unwrap().take().unwrap();
        let mut values = Vec::new();
        while let Ok(value) = rx.recv_async().await {
            values.push(value);
        }
        values
    };
    start(side, handle, blocking, future)
}

/// Every pair of sides.
fn pairs() -> impl Iterator<Item = (Side, Side)> {
    SIDES.into_iter().flat_map(|sender| SIDES.map(|receiver| (sender, receiver)))
}

// ---- Values -------------------------------------------------------------------------------------------------------------

/// Sends what `make` makes through every kind of channel between every two sides; `check` is given what arrives, with its number.
fn through_everything<T: Send + 'static>(count: usize, make: impl Fn(usize) -> T, check: impl Fn(usize, T)) {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    let kinds: [fn() -> Ends<T>; 4] = [rendezvous, || bounded(1), || bounded(3), unbounded];
    for ((sender, receiver), kind) in pairs().flat_map(|pair| kinds.map(|kind| (pair, kind))) {
        let (tx, rx) = kind();
        let sending = send_all(sender, &rt.handle(), tx, (0..count).map(&make).collect());
        let receiving = recv_all(receiver, &rt.handle(), rx);
        assert!(sending.join().iter().all(Result::is_ok), "{sender:?} to {receiver:?}");
        let values = receiving.join();
        assert_eq!(values.len(), count, "{sender:?} to {receiver:?}");
        values.into_iter().enumerate().for_each(|(index, value)| check(index, value));
    }
}

// S0-38, S1-78, S1-79, S1-80: every kind of channel between every two sides; what arrives is what was sent, in order, and nothing is
// copied, lost or dropped twice.
#[test]
fn values_that_only_move() {
    let ledger = Ledger::new(10_000);
    through_everything(20, |_| Box::new(ledger.value()), |_, value| value.received());
    ledger.check_drops();
    assert_eq!(ledger.created(), 16 * 4 * 20);
    assert_eq!(ledger.count(channels::RECEIVED), ledger.created());
    through_everything(20, |index| index.to_string(), |index, value| assert_eq!(value, index.to_string()));
}

static ZERO_SIZED_DROPS: AtomicUsize = AtomicUsize::new(0);

struct ZeroSized;

impl Drop for ZeroSized {
    fn drop(&mut self) {
        ZERO_SIZED_DROPS.fetch_add(1, SeqCst);
    }
}

// S0-38
#[test]
fn values_without_a_size() {
    through_everything(20, |_| (), |_, ()| ());
    through_everything(20, |_| ZeroSized, |_, value| drop(value));
    assert_eq!(ZERO_SIZED_DROPS.load(SeqCst), 16 * 4 * 20);
    // Those that are never received too.
    let (tx, rx) = bounded(3);
    (0..3).for_each(|_| assert!(tx.send(ZeroSized).is_ok()));
    drop((tx, rx));
    assert_eq!(ZERO_SIZED_DROPS.load(SeqCst), 16 * 4 * 20 + 3);
}

// S0-38
#[test]
fn values_of_four_kibibytes() {
    let make = |index: usize| std::array::from_fn::<u32, 1024, _>(|place| (index * 10_000 + place) as u32);
    through_everything(5, make, |index, value| assert_eq!(value, make(index)));
}

// A value that must lie at a multiple of 64 does so wherever it is put.
#[test]
fn values_with_a_wide_alignment() {
    #[repr(align(64))]
    struct Aligned(usize);
    let check = |index: usize, value: Aligned| {
        assert_eq!((&raw const value).addr() % 64, 0);
        assert_eq!(value.0, index);
    };
    through_everything(5, Aligned, check);
}

/// Panics when it is dropped, after it was counted.
struct Explosive(Arc<AtomicUsize>, bool);

impl Drop for Explosive {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if self.1 && !std::thread::panicking() {
            panic!("a destructor that panics");
        }
    }
}

// S0-38: a destructor that panics inside the channel (its end, a cancelled send) does so once, and the others' run too.
#[test]
fn values_that_panic_when_dropped() {
    let _watchdog = watchdog(60);
    let drops = Arc::new(AtomicUsize::new(0));
    let value = |explodes| Explosive(drops.clone(), explodes);
    for last in 0..2 {
        drops.store(0, SeqCst);
        let (tx, rx) = bounded(4);
        (0..4).for_each(|index| assert!(tx.send(value(index == 1)).is_ok()));
        let end = catch_unwind(AssertUnwindSafe(|| if last == 0 { drop((tx, rx)) } else { drop((rx, tx)) }));
        assert!(end.is_err(), "the panic is not swallowed");
        assert_eq!(drops.load(SeqCst), 4);
    }
    // In a fiber that is cancelled in its send, and in a future that is dropped.
    drops.store(0, SeqCst);
    let (tx, rx) = rendezvous();
    let (exploding, sender) = (value(true), tx.clone());
    alone(|| {
        let fiber = fibra::spawn_local(move || drop(sender.send(exploding)));
        until_parked(1);
        fiber.cancel();
        assert!(fiber.join().is_err());
    });
    assert_eq!(drops.load(SeqCst), 1);
    let mut future = Box::pin(tx.send_async(value(true)));
    assert!(poll(future.as_mut(), &Calls::new()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(future))).is_err());
    assert_eq!(drops.load(SeqCst), 2);
    assert!(rx.try_recv().is_err());
}

// S0-38, S0-33: what lies in the buffer when both ends are gone is dropped with the channel, once.
#[test]
fn what_is_never_received_is_dropped_once() {
    for (count, receivers_first) in [(0, true), (1, true), (3, true), (3, false)] {
        for (tx, rx) in [bounded(3), unbounded()] {
            let ledger = Ledger::new(10);
            (0..count).for_each(|_| tx.send(ledger.value()).unwrap());
            if receivers_first {
                drop((rx, tx))
            } else {
                drop((tx, rx))
            };
            ledger.check_drops();
        }
    }
}

// An unbounded channel keeps many.
#[test]
fn an_unbounded_channel_has_no_bound() {
    let (tx, rx) = unbounded();
    let count = turns(100_000);
    (0..count).for_each(|value| tx.send(value).unwrap());
    assert_eq!((rx.len(), rx.capacity(), tx.is_full()), (count, None, false));
    assert!(rx.try_iter().eq(0..count));
}

// ---- Order --------------------------------------------------------------------------------------------------------------

// S0-36, S4-50, S4-55, S4-73: receivers are served in the order in which they came, and by hand: a buffer that is there is not used.
#[test]
fn receivers_are_served_in_order() {
    let _watchdog = watchdog(60);
    for kind in [rendezvous, || bounded(4), unbounded] {
        alone(move || {
            let (tx, rx): Ends<usize> = kind();
            let fibers: Vec<_> = (0..5)
                .map(|index| {
                    let rx = rx.clone();
                    let fiber = fibra::spawn_local(move || rx.recv());
                    until_parked(index + 1);
                    fiber
                })
                .collect();
            for value in 0..5 {
                tx.try_send(value).unwrap();
                assert_eq!(tx.len(), 0, "handed over");
            }
            for (index, fiber) in fibers.into_iter().enumerate() {
                assert_eq!(fiber.join().unwrap(), Ok(index));
            }
        });
    }
}

// S0-36, S4-74: senders too; and what a receiver takes out of a full buffer is followed by the oldest parked sender's value.
#[test]
fn senders_are_served_in_order() {
    let _watchdog = watchdog(60);
    for (kind, capacity) in [(rendezvous as fn() -> Ends<usize>, 0), (|| bounded(1), 1), (|| bounded(3), 3)] {
        alone(move || {
            let (tx, rx) = kind();
            (0..capacity).for_each(|value| tx.try_send(value).unwrap());
            let fibers: Vec<_> = (0..5)
                .map(|index| {
                    let tx = tx.clone();
                    let fiber = fibra::spawn_local(move || tx.send(capacity + index));
                    until_parked(index as u64 + 1);
                    fiber
                })
                .collect();
            for value in 0..capacity + 5 {
                assert_eq!(rx.len(), capacity.min(capacity + 5 - value), "the buffer is filled again at once");
                assert_eq!(rx.try_recv(), Ok(value));
            }
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap().unwrap());
        });
    }
}

// S0-36: fibers, selects and futures wait in one queue.
#[test]
fn one_queue_for_all_kinds_of_waiters() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = bounded::<usize>(4);
        let by_recv = |rx: Receiver<usize>| fibra::spawn_local(move || rx.recv());
        let by_select = |rx: Receiver<usize>| {
            fibra::spawn_local(move || {
                let mut select = Select::new();
                select.recv(&rx);
                select.select().recv(&rx)
            })
        };
        let by_timeout = |rx: Receiver<usize>| fibra::spawn_local(move || rx.recv_timeout(LONG).map_err(|_| RecvError));
        let first = by_recv(rx.clone());
        until_parked(1);
        let second = by_select(rx.clone());
        until_parked(2);
        let (calls, mut third) = (Calls::new(), pin!(rx.recv_async()));
        assert!(poll(third.as_mut(), &calls).is_pending());
        let fourth = by_timeout(rx.clone());
        until_parked(3);
        (0..2).for_each(|value| tx.try_send(value).unwrap());
        assert_eq!(calls.count(), 0);
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(0), Ok(1)));
        tx.try_send(2).unwrap();
        assert_eq!(calls.count(), 1);
        assert_eq!(ready(third), Ok(2));
        tx.try_send(3).unwrap();
        assert_eq!(fourth.join().unwrap(), Ok(3));
    });
}

// S0-44, S0-51, S1-80: who sends without a buffer goes on only when a receiver has the value.
#[test]
fn a_rendezvous_send_waits_for_its_receiver() {
    let _watchdog = watchdog(60);
    let rt = runtime(2);
    for (sender, receiver) in pairs() {
        let (tx, rx) = rendezvous();
        let (sent, async_sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, async_seen) = (sent.clone(), async_sent.clone());
        let async_tx = tx.clone();
        let sending = start(
            sender,
            &rt.handle(),
            move || {
                for value in 0..50 {
                    tx.send(value).unwrap();
                    sent.fetch_add(1, SeqCst);
                }
            },
            async move {
                for value in 0..50 {
                    async_tx.send_async(value).await.unwrap();
                    async_sent.fetch_add(1, SeqCst);
                }
            },
        );
        let async_rx = rx.clone();
        let look = move || seen.load(SeqCst) + async_seen.load(SeqCst);
        let async_look = look.clone();
        let receiving = start(
            receiver,
            &rt.handle(),
            move || {
                for value in 0..50 {
                    assert!(look() <= value, "sent before it was received");
                    assert_eq!(rx.recv(), Ok(value));
                }
            },
            async move {
                for value in 0..50 {
                    assert!(async_look() <= value, "sent before it was received");
                    assert_eq!(async_rx.recv_async().await, Ok(value));
                }
            },
        );
        receiving.join();
        sending.join();
    }
}

// Also when a value that no receiver has fetched yet lies there (one sent by a permit, whose receiver was called but has not been polled),
// there are no more values than receivers that wait for them, and each gets its own.
#[test]
fn a_rendezvous_does_not_buffer_behind_a_permit() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let (mut first, mut second) = (pin!(rx.recv_async()), pin!(rx.recv_async()));
        assert!(poll(first.as_mut(), &Calls::new()).is_pending());
        assert!(poll(second.as_mut(), &Calls::new()).is_pending());
        let fiber = fibra::spawn_local({
            let rx = rx.clone();
            move || rx.recv()
        });
        until_parked(1);
        tx.reserve().unwrap().send(1);
        // The fiber gets the first one, and the other future is called for this one.
        assert_eq!(tx.try_send(2), Ok(()));
        assert!(tx.try_send(3).unwrap_err().is_full(), "sent, and no receiver would have it");
        tx.close();
        let mut values: Vec<u32> = fiber.join().unwrap().into_iter().collect();
        values.extend(ready(first));
        values.extend(ready(second));
        assert_eq!(values, [1, 2]);
    });
}

// S0-53: with one worker the order of a hand-off is always the same: the woken fiber runs before any bystander that was ready before.
#[test]
fn the_order_of_a_hand_off_is_known() {
    let _watchdog = watchdog(60);
    let once = || {
        alone(|| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let (tx, rx) = rendezvous();
            let say = |log: &Arc<Mutex<Vec<String>>>, what: String| log.lock().unwrap().push(what);
            let receiver = fibra::spawn_local({
                let log = log.clone();
                move || {
                    for value in rx {
                        say(&log, format!("received {value}"));
                    }
                }
            });
            until_parked(1);
            let bystander = fibra::spawn_local({
                let log = log.clone();
                move || say(&log, "bystander".to_owned())
            });
            for value in 0..3 {
                say(&log, format!("sending {value}"));
                tx.send(value).unwrap();
            }
            drop(tx);
            receiver.join().unwrap();
            bystander.join().unwrap();
            Arc::into_inner(log).unwrap().into_inner().unwrap()
        })
    };
    let log = once();
    let place = |what: &str| log.iter().position(|line| line == what).unwrap();
    assert!(place("received 0") < place("bystander"), "{log:?}");
    (0..20).for_each(|_| assert_eq!(once(), log));
}

// S4-09: one type for every topology.
#[test]
fn one_type_for_every_topology() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    let count = 200u64;
    for (senders, receivers) in [(1, 1), (1, 4), (4, 1), (4, 4), (100, 1)] {
        for kind in [rendezvous, || bounded(1), || bounded(8), unbounded] {
            let (tx, rx): Ends<u64> = kind();
            let side = |index: usize| SIDES[index % SIDES.len().min(senders.max(receivers))];
            let sending: Vec<_> = (0..senders)
                .map(|index| {
                    send_all(
                        if index < 8 { side(index) } else { Side::Fiber },
                        &rt.handle(),
                        tx.clone(),
                        (0..count).collect(),
                    )
                })
                .collect();
            let receiving: Vec<_> =
                (0..receivers).map(|index| recv_all(side(index + 1), &rt.handle(), rx.clone())).collect();
            drop((tx, rx));
            sending.into_iter().for_each(|sending| assert!(sending.join().iter().all(Result::is_ok)));
            let values: Vec<Vec<u64>> = receiving.into_iter().map(Started::join).collect();
            assert_eq!(values.iter().flatten().sum::<u64>(), senders as u64 * count * (count - 1) / 2);
            if senders == 1 {
                let ascending = |values: &Vec<u64>| values.is_sorted_by(|a, b| a < b);
                assert!(values.iter().all(ascending), "each receiver sees the order of sending");
            }
        }
    }
}

// ---- Without waiting ----------------------------------------------------------------------------------------------------

// S1-74: where nothing need be waited for, the scheduler is not entered, but for a turn of the others after many such calls.
#[test]
fn what_need_not_wait_does_not_switch() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = bounded(10);
        let before = Handle::current().metrics();
        for _ in 0..100 {
            (0..10).for_each(|value| tx.send(value).unwrap());
            assert!(tx.try_send(10).is_err());
            (0..10).for_each(|value| assert_eq!(rx.recv(), Ok(value)));
            assert!(rx.try_recv().is_err());
            let mut select = Select::new();
            select.send(&tx);
            select.recv(&rx);
            select.select().send(&tx, 1).unwrap();
            assert_eq!(rx.recv_timeout(LONG), Ok(1));
        }
        let after = Handle::current().metrics();
        assert_eq!(before.parked, after.parked);
        // 2,200 calls, of which each 512th lets others run.
        assert!(after.switches - before.switches <= 6, "{} switches", after.switches - before.switches);
    });
}

fn ignore<T>(_: T) {}

// S1-75, S4-73: on a fiber, whatever waits parks the fiber: the only worker goes on with others.
#[test]
fn no_operation_blocks_the_worker() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let (full, _kept) = bounded::<u32>(1);
        full.send(0).unwrap();
        let waits: Vec<Box<dyn FnOnce() + Send>> = vec![
            Box::new({
                let tx = full.clone();
                move || ignore(tx.send(1))
            }),
            Box::new({
                let tx = full.clone();
                move || ignore(tx.send_timeout(1, LONG))
            }),
            Box::new({
                let tx = full.clone();
                move || ignore(tx.reserve().map(drop))
            }),
            Box::new({
                let tx = full.clone();
                move || ignore(tx.closed())
            }),
            Box::new({
                let rx = rx.clone();
                move || ignore(rx.recv())
            }),
            Box::new({
                let rx = rx.clone();
                move || ignore(rx.recv_timeout(LONG))
            }),
            Box::new({
                let rx = rx.clone();
                move || ignore(rx.iter().next())
            }),
            Box::new({
                let rx = rx.clone();
                move || ignore(rx.closed())
            }),
            Box::new({
                let (tx, rx) = (full.clone(), rx.clone());
                move || {
                    let mut select = Select::new();
                    select.send(&tx);
                    select.recv(&rx);
                    let _ = select.ready();
                }
            }),
        ];
        let count = waits.len() as u64;
        let fibers: Vec<_> = waits.into_iter().map(fibra::spawn_local).collect();
        until_parked(count);
        // And all of them can be cancelled.
        fibers.iter().for_each(fibra::JoinHandle::cancel);
        fibers.into_iter().for_each(|fiber| assert!(fiber.join().unwrap_err().is_cancelled()));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
        assert_eq!(full.len(), 1);
    });
}

// The answers of operations that do not wait, and of those that wait for a time.
#[test]
fn answers_without_a_partner() {
    let soon = Duration::from_millis(1);
    let (tx, rx) = bounded(1);
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(rx.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(fibra::time::Instant::after(soon)), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(std::time::Instant::now() + soon), Err(RecvTimeoutError::Timeout));
    tx.try_send(1).unwrap();
    assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
    assert_eq!(tx.send_timeout(3, soon), Err(SendTimeoutError::Timeout(3)));
    assert_eq!(tx.send_deadline(4, fibra::time::Instant::after(soon)), Err(SendTimeoutError::Timeout(4)));
    assert_eq!((tx.len(), tx.is_full(), rx.is_full(), tx.is_empty()), (1, true, true, false));
    assert_eq!((tx.capacity(), rx.capacity()), (Some(1), Some(1)));
    assert_eq!(rx.try_recv(), Ok(1));
    assert!(rx.is_empty() && tx.is_empty());
    let (tx, rx) = rendezvous::<u32>();
    assert_eq!((tx.capacity(), tx.len(), tx.is_full(), rx.is_empty()), (Some(0), 0, true, true));
    assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    assert_eq!(tx.send_timeout(1, soon), Err(SendTimeoutError::Timeout(1)));
    assert_eq!(bounded::<u32>(0).0.capacity(), Some(0));
}

// S0-31, S0-35, S0-39: two types of ends, each a pointer to what they share.
#[test]
fn ends_are_pointers() {
    assert_eq!(size_of::<Sender<[u64; 100]>>(), size_of::<usize>());
    assert_eq!(size_of::<Receiver<[u64; 100]>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Sender<u8>>>(), size_of::<usize>());
    fn is_shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    is_shared::<Sender<std::cell::Cell<u32>>>();
    is_shared::<Receiver<std::cell::Cell<u32>>>();
    let ((tx, rx), (other_tx, other_rx)) = (bounded::<u32>(1), bounded::<u32>(1));
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&other_tx) && !rx.same_channel(&other_rx));
}

// The iterators: one that waits, one that does not, one that owns.
#[test]
fn iterators() {
    let (tx, rx) = bounded(10);
    (0..6).for_each(|value| tx.send(value).unwrap());
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(rx.try_iter().next(), None);
    (0..6).for_each(|value| tx.send(value).unwrap());
    drop(tx);
    assert_eq!(rx.iter().take(2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((&rx).into_iter().next(), Some(2));
    assert_eq!(rx.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
}

// ---- Errors -------------------------------------------------------------------------------------------------------------

// S0-43: what cannot be delivered comes back, and the error says what is the matter, in the words and shapes of crossbeam-channel.
#[test]
fn errors_give_the_value_back() {
    fn is_error<E: std::error::Error + Send + Sync + 'static>(error: &E) -> String {
        error.to_string()
    }
    let (tx, rx) = bounded(1);
    tx.send("kept".to_owned()).unwrap();
    let full = tx.try_send("full".to_owned()).unwrap_err();
    assert!(full.is_full() && !full.is_disconnected() && is_error(&full).contains("full"));
    assert_eq!(full.into_inner(), "full");
    let late = tx.send_timeout("late".to_owned(), Duration::ZERO).unwrap_err();
    assert!(late.is_timeout() && !late.is_disconnected() && is_error(&late).contains("timed out"));
    assert_eq!(late.into_inner(), "late");
    drop(rx);
    let gone = tx.send("gone".to_owned()).unwrap_err();
    assert!(is_error(&gone).contains("disconnected") || is_error(&gone).contains("closed"), "{gone}");
    assert_eq!(gone.into_inner(), "gone");
    let gone = tx.try_send("gone".to_owned()).unwrap_err();
    assert!(gone.is_disconnected() && !gone.is_full());
    assert_eq!(gone.into_inner(), "gone");
    let gone = tx.send_timeout("gone".to_owned(), LONG).unwrap_err();
    assert!(gone.is_disconnected() && !gone.is_timeout());
    // Neither shows the value: it need not be `Debug`.
    struct Silent;
    let error = SendError(Silent);
    assert!(format!("{error:?}").contains("SendError") && !error.to_string().is_empty());

    let (tx, rx) = bounded::<u32>(1);
    let empty = rx.try_recv().unwrap_err();
    assert!(empty.is_empty() && !empty.is_disconnected() && !is_error(&empty).is_empty());
    let late = rx.recv_timeout(Duration::ZERO).unwrap_err();
    assert!(late.is_timeout() && !late.is_disconnected() && !is_error(&late).is_empty());
    drop(tx);
    assert!(rx.try_recv().unwrap_err().is_disconnected());
    assert!(rx.recv_timeout(LONG).unwrap_err().is_disconnected());
    assert!(!is_error(&rx.recv().unwrap_err()).is_empty());
    assert_eq!(TryRecvError::from(RecvError), TryRecvError::Disconnected);
    assert_eq!(RecvTimeoutError::from(RecvError), RecvTimeoutError::Disconnected);
    assert_eq!(TrySendError::from(SendError(1)), TrySendError::Disconnected(1));
    assert_eq!(SendTimeoutError::from(SendError(1)), SendTimeoutError::Disconnected(1));
}

// The partner of a hand-over runs next; one of several arms wakes behind what is ready, or a busy select would starve the others.
#[test]
fn a_receiver_runs_next_and_a_select_behind_what_is_ready() {
    let _watchdog = watchdog(60);
    for (selects, expected) in [(false, ["woken", "ready"]), (true, ["ready", "woken"])] {
        let order = Arc::new(Mutex::new(Vec::new()));
        alone(|| {
            let (tx, rx) = rendezvous::<u32>();
            let log = |who: &'static str| {
                let order = order.clone();
                move || order.lock().unwrap().push(who)
            };
            let woken = log("woken");
            let waits = fibra::spawn_local(move || {
                let other = fibra::channel::never::<u32>();
                let got = if selects {
                    fibra::select! { recv(rx) -> got => got, recv(other) -> got => got }
                } else {
                    rx.recv()
                };
                assert_eq!(got, Ok(7));
                woken();
            });
            until_parked(1);
            let ready = fibra::spawn_local(log("ready"));
            tx.send(7).unwrap();
            waits.join().unwrap();
            ready.join().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), expected, "in a select: {selects}");
    }
}

// A call that never waits counts in the budget all the same: a fiber that pushes out in a loop lets the others of its worker run.
#[test]
fn pushing_out_in_a_loop_lets_others_run() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, _rx) = bounded(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let other = fibra::spawn_local({
            let ran = ran.clone();
            move || ran.store(1, SeqCst)
        });
        while ran.load(SeqCst) == 0 {
            tx.force_send(7).unwrap();
        }
        other.join().unwrap();
    });
}
