//! Takes a snapshot of another thread of this process: its registers and a piece of its stack.
//!
//! *A thread that computes* is sent SIGURG, whose default is to be ignored. The handler runs on the thread's alternate stack, copies
//! the interrupted registers and up to 64 KiB of stack into one static buffer, and wakes the asking thread. It takes no lock, allocates
//! nothing, keeps `errno`, and may have interrupted anything: `malloc`, a switch of fibers, a thread at its end. `claim.rs` decides
//! which thread may touch the buffer. If the program has a handler of its own for SIGURG, there is no signal and no snapshot.
//!
//! *A thread blocked in a system call* is left alone: a signal could end its call with EINTR. `/proc` says where its stack and its next
//! instruction are; the other registers are not known.
//!
//! Stacks are read through the kernel (`prim::peek`): memory that is not mapped (a guard, a stack unmapped meanwhile) causes no fault.
//! Copies are clamped to the fiber's slot, so that no neighbour's stack is copied.
//!
//! Above: `stall.rs`, on sysmon's thread. Below: `claim.rs`, signals, `/proc`.
//!
//! Invariant: the buffer is accessed only by the thread that the claim word names.

use std::fs;
use std::mem::MaybeUninit;

use super::{NoTrace, PIECE, REGISTERS, Registers, Snapshot};
use crate::fiber::context::Suspended;
use crate::fiber::stack;
use crate::monitor::claim::{CaptureClaim, Withdrawn};
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::cell::UnsafeCell;
use crate::prim::peek::peek;
use crate::prim::thread;

const SIGNAL: libc::c_int = libc::SIGURG;
/// How often the asking thread waits for the handler, and how long each time: a thread that computes answers as soon as it has a processor.
const WAITS: u32 = 40;
const WAIT_NANOS: i64 = 5_000_000;

struct Buffer {
    claim: CaptureClaim,
    /// Rung by the handler; a futex.
    bell: AtomicU32,
    answer: UnsafeCell<Answer>,
}

struct Answer {
    registers: [u64; REGISTERS],
    pc: u64,
    sp: u64,
    len: usize,
    stack: [MaybeUninit<u8>; PIECE],
}

// SAFETY: `answer` is accessed by the thread that `claim` names, and by no other.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer {
    claim: CaptureClaim::new(),
    bell: AtomicU32::new(0),
    answer: UnsafeCell::new(Answer {
        registers: [0; REGISTERS],
        pc: 0,
        sp: 0,
        len: 0,
        stack: [MaybeUninit::uninit(); PIECE],
    }),
};

/// A snapshot of a thread that computes, made by that thread in its signal handler.
pub(crate) fn computing(asked: u32) -> Result<Snapshot, NoTrace> {
    if !BUFFER.claim.ask(asked) {
        return Err("another thread is being looked at");
    }
    let withdrawn = |why| match BUFFER.claim.withdraw(asked) {
        Withdrawn::Gone => Err(why),
        Withdrawn::Answered => Ok(take_answer()),
    };
    if !is_handler_ours() {
        return withdrawn("the program has a handler of its own for SIGURG, which would be used for it");
    }
    // SAFETY: sends a signal whose handler is ours, or whose action is to be ignored; to a thread of this process or to none.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), asked, SIGNAL) } != 0 {
        return withdrawn("the thread has ended");
    }
    for _ in 0..WAITS {
        // Relaxed: compared by the kernel; the answer is ordered by the claim. Read anew before each wait: the handler of the previous
        // request may ring so late that it rings during this one.
        let before = BUFFER.bell.load(Ordering::Relaxed);
        if BUFFER.claim.is_answered() {
            return Ok(take_answer());
        }
        wait_for_bell(before);
    }
    withdrawn("the thread did not answer a signal")
}

/// Called in the child of a fork, by its only thread: the asking and the answering thread do not exist there, nor do pending signals.
pub(crate) fn forget() {
    BUFFER.claim.forget();
}

/// Reads the answer; called by the asking thread once the request is answered.
fn take_answer() -> Snapshot {
    let snapshot = BUFFER.answer.with(|answer| {
        // SAFETY: answered, so the buffer is this thread's until it is released. `len` bytes of the stack were written.
        let (answer, stack) = unsafe {
            let answer = &*answer;
            (answer, std::slice::from_raw_parts(answer.stack.as_ptr().cast::<u8>(), answer.len))
        };
        Snapshot { registers: answer.registers.map(Some), pc: answer.pc, sp: answer.sp, stack: stack.to_vec() }
    });
    BUFFER.claim.release();
    snapshot
}

fn wait_for_bell(before: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: WAIT_NANOS };
    // SAFETY: the word and the time are valid for the call. It ends at once if the bell has been rung since.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            BUFFER.bell.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            before,
            &time,
        );
    }
}

/// Installs the handler if nothing else handles the signal. The caller has the claim, so only one thread does this at a time.
fn is_handler_ours() -> bool {
    // SAFETY: a zeroed sigaction is a valid one, and the first call only reads the present one. `handler` has the signature that SA_SIGINFO
    // asks for.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGNAL, std::ptr::null(), &mut now) != 0 {
            return false;
        }
        match now.sa_sigaction {
            ours if ours == handler as *const () as usize => true,
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) == 0
            }
            _ => false,
        }
    }
}

