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
//! | limit rates, try again | [`time::RateLimiter`], [`retry`] |
//! | pass values | [`channel`]: rendezvous, bounded, unbounded; permits, closing with a reason, async forms |
//! | wait for several things | [`select!`], [`select_biased!`], [`channel::Select`]; [`channel::after`], [`channel::tick`] |
//! | stop them | [`JoinHandle::cancel`], [`checkpoint`], [`is_cancelled`], [`shield`], [`is_cancellation`] |
//! | keep the worker free | [`blocking`], for calls that block an OS thread; [`compute`], for long computations |
//! | use async code | [`block_on`], [`spawn_future`] |
//! | ask for the running fiber | [`current`], [`fiber_local!`], [`no_suspend`] |
//! | build pipelines | [`stream`]: stages that are fibers between channels |
//! | run actors | [`actor`]: mailboxes, calls, supervisors, locks that hand over |
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
//! Three things to know before the first long program:
//!
//! * Do not hold a `std` lock, nor a borrow of a thread-local `RefCell`, across a blocking call of fibra. Another fiber of the same worker
//!   that wants the lock would block the worker for ever, and with it the fiber that holds the lock. After a second this is reported, with
//!   both fibers.
//! * Do not compute for long without [`yield_now`], because the other started fibers of that worker wait meanwhile. [`compute`] and
//!   [`blocking`] move such work away.
//! * A stack has an end: 256 KiB by default, 8 MiB for the function given to [`run`].
//!
//! # Where to read on
//!
//! The [`guide`] goes through every part of fibra, each with a program that runs. The repository has the rest: `docs/laws.md` (the ten
//! rules that the design follows), `docs/internals.md` (how a fiber is spawned, parks, is woken and ends; the memory orderings),
//! `docs/decisions/` (what could have been done otherwise, with measurements), `docs/benchmarks.md` (every workload beside its rivals), and
//! the `fibra` command, whose tour starts a million fibers.
#![cfg_attr(any(loom, shuttle), allow(dead_code, unused_imports))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "fibra runs on 64-bit Linux only: its driver is epoll, and its stacks are mapped and \
     guarded by calls of the Linux kernel. Build for a target such as x86_64-unknown-linux-gnu."
);

#[cfg(not(any(loom, shuttle)))]
pub mod actor;
#[cfg(any(loom, shuttle))]
mod actor;
#[cfg(not(any(loom, shuttle)))]
mod blocking;
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
mod monitor;
#[cfg(not(any(loom, shuttle)))]
pub mod net;
mod prim;
#[cfg(not(any(loom, shuttle)))]
pub mod process;
mod reactor;
#[cfg(not(any(loom, shuttle)))]
mod runtime;
mod sched;
#[cfg(not(any(loom, shuttle)))]
mod scope;
mod select;
#[cfg(not(any(loom, shuttle)))]
pub mod signal;
#[cfg(not(any(loom, shuttle)))]
pub mod stream;
pub mod sync;
#[cfg(not(any(loom, shuttle)))]
mod task;
pub mod time;
#[cfg(not(any(loom, shuttle)))]
pub mod trace;
mod wait;
mod waiter;

#[cfg(not(any(loom, shuttle)))]
pub use wait::hooks;

#[cfg(not(any(loom, shuttle)))]
mod public {
    pub use crate::cancel::is_cancellation;
    pub use crate::inspect::dump;
    pub use crate::monitor::metrics::{Metrics, PoolBlocked, PoolMetrics, WorkerMetrics};
    pub use crate::runtime::{Cancellation, EnterGuard, Handle, Locals, Runtime, RuntimeBuilder, ShutdownError, run};
    pub use crate::sched::monitoring::OnDeadlock;
    pub use crate::sched::phase::WorkerState;
    pub use crate::scope::{
        CancelToken, Cancelled, Scope, ScopeBuilder, ScopeError, TimedOut, TryScope, TryScopeError, deadline,
        remaining, scope, timeout, try_scope,
    };
    pub use crate::task::{
        BetterPlace, Builder, Fiber, FiberId, FiberLocal, JoinError, JoinFuture, JoinHandle, JoinNext, JoinSet, any,
        better_place, block_on, blocking, cancel_reason, checkpoint, compute, current, is_cancelled, join, join_all,
        no_suspend, par_map, race, shield, spawn, spawn_blocking, spawn_future, spawn_local, try_join_all, yield_now,
    };
    pub use crate::time::{RetryPolicy, retry, retry_async, retry_with, sleep, sleep_until};
    pub use crate::wait::reason::WaitReason;
    pub use crate::waiter::cancel_reason::CancelReason;

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
    pub use crate::runtime::private::*;
    pub use crate::select::private as select;
    pub use fibra_macros::{select as select_arms, select_biased as select_arms_biased};
}

/// The guide: every part of fibra with a program that runs. Links to decisions and sources lead into the repository.
///
#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod guide {}

/// The programs of README.md are tests too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
