//! The panic hook of fibers: runs the hook that was there before, on the worker's stack.
//!
//! A hook that prints a backtrace needs more stack than a small fiber has left, so it is called on the scheduler's stack; the
//! fiber waits for it, under `no_suspend`. The hook also notes on the fiber that it unwinds (see `wait::cancel`), opens the
//! reserve below the stack if the panic began near its end, and says which fiber panicked.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

use super::current;
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::Ordering;

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Chains our hook before the one that is there now; once per process. A thread that unwinds may not, and leaves it to the next runtime:
/// without it panics are reported without the fiber's name, on its own stack.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| hook(&*before, info)));
    });
}

fn hook(before: &Hook, info: &PanicHookInfo<'_>) {
    let Some(worker) = current::worker() else {
        current::thread_standing().unwinding.set(true);
        return before(info);
    };
    let Some(frame) = worker.current.get() else { return before(info) };
    let Some(top) = frame.top() else { return before(info) };
    top.standing.unwinding.set(true);
    top.dirty.set(true);
    frame.raise(flag::HOLD_OFF);
    crate::fiber::overflow_reserve(frame);
    let was_open = frame.has(flag::NO_SUSPEND);
    frame.raise(flag::NO_SUSPEND);
    let mut call = Call { before, info, frame };
    // SAFETY: on the current fiber. `on_scheduler` catches what it calls (a hook that panics aborts in std before it gets here), and
    // NO_SUSPEND keeps it from suspending.
    unsafe { worker.call_on_scheduler(on_scheduler, std::ptr::from_mut(&mut call).cast()) };
    if !was_open {
        frame.lower(flag::NO_SUSPEND);
    }
}

struct Call<'a> {
    before: &'a Hook,
    info: &'a PanicHookInfo<'a>,
    frame: FrameRef,
}

unsafe extern "C" fn on_scheduler(data: *mut ()) {
    // SAFETY: `hook` passes its `Call`, which lives until this returns.
    let call = unsafe { &*data.cast::<Call<'_>>() };
    (call.before)(call.info);
    // Relaxed: the id of a running fiber does not change.
    let id = call.frame.id.load(Ordering::Relaxed);
    // SAFETY: the fiber itself asks, so the frame is not recycled.
    let name = unsafe { call.frame.extras() }.and_then(|extras| extras.name.as_deref());
    let name = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let site = call.frame.site.get().map(|site| format!(", spawned at {site}")).unwrap_or_default();
    crate::prim::say(format_args!("note: that was fiber #{id}{name}{site}"));
}
