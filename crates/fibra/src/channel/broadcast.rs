//! [`broadcast`]: every receiver gets every message, as long as it keeps up; a receiver that does not is told how many it missed.
//!
//! Above: users. Below: `news`, which counts the messages, and `sync`: a lock for each of the places that hold the last messages (so that
//! a sender does not wait for receivers of other messages), and a lock that senders take in turn.
//!
//! Invariants: the count grows after the message was put in, under the lock of the senders. So a receiver whose position is below the
//! count finds its message in its place, or finds a later message: then its own was pushed out. No position is above the count.
//! A receiver moves on by a compare-exchange of its position: shared by reference, it gives each message once. Messages are cloned
//! under the read lock of their place, and dropped without any lock.

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::error::SendError;
use super::news::{How, News, NewsWait, closed_forms};
use super::oneshot::GoneArm;
use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::{Mutex, RwLock};
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;

/// A place for one message of the last ones: number n is in place n modulo their count.
struct MessageSlot<T> {
    message: Option<T>,
    /// One more than the number of the message; 0: there was none yet.
    after: u64,
}

struct BroadcastShared<T> {
    places: Box<[RwLock<MessageSlot<T>>]>,
    /// The number of the next message, held while one is sent.
    next: Mutex<u64>,
    /// The messages; over when the last sender is gone.
    sent: News,
    /// A change each time the last receiver is dropped.
    gone: News,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> BroadcastShared<T> {
    #[inline]
    fn place(&self, number: u64) -> &RwLock<MessageSlot<T>> {
        &self.places[(number % self.places.len() as u64) as usize]
    }

    fn receivers(&self) -> usize {
        // Acquire: pairs with the release in the drop of the last receiver; the answer holds for the moment.
        self.receivers.load(Ordering::Acquire)
    }

    fn subscribe(self: &Arc<Self>, position: u64) -> BroadcastReceiver<T> {
        // Relaxed: the caller has a handle; nothing is published by it.
        self.receivers.fetch_add(1, Ordering::Relaxed);
        BroadcastReceiver { shared: self.clone(), position: AtomicU64::new(position) }
    }
}

/// A channel whose messages go to every receiver. Sending never waits for them: `capacity` messages are kept (at least one), and a
/// receiver that is further behind misses the oldest, and is [told so](BroadcastError::Lagged). A message stays until it is pushed out, or
/// all ends are gone.
///
/// ```
/// use fibra::channel::{self, BroadcastError};
///
/// let (tx, rx) = channel::broadcast(2);
/// let other = tx.subscribe();
/// assert_eq!(tx.send("a").unwrap(), 2); // so many receivers
/// tx.send("b").unwrap();
/// assert_eq!((rx.recv(), other.recv()), (Ok("a"), Ok("a")));
/// tx.send("c").unwrap();
/// tx.send("d").unwrap();
/// drop(tx);
/// assert_eq!(rx.recv(), Err(BroadcastError::Lagged(1)));
/// assert_eq!((rx.recv(), rx.recv()), (Ok("c"), Ok("d")));
/// assert_eq!(rx.recv(), Err(BroadcastError::Closed));
/// ```
pub fn broadcast<T: Clone>(capacity: usize) -> (BroadcastSender<T>, BroadcastReceiver<T>) {
    let shared = Arc::new(BroadcastShared {
        places: (0..capacity.max(1)).map(|_| RwLock::new(MessageSlot { message: None, after: 0 })).collect(),
        next: Mutex::new(0),
        sent: News::new(),
        gone: News::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(0),
    });
    let receiver = shared.subscribe(0);
    (BroadcastSender { shared }, receiver)
}

/// Why a receive from a [`broadcast`] channel gave no message.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum BroadcastError {
    /// The receiver was too slow: so many messages were pushed out before it took them. The next receive gives the oldest that is left.
    Lagged(u64),
    /// Nothing will come any more: the senders are gone, and this receiver has had everything.
    Closed,
}

/// Why [`BroadcastReceiver::try_recv`] gave no message.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryBroadcastError {
    /// There is nothing now.
    Empty,
    /// See [`BroadcastError::Lagged`].
    Lagged(u64),
    /// See [`BroadcastError::Closed`].
    Closed,
}

/// Why [`BroadcastReceiver::recv_timeout`] gave no message.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum BroadcastTimeoutError {
    /// Time was up.
    Timeout,
    /// See [`BroadcastError::Lagged`].
    Lagged(u64),
    /// See [`BroadcastError::Closed`].
    Closed,
}

macro_rules! errors {
    (@$other:ident) => {};
    ($($name:ident $({ $other:ident, $text:literal })?;)+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$other => f.write_str($text),)?
                    Self::Lagged(missed) => write!(f, "receiving too slowly: {missed} messages were missed"),
                    Self::Closed => f.write_str("receiving on a broadcast channel whose senders are gone"),
                }
            }
        }
        impl Error for $name {}
        $(errors!(@$other);
        impl From<BroadcastError> for $name {
            fn from(error: BroadcastError) -> Self {
                match error {
                    BroadcastError::Lagged(missed) => Self::Lagged(missed),
                    BroadcastError::Closed => Self::Closed,
                }
            }
        })?
    )+};
}
errors! {
    BroadcastError;
    TryBroadcastError { Empty, "receiving on an empty broadcast channel" };
    BroadcastTimeoutError { Timeout, "timed out receiving on an empty broadcast channel" };
}

