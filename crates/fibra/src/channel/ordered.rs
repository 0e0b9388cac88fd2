//! [`ordered`]: tasks that run in parallel, and their results in the order in which the tasks were submitted.
//!
//! Above: users. Below: two semaphores, which do all the waiting, and `scope`, which runs the tasks.
//!
//! ```text
//! spawn    takes a place (of `capacity`), appends an empty slot, starts the fiber
//! task     puts its result into its slot; if every older slot is full, the permits of the slots that are now next go to `ready`
//! recv     takes a permit of `ready`, takes the oldest slot out, gives the place back
//! ```
//!
//! Invariants: the permits of `ready` are as many as there are full slots before the first empty one; so a receiver that has one finds the
//! oldest slot full. A slot is out of the queue before its place is free. `ready` is closed when the channel is closed and the
//! queue is empty. No task is orphaned: a task whose slot is gone, because the last receiver was dropped, has been cancelled, and its
//! result is dropped; a task that found no place because the channel is closed is joined, and its result given back.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use crate::cancel::{is_cancellation, pass_on};
use crate::prim::spin::SpinLock;
use crate::sched::current;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::{AcquireArm, AcquireTimeoutError, Semaphore, TryAcquireError};
use crate::task::{JoinError, JoinHandle, spawn};
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;

/// One task.
struct OrderedTask<T> {
    /// Cancels the task when it is dropped; `None` before it was started, and after it was done.
    task: Option<JoinHandle<()>>,
    result: Option<Result<T, JoinError>>,
}

struct Queue<T> {
    slots: VecDeque<OrderedTask<T>>,
    /// The number of the first slot.
    first: u64,
    /// So many slots, from the first on, are full and have their permit.
    full: usize,
    closed: bool,
}

impl<T> Queue<T> {
    fn slot(&mut self, number: u64) -> Option<&mut OrderedTask<T>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(index)
    }

    /// Counts the full slots that have no permit yet, which they get now.
    fn newly_full(&mut self) -> usize {
        let more = self.slots.iter().skip(self.full).take_while(|slot| slot.result.is_some()).count();
        self.full += more;
        more
    }
}

struct OrderedShared<T> {
    queue: SpinLock<Queue<T>>,
    places: Semaphore,
    ready: Semaphore,
    capacity: usize,
}

impl<T> OrderedShared<T> {
    /// Admits no further task. The results of admitted tasks are delivered.
    fn close(&self) {
        let drained = self.queue.with(|queue| {
            queue.closed = true;
            queue.slots.is_empty()
        });
        self.places.close();
        if drained {
            self.ready.close();
        }
    }

    /// The oldest result; the caller has a permit of `ready`.
    fn take(&self) -> Result<T, JoinError> {
        let (slot, ended) = self.queue.with(|queue| {
            let slot = queue.slots.pop_front().expect("a permit stands for a full slot");
            queue.first += 1;
            queue.full -= 1;
            (slot, queue.closed && queue.slots.is_empty())
        });
        self.places.give(1);
        if ended {
            self.ready.close();
        }
        slot.result.expect("slots are full from the first on")
    }

    /// The end of a task.
    fn put(&self, number: u64, result: Result<T, JoinError>) {
        let mut left = Some(result);
        let (task, more) = self.queue.with(|queue| match queue.slot(number) {
            Some(slot) => {
                slot.result = left.take();
                (slot.task.take(), queue.newly_full())
            }
            // The receivers are gone.
            None => (None, 0),
        });
        if more > 0 {
            self.ready.give(more);
        }
        drop(task);
        drop(left);
    }
}

/// Puts the result of a task into its slot, also if it ends without one.
struct Ending<T> {
    shared: Arc<OrderedShared<T>>,
    number: u64,
    ended: bool,
}

impl<T> Ending<T> {
    fn run(mut self, f: impl FnOnce() -> T) {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => {
                self.ended = true;
                self.shared.put(self.number, Ok(value));
            }
            // The destructor says so.
            Err(payload) if is_cancellation(&*payload) => pass_on(payload),
            Err(payload) => {
                self.ended = true;
                self.shared.put(self.number, Err(JoinError::of_this_fiber(Some(payload))));
            }
        }
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.put(self.number, Err(JoinError::of_this_fiber(None)));
        }
    }
}

