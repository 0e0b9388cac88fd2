//! [`oneshot`]: one value, from one sender to one receiver, once.
//!
//! One allocation holds the value and two [`News`]: `sent` is over when the sender is gone, with or without having sent; `gone` is over
//! when the receiver is. Above: users. Below: `news`. Invariant: the value is put in by the sender before `sent` is over, and taken out
//! once, by the receiver or by its destructor. The lock around it is held for a move, never for user code.

use std::fmt;
use std::mem;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::news::{How, News, NewsTask, NewsWait, closed_forms};
use crate::prim::spin::SpinLock;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;

enum OneshotValue<T> {
    Empty,
    Full(T),
    /// The receiver is gone.
    Gone,
}

impl<T> OneshotValue<T> {
    fn value(self) -> Option<T> {
        if let Self::Full(value) = self { Some(value) } else { None }
    }
}

struct OneshotShared<T> {
    slot: SpinLock<OneshotValue<T>>,
    sent: News,
    gone: News,
}

impl<T> OneshotShared<T> {
    fn take(&self) -> Option<T> {
        let take = |slot: &mut OneshotValue<T>| mem::replace(slot, OneshotValue::Empty);
        self.slot.with(take).value()
    }
}

/// A channel for one value: the answer to a request, the result of a task.
///
/// ```
/// use fibra::channel;
///
/// fibra::run(|| {
///     let (reply, answer) = channel::oneshot();
///     fibra::spawn(move || reply.send(6 * 7).unwrap());
///     assert_eq!(answer.recv(), Ok(42));
/// });
/// ```
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared =
        Arc::new(OneshotShared { slot: SpinLock::new(OneshotValue::Empty), sent: News::new(), gone: News::new() });
    (OneshotSender { shared: shared.clone() }, OneshotReceiver { shared, task: NewsTask::default() })
}

/// The sending end of a [`oneshot`] channel. Dropping it without sending ends the channel.
pub struct OneshotSender<T> {
    shared: Arc<OneshotShared<T>>,
}

impl<T> OneshotSender<T> {
    /// Sends the value; never waits.
    ///
    /// # Errors
    /// The value, if the receiver is gone.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::oneshot();
    /// drop(rx);
    /// assert_eq!(tx.send("too late"), Err("too late"));
    /// ```
    pub fn send(self, value: T) -> Result<(), T> {
        park::count_call();
        // The destructor tells the receiver.
        self.shared.slot.with(|slot| match slot {
            OneshotValue::Gone => Err(value),
            _ => {
                *slot = OneshotValue::Full(value);
                Ok(())
            }
        })
    }

    /// Is the receiver gone?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        park::count_call();
        self.shared.gone.look().over
    }

    fn closed_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        let how = How { reason: WaitReason::OneshotClosed, deadline, site };
        self.shared.gone.look().over || self.shared.gone.wait(0, how)
    }

    /// Waits until the receiver is gone, as a future.
    pub async fn closed_async(&self) {
        self.shared.gone.wait_async(0).await;
    }

    /// Waiting until the receiver is gone, as an arm of [`select!`](crate::select).
    ///
    /// ```
    /// use std::time::Duration;
    /// let (tx, _rx) = fibra::channel::oneshot::<u32>();
    /// fibra::select! {
    ///     on(tx.closing()) => unreachable!("the receiver is there"),
    ///     after(Duration::from_millis(1)) => {}
    /// }
    /// ```
    pub fn closing(&self) -> GoneArm<'_> {
        GoneArm(self.shared.gone.arm(0))
    }
}

closed_forms! {
    OneshotSender,
    /// Waits until the receiver is gone: then there is no point in going on with the work.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::oneshot::<u32>();
    ///     let work = fibra::spawn(move || tx.closed());
    ///     drop(rx);
    ///     work.join().unwrap();
    /// });
    /// ```
    closed,
    /// Waits until the receiver is gone, for at most `timeout`. True if it is.
    closed_timeout,
    /// Waits until the receiver is gone, until `deadline` at most. True if it is.
    closed_deadline
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.shared.sent.end();
    }
}

/// The receiving end of a [`oneshot`] channel. It is a future too: `rx.await`.
///
/// ```
/// let (tx, rx) = fibra::channel::oneshot();
/// std::thread::spawn(move || tx.send("from a thread").unwrap());
/// assert_eq!(fibra::block_on(rx), Ok("from a thread"));
/// ```
#[must_use = "dropped at once, the sender gets its value back"]
pub struct OneshotReceiver<T> {
    shared: Arc<OneshotShared<T>>,
    task: NewsTask,
}

