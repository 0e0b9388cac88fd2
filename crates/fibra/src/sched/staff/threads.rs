//! The thread of a worker: starting it, and running the worker's loop on it.
//!
//! Above: `elastic`, which starts workers as they are needed, and `runtime`, which starts the first ones. Below: `worker`.

use std::io;
use std::sync::Arc;

use super::super::shared::RuntimeShared;
use super::super::worker::Worker;
use crate::driver::Driver;
use crate::fiber::overflow::AltStack;
use crate::prim::atomic::Ordering;
use crate::prim::sync::Mutex;
use crate::prim::thread::{self, JoinHandle};

/// The system gave no thread: returns the driver to the caller.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) error: io::Error,
    pub(crate) driver: Driver,
}

/// Starts the thread of the worker of a seat. `arrive` is called when there is a thread, before it does anything, and makes the seat that
/// worker's. The caller holds the staff's lock.
pub(crate) fn start_worker(
    shared: &Arc<RuntimeShared>,
    index: usize,
    driver: Driver,
    threads: &mut Vec<JoinHandle<()>>,
    arrive: impl FnOnce(),
) -> Result<(), NotStarted> {
    // Threads of workers that have left need not be joined.
    threads.retain(|thread| !thread.is_finished());
    let name = format!("{}-worker-{index}", shared.config.name);
    // Locked until the seat is the worker's: the thread waits for that.
    let parcel = Arc::new(Mutex::new(None));
    let (body, inside) = (shared.clone(), parcel.clone());
    let mut place = parcel.lock();
    let started = thread::start_quiet(name, move || {
        let driver = inside.lock().take().expect("put there before the lock was free");
        let worker = Worker::new(index, body, driver);
        run_worker(&worker, || worker.has_left());
        worker.retire();
    });
    match started {
        Ok(thread) => {
            arrive();
            *place = Some(driver);
            threads.push(thread);
            Ok(())
        }
        Err(error) => Err(NotStarted { error, driver }),
    }
}

/// Runs a worker's loop on this thread until the runtime stops or `over` says so.
pub(crate) fn run_worker(worker: &Worker, over: impl Fn() -> bool) {
    // Without an alternate stack an overflow still ends the process, only without its report.
    let _alt_stack = AltStack::install_for_thread().ok();
    let unwinds = NoWayOn;
    let remote = worker.remote();
    if worker.shared.config.sysmon || worker.shared.own_look.is_some() {
        // Relaxed, here and below: a number for reports, nothing else is read on the strength of it.
        remote.thread.store(thread::os_id(), Ordering::Relaxed);
    }
    // Relaxed: a hint while there is work; a sleeping worker is woken after it is set.
    worker.run_loop(|| over() || worker.shared.stop.load(Ordering::Relaxed));
    remote.thread.store(0, Ordering::Relaxed); // Relaxed: as above.
    std::mem::forget(unwinds);
}

/// Ends the process if a worker's loop unwinds: beyond the loop end the borrows of the fibers it runs, and a waiter for one of them would
/// wait for ever. The loop does not panic; if it does all the same (the panic hook has said where), the program cannot go on.
struct NoWayOn;

impl Drop for NoWayOn {
    fn drop(&mut self) {
        crate::prim::say(format_args!("fibra: a worker's loop panicked; the program cannot go on"));
        std::process::abort();
    }
}
