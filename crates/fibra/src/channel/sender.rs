//! [`Sender`]: the sending end of a channel; and [`Permit`], the right to send one value.
//!
//! Above: users. Below: `chan` (the channel itself), `waits` (the blocking calls) and `future` (the async forms).

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::chan::Chan;
use super::error::{SendError, SendTimeoutError, TrySendError};
use super::future::{ClosedFuture, ReserveFuture, SendFuture};
use super::reason::{CloseReason, Side};
use super::state::Overflow;
use super::timed;
use super::waits::{self, offer_now, offer_or_leave};
use crate::select::{ClosedArm, SendArm};
use crate::time::Instant;
use crate::wait::park;
use crate::waiter::node::Outcome;

/// The sending end of a channel. Clone it to send from several places; the last one dropped closes the channel for sending.
///
/// ```
/// fibra::run(|| {
///     let (tx, rx) = fibra::channel::bounded(8);
///     for id in 0..4 {
///         let tx = tx.clone();
///         fibra::spawn(move || tx.send(id * 10).unwrap());
///     }
///     drop(tx);
///     let mut got: Vec<_> = rx.iter().collect();
///     got.sort();
///     assert_eq!(got, [0, 10, 20, 30]);
/// });
/// ```
pub struct Sender<T> {
    chan: NonNull<Chan<T>>,
    /// What it waits for as a `Sink`; a clone waits for nothing.
    #[cfg(feature = "futures")]
    pub(super) polled: super::traits::AsSink,
}

