//! [`watch`]: one value that changes, and receivers that are told of changes. They see the latest value, not each one.
//!
//! Above: users. Below: `news`, which counts the changes, and `sync::RwLock`, which holds the value. Invariant: the count grows after the
//! value was written and before its lock is given back, so a receiver that has seen a count sees a value at least as new, and one that
//! holds the value sees the count that belongs to it.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::error::{RecvError, RecvTimeoutError, SendError};
use super::news::{How, Look, News, NewsWait, closed_forms};
use super::oneshot::GoneArm;
use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::{RwLock, RwLockReadGuard};
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;

struct WatchShared<T> {
    value: RwLock<T>,
    /// The changes; over when the last sender is gone.
    changes: News,
    /// A change each time the last receiver is dropped.
    gone: News,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> WatchShared<T> {
    fn has_receivers(&self) -> bool {
        // Acquire: pairs with the release in the drop of the last receiver; the answer holds for the moment.
        self.receivers.load(Ordering::Acquire) > 0
    }

    fn subscribe(self: &Arc<Self>, seen: u64) -> WatchReceiver<T> {
        // Relaxed: the caller has a handle; nothing is published by it.
        self.receivers.fetch_add(1, Ordering::Relaxed);
        WatchReceiver { shared: self.clone(), seen: AtomicU64::new(seen) }
    }
}

/// A channel that holds one value, and tells when it changes: for configuration, for the state of something.
///
/// ```
/// use fibra::channel;
///
/// fibra::run(|| {
///     let (tx, rx) = channel::watch("starting");
///     let seen = fibra::spawn(move || {
///         rx.changed().unwrap();
///         rx.get()
///     });
///     tx.send("ready").unwrap();
///     assert_eq!(seen.join().unwrap(), "ready");
/// });
/// ```
pub fn watch<T>(initial: T) -> (WatchSender<T>, WatchReceiver<T>) {
    let shared = Arc::new(WatchShared {
        value: RwLock::new(initial),
        changes: News::new(),
        gone: News::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(0),
    });
    let receiver = shared.subscribe(0);
    (WatchSender { shared }, receiver)
}

/// The sending end of a [`watch`] channel. When the last one is dropped, receivers are told so after the last change.
pub struct WatchSender<T> {
    shared: Arc<WatchShared<T>>,
}

impl<T> WatchSender<T> {
    /// Puts another value in place of the present one, and tells the receivers. Waits for readers that hold the value at the moment.
    ///
    /// # Errors
    /// If there are no receivers: the value comes back, and the present one stays. See [`replace`](Self::replace).
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.shared.has_receivers() {
            return Err(SendError(value));
        }
        drop(self.replace(value));
        Ok(())
    }

    /// Like [`send`](Self::send), whether there are receivers or not; gives the value that was there.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::watch(1);
    /// drop(rx);
    /// assert_eq!(tx.send(2).unwrap_err().into_inner(), 2);
    /// assert_eq!(tx.replace(3), 1);
    /// assert_eq!(tx.subscribe().get(), 3);
    /// ```
    #[track_caller]
    pub fn replace(&self, value: T) -> T {
        self.change(|present| (true, std::mem::replace(present, value))).1
    }

    /// Changes the value in place, and tells the receivers.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::watch(vec![1]);
    /// tx.modify(|list| list.push(2));
    /// assert_eq!((rx.has_changed(), rx.get()), (true, vec![1, 2]));
    /// ```
    #[track_caller]
    pub fn modify(&self, f: impl FnOnce(&mut T)) {
        self.change(|value| (true, f(value)));
    }

    /// Changes the value; the receivers are told if `f` says so. The change is counted while the value is locked: a receiver that borrows
    /// the value has seen the count that belongs to it. It is announced without the lock, since that calls wakers.
    #[track_caller]
    fn change<R>(&self, f: impl FnOnce(&mut T) -> (bool, R)) -> (bool, R) {
        let mut value = self.shared.value.write();
        let (modified, result) = f(&mut value);
        let counted = modified.then(|| self.shared.changes.count());
        drop(value);
        if let Some(counted) = counted {
            self.shared.changes.announce(counted);
        }
        (modified, result)
    }

    /// Changes the value in place, and tells the receivers if `f` says that it did. Gives what `f` said.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::watch(3);
    /// let at_least = |least: i32| move |value: &mut i32| least > std::mem::replace(value, least.max(*value));
    /// assert!(!tx.send_if_modified(at_least(2)));
    /// assert!(!rx.has_changed());
    /// assert!(tx.send_if_modified(at_least(5)));
    /// assert_eq!((rx.has_changed(), rx.get()), (true, 5));
    /// ```
    #[track_caller]
    pub fn send_if_modified(&self, f: impl FnOnce(&mut T) -> bool) -> bool {
        self.change(|value| (f(value), ())).0
    }

