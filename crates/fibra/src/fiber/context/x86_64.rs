//! Our own switch for x86_64 (System V ABI).
//!
//! A suspended execution is a [`Suspended`] block that lies in the frame of the function which left, as an ordinary local of it:
//!
//! ```text
//!       |  frames of the callers  |
//!       |-------------------------|
//!       |  the function that left |
//!       |    ...                  |
//!       |    rsp rip rbx rbp fp   | <- Context: address of this block
//!       |    ...                  |
//!       |-------------------------| <- rsp at the switch, and in the block
//!       |  free (128 bytes of it may be a red zone)
//! ```
//!
//! The switch stores into its own block and loads from the target's; it pushes and pops nothing. That is why unwind information stays
//! right at every instruction: the compiler's own description of the frame holds up to the moment where `rbp` and `rsp` become the
//! target's, and the one or two instructions from there to the jump are marked as the end of the stack. A signal that arrives anywhere
//! finds a valid stack pointer with free space below it, and its backtrace ends in order.
//!
//! **It leaves by an indirect jump.** With `ret` (or `call` to enter and `ret` to come back), the processor's return-address stack gets
//! out of step with the program's returns, and every function between the user's code and the switch costs a misprediction.
//! A jump does not touch the return-address stack: the returns that follow on the new stack miss only what was pushed elsewhere meanwhile.
//!
//! **What is saved.** `rbx` and `rbp`, because LLVM does not let inline assembly declare them clobbered; all other registers are declared
//! clobbered, so that the compiler saves what is live and nothing else. That list is `clobber_abi("sysv64")` (the general
//! registers a call may change, xmm/ymm/zmm 0 to 31, the mask registers k0 to k7, mmx, the x87 stack, AMX tiles) plus r12 to r15. The direction flag is clear by ABI.
//! **Control words** (S0-14): MXCSR and the x87 control word are stored and compared; they are loaded only when they differ, since
//! `ldmxcsr` and `fldcw` are slow and nearly every fiber runs with the defaults. Compared are MXCSR's control bits only: its status bits are
//! changed by any inexact operation, and the ABI does not preserve them. Each store is read back at its own width, so that it is forwarded.

use super::sanitizer::{self, SanitizedStack};
use super::{Context, Entry, HomeCall};
use core::arch::{asm, naked_asm};
use core::mem::{MaybeUninit, offset_of};

/// A fiber runs on the worker's own OS thread.
pub(crate) const OWN_THREAD: bool = false;

/// Everything needed to go on with an execution. Valid from the moment it was left until it is continued.
#[repr(C, align(16))]
struct Suspended {
    rsp: usize,
    rip: usize,
    rbx: usize,
    rbp: usize,
    mxcsr: u32,
    x87_control: u16,
    sanitized: SanitizedStack,
}

/// MXCSR and x87 control word as a new process has them: all exceptions masked, round to nearest, full precision.
const DEFAULT_MXCSR: u32 = 0x1F80;
const DEFAULT_X87_CONTROL: u16 = 0x037F;

/// Makes a context that has never run, on the stack `[limit, top)`; its first `resume` calls `entry(word)` there. It starts with the
/// default floating-point control words.
///
/// # Safety
/// `[limit, top)` is writable, unused, at least a page, `top` is 16-byte aligned; it stays so until the context is abandoned.
pub(crate) unsafe fn create(top: *mut u8, limit: *mut u8, entry: Entry) -> Context {
    debug_assert!((top as usize).is_multiple_of(16) && limit < top);
    // SAFETY: the caller gives us the stack; the block fits into it.
    unsafe {
        let sanitized = SanitizedStack::new(top, limit);
        let block = top.sub(size_of::<Suspended>()).cast::<Suspended>();
        block.write(Suspended {
            // `align(16)` makes the block's address, and so the stack pointer that `enter` starts with, a multiple of 16.
            rsp: block as usize,
            rip: enter as *const () as usize,
            rbx: entry as usize,
            // Ends the chain of frame pointers for tools that follow it.
            rbp: 0,
            mxcsr: DEFAULT_MXCSR,
            x87_control: DEFAULT_X87_CONTROL,
            sanitized,
        });
        Context(block as usize)
    }
}

/// Saves this execution in `*home`, continues `*fiber` and hands it `word`; returns the word of the `suspend` that comes back.
///
/// # Safety
/// On the scheduler's stack; `*fiber` is suspended or fresh, and belongs to this thread; both places outlive the call. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn resume(fiber: *mut Context, home: *mut Context, word: usize) -> usize {
    // SAFETY: the caller's promise is the one `switch` asks for.
    unsafe { switch(home, fiber, word) }
}

