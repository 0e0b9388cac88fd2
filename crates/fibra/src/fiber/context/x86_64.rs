//! Our own switch for x86_64 (System V ABI). Above: `context`, which re-exports it. Below: the processor.
//!
//! A suspended execution is its stack pointer. What else must be kept lies right below it, where the ABI leaves 128 bytes that no other
//! code touches, signal handlers included (the red zone):
//!
//! ```text
//!       |  frames of the callers  |
//!       |-------------------------|
//!       |  the function that left |
//!       |-------------------------| <- Context: rsp at the switch, a multiple of 16
//!   -8  |  rbx                    |
//!   -16 |  rbp                    |
//!   -24 |  where to go on         |
//!   -32 |  MXCSR                  | of a fiber that has changed its control words
//!   -40 |  x87 control word       |
//!   -48 |  sanitizers only        |
//!  -128 |-------------------------|
//!       |  free: visits by `call_on_home` start here
//! ```
//!
//! The switch pushes and pops nothing. That is why unwind information stays right at every instruction: the compiler's own description of
//! the frame holds up to the moment where `rbp` and `rsp` become the target's, and the two instructions from there to the jump are
//! marked as the end of the stack. A signal that arrives anywhere finds a valid stack pointer, and its backtrace ends in order. It is also
//! the shortest way: from one switch to the next, only the stack pointer itself passes through memory.
//!
//! (The marks need unwind tables around them: `panic = "abort"` compiles, `-C force-unwind-tables=no` does not.)
//!
//! **It leaves by an indirect jump.** With `ret` (or `call` to enter and `ret` to come back), the processor's return-address stack gets
//! out of step with the program's returns, and every function between the user's code and the switch costs a misprediction.
//! A jump does not touch the return-address stack: the returns that follow on the new stack miss only what was pushed elsewhere meanwhile.
//!
//! **Saved registers.** `rbx` and `rbp`, because LLVM does not let inline assembly declare them clobbered; all other registers are declared
//! clobbered, so that the compiler saves what is live and nothing else. That list is `clobber_abi("sysv64")` (the general
//! registers a call may change, xmm/ymm/zmm 0 to 31, the mask registers k0 to k7, mmx, the x87 stack, AMX tiles) plus r12 to r15. The
//! direction flag is clear by ABI. Shadow stacks (CET) are not followed; Rust programs do not run with them.
//!
//! **Control words** (S0-14). All code that a worker runs has the same ones, those of its [`SchedulerContext`], as long as no fiber changes
//! them. So a resume leaves them alone. A fiber that suspends compares its x87 control word with the home's. If it has changed them, it
//! keeps its own below its stack pointer, loads the home's, and notes as the place to go on one that loads its own again. MXCSR, the word
//! of SSE, is not compared: reading it takes 5 ns (measured on AMD), which would treble the cost of a switch. A difference in the x87 word
//! is taken as the sign to exchange MXCSR too. The C library's functions (`fesetround`, `feenableexcept`, `fesetenv`) always change both.
//! For code that changes MXCSR alone there is [`watch_mxcsr`], which makes every suspension compare it. (Rust code itself may never run
//! with a changed MXCSR; only foreign code and assembly have a right to one.) Only MXCSR's control bits are compared: any inexact operation
//! changes its status bits, and the ABI does not preserve them.

use super::sanitizer::{self, SanitizedStack};
use super::{Context, EntryFn, HomeCall, SchedulerContext, Suspended};
use crate::prim::peek::peek_words;
use core::arch::{asm, naked_asm};
use core::mem::MaybeUninit;
// The assembly reads the plain value: a model checker has nothing to check here.
#[allow(clippy::disallowed_types)]
use std::sync::atomic::{AtomicU32, Ordering};

/// A fiber runs on the worker's own OS thread.
pub(crate) const OWN_THREAD: bool = false;

/// Not 0: MXCSR is compared at every switch.
#[allow(clippy::disallowed_types)]
static WATCH_MXCSR: AtomicU32 = AtomicU32::new(0);

/// Whether every switch of the process compares MXCSR, for some 10 ns more per resume and suspend, so that a change of MXCSR alone
/// (flush to zero, say) stays with its fiber. To be switched on before the fibers concerned start.
pub(crate) fn watch_mxcsr(on: bool) {
    // Relaxed: a switch that does not see it yet behaves as before; nothing else depends on it.
    WATCH_MXCSR.store(u32::from(on), Ordering::Relaxed);
}

