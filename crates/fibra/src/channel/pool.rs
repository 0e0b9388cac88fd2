//! [`pool`]: items that are lent and come back: connections, buffers, parsers. They are created on demand, up to a number.
//!
//! Above: users. Below: a semaphore, which counts the items that may be out and does all the waiting. Invariant: every item that is out
//! has a permit; the idle ones and those that are out are at most `capacity` together. `create`, `reset` and the destructors of items are
//! the user's code, and run without any lock; if one of them panics, the permit is given back all the same.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::prim::spin::SpinLock;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::{AcquireArm, AcquireTimeoutError, Semaphore, TryAcquireError};
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;

type Create<T, E> = dyn Fn() -> Result<T, E> + Send + Sync;
type Reset<T> = dyn Fn(&mut T) -> bool + Send + Sync;

/// The part of a pool that a lent item refers to: everything except the function that creates items.
struct PoolHome<T> {
    permits: Semaphore,
    idle: SpinLock<Idle<T>>,
    capacity: usize,
    reset: Box<Reset<T>>,
}

struct Idle<T> {
    /// The item that came back last is lent first: it is warm, and the others may grow old.
    items: Vec<T>,
    closed: bool,
}

/// A permit that is given back unless it is kept.
struct Held<'a, T>(&'a PoolHome<T>);

impl<T> Held<'_, T> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.permits.give(1);
    }
}

impl<T> PoolHome<T> {
    /// An item came back.
    fn take_back(&self, item: T) {
        // The permit is given back also if `reset`, or the destructor of a discarded item, panics; and not before that destructor ends.
        let _permit = Held(self);
        let mut item = item;
        if self.idle.with(|idle| idle.closed) || !(self.reset)(&mut item) {
            return;
        }
        let mut item = Some(item);
        self.idle.with(|idle| {
            if !idle.closed {
                idle.items.extend(item.take());
            }
        });
        // (Dropped here if the pool was closed meanwhile.)
    }

    fn close(&self) {
        let items = self.idle.with(|idle| {
            idle.closed = true;
            std::mem::take(&mut idle.items)
        });
        self.permits.close();
        drop(items);
    }
}

/// A pool of at most `capacity` items (at least one). [`get`](Pool::get) lends an idle one, or has `create` make one if there are fewer,
/// or waits. One that comes back is given to `reset`; if that says false, it is broken, and discarded.
///
/// ```
/// use fibra::channel;
///
/// fibra::run(|| {
///     let pool = channel::pool(2, || Ok::<_, std::convert::Infallible>(Vec::with_capacity(1024)), |buffer: &mut Vec<u8>| {
///         buffer.clear();
///         buffer.capacity() < 1 << 20 // grown too large: not kept
///     });
///     let workers: Vec<_> = (0..10u8)
///         .map(|n| {
///             let pool = pool.clone();
///             fibra::spawn(move || {
///                 let mut buffer = pool.get().unwrap(); // at most two at a time
///                 buffer.push(n);
///                 fibra::yield_now();
///                 buffer.len()
///             })
///         })
///         .collect();
///     assert!(workers.into_iter().all(|worker| worker.join().unwrap() == 1));
///     assert!(pool.len() <= 2 && pool.idle() == pool.len());
/// });
/// ```
pub fn pool<T, E, C, R>(capacity: usize, create: C, reset: R) -> Pool<T, E>
where
    C: Fn() -> Result<T, E> + Send + Sync + 'static,
    R: Fn(&mut T) -> bool + Send + Sync + 'static,
{
    let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
    let home = PoolHome {
        permits: Semaphore::new(capacity),
        idle: SpinLock::new(Idle { items: Vec::new(), closed: false }),
        capacity,
        reset: Box::new(reset),
    };
    Pool { home: Arc::new(home), create: Arc::new(create) }
}

/// See [`pool`]. Clones are the same pool.
pub struct Pool<T, E> {
    home: Arc<PoolHome<T>>,
    create: Arc<Create<T, E>>,
}

/// Why a pool gave no item.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum PoolError<E> {
    /// `create` failed.
    Create(E),
    /// The pool was closed.
    Closed,
}

/// Why [`Pool::try_get`] gave no item.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryPoolError<E> {
    /// All items are out.
    Empty,
    /// `create` failed.
    Create(E),
    /// The pool was closed.
    Closed,
}

