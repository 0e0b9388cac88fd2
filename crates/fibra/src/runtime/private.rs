//! The functions that the macros' expansions call. Not public API: it may change with every release.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::builder::{Cancellation, RuntimeBuilder};
use super::runtime::run_on;
use crate::inspect;
use crate::prim::say;
use crate::prim::sync::{Condvar, Mutex};
use crate::prim::thread::{self, JoinHandle};
use crate::sched::monitoring::OnDeadlock;
use crate::scope::builder::ScopeBuilder;
use crate::scope::token::CancelToken;
use crate::time::Instant;

/// Options of the attribute macros.
#[derive(Debug, Default)]
pub struct Config {
    /// `workers = ..`
    pub workers: Option<usize>,
    /// `max_workers = ..`
    pub max_workers: Option<usize>,
    /// `stack_size = ..`
    pub stack_size: Option<usize>,
    /// `name = ..`
    pub name: Option<String>,
    /// `current_thread`
    pub current_thread: Option<bool>,
    /// `cancellation = ..`
    pub cancellation: Option<Cancellation>,
}

impl Config {
    fn builder(self) -> RuntimeBuilder {
        let mut builder = RuntimeBuilder::new();
        if let Some(workers) = self.workers {
            builder = builder.workers(workers);
        }
        if let Some(max_workers) = self.max_workers {
            builder = builder.max_workers(max_workers);
        }
        if let Some(stack_size) = self.stack_size {
            builder = builder.stack_size(stack_size);
        }
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if self.current_thread == Some(true) {
            builder = builder.current_thread();
        }
        if let Some(cancellation) = self.cancellation {
            builder = builder.cancellation(cancellation);
        }
        builder
    }
}

/// Did it fail? For functions that return a `Result`.
pub fn is_err<T, E>(result: &Result<T, E>) -> bool {
    result.is_err()
}

/// For functions that return anything else.
pub fn never_fails<T>(_: &T) -> bool {
    false
}

/// `#[fibra::main]`.
#[track_caller]
pub fn run_main<F, T>(config: Config, f: F, failed: fn(&T) -> bool) -> T
where
    F: FnOnce() -> T,
{
    let builder = config.builder().default_on_deadlock(OnDeadlock::Exit);
    run_on(builder, Location::caller(), f, failed, None)
}

/// `#[fibra::test]`: like `main`, but fibers that outlive the test function by `leak_timeout` are listed and fail the test; and so does one
/// that takes longer than `timeout`.
#[track_caller]
pub fn run_test<F, T>(
    config: Config,
    timeout: Option<Duration>,
    leak_timeout: Option<Duration>,
    f: F,
    failed: fn(&T) -> bool,
) -> T
where
    F: FnOnce() -> T,
{
    let leak_timeout = leak_timeout.unwrap_or(Duration::from_secs(5));
    let site = Location::caller();
    let Some(limit) = timeout else { return run_on(config.builder(), site, f, failed, Some(leak_timeout)) };
    let too_long = CancelToken::new();
    let _watch = Watchdog::start(limit, TO_END.saturating_add(leak_timeout), too_long.clone());
    let within = || match ScopeBuilder::new().token(too_long).run(|_| f()) {
        Ok(value) => value,
        Err(_) => panic!("the test did not end within {limit:?} (timeout); what its fibers waited for is listed above"),
    };
    run_on(config.builder(), site, within, failed, Some(leak_timeout))
}

/// A test that was cancelled has so long to end, and then its fibers have `leak_timeout`, which may be zero: an abort ends other tests too.
const TO_END: Duration = Duration::from_secs(5);

/// A thread that ends a test which takes too long; called off when dropped. A thread and not a timer: the worker itself may hang.
struct Watchdog {
    called_off: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn start(limit: Duration, grace: Duration, too_long: CancelToken) -> Self {
        let called_off = Arc::new((Mutex::new(false), Condvar::new()));
        let watched = called_off.clone();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let watch = move || {
            if is_called_off(&watched, limit) {
                return;
            }
            say(format_args!("fibra: {test} did not end within {limit:?} (timeout)"));
            inspect::dump();
            too_long.cancel();
            if is_called_off(&watched, grace) {
                return;
            }
            say(format_args!(
                "fibra: {test} was cancelled and has still not ended after another {grace:?} (5 seconds and \
                 leak_timeout): it computes, blocks its thread, or cannot be cancelled where it waits. Nothing else \
                 can end it, so the process is aborted"
            ));
            inspect::dump();
            std::process::abort();
        };
        let thread = thread::start("fibra-timeout".to_owned(), watch);
        Self { called_off, thread: Some(thread.expect("a test with a timeout needs a thread")) }
    }
}

/// Waits until the test has ended; not longer than this.
fn is_called_off((off, changed): &(Mutex<bool>, Condvar), limit: Duration) -> bool {
    let until = Instant::after(limit);
    let mut off = off.lock();
    loop {
        let now = Instant::now();
        if *off || now >= until {
            return *off;
        }
        off = changed.wait_timeout(off, until - now);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.called_off.0.lock() = true;
        self.called_off.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// For tests: behaves as if std's count of panics could not be found. To be called before the first runtime is built.
pub fn guess_unwinding() {
    crate::prim::panics::hide();
}

/// Prints every fiber of the process, with what it waits for, to standard error.
pub fn dump() {
    inspect::dump();
}
