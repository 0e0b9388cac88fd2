//! What channels and selects make of odd arguments and of users who drop, forget or interfere: an answer or a panic that says what to do,
//! never a hang and never a corrupted channel.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as StdInstant};

use crate::channels::{Calls, Ledger, alone, poll, until_parked};
use crate::support::watchdog;
use fibra::channel::{
    self, Overflow, Receiver, RecvTimeoutError, Select, SelectTimeoutError, SendTimeoutError, Sender, TryRecvError,
    TrySelectError, bounded, never, rendezvous, unbounded,
};
use fibra::time::Instant;

/// What the panic says.
#[track_caller]
fn panics<T>(f: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(f()))) else { panic!("this must panic") };
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

// ---- Numbers ------------------------------------------------------------------------------------------------------------

// A capacity is a bound, not a reservation: any number will do.
#[test]
fn any_capacity_will_do() {
    for capacity in [0, 1, 2, 3, 1 << 20, 1 << 40, isize::MAX as usize, usize::MAX - 1, usize::MAX] {
        let (tx, rx) = bounded::<[u64; 16]>(capacity);
        assert_eq!((tx.capacity(), rx.capacity()), (Some(capacity), Some(capacity)));
        if capacity > 0 {
            for value in 0..capacity.min(100) as u64 {
                tx.try_send([value; 16]).unwrap();
            }
            assert_eq!(tx.is_full(), capacity < 100);
            assert_eq!(rx.try_iter().count(), capacity.min(100));
        }
        let (tx, rx) = bounded::<()>(capacity);
        assert_eq!(tx.try_send(()).is_ok(), capacity > 0);
        assert_eq!(rx.try_recv().is_ok(), capacity > 0);
        let (tx, rx) = channel::builder::<u8>().bounded(capacity).overflow(Overflow::DropOldest).build();
        if capacity > 0 {
            tx.try_send(1).unwrap();
            assert_eq!(rx.try_recv(), Ok(1));
        }
    }
}

// No time at all, and a time that has passed: one look, no wait.
#[test]
fn no_time_is_one_look() {
    let _watchdog = watchdog(60);
    let (tx, rx) = bounded(1);
    let past = StdInstant::now();
    let passed = Instant::now();
    assert_eq!(rx.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(past), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(passed), Err(RecvTimeoutError::Timeout));
    assert_eq!(tx.send_timeout(1, Duration::ZERO), Ok(()));
    assert_eq!(tx.send_timeout(2, Duration::ZERO), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(tx.send_deadline(2, past), Err(SendTimeoutError::Timeout(2)));
    let mut select = Select::new();
    select.send(&tx);
    assert_eq!(select.select_timeout(Duration::ZERO).map(|chosen| chosen.index()), Err(SelectTimeoutError));
    assert_eq!(select.select_deadline(past).map(|chosen| chosen.index()), Err(SelectTimeoutError));
    assert!(select.ready_timeout(Duration::ZERO).is_err());
    assert!(select.ready_deadline(passed).is_err());
    assert_eq!(rx.recv_timeout(Duration::ZERO), Ok(1), "a look it is");
    assert_eq!(tx.send_deadline(3, past), Ok(()));
    assert_eq!(rx.recv_deadline(passed), Ok(3));
    alone(|| {
        let (_tx, rx) = bounded::<u32>(1);
        assert_eq!(rx.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        assert_eq!(rx.recv_deadline(past), Err(RecvTimeoutError::Timeout));
    });
}

// More time than there is: a wait without an end, which can be cancelled, and which a partner ends.
#[test]
fn all_the_time_there_is() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let waits = |rx: Receiver<u32>| fibra::spawn_local(move || rx.recv_timeout(Duration::MAX));
        let (served, cancelled) = (waits(rx.clone()), waits(rx.clone()));
        until_parked(2);
        tx.send_timeout(7, Duration::MAX).unwrap();
        assert_eq!(served.join().unwrap(), Ok(7));
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
        let selecting = fibra::spawn_local(move || {
            let mut select = Select::new();
            select.recv(&rx);
            select.select_timeout(Duration::MAX).unwrap().recv(&rx)
        });
        until_parked(1);
        tx.send(8).unwrap();
        assert_eq!(selecting.join().unwrap(), Ok(8));
        drop(channel::after(Duration::MAX));
        assert_eq!(channel::after(Duration::MAX).try_recv(), Err(TryRecvError::Empty));
    });
    // On a thread too.
    let (tx, rx) = rendezvous::<u32>();
    let thread = std::thread::spawn(move || rx.recv_timeout(Duration::MAX));
    tx.send_timeout(7, Duration::MAX).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(7));
}