/// Makes a context that has never run, on the stack `[limit, top)`; its first `resume` calls `entry(word)` there, with the control
/// words of its home.
///
/// # Safety
/// `[limit, top)` is writable, unused, at least a page, `top` is 16-byte aligned; it stays so until the context is abandoned.
pub(crate) unsafe fn create(top: *mut u8, limit: *mut u8, entry: EntryFn) -> Context {
    debug_assert!((top as usize).is_multiple_of(16) && limit < top);
    // SAFETY: the caller gives us the stack; everything written lies in it, at the places pictured above.
    unsafe {
        let sanitized = SanitizedStack::new(top, limit);
        let rsp = top.sub(size_of::<SanitizedStack>().next_multiple_of(16));
        rsp.cast::<SanitizedStack>().write(sanitized);
        // Ends the chain of frame pointers for tools that follow it.
        rsp.sub(16).cast::<usize>().write(0);
        rsp.sub(8).cast::<usize>().write(entry as usize);
        rsp.sub(24).cast::<usize>().write(enter as *const () as usize);
        rsp.sub(48).cast::<usize>().write(rsp as usize);
        Context(rsp as usize)
    }
}

/// The instruction that keeps the address of the sanitizer's state, where there is one.
#[cfg(any(fibra_asan, fibra_tsan))]
macro_rules! keep_sanitized {
    () => {
        "mov [rsp - 48], r8"
    };
}
#[cfg(not(any(fibra_asan, fibra_tsan)))]
macro_rules! keep_sanitized {
    () => {
        ""
    };
}

/// Saves this execution in `*home`, continues `*fiber` and hands it `word`; returns the word of the `suspend` that comes back.
///
/// # Safety
/// On the scheduler's stack; `*fiber` is suspended or fresh, and belongs to this thread; both places outlive the call. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn resume(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    let mut own = MaybeUninit::<SanitizedStack>::uninit();
    let own = own.as_mut_ptr();
    let answer;
    // SAFETY: `*fiber` is the caller's promise. All registers are declared clobbered, or kept and restored; memory is clobbered by default.
    // Without `nostack`, rsp is a multiple of 16 and the compiler keeps nothing below it.
    unsafe {
        let target = *fiber;
        sanitizer::leave(own, sanitized(target));
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rsp - 24], rax",
            "mov [rsp - 8], rbx",
            "mov [rsp - 16], rbp",
            "mov [rdx], rsp",
            keep_sanitized!(),
            "mov rax, [rsi - 24]",
            "mov rbx, [rsi - 8]",
            // From here to the jump the frame is neither ours nor the target's: an unwinder (in a signal handler) stops.
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "mov rbp, [rsi - 16]",
            "mov rsp, rsi",
            "jmp rax",
            ".cfi_restore_state",
            // Continued here, with rsp, rbp, rbx and the control words restored by the side that jumped.
            "2:",
            inlateout("rdi") word => answer,
            in("rsi") target.0,
            in("rdx") &raw mut (*home).context,
            in("r8") kept(own),
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
        sanitizer::arrive(own);
    }
    answer
}

/// Saves this fiber in `*fiber`, continues `*home` and hands it `word`; returns the word of the next `resume`.
///
/// # Safety
/// On a fiber's stack; `home` is what the `resume` that continued this fiber saved into. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn suspend(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    let mut own = MaybeUninit::<SanitizedStack>::uninit();
    let own = own.as_mut_ptr();
    // Relaxed: see `watch_mxcsr`.
    let watch = WATCH_MXCSR.load(Ordering::Relaxed);
    let answer;
    const {
        assert!(
            std::mem::offset_of!(SchedulerContext, context) == 0 && std::mem::offset_of!(SchedulerContext, words) == 8
        )
    };
    // SAFETY: as in `resume`: `*home` holds the suspended execution that resumed this one.
    unsafe {
        let target = (*home).context;
        sanitizer::leave(own, sanitized(target));
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rsp - 24], rax",
            "mov [rsp - 8], rbx",
            "mov [rsp - 16], rbp",
            "mov [rdx], rsp",
            keep_sanitized!(),
            // Stored and read back at one width, so that the store is forwarded to the load.
            "fnstcw [rsp - 40]",
            "movzx eax, word ptr [rsp - 40]",
            "xor ax, [rcx + 12]",
            "or eax, r9d",
            "jnz 3f",
            "4:",
            "mov rax, [rsi - 24]",
            "mov rbx, [rsi - 8]",
            // From here to the jump: as in `resume`.
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "mov rbp, [rsi - 16]",
            "mov rsp, rsi",
            "jmp rax",
            ".cfi_restore_state",
            // Rarely: the x87 words differ, or MXCSR is watched.
            "3:",
            "stmxcsr [rsp - 32]",
            "mov eax, [rsp - 32]",
            "xor eax, [rcx + 8]",
            "test eax, 0xFFC0",
            "jnz 5f",
            "movzx eax, word ptr [rsp - 40]",
            "cmp ax, [rcx + 12]",
            "je 4b",
            "5:",
            "lea rax, [rip + 6f]",
            "mov [rsp - 24], rax",
            "ldmxcsr [rcx + 8]",
            // A pending x87 exception of this fiber that the target does not mask must not be raised in the target.
            "fnclex",
            "fldcw [rcx + 12]",
            "jmp 4b",
            // A fiber that has control words of its own goes on here.
            "6:",
            "ldmxcsr [rsp - 32]",
            "fnclex",
            "fldcw [rsp - 40]",
            // Every other fiber here, with rsp, rbp and rbx restored by the side that jumped, and the control words that all have.
            "2:",
            inlateout("rdi") word => answer,
            in("rsi") target.0,
            in("rdx") fiber,
            in("rcx") home,
            in("r9d") watch,
            in("r8") kept(own),
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
        sanitizer::arrive(own);
    }
    answer
}

