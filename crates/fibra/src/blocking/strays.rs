//! Strays: calls that nobody waits for at the end. They may hang for ever (a name server that does not answer, standard input that nobody
//! types into), so whoever wants their result may give up, and no shutdown waits for their threads.
//!
//! Above: `net::abandon`, which waits for results, and whoever needs none. Below: the blocking pool, of which there is one more, of the
//! whole process: a stray may outlive the runtime that asked for it. It is never shut down.

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

/// Has `call` made on a thread of its own, some time. It must catch its panics: one that gets out is forgotten.
///
/// # Errors
/// There is no thread, and none can be started; the call was dropped.
pub(crate) fn start(call: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stray = Box::into_raw(Box::new(Stray { job: Job::new(run), call: Box::new(call) }));
    // The pointer has the provenance of the whole box; `job` is its first field (`repr(C)`).
    let job = NonNull::new(stray.cast::<Job>()).expect("a box has an address");
    // SAFETY: a box that stays where it is until `run` takes it.
    unsafe { POOL.get().submit(job) }.inspect_err(|_| {
        // SAFETY: the pool has not taken it.
        drop(unsafe { Box::from_raw(stray) });
    })
}

unsafe fn run(job: NonNull<Job>) {
    // SAFETY: `start` made it of a box, and it is run once.
    let stray = unsafe { Box::from_raw(job.cast::<Stray>().as_ptr()) };
    (stray.call)();
}
