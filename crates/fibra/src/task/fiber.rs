//! The running fiber: its id and name, and whether it is cancelled. Above: users. Below: `sched::current`, `cancel`.

use std::sync::Arc;

use super::run::{end_of_user_code, start_of_user_code};
use crate::cancel::{self, Shield};
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::id::FiberId;
use crate::fiber::top::FiberTop;
use crate::monitor::stack_marks;
use crate::sched::current as running;
use crate::sched::here::Here;
use crate::wait::{hooks, park};
use crate::waiter::cancel_reason::CancelReason;

/// The fiber that called [`current`].
#[derive(Debug, Clone)]
pub struct Fiber {
    id: FiberId,
    name: Option<Arc<str>>,
}

/// The fiber this runs on; `None` on a plain thread.
///
/// ```
/// assert!(fibra::current().is_none());
/// fibra::run(|| {
///     let me = fibra::current().unwrap();
///     me.set_status("looking around");
///     println!("{} {:?}", me.id(), me.name());
/// });
/// ```
pub fn current() -> Option<Fiber> {
    let frame = running::fiber()?;
    // SAFETY: the running fiber's own frame.
    let name = unsafe { frame.extras() }.and_then(|extras| extras.name.clone());
    Some(Fiber { id: FiberId::of(frame), name })
}

impl Fiber {
    /// Its id.
    pub fn id(&self) -> FiberId {
        self.id
    }

    /// Its name, if it was given one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Says what it is doing, for reports; at most 31 bytes are kept. Only the fiber itself can say so: elsewhere this does nothing.
    pub fn set_status(&self, status: &str) {
        if let Some(top) = self.own_top() {
            top.set_status(status);
        }
    }

    /// What it last said it is doing; empty if nothing, or if this is not called on the fiber itself.
    pub fn status(&self) -> String {
        self.own_top().map(FiberTop::status).unwrap_or_default()
    }

    fn own_top(&self) -> Option<&'static FiberTop> {
        running::fiber().filter(|frame| FiberId::of(frame) == self.id)?.top()
    }
}

/// Lets other fibers of this worker run first. A cancellation point. On a plain thread, the system's yield.
///
/// ```
/// fibra::run(|| {
///     let other = fibra::spawn(|| "the other one");
///     while !other.is_finished() {
///         fibra::yield_now();
///     }
/// });
/// ```
#[inline]
pub fn yield_now() {
    park::yield_now();
}

/// Has this fiber been cancelled, or a scope whose body runs here? True also inside [`shield`], where it is not delivered.
///
/// Like every call that never waits, it lets other fibers run now and then, so that a loop over it does not keep its worker.
pub fn is_cancelled() -> bool {
    park::count_call();
    Here::new().is_some_and(|here| here.is_cancelled())
}

/// Why this fiber, or a scope whose body runs here, was cancelled, if it was.
pub fn cancel_reason() -> Option<CancelReason> {
    park::count_call();
    let here = Here::new()?;
    if here.is_cancelled() { here.reason() } else { None }
}

/// A point where a cancelled fiber unwinds, or the body of a cancelled scope, for loops that compute without blocking. It looks at the
/// clock too, if a deadline applies, and lets other fibers run every 512 calls; [`yield_now`] does so every time.
///
/// ```
/// fibra::run(|| {
///     let busy = fibra::spawn(|| loop {
///         fibra::checkpoint();
///         std::hint::black_box(());
/// #       fibra::yield_now();
///     });
///     busy.cancel();
///     assert!(busy.join().unwrap_err().is_cancelled());
/// });
/// ```
#[inline]
pub fn checkpoint() {
    park::count_call();
    cancel::checkpoint();
}

/// Runs `f` with cancellation held off: blocking calls inside complete normally, and it is delivered at the first one after. For a
/// step that must not be left half done.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let child = fibra::spawn_local(|| {
///         fibra::shield(|| {
///             fibra::sleep(Duration::from_millis(5));
///             "written"
///         })
///     });
///     fibra::yield_now(); // it is local, so it has begun when this returns
///     child.cancel();
///     assert_eq!(child.join().unwrap(), "written");
/// });
/// ```
pub fn shield<T>(f: impl FnOnce() -> T) -> T {
    let _open = Shield::open();
    f()
}

/// Runs `f` with the promise that this fiber does not leave its worker meanwhile: any blocking call inside panics. For code that keeps
/// something in a thread-local while it calls back (an enter guard, a scoped thread-local), which other fibers of the same worker must
/// not see. Calls that never wait (`try_recv`, `is_finished`, ..) let others run now and then; in here they do not.
///
/// ```
/// fibra::run(|| {
///     assert_eq!(fibra::no_suspend(|| 1 + 1), 2);
/// });
/// ```
///
/// ```should_panic
/// fibra::run(|| fibra::no_suspend(|| fibra::yield_now()));
/// ```
pub fn no_suspend<T>(f: impl FnOnce() -> T) -> T {
    /// Ends the outermost one, also when `f` panics.
    struct Outermost(FrameRef);
    impl Drop for Outermost {
        fn drop(&mut self) {
            self.0.lower(flag::NO_SUSPEND);
        }
    }
    let _open = running::fiber().filter(|frame| !frame.has(flag::NO_SUSPEND)).map(|frame| {
        frame.raise(flag::NO_SUSPEND);
        Outermost(frame)
    });
    f()
}

/// The first moment of a fiber with hooks, which may use fiber-locals: what its parent left for it comes first.
pub(crate) fn start_with_hooks(frame: FrameRef) {
    start_of_user_code(frame);
    hooks::started();
}

/// The last moment of a fiber with hooks, in which those may have used fiber-locals once more.
pub(crate) fn end_with_hooks(frame: FrameRef) {
    hooks::ended();
    end_of_user_code(frame);
    if stack_marks::is_on() {
        stack_marks::note_end(frame);
    }
}