/// The sending end of a [`broadcast`] channel.
pub struct BroadcastSender<T> {
    shared: Arc<BroadcastShared<T>>,
}

impl<T: Clone> BroadcastSender<T> {
    /// Sends to every receiver; says how many there are. Waits at most for a receiver that is cloning a message at the moment.
    ///
    /// # Errors
    /// If there are none: the value comes back.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        let shared = &*self.shared;
        let receivers = shared.receivers();
        if receivers == 0 {
            return Err(SendError(value));
        }
        let mut next = shared.next.lock();
        let old = {
            let mut place = shared.place(*next).write();
            place.after = *next + 1;
            place.message.replace(value)
        };
        *next += 1;
        // Counted under the lock: what is counted is filled, and at most one message is filled and not counted. Announced without it, since
        // that calls wakers.
        let counted = shared.sent.count();
        drop(next);
        shared.sent.announce(counted);
        drop(old);
        Ok(receivers)
    }

    /// Another receiver. It gets what is sent from now on.
    pub fn subscribe(&self) -> BroadcastReceiver<T> {
        self.shared.subscribe(self.shared.sent.look().number)
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        park::count_call();
        self.shared.receivers()
    }

    /// How many messages are kept.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.places.len()
    }

    /// Is there no receiver?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    fn closed_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        loop {
            // Read before `receivers`, so that a last receiver that is dropped between the two looks is noticed.
            let seen = self.shared.gone.look().number;
            if self.shared.receivers() == 0 {
                return true;
            }
            if !self.shared.gone.wait(seen, How { reason: WaitReason::BroadcastClosed, deadline, site }) {
                return false;
            }
        }
    }

    /// Waits until there is no receiver, as a future.
    pub async fn closed_async(&self) {
        loop {
            let seen = self.shared.gone.look().number;
            if self.shared.receivers() == 0 {
                return;
            }
            self.shared.gone.wait_async(seen).await;
        }
    }

    /// Waiting until the last receiver goes, as an arm of [`select!`](crate::select).
    pub fn closing(&self) -> GoneArm<'_> {
        let seen = self.shared.gone.look().number;
        // If there is none already, any other number is news.
        GoneArm(self.shared.gone.arm(if self.shared.receivers() > 0 { seen } else { seen.wrapping_sub(1) }))
    }
}

closed_forms! {
    BroadcastSender of Clone,
    /// Waits until there is no receiver.
    closed,
    /// Waits until there is no receiver, for at most `timeout`. True if there is none.
    closed_timeout,
    /// Waits until there is no receiver, until `deadline` at most. True if there is none.
    closed_deadline
}

impl<T> Clone for BroadcastSender<T> {
    fn clone(&self) -> Self {
        // Relaxed: the caller has a handle; nothing is published by it.
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone() }
    }
}

impl<T> Drop for BroadcastSender<T> {
    fn drop(&mut self) {
        // AcqRel: what was done through the other senders comes before the end.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.sent.end();
        }
    }
}

/// The receiving end of a [`broadcast`] channel, with its own position.
pub struct BroadcastReceiver<T> {
    shared: Arc<BroadcastShared<T>>,
    position: AtomicU64,
}

impl<T: Clone> BroadcastReceiver<T> {
    #[inline]
    fn position(&self) -> u64 {
        // Relaxed: a number of the receiver's own; the look at the messages does the ordering.
        self.position.load(Ordering::Relaxed)
    }

    /// Moves on, unless another receive through a shared reference has.
    #[inline]
    fn advance(&self, from: u64, to: u64) -> bool {
        // Relaxed: as in `position`.
        self.position.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn take(&self) -> Result<T, TryBroadcastError> {
        loop {
            let position = self.position();
            let look = self.shared.sent.look();
            if look.number == position {
                return Err(if look.over { TryBroadcastError::Closed } else { TryBroadcastError::Empty });
            }
            let place = self.shared.place(position).read();
            if place.after != position + 1 {
                // The place holds a later message, which was perhaps not counted when we looked.
                let first = look.number.max(place.after) - self.shared.places.len() as u64;
                drop(place);
                if self.advance(position, first) {
                    return Err(TryBroadcastError::Lagged(first - position));
                }
                continue;
            }
            let message = place.message.clone();
            drop(place);
            if self.advance(position, position + 1) {
                return Ok(message.expect("what has a number is there"));
            }
        }
    }

    /// Receives the next message, waiting until there is one.
    ///
    /// # Errors
    /// If this receiver was too slow and missed messages, or nothing will come any more.
    #[track_caller]
    pub fn recv(&self) -> Result<T, BroadcastError> {
        match self.recv_at(None, Location::caller()) {
            Ok(message) => Ok(message),
            Err(BroadcastTimeoutError::Lagged(missed)) => Err(BroadcastError::Lagged(missed)),
            Err(_) => Err(BroadcastError::Closed),
        }
    }

    /// Receives the next message if it is there.
    ///
    /// # Errors
    /// If there is none now, or messages were missed, or nothing will come any more.
    pub fn try_recv(&self) -> Result<T, TryBroadcastError> {
        park::count_call();
        self.take()
    }

    /// Like [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// If time was up, or messages were missed, or nothing will come any more.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, BroadcastTimeoutError> {
        self.recv_at(Some(Instant::after(timeout).as_nanos()), Location::caller())
    }

