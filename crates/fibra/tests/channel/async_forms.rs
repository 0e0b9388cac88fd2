//! The async forms of channels, polled by hand: dropped at every point, with changing wakers, with wakers that panic, and on an executor
//! that knows nothing of fibra. Nothing is lost, and the next one who waits is woken.
#![allow(clippy::disallowed_types)] // The foreign executor's own.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::channels::{Calls, Ledger, Tracked, poll, ready, runtime};
use crate::support::{eventually, watchdog};
use crate::tools::{Rng, turns};
use fibra::channel::{Receiver, RecvError, SendError, Sender, TryRecvError, bounded, rendezvous, unbounded};

type Ends = (Sender<Tracked>, Receiver<Tracked>);

/// Polls: it must not be ready.
#[track_caller]
fn pending<F: Future + ?Sized>(future: Pin<&mut F>, calls: &Arc<Calls>) {
    assert!(poll(future, calls).is_pending(), "ready already");
}

// ---- Ready at once ------------------------------------------------------------------------------------------------------

// S4-50, S4-73, S4-74: where nothing need be waited for, the first poll is the last.
#[test]
fn what_need_not_wait_is_ready_at_the_first_poll() {
    let (tx, rx) = bounded(1);
    assert_eq!(ready(pin!(tx.send_async(1))), Ok(()));
    assert_eq!(ready(pin!(rx.recv_async())), Ok(1));
    let (tx, rx) = unbounded();
    assert_eq!(ready(pin!(tx.send_async(1))), Ok(()));
    assert_eq!(ready(pin!(rx.recv_async())), Ok(1));
    drop(tx);
    assert_eq!(ready(pin!(rx.recv_async())), Err(RecvError));
    let (tx, rx) = bounded(1);
    drop(rx);
    assert_eq!(ready(pin!(tx.send_async(1))), Err(SendError(1)));
}

// ---- Dropped at every point ---------------------------------------------------------------------------------------------

/// When a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    BeforeFirstPoll,
    Pending,
    /// Its partner came, and it was told so.
    Notified,
    /// And was polled again, with success.
    Done,
}

const ALWAYS: [When; 4] = [When::BeforeFirstPoll, When::Pending, When::Notified, When::Done];

// C-25: a receive that is given up takes nothing with it, and passes on what it was told.
#[test]
fn a_dropped_receive_loses_nothing() {
    let kinds: [fn() -> Ends; 2] = [|| bounded(2), unbounded];
    for (kind, when) in kinds.into_iter().flat_map(|kind| ALWAYS.map(|when| (kind, when))) {
        let ledger = Ledger::new(10);
        let (tx, rx) = kind();
        let (first_calls, second_calls) = (Calls::new(), Calls::new());
        let mut first = Some(Box::pin(rx.recv_async()));
        let mut second = pin!(rx.recv_async());
        if when == When::BeforeFirstPoll {
            first = None;
        }
        if let Some(first) = &mut first {
            pending(first.as_mut(), &first_calls);
        }
        pending(second.as_mut(), &second_calls);
        if when == When::Pending {
            first = None;
        }
        tx.try_send(ledger.value()).unwrap();
        if let Some(first) = &mut first {
            assert_eq!((first_calls.count(), second_calls.count()), (1, 0), "{when:?}: the first one first");
            if when == When::Done {
                ready(first.as_mut()).unwrap().received();
                tx.try_send(ledger.value()).unwrap();
            }
        }
        drop(first);
        assert_eq!(second_calls.count(), 1, "{when:?}: the second one is told");
        ready(second.as_mut()).unwrap().received();
        assert_eq!(rx.try_recv().map(|value| value.number()), Err(TryRecvError::Empty));
        ledger.check_drops();
    }
}

// C-25: a send that is given up before a receiver took its value was not delivered, drops it, and passes its place on. Once it is told, its
// value has been taken: then it was sent.
#[test]
fn a_dropped_send_loses_nothing() {
    for when in ALWAYS {
        let ledger = Ledger::new(10);
        let (tx, rx): Ends = bounded(1);
        tx.try_send(ledger.value()).unwrap();
        let (first_calls, second_calls) = (Calls::new(), Calls::new());
        let mut first = Some(Box::pin(tx.send_async(ledger.value())));
        let mut second = pin!(tx.send_async(ledger.value()));
        if when == When::BeforeFirstPoll {
            first = None;
        }
        if let Some(first) = &mut first {
            pending(first.as_mut(), &first_calls);
        }
        pending(second.as_mut(), &second_calls);
        if when == When::Pending {
            first = None;
        }
        assert_eq!(rx.try_recv().unwrap().number(), 0);
        if let Some(first) = &mut first {
            assert_eq!((first_calls.count(), second_calls.count()), (1, 0), "{when:?}: the first one first");
            if when == When::Done {
                ready(first.as_mut()).unwrap();
                assert_eq!(rx.try_recv().unwrap().number(), 1);
            }
        }
        drop(first);
        if when == When::Notified {
            assert_eq!(rx.try_recv().unwrap().number(), 1, "it was sent");
        }
        assert_eq!(second_calls.count(), 1, "{when:?}: the second one is told");
        ready(second.as_mut()).unwrap();
        assert_eq!(rx.try_recv().unwrap().number(), 2, "{when:?}");
        assert!(rx.try_recv().is_err());
        ledger.check_drops();
    }
}

