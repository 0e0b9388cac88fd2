//! `JoinSet`: many fibers, whose results are taken as they come.
//!
//! The set owns the handles; who has ended is known to `gather.rs`, at a constant cost per fiber. Here is what users see of it.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::blocking::spawn_blocking;
use super::futures::spawn_future;
use super::gather::Gather;
use super::join::{JoinError, JoinHandle};
use super::spawn::{spawn, spawn_local};
use crate::blocking::pool::is_served_thread;
use crate::fiber::id::FiberId;
use crate::prim::instant::Instant;
use crate::sched::current;
use crate::scope::builder::TimedOut;
use crate::wait::park;
use crate::wait::task::TaskWait;
use crate::waiter::node::Outcome;

/// Fibers whose results are taken in the order in which they end.
///
/// The fibers belong to the set: when it is dropped, they are cancelled. It does not wait for them then; [`shutdown`](Self::shutdown)
/// does. (They count in the run they were started in, so [`run`](crate::run) waits for them.) Whoever has a scope around can put its
/// children into a set, with [`insert`](Self::insert).
///
/// ```
/// use std::time::Duration;
/// use fibra::JoinSet;
///
/// fibra::run(|| {
///     let mut set = JoinSet::new();
///     for pause in [30_u64, 1, 15] {
///         set.spawn(move || {
///             fibra::sleep(Duration::from_millis(pause));
///             pause
///         });
///     }
///     let mut order = Vec::new();
///     while let Some(result) = set.join_next() {
///         order.push(result.unwrap());
///     }
///     assert_eq!(order, [1, 15, 30]);
/// });
/// ```
#[must_use = "a dropped set cancels its fibers"]
pub struct JoinSet<T> {
    members: Gather<T>,
}

impl<T> JoinSet<T> {
    /// A set without fibers.
    pub fn new() -> Self {
        Self { members: Gather::new() }
    }

    /// Fibers whose results have not been taken, whether they have ended or not.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Is there nothing left to take?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a fiber in the set; see [`spawn`](crate::spawn()).
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn spawn<F>(&mut self, f: F) -> FiberId
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn(f))
    }

    /// Starts a fiber that stays on this worker; see [`spawn_local`](crate::spawn_local()).
    ///
    /// # Panics
    /// As there.
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// fibra::run(|| {
    ///     let text = Rc::new("not Send");
    ///     let mut set = fibra::JoinSet::new();
    ///     set.spawn_local({ let text = text.clone(); move || text });
    ///     assert!(Rc::ptr_eq(&set.join_next().unwrap().unwrap(), &text));
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&mut self, f: F) -> FiberId
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        self.insert(spawn_local(f))
    }

    /// Runs `f` on the blocking pool, as a member of the set; see [`spawn_blocking`](crate::spawn_blocking()). Once `f` has started, it
    /// cannot be cancelled.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> FiberId
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn_blocking(f))
    }

    /// Starts a future as a task in the set; see [`spawn_future`](crate::spawn_future()).
    ///
    /// # Panics
    /// As there.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let mut set = fibra::JoinSet::new();
    ///     set.spawn(|| "a fiber");
    ///     set.spawn_future(async { "a task" });
    ///     assert_eq!(set.join_all().len(), 2);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_future<F>(&mut self, future: F) -> FiberId
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn_future(future))
    }

    /// Takes a fiber into the set that was started by other means: with a [`Builder`](crate::Builder), or as the child of a scope. From
    /// now on it belongs to the set.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let words = ["plain", "blocking", "code"];
    ///     let mut lengths = fibra::scope(|s| {
    ///         let mut set = fibra::JoinSet::new();
    ///         for word in &words {
    ///             set.insert(s.spawn(move || word.len())); // borrows
    ///         }
    ///         set.join_all()
    ///     });
    ///     lengths.sort();
    ///     assert_eq!(lengths, [4, 5, 8]);
    /// });
    /// ```
    pub fn insert(&mut self, handle: JoinHandle<T>) -> FiberId {
        let id = handle.id();
        self.members.insert(handle, 0);
        id
    }

    /// Waits until the next one has ended and takes its result. `None` if the set is empty.
    ///
    /// If the waiting fiber is cancelled, nothing is taken.
    #[track_caller]
    pub fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        if current::worker().is_none()
            && is_served_thread()
            && let Some(result) = self.members.do_errand(Location::caller())
        {
            return Some(result);
        }
        self.members.wait(None, Location::caller());
        self.take()
    }

    /// Takes the result of one that has ended already. `None` if there is none.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let mut set: fibra::JoinSet<u32> = fibra::JoinSet::new();
    ///     set.spawn(|| 7);
    ///     while set.try_join_next().is_none() {
    ///         fibra::yield_now();
    ///     }
    ///     assert!(set.is_empty());
    /// });
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        park::count_call();
        self.take()
    }

    /// Like [`join_next`](Self::join_next), for so long at most.
    ///
    /// # Errors
    /// [`TimedOut`] if none has ended by then.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     let mut set = fibra::JoinSet::new();
    ///     set.spawn(|| fibra::sleep(Duration::from_secs(3600)));
    ///     assert!(set.join_next_timeout(Duration::from_millis(1)).is_err());
    ///     set.shutdown();
    ///     assert!(set.join_next_timeout(Duration::from_millis(1)).unwrap().is_none());
    /// });
    /// ```
    #[track_caller]
    pub fn join_next_timeout(&mut self, timeout: Duration) -> Result<Option<Result<T, JoinError>>, TimedOut> {
        self.join_next_at(Instant::after(timeout), Location::caller())
    }

    /// Like [`join_next`](Self::join_next), until `deadline` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if none has ended by then.
    #[track_caller]
    pub fn join_next_deadline(
        &mut self,
        deadline: impl Into<Instant>,
    ) -> Result<Option<Result<T, JoinError>>, TimedOut> {
        self.join_next_at(deadline.into(), Location::caller())
    }

    fn join_next_at(
        &mut self,
        deadline: Instant,
        site: &'static Location<'static>,
    ) -> Result<Option<Result<T, JoinError>>, TimedOut> {
        if self.members.wait(Some(deadline), site) || self.is_empty() { Ok(self.take()) } else { Err(TimedOut(())) }
    }

    /// The next result, to be awaited. Dropping the future takes nothing.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let mut set = fibra::JoinSet::new();
    ///     set.spawn(|| 7);
    ///     assert_eq!(fibra::block_on(set.join_next_async()).unwrap().unwrap(), 7);
    /// });
    /// ```
    pub fn join_next_async(&mut self) -> JoinNext<'_, T> {
        self.joining()
    }

    /// The next result, as an arm of [`select!`](crate::select). If the arm does not win, nothing is taken.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     let (more, jobs) = fibra::channel::unbounded::<u64>();
    ///     (1..=3).for_each(|n| more.send(n).unwrap());
    ///     drop(more);
    ///
    ///     let (mut set, mut sum, mut open) = (fibra::JoinSet::new(), 0, true);
    ///     while open || !set.is_empty() {
    ///         fibra::select! {
    ///             recv(jobs) -> job, if open => match job {
    ///                 Ok(n) => _ = set.spawn(move || n * n),
    ///                 Err(_) => open = false,
    ///             },
    ///             on(set.joining()) -> result, if !set.is_empty() => sum += result.unwrap().unwrap(),
    ///         }
    ///     }
    ///     assert_eq!(sum, 14);
    /// });
    /// ```
    pub fn joining(&mut self) -> JoinNext<'_, T> {
        JoinNext { members: &mut self.members, told: Cell::new(Outcome::Pending), wait: TaskWait::default() }
    }

    /// Asks all fibers of the set to end; see [`JoinHandle::cancel`]. They stay in it until they are taken.
    pub fn cancel_all(&self) {
        self.members.handles().for_each(JoinHandle::cancel);
    }

    /// Cancels all fibers of the set and waits until they have ended. Results, and panics, are dropped.
    ///
    /// If the waiting fiber is cancelled, the rest stays in the set.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     let mut set = fibra::JoinSet::new();
    ///     for _ in 0..100 {
    ///         set.spawn(|| fibra::sleep(Duration::from_secs(3600)));
    ///     }
    ///     set.shutdown();
    ///     assert!(set.is_empty());
    /// });
    /// ```
    #[track_caller]
    pub fn shutdown(&mut self) {
        self.cancel_all();
        while self.members.wait(None, Location::caller()) {
            drop(self.members.take());
        }
    }

    /// Lets all fibers of the set go on by themselves. The set is empty then.
    pub fn detach_all(&mut self) {
        self.members = Gather::new();
    }

    /// Waits for all of them and takes their results, in the order in which they have ended.
    ///
    /// # Panics
    /// If one has panicked, with the same panic; if one was cancelled, with a text that says so. The others are cancelled, and not waited
    /// for.
    ///
    /// ```
    /// use fibra::JoinSet;
    ///
    /// fibra::run(|| {
    ///     let set: JoinSet<u32> = (1..=10).map(|n| move || n * n).collect();
    ///     assert_eq!(set.join_all().into_iter().sum::<u32>(), 385);
    /// });
    /// ```
    #[track_caller]
    pub fn join_all(mut self) -> Vec<T> {
        let mut results = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next() {
            results.push(result.unwrap_or_else(|error| error.resume_unwind()));
        }
        results
    }

    /// The result of the first of those that have ended.
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        take_result(&mut self.members)
    }
}

