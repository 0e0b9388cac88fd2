//! Starting and stopping the threads of a runtime. Above: `runtime.rs`, `builder.rs`. Below: `sched`, `driver`, `monitor`.
//!
//! Shutdown, in numbered steps; `runtime::runtime` carries them out and waits in between:
//! 1. *Refuse*: `closing` is set; `spawn` gives handles that say cancelled.
//! 2. *Cancel*: the root's flag reaches fibers that have not started, a command to each worker those that have.
//! 3. *Drain*: wait until the root and then the daemons are empty and closed. A spawn that raced with step 1 was counted before the root
//!    closed, and is waited for; one that comes later is refused by the closed root. Both cases are clean.
//! 4. *Stop*: `stop` is set, every worker is woken and ends; sysmon ends; the blocking pool ends.
//! 5. *Join* every thread, wait for visitors, free.

use std::io;
use std::sync::Arc;

use crate::driver::Driver;
use crate::fiber::frame::flag;
use crate::fiber::overflow;
use crate::fiber::stack::guard_kind;
use crate::monitor::{fork, hook, objects};
use crate::prim::{panics, policy};
use crate::sched::flight;
use crate::sched::shared::{Config, Remote, RuntimeShared};
use crate::sched::staff::threads::start_worker;
use crate::sched::sysmon::Sysmon;

/// The threads of a runtime, to be joined: those of its workers, which come and go, and sysmon's, which may start later.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<RuntimeShared>,
}

/// A runtime whose worker 0 has no thread yet.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) shared: Arc<RuntimeShared>,
    pub(crate) threads: Threads,
    /// The driver of worker 0, if the caller's thread is to be it.
    pub(crate) own: Option<Driver>,
}

/// Prepares the process for its first runtime. Also computes values that would otherwise be computed at their first use, which a fork by
/// another thread could interrupt.
pub(crate) fn prepare_process() {
    fork::set_up(|| {
        policy::now();
        guard_kind();
        overflow::install();
        overflow::set_describer(crate::monitor::describe::describe);
        hook::install();
        panics::count();
    });
}

/// Builds a runtime and starts its threads: all workers, or all but worker 0 if `keep_first`. If one cannot be started, those that
/// were are stopped and joined again. After [`prepare_process`].
pub(crate) fn launch(config: Config, keep_first: bool) -> io::Result<Launched> {
    let workers = config.workers;
    let mut drivers = Vec::with_capacity(workers);
    for _ in 0..workers {
        drivers.push(Driver::new()?);
    }
    let remotes = (0..config.max_workers).map(|_| Remote::new()).collect();
    let shared = RuntimeShared::new(config, remotes);
    for (remote, driver) in shared.remotes.iter().zip(&drivers) {
        let first = remote.kicker.set(driver.kicker());
        debug_assert!(first.is_ok(), "a new seat");
    }
    let threads = Threads { shared: shared.clone() };
    let mut launched = Launched { shared, threads, own: None };
    match start_threads(&mut launched, drivers, keep_first) {
        Ok(()) => {
            objects::add_runtime(&launched.shared);
            flight::add_runtime(&launched.shared);
            // (Hooks that are installed from now on find the runtime.)
            if launched.shared.config.hooks.is_some_and(|hooks| (hooks.are_installed)()) {
                launched.shared.base_flags.raise(flag::HOOKED);
            }
            if launched.shared.config.own_locals {
                launched.shared.base_flags.raise(flag::WANTS_LOCALS);
            }
            Ok(launched)
        }
        Err(error) => {
            stop(&launched.shared);
            launched.threads.join();
            let text = format!("fibra: a thread of a runtime with {workers} workers could not be started: {error}");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

fn start_threads(launched: &mut Launched, drivers: Vec<Driver>, keep_first: bool) -> io::Result<()> {
    for (index, driver) in drivers.into_iter().enumerate() {
        if index == 0 && keep_first {
            launched.own = Some(driver);
            continue;
        }
        let shared = &launched.shared;
        let started = shared.staff.hire(|threads| start_worker(shared, index, driver, threads, || ()));
        started.expect("a runtime that is being built is not shut down").map_err(|failed| failed.error)?;
    }
    Sysmon::start(&launched.shared, keep_first)
}

/// Step 4 for the workers and sysmon.
pub(crate) fn stop(shared: &RuntimeShared) {
    crate::sched::reach::stop(shared);
    shared.sysmon.stop();
}

impl Threads {
    /// Step 5.
    pub(crate) fn join(&mut self) {
        // Sysmon first: it is the thread that starts workers.
        self.shared.sysmon.join();
        for thread in self.shared.staff.close() {
            // A worker's loop catches the panics of fibers; if the loop itself panicked, the hook has reported it.
            let _ = thread.join();
        }
        self.shared.donors.close();
        self.print_stats();
    }

    fn print_stats(&self) {
        if let Some(print) = self.shared.config.print_stats {
            print(&self.shared);
        }
        if let Some(call) = self.shared.config.at_end {
            call();
        }
    }

    /// Lets the threads go: no thread will join them. One that ends all the same is cleaned up by the system.
    pub(crate) fn abandon(&mut self) {
        if self.shared.fork_epoch != fork::epoch() {
            return self.forget();
        }
        drop(self.shared.staff.close());
        self.shared.donors.abandon();
        self.print_stats();
    }

    /// For a forked child, where the threads do not exist: detaching one would make a system call for it.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.shared.clone());
    }
}
