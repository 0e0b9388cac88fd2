//! The builder of a runtime: options, their defaults, the environment, and which values are refused. Above: users, the attribute macros.
//! Below: `launch.rs`, which gets the checked options.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::runtime::Runtime;
use crate::blocking::pool::MAX_THREADS;
use crate::cancel::Rules;
use crate::fiber::context::watch_mxcsr;
use crate::fiber::stack::{StackSize, guard_kind_from_env};
use crate::inspect::endpoint::{self, ListenAddress};
use crate::inspect::token::Token;
use crate::inspect::{list, total};
use crate::monitor::hook;
use crate::monitor::stack_marks;
use crate::monitor::stats::{self, StatsFormat};
use crate::monitor::sysmon;
use crate::reactor;
use crate::runtime::launch::{Launched, launch, prepare_process};
#[cfg(feature = "unstable-migration")]
use crate::sched::life::migrate::Migration;
use crate::sched::monitoring::{OnDeadlock, QuietLook};
use crate::sched::monitoring::{STALL_MILLIS, StallConfig};
use crate::sched::shared::{Config, FiberHooks, RuntimeShared};
use crate::sched::staff::elastic::{ElasticConfig, SCALE_INTERVAL, STALL_AFTER, TEMP_IDLE_TIMEOUT};
use crate::task::builder::check_name;
use crate::task::fiber::{end_with_hooks, start_with_hooks};
use crate::task::own_locals::{are_to_be_had, run_with_own_locals};
use crate::trace::{self, Wish};
use crate::wait::hooks;
use crate::wait::watch;
use crate::waiter::word::enable_spec_assert;

/// Most workers a runtime may have.
const MAX_WORKERS: usize = 1024;

/// How cancellation reaches a fiber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Cancellation {
    /// It unwinds from its next blocking call. Needs `panic = "unwind"`.
    #[default]
    Unwind,
    /// It is observed with [`is_cancelled`](crate::is_cancelled), never delivered: cancelled waits stay parked.
    Cooperative,
}

/// Whose thread-locals the fibers of a runtime use; see [`RuntimeBuilder::locals`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Locals {
    /// Those of the thread that their worker runs on, which they share.
    #[default]
    Shared,
    /// Each fiber has its own, as with [`Builder::own_locals`](crate::Builder::own_locals).
    PerFiber,
}

/// Options of a [`Runtime`]. An option that is not set comes from the environment, or else has its default.
///
/// | option | environment | default |
/// |---|---|---|
/// | [`workers`](Self::workers) | `FIBRA_WORKERS` | the parallelism available |
/// | [`max_workers`](Self::max_workers) | `FIBRA_MAX_WORKERS` | twice the workers |
/// | [`stack_size`](Self::stack_size) | `FIBRA_STACK_SIZE` | 256 KiB |
/// | [`stall_after`](Self::stall_after) | `FIBRA_STALL_AFTER_MS` | 100 ms |
/// | [`scale_interval`](Self::scale_interval) | `FIBRA_SCALE_INTERVAL_MS` | 100 ms |
/// | [`temp_idle_timeout`](Self::temp_idle_timeout) | `FIBRA_TEMP_IDLE_MS` | 5 s |
/// | [`on_deadlock`](Self::on_deadlock) | `FIBRA_DEADLOCK` (`report`, `exit`, `panic`, `off`) | `exit` in `main`, else `report` |
/// | [`max_fibers`](Self::max_fibers) | | no cap |
/// | [`max_blocking_threads`](Self::max_blocking_threads) | | 512 |
///
/// Further variables: `FIBRA_STALL_MS` is how long a worker may run one fiber without a switch before it is reported (1000; 0: for ever),
/// `FIBRA_STALL_BACKTRACE=0` leaves the backtrace out of those reports (and sends no signal for it),
/// `FIBRA_SYSMON=0` leaves the system monitor out, and with it those reports, `FIBRA_GUARD=mprotect` guards stacks the old way,
/// `FIBRA_STATS=1` prints the [metrics](crate::Metrics) of a runtime on standard error when it ends, `FIBRA_STATS=json` as a line of
/// JSON, and with `FIBRA_STATS_SIGNAL=USR1` (or `USR2`, `HUP`, `QUIT`) whenever that signal comes;
/// `FIBRA_DUMP_SIGNAL=QUIT` (or one of the others) prints a [snapshot](crate::inspect) of the runtime on standard error when that signal
/// comes; `FIBRA_INSPECT=127.0.0.1:6680` (or `unix`, `unix:/path`) serves snapshots, metrics and a page about the whole process there,
/// and with `FIBRA_INSPECT_TOKEN` (16 characters or more) it cancels a fiber for a request that names that token;
/// `FIBRA_LEAKS=1` reports fibers that nothing could have woken when a run ends in release builds too, and `FIBRA_LEAKS=0` never;
/// `FIBRA_STACK_MARKS=1` measures how much stack each fiber has used when it ends ([`inspect::stacks`](crate::inspect::stacks));
/// `FIBRA_PANIC_EXIT=101` is the exit code of [`#[fibra::main]`](macro@crate::main) if a panic was told to no joiner;
/// `FIBRA_SPEC_ASSERT=1` checks state transitions of fibers, tasks and workers in release builds too (a wrong spawn, yield or reuse of a
/// frame is found when the fiber is run next). The environment is read when a runtime is built, and not again.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    max_workers: Option<usize>,
    stack_size: Option<usize>,
    stall_after: Option<Duration>,
    scale_interval: Option<Duration>,
    temp_idle_timeout: Option<Duration>,
    max_fibers: Option<usize>,
    max_blocking: Option<usize>,
    name: Option<String>,
    cancellation: Cancellation,
    locals: Locals,
    force_moves: bool,
    current_thread: bool,
    keep_mxcsr: bool,
    trace_last: Option<PathBuf>,
    panic_exit: Option<u8>,
    on_deadlock: Option<OnDeadlock>,
    /// Applies if neither the option nor the variable is set.
    default_on_deadlock: Option<OnDeadlock>,
    #[cfg(feature = "unstable-migration")]
    migration: Migration,
}