/// A channel of tasks: each [`spawn`](OrderedSender::spawn) runs a function on a fiber of its own, at most `capacity` of them (at least
/// one) started and not received at a time; the receiver gets the results in the order of submission. A slow task holds up the results of
/// those behind it, never their work, and order never changes. A task that panics is an `Err` in its place.
///
/// ```
/// use fibra::channel;
///
/// fibra::run(|| {
///     let (tx, rx) = channel::ordered(4);
///     fibra::spawn(move || {
///         for n in 0..10u64 {
///             tx.spawn(move || {
///                 fibra::sleep(std::time::Duration::from_micros(100 * (10 - n))); // the first takes longest
///                 n * n
///             })
///             .unwrap();
///         }
///     });
///     let squares: Vec<u64> = rx.iter().map(Result::unwrap).collect();
///     assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]);
/// });
/// ```
pub fn ordered<T: Send + 'static>(capacity: usize) -> (OrderedSender<T>, OrderedReceiver<T>) {
    let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
    let shared = Arc::new(OrderedShared {
        queue: SpinLock::new(Queue { slots: VecDeque::new(), first: 0, full: 0, closed: false }),
        places: Semaphore::new(capacity),
        ready: Semaphore::all_taken(capacity),
        capacity,
    });
    let sender = OrderedSender { side: Arc::new(SenderSide(shared.clone())) };
    (sender, OrderedReceiver { side: Arc::new(ReceiverSide(shared)) })
}

/// What the senders share.
struct SenderSide<T>(Arc<OrderedShared<T>>);

impl<T> Drop for SenderSide<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What the receivers share.
struct ReceiverSide<T>(Arc<OrderedShared<T>>);

impl<T> Drop for ReceiverSide<T> {
    fn drop(&mut self) {
        self.0.close();
        // Tasks that run are cancelled, by the drop of their handles. The slots are dropped without the lock: results are the user's.
        let slots = self.0.queue.with(|queue| {
            queue.first += queue.slots.len() as u64;
            queue.full = 0;
            mem::take(&mut queue.slots)
        });
        drop(slots);
    }
}

/// The sending end of an [`ordered`] channel. When the last one is dropped, the receiver gets what was submitted, and then the end.
pub struct OrderedSender<T> {
    side: Arc<SenderSide<T>>,
}