// The same for a permit.
#[test]
fn a_dropped_reservation_loses_nothing() {
    for when in ALWAYS {
        let (tx, rx) = bounded(1);
        tx.try_send(0).unwrap();
        let (first_calls, second_calls) = (Calls::new(), Calls::new());
        let mut first = Some(Box::pin(tx.reserve_async()));
        let mut second = pin!(tx.reserve_async());
        if when == When::BeforeFirstPoll {
            first = None;
        }
        if let Some(first) = &mut first {
            pending(first.as_mut(), &first_calls);
        }
        pending(second.as_mut(), &second_calls);
        if when == When::Pending {
            first = None;
        }
        assert_eq!(rx.try_recv(), Ok(0));
        if let Some(first) = &mut first {
            assert_eq!((first_calls.count(), second_calls.count()), (1, 0), "{when:?}: the first one first");
            if when == When::Done {
                // A permit that is not used goes back.
                drop(ready(first.as_mut()).unwrap());
            }
        }
        drop(first);
        assert_eq!(second_calls.count(), 1, "{when:?}: the second one is told");
        let permit = ready(second.as_mut()).unwrap();
        permit.send(2);
        assert_eq!(rx.try_recv(), Ok(2));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert!(tx.try_send(3).is_ok() && tx.try_send(4).is_err(), "the buffer has its one place again");
    }
}

// The next one may be a fiber or a thread, whose wait is of another kind.
#[test]
fn a_dropped_future_passes_on_to_fibers_and_threads() {
    let _watchdog = watchdog(60);
    let rt = runtime(1);
    for on_fiber in [true, false] {
        let (tx, rx) = bounded(1);
        let mut first = Some(Box::pin(rx.recv_async()));
        pending(first.as_mut().unwrap().as_mut(), &Calls::new());
        let other = rx.clone();
        let (fiber, thread) = if on_fiber {
            let fiber = rt.spawn(move || other.recv());
            eventually(|| rt.metrics().parked == 1, || format!("{:?}", rt.metrics()));
            (Some(fiber), None)
        } else {
            (None, Some(std::thread::spawn(move || other.recv())))
        };
        tx.try_send(7).unwrap();
        first = None;
        assert!(first.is_none());
        let received = fiber.map(|fiber| fiber.join().unwrap()).or(thread.map(|thread| thread.join().unwrap()));
        assert_eq!(received, Some(Ok(7)));

        // And the other way round: for a place.
        tx.try_send(1).unwrap();
        let mut first = Some(Box::pin(tx.reserve_async()));
        pending(first.as_mut().unwrap().as_mut(), &Calls::new());
        let other = tx.clone();
        let (fiber, thread) = if on_fiber {
            let fiber = rt.spawn(move || other.send(3));
            eventually(|| rt.metrics().parked == 1, || format!("{:?}", rt.metrics()));
            (Some(fiber), None)
        } else {
            (None, Some(std::thread::spawn(move || other.send(3))))
        };
        assert_eq!(rx.try_recv(), Ok(1));
        first = None;
        assert!(first.is_none());
        let sent = fiber.map(|fiber| fiber.join().unwrap()).or(thread.map(|thread| thread.join().unwrap()));
        assert_eq!((sent, rx.recv()), (Some(Ok(())), Ok(3)));
    }
}