impl RuntimeBuilder {
    /// A builder with nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many workers: OS threads that run fibers.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How many workers there may be when some of them are stuck: see [`stall_after`](Self::stall_after). At least as many as
    /// [`workers`](Self::workers); just as many switches growth off.
    pub fn max_workers(mut self, max_workers: usize) -> Self {
        self.max_workers = Some(max_workers);
        self
    }

    /// A worker that has not switched fibers for so long counts as stuck. If work that any worker could do waits meanwhile, and none is
    /// idle, a temporary worker is added, up to [`max_workers`](Self::max_workers). From 1 ms to an hour. (When a stuck worker is
    /// *reported* is set with `FIBRA_STALL_MS`.)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let rt = fibra::Runtime::builder().workers(1).max_workers(2).stall_after(Duration::from_millis(20)).build()?;
    /// let stuck = rt.spawn(|| std::thread::sleep(Duration::from_millis(500))); // blocks its worker
    /// rt.spawn(|| println!("another worker runs this")).join().unwrap();
    /// # stuck.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stall_after(mut self, after: Duration) -> Self {
        self.stall_after = Some(after);
        self
    }

    /// At most one worker is added per interval. From 1 ms to an hour.
    pub fn scale_interval(mut self, interval: Duration) -> Self {
        self.scale_interval = Some(interval);
        self
    }

    /// A temporary worker that had nothing to run for so long leaves, when the fibers that have started on it have ended. From 1 ms to an
    /// hour.
    pub fn temp_idle_timeout(mut self, timeout: Duration) -> Self {
        self.temp_idle_timeout = Some(timeout);
        self
    }

    /// The size of a fiber's stack, in bytes: address space that is reserved, of which only what is touched costs memory.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// At most so many fibers alive at once; more are refused.
    pub fn max_fibers(mut self, max_fibers: usize) -> Self {
        self.max_fibers = Some(max_fibers);
        self
    }

    /// At most so many threads for [`blocking`](crate::blocking) calls.
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.max_blocking = Some(threads);
        self
    }

    /// The runtime's name, which its threads bear too. `build` fails for one with a zero byte.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How cancellation reaches a fiber.
    pub fn cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Whether each fiber keeps its own MXCSR (the control register of SSE: rounding, flush to zero) even if nothing but assembly or
    /// foreign code sets it directly. What C's `fenv.h` sets stays with its fiber anyway. Costs some 10 ns per switch; it holds for
    /// all runtimes of the process once one was built with it.
    pub fn keep_mxcsr(mut self, keep: bool) -> Self {
        self.keep_mxcsr = keep;
        self
    }

    /// What happens when every fiber of a run waits for another one and nothing else could wake them: no timer, no I/O, no blocking call,
    /// no thread outside the runtime. The report is made in any case: which fiber waits for which, at which line. Where a thread
    /// outside could still wake a fiber, it is reported after ten seconds, and nothing else happens. The default is
    /// [`OnDeadlock::Exit`] in [`#[fibra::main]`](macro@crate::main), and [`OnDeadlock::Report`] elsewhere. In a current-thread
    /// runtime, and in one without the system monitor (`FIBRA_SYSMON=0`), the worker that sleeps last looks itself.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(2).on_deadlock(fibra::OnDeadlock::Off).build()?;
    /// # drop(rt);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_deadlock(mut self, what: OnDeadlock) -> Self {
        self.on_deadlock = Some(what);
        self
    }

    /// Records what workers and fibers do, all the time, and keeps the end of it (the last 32,768 entries of each worker, 2 MiB): written
    /// to this file when the function given to `run` panics, when a deadlock is reported, at the dump signal, and by
    /// [`trace::dump_last`](crate::trace::dump_last). The recorder is one for the process, so that this holds for all of its runtimes
    /// once one was built with it. See [`trace`](crate::trace).
    ///
    /// ```
    /// let file = std::env::temp_dir().join("last-seconds.json");
    /// let rt = fibra::Runtime::builder().workers(2).trace_last(&file).build()?;
    /// rt.run(|| fibra::spawn(|| ()).join().unwrap());
    /// fibra::trace::dump_last(&file)?;
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trace_last(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace_last = Some(file.into());
        self
    }

    /// The exit code of `#[fibra::main]` after a panic of which no joiner was told; 0: what it is without one.
    pub(crate) fn panic_exit(mut self, code: u8) -> Self {
        self.panic_exit = Some(code);
        self
    }

    /// The default of [`on_deadlock`](Self::on_deadlock).
    pub(crate) fn default_on_deadlock(mut self, what: OnDeadlock) -> Self {
        self.default_on_deadlock = Some(what);
        self
    }

    /// One worker, no other thread: see [`Runtime::current_thread`].
    pub fn current_thread(mut self) -> Self {
        self.current_thread = true;
        self
    }

    /// Lets started fibers move between the workers of this runtime: whenever one yields or parks without a deadline, the next free worker
    /// runs it. Fibers from [`spawn_local`](crate::spawn_local) and [`Builder::spread`](crate::Builder::spread) stay; so does the function
    /// given to [`run`](crate::run). Of no use with one worker.
    ///
    /// # Safety
    /// The caller promises, for **all** code that runs on fibers of this runtime, dependencies included, that between two points of a
    /// function with a suspension between them
    ///
    /// * no reference to a thread-local is kept (`LocalKey::with` around a blocking call), and none is kept by the *compiler*, which
    ///   may compute the address of a thread-local once for a whole function and nothing in Rust forbids it to: see `docs/decisions/0001`;
    /// * nothing is kept that is not `Send`: an `Rc`, a `MutexGuard` of std, a raw handle that belongs to its thread. The compiler does
    ///   not check that, since what lives on a stack is no part of any type.
    ///
    /// Also, `Handle::enter` guards must not be open across a suspension.
    #[cfg(feature = "unstable-migration")]
    pub unsafe fn migrate_started_fibers(mut self) -> Self {
        self.migration = Migration::Free;
        self
    }

    /// Moves every fiber that may move to the next worker at every suspension: for tests.
    ///
    /// # Safety
    /// As [`migrate_started_fibers`](Self::migrate_started_fibers).
    #[doc(hidden)]
    #[cfg(feature = "unstable-migration")]
    pub unsafe fn force_migration(mut self) -> Self {
        self.migration = Migration::Forced;
        self
    }

    /// Whose thread-locals its fibers use. [`Locals::PerFiber`] is [`Builder::own_locals`](crate::Builder::own_locals) for every fiber of
    /// the runtime, with its price: a thread of the system for each. Futures (`spawn_future`) and the halves of [`join`](crate::join) use
    /// those of the thread they run on. A fiber for which the system has no thread waits until there is one, which is reported once.
    ///
    /// `build` fails with `Unsupported` where thread-locals cannot be switched.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    /// match fibra::Runtime::builder().locals(fibra::Locals::PerFiber).build() {
    ///     Ok(runtime) => runtime.run(|| {
    ///         NUMBER.set(1);
    ///         assert_eq!(fibra::spawn(|| NUMBER.get()).join().unwrap(), 0);
    ///         assert_eq!(NUMBER.get(), 1);
    ///     }),
    ///     Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
    /// }
    /// ```
    pub fn locals(mut self, locals: Locals) -> Self {
        self.locals = locals;
        self
    }

    /// Sends fibers that may move ([`Builder::moving`](crate::Builder::moving)) to the next worker whenever they yield: for tests.
    #[doc(hidden)]
    pub fn force_moves(mut self) -> Self {
        self.force_moves = true;
        self
    }

    /// Builds the runtime and starts its threads.
    ///
    /// # Errors
    /// `InvalidInput`, with the option or variable and its value, for anything out of range; what the system said if it has no thread
    /// or file descriptor to give.
    ///
    /// ```
    /// let error = fibra::Runtime::builder().workers(0).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        let keep_first = self.current_thread;
        Ok(Runtime::from_launched(self.launch(keep_first)?))
    }

    pub(crate) fn launch(self, keep_first: bool) -> io::Result<Launched> {
        prepare_process();
        hook::set_namer(watch::label_of);
        let format = stats_from_env()?;
        let signal = signal_from_env("FIBRA_STATS_SIGNAL")?;
        let dump_signal = signal_from_env("FIBRA_DUMP_SIGNAL")?;
        let wishes_for_traces = (trace_from_env()?, self.trace_last.clone());
        let (inspect_place, token) = (inspect_from_env()?, token_from_env()?);
        let mut config = self.settle()?;
        config.at_end = Some(trace::write_at_end);
        config.callers_thread = keep_first;
        config.print_stats = format.map(|format| match format {
            StatsFormat::Text => stats::print_text as fn(&RuntimeShared),
            StatsFormat::Json => stats::print_json,
        });
        if let Some(wish) = wishes_for_traces.0 {
            trace::keep(wish)?;
        }
        if let Some(file) = wishes_for_traces.1 {
            trace::keep(Wish::Last(file))?;
        }
        let launched = launch(config, keep_first)?;
        if let Some(signal) = signal {
            let print = launched.shared.config.print_stats.unwrap_or(stats::print_text);
            stats::print_on(signal, &launched.shared, print)?;
        }
        if let Some(place) = inspect_place {
            endpoint::serve(place, token)?;
        }
        if let Some(signal) = dump_signal {
            stats::print_on(signal, &launched.shared, list::print)?;
        }
        Ok(launched)
    }

    /// Options, environment and defaults, checked.
    fn settle(self) -> io::Result<Config> {
        let workers = match self.workers {
            _ if self.current_thread => 1,
            Some(workers) => workers,
            None => match from_env("FIBRA_WORKERS")? {
                Some(workers) => workers,
                None => std::thread::available_parallelism().map_or(1, usize::from),
            },
        };
        if workers == 0 || workers > MAX_WORKERS {
            return Err(invalid(format!("workers = {workers}: a runtime has 1 to {MAX_WORKERS} workers")));
        }
        let max_workers = match self.max_workers {
            _ if self.current_thread => 1,
            Some(max) => max,
            None => from_env("FIBRA_MAX_WORKERS")?.unwrap_or(workers * 2),
        };
        if max_workers < workers || max_workers > 2 * MAX_WORKERS {
            return Err(invalid(format!(
                "max_workers = {max_workers}: must be at least workers ({workers}) and at most {}",
                2 * MAX_WORKERS
            )));
        }
        let stack_size = match self.stack_size {
            Some(bytes) => StackSize::new(bytes).map_err(|error| invalid(format!("stack_size: {error}")))?,
            None => match from_env::<usize>("FIBRA_STACK_SIZE")? {
                Some(bytes) => StackSize::new(bytes).map_err(|error| invalid(format!("FIBRA_STACK_SIZE: {error}")))?,
                None => StackSize::DEFAULT,
            },
        };
        if self.max_fibers == Some(0) {
            return Err(invalid("max_fibers = 0: such a runtime could run nothing".to_owned()));
        }
        let max_blocking = self.max_blocking.unwrap_or(MAX_THREADS);
        if max_blocking == 0 {
            return Err(invalid("max_blocking_threads = 0: blocking calls would never run".to_owned()));
        }
        if let Some(name) = &self.name {
            check_name("the name of a runtime", name)?;
        }
        guard_kind_from_env().map_err(invalid)?;
        if cfg!(panic = "abort") && self.cancellation == Cancellation::Unwind {
            let text = "this program is built with panic = \"abort\", so cancellation cannot unwind a fiber: \
                        build the runtime with .cancellation(Cancellation::Cooperative), or the program with \
                        #[fibra::main(cancellation = \"cooperative\")]";
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("fibra: {text}")));
        }
        if flag_from_env("FIBRA_SPEC_ASSERT")?.unwrap_or(false) {
            enable_spec_assert();
        }
        if flag_from_env("FIBRA_STACK_MARKS")?.unwrap_or(false) {
            stack_marks::turn_on();
        }
        if self.keep_mxcsr {
            watch_mxcsr(true);
        }
        let stall_millis = from_env("FIBRA_STALL_MS")?.unwrap_or(STALL_MILLIS);
        // A current-thread runtime promises that there is no other thread, so no thread could look.
        let after = Duration::from_millis(stall_millis);
        let backtrace = flag_from_env("FIBRA_STALL_BACKTRACE")?.unwrap_or(true);
        let stall = (stall_millis > 0 && !self.current_thread).then_some(StallConfig {
            after,
            backtrace,
            fibers: list::on_worker,
        });
        let elastic = ElasticConfig {
            stall_after: span("stall_after", self.stall_after, "FIBRA_STALL_AFTER_MS", STALL_AFTER)?,
            scale_interval: span("scale_interval", self.scale_interval, "FIBRA_SCALE_INTERVAL_MS", SCALE_INTERVAL)?,
            temp_idle_timeout: span(
                "temp_idle_timeout",
                self.temp_idle_timeout,
                "FIBRA_TEMP_IDLE_MS",
                TEMP_IDLE_TIMEOUT,
            )?,
        };
        let seed = self.current_thread.then_some(0);
        let on_deadlock = match self.on_deadlock {
            Some(set) => set,
            None => deadlock_from_env()?.or(self.default_on_deadlock).unwrap_or(OnDeadlock::Report),
        };
        if self.locals == Locals::PerFiber {
            are_to_be_had()?;
        }
        let quiet = (on_deadlock != OnDeadlock::Off).then_some(total::look as QuietLook);
        Ok(Config {
            name: self.name.unwrap_or_else(|| "fibra".to_owned()),
            workers,
            max_workers,
            stack_size,
            max_fibers: self.max_fibers,
            max_blocking,
            current_thread: self.current_thread,
            sysmon: flag_from_env("FIBRA_SYSMON")?.unwrap_or(true),
            elastic,
            panic_exit: match self.panic_exit {
                Some(code) => code,
                None => panic_exit_from_env()?.unwrap_or(0),
            },
            leaks: flag_from_env("FIBRA_LEAKS")?.unwrap_or(cfg!(debug_assertions)),
            gather: flag_from_env("FIBRA_GATHER")?.unwrap_or(true),
            print_stats: None,
            hooks: Some(FiberHooks {
                started: start_with_hooks,
                ended: end_with_hooks,
                are_installed: || hooks::are_installed() || stack_marks::is_on(),
            }),
            with_own_locals: Some(run_with_own_locals),
            own_locals: self.locals == Locals::PerFiber,
            // (In a build for that, all fibers of all runtimes move wherever they can: `task::own_locals::forced`.)
            force_moves: self.force_moves || cfg!(fibra_force_moves) && !self.current_thread && are_to_be_had().is_ok(),
            at_end: None,
            stall,
            quiet,
            on_deadlock,
            callers_thread: false,
            cooperative: self.cancellation == Cancellation::Cooperative,
            rules: &Rules,
            io: &reactor::source::Rules,
            monitor: sysmon::run,
            seed,
            #[cfg(feature = "unstable-migration")]
            migration: if workers > 1 { self.migration } else { Migration::Off },
        })
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("fibra: {text}"))
}