    /// The value. Do not keep it for long: senders wait for it.
    #[track_caller]
    pub fn borrow(&self) -> WatchRef<'_, T> {
        WatchRef(self.shared.value.read())
    }

    /// Another receiver, which has seen the present value.
    pub fn subscribe(&self) -> WatchReceiver<T> {
        self.shared.subscribe(self.shared.changes.look().number)
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        // Relaxed: a number to look at.
        self.shared.receivers.load(Ordering::Relaxed)
    }

    /// Is there no receiver?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        park::count_call();
        !self.shared.has_receivers()
    }

    fn closed_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        loop {
            // Read before `has_receivers`, so that a last receiver that is dropped between the two looks is noticed.
            let seen = self.shared.gone.look().number;
            if !self.shared.has_receivers() {
                return true;
            }
            if !self.shared.gone.wait(seen, How { reason: WaitReason::WatchClosed, deadline, site }) {
                return false;
            }
        }
    }

    /// Waits until there is no receiver, as a future.
    pub async fn closed_async(&self) {
        loop {
            let seen = self.shared.gone.look().number;
            if !self.shared.has_receivers() {
                return;
            }
            self.shared.gone.wait_async(seen).await;
        }
    }

    /// Waiting until the last receiver goes, as an arm of [`select!`](crate::select).
    pub fn closing(&self) -> GoneArm<'_> {
        let seen = self.shared.gone.look().number;
        // If there is none already, any other number is news.
        GoneArm(self.shared.gone.arm(if self.shared.has_receivers() { seen } else { seen.wrapping_sub(1) }))
    }
}

closed_forms! {
    WatchSender,
    /// Waits until there is no receiver.
    closed,
    /// Waits until there is no receiver, for at most `timeout`. True if there is none.
    closed_timeout,
    /// Waits until there is no receiver, until `deadline` at most. True if there is none.
    closed_deadline
}

impl<T> Clone for WatchSender<T> {
    fn clone(&self) -> Self {
        // Relaxed: the caller has a handle; nothing is published by it.
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone() }
    }
}

impl<T> Drop for WatchSender<T> {
    fn drop(&mut self) {
        // AcqRel: what was done through the other senders comes before the end.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changes.end();
        }
    }
}

/// The receiving end of a [`watch`] channel. Each one remembers which change it has seen; a clone has seen the same.
pub struct WatchReceiver<T> {
    shared: Arc<WatchShared<T>>,
    seen: AtomicU64,
}

impl<T> WatchReceiver<T> {
    fn seen(&self) -> u64 {
        // Relaxed: a number of the receiver's own; the look at the changes does the ordering.
        self.seen.load(Ordering::Relaxed)
    }

    /// Notes the latest change as seen: true if there was one. Otherwise whether one can still come.
    #[inline]
    fn update(&self) -> Result<bool, RecvError> {
        let (look, news) = self.note();
        if news {
            return Ok(true);
        }
        if look.over { Err(RecvError) } else { Ok(false) }
    }

    /// Notes the latest change as seen; true if no other user of a shared receiver has.
    #[inline]
    fn note(&self) -> (Look, bool) {
        let look = self.shared.changes.look();
        // Relaxed: as in `seen`.
        let news = look.number > self.seen() && self.seen.fetch_max(look.number, Ordering::Relaxed) < look.number;
        (look, news)
    }