impl<T: Send + 'static> OrderedSender<T> {
    /// Starts `f` on a fiber of its own, once fewer than `capacity` tasks are started and not received.
    ///
    /// # Errors
    /// If the channel is closed or its receivers are gone. The task was run and joined all the same: its result is in the error.
    ///
    /// # Panics
    /// On a thread without a runtime, as [`fibra::spawn`](crate::spawn) does.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::ordered(1);
    ///     drop(rx);
    ///     let refused = tx.spawn(|| 42).unwrap_err();
    ///     assert_eq!(refused.join().unwrap(), 42);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, f: F) -> Result<(), Refused<T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        match self.shared().places.take_as(WaitReason::OrderedSpawn, 1, None, Location::caller()) {
            Ok(()) => self.start(f),
            Err(_) => Err(refused(f)),
        }
    }

    /// Starts `f` if there is a place for it now.
    ///
    /// # Errors
    /// If there is none, `f` comes back; if the channel is closed, it was run, and its result comes back.
    #[track_caller]
    pub fn try_spawn<F>(&self, f: F) -> Result<(), TrySpawnError<F, T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        park::count_call();
        match self.shared().places.try_take(1) {
            Ok(()) => self.start(f).map_err(TrySpawnError::Closed),
            Err(TryAcquireError::Closed) => Err(TrySpawnError::Closed(refused(f))),
            Err(_) => Err(TrySpawnError::Full(f)),
        }
    }

    /// Like [`spawn`](Self::spawn), but gives up after `timeout`.
    ///
    /// # Errors
    /// As [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn spawn_timeout<F>(&self, f: F, timeout: Duration) -> Result<(), TrySpawnError<F, T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_deadline(f, Instant::after(timeout))
    }

    /// Like [`spawn`](Self::spawn), but gives up at `deadline`.
    ///
    /// # Errors
    /// As [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn spawn_deadline<F>(&self, f: F, deadline: impl Into<Instant>) -> Result<(), TrySpawnError<F, T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let deadline = Some(deadline.into());
        match self.shared().places.take_as(WaitReason::OrderedSpawn, 1, deadline, Location::caller()) {
            Ok(()) => self.start(f).map_err(TrySpawnError::Closed),
            Err(AcquireTimeoutError::TimedOut) => Err(TrySpawnError::Full(f)),
            Err(_) => Err(TrySpawnError::Closed(refused(f))),
        }
    }

    /// Like [`spawn`](Self::spawn), as a future: it waits for a place without blocking its thread.
    ///
    /// # Errors
    /// As there.
    pub async fn spawn_async<F>(&self, f: F) -> Result<(), Refused<T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        match self.shared().places.acquire_async(1).await {
            Ok(place) => {
                place.forget_lender();
                self.start(f)
            }
            Err(_) => Err(Refused { result: spawn(f).cancel_on_drop().await }),
        }
    }

    /// Starts the task in the place that the caller has taken.
    #[track_caller]
    fn start<F>(&self, f: F) -> Result<(), Refused<T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let shared = self.shared();
        if current::worker().is_none() && current::runtime().is_none() {
            // Nothing is submitted: the place is free again, and the spawn panics.
            shared.places.give(1);
            spawn(f);
            unreachable!("there is no runtime");
        }
        let number = shared.queue.with(|queue| {
            if queue.closed {
                return None;
            }
            queue.slots.push_back(OrderedTask { task: None, result: None });
            Some(queue.first + queue.slots.len() as u64 - 1)
        });
        let Some(number) = number else { return Err(refused(f)) };
        let ending = Ending { shared: shared.clone(), number, ended: false };
        let task = spawn(move || ending.run(f)).cancel_on_drop();
        let mut task = Some(task);
        shared.queue.with(|queue| {
            if let Some(slot) = queue.slot(number).filter(|slot| slot.result.is_none()) {
                slot.task = task.take();
            }
        });
        // The task has ended already, or the receivers are gone and it is cancelled.
        drop(task);
        Ok(())
    }

    fn shared(&self) -> &Arc<OrderedShared<T>> {
        &self.side.0
    }

    /// No further task is admitted, through any sender. What was submitted is delivered.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Is no further task admitted?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared().places.is_closed()
    }

    /// How many tasks were submitted and not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().queue.with(|queue| queue.slots.len())
    }

    /// Is there no such task?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tasks there can be.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared().capacity
    }
}

/// Runs a task that was not admitted, and joins it.
#[track_caller]
fn refused<T, F>(f: F) -> Refused<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Refused { result: spawn(f).cancel_on_drop().join() }
}

impl<T> Clone for OrderedSender<T> {
    fn clone(&self) -> Self {
        Self { side: self.side.clone() }
    }
}

/// The receiving end of an [`ordered`] channel. When the last one is dropped, the tasks that still run are cancelled.
pub struct OrderedReceiver<T> {
    side: Arc<ReceiverSide<T>>,
}

impl<T> OrderedReceiver<T> {
    fn shared(&self) -> &OrderedShared<T> {
        &self.side.0
    }

    /// Receives the result of the oldest task, waiting until it is done: `Err` inside if it panicked or was cancelled.
    ///
    /// # Errors
    /// If there is no task any more and none will come.
    #[track_caller]
    pub fn recv(&self) -> Result<Result<T, JoinError>, RecvError> {
        match self.shared().ready.take_as(WaitReason::OrderedRecv, 1, None, Location::caller()) {
            Ok(()) => Ok(self.shared().take()),
            Err(_) => Err(RecvError),
        }
    }

    /// Receives the result of the oldest task if it is done.
    ///
    /// # Errors
    /// If it is not done, or there is no task now, or none will come any more.
    pub fn try_recv(&self) -> Result<Result<T, JoinError>, TryRecvError> {
        park::count_call();
        match self.shared().ready.try_take(1) {
            Ok(()) => Ok(self.shared().take()),
            Err(TryAcquireError::Closed) => Err(TryRecvError::Disconnected),
            Err(_) => Err(TryRecvError::Empty),
        }
    }