/// A number from the environment. Anything else is an error that names variable and value.
fn from_env<N: FromStr>(variable: &str) -> io::Result<Option<N>> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    match value.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(format!("{variable}={}: expected a whole number", value.display()))),
    }
}

/// `FIBRA_STATS`: whether, and how, statistics are printed.
fn stats_from_env() -> io::Result<Option<StatsFormat>> {
    let Some(value) = std::env::var_os("FIBRA_STATS") else { return Ok(None) };
    value
        .to_str()
        .and_then(StatsFormat::parse)
        .ok_or_else(|| invalid(format!("FIBRA_STATS={}: expected 1, json, or 0 for none", value.display())))
}

/// `FIBRA_INSPECT`: where the inspector listens, if it does.
fn inspect_from_env() -> io::Result<Option<ListenAddress>> {
    let Some(value) = std::env::var_os("FIBRA_INSPECT") else { return Ok(None) };
    let open = flag_from_env("FIBRA_INSPECT_OPEN")?.unwrap_or(false);
    let place = ListenAddress::parse(value.to_str().unwrap_or("?"), open);
    place.map_err(|why| invalid(format!("FIBRA_INSPECT={}: {why}", value.display())))
}

/// `FIBRA_INSPECT_TOKEN`: what a request must name that acts. Its value is in no message.
fn token_from_env() -> io::Result<Option<Token>> {
    let Some(value) = std::env::var_os("FIBRA_INSPECT_TOKEN") else { return Ok(None) };
    let token = value.to_str().map_or_else(|| Err("is not UTF-8".to_owned()), Token::parse);
    token.map_err(|why| invalid(format!("FIBRA_INSPECT_TOKEN {why}")))
}