    /// Like [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// If time was up, or messages were missed, or nothing will come any more.
    #[track_caller]
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<T, BroadcastTimeoutError> {
        self.recv_at(Some(deadline.into().as_nanos()), Location::caller())
    }

    fn recv_at(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<T, BroadcastTimeoutError> {
        park::entry();
        loop {
            let position = self.position();
            match self.take() {
                Ok(message) => return Ok(message),
                Err(TryBroadcastError::Lagged(missed)) => return Err(BroadcastTimeoutError::Lagged(missed)),
                Err(TryBroadcastError::Closed) => return Err(BroadcastTimeoutError::Closed),
                Err(TryBroadcastError::Empty) => {}
            }
            if !self.shared.sent.wait(position, How { reason: WaitReason::BroadcastRecv, deadline, site }) {
                return Err(BroadcastTimeoutError::Timeout);
            }
        }
    }

    /// Receives the next message, as a future.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::broadcast(8);
    /// tx.send(1).unwrap();
    /// assert_eq!(fibra::block_on(rx.recv_async()), Ok(1));
    /// ```
    pub async fn recv_async(&self) -> Result<T, BroadcastError> {
        loop {
            let position = self.position();
            match self.take() {
                Ok(message) => return Ok(message),
                Err(TryBroadcastError::Lagged(missed)) => return Err(BroadcastError::Lagged(missed)),
                Err(TryBroadcastError::Closed) => return Err(BroadcastError::Closed),
                Err(TryBroadcastError::Empty) => self.shared.sent.wait_async(position).await,
            }
        }
    }

    /// Receiving, as an arm of [`select!`](crate::select). (If the receiver is shared and another receive takes the message that this
    /// arm has won for, the arm waits for the next one.)
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::broadcast(8);
    /// tx.send(1).unwrap();
    /// fibra::select! {
    ///     on(rx.receiving()) -> got => assert_eq!(got, Ok(1)),
    /// }
    /// ```
    pub fn receiving(&self) -> BroadcastArm<'_, T> {
        BroadcastArm { receiver: self, wait: self.shared.sent.arm(self.position()) }
    }

    /// Another receiver of the same channel. It gets what is sent from now on.
    pub fn resubscribe(&self) -> Self {
        self.shared.subscribe(self.shared.sent.look().number)
    }

    /// Receives until nothing will come any more; waits for each message, and passes over what was missed.
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::broadcast(2);
    /// (1..=5).for_each(|n| drop(tx.send(n)));
    /// drop(tx);
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [4, 5]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| {
            loop {
                match self.recv() {
                    Ok(message) => return Some(message),
                    Err(BroadcastError::Lagged(_)) => {}
                    Err(BroadcastError::Closed) => return None,
                }
            }
        })
    }

    /// How many messages were sent that this receiver has not had; those it has missed are counted too.
    #[must_use]
    pub fn len(&self) -> usize {
        park::count_call();
        // The position is read first: it is never above a count that is read later.
        let position = self.position();
        (self.shared.sent.look().number - position) as usize
    }

    /// Is there nothing for this receiver now?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Are they receivers of the same channel?
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Drop for BroadcastReceiver<T> {
    fn drop(&mut self) {
        // AcqRel: its release half pairs with the acquire in `receivers`.
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.gone.tell();
        }
    }
}

/// Receiving from a [`broadcast`] channel, as an arm; see [`BroadcastReceiver::receiving`].
pub struct BroadcastArm<'a, T> {
    receiver: &'a BroadcastReceiver<T>,
    wait: NewsWait<'a>,
}

impl<T> sealed::Sealed for BroadcastArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        self.wait.case()
    }
}

impl<T: Clone> Arm for BroadcastArm<'_, T> {
    type Output = Result<T, BroadcastError>;

    fn finish(&mut self) -> Self::Output {
        self.receiver.recv()
    }
}

impl<T> fmt::Debug for BroadcastArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BroadcastArm")
    }
}

impl<T> fmt::Debug for BroadcastSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastSender").field("sent", &self.shared.sent).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BroadcastReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a number to look at.
        let position = self.position.load(Ordering::Relaxed);
        f.debug_struct("BroadcastReceiver").field("sent", &self.shared.sent).field("position", &position).finish()
    }
}
