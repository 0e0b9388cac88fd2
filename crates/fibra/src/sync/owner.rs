//! The holder of a lock, in one word: names a fiber, a thread, or a holder without a name (an async guard, which may move).
//!
//! Above: `mutex`, `reentrant`, `rwlock`, `once`. Below: `sched::current`. A fiber is named by its frame, which lives for ever: so a fiber
//! that wants the lock may look whether the holder runs, and a report can name it. A thread is named by the address of a thread-local
//! without a destructor. Names are unique among living fibers and threads only: a guard that was forgotten names the next fiber or thread
//! with that frame or thread-local. Where a name is a right of entry (`reentrant`), that is not enough: [`my_number`] is never given again.

/// Bits that are free in every owner word: the lock's own flags.
pub(super) const FREE_BITS: usize = 0b0111;
/// Set in the names of threads.
const THREAD: usize = 0b1000;
/// Held by a holder that cannot be named.
pub(super) const UNNAMED: usize = 0b1_0000;
/// Below this there are no addresses.
const FIRST_ADDRESS: usize = 4096;

/// The holder of a lock, as a report sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    None,
    /// A fiber, by the address of its frame.
    Frame(usize),
    /// A fiber, by its number.
    Fiber(u64),
    /// A thread that is no worker, or that works for another runtime.
    Thread,
    /// An async guard, readers, or a waiter to which it was just handed.
    Unnamed,
}

#[cfg(not(any(loom, shuttle)))]
pub(super) use real::*;

#[cfg(not(any(loom, shuttle)))]
mod real {
    use std::cell::Cell;
    use std::fmt;
    use std::ptr;

    use super::{FIRST_ADDRESS, FREE_BITS, Holder, THREAD, UNNAMED};
    use crate::fiber::frame::{Frame, FrameRef};
    use crate::fiber::id::FiberId;
    use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
    use crate::sched::current;
    use crate::wait::park;
    use crate::waiter::word::WaiterState;

    #[repr(align(32))]
    struct Mark(Cell<u8>);

    thread_local! {
        static MARK: Mark = const { Mark(Cell::new(0)) };
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }

    const _: () = assert!(align_of::<Frame>() > FREE_BITS | THREAD && align_of::<Mark>() > FREE_BITS | THREAD);

    /// The name of the current fiber or thread.
    #[inline(always)]
    pub(in crate::sync) fn me() -> usize {
        match current::fiber() {
            Some(frame) => frame.address(),
            None => this_thread(),
        }
    }

    /// The same on entry to a call that may not have to wait: it counts against the budget; see `wait::park`.
    #[inline(always)]
    pub(in crate::sync) fn me_calling() -> usize {
        match park::count_call_of() {
            Some(frame) => frame.address(),
            None => this_thread(),
        }
    }

    #[inline(never)]
    fn this_thread() -> usize {
        MARK.with(|mark| ptr::from_ref(&mark.0).addr() | THREAD)
    }

    /// The number of the current fiber or thread: no other ever has the same.
    #[inline(always)]
    pub(in crate::sync) fn my_number() -> u64 {
        number_of(me())
    }

    /// The number of `me`, the current fiber or thread.
    #[inline(always)]
    pub(in crate::sync) fn number_of(me: usize) -> u64 {
        // Even: fibers; odd: threads.
        match frame(me) {
            Some(frame) => FiberId::of(frame).as_u64() << 1,
            None => number_of_this_thread(),
        }
    }

    #[inline(never)]
    fn number_of_this_thread() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NUMBER.with(|number| {
            if number.get() == 0 {
                // Relaxed: only uniqueness matters, and nothing else is published by it.
                number.set(NEXT.fetch_add(1, Ordering::Relaxed) << 1 | 1);
            }
            number.get()
        })
    }

    /// The holder that a word names, for reports: the address of a fiber's frame, or why there is none.
    pub(in crate::sync) fn holder(owner: usize) -> Holder {
        match owner {
            0 => Holder::None,
            owner if owner & THREAD != 0 => Holder::Thread,
            owner if owner >= FIRST_ADDRESS => Holder::Frame(owner),
            _ => Holder::Unnamed,
        }
    }

    /// The holder that a number names.
    pub(in crate::sync) fn holder_by_number(number: u64) -> Holder {
        match number {
            0 => Holder::Unnamed,
            odd if odd & 1 != 0 => Holder::Thread,
            even => Holder::Fiber(even >> 1),
        }
    }

    fn frame(owner: usize) -> Option<FrameRef> {
        // SAFETY: names of fibers come from `Frame::address`.
        (owner & THREAD == 0 && owner >= FIRST_ADDRESS).then(|| unsafe { Frame::from_address(owner) })
    }

    /// May it let go within the next moment? Not if it is parked, nor if it runs on this very worker: then it does not run now.
    #[inline]
    pub(in crate::sync) fn may_let_go_soon(owner: usize) -> bool {
        let Some(frame) = frame(owner) else { return owner != UNNAMED };
        let here = current::worker().is_some_and(|worker| {
            // Relaxed, both: a guess.
            frame.home.load(Ordering::Relaxed) as usize == worker.index
                && ptr::eq(frame.runtime.load(Ordering::Relaxed).cast(), &*worker.shared)
        });
        !here && frame.waiter.word.snapshot().is(WaiterState::Running)
    }

    /// A future awaits a lock that the fiber or thread that polls it holds itself. This is no error: another part of the same future may
    /// let go. So it is reported, once.
    #[cold]
    #[inline(never)]
    pub(in crate::sync) fn report_own(lock: &str, how: &str) {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: reported once or twice, no more depends on it.
        if !SAID.swap(true, Ordering::Relaxed) {
            crate::prim::say(format_args!(
                "fibra: {} awaits a {lock} that it holds itself, {how}. Unless another part of the same future drops \
                 that guard, it waits for ever. Drop the guard before awaiting",
                Words(me()),
            ));
        }
    }

    /// Writes a holder as text, for panics and `Debug`.
    pub(in crate::sync) struct Words(pub(in crate::sync) usize);

    impl fmt::Display for Words {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                0 => f.write_str("no holder"),
                owner if owner & THREAD != 0 => f.write_str("a thread"),
                owner => match frame(owner) {
                    Some(frame) => write!(f, "fiber {}", FiberId::of(frame)),
                    None => f.write_str("an unnamed holder"),
                },
            }
        }
    }
}

/// The name of the model's thread that runs here.
#[cfg(any(loom, shuttle))]
pub(super) fn me() -> usize {
    let me = crate::wait::park::me().as_ptr().addr().get();
    debug_assert!(me >= FIRST_ADDRESS && me & FREE_BITS == 0 && THREAD != 0);
    me
}

/// Models have no budget.
#[cfg(any(loom, shuttle))]
pub(super) fn me_calling() -> usize {
    me()
}

/// The number of the model's thread that runs here: their records are not recycled.
#[cfg(any(loom, shuttle))]
pub(super) fn my_number() -> u64 {
    number_of(me())
}

/// The number of `me`, the model's thread that runs here.
#[cfg(any(loom, shuttle))]
pub(super) fn number_of(me: usize) -> u64 {
    me as u64
}