/// Why [`Pool::get_timeout`] gave no item.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum PoolTimeoutError<E> {
    /// Time was up, and all items are out.
    Timeout,
    /// `create` failed.
    Create(E),
    /// The pool was closed.
    Closed,
}

impl<T, E> Pool<T, E> {
    /// Lends an item, waiting until one comes back if all are out.
    ///
    /// # Errors
    /// If an item was to be created and that failed, or the pool is closed.
    #[track_caller]
    pub fn get(&self) -> Result<Pooled<T>, PoolError<E>> {
        match self.home.permits.take_as(WaitReason::PoolGet, 1, None, Location::caller()) {
            Ok(()) => self.lend(),
            Err(_) => Err(PoolError::Closed),
        }
    }

    /// Lends an item if one is idle or may be created.
    ///
    /// # Errors
    /// If all are out, or an item was to be created and that failed, or the pool is closed.
    pub fn try_get(&self) -> Result<Pooled<T>, TryPoolError<E>> {
        park::count_call();
        match self.home.permits.try_take(1) {
            Ok(()) => self.lend().map_err(TryPoolError::from),
            Err(TryAcquireError::Closed) => Err(TryPoolError::Closed),
            Err(_) => Err(TryPoolError::Empty),
        }
    }

    /// Like [`get`](Self::get), but gives up after `timeout`. (A `create` that takes longer is not interrupted.)
    ///
    /// # Errors
    /// If time was up, or an item was to be created and that failed, or the pool is closed.
    #[track_caller]
    pub fn get_timeout(&self, timeout: Duration) -> Result<Pooled<T>, PoolTimeoutError<E>> {
        self.get_deadline(Instant::after(timeout))
    }

    /// Like [`get`](Self::get), but gives up at `deadline`.
    ///
    /// # Errors
    /// As [`get_timeout`](Self::get_timeout).
    #[track_caller]
    pub fn get_deadline(&self, deadline: impl Into<Instant>) -> Result<Pooled<T>, PoolTimeoutError<E>> {
        match self.home.permits.take_as(WaitReason::PoolGet, 1, Some(deadline.into()), Location::caller()) {
            Ok(()) => self.lend().map_err(PoolTimeoutError::from),
            Err(AcquireTimeoutError::TimedOut) => Err(PoolTimeoutError::Timeout),
            Err(_) => Err(PoolTimeoutError::Closed),
        }
    }

    /// Like [`get`](Self::get), as a future. (`create` runs when it is polled, and may block there.)
    ///
    /// # Errors
    /// As there.
    pub async fn get_async(&self) -> Result<Pooled<T>, PoolError<E>> {
        let permit = self.home.permits.acquire_async(1).await.map_err(|_| PoolError::Closed)?;
        permit.forget_lender();
        self.lend()
    }

    /// Getting an item, as an arm of [`select!`](crate::select). If it wins and an item has to be created, that is done before its body.
    ///
    /// ```
    /// let pool = fibra::channel::pool(1, || Ok::<_, ()>(7), |_| true);
    /// fibra::select! {
    ///     on(pool.getting()) -> item => assert_eq!(*item.unwrap(), 7),
    /// }
    /// ```
    pub fn getting(&self) -> PoolArm<'_, T, E> {
        PoolArm { pool: self, permit: self.home.permits.acquiring(1) }
    }

    /// An item for the permit that the caller has.
    fn lend(&self) -> Result<Pooled<T>, PoolError<E>> {
        let permit = Held(&*self.home);
        let (idle, closed) = self.home.idle.with(|idle| (idle.items.pop(), idle.closed));
        let item = match idle {
            Some(item) => item,
            None if closed => return Err(PoolError::Closed),
            None => (self.create)().map_err(PoolError::Create)?,
        };
        permit.keep();
        Ok(Pooled { item: Some(item), home: self.home.clone() })
    }

    /// No item is lent any more; callers that wait get [`PoolError::Closed`]. Idle items are dropped now, lent ones when they come back.
    ///
    /// ```
    /// use fibra::channel::PoolError;
    ///
    /// let pool = fibra::channel::pool(1, || Ok::<_, ()>(1), |_| true);
    /// let item = pool.get().unwrap();
    /// pool.close();
    /// assert_eq!(pool.get().unwrap_err(), PoolError::Closed);
    /// assert_eq!(*item, 1); // still good
    /// drop(item);
    /// assert_eq!(pool.len(), 0);
    /// ```
    pub fn close(&self) {
        self.home.close();
    }

    /// Was it closed?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.home.permits.is_closed()
    }

    /// How many items there are, idle or out. (One that is being created or reset counts as out.)
    #[must_use]
    pub fn len(&self) -> usize {
        let PoolHome { permits, capacity, .. } = &*self.home;
        let out = capacity.saturating_sub(permits.available());
        // An item that comes back at this moment may be counted twice.
        (out + self.idle()).min(*capacity)
    }

    /// Is there no item?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items are idle.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.home.idle.with(|idle| idle.items.len())
    }

    /// How many items there can be.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.home.capacity
    }
}