    /// Like [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or there is no task any more and none will come.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Result<T, JoinError>, RecvTimeoutError> {
        self.recv_deadline(Instant::after(timeout))
    }

    /// Like [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or there is no task any more and none will come.
    #[track_caller]
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<Result<T, JoinError>, RecvTimeoutError> {
        let deadline = Some(deadline.into());
        match self.shared().ready.take_as(WaitReason::OrderedRecv, 1, deadline, Location::caller()) {
            Ok(()) => Ok(self.shared().take()),
            Err(AcquireTimeoutError::TimedOut) => Err(RecvTimeoutError::Timeout),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Like [`recv`](Self::recv), as a future. Dropping it loses nothing.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_async(&self) -> Result<Result<T, JoinError>, RecvError> {
        let permit = self.shared().ready.acquire_async(1).await.map_err(|_| RecvError)?;
        permit.forget_lender();
        Ok(self.shared().take())
    }

    /// Receiving, as an arm of [`select!`](crate::select).
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::ordered(1);
    ///     tx.spawn(|| "done").unwrap();
    ///     fibra::select! {
    ///         on(rx.receiving()) -> got => assert_eq!(got.unwrap().unwrap(), "done"),
    ///     }
    /// });
    /// ```
    pub fn receiving(&self) -> OrderedArm<'_, T> {
        OrderedArm { shared: self.shared(), permit: self.shared().ready.acquiring(1) }
    }

    /// Receives until nothing will come any more; waits for each result.
    pub fn iter(&self) -> impl Iterator<Item = Result<T, JoinError>> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// No further task is admitted. What was submitted is delivered.
    pub fn close(&self) {
        self.shared().close();
    }

    /// How many tasks were submitted and not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().queue.with(|queue| queue.slots.len())
    }

    /// Is there no such task?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for OrderedReceiver<T> {
    fn clone(&self) -> Self {
        Self { side: self.side.clone() }
    }
}

/// Receives until nothing will come any more, and owns its receiver.
#[derive(Debug)]
pub struct OrderedIntoIter<T> {
    receiver: OrderedReceiver<T>,
}

impl<T> Iterator for OrderedIntoIter<T> {
    type Item = Result<T, JoinError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.receiver.recv().ok()
    }
}

impl<T> IntoIterator for OrderedReceiver<T> {
    type Item = Result<T, JoinError>;
    type IntoIter = OrderedIntoIter<T>;
    fn into_iter(self) -> OrderedIntoIter<T> {
        OrderedIntoIter { receiver: self }
    }
}

/// Receiving from an [`ordered`] channel, as an arm; see [`OrderedReceiver::receiving`].
pub struct OrderedArm<'a, T> {
    shared: &'a OrderedShared<T>,
    permit: AcquireArm<'a>,
}

impl<T> sealed::Sealed for OrderedArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        self.permit.case()
    }
}

impl<T> Arm for OrderedArm<'_, T> {
    type Output = Result<Result<T, JoinError>, RecvError>;

    fn finish(&mut self) -> Self::Output {
        let permit = self.permit.finish().map_err(|_| RecvError)?;
        permit.forget_lender();
        Ok(self.shared.take())
    }
}

/// A task that was not admitted, because the channel is closed. It was run and joined; this holds its result.
pub struct Refused<T> {
    result: Result<T, JoinError>,
}

impl<T> Refused<T> {
    /// The result of the task. Does not wait: it was joined before.
    ///
    /// # Errors
    /// If it panicked or was cancelled.
    pub fn join(self) -> Result<T, JoinError> {
        self.result
    }
}

/// Why a task was not started, or not admitted.
pub enum TrySpawnError<F, T> {
    /// There is no place now, or time was up: the function comes back.
    Full(F),
    /// The channel is closed.
    Closed(Refused<T>),
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refused(..)")
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("submitting a task to a closed ordered channel; it was run, and its result is here")
    }
}

impl<T> Error for Refused<T> {}

impl<F, T> fmt::Debug for TrySpawnError<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Full(_)) { "Full(..)" } else { "Closed(..)" })
    }
}

impl<F, T> fmt::Display for TrySpawnError<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("submitting a task to an ordered channel that has no place for it"),
            Self::Closed(refused) => refused.fmt(f),
        }
    }
}

impl<F, T> Error for TrySpawnError<F, T> {}

macro_rules! debug {
    ($($name:ident),+) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let shared = &self.side.0;
                let (len, closed) = shared.queue.with(|queue| (queue.slots.len(), queue.closed));
                f.debug_struct(stringify!($name)).field("len", &len).field("closed", &closed).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(OrderedSender, OrderedReceiver);

impl<T> fmt::Debug for OrderedArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderedArm")
    }
}