pub(crate) fn take_result<T>(members: &mut Gather<T>) -> Option<Result<T, JoinError>> {
    members.take().map(|(handle, _)| handle.try_join().unwrap_or_else(|_| unreachable!("it has ended")))
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Starts every closure as a fiber of the set.
impl<T, F> Extend<F> for JoinSet<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn extend<I: IntoIterator<Item = F>>(&mut self, closures: I) {
        for f in closures {
            self.spawn(f);
        }
    }
}

/// Starts every closure as a fiber of a new set.
impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(closures: I) -> Self {
        let mut set = Self::new();
        set.extend(closures);
        set
    }
}

/// The next result of a [`JoinSet`], as an arm of [`select!`](crate::select) and as a future; see [`JoinSet::joining`].
#[must_use = "it does nothing unless it is selected or awaited"]
pub struct JoinNext<'a, T> {
    pub(crate) members: &'a mut Gather<T>,
    pub(crate) told: Cell<Outcome>,
    wait: TaskWait,
}

impl<T> JoinNext<'_, T> {
    /// Ends the wait that the last poll published.
    fn withdraw(&mut self) {
        let _ended = self.wait.withdraw(&*self.members);
    }
}

impl<T> Future for JoinNext<'_, T> {
    type Output = Option<Result<T, JoinError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if self.members.len() == 0 || self.members.has_ended() {
                self.withdraw();
                return Poll::Ready(take_result(self.members));
            }
            if self.wait.goes_on(cx.waker()) {
                return Poll::Pending;
            }
            self.withdraw();
            let this = &mut *self;
            if this.wait.publish(cx.waker(), &*this.members) == Outcome::Pending {
                return Poll::Pending;
            }
        }
    }
}

impl<T> Drop for JoinNext<'_, T> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<T> fmt::Debug for JoinNext<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinNext").field("len", &self.members.len()).finish_non_exhaustive()
    }
}
