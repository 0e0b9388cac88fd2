//! Plain blocking code, and a million of it: stackful fibers on a few OS threads.
//!
//! A fiber is a function with a stack of its own. It is written like a thread (ordinary calls, ordinary loops, no `async`) and
//! costs like a task: less than five kilobytes while it waits, and nanoseconds to switch to. A blocking call of fibra parks the
//! fiber; its OS thread, the *worker*, goes on with another one.
//!
//! ```
//! use std::time::Duration;
//!
//! fn main() {
//!     let total: u64 = fibra::run(|| {
//!         let squares: Vec<_> = (0..1000_u64)
//!             .map(|n| {
//!                 fibra::spawn(move || {
//!                     fibra::sleep(Duration::from_millis(1)); // parks this fiber, not the thread
//!                     n * n
//!                 })
//!             })
//!             .collect();
//!         squares.into_iter().map(|square| square.join().unwrap()).sum()
//!     });
//!     assert_eq!(total, 332_833_500);
//! }
//! ```
//!
//! With [`#[fibra::main]`](macro@main) the whole program runs on a fiber, and with [`#[fibra::test]`](macro@test) a test does, which then
//! also fails for fibers that it leaves behind.
//!
//! # What there is
//!
//! | to | there is |
//! |---|---|
//! | run | [`run`], [`Runtime`] and its [builder](RuntimeBuilder), [`Handle`], [`#[main]`](macro@main), [`#[test]`](macro@test) |
//! | start fibers | [`spawn`], [`spawn_local`], [`spawn_blocking`], [`spawn_future`], [`Builder`] |
//! | wait for them | [`JoinHandle`], which is also awaitable; [`JoinSet`], in the order in which they end; [`JoinError`] |
//! | keep them together | [`scope`](scope()), [`try_scope`], [`Scope::builder`], [`timeout`], [`CancelToken`] |
//! | run several things at once | [`join`](join()), [`join_all`], [`try_join_all`], [`race`], [`any`], [`par_map`]; they may borrow |
//! | share | [`sync`]: [`Mutex`](sync::Mutex), [`Condvar`](sync::Condvar), [`Semaphore`](sync::Semaphore) and more |
//! | use the network | [`net`]: [`TcpListener`](net::TcpListener), [`TcpStream`](net::TcpStream), UDP, Unix sockets |
//! | use files, and programs | [`fs`], [`process`]: [`Command`](process::Command), [`Child`](process::Child) |
//! | hear of Ctrl-C | [`signal`]: [`ctrl_c`](signal::ctrl_c), [`listen`](signal::listen) |
//! | read lines, and copy streams | [`io`]: [`stdin`](io::stdin), [`copy`](io::copy()), [`copy_bidirectional`](io::copy_bidirectional) |
//! | let time pass | [`sleep`], [`sleep_until`], [`yield_now`], [`time::Instant`] |
//! | not too fast, and once more | [`time::RateLimiter`], [`retry`] |
//! | pass values | [`channel`]: rendezvous, bounded, unbounded; permits, closing with a reason, async forms |
//! | wait for several things | [`select!`], [`select_biased!`], [`channel::Select`]; [`channel::after`], [`channel::tick`] |
//! | stop them | [`JoinHandle::cancel`], [`checkpoint`], [`is_cancelled`], [`shield`], [`is_cancellation`] |
//! | leave the worker alone | [`blocking`], for whatever blocks an OS thread |
//! | use async code | [`block_on`], [`spawn_future`] |
//! | know who is running | [`current`], [`fiber_local!`], [`no_suspend`] |
//! | do without fibers | [`machine`]: event loops of machines that allocate nothing |
//! | see what happens | [`Metrics`], [`ShutdownError`]; a worker that stands still is reported on standard error, with its fibers |
//!
//! Actors and streams are not there yet.
//!
//! # Rules that hold everywhere
//!
//! * A fiber may be taken by another worker until it first runs. From then on it stays where it is, so `Rc`, `RefCell` and
//!   thread-locals are as sound in a fiber as in a thread.
//! * Blocking calls work on plain threads too, where they block the thread.
//! * A value that was sent is received once or dropped once; one that was not comes back with the error.
//! * A panic stays in its fiber and comes out of [`JoinHandle::join`].
//! * A cancelled fiber unwinds from its next blocking call; destructors run. One that waits is woken for it at once.
//! * [`run`] returns when its function has returned *and* every fiber that was started in it has ended.
//! * Misuse is an error or a panic that says what to do.
//!
//! Three things to know before the first long program: do not hold a `std` lock, nor a borrow of a thread-local `RefCell`, across a
//! blocking call of fibra (another fiber of the same worker that wants it would wait for ever, and you with it: after a second that is
//! reported, with both fibers); do not compute for
//! long without [`yield_now`] (the other fibers of that worker wait meanwhile), or do it in [`blocking`]; and a stack has an end:
//! 256 KiB by default, 8 MiB for the function given to [`run`].
//!
//! # The house
//!
//! The modules are private; this is the map for readers of the source. A floor uses only what lies below it.
//!
//! ```text
//! observe            counters, and the list of fibers with what each waits for
//! net  fs  process   sockets, files, child processes;
//! signal  io         signals, standard input
//! channel  select    what one waits on: values, and several things at once;
//! sync               locks and their kin;
//! time   scope       sleeping; running, spawning, joining, blocking work, futures, fiber-locals
//! ───── wait ─────   the waist: every wait and every wake goes through here
//! sched              workers, queues, who sleeps and who is woken, the blocking pool, shutdown
//! machine  driver    timers, event loops of machines; the one place where a worker blocks in the kernel
//! fiber              the record of a fiber, its stack, the switch between stacks
//! prim               atomics, cells, locks, threads, clock, chance: std, loom or shuttle behind one name
//! ```
//!
//! # Where to read on
//!
//! In the repository: `docs/guide.md` (the user's guide, every section with a program), `docs/internals.md` (how a fiber is spawned,
//! parks, is woken and ends; the walk of a message; the memory orderings), `docs/decisions/` (what could have been otherwise), and
//! the `fibra` command, whose tour starts a million fibers.
#![cfg_attr(any(loom, shuttle), allow(dead_code, unused_imports))]

