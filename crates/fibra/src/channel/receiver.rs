//! [`Receiver`]: the end of a channel that values come out of; and its iterators.

use std::error::Error;
use std::fmt;
use std::iter::FusedIterator;
use std::mem::MaybeUninit;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::chan::Chan;
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::future::{ClosedFuture, RecvFuture};
use super::reason::{CloseReason, Side};
use super::sender::common;
use super::timed;
use super::waits::{self, take_now, take_or_invite};
use crate::select::{ClosedArm, RecvArm};
use crate::time::Instant;
use crate::wait::park;
use crate::waiter::node::Outcome;

/// The receiving end of a channel. Clone it to receive in several places: each value goes to one of them. When the last one is dropped,
/// what was not received is dropped too, and sending fails from then on.
///
/// ```
/// let (tx, rx) = fibra::channel::unbounded();
/// tx.send("a").unwrap();
/// tx.send("b").unwrap();
/// drop(tx);
/// assert_eq!(rx.recv(), Ok("a"));
/// assert_eq!(rx.into_iter().collect::<Vec<_>>(), ["b"]);
/// ```
pub struct Receiver<T> {
    chan: NonNull<Chan<T>>,
    /// What it waits for as a `Stream`; a clone waits for nothing.
    #[cfg(feature = "futures")]
    pub(super) polled: super::traits::AsStream,
}

// SAFETY: a handle moves `T`s out of a channel that is shared between threads, and is otherwise a counted pointer.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above; every operation locks.
unsafe impl<T: Send> Sync for Receiver<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

common!(Receiver, Side::Receivers);

impl<T> Receiver<T> {
    /// The one receiver of a new channel.
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

    /// Receives a value, waiting until there is one.
    ///
    /// # Errors
    /// If nothing will come any more: the channel is closed, or its senders are gone, and it is empty.
    #[track_caller]
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.chan().recv(Location::caller())
    }

    /// Receives a value if there is one. In a rendezvous there is if a sender waits with it. A sender that has no value yet
    /// ([`Sender::reserve`](crate::channel::Sender::reserve), [`Select::send`](crate::channel::Select::send)) goes on because of this
    /// look, and what it sends is there for a later one.
    ///
    /// # Errors
    /// If there is none now, or none will come any more.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        park::count_call();
        take_or_invite(self.chan()).map_err(|tried| match tried {
            Outcome::Closed => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        })
    }

    /// Like [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or nothing will come any more.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        park::entry();
        self.recv_at(|| Instant::after(timeout), Location::caller())
    }

    /// Like [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or nothing will come any more.
    #[track_caller]
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<T, RecvTimeoutError> {
        park::entry();
        self.recv_at(|| deadline.into(), Location::caller())
    }

    fn recv_at(
        &self,
        deadline: impl FnOnce() -> Instant,
        site: &'static Location<'static>,
    ) -> Result<T, RecvTimeoutError> {
        match take_now(self.chan()) {
            Ok(value) => return Ok(value),
            Err(Outcome::Closed) => return Err(RecvTimeoutError::Disconnected),
            Err(_) => {}
        }
        let mut slot = MaybeUninit::uninit();
        // SAFETY: a slot for a `T`, which is there if DONE.
        match unsafe { waits::recv(self.chan(), slot.as_mut_ptr(), Some(deadline().as_nanos()), site) } {
            // SAFETY: as above.
            Outcome::Done => Ok(unsafe { slot.assume_init() }),
            Outcome::TimedOut => Err(RecvTimeoutError::Timeout),
            _ => Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Receives a value from async code. Dropping the future loses nothing: a value is only taken when it is polled, and then it is ready.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded(1);
    /// std::thread::spawn(move || tx.send(5).unwrap());
    /// assert_eq!(fibra::block_on(rx.recv_async()), Ok(5));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture::new(self)
    }

    /// Receives until nothing will come any more; waits for each value.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Receives what is there; does not wait.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Waits until the sending side is gone (its last handle dropped, or closed through one of them) and says why. What was sent before may
    /// still be there to receive.
    #[track_caller]
    pub fn closed(&self) -> CloseReason {
        park::entry();
        waits::gone(self.chan(), Side::Senders, Location::caller());
        self.chan().gone(Side::Senders).expect("it is gone")
    }

    /// Receiving, as an [`Arm`](crate::channel::Arm). `select!` writes it as `recv(rx)`.
    pub fn receiving(&self) -> RecvArm<'_, T> {
        RecvArm::new(self)
    }

    /// [`closed`](Self::closed) as an [`Arm`](crate::channel::Arm). `select!` writes it as `closed(rx)`.
    pub fn closing(&self) -> ClosedArm<'_, T> {
        ClosedArm::new(self.chan(), Side::Senders)
    }

    /// [`closed`](Self::closed) for async code.
    pub fn closed_async(&self) -> ClosedFuture<'_, T> {
        ClosedFuture::new(self.chan(), Side::Senders)
    }

    /// Did the channel end in order? Asked when receiving has ended: a loop over the values cannot tell a writer that was through from one
    /// that failed. Waits until the channel is closed or its senders are gone; takes nothing out of it.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded(4);
    /// std::thread::spawn(move || {
    ///     tx.send(1).unwrap();
    ///     tx.close_with("the line went dead");
    /// });
    /// assert_eq!(rx.iter().sum::<u32>(), 1);
    /// assert_eq!(rx.finish().unwrap_err().to_string(), "the line went dead");
    /// ```
    ///
    /// # Errors
    /// The reason, if it is an error, a panic or a cancellation.
    #[track_caller]
    pub fn finish(&self) -> Result<(), CloseReason> {
        let reason = match self.close_reason() {
            Some(reason) => reason,
            None => self.closed(),
        };
        if reason.is_orderly() { Ok(()) } else { Err(reason) }
    }
}

/// Receives until nothing will come any more; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// Receives what is there; see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// Receives until nothing will come any more, and owns its receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    #[track_caller]
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    #[track_caller]
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