// ---- Selects ------------------------------------------------------------------------------------------------------------

// A select of nothing would wait for ever: it says so. With a time it waits that long.
#[test]
fn a_select_of_nothing() {
    let _watchdog = watchdog(60);
    let mut select = Select::new();
    assert!(panics(|| select.select().index()).contains("no operations"));
    assert!(panics(|| Select::new().ready()).contains("no operations"));
    let mut select = Select::new();
    assert_eq!(select.try_select().map(|chosen| chosen.index()), Err(TrySelectError));
    assert!(select.try_ready().is_err());
    assert_eq!(select.select_timeout(Duration::from_millis(1)).map(|chosen| chosen.index()), Err(SelectTimeoutError));
    assert!(select.ready_timeout(Duration::ZERO).is_err());
    // Emptied.
    let (tx, rx) = bounded::<u32>(1);
    let (sending, receiving) = (select.send(&tx), select.recv(&rx));
    select.remove(sending);
    select.remove(receiving);
    assert_eq!(select.try_select().map(|chosen| chosen.index()), Err(TrySelectError));
    assert!(panics(|| select.select().index()).contains("no operations"));
}

// Arms can be taken out; the others keep their numbers. What is not there cannot be taken out.
#[test]
fn arms_are_removed_by_number() {
    let ((tx, rx), (_other_tx, other_rx)) = (bounded::<u32>(1), bounded::<u32>(1));
    let mut select = Select::new();
    let (first, second, third) = (select.recv(&other_rx), select.send(&tx), select.recv(&rx));
    assert_eq!([first, second, third], [0, 1, 2]);
    select.remove(first);
    let chosen = select.select();
    assert_eq!(chosen.index(), second);
    chosen.send(&tx, 7).unwrap();
    select.remove(second);
    let chosen = select.select();
    assert_eq!(chosen.index(), third);
    assert_eq!(chosen.recv(&rx), Ok(7));
    assert_eq!(select.recv(&other_rx), 3, "numbers are not used again");
    assert!(
        panics(|| select.remove(second)).contains("index out of bounds") || !panics(|| select.remove(17)).is_empty()
    );
}

/// A select that has found a partner, which waits in another fiber.
fn with_partner(f: impl FnOnce(&Sender<u32>, &Receiver<u32>, fibra::JoinHandle<bool>) + Send) {
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let sender = tx.clone();
        let partner = fibra::spawn_local(move || sender.send(7).is_ok());
        until_parked(1);
        f(&tx, &rx, partner);
    });
}

// A chosen operation must be completed: dropped, it panics, as in crossbeam-channel. Its partner is not left hanging.
#[test]
fn a_dropped_choice_panics() {
    let _watchdog = watchdog(60);
    with_partner(|tx, rx, partner| {
        let mut select = Select::new();
        select.recv(rx);
        assert!(panics(|| select.select()).contains("dropped"), "it says what happened");
        // Nothing is lost: either its sender still has the value, or it is the next one to be received.
        let value = rx.try_recv();
        partner.cancel();
        assert!(value == Ok(7) || value == Err(TryRecvError::Empty) && partner.join().is_err());
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let receiver = fibra::spawn_local({
            let rx = rx.clone();
            move || rx.recv()
        });
        until_parked(1);
        tx.try_send(8).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(8));
    });
    let (tx, rx) = bounded::<u32>(1);
    let mut select = Select::new();
    select.send(&tx);
    assert!(panics(|| select.select()).contains("dropped"));
    assert!(rx.is_empty());
    tx.try_send(1).unwrap();
    assert_eq!(rx.try_recv(), Ok(1));
}