pub mod channel;
mod driver;
mod fiber;
#[cfg(not(any(loom, shuttle)))]
pub mod fs;
#[cfg(not(any(loom, shuttle)))]
pub mod io;
#[cfg(not(any(loom, shuttle)))]
pub mod machine;
#[cfg(any(loom, shuttle))]
mod machine;
#[cfg(not(any(loom, shuttle)))]
pub mod net;
#[cfg(not(any(loom, shuttle)))]
mod observe;
mod prim;
#[cfg(not(any(loom, shuttle)))]
pub mod process;
mod sched;
#[cfg(not(any(loom, shuttle)))]
mod scope;
mod select;
#[cfg(not(any(loom, shuttle)))]
pub mod signal;
pub mod sync;
pub mod time;
mod wait;

#[cfg(not(any(loom, shuttle)))]
mod public {
    pub use crate::observe::metrics::{Metrics, WorkerMetrics};
    pub use crate::scope::{
        Builder, CancelToken, Cancellation, Cancelled, EnterGuard, Fiber, FiberId, FiberLocal, Handle, JoinError,
        JoinFuture, JoinHandle, JoinNext, JoinSet, Runtime, RuntimeBuilder, Scope, ScopeBuilder, ScopeError,
        ShutdownError, TimedOut, TryScope, TryScopeError, any, block_on, blocking, cancel_reason, checkpoint, current,
        deadline, is_cancelled, join, join_all, no_suspend, par_map, race, remaining, run, scope, shield, spawn,
        spawn_blocking, spawn_future, spawn_local, timeout, try_join_all, try_scope, yield_now,
    };
    pub use crate::time::{RetryPolicy, retry, retry_async, retry_with, sleep, sleep_until};
    pub use crate::wait::cancel::{CancelReason, is_cancellation};
    pub use crate::wait::reason::WaitReason;
    pub use fibra_macros::{main, test};