/// The address of the sanitizer's state for the switch: without a sanitizer, the register may hold anything.
#[inline(always)]
fn kept(own: *mut SanitizedStack) -> MaybeUninit<*mut SanitizedStack> {
    if size_of::<SanitizedStack>() == 0 { MaybeUninit::uninit() } else { MaybeUninit::new(own) }
}

/// Reads the registers of a suspended execution as pictured above. If the execution has gone on meanwhile, the result means nothing.
pub(crate) fn look(context: usize) -> Option<Suspended> {
    let [pc, rbp, rbx] = peek_words(context.checked_sub(24)?)?;
    Some(Suspended { pc, sp: context, rbx, rbp })
}

/// Bytes below the stack pointer in which a suspended execution keeps something: see the picture. (Not the whole red zone: the compiler
/// keeps nothing there over a switch, which writes to it itself, and no code runs on the stack meanwhile.)
const KEPT_BELOW: usize = 48;

/// The lowest address that a suspended execution needs.
pub(crate) fn kept_from(suspended: Context) -> Option<usize> {
    Some(suspended.0 - KEPT_BELOW)
}

/// Gives back what a sanitizer keeps about the stack; without a sanitizer it does nothing.
///
/// # Safety
/// `fiber` is suspended or was never run, and will not be continued.
pub(crate) unsafe fn destroy(fiber: Context) {
    // SAFETY: the caller's promise.
    unsafe { SanitizedStack::destroy(sanitized(fiber)) }
}

/// The state of a suspended stack for the sanitizer in use; an address without meaning if there is no sanitizer.
#[inline(always)]
unsafe fn sanitized(suspended: Context) -> *mut SanitizedStack {
    if size_of::<SanitizedStack>() == 0 {
        return core::ptr::dangling_mut();
    }
    // SAFETY: written there by `create` or by the switch that left.
    unsafe { *((suspended.0 - 48) as *const *mut SanitizedStack) }
}

/// The first code of a fresh context: `rdi` has the word, `rbx` the entry function, `rsp` is 16-byte aligned, so that the call leaves it as
/// the ABI wants it at a function's first instruction (S0-02). The undefined return address tells unwinders that the stack ends here.
#[cfg(not(any(fibra_asan, fibra_tsan)))]
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "call rbx",
        // The entry does not return; the instruction keeps the return address inside this function, where unwinders look it up.
        "ud2",
        ".cfi_endproc",
    )
}

/// The same, by way of [`first`].
#[cfg(any(fibra_asan, fibra_tsan))]
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rsi, rbx",
        "call {first}",
        "ud2",
        ".cfi_endproc",
        first = sym first,
    )
}

/// Finishes the arrival on a new stack and calls the entry function.
#[cfg(any(fibra_asan, fibra_tsan))]
unsafe extern "C-unwind" fn first(word: usize, entry: EntryFn) -> ! {
    // SAFETY: we have just arrived on this stack for the first time; `entry` is what `create` was given.
    unsafe {
        sanitizer::arrive_first();
        entry(word)
    }
}

/// Runs `f(data)` on the stack suspended in `home`, below everything in use there, and comes back. Backtraces taken in `f` go on through
/// the fiber's own frames.
///
/// # Safety
/// On the stack of the fiber that was resumed from `home`. `f` neither unwinds nor switches.
pub(crate) unsafe fn call_on_home(home: *const SchedulerContext, f: HomeCall, data: *mut ()) {
    // SAFETY: home is suspended while its fiber runs, so everything below the red zone of its stack pointer is free.
    unsafe { sanitizer::visit(sanitized((*home).context), f, data, |f, data| call_below((*home).context, f, data)) }
}

/// Calls `f(data)` on the stack below that of a suspended context. The frame is described by `rbp`, which `f` preserves, so that an
/// unwinder finds the way back to the caller's stack.
#[unsafe(naked)]
unsafe extern "C" fn call_below(suspended: Context, f: HomeCall, data: *mut ()) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "lea rsp, [rdi - 128]",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
