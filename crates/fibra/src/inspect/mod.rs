//! Seeing into a running program: [`snapshot`] lists every fiber with what it waits for, the workers, channels, contended locks and scopes;
//! [`deadlocks`] names the fibers that wait for each other.
//!
//! ```
//! use std::time::Duration;
//!
//! fibra::run(|| {
//!     let (tx, rx) = fibra::channel::builder::<u32>().bounded(8).name("jobs").build();
//!     let worker = fibra::Builder::new().name("worker").spawn(move || rx.recv()).unwrap();
//!     fibra::sleep(Duration::from_millis(5));
//!     let snapshot = fibra::inspect::snapshot();
//!     println!("{snapshot}"); // .. fiber #2 "worker": receiving from a channel "jobs" at src/main.rs:5:77 for 5.0ms, spawned at ..
//!     assert!(snapshot.fibers().iter().any(|fiber| fiber.name.as_deref() == Some("worker")));
//!     assert!(snapshot.channels().iter().any(|channel| channel.name.as_deref() == Some("jobs")));
//!     tx.send(1).unwrap();
//!     worker.join().unwrap().unwrap();
//! });
//! ```
//!
//! A snapshot is a picture of a moving thing: nothing is stopped for it, so that two fibers in it may be a moment apart. What a fiber
//! waits for is noted in its own record when it parks, which costs the same whether a snapshot is taken or not.
//!
//! * *Channels* are listed if they can be sent to. *Locks and semaphores* are listed while a fiber waits for them: they are plain
//!   memory without a registry, so that `Mutex::new` can be a constant.
//! * *The holder of a lock* is read from the lock itself. The guards of async forms and the readers of an `RwLock` have no name.
//! * *Plain threads* that wait are not listed, nor what a future waits for inside its task.

// ```text
// snapshot.rs   the types                            collect.rs   a snapshot is taken: the census, and what the fibers wait for
// text.rs       for people                           json.rs      for tools
// graph.rs      the wait graph, the stuck fibers      holders.rs   the fibers that have an end of a channel: a search through stacks
// deadlock.rs   a deadlock in words                  total.rs     a run in which nothing can happen any more
// debugger.rs   what gdb/fibra.py reads
// list.rs       lists of fibers in other reports     endpoint.rs  the inspector: an HTTP server; page.html is what a browser shows
// token.rs      what a request must name that changes something   leaks.rs   fibers that nothing could wake, at the end of a run
// ```
// On the floor of `runtime`, since a runtime that hangs says so itself, and above `sync`, whose locks it reads. Above: users. Below:
// `sched` (objects, open_scopes, stall), `sync::seen`, `select::sheet`.

pub(crate) mod collect;
mod deadlock;
mod debugger;
pub(crate) mod endpoint;
mod graph;
mod holders;
pub(crate) mod json;
pub(crate) mod leaks;
pub(crate) mod list;
mod snapshot;
mod text;
pub(crate) mod token;
pub(crate) mod total;

pub use deadlock::Deadlock;
pub use snapshot::{
    ChannelInfo, FiberInfo, FiberState, LockHolder, LockInfo, LockKind, Object, ScopeInfo, SelectArm, SemaphoreInfo,
    Snapshot, SocketInfo, StackInfo, WaitInfo, WorkerInfo,
};

use crate::fiber::id::FiberId;
use crate::monitor::stack_marks;
use crate::runtime::Handle;

/// A picture of the whole process: every runtime, every fiber. 100,000 fibers take some 30 ms.
///
/// ```
/// let snapshot = fibra::inspect::snapshot();
/// println!("{snapshot}");
/// assert!(snapshot.to_json().starts_with("{\"fibers\":["));
/// ```
#[must_use]
pub fn snapshot() -> Snapshot {
    collect::collect(None).0
}