impl<T, E> Clone for Pool<T, E> {
    fn clone(&self) -> Self {
        Self { home: self.home.clone(), create: self.create.clone() }
    }
}

/// An item of a [`pool`], lent: it goes back when this is dropped.
#[must_use = "dropped at once, it goes back at once"]
pub struct Pooled<T> {
    /// Until it goes back, or is taken out.
    item: Option<T>,
    home: Arc<PoolHome<T>>,
}

impl<T> Pooled<T> {
    /// Drops the item instead of giving it back: it is broken. The pool may create another.
    ///
    /// ```
    /// use fibra::channel::{self, Pooled};
    ///
    /// let pool = channel::pool(1, || Ok::<_, ()>(String::new()), |_| true);
    /// Pooled::discard(pool.get().unwrap());
    /// assert_eq!((pool.len(), pool.idle()), (0, 0));
    /// ```
    pub fn discard(mut this: Self) {
        let item = this.item.take();
        let _permit = Held(&*this.home);
        // The permit is given back when it is gone.
        drop(item);
    }

    /// Takes the item out of the pool for good. The pool may create another.
    ///
    /// ```
    /// use fibra::channel::{self, Pooled};
    ///
    /// let pool = channel::pool(1, || Ok::<_, ()>(String::from("mine")), |_| true);
    /// let item: String = Pooled::detach(pool.get().unwrap());
    /// assert_eq!((item.as_str(), pool.len()), ("mine", 0));
    /// ```
    pub fn detach(mut this: Self) -> T {
        let item = this.item.take().expect("taken once");
        this.home.permits.give(1);
        item
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.item.as_ref().expect("there until it goes back")
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.item.as_mut().expect("there until it goes back")
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.home.take_back(item);
        }
    }
}

/// Getting an item of a [`pool`], as an arm; see [`Pool::getting`].
pub struct PoolArm<'a, T, E> {
    pool: &'a Pool<T, E>,
    permit: AcquireArm<'a>,
}

impl<T, E> sealed::Sealed for PoolArm<'_, T, E> {
    fn case(&mut self) -> Case<'_> {
        self.permit.case()
    }
}

impl<T, E> Arm for PoolArm<'_, T, E> {
    type Output = Result<Pooled<T>, PoolError<E>>;

    fn finish(&mut self) -> Self::Output {
        let permit = self.permit.finish().map_err(|_| PoolError::Closed)?;
        permit.forget_lender();
        self.pool.lend()
    }
}

macro_rules! errors {
    ($($name:ident { $($other:ident, $text:literal)? })+) => {$(
        impl<E: fmt::Display> fmt::Display for $name<E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$other => f.write_str($text),)?
                    Self::Create(error) => write!(f, "creating an item of a pool: {error}"),
                    Self::Closed => f.write_str("getting an item of a closed pool"),
                }
            }
        }

        impl<E: Error + 'static> Error for $name<E> {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                if let Self::Create(error) = self { Some(error) } else { None }
            }
        }
    )+};
}
errors! {
    PoolError {}
    TryPoolError { Empty, "all items of the pool are out" }
    PoolTimeoutError { Timeout, "timed out waiting for an item of a pool" }
}

macro_rules! from_pool_error {
    ($($name:ident),+) => {$(
        impl<E> From<PoolError<E>> for $name<E> {
            fn from(error: PoolError<E>) -> Self {
                match error {
                    PoolError::Create(error) => Self::Create(error),
                    PoolError::Closed => Self::Closed,
                }
            }
        }
    )+};
}
from_pool_error!(TryPoolError, PoolTimeoutError);

impl<T, E> fmt::Debug for Pool<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("len", &self.len()).field("idle", &self.idle()).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, E> fmt::Debug for PoolArm<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolArm")
    }
}
