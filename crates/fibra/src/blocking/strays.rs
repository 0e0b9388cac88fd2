//! Strays: blocking calls that shutdown does not join. They may hang for ever (a name server that does not answer, standard input without
//! input), so the caller that wants the result may give up, and no shutdown waits for their threads.
//!
//! Above: `net::abandon`, which waits for results, and callers that need none. Below: the blocking pool; strays have one pool for the
//! whole process, beside those of the runtimes, because a stray may outlive the runtime that asked for it. It is never shut down.

use std::io;
use std::ptr::NonNull;

use super::pool::{BlockingPool, Job, MAX_THREADS};
use crate::monitor::per_process::PerProcess;

/// How long an idle thread waits for the next call, in nanoseconds: programs that count their threads need not wait long.
const KEEP_ALIVE: u64 = 1_000_000_000;

static POOL: PerProcess<BlockingPool> =
    PerProcess::new(|| BlockingPool::with_keep_alive("fibra-stray", MAX_THREADS, KEEP_ALIVE));

#[repr(C)]
struct Stray {
    // First: the pool knows its address.
    job: Job,
    call: Box<dyn FnOnce() + Send>,
}

/// Has `call` made on a thread of the stray pool, as soon as one is free. The call must catch its panics: one that gets out is forgotten.
///
/// # Errors
/// There is no thread, and none can be started; the call was dropped.
pub(crate) fn start(call: impl FnOnce() + Send + 'static) -> io::Result<()> {
    submit(call, BlockingPool::submit)
}

/// The same for a call that must not wait behind one that may hang: a thread is free for it, or one is started.
///
/// # Errors
/// No thread is free, and none can be started; the call was dropped.
pub(crate) fn start_at_once(call: impl FnOnce() + Send + 'static) -> io::Result<()> {
    submit(call, BlockingPool::submit_at_once)
}

fn submit(
    call: impl FnOnce() + Send + 'static,
    to: unsafe fn(&BlockingPool, NonNull<Job>) -> io::Result<()>,
) -> io::Result<()> {
    let stray = Box::into_raw(Box::new(Stray { job: Job::new(run), call: Box::new(call) }));
    // The pointer has the provenance of the whole box; `job` is its first field (`repr(C)`).
    let job = NonNull::new(stray.cast::<Job>()).expect("a box has an address");
    // SAFETY: a box that stays where it is until `run` takes it.
    unsafe { to(POOL.get(), job) }.inspect_err(|_| {
        // SAFETY: the pool has not taken it.
        drop(unsafe { Box::from_raw(stray) });
    })
}

unsafe fn run(job: NonNull<Job>) {
    // SAFETY: `start` made it of a box, and it is run once.
    let stray = unsafe { Box::from_raw(job.cast::<Stray>().as_ptr()) };
    (stray.call)();
}
