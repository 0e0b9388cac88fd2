//! The context switch: leaves one stack and goes on with another.
//!
//! Asymmetric: the scheduler *resumes* a fiber, the fiber *suspends* to the scheduler, and each of the two carries one word across
//! (S0-13). Above are the worker's loop and `wait`'s park; below is only `prim`. Nothing else in fibra changes the stack pointer.
//!
//! Three back-ends offer the same names; one of them is re-exported here:
//!
//! | back-end | chosen | what it is |
//! |---|---|---|
//! | `x86_64` | on x86_64 | our own: about 3 ns for resume + suspend, leaves by an indirect jump |
//! | `corosensei` | elsewhere, or `--cfg fibra_context="corosensei"` | the crate of that name; the reference ours is tested against |
//! | `thread` | `--cfg fibra_context="thread"` | an OS thread per fiber, for tools that cannot follow a stack switch (X-21) |
//!
//! The interface:
//!
//! * `create(top, limit, entry)` makes a context that has never run on the stack `[limit, top)`.
//! * `resume(fiber, home, word)`, on the scheduler's stack: saves this execution in `*home`, continues `*fiber`.
//! * `suspend(fiber, home, word)`, on the fiber's stack: saves it in `*fiber`, continues `*home`.
//! * `call_on_home(home, f, data)`, on the fiber's stack: runs `f(data)` on the scheduler's, then comes back.
//! * `destroy(context)` gives back what `create` took besides the stack.
//! * `watch_mxcsr(on)`: whether a change of the SSE control word alone stays with its fiber, too; see `x86_64.rs`.
//! * `look(context)`: what a report may know of a suspended execution, from any thread; `None` if the back-end does not know.
//! * `OWN_THREAD`: the fiber's code runs on an OS thread of its own.
//!
//! Invariants, upheld by the worker:
//!
//! 1. A context is continued at most once per time it was saved: `Context` is `Copy` only so that it can live in a cell.
//! 2. The `home` given to `suspend` and `call_on_home` is the one that the `resume` which last continued this fiber saved into.
//!    The `fiber` given to `suspend` may be another place than the one `resume` read (a stack that goes on with a new fiber).
//! 3. A stack outlives its context. A context is destroyed while it is suspended (or was never run), and nothing on its stack needs
//!    dropping: the stack is abandoned, not unwound (only the thread back-end unwinds it, to end the thread).
//! 4. `home` was entered ([`SchedulerContext::enter`]) before anything is resumed from it.
//! 5. A started context stays on the OS thread that first resumed it (law 1).
//! 6. `entry` neither returns nor unwinds. Its ABI is `C-unwind` only because the thread back-end ends an abandoned thread by unwinding.

#[cfg(any(
    not(target_arch = "x86_64"),
    fibra_context = "corosensei",
    all(test, not(any(loom, shuttle, fibra_asan, fibra_tsan)))
))]
mod corosensei;
#[cfg(all(target_arch = "x86_64", any(test, not(any(fibra_context = "corosensei", fibra_context = "thread")))))]
mod sanitizer;
#[cfg(any(fibra_context = "thread", test))]
mod thread;
mod words;
#[cfg(all(target_arch = "x86_64", any(test, not(any(fibra_context = "corosensei", fibra_context = "thread")))))]
mod x86_64;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(any(fibra_asan, fibra_tsan), fibra_context = "corosensei"))]
compile_error!("the sanitizers' fiber calls are made by the own switch only: drop fibra_context=\"corosensei\"");

#[cfg(all(any(not(target_arch = "x86_64"), fibra_context = "corosensei"), not(fibra_context = "thread")))]
use corosensei as chosen;
#[cfg(fibra_context = "thread")]
use thread as chosen;
#[cfg(all(target_arch = "x86_64", not(any(fibra_context = "corosensei", fibra_context = "thread"))))]
use x86_64 as chosen;

pub(crate) use chosen::{OWN_THREAD, call_on_home, create, destroy, kept_from, look, resume, suspend, watch_mxcsr};

/// A suspended execution: one word, whose meaning the back-end defines. The default is no execution at all.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Context(usize);

impl Context {
    /// For code that keeps the context as a plain word (the record of a pooled stack).
    #[inline(always)]
    pub(crate) fn to_bits(self) -> usize {
        self.0
    }
    /// Back from [`Context::to_bits`].
    #[inline(always)]
    pub(crate) fn from_bits(bits: usize) -> Self {
        Self(bits)
    }
}

/// A suspended execution as a report sees it that unwinds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    /// The next instruction.
    pub(crate) pc: usize,
    /// The stack pointer, and the registers that were kept: rbx and rbp.
    pub(crate) sp: usize,
    pub(crate) rbx: usize,
    pub(crate) rbp: usize,
}

/// The scheduler's own execution while a fiber runs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SchedulerContext {
    context: Context,
    /// Its control words, which stay as they are: no code but fibra's runs on the scheduler's stack (except for panic hooks, on behalf of a
    /// fiber). A fiber that leaves with other control words keeps them; see `x86_64.rs`. Zero before the first loop.
    words: u64,
}

impl SchedulerContext {
    /// A loop begins, which will resume fibers from here: with the control words that all loops of this home have had. Returns those that
    /// the thread had before, for [`leave`](Self::leave).
    pub(crate) fn enter(&mut self) -> u64 {
        let of_thread = words::control_words();
        if self.words == 0 {
            self.words = of_thread;
        }
        words::set_control_words(self.words);
        of_thread
    }

    /// The loop has ended.
    pub(crate) fn leave(of_thread: u64) {
        words::set_control_words(of_thread);
    }
}

/// The first function on a fiber's stack. It is given the word of the first `resume` and never returns.
pub(crate) type EntryFn = unsafe extern "C-unwind" fn(usize) -> !;

/// The function that `call_on_home` runs.
pub(crate) type HomeCall = unsafe extern "C" fn(*mut ());