extern "C" fn handler(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this thread's errno, which the calls below may change.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let own = thread::os_id();
    if BUFFER.claim.claim(own) {
        BUFFER.answer.with_mut(|answer| {
            // SAFETY: claimed by this thread; the kernel passes a ucontext to a handler with SA_SIGINFO.
            unsafe { write_answer(answer, context.cast()) };
        });
        BUFFER.claim.publish(own);
        // Relaxed: the kernel compares it; the answer is ordered by the claim.
        BUFFER.bell.fetch_add(1, Ordering::Relaxed);
        // SAFETY: wakes the threads that wait for a static word.
        unsafe {
            libc::syscall(libc::SYS_futex, BUFFER.bell.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

/// # Safety
/// The buffer is the caller's; `context` is what the kernel gave to the handler.
unsafe fn write_answer(answer: *mut Answer, context: *const libc::ucontext_t) {
    // SAFETY: the caller's promise; both are only used here.
    let (answer, context) = unsafe { (&mut *answer, &(*context).uc_mcontext) };
    #[cfg(target_arch = "x86_64")]
    {
        use libc::{
            REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX, REG_RCX,
            REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
        };
        // By their numbers in DWARF.
        let order = [
            REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10, REG_R11,
            REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
        ];
        answer.registers = order.map(|register| context.gregs[register as usize] as u64);
        answer.pc = context.gregs[REG_RIP as usize] as u64;
        answer.sp = context.gregs[REG_RSP as usize] as u64;
    }
    #[cfg(target_arch = "aarch64")]
    {
        answer.registers[..31].copy_from_slice(&context.regs);
        answer.registers[31] = context.sp;
        answer.registers[32] = context.pc;
        answer.pc = context.pc;
        answer.sp = context.sp;
    }
    answer.len = read_stack(answer.sp, &mut answer.stack);
}

/// A snapshot of a thread that is blocked in a system call, made from outside.
pub(crate) fn blocked(asked: u32) -> Result<Snapshot, NoTrace> {
    const GONE_ON: NoTrace = "the thread has gone on meanwhile";
    let path = format!("/proc/self/task/{asked}/syscall");
    let read = || fs::read_to_string(&path).map_err(|_| "the system does not say where the thread is");
    let before = read()?;
    let (sp, pc) = stack_and_pc(&before).ok_or(GONE_ON)?;
    let mut stack = vec![MaybeUninit::uninit(); PIECE];
    let len = read_stack(sp, &mut stack);
    if len == 0 {
        return Err("its stack could not be read");
    }
    if read()? != before {
        return Err(GONE_ON);
    }
    // SAFETY: so many bytes were written.
    let stack = unsafe { std::slice::from_raw_parts(stack.as_ptr().cast::<u8>(), len) }.to_vec();
    Ok(Snapshot { registers: only(sp, pc), pc, sp, stack })
}

/// A snapshot of a suspended fiber, from what the switch saved.
pub(crate) fn suspended(at: Suspended) -> Result<Snapshot, NoTrace> {
    let (sp, pc) = (at.sp as u64, at.pc as u64);
    let mut stack = vec![MaybeUninit::uninit(); PIECE];
    let len = read_stack(sp, &mut stack);
    if len == 0 {
        return Err("its stack could not be read");
    }
    // SAFETY: so many bytes were written.
    let stack = unsafe { std::slice::from_raw_parts(stack.as_ptr().cast::<u8>(), len) }.to_vec();
    let mut registers = only(sp, pc);
    if cfg!(target_arch = "x86_64") {
        // By their numbers in DWARF.
        (registers[3], registers[6]) = (Some(at.rbx as u64), Some(at.rbp as u64));
    }
    Ok(Snapshot { registers, pc, sp, stack })
}

/// The last two words of the file are the stack pointer and the next instruction. (There are only these three if the thread is blocked
/// outside a system call, in a page fault.)
fn stack_and_pc(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().rev();
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (number()?, number()?);
    (pc != 0 && sp != 0).then_some((sp, pc))
}

fn only(sp: u64, pc: u64) -> Registers {
    let mut registers = [None; REGISTERS];
    #[cfg(target_arch = "x86_64")]
    let (at_sp, at_pc) = (7, 16);
    #[cfg(target_arch = "aarch64")]
    let (at_sp, at_pc) = (31, 32);
    registers[at_sp] = Some(sp);
    registers[at_pc] = Some(pc);
    registers
}

/// Copies the stack from `sp` upwards, as much as is mapped and fits into `to`. Safe in a signal handler.
fn read_stack(sp: u64, to: &mut [MaybeUninit<u8>]) -> usize {
    let Ok(from) = usize::try_from(sp) else { return 0 };
    // The copy does not reach into the stack of another fiber. A thread's own stack ends where mapped memory ends, or the copy includes
    // what lies above it, which is only read.
    let end = stack::find(from).map_or(usize::MAX, |found| found.slot.saturating_add(found.size.bytes()));
    let len = to.len().min(end.saturating_sub(from));
    peek(from, &mut to[..len])
}

/// A snapshot of the calling thread, in the midst of sending itself the signal.
#[cfg(test)]
pub(super) fn of_this_thread() -> Snapshot {
    let _alone = tests::alone();
    computing(thread::os_id()).expect("its own signal is delivered at once")
}

#[cfg(test)]
mod tests;
