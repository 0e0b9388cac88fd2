//! Starting fibers with choices: `Builder`. Above: users, `Scope`, `Handle`. Below: `spawn.rs`.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use super::join::JoinHandle;
use super::own_locals::are_to_be_had;
use super::place::BetterPlace;
use super::spawn::{RefusedBecause, no_runtime, root_of, try_spawn};
use crate::fiber::frame::{Extras, FlagSet, flag};
use crate::fiber::stack::StackSize;
use crate::prim::atomic::AtomicBool;
use crate::sched::current;
use crate::sched::shared::{RootRef, RuntimeShared};

/// A fiber with a name, a stack of its own size and other choices.
///
/// ```
/// fibra::run(|| {
///     let reader = fibra::Builder::new().name("reader").stack_size(64 << 10).spawn(|| {
///         fibra::current().unwrap().name().map(str::to_owned)
///     });
///     assert_eq!(reader.unwrap().join().unwrap().as_deref(), Some("reader"));
/// });
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `spawn`"]
pub struct Builder {
    name: Option<Arc<str>>,
    stack_size: Option<usize>,
    daemon: bool,
    spread: bool,
    own_locals: bool,
    moving: bool,
    /// The worker it goes to, instead.
    worker: Option<usize>,
}

impl Builder {
    /// A fiber like those of [`spawn`](crate::spawn).
    pub fn new() -> Self {
        Self::default()
    }

