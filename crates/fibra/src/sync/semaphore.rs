//! [`Semaphore`]: so many permits, weighted and first come, first served.
//!
//! Above: users; `permit`, `future` and `error` belong to it. Below: the gate. Its word holds what is available and two flags,
//! so that taking and giving back are one read-modify-write while nobody waits.
//!
//! Whoever has to be turned away while he waits (the semaphore was closed, or has fewer permits for good than he wants) is *refused* by
//! the gate: he is let go with nothing, and it is noted in his node, so that a grant is a grant even if there are enough again
//! before he runs.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::gate::{Ask, Gate, Rules};
use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

mod error;
mod future;
mod permit;

pub use error::{AcquireError, AcquireTimeoutError, TryAcquireError};
pub use future::{AcquireArm, AcquireFuture};
pub use permit::{OwnedPermit, Permit};

/// Somebody waits: releases have to settle, and newcomers to queue.
const WAITING: u64 = 1;
const CLOSED: u64 = 2;
/// One permit. What is available is the rest of the word.
const ONE: u64 = 4;

struct Permits {
    word: AtomicU64,
    /// Those that are out, counted too. Changed under the gate's lock.
    total: AtomicUsize,
}

fn available(word: u64) -> u64 {
    word / ONE
}

/// Can so many be had?
fn suffices(word: u64, want: usize) -> bool {
    word & CLOSED == 0 && available(word) >= want as u64
}

impl Semaphore {
    /// Where its permits lie in it, for reports: see `seen.rs`.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const SEEN: (usize, usize) = (
        std::mem::offset_of!(Self, gate) + Gate::<Permits>::RULES + std::mem::offset_of!(Permits, word),
        std::mem::offset_of!(Self, gate) + Gate::<Permits>::RULES + std::mem::offset_of!(Permits, total),
    );

    /// How many permits a word says are to be had.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn read_word(word: usize) -> usize {
        available(word as u64) as usize
    }
}