// A rendezvous between two futures, whichever comes first, and between a future and a fiber.
#[test]
fn a_rendezvous_of_futures() {
    let _watchdog = watchdog(60);
    for receiver_first in [true, false] {
        let (tx, rx) = rendezvous();
        let (mut sending, mut receiving) = (Box::pin(tx.send_async(7)), Box::pin(rx.recv_async()));
        let calls = [Calls::new(), Calls::new()];
        let (mut sent, mut received) = (false, false);
        // An executor's rule: after its first poll, a future is polled only when its waker was called.
        let mut seen = [usize::MAX; 2];
        for turn in 0..100 {
            let which = (turn + usize::from(receiver_first)) % 2;
            if calls[which].count() == seen[which] {
                continue;
            }
            seen[which] = calls[which].count();
            if which == 0 && !sent {
                sent = matches!(poll(sending.as_mut(), &calls[0]), Poll::Ready(Ok(())));
                assert!(!sent || received || turn < 99);
            } else if which == 1 && !received {
                received = matches!(poll(receiving.as_mut(), &calls[1]), Poll::Ready(Ok(7)));
            }
        }
        assert!(sent && received, "sent {sent}, received {received}, wakers called {calls:?}");
    }
    runtime(1).run(|| {
        let (tx, rx) = rendezvous();
        let fiber = fibra::spawn_local(move || (0..100).for_each(|value| tx.send(value).unwrap()));
        fibra::block_on(async {
            for value in 0..100 {
                assert_eq!(rx.recv_async().await, Ok(value));
            }
        });
        fiber.join().unwrap();
        let (tx, rx) = rendezvous();
        let fiber = fibra::spawn_local(move || (0..100).for_each(|value| assert_eq!(rx.recv(), Ok(value))));
        fibra::block_on(async {
            for value in 0..100 {
                tx.send_async(value).await.unwrap();
            }
        });
        fiber.join().unwrap();
    });
}

// A pending future hears of the end, and keeps its value.
#[test]
fn pending_futures_hear_of_the_end() {
    let (tx, rx) = bounded::<u32>(1);
    let calls = Calls::new();
    let mut receiving = pin!(rx.recv_async());
    pending(receiving.as_mut(), &calls);
    drop(tx);
    assert_eq!(calls.count(), 1);
    assert_eq!(ready(receiving), Err(RecvError));

    let (tx, rx) = bounded(1);
    tx.send(0).unwrap();
    let calls = Calls::new();
    let (mut sending, mut reserving) = (pin!(tx.send_async(1)), pin!(tx.reserve_async()));
    pending(sending.as_mut(), &calls);
    pending(reserving.as_mut(), &calls);
    drop(rx);
    assert_eq!(calls.count(), 2);
    assert_eq!(ready(sending), Err(SendError(1)));
    assert_eq!(ready(reserving).map(drop), Err(SendError(())));
}

// ---- Wakers -------------------------------------------------------------------------------------------------------------

// The waker of the last poll is the one that counts.
#[test]
fn the_last_waker_is_called() {
    let (tx, rx) = bounded(1);
    let (old, new) = (Calls::new(), Calls::new());
    let mut receiving = pin!(rx.recv_async());
    pending(receiving.as_mut(), &old);
    pending(receiving.as_mut(), &old);
    pending(receiving.as_mut(), &new);
    tx.send(1).unwrap();
    assert_eq!((old.count(), new.count()), (0, 1));
    assert_eq!(ready(receiving), Ok(1));

    tx.send(1).unwrap();
    let (old, new) = (Calls::new(), Calls::new());
    let mut sending = pin!(tx.send_async(2));
    pending(sending.as_mut(), &old);
    pending(sending.as_mut(), &new);
    assert_eq!(rx.recv(), Ok(1));
    assert_eq!((old.count(), new.count()), (0, 1));
    assert_eq!(ready(sending), Ok(()));
}

// A future keeps its place in the queue however often it is polled in vain.
#[test]
fn polling_again_keeps_the_place() {
    let (tx, rx) = bounded::<u32>(1);
    let (first_calls, second_calls) = (Calls::new(), Calls::new());
    let (mut first, mut second) = (pin!(rx.recv_async()), pin!(rx.recv_async()));
    pending(first.as_mut(), &first_calls);
    pending(second.as_mut(), &second_calls);
    (0..3).for_each(|_| pending(first.as_mut(), &first_calls));
    tx.send(1).unwrap();
    assert_eq!((first_calls.count(), second_calls.count()), (1, 0), "receiving");
    assert_eq!(ready(first), Ok(1));

    let (tx, rx) = bounded::<u32>(1);
    tx.send(0).unwrap();
    let (first_calls, second_calls) = (Calls::new(), Calls::new());
    let (mut first, mut second) = (pin!(tx.send_async(1)), pin!(tx.send_async(2)));
    pending(first.as_mut(), &first_calls);
    pending(second.as_mut(), &second_calls);
    (0..3).for_each(|_| pending(first.as_mut(), &first_calls));
    assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Ok(0), Ok(1), Ok(2)), "sending");

    let (tx, rx) = bounded::<u32>(1);
    tx.send(0).unwrap();
    let (first_calls, second_calls) = (Calls::new(), Calls::new());
    let (mut first, mut second) = (pin!(tx.reserve_async()), pin!(tx.reserve_async()));
    pending(first.as_mut(), &first_calls);
    pending(second.as_mut(), &second_calls);
    (0..3).for_each(|_| pending(first.as_mut(), &first_calls));
    assert_eq!(rx.recv(), Ok(0));
    assert_eq!((first_calls.count(), second_calls.count()), (1, 0), "reserving");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