/// The fibers that wait for each other, in this process: a circle over locks, joins, scopes and runs is certain; one that leads over
/// channels, events and the like is probable, by which fiber seems to have the other end (see [`Deadlock::is_certain`]). A wait that has a
/// deadline, or could be ended by the system or by a plain thread, is no deadlock.
///
/// ```
/// use fibra::sync::Mutex;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
///     let both = fibra::channel::rendezvous::<()>();
///     let cross = |first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>, barrier: &Arc<fibra::sync::Barrier>| {
///         let (first, second, barrier) = (first.clone(), second.clone(), barrier.clone());
///         fibra::spawn(move || {
///             let _one = first.lock();
///             barrier.wait();
///             drop(second.lock()); // and never gets it
///         })
///     };
///     let barrier = Arc::new(fibra::sync::Barrier::new(2));
///     let (one, two) = (cross(&a, &b, &barrier), cross(&b, &a, &barrier));
///     let deadlock = loop {
///         if let Some(deadlock) = fibra::inspect::deadlocks().pop() {
///             break deadlock;
///         }
///         fibra::yield_now();
///     };
///     assert!(deadlock.is_certain());
///     println!("{deadlock}"); // CERTAIN deadlock: 2 fibers wait for each other ..
///     one.cancel(); // which unwinds it, and lets the other go on
///     two.join().unwrap();
///     # let _ = both;
/// });
/// ```
#[must_use]
pub fn deadlocks() -> Vec<Deadlock> {
    let here = 0_u8;
    deadlock::deadlocks(std::ptr::from_ref(&here).addr())
}

/// Where a parked fiber is: the functions on its stack, innermost first, from the call of fibra that it waits in. Slow (from
/// milliseconds to a second): the program's debug information is read.
///
/// # Errors
/// If there is no such fiber, it is not parked, or this build has no backtraces: in words.
///
/// ```
/// fibra::run(|| {
///     let (tx, rx) = fibra::channel::rendezvous::<()>();
///     let waiting = fibra::spawn(move || rx.recv());
///     while waiting.id() != fibra::inspect::snapshot().fibers().iter().find(|f| f.wait.is_some()).map_or(waiting.id(), |f| f.id) {}
///     match fibra::inspect::stack_of(waiting.id()) {
///         Ok(stack) => println!("{stack}"),
///         Err(why) => println!("no stack: {why}"),
///     }
///     drop(tx);
///     let _ = waiting.join();
/// });
/// ```
pub fn stack_of(fiber: FiberId) -> Result<String, &'static str> {
    let watch = collect::find(fiber).ok_or("there is no such fiber, or it does not wait")?;
    crate::monitor::stall::stack_of_parked(watch)
}

/// How much stack fibers have used, by the place where they were spawned, the deepest first: to choose a
/// [`stack_size`](crate::RuntimeBuilder::stack_size). Measures the fibers of the process that have started and not ended, which takes some
/// µs for each; with `FIBRA_STACK_MARKS=1`, read when a runtime is built, those that have ended too, when they end.
///
/// The mark is the lowest page that the system has given memory to, so it never shows less than was used, but for what was swapped out. It
/// shows more if an earlier fiber on the same stack has used more: with `FIBRA_STACK_MARKS=1` each fiber gives its pages back when it ends,
/// so that the next one is measured for itself.
///
/// ```
/// fibra::run(|| {
///     let (tx, rx) = fibra::channel::bounded(1);
///     let deep = fibra::spawn(move || {
///         let large = std::hint::black_box([1_u8; 50_000]);
///         rx.recv().unwrap_or(large[17])
///     });
///     while !fibra::inspect::snapshot().fibers().iter().any(|fiber| fiber.id == deep.id() && fiber.wait.is_some()) {}
///     let stacks = fibra::inspect::stacks();
///     assert!(stacks[0].deepest > 50_000);
///     println!("{}", stacks[0]); // stack: 56 KiB of 256 KiB at most, 1 fiber spawned at src/main.rs:3:16
///     tx.send(1).unwrap();
///     deep.join().unwrap();
/// });
/// ```
#[must_use]
pub fn stacks() -> Vec<StackInfo> {
    collect::stacks(stack_marks::of_all())
}

/// Prints the [`snapshot`] of the process on standard error, and its [`deadlocks`]. With `FIBRA_DUMP_SIGNAL=QUIT` (or `USR1`, `USR2`,
/// `HUP`), read when a runtime is built, that signal does it too.
///
/// ```
/// fibra::run(|| fibra::dump());
/// ```
pub fn dump() {
    list::print_all();
}

impl Handle {
    /// A picture of this runtime: see [`inspect`](crate::inspect).
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// rt.run(|| {
    ///     let snapshot = fibra::Handle::current().snapshot();
    ///     assert_eq!(snapshot.fibers().len(), 1, "the function given to run");
    ///     assert_eq!(snapshot.workers().len(), 1);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        collect::collect(Some(self.shared())).0
    }
}
