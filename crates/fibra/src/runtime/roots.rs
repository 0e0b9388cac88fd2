//! The life of a root scope: run its function, then wait for everything that was started in it. Above: `runtime.rs`. Below: `scope::empty`,
//! `cancel::request`.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::time::Duration;

use crate::cancel::{cancel_started, is_cancellation};
use crate::inspect::list;
use crate::sched::shared::{Command, RootRef, RuntimeShared};
use crate::scope::Empty;
use crate::time::Instant;
use crate::trace::{self, When};
use crate::wait::park::{Outcome, Wait, wait};
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::ReasonKind;

/// After so long the runtime reports for which fibers a run waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// On the root fiber: runs `f`, then waits until every fiber of `root` has ended. A panic, or a result for which `failed` is true, cancels
/// them first. With `leak_timeout`, fibers that take longer than that are listed, cancelled, and make the result an error.
pub(crate) fn run_root<T>(
    shared: &RuntimeShared,
    root: RootRef,
    site: &'static Location<'static>,
    f: impl FnOnce() -> T,
    failed: impl FnOnce(&T) -> bool,
    leak_timeout: Option<Duration>,
) -> Result<T, Box<dyn Any + Send>> {
    let result = catch_unwind(AssertUnwindSafe(f));
    let failed = match &result {
        Ok(value) => failed(value),
        Err(_) => true,
    };
    if result.as_ref().is_err_and(|payload| !is_cancellation(&**payload)) {
        trace::write_at(When::Panic);
    }
    if failed {
        cancel_root(shared, root, ReasonKind::RootFailed);
    }
    let deadline = leak_timeout.map(Instant::after);
    if drain(shared, root, WaitReason::RunEnd, site, deadline).is_ok() {
        // It was cancelled because of a deadlock: then that is how it ends.
        return match shared.deadlock.lock().take() {
            Some(text) => Err(Box::new(text)),
            None => result,
        };
    }
    let leaked = list::fibers_of(shared);
    cancel_root(shared, root, ReasonKind::RootFailed);
    await_empty(shared, root, WaitReason::RunEnd, site, None).expect("without a deadline it waits for ever");
    result.and_then(|_| {
        let waited = leak_timeout.unwrap_or_default();
        let text = format!("fibers outlived the test by more than {waited:?} (leak_timeout):\n{leaked}");
        let _ = std::io::stderr().write_all(text.as_bytes());
        Err(Box::new(text) as Box<dyn Any + Send>)
    })
}

/// Cancels everything in a root: fibers that have started now, the others when they start.
pub(crate) fn cancel_root(shared: &RuntimeShared, root: RootRef, reason: ReasonKind) {
    if root.cancel(reason) {
        cancel_started(shared, Some(root), false, reason);
    }
}

/// Gives the owner's unit back and waits until the root is empty and closed. Err: not by the deadline.
pub(crate) fn drain(
    shared: &RuntimeShared,
    root: RootRef,
    reason: WaitReason,
    site: &'static Location<'static>,
    deadline: Option<Instant>,
) -> Result<(), ()> {
    if root.begin_drain(shared.remotes.len()) {
        shared.post_all(Command::Flush(root));
    }
    await_empty(shared, root, reason, site, deadline)
}

/// Waits until a root that is being drained is empty, and closes it.
fn await_empty(
    shared: &RuntimeShared,
    root: RootRef,
    reason: WaitReason,
    site: &'static Location<'static>,
    deadline: Option<Instant>,
) -> Result<(), ()> {
    let mut patience = Some(Instant::after(PATIENCE));
    let closed = root.close_when_empty(|| {
        let until = match (patience, deadline) {
            (Some(patience), Some(deadline)) => Some(patience.min(deadline)),
            (one, other) => one.or(other),
        };
        let how = Wait { reason, object: 0, site, deadline: until.map(Instant::as_nanos) };
        if wait(&Empty(&root), how) == Outcome::TimedOut {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            patience = None;
            list::say_whom_we_wait_for(shared, PATIENCE);
        }
        true
    });
    if closed { Ok(()) } else { Err(()) }
}