impl<T> OneshotReceiver<T> {
    /// Receives the value, waiting until it is there.
    ///
    /// # Errors
    /// If the sender was dropped without sending.
    #[track_caller]
    pub fn recv(self) -> Result<T, RecvError> {
        match self.recv_at(None, Location::caller()) {
            Ok(value) => Ok(value),
            Err(_) => Err(RecvError),
        }
    }

    /// Receives the value if it is there.
    ///
    /// # Errors
    /// If it is not there yet, or the sender was dropped without sending, or the value was received before.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        park::count_call();
        if !self.shared.sent.look().over {
            return Err(TryRecvError::Empty);
        }
        self.shared.take().ok_or(TryRecvError::Disconnected)
    }

    /// Like [`recv`](Self::recv), but gives up after `timeout`; the receiver stays good.
    ///
    /// # Errors
    /// If time was up, or the sender was dropped without sending.
    ///
    /// ```
    /// use fibra::channel::RecvTimeoutError;
    /// use std::time::Duration;
    ///
    /// let (tx, rx) = fibra::channel::oneshot();
    /// assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.recv(), Ok(1));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_deadline(Instant::after(timeout))
    }

    /// Like [`recv`](Self::recv), but gives up at `deadline`; the receiver stays good.
    ///
    /// # Errors
    /// If time was up, or the sender was dropped without sending.
    #[track_caller]
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<T, RecvTimeoutError> {
        self.recv_at(Some(deadline.into().as_nanos()), Location::caller())
    }

    fn recv_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        park::entry();
        let how = How { reason: WaitReason::OneshotRecv, deadline, site };
        if self.shared.sent.look().over || self.shared.sent.wait(0, how) {
            self.shared.take().ok_or(RecvTimeoutError::Disconnected)
        } else {
            Err(RecvTimeoutError::Timeout)
        }
    }

    /// The receiver as the future that it is.
    pub fn recv_async(self) -> Self {
        self
    }

    /// Receiving, as an arm of [`select!`](crate::select). The value is received once: a further receive says that the channel is closed.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::oneshot();
    /// tx.send(5).unwrap();
    /// let got = fibra::select! {
    ///     on(rx.receiving()) -> got => got,
    /// };
    /// assert_eq!(got, Ok(5));
    /// ```
    pub fn receiving(&self) -> OneshotArm<'_, T> {
        OneshotArm { shared: &self.shared, wait: self.shared.sent.arm(0) }
    }

    /// Refuses what was not sent yet: the sender gets its value back. A value that was sent can still be received.
    pub fn close(&self) {
        self.shared.slot.with(|slot| {
            if matches!(slot, OneshotValue::Empty) {
                *slot = OneshotValue::Gone;
            }
        });
        self.shared.gone.end();
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.shared.sent.look().over && this.task.poll(&this.shared.sent, 0, cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(this.shared.take().ok_or(RecvError))
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        self.task.leave(&self.shared.sent);
        // If the sender is gone, no end is left to be told, and a value that was sent is dropped with the shared part.
        if !self.shared.sent.look().over {
            let value = self.shared.slot.with(|slot| mem::replace(slot, OneshotValue::Gone));
            self.shared.gone.end();
            drop(value);
        }
    }
}

/// Receiving from a [`oneshot`] channel, as an arm; see [`OneshotReceiver::receiving`].
pub struct OneshotArm<'a, T> {
    shared: &'a OneshotShared<T>,
    wait: NewsWait<'a>,
}

impl<T> sealed::Sealed for OneshotArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        self.wait.case()
    }
}

impl<T> Arm for OneshotArm<'_, T> {
    type Output = Result<T, RecvError>;

    fn finish(&mut self) -> Self::Output {
        self.shared.take().ok_or(RecvError)
    }
}

/// Waiting until the receivers of a [`oneshot`], [`watch`](super::watch) or [`broadcast`](super::broadcast) channel are gone, as an arm.
pub struct GoneArm<'a>(pub(super) NewsWait<'a>);

impl sealed::Sealed for GoneArm<'_> {
    fn case(&mut self) -> Case<'_> {
        self.0.case()
    }
}

impl Arm for GoneArm<'_> {
    type Output = ();
    fn finish(&mut self) {}
}

impl fmt::Debug for GoneArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GoneArm")
    }
}

impl<T> fmt::Debug for OneshotArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneshotArm")
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotSender").field("closed", &self.shared.gone.look().over).finish()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotReceiver").field("sent_or_dropped", &self.shared.sent.look().over).finish()
    }
}