// Forgotten, it keeps what it has: a value, or a place in the buffer. But its partner is not held, and the channel goes on.
#[test]
fn a_forgotten_choice_leaves_its_partner_cancellable() {
    let _watchdog = watchdog(60);
    with_partner(|tx, rx, partner| {
        let mut select = Select::new();
        select.recv(rx);
        mem::forget(select.select());
        drop(select);
        partner.cancel();
        let _ = partner.join();
        let receiver = fibra::spawn_local({
            let rx = rx.clone();
            move || rx.recv()
        });
        until_parked(1);
        tx.try_send(8).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(8));
    });
    // A place in a buffer, and a value in one.
    let (tx, rx) = bounded::<u32>(2);
    tx.send(1).unwrap();
    let mut select = Select::new();
    select.recv(&rx);
    mem::forget(select.select());
    let mut select = Select::new();
    select.send(&tx);
    mem::forget(select.select());
    tx.try_send(2).unwrap();
    assert_eq!(rx.try_iter().last(), Some(2));
    drop(tx);
    assert_eq!(rx.recv(), Err(fibra::channel::RecvError));
}

// The operation that was chosen, and no other, completes it.
#[test]
fn a_choice_is_completed_with_its_own_end() {
    let ((tx, rx), (other_tx, other_rx)) = (bounded::<u32>(1), bounded::<u32>(1));
    other_tx.send(9).unwrap();
    let mut select = Select::new();
    select.send(&tx);
    assert!(!panics(|| select.select().send(&other_tx, 1)).is_empty());
    tx.try_send(7).unwrap();
    let mut select = Select::new();
    select.recv(&rx);
    assert!(!panics(|| select.select().recv(&other_rx)).is_empty());
    assert_eq!((rx.try_recv(), other_rx.try_recv()), (Ok(7), Ok(9)), "neither has lost anything");
}

// ---- Dropped and forgotten ----------------------------------------------------------------------------------------------

// A forgotten permit keeps its place for ever, and that is all.
#[test]
fn a_forgotten_permit_keeps_its_place() {
    let ledger = Ledger::new(10);
    let (tx, rx) = bounded(2);
    mem::forget(tx.reserve().unwrap());
    tx.try_send(ledger.value()).unwrap();
    assert!(tx.try_send(ledger.value()).is_err());
    drop(rx.try_recv().unwrap());
    tx.try_send(ledger.value()).unwrap();
    drop(rx);
    assert!(tx.is_closed());
    drop(tx);
    ledger.check_drops();
}

// A forgotten future may keep its place in the queue: others can be held up by it, but no memory is touched that is gone, and the end
// comes through.
#[test]
#[cfg_attr(fibra_asan, ignore = "leaks on purpose: what a forgotten future owns")]
fn forgotten_futures_do_no_harm() {
    let _watchdog = watchdog(60);
    let ledger = Ledger::new(10);
    let (tx, rx) = bounded(1);
    for polls in 0..2 {
        let mut receiving = Box::pin(rx.recv_async());
        (0..polls).for_each(|_| assert!(poll(receiving.as_mut(), &Calls::new()).is_pending()));
        mem::forget(receiving);
    }
    tx.try_send(ledger.value()).unwrap();
    let mut sending = Box::pin(tx.send_async(ledger.value()));
    assert!(poll(sending.as_mut(), &Calls::new()).is_pending());
    mem::forget(sending);
    assert!(rx.try_recv().is_ok());
    tx.close();
    rx.iter().for_each(drop);
    drop((tx, rx));
    // Even the one in the forgotten future: it could be taken there.
    ledger.check_drops();
}

// ---- Destructors that interfere -----------------------------------------------------------------------------------------