    /// A copy of the value. Whether it counts as seen is for [`changed`](Self::changed) alone.
    #[track_caller]
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.shared.value.read().clone()
    }

    /// The value. Do not keep it for long: senders wait for it.
    #[track_caller]
    pub fn borrow(&self) -> WatchRef<'_, T> {
        WatchRef(self.shared.value.read())
    }

    /// The value, noted as seen: [`changed`](Self::changed) waits for a later one.
    #[track_caller]
    pub fn borrow_and_update(&self) -> WatchRef<'_, T> {
        let value = self.shared.value.read();
        let _ = self.update();
        WatchRef(value)
    }

    /// Has the value changed since the last change that was seen?
    #[must_use]
    pub fn has_changed(&self) -> bool {
        park::count_call();
        self.shared.changes.look().number > self.seen()
    }

    /// Waits until the value has changed since the last change that was seen, and notes it as seen.
    ///
    /// # Errors
    /// If there was no change and none will come: the senders are gone.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::watch(0);
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// drop(tx);
    /// assert!(rx.changed().is_ok()); // one change: what counts is the latest value
    /// assert_eq!(rx.get(), 2);
    /// assert!(rx.changed().is_err());
    /// ```
    #[track_caller]
    pub fn changed(&self) -> Result<(), RecvError> {
        self.changed_at(None, Location::caller()).map_err(|_| RecvError)
    }

    /// Like [`changed`](Self::changed), without waiting: true if there was a change, which is noted as seen.
    ///
    /// # Errors
    /// If there was no change and none will come.
    pub fn try_changed(&self) -> Result<bool, RecvError> {
        park::count_call();
        self.update()
    }

    /// Like [`changed`](Self::changed), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or none will come.
    #[track_caller]
    pub fn changed_timeout(&self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.changed_deadline(Instant::after(timeout))
    }

    /// Like [`changed`](Self::changed), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or none will come.
    #[track_caller]
    pub fn changed_deadline(&self, deadline: impl Into<Instant>) -> Result<(), RecvTimeoutError> {
        self.changed_at(Some(deadline.into().as_nanos()), Location::caller())
    }

    fn changed_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<(), RecvTimeoutError> {
        park::entry();
        loop {
            let seen = self.seen();
            if self.update()? {
                return Ok(());
            }
            if !self.shared.changes.wait(seen, How { reason: WaitReason::WatchChanged, deadline, site }) {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// Like [`changed`](Self::changed), as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn changed_async(&self) -> Result<(), RecvError> {
        loop {
            let seen = self.seen();
            if self.update()? {
                return Ok(());
            }
            self.shared.changes.wait_async(seen).await;
        }
    }

    /// Like [`changed`](Self::changed), as an arm of [`select!`](crate::select).
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::watch(0);
    /// tx.send(1).unwrap();
    /// fibra::select! {
    ///     on(rx.changing()) -> changed => assert_eq!((changed, rx.get()), (Ok(()), 1)),
    /// }
    /// ```
    pub fn changing(&self) -> ChangedArm<'_, T> {
        ChangedArm { receiver: self, wait: self.shared.changes.arm(self.seen()) }
    }

    /// Waits until `f` is true of the value, and gives it; its change is noted as seen.
    ///
    /// # Errors
    /// If it is not true of the last value there will be.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::watch(0);
    ///     let waiting = fibra::spawn(move || *rx.wait_for(|value| *value > 2).unwrap());
    ///     for value in 1..=5 {
    ///         let _ = tx.send(value);
    ///     }
    ///     assert!(waiting.join().unwrap() > 2);
    /// });
    /// ```
    #[track_caller]
    pub fn wait_for(&self, f: impl FnMut(&T) -> bool) -> Result<WatchRef<'_, T>, RecvError> {
        self.wait_for_at(f, None, Location::caller()).map_err(|_| RecvError)
    }

    /// Like [`wait_for`](Self::wait_for), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or it is not true of the last value there will be.
    #[track_caller]
    pub fn wait_for_timeout(
        &self,
        f: impl FnMut(&T) -> bool,
        timeout: Duration,
    ) -> Result<WatchRef<'_, T>, RecvTimeoutError> {
        self.wait_for_at(f, Some(Instant::after(timeout).as_nanos()), Location::caller())
    }

    /// Like [`wait_for`](Self::wait_for), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or it is not true of the last value there will be.
    #[track_caller]
    pub fn wait_for_deadline(
        &self,
        f: impl FnMut(&T) -> bool,
        deadline: impl Into<Instant>,
    ) -> Result<WatchRef<'_, T>, RecvTimeoutError> {
        self.wait_for_at(f, Some(deadline.into().as_nanos()), Location::caller())
    }

    fn wait_for_at(
        &self,
        mut f: impl FnMut(&T) -> bool,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<WatchRef<'_, T>, RecvTimeoutError> {
        park::entry();
        loop {
            // Noted before the value is looked at: a change after that is waited for, even if another user of this receiver notes it.
            let (Look { number, over }, _) = self.note();
            let value = self.shared.value.read();
            if f(&value) {
                return Ok(WatchRef(value));
            }
            drop(value);
            if over {
                return Err(RecvTimeoutError::Disconnected);
            }
            if !self.shared.changes.wait(number, How { reason: WaitReason::WatchChanged, deadline, site }) {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// Like [`wait_for`](Self::wait_for), as a future; gives a copy of the value.
    ///
    /// # Errors
    /// As there.
    pub async fn wait_for_async(&self, mut f: impl FnMut(&T) -> bool) -> Result<T, RecvError>
    where
        T: Clone,
    {
        loop {
            let (Look { number, over }, _) = self.note();
            {
                let value = self.shared.value.read_async().await;
                if f(&value) {
                    return Ok(value.clone());
                }
            }
            if over {
                return Err(RecvError);
            }
            self.shared.changes.wait_async(number).await;
        }
    }

    /// Are they receivers of the same channel?
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for WatchReceiver<T> {
    fn clone(&self) -> Self {
        self.shared.subscribe(self.seen())
    }
}

impl<T> Drop for WatchReceiver<T> {
    fn drop(&mut self) {
        // AcqRel: its release half pairs with the acquire in `has_receivers`.
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.gone.tell();
        }
    }
}

/// The value of a [`watch`] channel. While this is there, senders wait.
pub struct WatchRef<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for WatchRef<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Waiting for a change, as an arm; see [`WatchReceiver::changing`].
pub struct ChangedArm<'a, T> {
    receiver: &'a WatchReceiver<T>,
    wait: NewsWait<'a>,
}

impl<T> sealed::Sealed for ChangedArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        self.wait.case()
    }
}

impl<T> Arm for ChangedArm<'_, T> {
    type Output = Result<(), RecvError>;

    fn finish(&mut self) -> Self::Output {
        // (That it was seen elsewhere meanwhile does not matter: there was a change.)
        self.receiver.update().map(drop)
    }
}

impl<T> fmt::Debug for ChangedArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangedArm")
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for WatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSender").field("changes", &self.shared.changes).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for WatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("WatchReceiver").field("changes", &shared.changes).field("seen", &self.seen()).finish()
    }
}