/// `FIBRA_TRACE`: what is recorded all the time, and where it is written.
fn trace_from_env() -> io::Result<Option<Wish>> {
    let Some(value) = std::env::var_os("FIBRA_TRACE") else { return Ok(None) };
    let wish = Wish::parse(&value);
    wish.map(Some).map_err(|why| invalid(format!("FIBRA_TRACE={}: {why}", value.display())))
}

/// `FIBRA_PANIC_EXIT`: the exit code of a program in which a panic was told to no joiner.
fn panic_exit_from_env() -> io::Result<Option<u8>> {
    let Some(value) = std::env::var_os("FIBRA_PANIC_EXIT") else { return Ok(None) };
    let code = value.to_str().and_then(|text| text.trim().parse().ok());
    code.map(Some).ok_or_else(|| {
        invalid(format!("FIBRA_PANIC_EXIT={}: expected an exit code from 1 to 255, or 0 for none", value.display()))
    })
}

/// `FIBRA_DEADLOCK`: the reaction to a deadlock.
fn deadlock_from_env() -> io::Result<Option<OnDeadlock>> {
    let Some(value) = std::env::var_os("FIBRA_DEADLOCK") else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Some("report") => Ok(Some(OnDeadlock::Report)),
        Some("exit") => Ok(Some(OnDeadlock::Exit)),
        Some("panic") => Ok(Some(OnDeadlock::Panic)),
        Some("off") => Ok(Some(OnDeadlock::Off)),
        _ => Err(invalid(format!("FIBRA_DEADLOCK={}: expected report, exit, panic or off", value.display()))),
    }
}