// One bad waker does not stop the others, nor does it leave the channel locked. Whether its panic comes out of the operation that called
// it is not our question here.
#[test]
fn a_panicking_waker_does_not_stop_the_others() {
    let _watchdog = watchdog(60);
    let bad = Waker::from(Arc::new(Panics));
    let (tx, rx) = bounded::<u32>(4);
    let calls = [Calls::new(), Calls::new()];
    let mut before = Box::pin(rx.recv_async());
    let mut between = Box::pin(rx.recv_async());
    let mut after = Box::pin(rx.recv_async());
    pending(before.as_mut(), &calls[0]);
    assert!(between.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    pending(after.as_mut(), &calls[1]);
    let _ = catch_unwind(AssertUnwindSafe(|| tx.close()));
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [1, 1]);
    assert!(tx.is_closed());
    for future in [before, between, after] {
        assert_eq!(ready(pin!(future)), Err(RecvError));
    }

    let (tx, rx) = bounded::<u32>(4);
    let mut receiving = Box::pin(rx.recv_async());
    assert!(receiving.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    // The value is either sent or not, and the channel goes on.
    let sent = catch_unwind(AssertUnwindSafe(|| tx.send(1)));
    drop(receiving);
    let expected = if let Ok(sent) = sent { sent.map(|()| 1).map_err(|_| TryRecvError::Empty) } else { rx.try_recv() };
    if let Ok(value) = expected {
        assert_eq!(value, 1);
    }
    rx.try_iter().for_each(|value| assert_eq!(value, 1));
    tx.send(2).unwrap();
    assert_eq!(rx.recv(), Ok(2));
}

/// Uses the channel from inside the call.
struct UsesTheChannel(Receiver<u32>, Mutex<Vec<u32>>);

impl Wake for UsesTheChannel {
    fn wake(self: Arc<Self>) {
        let value = self.0.try_recv();
        self.1.lock().unwrap().extend(value);
    }
}

// No waker is called under the channel's lock.
#[test]
fn a_waker_may_use_its_channel() {
    let _watchdog = watchdog(60);
    let (tx, rx) = bounded::<u32>(4);
    let greedy = Arc::new(UsesTheChannel(rx.clone(), Mutex::new(Vec::new())));
    let mut receiving = Box::pin(rx.recv_async());
    assert!(receiving.as_mut().poll(&mut Context::from_waker(&Waker::from(greedy.clone()))).is_pending());
    tx.send(1).unwrap();
    assert_eq!(*greedy.1.lock().unwrap(), [1]);
    pending(receiving.as_mut(), &Calls::new());
}

// A future that has answered may be polled again, against the rules: it panics, stays pending or answers once more, and loses nothing.
#[test]
fn a_finished_future_loses_nothing() {
    let ledger = Ledger::new(10);
    let (tx, rx) = bounded(4);
    (0..2).for_each(|_| tx.send(ledger.value()).unwrap());
    let mut receiving = Box::pin(rx.recv_async());
    assert_eq!(ready(receiving.as_mut()).unwrap().number(), 0);
    let again = catch_unwind(AssertUnwindSafe(|| poll(receiving.as_mut(), &Calls::new())));
    let number = match again {
        Ok(Poll::Ready(value)) => value.unwrap().number(),
        _ => rx.try_recv().unwrap().number(),
    };
    assert_eq!(number, 1);
    let mut sending = Box::pin(tx.send_async(ledger.value()));
    ready(sending.as_mut()).unwrap();
    let again = catch_unwind(AssertUnwindSafe(|| poll(sending.as_mut(), &Calls::new())));
    assert!(!matches!(again, Ok(Poll::Ready(Err(_)))));
    drop((receiving, sending));
    assert_eq!(rx.try_iter().count(), 1);
    ledger.check_drops();
}

// ---- A foreign executor -------------------------------------------------------------------------------------------------

/// Threads that poll whatever is in a queue: all that an executor needs to be.
#[derive(Default)]
struct Executor {
    queue: Mutex<(VecDeque<Arc<Task>>, usize)>,
    changed: Condvar,
}

struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    executor: Arc<Executor>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let executor = self.executor.clone();
        executor.queue.lock().unwrap().0.push_back(self);
        executor.changed.notify_one();
    }
}