impl Rules for Permits {
    fn grant(&self, want: usize) -> bool {
        // Relaxed: the compare-exchange does the ordering.
        let mut word = self.word.load(Ordering::Relaxed);
        while suffices(word, want) {
            // Acquire: pairs with the release of whoever gave permits back; what he did before is seen by whoever has them next.
            // Relaxed on failure: as above.
            let taken = word - want as u64 * ONE;
            match self.word.compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
        false
    }

    fn revoke(&self, want: usize) {
        // Release: as in `give`; the settling that calls this goes on by itself.
        self.word.fetch_add(want as u64 * ONE, Ordering::Release);
    }

    fn is_grantable(&self, want: usize) -> bool {
        // Relaxed: whoever is told yes comes back and takes it by `grant`.
        suffices(self.word.load(Ordering::Relaxed), want)
    }

    fn refuses(&self, want: usize) -> bool {
        // Relaxed, both: changed under the lock, which the caller holds; an arm that asks without it is told what is true at that moment.
        self.word.load(Ordering::Relaxed) & CLOSED != 0 || want > self.total.load(Ordering::Relaxed)
    }

    fn set_waiting(&self, waiting: bool) {
        // Relaxed: one word; a release that comes after this in its order finds the flag, and one that came before is found by the try
        // that follows.
        if waiting {
            self.word.fetch_or(WAITING, Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.word.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// A number of permits that can be taken, several at a time, and are given back when they are dropped.
///
/// First come, first served: a large request at the head of the queue holds back small ones behind it, so that it is not starved.
/// Fibers, threads and async code may share one.
///
/// ```
/// use fibra::sync::Semaphore;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let connections = Arc::new(Semaphore::new(2));
///     let jobs: Vec<_> = (0..10)
///         .map(|job| {
///             let connections = connections.clone();
///             fibra::spawn(move || {
///                 let _permit = connections.acquire(1).unwrap(); // at most two at a time from here on
///                 fibra::yield_now();
///                 job
///             })
///         })
///         .collect();
///     assert_eq!(jobs.into_iter().map(|job| job.join().unwrap()).sum::<u32>(), 45);
///     assert_eq!(connections.available(), 2);
/// });
/// ```
pub struct Semaphore {
    gate: Gate<Permits>,
}

impl Semaphore {
    /// The most permits a semaphore can have.
    pub const MAX_PERMITS: usize = if usize::BITS > 42 { 1 << 42 } else { usize::MAX >> 1 };

    /// A semaphore with so many permits, all of them available. None is fine: [`add_permits`](Self::add_permits) brings some.
    ///
    /// # Panics
    /// If `permits` is above [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// ```
    /// use fibra::sync::Semaphore;
    /// static AT_ONCE: Semaphore = Semaphore::new(4);
    /// assert_eq!(AT_ONCE.available(), 4);
    /// ```
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new(permits: usize) -> Self {
        assert!(permits <= Self::MAX_PERMITS, "fibra: more permits than Semaphore::MAX_PERMITS");
        let word = AtomicU64::new(permits as u64 * ONE);
        Self { gate: Gate::new(Permits { word, total: AtomicUsize::new(permits) }) }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new(permits: usize) -> Self {
        let word = AtomicU64::new(permits as u64 * ONE);
        Self { gate: Gate::new(Permits { word, total: AtomicUsize::new(permits) }) }
    }

    /// A semaphore with so many permits, none of them available: what is done with them elsewhere [gives](Self::give) them.
    pub(crate) fn all_taken(permits: usize) -> Self {
        let semaphore = Self::new(permits);
        assert!(semaphore.rules().grant(permits), "all of them are there");
        semaphore
    }

    fn rules(&self) -> &Permits {
        self.gate.rules()
    }

    fn too_many(&self, wanted: usize) -> Option<AcquireError> {
        // Relaxed: it is no older than what the caller knows of.
        let total = self.rules().total.load(Ordering::Relaxed);
        (wanted > total).then_some(AcquireError::TooMany { wanted, total })
    }

    /// Takes them if that is possible now.
    #[inline]
    pub(crate) fn try_take(&self, want: usize) -> Result<(), TryAcquireError> {
        // Relaxed: the compare-exchange does the ordering; a no needs none.
        let mut word = self.rules().word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Err(TryAcquireError::Closed);
            }
            if let Some(error) = self.too_many(want) {
                return Err(error.into());
            }
            if want == 0 {
                return Ok(());
            }
            if word & WAITING != 0 {
                // Perhaps only for a moment.
                return if self.gate.try_now(want) { Ok(()) } else { Err(TryAcquireError::NoPermits) };
            }
            if available(word) < want as u64 {
                return Err(TryAcquireError::NoPermits);
            }
            // As in `grant`.
            let taken = word - want as u64 * ONE;
            match self.rules().word.compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(current) => word = current,
            }
        }
    }

    /// Why the gate has refused somebody; `None` if it would not any more.
    fn refusal(&self, want: usize) -> Option<AcquireError> {
        if self.has_closed() { Some(AcquireError::Closed) } else { self.too_many(want) }
    }

    #[inline]
    fn take(
        &self,
        want: usize,
        deadline: Option<Instant>,
        site: &'static Location<'static>,
    ) -> Result<(), AcquireTimeoutError> {
        self.take_as(WaitReason::SemaphoreAcquire, want, deadline, site)
    }

    /// Takes permits, for a reason of the caller's, who [gives](Self::give) them back.
    #[inline]
    pub(crate) fn take_as(
        &self,
        reason: WaitReason,
        want: usize,
        deadline: Option<Instant>,
        site: &'static Location<'static>,
    ) -> Result<(), AcquireTimeoutError> {
        park::entry();
        match self.try_take(want) {
            Ok(()) => Ok(()),
            Err(TryAcquireError::Closed) => Err(AcquireTimeoutError::Closed),
            Err(TryAcquireError::TooMany { wanted, total }) => Err(AcquireTimeoutError::TooMany { wanted, total }),
            Err(TryAcquireError::NoPermits) => self.wait(reason, want, deadline, site),
        }
    }

    #[cold]
    fn wait(
        &self,
        reason: WaitReason,
        want: usize,
        deadline: Option<Instant>,
        site: &'static Location<'static>,
    ) -> Result<(), AcquireTimeoutError> {
        let mut ask = Ask {
            want,
            first: false,
            reason,
            object: std::ptr::from_ref(self).addr() as u64,
            site,
            deadline: deadline.map(Instant::as_nanos),
        };
        loop {
            match self.gate.wait(ask) {
                Outcome::Done => return Ok(()),
                Outcome::TimedOut => return Err(AcquireTimeoutError::TimedOut),
                Outcome::Closed => match self.refusal(want) {
                    Some(error) => return Err(error.into()),
                    // There are enough again: it waits on, where it was.
                    None => ask.first = true,
                },
                other => unreachable!("{other:?}: waiters are served, and `wait` unwinds"),
            }
        }
    }

    /// Gives permits back.
    #[inline]
    pub(crate) fn give(&self, count: usize) {
        // Release: pairs with the acquire of whoever takes them next.
        let word = self.rules().word.fetch_add(count as u64 * ONE, Ordering::Release);
        if word & WAITING != 0 && !seeded_bug("semaphore_gives_silently") {
            self.gate.settle();
        }
    }

    /// Takes `count` permits, waiting until it is our turn and there are so many. Zero are had at once.
    ///
    /// # Errors
    /// [`AcquireError::TooMany`] at once if the semaphore has not so many in all, [`AcquireError::Closed`] if it is closed, before or
    /// while waiting.
    ///
    /// ```
    /// use fibra::sync::{AcquireError, Semaphore};
    /// let semaphore = Semaphore::new(3);
    /// let two = semaphore.acquire(2).unwrap();
    /// assert_eq!(semaphore.available(), 1);
    /// assert_eq!(semaphore.acquire(4).unwrap_err(), AcquireError::TooMany { wanted: 4, total: 3 });
    /// drop(two);
    /// assert_eq!(semaphore.available(), 3);
    /// ```
    #[track_caller]
    pub fn acquire(&self, count: usize) -> Result<Permit<'_>, AcquireError> {
        match self.take(count, None, Location::caller()) {
            Ok(()) => Ok(Permit { semaphore: self, count }),
            Err(error) => Err(untimed(error)),
        }
    }

    /// Takes `count` permits if that is possible now and nobody waits for some already.
    ///
    /// # Errors
    /// See [`TryAcquireError`].
    ///
    /// ```
    /// use fibra::sync::{Semaphore, TryAcquireError};
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.try_acquire(1).unwrap();
    /// assert_eq!(semaphore.try_acquire(1).unwrap_err(), TryAcquireError::NoPermits);
    /// # drop(permit);
    /// ```
    pub fn try_acquire(&self, count: usize) -> Result<Permit<'_>, TryAcquireError> {
        park::count_call();
        self.try_take(count).map(|()| Permit { semaphore: self, count })
    }

    /// Like [`acquire`](Self::acquire), for at most `timeout`. `Duration::MAX` is without end.
    ///
    /// # Errors
    /// See [`AcquireTimeoutError`].
    ///
    /// ```
    /// use fibra::sync::{AcquireTimeoutError, Semaphore};
    /// use std::time::Duration;
    /// let semaphore = Semaphore::new(1);
    /// let _all = semaphore.acquire(1).unwrap();
    /// let late = semaphore.acquire_timeout(1, Duration::from_millis(1));
    /// assert_eq!(late.unwrap_err(), AcquireTimeoutError::TimedOut);
    /// ```
    #[track_caller]
    pub fn acquire_timeout(&self, count: usize, timeout: Duration) -> Result<Permit<'_>, AcquireTimeoutError> {
        self.acquire_deadline(count, Instant::after(timeout))
    }

