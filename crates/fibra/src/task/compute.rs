//! `compute`: work that keeps a processor busy for long, without holding up the fibers of this worker.
//!
//! Above: users. Below: scopes and `Builder`. The work becomes a child of a scope, sent by name to a worker that sleeps and has no fibers
//! of its own, or to a temporary one; the caller waits for it, so that it may borrow. If there is none the caller does it itself, after
//! the others of its worker had a turn and before they have the next: to give it to a worker that is busy would only hold up the fibers
//! of that one.

use std::panic::resume_unwind;

use super::builder::Builder;
use super::fiber::{checkpoint, yield_now};
use crate::fiber::frame::flag;
use crate::prim::sync::Mutex;
use crate::sched::current;
use crate::scope::scope::scope;

/// Runs `f`, which computes for long, where it holds up no other fiber: at once, on a worker that has no fibers, while the calling fiber
/// waits and its neighbours run. If all have some, a temporary worker is started, up to
/// [`max_workers`](crate::RuntimeBuilder::max_workers); then any that sleeps will do. If every worker is busy it runs right here, and the
/// neighbours have a turn before and after.
///
/// `f` may borrow from the caller. It cannot be abandoned: if the calling fiber is cancelled meanwhile, that arrives when `f` has returned
/// (or waits for something itself). It has fiber-locals of its own if it runs elsewhere; inherited ones are copied. On a plain thread, and
/// inside [`no_suspend`](crate::no_suspend), it is just called.
///
/// | the work | use |
/// |---|---|
/// | computes for more than a millisecond or so, and neighbours should not wait for it | `compute` |
/// | can be cut into pieces | [`yield_now`] between the pieces, or [`join`](crate::join) to run pieces at the same time |
/// | blocks the OS thread: a C library, a file lock, `std::thread::sleep` | [`blocking`](crate::blocking) |
///
/// ```
/// fibra::run(|| {
///     let text = "to be or not to be ".repeat(1000);
///     let words = fibra::compute(|| text.split_whitespace().count()); // borrows
///     assert_eq!(words, 6000);
/// });
/// ```
///
/// # Panics
/// If `f` does, with its payload.
#[track_caller]
pub fn compute<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let Some(worker) = current::worker() else { return f() };
    if current::fiber().is_none_or(|frame| frame.has(flag::NO_SUSPEND)) {
        return f();
    }
    let Some(idle) = worker.shared.worker_to_compute_on() else {
        yield_now();
        let value = f();
        yield_now();
        return value;
    };
    // In a place that both sides reach: a child that is refused, or cancelled before it starts, leaves it there.
    let work = Mutex::new(Some(f));
    let done = scope(|s| {
        let child = || {
            let f = work.lock().take();
            f.map(|f| f())
        };
        let child = Builder::new().name("compute").on_worker(idle).spawn_scoped(s, child);
        match child.ok()?.join() {
            Ok(value) => value,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // No stack for it, or cancelled before it began. (Cancelled later, with the caller, this is not reached.)
            Err(_) => None,
        }
    });
    done.unwrap_or_else(|| match work.into_inner() {
        Some(f) => f(),
        None => {
            checkpoint();
            panic!("fibra: the function given to compute() passed on a cancellation that was not its own")
        }
    })
}
