//! Timed receivers: [`after`], [`at`], [`tick`]; and [`never()`]. No fiber and no timer stands behind them: a waiting receiver waits
//! with the channel's deadline, and takes the value when that has come. So a channel at which no receiver waits costs nothing, and
//! dropping the receiver ends it.
//!
//! Above: users, and `future`, which sets alarms. Below: `state`, and `sched::timers::alarms` for futures on workers.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::chan::Chan;
use super::receiver::Receiver;
use super::sender::Sender;
use super::state::ChanState;
use crate::prim::policy;
use crate::prim::sync::Mutex;
#[cfg(not(any(loom, shuttle)))]
use crate::prim::thread;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::timers::alarms;
use crate::time::Instant;
use crate::wait::wake;

/// When the next value is due, and how it is made.
pub(crate) struct Timed<T> {
    /// On fibra's clock; `u64::MAX` is never.
    next: u64,
    /// Zero: there is only one value.
    period: u64,
    make: fn(Instant) -> T,
}

impl<T> fmt::Debug for Timed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").field("next", &self.next).field("period", &self.period).finish_non_exhaustive()
    }
}

impl<T> Timed<T> {
    pub(super) fn deadline(&self) -> Option<u64> {
        (self.next != u64::MAX).then_some(self.next)
    }

    pub(super) fn is_due(&self) -> bool {
        self.next != u64::MAX && self.next <= policy::now()
    }

    /// Will no value come any more? True after the value of an [`after`] was taken. (A value that is never due has yet to come.)
    pub(super) fn is_spent(&self) -> bool {
        self.next == u64::MAX && self.period == 0
    }

    /// The value, if its time has come. Ticks that no receiver took are not made up for: the next one is a whole period away from the last
    /// that was due.
    pub(super) fn take_due(&mut self) -> Option<T> {
        if self.next == u64::MAX {
            return None;
        }
        let now = policy::now();
        if self.next > now {
            return None;
        }
        let due = self.next;
        self.next = match self.period {
            0 => u64::MAX,
            period => due.saturating_add(((now - due) / period + 1).saturating_mul(period)),
        };
        Some((self.make)(Instant::from_nanos(due)))
    }
}

/// Is the value of a timed channel due?
pub(super) fn is_due<T>(state: &ChanState<T>) -> bool {
    state.timed.as_ref().is_some_and(|timed| timed.is_due())
}

/// Calls a waker when a moment has come: for futures, which have no timer of their own. The runtime does it, or a thread where there is
/// none. Dropping the alarm ends it.
#[derive(Debug)]
pub(super) struct Alarm {
    due: u64,
    kept: Kept,
}

/// The keeper of an alarm: a runtime or a thread.
#[derive(Debug)]
enum Kept {
    #[cfg(not(any(loom, shuttle)))]
    ByRuntime(alarms::Alarm),
    ByThread(ThreadAlarm),
}

impl Alarm {
    /// Sets `alarm` to `due`, or gives the alarm that is set already the new waker. If the moment is over nothing is set: the caller looks
    /// at the time afterwards, and handles that case.
    pub(super) fn set(alarm: &mut Option<Self>, due: u64, waker: &Waker) {
        if due <= policy::now() {
            return;
        }
        if let Some(set) = alarm
            && set.due == due
            && set.kept.rename(waker)
        {
            return;
        }
        *alarm = Some(Self { due, kept: Kept::by(due, waker) });
    }
}

impl Kept {
    /// An alarm that ended before its time has lost its runtime; a thread outlives that.
    fn by(due: u64, waker: &Waker) -> Self {
        #[cfg(not(any(loom, shuttle)))]
        if let Some(alarm) = alarms::Alarm::set(due, waker) {
            return Self::ByRuntime(alarm);
        }
        Self::ByThread(ThreadAlarm::set(due, waker))
    }

    /// False: it has rung, or is about to.
    fn rename(&self, waker: &Waker) -> bool {
        match self {
            #[cfg(not(any(loom, shuttle)))]
            Self::ByRuntime(alarm) => alarm.rename(waker),
            Self::ByThread(alarm) => alarm.rename(waker),
        }
    }
}

/// An alarm of code that runs on no worker.
#[derive(Debug)]
struct ThreadAlarm {
    /// Taken out by the thread that calls it.
    waker: Arc<Mutex<Option<Waker>>>,
    /// Dropped with the alarm, which the bell notices; and closed by the bell when it is done.
    bell: Option<Sender<()>>,
    /// The process of the alarm: in the child of a fork there is no thread that would ring, and locks that it held are held for ever.
    process: u64,
}