/// Saves this fiber in `*fiber`, continues `*home` and hands it `word`; returns the word of the next `resume`.
///
/// # Safety
/// On a fiber's stack; `home` is what the `resume` that continued this fiber saved into. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn suspend(fiber: *mut Context, home: *mut Context, word: usize) -> usize {
    // SAFETY: the caller's promise is the one `switch` asks for.
    unsafe { switch(fiber, home, word) }
}

/// Gives back what a sanitizer keeps about the stack; otherwise nothing.
///
/// # Safety
/// `fiber` is suspended or was never run, and will not be continued.
pub(crate) unsafe fn destroy(fiber: Context) {
    // SAFETY: the block of a suspended execution is valid, and nobody uses it any more.
    unsafe { SanitizedStack::destroy(&raw mut (*(fiber.0 as *mut Suspended)).sanitized) }
}

/// The one switch: leaves `*from`, continues `*to`.
///
/// # Safety
/// `*to` holds a suspended execution of this thread that nobody else continues; both places outlive the time this execution is away.
#[inline(always)]
unsafe fn switch(from: *mut Context, to: *const Context, word: usize) -> usize {
    let mut own = MaybeUninit::<Suspended>::uninit();
    let own = own.as_mut_ptr();
    let answer;
    // SAFETY: `own` is a local of a frame that stays until this execution is continued, since the assembly does not fall through before.
    // `to` is the caller's promise. All registers are declared clobbered or restored from the block; memory is clobbered by default.
    unsafe {
        let target = (*to).0 as *const Suspended;
        (*from).0 = own as usize;
        sanitizer::leave(&raw mut (*own).sanitized, &raw const (*target).sanitized);
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rdx + {rip}], rax",
            "mov [rdx + {rsp}], rsp",
            "mov [rdx + {rbx}], rbx",
            "mov [rdx + {rbp}], rbp",
            // Control words: store ours, load the target's if any control bit differs.
            "stmxcsr [rdx + {mxcsr}]",
            "fnstcw [rdx + {x87}]",
            "mov eax, [rdx + {mxcsr}]",
            "movzx ecx, word ptr [rdx + {x87}]",
            "xor eax, [rsi + {mxcsr}]",
            "xor cx, [rsi + {x87}]",
            "and eax, 0xFFC0",
            "or eax, ecx",
            "jnz 3f",
            "4:",
            "mov rax, [rsi + {rip}]",
            "mov rbx, [rsi + {rbx}]",
            // From here to the jump the frame is neither ours nor the target's: an unwinder (in a signal handler) stops.
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "mov rbp, [rsi + {rbp}]",
            "mov rsp, [rsi + {rsp}]",
            "jmp rax",
            ".cfi_restore_state",
            // Rarely: `fnclex` first, lest a pending x87 exception that the target does not mask be raised on its account.
            "3:",
            "fnclex",
            "fldcw [rsi + {x87}]",
            "ldmxcsr [rsi + {mxcsr}]",
            "jmp 4b",
            // Continued here, with rsp, rbp, rbx and the control words restored by whoever jumped.
            "2:",
            rip = const offset_of!(Suspended, rip),
            rsp = const offset_of!(Suspended, rsp),
            rbx = const offset_of!(Suspended, rbx),
            rbp = const offset_of!(Suspended, rbp),
            mxcsr = const offset_of!(Suspended, mxcsr),
            x87 = const offset_of!(Suspended, x87_control),
            inlateout("rdi") word => answer,
            in("rsi") target,
            in("rdx") own,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
        sanitizer::arrive(&raw mut (*own).sanitized);
    }
    answer
}

/// Where a fresh context begins: `rdi` has the word, `rbx` the entry function, `rsp` is 16-byte aligned, so that the call leaves it as the
/// ABI wants it at a function's first instruction (S0-02). The undefined return address tells unwinders that the stack ends here.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rsi, rbx",
        "call {first}",
        // `first` does not return; the instruction keeps the return address inside this function, where unwinders look it up.
        "ud2",
        ".cfi_endproc",
        first = sym first,
    )
}

/// Finishes the arrival on a new stack and calls the entry function.
unsafe extern "C-unwind" fn first(word: usize, entry: Entry) -> ! {
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
pub(crate) unsafe fn call_on_home(home: *const Context, f: HomeCall, data: *mut ()) {
    // SAFETY: home is suspended while its fiber runs, so its block is valid and everything below its stack pointer is free.
    unsafe {
        let home = (*home).0 as *const Suspended;
        sanitizer::visit(&raw const (*home).sanitized, f, data, |f, data| call_below((*home).rsp, f, data));
    }
}

/// Calls `f(data)` with the stack pointer a red zone below `stack`. The frame is described by `rbp`, which `f` preserves, so that an
/// unwinder finds the way back to the caller's stack.
#[unsafe(naked)]
unsafe extern "C" fn call_below(stack: usize, f: HomeCall, data: *mut ()) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "lea rsp, [rdi - 128]",
        "and rsp, -16",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
