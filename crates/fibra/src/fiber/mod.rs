//! The ground floor of a fiber: its record, its stack and the switch between stacks.
//!
//! ```text
//! frame.rs     the record of a fiber                                      outcome.rs  which side takes the result, which recycles
//! slab.rs      the frames of the process, free ones without memory        trim.rs     gives idle memory back, in bounded time
//! top.rs       what a started fiber keeps at the top of its stack         local.rs    fiber-locals
//! stack/       arenas, guards, pools                                      overflow.rs the report when a guard is touched
//! context/     the switch: ours on x86_64, corosensei, or a thread per fiber
//! debugger.rs  where a debugger finds all of that
//! donor.rs     a thread that lends its thread-locals to a fiber           donors.rs   those that are started ahead
//! ```
//!
//! Above: `sched` and `wait`. Below: `prim`, and of `waiter` the word, the node and the records.

pub(crate) mod context;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod debugger;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod donor;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod donors;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod frame;
pub(crate) mod id;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod local;
pub(crate) mod outcome;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod overflow;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod slab;
pub(crate) mod stack;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod testing;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod top;
pub(crate) mod trim;

/// Held by a report while it looks into frames that others own, and by code that frees something such a report might look at (boxed extras,
/// the top of a stack with a mapping of its own). No user code runs under it.
#[cfg(not(loom))]
pub(crate) static CENSUS: crate::prim::sync::Mutex<()> = crate::prim::sync::Mutex::new(());

/// Every lock of this floor that the whole process shares, held over a fork: see `monitor::fork`.
#[cfg(not(any(loom, shuttle)))]
pub(crate) struct Locks {
    _census: crate::prim::sync::MutexGuard<'static, ()>,
    _slab: slab::FreeFrames,
    _stacks: stack::Locks,
}

#[cfg(not(any(loom, shuttle)))]
impl Locks {
    /// In the order that `monitor::fork` gives.
    pub(crate) fn take() -> Self {
        Self { _census: CENSUS.lock(), _slab: slab::lock_slab(), _stacks: stack::Locks::take() }
    }
}

/// Stack that unwinding may need: with less than this left, the reserve below the stack is opened first.
#[cfg(not(any(loom, shuttle)))]
const UNWIND_BYTES: usize = 16 << 10;

/// Called on a fiber that is about to unwind: makes the reserve usable if the stack is nearly used up.
#[cfg(not(any(loom, shuttle)))]
#[inline(never)]
pub(crate) fn overflow_reserve(frame: frame::FrameRef) {
    use crate::prim::atomic::Ordering;
    let here = std::ptr::from_ref(&frame).addr();
    // Relaxed: the fiber's own.
    let Some(top) = std::ptr::NonNull::new(frame.stack.load(Ordering::Relaxed)) else { return };
    // SAFETY: the stack this runs on; it is not given back meanwhile, and `stack` is not dropped (it has no destructor).
    let stack = unsafe { stack::Stack::from_raw(top) };
    if here.saturating_sub(stack.limit().addr()) < UNWIND_BYTES {
        stack.open_reserve();
    }
    let _ = stack.into_raw();
}
