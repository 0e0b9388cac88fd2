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
//! | leave the worker alone | [`blocking`], for whatever blocks an OS thread; [`compute`], for what computes for long |
//! | use async code | [`block_on`], [`spawn_future`] |
//! | know who is running | [`current`], [`fiber_local!`], [`no_suspend`] |
//! | build pipelines | [`stream`]: stages that are fibers between channels |
//! | have actors | [`actor`]: mailboxes, calls, supervisors, locks that hand over |
//! | do without fibers | [`machine`]: event loops of machines that allocate nothing |
//! | see what happens | [`inspect`]: every fiber and what it waits for, deadlocks; [`dump`], [`Metrics`], [`OnDeadlock`] |
//! | see what happened | [`trace`]: a recording of workers and fibers, for Perfetto |
//! | use what keeps context in thread-locals | [`hooks`]: around every suspension; the crate `fibra-tracing` for spans |
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
//! observe            counters, statistics
//! net  fs  process   sockets, files, child processes;
//! signal  io         signals, standard input;
//! stream  actor      pipelines of channels and fibers; values with a mailbox, and supervisors
//! channel  select    what one waits on: values, and several things at once;
//! sync               locks and their kin;
//! time   scope       sleeping; running, spawning, joining, blocking work, futures, fiber-locals;
//! inspect  trace     what every fiber waits for, and who waits for each other; a recording of what they did
//! cancel             who is to stop, and how: levels of scopes, shields, delivery
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

#[cfg(not(any(loom, shuttle)))]
pub mod actor;
#[cfg(any(loom, shuttle))]
mod actor;
mod cancel;
pub mod channel;
mod driver;
mod fiber;
#[cfg(not(any(loom, shuttle)))]
pub mod fs;
#[cfg(not(any(loom, shuttle)))]
pub mod inspect;
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
#[cfg(not(any(loom, shuttle)))]
pub mod stream;
pub mod sync;
pub mod time;
#[cfg(not(any(loom, shuttle)))]
pub mod trace;
mod wait;

#[cfg(not(any(loom, shuttle)))]
pub use wait::hooks;

#[cfg(not(any(loom, shuttle)))]
mod public {
    pub use crate::cancel::is_cancellation;
    pub use crate::cancel::reason::CancelReason;
    pub use crate::inspect::dump;
    pub use crate::observe::metrics::{Metrics, PoolBlocked, PoolMetrics, WorkerMetrics};
    pub use crate::sched::phase::WorkerState;
    pub use crate::sched::quiet::OnDeadlock;
    pub use crate::scope::{
        Builder, CancelToken, Cancellation, Cancelled, EnterGuard, Fiber, FiberId, FiberLocal, Handle, JoinError,
        JoinFuture, JoinHandle, JoinNext, JoinSet, Runtime, RuntimeBuilder, Scope, ScopeBuilder, ScopeError,
        ShutdownError, TimedOut, TryScope, TryScopeError, any, block_on, blocking, cancel_reason, checkpoint, compute,
        current, deadline, is_cancelled, join, join_all, no_suspend, par_map, race, remaining, run, scope, shield,
        spawn, spawn_blocking, spawn_future, spawn_local, timeout, try_join_all, try_scope, yield_now,
    };
    pub use crate::time::{RetryPolicy, retry, retry_async, retry_with, sleep, sleep_until};
    pub use crate::wait::reason::WaitReason;

    /// The entry of a program that runs on a fiber.
    ///
    /// ```
    /// // One worker, and no thread but the caller's. A program with `panic = "abort"` has to be cooperative.
    /// #[fibra::main(current_thread, cancellation = "cooperative")]
    /// fn main() {
    ///     let counter = fibra::spawn(|| {
    ///         let mut rounds = 0;
    ///         while !fibra::is_cancelled() {
    ///             fibra::yield_now();
    ///             rounds += 1;
    ///         }
    ///         rounds
    ///     });
    ///     fibra::yield_now();
    ///     counter.cancel();
    ///     assert!(counter.join().is_ok_and(|rounds| rounds > 0));
    /// }
    /// ```
    ///
    pub use fibra_macros::main;

    /// A test that runs on a fiber, and fails for what it leaves behind.
    ///
    /// ```
    /// #[fibra::test(timeout = 30)]
    /// fn two_halves_are_a_whole() {
    ///     let (left, right) = fibra::join(|| 21, || 21);
    ///     assert_eq!(left + right, 42);
    /// }
    /// # fn main() {}
    /// ```
    ///
    pub use fibra_macros::test;
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
    pub use fibra_macros::{select as select_arms, select_biased as select_arms_biased};
}

/// The programs in the prose are tests too.
#[cfg(doctest)]
mod prose {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide.md")]
    mod guide {}
}
