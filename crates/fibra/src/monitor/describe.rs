//! Says whose stack overflowed: called in a signal handler, so it neither allocates nor locks.

use std::fmt::Write;

use crate::fiber::frame::Frame;
use crate::fiber::overflow::ReportBuffer;
use crate::fiber::stack::StackTop;
use crate::prim::atomic::Ordering;

/// The overflow report asks this for the fiber that owned the stack.
pub(crate) fn describe(top: &StackTop, out: &mut ReportBuffer) {
    // Acquire: pairs with the release in `bind_stack`.
    let owner = top.owner.load(Ordering::Acquire).cast::<Frame>();
    // SAFETY: set to a frame by `bind_stack`, and frames live for ever.
    let Some(frame) = (unsafe { owner.as_ref() }) else {
        let _ = write!(out, "a fiber that has ended");
        return;
    };
    // Relaxed: the id of a running fiber does not change.
    let _ = write!(out, "fiber #{}", frame.id.load(Ordering::Relaxed));
    // SAFETY: the handler runs on the thread of the fiber that overflowed, which has therefore not ended.
    if let Some(name) = unsafe { frame.extras() }.and_then(|extras| extras.name.as_deref()) {
        let _ = write!(out, " \"{name}\"");
    }
    if let Some(site) = frame.site.get() {
        let _ = write!(out, ", spawned at {}:{}:{}", site.file(), site.line(), site.column());
    }
}