impl Executor {
    fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        self.queue.lock().unwrap().1 += 1;
        Arc::new(Task { future: Mutex::new(Some(Box::pin(future))), executor: self.clone() }).wake();
    }

    /// Polls until every task has ended.
    fn work(&self) {
        let mut queue = self.queue.lock().unwrap();
        while queue.1 > 0 {
            let Some(task) = queue.0.pop_front() else {
                queue = self.changed.wait(queue).unwrap();
                continue;
            };
            drop(queue);
            let mut slot = task.future.lock().unwrap();
            let waker = Waker::from(task.clone());
            let ended =
                slot.as_mut().is_some_and(|future| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
            if ended {
                *slot = None;
            }
            drop(slot);
            queue = self.queue.lock().unwrap();
            if ended {
                queue.1 -= 1;
                self.changed.notify_all();
            }
        }
    }
}

// Tasks of another executor, fibers and threads share channels.
#[test]
fn stress_a_foreign_executor() {
    let _watchdog = watchdog(120);
    let count = turns(2_000);
    let rt = runtime(2);
    for kind in [rendezvous, || bounded(1), || bounded(7), unbounded] {
        let (tx, rx): (Sender<u64>, Receiver<u64>) = kind();
        let executor = Arc::new(Executor::default());
        let (sum, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (tx, rx, sum, received) = (tx.clone(), rx.clone(), sum.clone(), received.clone());
            executor.spawn(async move {
                for value in 0..count as u64 {
                    tx.send_async(value).await.unwrap();
                }
            });
            executor.spawn(async move {
                while let Ok(value) = rx.recv_async().await {
                    sum.fetch_add(value as usize, SeqCst);
                    received.fetch_add(1, SeqCst);
                }
            });
        }
        let (fiber_tx, fiber_rx, fiber_sum, fiber_received) = (tx.clone(), rx.clone(), sum.clone(), received.clone());
        let sender = rt.spawn(move || (0..count as u64).for_each(|value| fiber_tx.send(value).unwrap()));
        let receiver = rt.spawn(move || {
            for value in fiber_rx {
                fiber_sum.fetch_add(value as usize, SeqCst);
                fiber_received.fetch_add(1, SeqCst);
            }
        });
        drop((tx, rx));
        let other = executor.clone();
        let helper = std::thread::spawn(move || other.work());
        executor.work();
        helper.join().unwrap();
        sender.join().unwrap();
        receiver.join().unwrap();
        assert_eq!(received.load(SeqCst), 4 * count);
        assert_eq!(sum.load(SeqCst), 4 * (0..count).sum::<usize>());
    }
}

// Futures are dropped on one thread while their partners come on another one.
#[test]
fn stress_drops_against_matches() {
    let _watchdog = watchdog(120);
    let mut rng = Rng::new();
    let kinds: [fn() -> Ends; 3] = [rendezvous, || bounded(1), || bounded(2)];
    for round in 0..turns(3_000) {
        let ledger = Ledger::new(64);
        let (tx, rx) = kinds[round % 3]();
        let (other_tx, other_rx, books, mut other_rng) = (tx.clone(), rx.clone(), ledger.clone(), rng.fork());
        let give_up = |rng: &mut Rng| {
            if rng.below(2) == 0 {
                let mut future = Box::pin(rx.recv_async());
                for _ in 0..rng.below(3) {
                    if let Poll::Ready(Ok(value)) = poll(future.as_mut(), &Calls::new()) {
                        return value.received();
                    }
                }
            } else {
                let mut future = Box::pin(tx.send_async(ledger.value()));
                for _ in 0..rng.below(3) {
                    if poll(future.as_mut(), &Calls::new()).is_ready() {
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..10 {
                    if other_rng.below(2) == 0 {
                        let _ = other_tx.try_send(books.value());
                    } else {
                        other_rx.try_recv().into_iter().for_each(Tracked::received);
                    }
                }
            });
            (0..10).for_each(|_| give_up(&mut rng));
        });
        // No waiter is left: the channel works as a new one does.
        rx.try_iter().for_each(Tracked::received);
        if let Some(places) = rx.capacity() {
            (0..places).for_each(|_| tx.try_send(ledger.value()).unwrap());
            assert!(tx.try_send(ledger.value()).is_err());
            assert_eq!(rx.try_iter().count(), places);
        }
        drop((tx, rx));
        ledger.check_drops();
    }
}