    /// Its name, in reports, panics and [`current`](crate::current). `spawn` fails for one with a zero byte.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Some(name.as_ref().into());
        self
    }

    /// The size of its stack, rounded up to 32 KiB, 64 KiB, 256 KiB, 1 MiB or a power of two up to 1 GiB. `spawn` fails for anything else.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// A daemon does not hold up `run`; it is cancelled when the run it was started in is over.
    pub fn daemon(mut self, daemon: bool) -> Self {
        self.daemon = daemon;
        self
    }

    /// Puts it on the worker with the fewest fibers (started, or spread to it) instead of leaving it with its spawner: for accept loops.
    /// While that worker stands still, or has more fibers that could run than another one, the least busy worker gets it.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// Gives it thread-locals of its own: to every library it is then a thread of its own, although it runs on its worker's thread.
    ///
    /// Ordinary fibers of a worker share the thread-locals of its thread, so a library that keeps something there across a blocking call
    /// mixes them up: the spans of `tracing`, `tokio`'s `enter`, a `RefCell` that stays borrowed, the owner of a recursive lock. With this,
    /// each has its own: thread-locals, [`std::thread::current`], std's count of panics, `errno`, caches of the allocator. They are made
    /// anew when the fiber starts, and dropped when it ends, before its joiner goes on.
    ///
    /// It costs a thread of the system, which lends its thread-locals and sleeps (some 20 KiB for each such fiber), some forty nanoseconds
    /// at each suspension, and a hundred microseconds at its end, for the thread to wake up and to drop them. A few threads are started
    /// ahead, for fibers without a name; a fiber with a name waits until its own has started. Fibers without it pay nothing.
    ///
    /// The thread that lends them drops them, while the fiber waits. If the fiber is local, has started local fibers or is the root of a
    /// run, its worker waits as well, since an `Rc` in a thread-local may be theirs too: a destructor there must not wait for a fiber of
    /// that worker.
    ///
    /// What the *system* keeps by thread is the worker's: its thread id (`gettid`), signal mask, priority, and the mutexes that hand
    /// priority on (`PTHREAD_PRIO_INHERIT`), which such a fiber must not use. It must not `fork` without `exec`,
    /// nor change the user of the process (`setuid`).
    ///
    /// `spawn` fails with `Unsupported` where the processor or the system does not let programs switch thread-locals (it takes Linux 5.9,
    /// x86_64 with `wrfsbase`, and glibc).
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// thread_local!(static VISITS: Cell<u32> = const { Cell::new(0) });
    /// fibra::run(|| {
    ///     let visitors: Vec<_> = (0..3).map(|_| fibra::Builder::new().own_locals().spawn(|| {
    ///         for _ in 0..10 {
    ///             VISITS.with(|visits| {
    ///                 let before = visits.get();
    ///                 fibra::yield_now();
    ///                 visits.set(before + 1);
    ///             });
    ///         }
    ///         VISITS.get()
    ///     })).collect();
    ///     for visitor in visitors {
    ///         match visitor {
    ///             Ok(visitor) => assert_eq!(visitor.join().unwrap(), 10),
    ///             Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
    ///         }
    ///     }
    /// });
    /// ```
    pub fn own_locals(mut self) -> Self {
        self.own_locals = true;
        self
    }

    /// Lets a fiber with [thread-locals of its own](Self::own_locals) go on on another worker after it has waited or yielded: where it is
    /// woken, where a worker is free, or first where it last ran, if that one is. So it is not held up by a neighbour that computes, nor
    /// in scopes and [`timeout`](crate::timeout). Without this it stays, as all started fibers do; it also stays in
    /// [`blocking`](crate::blocking), in a `shield` or a [`join`](crate::join), while it unwinds, from its first local fiber on, and if it
    /// is [spread](Self::spread) or local itself.
    ///
    /// # Safety
    /// Thread-locals move along with the fiber, but the system's thread changes. The caller promises that no code on the fiber, libraries
    /// included, relies on the system's thread staying the same over a call that may wait: that it keeps no guard of a signal mask, of
    /// a priority, of a namespace or of credentials of one thread, no context of a graphics library that is current on its thread, and
    /// nothing that is found again by `gettid`. Such values are not `Send`, but the compiler does not see what lies on a stack.
    pub unsafe fn moving(mut self) -> Self {
        self.moving = true;
        self
    }

    /// Puts it where [`better_place`](crate::better_place) says that it should go on. It stays there, as one that is
    /// [spread](Self::spread) does. If that worker is leaving, or not one of this runtime, it is put on the first.
    pub fn place(self, place: BetterPlace) -> Self {
        self.on_worker(place.worker())
    }

    /// Puts it on this very worker (or on the first, if that one is leaving).
    pub(crate) fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// `InvalidInput` for a stack size out of range or a zero byte in the name, `QuotaExceeded` at the runtime's cap of fibers, `Other` if
    /// the runtime is shutting down.
    ///
    /// # Panics
    /// Like [`spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        match current::worker() {
            Some(worker) => self.spawn_in(&worker.shared, root_of(worker), f, site, flag::NONE),
            None => match current::runtime() {
                Some(shared) => self.spawn_in(&shared, shared.root, f, site, flag::NONE),
                None => no_runtime("Builder::spawn"),
            },
        }
    }

    /// Starts it on this worker, so that the closure need not be `Send`. See [`spawn_local`](crate::spawn_local).
    ///
    /// # Errors
    /// Like [`Builder::spawn`]; `InvalidInput` together with [`Builder::spread`] or [`Builder::place`].
    ///
    /// # Panics
    /// Like [`spawn_local`](crate::spawn_local).
    #[track_caller]
    pub fn spawn_local<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let site = Location::caller();
        let Some(worker) = current::worker() else {
            panic!("fibra: spawn_local on a thread that runs no fibers");
        };
        if self.spread || self.worker.is_some() {
            let text = "a local fiber stays on its spawner's worker: spawn_local() excludes spread() and place()";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.spawn_in(&worker.shared, root_of(worker), f, site, flag::PINNED)
    }

    /// Starts it as a child of a scope; see [`Scope::spawn`](crate::Scope::spawn). A child of a scope is not a daemon. One that is
    /// [spread](Self::spread) does not count for [`max_concurrency`](crate::ScopeBuilder::max_concurrency).
    ///
    /// # Errors
    /// Like [`Builder::spawn`]; `InvalidInput` together with [`Builder::daemon`]. The caller knows then: a child that was refused with an
    /// error does not fail its scope.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let text = String::from("named");
    ///     fibra::scope(|s| {
    ///         let child = fibra::Builder::new().name("reader").spawn_scoped(s, || text.len());
    ///         assert_eq!(child.unwrap().join().unwrap(), 5);
    ///     });
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope crate::scope::Scope<'scope, '_>,
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        if self.daemon {
            let text = "a child of a scope is no daemon: its scope waits for it. Leave out daemon(), or use spawn()";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let shared = scope.runtime();
        let flags = self.locals()?;
        let (extras, spread_to) = self.extras(shared)?;
        // SAFETY: as in `Scope::spawn`.
        let spawned = unsafe { scope.start_with(f, Location::caller(), flags, extras, spread_to) };
        spawned.map_err(|reason| error_for(shared, reason))
    }

    /// The flags and extras of the fiber, and the worker it goes to if it is spread.
    fn extras(self, shared: &RuntimeShared) -> io::Result<(Extras, Option<usize>)> {
        let stack_size = self.stack()?;
        if let Some(name) = self.name.as_deref() {
            check_name("the name of a fiber", name)?;
        }
        // (A place may be that of another runtime, with more workers.)
        let worker = self.worker.map(|worker| if worker < shared.seats.made() { worker } else { 0 });
        let spread_to = worker.or_else(|| self.spread.then(|| shared.least_loaded()));
        // Counted as on its way only if it is started.
        let coming = AtomicBool::new(spread_to.is_some());
        Ok((Extras { name: self.name, stack_size, coming, ..Extras::default() }, spread_to))
    }

    /// The flags of a fiber with thread-locals of its own, if it is to have some.
    fn locals(&self) -> io::Result<FlagSet> {
        if self.moving && !self.own_locals {
            let text =
                "only a fiber with thread-locals of its own can go on on another worker: moving() needs own_locals()";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("fibra: {text}")));
        }
        if self.own_locals {
            are_to_be_had()?;
        }
        let stays = self.spread || self.worker.is_some();
        Ok(flag::WANTS_LOCALS.only_if(self.own_locals) | flag::MOVES.only_if(self.moving && !stays))
    }

    /// The size of the stack, if one was given.
    fn stack(&self) -> io::Result<Option<StackSize>> {
        let size = self.stack_size.map(StackSize::new).transpose();
        size.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    }

    pub(crate) fn spawn_in<F, T>(
        self,
        shared: &RuntimeShared,
        root: RootRef,
        f: F,
        site: &'static Location<'static>,
        mut flags: FlagSet,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        if self.daemon {
            flags |= flag::DAEMON;
        }
        flags |= self.locals()?;
        let (extras, spread_to) = self.extras(shared)?;
        // SAFETY: the public callers above demand `Send` unless it is PINNED to the worker this runs on; `'static` always.
        let spawned = unsafe { try_spawn(shared, root, f, site, flags, Some(extras), spread_to) };
        spawned.map_err(|refused| error_for(shared, refused.reason))
    }
}

fn error_for(shared: &RuntimeShared, reason: RefusedBecause) -> io::Error {
    match reason {
        RefusedBecause::ShuttingDown => io::Error::other("fibra: the runtime is shutting down: nothing new is started"),
        RefusedBecause::Full => io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "fibra: {} fibers are alive, the cap set with Runtime::builder().max_fibers()",
                shared.config.max_fibers.unwrap_or_default()
            ),
        ),
    }
}

/// Names may go to the system (those of threads do), which ends them at a zero byte.
pub(crate) fn check_name(what: &str, name: &str) -> io::Result<()> {
    let Some(place) = name.find('\0') else { return Ok(()) };
    let text = format!("fibra: {what}, {name:?}, has a zero byte at position {place}: leave it out");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
