//! Wakers that a runtime calls at a given moment: for futures that wait for time (`after(..).recv_async()`), which have no timer of their
//! own. The moment lies in the [`Wheel`](super::wheel::Wheel) of a seat, so that it is kept although the worker of that seat is stuck.
//!
//! Above: `channel::timed`, which sets and drops alarms. Below: `wheel.rs`, which fires them by number.
//!
//! Invariants
//! * A waker is called once or dropped once, outside the lock: both are user code.
//! * A number is never given twice, so a timer that fires late, or was moved to another seat, cannot ring a later alarm in the same place.
//! * When a runtime begins to shut down every alarm rings, early, and none is set after that: a future that wakes looks at the time, and
//!   sets another alarm on another runtime. All alarms ring, too, when the thread of a current-thread runtime leaves `run`: until a thread
//!   is back, none looks at the runtime's deadlines.
//! * An alarm is kept by the runtime on which its future was polled last. That runtime may outlive the one that polled before, or may be
//!   what holds it up.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use super::timing::WheelDue;
use crate::prim::epoch::epoch;
use crate::prim::sync::Mutex;
use crate::sched::call_wakers::call_wakers_where_fit;
use crate::sched::current;
use crate::sched::shared::RuntimeShared;
use crate::sched::timers::heap::Timer;

/// With more free places than this and no alarm, their memory is given back.
const KEPT_PLACES: usize = 64;

/// The alarms of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    places: Vec<Option<(u64, Waker)>>,
    free: Vec<u32>,
    given: u64,
    is_closed: bool,
}

/// Names an alarm of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AlarmId {
    place: u32,
    number: u64,
}

impl Alarms {
    /// `None`: the runtime is shutting down.
    fn add(&self, waker: Waker) -> Option<AlarmId> {
        let mut table = self.0.lock();
        if table.is_closed {
            drop(table);
            drop(waker);
            return None;
        }
        table.given += 1;
        let number = table.given;
        let place = table.free.pop().unwrap_or_else(|| {
            table.places.push(None);
            u32::try_from(table.places.len() - 1).expect("fewer alarms than memory for them")
        });
        table.places[place as usize] = Some((number, waker));
        Some(AlarmId { place, number })
    }

    /// Exchanges the waker of an alarm. False: the alarm has rung, or is about to.
    fn replace(&self, id: AlarmId, waker: &Waker) -> bool {
        let mut new = waker.clone();
        let mut table = self.0.lock();
        let Some(Some((number, old))) = table.places.get_mut(id.place as usize) else { return false };
        let found = *number == id.number;
        if found {
            mem::swap(old, &mut new);
        }
        drop(table);
        drop(new);
        found
    }

    /// Takes the waker out; the caller calls or drops it.
    pub(in crate::sched) fn take(&self, id: AlarmId) -> Option<Waker> {
        let mut table = self.0.lock();
        let place = table.places.get_mut(id.place as usize)?;
        let (_, waker) = place.take_if(|(number, _)| *number == id.number)?;
        table.free.push(id.place);
        if table.free.len() == table.places.len() && table.places.len() > KEPT_PLACES {
            (table.places, table.free) = (Vec::new(), Vec::new());
        }
        Some(waker)
    }

    /// Is this alarm yet to ring?
    pub(in crate::sched) fn is_set(&self, id: AlarmId) -> bool {
        let table = self.0.lock();
        let place = table.places.get(id.place as usize);
        place.is_some_and(|place| place.as_ref().is_some_and(|(number, _)| *number == id.number))
    }

    /// Refuses alarms from now on, and returns the wakers of those that are set.
    pub(in crate::sched) fn close(&self) -> Vec<Waker> {
        let mut table = self.0.lock();
        table.is_closed = true;
        table.take_all()
    }

    /// Returns the wakers of all alarms that are set.
    fn take_all(&self) -> Vec<Waker> {
        self.0.lock().take_all()
    }
}

