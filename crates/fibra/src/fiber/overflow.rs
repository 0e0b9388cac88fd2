//! The report of a fiber that runs off its stack: it names the fiber, and ends the process.
//!
//! Above: the runtime calls [`install`] once, each worker thread holds an [`AltStack`], and the layer that knows the
//! names of fibers gives a describer. Below: `stack::find`, signals.
//!
//! The fault arrives as SIGSEGV (SIGBUS on some systems). Its handler runs on the thread's alternate stack, because the
//! fiber's is used up. If the address lies in the guard of one of our stacks, it is reported (which fiber, and in `recursion.rs` which
//! function recursed) and the process aborts;
//! every other fault goes to the handler that was installed before, std's report about overflowing threads included.
//!
//! # Invariants
//! * The handler and the describer take no lock and allocate nothing: they may have interrupted anything.
//! * The handler that was installed before ours is called with the same arguments, or restored if it was the default action.

mod recursion;

use super::stack::{self, StackTop};
use crate::prim::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::fmt::Write;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Writes which fiber runs on a stack ("fiber `reader` (17), spawned at src/main.rs:10:5"), in a signal handler: no lock, no
/// allocation.
pub(crate) type Describer = fn(top: &StackTop, out: &mut ReportBuffer);

/// The [`Describer`], or null.
static DESCRIBER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that names the owner of a stack in reports.
pub(crate) fn set_describer(describer: Describer) {
    // Release: pairs with the acquire load in `report`; what the describer relies on was made before.
    DESCRIBER.store(describer as *mut (), Ordering::Release);
}

/// Text in a fixed buffer; text that does not fit is cut off.
#[derive(Debug)]
pub(crate) struct ReportBuffer {
    text: [u8; 1024],
    len: usize,
}

impl ReportBuffer {
    pub(crate) const fn new() -> Self {
        Self { text: [0; 1024], len: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    /// Writes the text to standard error, in one piece if the system takes it in one. Safe in a signal handler.
    pub(crate) fn write_to_stderr(&self) {
        let mut rest = self.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the pointer and the length are those of a slice.
            let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = &rest[written..],
                // Standard error is closed: there is no way left to report.
                _ => return,
            }
        }
    }
}

impl Write for ReportBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.text.len() - self.len;
        // Cutting inside a character is no harm: this goes to standard error as bytes.
        let taken = &text.as_bytes()[..text.len().min(room)];
        self.text[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        Ok(())
    }
}

/// The actions of the two signals before ours were installed.
struct Before {
    segv: libc::sigaction,
    bus: libc::sigaction,
}

static BEFORE: OnceLock<Before> = OnceLock::new();

/// Installs the handlers, the first time it is called in a process.
pub(crate) fn install() {
    BEFORE.get_or_init(|| Before { segv: current_action(libc::SIGSEGV), bus: current_action(libc::SIGBUS) });
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    // After `BEFORE` is complete, so that a fault between the two steps finds it. Relaxed: the flag only lets one
    // caller through.
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: a zeroed sigaction is a valid one (default action, empty mask), and `handler` has the signature that
        // SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    }
}

fn current_action(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: a zeroed sigaction is a valid one, and this only reads the current one into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    }
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. A positive code means that the kernel raised it for a fault; only then
    // is there an address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    if let Some(address) = fault
        && let Some(found) = stack::find(address)
        && found.in_guard(address)
    {
        report(&found, address, context);
    }
    chain(signal, info, context);
}