// SAFETY: a handle moves `T`s into a channel that is shared between threads, and is otherwise a counted pointer.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above; every operation locks.
unsafe impl<T: Send> Sync for Sender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// The one sender of a new channel.
    pub(super) fn only(chan: NonNull<Chan<T>>) -> Self {
        Self {
            chan,
            #[cfg(feature = "futures")]
            polled: Default::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn chan(&self) -> &Chan<T> {
        // SAFETY: this handle is counted, so the channel is there.
        unsafe { self.chan.as_ref() }
    }

    /// Sends a value, waiting until there is room for it; in a channel without a buffer, until a receiver takes it.
    ///
    /// # Errors
    /// If the channel is closed or all receivers are gone: the value comes back.
    #[track_caller]
    // (Left to itself, the compiler inlined it or not, depending on code that has nothing to do with it.)
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[cfg_attr(debug_assertions, inline)]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan().send(value, Location::caller())
    }

    /// Sends a value if that is possible without waiting. In a rendezvous it is if a receiver waits. One that has to look for itself (a
    /// future, or [`Select::ready`](crate::channel::Select::ready)) finds the value in the channel; if it has gone elsewhere meanwhile,
    /// the next one does.
    ///
    /// # Errors
    /// If there is no room, or the channel is closed: the value comes back.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        park::count_call();
        offer_or_leave(self.chan(), value).map_err(|(tried, value)| match tried {
            Outcome::Closed => TrySendError::Disconnected(value),
            _ => TrySendError::Full(value),
        })
    }

    /// Like [`send`](Self::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or the channel is closed: the value comes back.
    #[track_caller]
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        park::entry();
        self.send_at(value, || Instant::after(timeout), Location::caller())
    }

    /// Like [`send`](Self::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or the channel is closed: the value comes back.
    #[track_caller]
    pub fn send_deadline(&self, value: T, deadline: impl Into<Instant>) -> Result<(), SendTimeoutError<T>> {
        park::entry();
        self.send_at(value, || deadline.into(), Location::caller())
    }

    fn send_at(
        &self,
        value: T,
        deadline: impl FnOnce() -> Instant,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<T>> {
        let value = match offer_now(self.chan(), value) {
            Ok(()) => return Ok(()),
            Err((Outcome::Closed, value)) => return Err(SendTimeoutError::Disconnected(value)),
            Err((_, value)) => value,
        };
        let deadline = deadline().as_nanos();
        let mut value = ManuallyDrop::new(value);
        // SAFETY: the value is not dropped here; it is moved out below if it was not sent.
        match unsafe { waits::send(self.chan(), &raw mut *value, Some(deadline), site) } {
            Outcome::Done => Ok(()),
            Outcome::TimedOut => Err(SendTimeoutError::Timeout(ManuallyDrop::into_inner(value))),
            _ => Err(SendTimeoutError::Disconnected(ManuallyDrop::into_inner(value))),
        }
    }

    /// Sends a value from async code. Dropping the future before it is ready sends nothing; the value is dropped with it. (If it was taken
    /// in that very moment, it was sent.)
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded(1);
    /// fibra::block_on(async {
    ///     tx.send_async(7).await.unwrap();
    ///     assert_eq!(rx.recv_async().await, Ok(7));
    /// });
    /// ```
    pub fn send_async(&self, value: T) -> SendFuture<'_, T> {
        SendFuture::new(self, value)
    }

    /// Sends without waiting: if there is no room, the oldest value in the buffer makes way and is returned. A rendezvous has no oldest
    /// one; if no receiver waits, the value itself is returned.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded(2);
    /// assert_eq!(tx.force_send(1), Ok(None));
    /// assert_eq!(tx.force_send(2), Ok(None));
    /// assert_eq!(tx.force_send(3), Ok(Some(1)));
    /// assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2, 3]);
    /// ```
    ///
    /// # Errors
    /// If the channel is closed: the value comes back.
    pub fn force_send(&self, value: T) -> Result<Option<T>, SendError<T>> {
        park::count_call();
        let mut value = value;
        loop {
            value = match offer_or_leave(self.chan(), value) {
                Ok(()) => return Ok(None),
                Err((Outcome::Closed, value)) => return Err(SendError(value)),
                Err((_, value)) => value,
            };
            let mut locked = self.chan().lock();
            let state = locked.state();
            // Looked at again, under this lock: a receiver may have made room, or either side may have closed the channel.
            let full = !state.closed && !state.has_room();
            let oldest = if full { state.buffer.pop_front() } else { None };
            match oldest {
                Some(oldest) => {
                    state.buffer.push_back(value);
                    locked.unlock();
                    return Ok(Some(oldest));
                }
                // Nothing to push out: a rendezvous, or all places are reserved.
                None if full => {
                    locked.unlock();
                    return Ok(Some(value));
                }
                None => locked.unlock(),
            }
        }
    }

    /// Waits until there is a place for one value and reserves it: sending by the [`Permit`] does not wait and cannot fail for lack
    /// of room. In a rendezvous the place is a receiver that waits; if that one has gone elsewhere by then, the value waits for the next
    /// receiver.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded(1);
    /// let permit = tx.reserve().unwrap();
    /// assert!(tx.try_send(1).unwrap_err().is_full());
    /// permit.send(2);
    /// assert_eq!(rx.recv(), Ok(2));
    /// ```
    ///
    /// # Errors
    /// If the channel is closed.
    #[track_caller]
    pub fn reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        park::entry();
        match waits::reserve(self.chan(), None, Location::caller()) {
            Outcome::Done => Ok(Permit::new(self)),
            _ => Err(SendError(())),
        }
    }

    /// Like [`reserve`](Self::reserve), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or the channel is closed.
    #[track_caller]
    pub fn reserve_timeout(&self, timeout: Duration) -> Result<Permit<'_, T>, SendTimeoutError<()>> {
        park::entry();
        self.reserve_now().or_else(|error| match error {
            TrySendError::Disconnected(()) => Err(SendTimeoutError::Disconnected(())),
            TrySendError::Full(()) => {
                match waits::reserve(self.chan(), Some(Instant::after(timeout).as_nanos()), Location::caller()) {
                    Outcome::Done => Ok(Permit::new(self)),
                    Outcome::TimedOut => Err(SendTimeoutError::Timeout(())),
                    _ => Err(SendTimeoutError::Disconnected(())),
                }
            }
        })
    }

    /// Reserves a place if there is one.
    ///
    /// # Errors
    /// If there is none, or the channel is closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, TrySendError<()>> {
        park::count_call();
        self.reserve_now()
    }

    fn reserve_now(&self) -> Result<Permit<'_, T>, TrySendError<()>> {
        let mut locked = self.chan().lock();
        let reserved = locked.state().reserve(None);
        locked.unlock();
        match reserved {
            Outcome::Done => Ok(Permit::new(self)),
            Outcome::Closed => Err(TrySendError::Disconnected(())),
            _ => Err(TrySendError::Full(())),
        }
    }

    /// Reserves a place from async code. Dropping the future reserves nothing.
    pub fn reserve_async(&self) -> ReserveFuture<'_, T> {
        ReserveFuture::new(self)
    }

    /// Waits until the receiving side is gone (its last handle dropped, or closed through one of them) and says why.
    ///
    /// ```
    /// use fibra::channel::CloseReason;
    ///
    /// let (tx, rx) = fibra::channel::bounded::<u32>(1);
    /// rx.close();
    /// assert!(matches!(tx.closed(), CloseReason::Explicit));
    /// ```
    #[track_caller]
    pub fn closed(&self) -> CloseReason {
        park::entry();
        waits::gone(self.chan(), Side::Receivers, Location::caller());
        self.chan().gone(Side::Receivers).expect("it is gone")
    }

    /// Sending `value`, as an [`Arm`](crate::channel::Arm). `select!` writes it as `send(tx, value)`.
    pub fn sending(&self, value: T) -> SendArm<'_, T> {
        SendArm::new(self, value)
    }

    /// [`closed`](Self::closed) as an [`Arm`](crate::channel::Arm). `select!` writes it as `closed(tx)`.
    pub fn closing(&self) -> ClosedArm<'_, T> {
        ClosedArm::new(self.chan(), Side::Receivers)
    }

    /// [`closed`](Self::closed) for async code.
    pub fn closed_async(&self) -> ClosedFuture<'_, T> {
        ClosedFuture::new(self.chan(), Side::Receivers)
    }
}

