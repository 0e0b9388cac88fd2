//! What the macros expand to. Not public API: it may change with every release.

use std::panic::Location;
use std::time::Duration;

use super::config::RuntimeBuilder;
use super::runtime::run_on;
use crate::observe::report;

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
    run_on(config.builder(), Location::caller(), f, failed, None)
}

/// `#[fibra::test]`: like `main`, but fibers that outlive the test function by `leak_timeout` are listed and fail the test.
#[track_caller]
pub fn run_test<F, T>(config: Config, leak_timeout: Option<Duration>, f: F, failed: fn(&T) -> bool) -> T
where
    F: FnOnce() -> T,
{
    let leak_timeout = leak_timeout.unwrap_or(Duration::from_secs(5));
    run_on(config.builder(), Location::caller(), f, failed, Some(leak_timeout))
}

/// For tests: as if std's count of panics could not be found. To be called before the first runtime is built.
pub fn guess_unwinding() {
    crate::prim::panics::hide();
}

/// Prints every fiber of the process, with what it waits for, to standard error.
pub fn dump() {
    report::dump();
}