/// Reports which fiber overflowed its stack, and aborts.
fn report(found: &stack::Found, address: usize, context: *mut libc::c_void) -> ! {
    static REPORTING: AtomicBool = AtomicBool::new(false);
    // Relaxed: the flag only lets one thread through; the others wait for the end of the process.
    if REPORTING.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: sleeping is always allowed.
            unsafe { libc::pause() };
        }
    }
    let mut out = ReportBuffer::new();
    let own = stack_pointer(context).is_none_or(|sp| found.in_slot(sp));
    let what = if own { "stack overflow in " } else { "access to the stack guard of " };
    let _ = write!(out, "\nfibra: {what}");
    // Acquire: pairs with the release store in `set_describer`.
    let describer = DESCRIBER.load(Ordering::Acquire);
    if describer.is_null() {
        let _ = out.write_str("a fiber");
    } else {
        // SAFETY: only `set_describer` stores here, and it stores a `Describer`.
        let describer = unsafe { std::mem::transmute::<*mut (), Describer>(describer) };
        // SAFETY: the record is mapped, because the stack is in use or its slot is never unmapped; at worst it is zero,
        // which is a valid record (no owner).
        describer(unsafe { found.record.as_ref() }, &mut out);
    }
    let kib = found.size.bytes() / 1024;
    let _ = if own {
        writeln!(
            out,
            ": its stack has {kib} KiB. Give it more with Builder::stack_size, Runtime::builder().stack_size or \
             FIBRA_STACK_SIZE, or avoid deep recursion and large local variables."
        )
    } else {
        writeln!(out, ": code on another stack touched {address:#x}, below the {kib} KiB of that one.")
    };
    out.write_to_stderr();
    if let Some(sp) = stack_pointer(context).filter(|_| own) {
        // On its own: if it fails in some way, the report is there.
        let mut out = ReportBuffer::new();
        recursion::write(sp.max(found.lowest()), found.record.addr().get(), &mut out);
        out.write_to_stderr();
    }
    // SAFETY: abort may be called in a signal handler.
    unsafe { libc::abort() }
}

/// The stack pointer of the interrupted code, if the layout of this machine's context is known here.
fn stack_pointer(context: *mut libc::c_void) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO.
    return Some(unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] } as usize);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    return Some(unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.sp } as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        None
    }
}

/// Does what would have happened without our handler.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().map(|before| if signal == libc::SIGSEGV { &before.segv } else { &before.bus });
    match before {
        Some(before) if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: the flags of this action say which of the two signatures its function has.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    std::mem::transmute::<usize, WithInfo>(before.sa_sigaction)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before.sa_sigaction)(signal);
                }
            }
        }
        // The default action cannot be called. Restored, it takes effect when the faulting instruction runs again; a
        // signal that a process sent is sent once more.
        _ => {
            // SAFETY: a zeroed sigaction means the default action; `raise` may be called in a signal handler, and the
            // signal is blocked until it returns.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

/// An alternate signal stack for the calling thread, until it is dropped. Belongs to that thread.
///
/// std gives one to the main thread and to the threads it starts, as small as the kernel allows; ours has room for the
/// report, and a thread that foreign code started has one too.
#[derive(Debug)]
pub(crate) struct AltStack {
    mapping: *mut libc::c_void,
    len: usize,
    page: usize,
    before: libc::stack_t,
    /// The kernel knows it for this thread only.
    _this_thread: PhantomData<*mut ()>,
}

/// The room of report, describer and chained handlers, beyond what the kernel needs for itself.
const HANDLER_ROOM: usize = 64 << 10;

impl AltStack {
    pub(crate) fn install_for_thread() -> io::Result<AltStack> {
        // SAFETY: both only read. 0 (an old kernel) does no harm: `HANDLER_ROOM` is many times the classic
        // minimum.
        let (page, for_kernel) =
            unsafe { (libc::sysconf(libc::_SC_PAGESIZE) as usize, libc::getauxval(libc::AT_MINSIGSTKSZ) as usize) };
        let size = (for_kernel + HANDLER_ROOM).next_multiple_of(page);
        let len = size + page;
        // SAFETY: a new anonymous mapping that nothing else knows; its lowest page becomes its guard.
        unsafe {
            let mapping = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if mapping == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let ours = libc::stack_t { ss_sp: mapping.byte_add(page), ss_flags: 0, ss_size: size };
            let mut before = MaybeUninit::<libc::stack_t>::uninit();
            if libc::mprotect(mapping, page, libc::PROT_NONE) != 0 || libc::sigaltstack(&ours, before.as_mut_ptr()) != 0
            {
                let error = io::Error::last_os_error();
                libc::munmap(mapping, len);
                return Err(error);
            }
            Ok(AltStack { mapping, len, page, before: before.assume_init(), _this_thread: PhantomData })
        }
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: reads and sets this thread's alternate stack. `before` was valid when ours replaced it, and its
        // owner (std) frees it at the end of the thread, after us. No code runs on ours: a fiber's worker drops
        // it on its own stack.
        unsafe {
            let mut now = MaybeUninit::<libc::stack_t>::uninit();
            if libc::sigaltstack(std::ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init_ref().ss_sp == self.mapping.byte_add(self.page)
            {
                libc::sigaltstack(&self.before, std::ptr::null_mut());
            }
            libc::munmap(self.mapping, self.len);
        }
    }
}

// Only on machines for which the tests can run code on another stack.
#[cfg(all(test, not(loom), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
