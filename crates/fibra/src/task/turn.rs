//! Starting a turn of an actor: a fiber that is the child of no scope, watched, and never refused because of `max_fibers`.
//!
//! Above: `actor::cell`. Below: `spawn`, whose fast path this is without a handle.

use std::panic::Location;
use std::sync::Arc;

use super::join::JoinHandle;
use super::run::Closure;
use super::spawn::{fill, root_of, try_spawn};
use crate::fiber::frame::flag;
use crate::sched::current;
use crate::sched::shared::RuntimeShared;

/// Starts one turn of an actor on its runtime: a fiber of the root scope that may run on any worker, is watched, and does not count under
/// `max_fibers` (a message that was accepted must not be lost because of that limit). `behind`: the turn comes after the fibers that this
/// worker has ready. Err: the runtime is shutting down, and `f` comes back.
#[inline]
pub(crate) fn launch<F: FnOnce() + Send + 'static>(
    shared: &Arc<RuntimeShared>,
    f: F,
    site: &'static Location<'static>,
    behind: bool,
) -> Result<(), F> {
    let here = current::worker().filter(|worker| Arc::ptr_eq(&worker.shared, shared));
    let base = shared.base_flags.look();
    if let Some(worker) = here
        && !behind
        // (Not up if the runtime is being shut down.)
        && base.has(flag::UNCAPPED)
    {
        let root = root_of(worker);
        if !worker.count_spawn(root) {
            return Err(f);
        }
        let frame = worker.take_frame();
        // SAFETY: a fresh frame; `f` is `Send` and `'static`.
        unsafe {
            fill(frame, shared, root, worker.take_id(), f, Closure::<F, ()>::THUNK, site, base | flag::WATCHED);
        }
        // No one joins it: its end recycles the frame.
        frame.join.reset(false);
        worker.stats().spawned.add(1);
        let ticket = frame.waiter.word.publish_spawned();
        worker.push_spawned(frame, ticket);
        return Ok(());
    }
    let root = here.map_or(shared.root, root_of);
    let flags = flag::WATCHED | flag::UNCAPPED | flag::BEHIND.only_if(behind);
    // SAFETY: `f` is `Send` and `'static`.
    match unsafe { try_spawn(shared, root, f, site, flags, None, None) } {
        Ok(handle) => {
            drop::<JoinHandle<()>>(handle);
            Ok(())
        }
        Err(refused) => Err(refused.f),
    }
}