/// What both kinds of handle offer.
macro_rules! common {
    ($handle:ident, $side:expr) => {
        impl<T> $handle<T> {
            /// Closes the channel: nothing more can be sent. What was sent before, also by senders that still wait for room, is received
            /// before receiving fails. True if this call closed it.
            pub fn close(&self) -> bool {
                self.chan().close($side, &CloseReason::Explicit, false)
            }

            /// Like [`close`](Self::close), but senders that wait get their values back at once.
            pub fn close_now(&self) -> bool {
                self.chan().close($side, &CloseReason::Explicit, true)
            }

            /// Like [`close`](Self::close), and says why: see [`CloseReason::Error`].
            pub fn close_with(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> bool {
                self.chan().close($side, &CloseReason::Error(Arc::from(error.into())), false)
            }

            /// Drops the handle for a reason that came from elsewhere: stages of a pipeline pass them on. It counts if this was the last
            /// handle of its side; a channel that has others goes on, as it does when a panic drops one of several.
            #[cfg(not(any(loom, shuttle)))]
            pub(crate) fn leave_because(self, reason: &CloseReason) {
                #[allow(unused_mut, reason = "it changes with the feature `futures` only")]
                let mut handle = std::mem::ManuallyDrop::new(self);
                #[cfg(feature = "futures")]
                handle.leave();
                // SAFETY: as in `drop`, which does not run for this handle.
                unsafe { Chan::drop_handle(handle.chan, $side, || reason.clone()) };
            }

            /// Is it closed, by either side, or has one side gone? What was sent before may still be there.
            pub fn is_closed(&self) -> bool {
                crate::wait::park::count_call();
                self.has_closed()
            }

            /// [`is_closed`](Self::is_closed) for fibra's own use: it does not let others run.
            pub(crate) fn has_closed(&self) -> bool {
                self.chan().with_closing(|_| ()).is_some()
            }

            /// Why it is closed, if it is: the first reason.
            pub fn close_reason(&self) -> Option<CloseReason> {
                crate::wait::park::count_call();
                self.chan().with_closing(|closing| closing.first.clone()).flatten()
            }

            /// How many values are in the buffer. A value that [`after`](crate::channel::after()), [`at`](crate::channel::at) or
            /// [`tick`](crate::channel::tick) has due counts as one.
            pub fn len(&self) -> usize {
                crate::wait::park::count_call();
                let mut locked = self.chan().lock();
                let state = locked.state();
                let len = state.buffer.len() + usize::from(timed::is_due(state));
                locked.unlock();
                len
            }

            /// Is the buffer empty?
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Is there no room? A rendezvous is always full.
            pub fn is_full(&self) -> bool {
                crate::wait::park::count_call();
                let mut locked = self.chan().lock();
                let state = locked.state();
                let full = !state.has_room() || timed::is_due(state);
                locked.unlock();
                full
            }

            /// How many values the buffer can hold; `None` if there is no bound.
            pub fn capacity(&self) -> Option<usize> {
                self.chan().capacity()
            }

            /// Do both belong to one channel? All receivers of [`never()`](crate::channel::never()) do: one cannot tell them apart.
            pub fn same_channel(&self, other: &Self) -> bool {
                self.chan == other.chan || self.chan().is_never() && other.chan().is_never()
            }

            /// The name given to the builder.
            pub fn name(&self) -> Option<&str> {
                self.chan().name()
            }

            /// How many values an [`Overflow`](crate::channel::Overflow) policy has dropped.
            pub fn dropped(&self) -> u64 {
                self.chan().dropped()
            }
        }

        impl<T> Clone for $handle<T> {
            fn clone(&self) -> Self {
                self.chan().add_handle($side);
                Self::only(self.chan)
            }
        }

        impl<T> Drop for $handle<T> {
            fn drop(&mut self) {
                #[cfg(feature = "futures")]
                self.leave();
                // SAFETY: this handle is counted, and not used again.
                unsafe { Chan::drop_handle(self.chan, $side, CloseReason::of_drop) };
            }
        }

        impl<T> fmt::Debug for $handle<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($handle)).field(self.chan()).finish()
            }
        }
    };
}
pub(super) use common;