/// A sender, and perhaps a receiver, of the channel it lies in; taken away at the end, since they would keep it alive.
type OwnEnds = Arc<Mutex<Option<(Sender<Meddler>, Option<Receiver<Meddler>>)>>>;

/// Uses the channel it lies in when it is dropped.
struct Meddler {
    ends: OwnEnds,
    seen: Arc<Mutex<Vec<(usize, bool)>>>,
    depth: usize,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        let Some((tx, rx)) = self.ends.lock().unwrap().clone() else { return };
        self.seen.lock().unwrap().push((tx.len(), tx.is_closed()));
        if self.depth > 0 {
            let more = Meddler { ends: self.ends.clone(), seen: self.seen.clone(), depth: self.depth - 1 };
            let _ = tx.try_send(more).map_err(|error| error.into_inner().ends = Arc::default());
        }
        if let Some(rx) = rx {
            let _ = rx.try_recv().map(|mut value| value.ends = Arc::default());
        }
    }
}

impl Meddler {
    /// `sees_receiver`: it holds one of the receivers too.
    fn channel(
        kind: (Sender<Meddler>, Receiver<Meddler>),
        sees_receiver: bool,
    ) -> (impl Fn() -> Meddler, Sender<Meddler>, Receiver<Meddler>) {
        let (tx, rx) = kind;
        let ends = Arc::new(Mutex::new(Some((tx.clone(), sees_receiver.then(|| rx.clone())))));
        let seen = Arc::default();
        (move || Meddler { ends: ends.clone(), seen: Arc::clone(&seen), depth: 2 }, tx, rx)
    }
}

// No destructor runs under the channel's lock.
#[test]
fn a_destructor_may_use_its_channel() {
    let _watchdog = watchdog(60);
    // When the last receiver goes.
    for kind in [bounded(3), unbounded()] {
        let (make, tx, rx) = Meddler::channel(kind, false);
        (0..3).for_each(|_| assert!(tx.send(make()).is_ok()));
        let probe = make();
        drop(rx);
        *probe.ends.lock().unwrap() = None;
        assert!(tx.is_closed());
    }
    // When it overflows.
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        for sees_receiver in [false, true] {
            let kind = channel::builder().bounded(2).overflow(overflow).build();
            let (make, tx, rx) = Meddler::channel(kind, sees_receiver);
            (0..5).for_each(|_| assert!(tx.send(make()).is_ok()));
            let probe = make();
            *probe.ends.lock().unwrap() = None;
            assert!(!probe.seen.lock().unwrap().is_empty(), "a destructor ran");
            drop((tx, rx));
        }
    }
    // When it is received, given back, given up or closed over.
    let (make, tx, rx) = Meddler::channel(bounded(1), true);
    assert!(tx.send(make()).is_ok());
    drop(tx.try_send(make()));
    drop(tx.force_send(make()));
    let mut sending = Box::pin(tx.send_async(make()));
    let _ = poll(sending.as_mut(), &Calls::new());
    drop(sending);
    drop(rx.try_recv());
    tx.close_now();
    drop(tx.send(make()));
    let probe = make();
    *probe.ends.lock().unwrap() = None;
    drop((tx, rx));
}

// A fiber that is cancelled in its send drops the value, which may use the channel.
#[test]
fn a_destructor_may_use_its_channel_while_unwinding() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (make, tx, rx) = Meddler::channel(rendezvous(), true);
        let (sender, value, probe) = (tx.clone(), make(), make());
        let fiber = fibra::spawn_local(move || drop(sender.send(value)));
        until_parked(1);
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert!(!probe.seen.lock().unwrap().is_empty());
        *probe.ends.lock().unwrap() = None;
        drop((tx, rx));
    });
}

// What never comes does not come.
#[test]
fn never_is_never() {
    let rx = never::<u32>();
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    let mut select = Select::new();
    select.recv(&rx);
    assert!(select.select_timeout(Duration::from_millis(1)).is_err());
    assert!(rx.clone().is_empty());
    assert_eq!(rx.len(), 0);
}