    /// Like [`acquire`](Self::acquire), until `deadline` at most.
    ///
    /// # Errors
    /// See [`AcquireTimeoutError`].
    #[track_caller]
    pub fn acquire_deadline(
        &self,
        count: usize,
        deadline: impl Into<Instant>,
    ) -> Result<Permit<'_>, AcquireTimeoutError> {
        self.take(count, Some(deadline.into()), Location::caller()).map(|()| Permit { semaphore: self, count })
    }

    /// Like [`acquire`](Self::acquire), as a future. It queues when it is first polled; dropping it leaves the queue.
    ///
    /// ```
    /// # use fibra::sync::Semaphore;
    /// let semaphore = Semaphore::new(1);
    /// fibra::block_on(async {
    ///     let permit = semaphore.acquire_async(1).await.unwrap();
    ///     assert_eq!(permit.count(), 1);
    /// });
    /// ```
    pub fn acquire_async(&self, count: usize) -> AcquireFuture<'_> {
        AcquireFuture::new(self, count)
    }

    /// Like [`acquire`](Self::acquire), with a permit that owns its semaphore and may go anywhere.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # use fibra::sync::Semaphore;
    /// # use std::sync::Arc;
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.acquire_owned(1).unwrap();
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available(), 1);
    /// ```
    #[track_caller]
    pub fn acquire_owned(self: &Arc<Self>, count: usize) -> Result<OwnedPermit, AcquireError> {
        match self.take(count, None, Location::caller()) {
            Ok(()) => Ok(OwnedPermit { semaphore: self.clone(), count }),
            Err(error) => Err(untimed(error)),
        }
    }

    /// Like [`try_acquire`](Self::try_acquire), with a permit that owns its semaphore.
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_owned(self: &Arc<Self>, count: usize) -> Result<OwnedPermit, TryAcquireError> {
        park::count_call();
        self.try_take(count).map(|()| OwnedPermit { semaphore: self.clone(), count })
    }

    /// Like [`acquire_timeout`](Self::acquire_timeout), with a permit that owns its semaphore.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn acquire_owned_timeout(
        self: &Arc<Self>,
        count: usize,
        timeout: Duration,
    ) -> Result<OwnedPermit, AcquireTimeoutError> {
        self.acquire_owned_deadline(count, Instant::after(timeout))
    }

    /// Like [`acquire_deadline`](Self::acquire_deadline), with a permit that owns its semaphore.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn acquire_owned_deadline(
        self: &Arc<Self>,
        count: usize,
        deadline: impl Into<Instant>,
    ) -> Result<OwnedPermit, AcquireTimeoutError> {
        let taken = self.take(count, Some(deadline.into()), Location::caller());
        taken.map(|()| OwnedPermit { semaphore: self.clone(), count })
    }

    /// Like [`acquire_async`](Self::acquire_async), with a permit that owns its semaphore.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_owned_async(self: Arc<Self>, count: usize) -> Result<OwnedPermit, AcquireError> {
        self.acquire_async(count).await?.forget_lender();
        Ok(OwnedPermit { semaphore: self, count })
    }

    /// Acquiring, as an arm of [`select!`](crate::select): `on(semaphore.acquiring(1)) -> permit => ..`
    ///
    /// ```
    /// # use fibra::sync::Semaphore;
    /// let semaphore = Semaphore::new(1);
    /// fibra::select! {
    ///     on(semaphore.acquiring(1)) -> permit => assert_eq!(permit.unwrap().count(), 1),
    /// }
    /// assert_eq!(semaphore.available(), 1);
    /// ```
    pub fn acquiring(&self, count: usize) -> AcquireArm<'_> {
        AcquireArm::new(self, count)
    }

    /// Adds permits for good.
    ///
    /// # Panics
    /// If there would be more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// ```
    /// # use fibra::sync::Semaphore;
    /// let semaphore = Semaphore::new(0);
    /// semaphore.add_permits(2);
    /// assert_eq!((semaphore.available(), semaphore.total()), (2, 2));
    /// ```
    #[track_caller]
    pub fn add_permits(&self, count: usize) {
        let (added, _) = self.gate.update(|rules| {
            // Relaxed: changed under the lock only.
            let total = rules.total.load(Ordering::Relaxed).saturating_add(count);
            let fits = total <= Self::MAX_PERMITS;
            if fits {
                // Relaxed: as above.
                rules.total.store(total, Ordering::Relaxed);
                rules.revoke(count);
            }
            fits
        });
        assert!(added, "fibra: more permits than Semaphore::MAX_PERMITS");
    }

    /// Takes permits away for good, which somebody holds.
    fn forget(&self, count: usize) {
        self.gate.update(|rules| {
            // Relaxed: changed under the lock only. (Whoever waits for more than are left is told so by the settling that follows.)
            let total = rules.total.load(Ordering::Relaxed);
            rules.total.store(total.saturating_sub(count), Ordering::Relaxed);
        });
    }

    /// How many permits are available now.
    #[must_use]
    pub fn available(&self) -> usize {
        park::count_call();
        self.free()
    }

    fn free(&self) -> usize {
        // Relaxed: a number to look at.
        available(self.rules().word.load(Ordering::Relaxed)) as usize
    }

    /// How many permits there are, those that are out counted too.
    #[must_use]
    pub fn total(&self) -> usize {
        // Relaxed: a number to look at.
        self.rules().total.load(Ordering::Relaxed)
    }

    /// Nobody gets a permit any more: whoever waits, or comes later, is told [`AcquireError::Closed`]. Permits that are out stay good.
    ///
    /// ```
    /// # use fibra::sync::{AcquireError, Semaphore};
    /// fibra::run(|| {
    ///     let semaphore = std::sync::Arc::new(Semaphore::new(0));
    ///     semaphore.add_permits(1);
    ///     let _all = semaphore.acquire(1).unwrap();
    ///     let other = semaphore.clone();
    ///     let waiting = fibra::spawn(move || other.acquire(1).map(drop));
    ///     semaphore.close();
    ///     assert_eq!(waiting.join().unwrap(), Err(AcquireError::Closed));
    /// });
    /// ```
    pub fn close(&self) {
        self.gate.update(|rules| {
            // Relaxed: the lock orders it before whoever is served because of it; a newcomer may see it late.
            rules.word.fetch_or(CLOSED, Ordering::Relaxed);
        });
    }

    /// Was it closed?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        park::count_call();
        self.has_closed()
    }

    fn has_closed(&self) -> bool {
        // Relaxed: an answer for the moment.
        self.rules().word.load(Ordering::Relaxed) & CLOSED != 0
    }
}

fn untimed(error: AcquireTimeoutError) -> AcquireError {
    match error {
        AcquireTimeoutError::Closed => AcquireError::Closed,
        AcquireTimeoutError::TooMany { wanted, total } => AcquireError::TooMany { wanted, total },
        AcquireTimeoutError::TimedOut => unreachable!("there was no deadline"),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available", &self.free())
            .field("total", &self.total())
            .field("closed", &self.has_closed())
            .finish()
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