impl ThreadAlarm {
    fn set(due: u64, waker: &Waker) -> Self {
        let waker = Arc::new(Mutex::new(Some(waker.clone())));
        let (bell, stopped) = super::rendezvous::<()>();
        let rings = Bell { stopped: Some(stopped), waker: waker.clone() };
        let process = process();
        start(move || rings.wait(due));
        Self { waker, bell: Some(bell), process }
    }

    fn rename(&self, waker: &Waker) -> bool {
        if self.process != process() {
            return false;
        }
        let waker = Some(waker.clone());
        let old = mem::replace(&mut *self.waker.lock(), waker);
        drop(old);
        // Asked after the waker was stored: a bell that did not see this waker had closed the channel before.
        self.bell.as_ref().is_some_and(|bell| !bell.has_closed())
    }
}

impl Drop for ThreadAlarm {
    fn drop(&mut self) {
        if self.process != process() {
            return mem::forget(self.bell.take());
        }
        // The future does not wait any more. Its waker is dropped without the lock: that is user code.
        let waker = self.waker.lock().take();
        drop(waker);
    }
}

/// The other half of a [`ThreadAlarm`]: rings when its time has come.
struct Bell {
    stopped: Option<Receiver<()>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Bell {
    fn wait(self, due: u64) {
        if let Some(stopped) = &self.stopped {
            let _ = stopped.recv_deadline(Instant::from_nanos(due));
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        drop(self.stopped.take());
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            wake::call_waker(waker);
        }
    }
}

/// Runs the bell on a thread of its own. If the system gives no thread, the alarm rings too early, and a message says so.
#[cfg(not(any(loom, shuttle)))]
fn start(alarm: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::start("fibra-alarm".into(), alarm) {
        crate::prim::say(format_args!("fibra: no timer for an async receive of `after` or `tick`: {error}"));
    }
}

#[cfg(not(any(loom, shuttle)))]
fn process() -> u64 {
    crate::monitor::fork::process()
}

#[cfg(any(loom, shuttle))]
fn process() -> u64 {
    0
}

#[cfg(any(loom, shuttle))]
fn start(_: impl FnOnce() + Send + 'static) {
    unreachable!("models have no time");
}

fn timed(next: Instant, period: Duration) -> Receiver<Instant> {
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    Receiver::only(Chan::timed(Timed { next: next.as_nanos(), period, make: |due| due }))
}

/// A receiver that yields one value, the moment it was due, after `duration`. Then it is closed: the receiver that takes the value ends the
/// channel, for all clones of it. (An arm of a loop that is to fire once only needs a guard: receiving the end is always ready.)
///
/// ```
/// use fibra::channel::{after, bounded};
/// use std::time::Duration;
///
/// let (_tx, rx) = bounded::<u32>(1);
/// let timeout = after(Duration::from_millis(5));
/// fibra::select! {
///     recv(rx) -> _ => unreachable!("nothing is sent"),
///     recv(timeout) -> due => assert!(due.is_ok()),
/// }
/// assert!(timeout.recv().is_err()); // there was only one
/// ```
#[must_use]
pub fn after(duration: Duration) -> Receiver<Instant> {
    at(Instant::after(duration))
}

/// Like [`after`], with the moment given. One in the past is due at once.
///
/// ```
/// use fibra::time::Instant;
///
/// let moment = Instant::now();
/// assert_eq!(fibra::channel::at(moment).recv(), Ok(moment));
/// ```
#[must_use]
pub fn at(deadline: impl Into<Instant>) -> Receiver<Instant> {
    timed(deadline.into(), Duration::ZERO)
}

/// A receiver that yields the moment it was due every `period`, the first time after one period. A receiver that is late gets one value,
/// not all that were missed. A period of zero is as short as the clock allows: one nanosecond.
///
/// ```
/// use fibra::channel::tick;
/// use std::time::Duration;
///
/// let ticks = tick(Duration::from_millis(1));
/// let (first, second) = (ticks.recv().unwrap(), ticks.recv().unwrap());
/// assert!(second - first >= Duration::from_millis(1));
/// ```
#[must_use]
pub fn tick(period: Duration) -> Receiver<Instant> {
    let period = period.max(Duration::from_nanos(1));
    timed(Instant::after(period), period)
}

/// A receiver that never yields anything and is never closed: for an arm that is switched off.
///
/// ```
/// use fibra::channel::{TryRecvError, never};
///
/// assert_eq!(never::<u32>().try_recv(), Err(TryRecvError::Empty));
/// ```
#[must_use]
pub fn never<T>() -> Receiver<T> {
    Receiver::only(Chan::without_senders(0))
}
