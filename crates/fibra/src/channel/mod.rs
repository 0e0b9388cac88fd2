//! Channels: typed queues between fibers, threads and async tasks, with two counted ends.
//!
//! A value goes straight from the sender to a receiver that waits; otherwise into the buffer; otherwise the sender waits until
//! a receiver takes the value. Waiting senders and waiting receivers are served in order. The same channel works in every context
//! at once: on a fiber an operation parks the fiber, on a plain thread it blocks the thread, and the `_async` forms are futures.
//!
//! ```
//! fibra::run(|| {
//!     let (tx, rx) = fibra::channel::bounded(4);
//!     fibra::spawn(move || {
//!         for n in 1..=100 {
//!             tx.send(n).unwrap();
//!         }
//!     });
//!     assert_eq!(rx.iter().sum::<u32>(), 5050);
//! });
//! ```
//!
//! # Which one
//!
//! | | |
//! |---|---|
//! | [`rendezvous`] | no buffer: a send ends when a receiver has the value |
//! | [`bounded`] | a buffer; a sender that finds it full waits, and so does a receiver that finds it empty |
//! | [`unbounded`] | no bound: for when something else limits what is in it |
//! | [`builder`] | all of these with a name, or with a policy for values that find no room ([`Overflow`]) |
//! | [`oneshot`] | one value, once |
//! | [`watch`] | one value that changes; receivers see the latest |
//! | [`broadcast`] | every receiver gets every message, or is told how many it missed |
//! | [`ordered`] | tasks that run in parallel, their results in the order of submission |
//! | [`pool`] | items that are lent, come back, and are created when they are wanted |
//! | [`after`], [`at`], [`tick`], [`never()`] | receivers that time feeds, or nothing |
//!
//! # Closing
//!
//! Either side may go first. When the last [`Sender`] is dropped, receivers get what is there and then [`RecvError`]; when the last
//! [`Receiver`] is dropped, senders get their values back. `close` does the same explicitly, from either end: nothing is admitted
//! any more, but what was, is delivered: what is in the buffer, and what senders that already waited hold. `close_now` gives those
//! their values back. `closed` waits for the *other* side to go and says why; [`Receiver::finish`] tells a stream that ended from
//! one that broke off.
//!
//! # Waiting for several
//!
//! [`select!`](crate::select) waits for several operations and does exactly one of them; [`Select`] is the form for a set that is
//! known only at run time.
//!
//! # Layout
//!
//! ```text
//! sender.rs receiver.rs   the handles                future.rs   the async forms
//! hot.rs                  send and recv where nothing is out of the ordinary
//! waits.rs                operations, as things to wait on; the blocking forms         timed.rs    after, at, tick, never
//! any.rs                  a channel without the type of its values
//! chan.rs                 lock, hints, counted sides
//! ring.rs                 the buffer
//! state.rs                the waiting senders and receivers, the buffered values, how a value finds its way
//! rare.rs                 the parts of the state that few channels need
//! settle.rs               the rest of it: senders that were held back, and closing
//! op.rs                   what can be asked, once for blocking calls, futures and select
//! interest.rs             counts of waiting senders and receivers
//! order.rs                the order of locks, checked in debug builds
//!
//! traits.rs               `Stream` and `Sink`, with the feature `futures`
//! answer.rs               one answer from stack to stack: the calls of actors
//! news.rs                 a count that one waits to see changed: under oneshot.rs, watch.rs and broadcast.rs
//! ordered.rs pool.rs      on semaphores
//! ```

pub(crate) mod answer;
pub(crate) mod any;
pub(crate) mod batch;
mod broadcast;
pub(crate) mod chan;
mod error;
mod future;
mod hot;
mod interest;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod news;
mod oneshot;
pub(crate) mod op;
mod order;
#[cfg(not(any(loom, shuttle)))]
mod ordered;
#[cfg(not(any(loom, shuttle)))]
mod pool;
mod rare;
pub(crate) mod reason;
mod receiver;
mod ring;
mod sender;
mod settle;
pub(crate) mod spot;
pub(crate) mod state;
mod timed;
#[cfg(feature = "futures")]
mod traits;
pub(crate) mod waits;
mod watch;

pub use broadcast::{
    BroadcastArm, BroadcastError, BroadcastReceiver, BroadcastSender, BroadcastTimeoutError, TryBroadcastError,
    broadcast,
};
pub use error::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError, SendTimeoutError, TryReadyError,
    TryRecvError, TrySelectError, TrySendError,
};
pub use future::{ClosedFuture, RecvFuture, ReserveFuture, SendFuture};
pub use oneshot::{GoneArm, OneshotArm, OneshotReceiver, OneshotSender, oneshot};
#[cfg(not(any(loom, shuttle)))]
pub use ordered::{OrderedArm, OrderedIntoIter, OrderedReceiver, OrderedSender, Refused, TrySpawnError, ordered};
#[cfg(not(any(loom, shuttle)))]
pub use pool::{Pool, PoolArm, PoolError, PoolTimeoutError, Pooled, TryPoolError, pool};
pub use reason::CloseReason;
pub use receiver::{IntoIter, Iter, Receiver, TryIter};
pub use sender::{Builder, Permit, Sender};
pub use state::Overflow;
pub use timed::{after, at, never, tick};
pub use watch::{ChangedArm, WatchReceiver, WatchRef, WatchSender, watch};

#[cfg(not(any(loom, shuttle)))]
pub use crate::select::macros::{select, select_biased};
pub use crate::select::{Arm, ClosedArm, RecvArm, SendArm};
#[cfg(not(any(loom, shuttle)))]
pub use crate::select::{Select, SelectedOperation};

use chan::Plan;

/// A channel with a buffer of `capacity` values; 0 is a [`rendezvous`]. A large buffer takes memory only as it fills.
///
/// ```
/// let (tx, rx) = fibra::channel::bounded(2);
/// tx.send('a').unwrap();
/// tx.send('b').unwrap();
/// assert!(tx.try_send('c').unwrap_err().is_full());
/// assert_eq!(rx.recv(), Ok('a'));
/// ```
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    builder().bounded(capacity).build()
}

/// A channel that is never full. Sending never waits, so it is for the program to see that it does not grow without end.
///
/// ```
/// let (tx, rx) = fibra::channel::unbounded();
/// for n in 0..1000 {
///     tx.send(n).unwrap();
/// }
/// assert_eq!((rx.len(), rx.capacity()), (1000, None));
/// ```
#[track_caller]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    builder().build()
}

/// A channel without a buffer: a send ends when a receiver has the value.
///
/// ```
/// fibra::run(|| {
///     let (tx, rx) = fibra::channel::rendezvous();
///     let sender = fibra::spawn(move || tx.send("now").unwrap());
///     assert_eq!(rx.recv(), Ok("now"));
///     sender.join().unwrap();
/// });
/// ```
#[track_caller]
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    bounded(0)
}

/// Builds a channel with options.
///
/// ```
/// use fibra::channel::{self, Overflow};
///
/// let (tx, rx) = channel::builder().bounded(2).overflow(Overflow::DropOldest).name("latest prices").build();
/// for price in [10, 11, 12] {
///     tx.send(price).unwrap();
/// }
/// assert_eq!(rx.try_iter().collect::<Vec<_>>(), [11, 12]);
/// assert_eq!((rx.dropped(), rx.name()), (1, Some("latest prices")));
/// ```
#[track_caller]
pub fn builder<T>() -> Builder<T> {
    Builder { plan: Plan::new(None) }
}