common!(Sender, Side::Senders);

/// The right to send one value without waiting; see [`Sender::reserve`]. Dropping it gives the place back. A forgotten one
/// keeps its place until the last sender is gone.
#[must_use = "a dropped permit gives its place back"]
pub struct Permit<'a, T> {
    sender: &'a Sender<T>,
    /// Not shared between threads for nothing: it moves a `T`.
    _value: PhantomData<fn(T)>,
}

impl<'a, T> Permit<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>) -> Self {
        Self { sender, _value: PhantomData }
    }

    /// Sends. If the receivers are gone the value is dropped, like everything they had not received.
    pub fn send(self, value: T) {
        drop(self.try_send(value));
    }

    /// Sends.
    ///
    /// # Errors
    /// If the receivers are gone: the value comes back.
    pub fn try_send(self, value: T) -> Result<(), SendError<T>> {
        let chan = self.sender.chan();
        mem::forget(self);
        let value = ManuallyDrop::new(value);
        let mut locked = chan.lock();
        // SAFETY: the value is the channel's if this is true, and moved out below otherwise.
        let sent = unsafe { locked.state().send_reserved(&raw const *value) };
        locked.unlock();
        if sent { Ok(()) } else { Err(SendError(ManuallyDrop::into_inner(value))) }
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        let mut locked = self.sender.chan().lock();
        locked.state().unreserve();
        locked.state().settle();
        locked.unlock();
    }
}

impl<T> fmt::Debug for Permit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("sender", self.sender).finish()
    }
}

/// How a channel is to be; see [`builder`](crate::channel::builder).
#[must_use = "nothing is built before `build`"]
pub struct Builder<T> {
    pub(super) plan: super::chan::Plan<T>,
}

impl<T> Builder<T> {
    /// A buffer of `capacity` values; 0 is a rendezvous. Without this there is no bound.
    pub fn bounded(mut self, capacity: usize) -> Self {
        self.plan.capacity = Some(capacity);
        self
    }

    /// No bound: the default.
    pub fn unbounded(mut self) -> Self {
        self.plan.capacity = None;
        self
    }

    /// What to do when there is no room.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.plan.overflow = overflow;
        self
    }

    /// Is called with every value that the overflow policy drops, by the sender that found no room.
    pub fn on_overflow(mut self, call: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.plan.on_overflow = Some(Box::new(call));
        self
    }

    /// A name for reports.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.plan.name = Some(name.into().into_boxed_str());
        self
    }

    /// Builds the channel.
    pub fn build(self) -> (Sender<T>, super::Receiver<T>) {
        let chan = Chan::new(self.plan);
        (Sender::only(chan), super::Receiver::only(chan))
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        let mut debug = f.debug_struct("Builder");
        debug.field("capacity", &plan.capacity).field("overflow", &plan.overflow).field("name", &plan.name);
        debug.finish_non_exhaustive()
    }
}