    /// Waits for several operations and does exactly one of them: the first that becomes possible. Of several that are possible at
    /// once, one is chosen by chance; [`select_biased!`] takes the first in source order instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fibra::channel::bounded;
    ///
    /// fibra::run(|| {
    ///     let (jobs, queue) = bounded::<u32>(8);
    ///     let (results, done) = bounded(8);
    ///     let worker = fibra::spawn(move || {
    ///         for job in queue {
    ///             results.send(job * job).unwrap();
    ///         }
    ///     });
    ///
    ///     // Hands out work and takes results, whichever can be done.
    ///     let (mut next, mut results, mut sum) = (1, 0, 0);
    ///     while results < 100 {
    ///         fibra::select! {
    ///             send(jobs, next) -> sent, if next <= 100 => {
    ///                 sent.expect("the worker is there");
    ///                 next += 1;
    ///             }
    ///             recv(done) -> square => {
    ///                 sum += square.expect("the worker is there");
    ///                 results += 1;
    ///             }
    ///             after(Duration::from_secs(60)) => panic!("nothing has happened for a minute"),
    ///         }
    ///     }
    ///     assert_eq!(sum, 338_350);
    ///
    ///     drop(jobs);
    ///     fibra::select! {
    ///         join(worker) -> result => result.unwrap(),
    ///     }
    /// });
    /// ```
    ///
    /// # Arms
    ///
    /// An arm is `operation -> pattern, if guard => body`, where `-> pattern` and `, if guard` may be left out. As in `match`, a
    /// comma ends a body, unless that ends with a block.
    ///
    /// | operation | is possible when | its result |
    /// |---|---|---|
    /// | `recv(rx)` | there is a message, or never will be | `Result<T, RecvError>` |
    /// | `send(tx, value)` | there is room or a receiver, or never will be | `Result<(), SendError<T>>` |
    /// | `closed(tx)`, `closed(rx)` | the other side of the channel is gone | `CloseReason` |
    /// | `join(handle)` | the fiber has ended | `Result<T, JoinError>` |
    /// | `lock(mutex)` | the mutex is free; it is locked | [`MutexGuard`](crate::sync::MutexGuard) |
    /// | `on(operation)` | whatever it says: any [`Arm`](crate::channel::Arm) | its output |
    /// | `after(duration)` | so much time has passed since the select began to wait | none |
    /// | `default` | nothing else is possible now | none |
    /// | `default(duration)` | nothing else has become possible for so long | none |
    ///
    /// `rx`, `tx` and the like may be the thing itself, a reference to it, an `Arc` or `Box` of it, or an expression that gives one.
    /// A select without `default` waits; there is at most one `default`.
    ///
    /// * Guards and expressions are evaluated once, in source order, an arm's expressions only if its guard holds. An arm whose guard
    ///   is false is not there. If that is true of all, and there is no `default`, select panics.
    /// * Arms that lose have no effect: no message is taken, none is sent.
    /// * The pattern must match whatever the result is: `-> message`, not `-> Ok(message)`.
    /// * Bodies are code of the function around them: `?`, `break`, `continue` and `return` work. The value of the body is the value
    ///   of the select.
    /// * Temporaries that an arm borrows from (`recv(cell.borrow().rx)`) live until the select ends, body included, as in `match`.
    ///
    /// # Sending a variable
    ///
    /// In `send(tx, v)`, a variable `v` (or a field: `job.text`) moves only if that arm wins. In all other bodies it is still there,
    /// several arms may name it, and a loop may try again:
    ///
    /// ```
    /// use fibra::channel::{Sender, bounded};
    ///
    /// /// Gives the job to whoever takes it first.
    /// fn dispatch(job: String, a: &Sender<String>, b: &Sender<String>) -> Result<&'static str, String> {
    ///     for _ in 0..3 {
    ///         fibra::select! {
    ///             send(a, job) -> sent => return sent.map(|()| "a").map_err(|error| error.into_inner()),
    ///             send(b, job) -> sent => return sent.map(|()| "b").map_err(|error| error.into_inner()),
    ///             default => fibra::yield_now(),
    ///         }
    ///     }
    ///     Err(job)
    /// }
    ///
    /// fibra::run(|| {
    ///     let (a, _full) = bounded(1);
    ///     let (b, there) = bounded(1);
    ///     a.send("first".to_owned()).unwrap();
    ///     assert_eq!(dispatch("second".to_owned(), &a, &b), Ok("b"));
    ///     assert_eq!(there.recv().unwrap(), "second");
    ///     b.send("third".to_owned()).unwrap();
    ///     assert_eq!(dispatch("fourth".to_owned(), &a, &b), Err("fourth".to_owned()));
    /// });
    /// ```
    ///
    /// The same holds for `join(handle)`. Any other expression is evaluated beforehand, like the arguments of a call, and what comes
    /// of it is dropped if the arm loses; `send(tx, { v })` moves `v` in any case. No other arm may borrow from a variable that is to
    /// be sent: `send(tx, request)` beside `recv(request.reply)` does not compile, since whoever receives `request` may drop it.
    pub use fibra_macros::select;

    /// Like [`select!`], but of several operations that are possible at once the first in source order is done.
    ///
    /// ```
    /// use fibra::channel::unbounded;
    ///
    /// let (urgent, urgently) = unbounded();
    /// let (later, some_time) = unbounded();
    /// later.send("tidy up").unwrap();
    /// urgent.send("put the fire out").unwrap();
    /// urgent.send("call home").unwrap();
    ///
    /// let mut order = Vec::new();
    /// loop {
    ///     fibra::select_biased! {
    ///         recv(urgently) -> what => order.push(what.unwrap()),
    ///         recv(some_time) -> what => order.push(what.unwrap()),
    ///         default => break,
    ///     }
    /// }
    /// assert_eq!(order, ["put the fire out", "call home", "tidy up"]);
    /// ```
    ///
    /// An arm that is always possible starves those below it.
    pub use fibra_macros::select_biased;
}
#[cfg(not(any(loom, shuttle)))]
pub use public::*;

/// What the macros expand to; not public API.
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod __private {
    pub use crate::net::addr::look_up_with;
    pub use crate::scope::private::*;
    pub use crate::select::private as select;
}

/// The programs in the prose are tests too.
#[cfg(doctest)]
mod prose {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide.md")]
    mod guide {}
}