impl Table {
    fn take_all(&mut self) -> Vec<Waker> {
        self.free = Vec::new();
        mem::take(&mut self.places).into_iter().flatten().map(|(_, waker)| waker).collect()
    }
}

/// An alarm that a runtime keeps. Dropping this cancels the alarm.
#[derive(Debug)]
pub(crate) struct Alarm {
    shared: Arc<RuntimeShared>,
    id: AlarmId,
    seat: usize,
    timer: Timer,
}

impl Alarm {
    /// The runtime whose worker the caller runs on will call `waker` at `due`. `None`: the caller runs on no worker, or the runtime is
    /// shutting down.
    pub(crate) fn set(due: u64, waker: &Waker) -> Option<Self> {
        let waker = waker.clone();
        let worker = current::worker()?;
        let id = worker.shared.alarms.add(waker)?;
        let timer = worker.set_wheel_timer(WheelDue::Alarm(id), due);
        // If a single worker got stuck now without sysmon, nothing would fire the alarm.
        worker.shared.sysmon.start_if_late(&worker.shared);
        Some(Self { shared: worker.shared.clone(), id, seat: worker.index, timer })
    }

    /// Exchanges the waker. False: the alarm has rung, or is about to, or this runtime is not the one to keep it any more.
    pub(crate) fn rename(&self, waker: &Waker) -> bool {
        let is_here = || current::worker().is_some_and(|worker| Arc::ptr_eq(&worker.shared, &self.shared));
        self.is_of_this_process() && is_here() && self.shared.alarms.replace(self.id, waker)
    }

    /// False in the child of a fork, where the alarm's locks may be held for ever.
    fn is_of_this_process(&self) -> bool {
        self.shared.fork_epoch == epoch()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        let waker = self.shared.alarms.take(self.id);
        // Removed also if the alarm has rung: that may have been before its time. If that seat's worker has left, the timer lies in another
        // seat by now; when it fires, it finds no alarm.
        self.shared.remotes[self.seat].wheel.remove(self.timer);
        drop(waker);
    }
}

impl RuntimeShared {
    /// The moment of this alarm has come.
    pub(in crate::sched) fn ring(&self, id: AlarmId) {
        if let Some(waker) = self.alarms.take(id) {
            call_wakers_where_fit(vec![waker]);
        }
    }

    /// Rings every alarm: the thread of the only worker leaves. Each future that is woken looks at the time, and waits on another runtime
    /// or when the thread is back.
    pub(crate) fn ring_all(&self) {
        call_wakers_where_fit(self.alarms.take_all());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counts(AtomicUsize);
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_alarm_is_taken_once_and_its_number_is_never_another_ones() {
        let (alarms, counts) = (Alarms::default(), Arc::new(Counts(AtomicUsize::new(0))));
        let waker = || Waker::from(counts.clone());
        let first = alarms.add(waker()).unwrap();
        assert!(alarms.replace(first, &waker()));
        alarms.take(first).unwrap().wake();
        assert!(alarms.take(first).is_none() && !alarms.replace(first, &waker()));
        let second = alarms.add(waker()).unwrap();
        assert_eq!(first.place, second.place);
        assert!(alarms.take(first).is_none(), "an old number finds nothing in a place that is used again");
        alarms.close().into_iter().for_each(Waker::wake);
        assert!(alarms.add(waker()).is_none() && alarms.take(second).is_none());
        assert_eq!(counts.0.load(Ordering::SeqCst), 2);
        assert_eq!(Arc::strong_count(&counts), 1, "every waker is gone");
    }

    #[test]
    fn memory_of_many_alarms_is_given_back() {
        let alarms = Alarms::default();
        let ids: Vec<_> = (0..1_000).map(|_| alarms.add(Waker::noop().clone()).unwrap()).collect();
        ids.into_iter().for_each(|id| drop(alarms.take(id).unwrap()));
        assert_eq!(alarms.0.lock().places.capacity(), 0);
    }
}