/// `FIBRA_STATS_SIGNAL`, `FIBRA_DUMP_SIGNAL`: the signal at which statistics, or a snapshot, are printed.
fn signal_from_env(variable: &str) -> io::Result<Option<i32>> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    let number = value.to_str().and_then(stats::signal_number);
    number.map(Some).ok_or_else(|| invalid(format!("{variable}={}: expected USR1, USR2, HUP or QUIT", value.display())))
}

/// A duration: as set, or in milliseconds from the environment, or its default. From a millisecond to an hour.
fn span(option: &str, set: Option<Duration>, variable: &str, default: Duration) -> io::Result<Duration> {
    let (name, span) = match set {
        Some(set) => (option, set),
        None => (variable, from_env(variable)?.map_or(default, Duration::from_millis)),
    };
    if (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&span) {
        return Ok(span);
    }
    Err(invalid(format!("{name} = {span:?}: must be between 1 ms and an hour")))
}

/// 0 or 1 from the environment.
fn flag_from_env(variable: &str) -> io::Result<Option<bool>> {
    match from_env::<u32>(variable)? {
        None => Ok(None),
        Some(0) => Ok(Some(false)),
        Some(1) => Ok(Some(true)),
        Some(other) => Err(invalid(format!("{variable}={other}: expected 0 or 1"))),
    }
}
