//! Signals of the system: a handler that notes which signal came and rings a bell, and the bell for the thread that waits for it.
//!
//! Above: `reactor::signals`, whose thread waits. Below: the kernel.
//!
//! * The handler does what a handler may: it sets a flag, writes to an eventfd, and calls the handler that was there before it. It keeps
//!   `errno`.
//! * It runs on the alternate stack, if its thread has one: a fiber's stack may have no room for it. The alternate stack that std makes is
//!   small, so the handler blocks all other signals while it runs.
//! * **In a child of a fork** no thread waits for the bell. There the handler does what would have happened without it, until the child
//!   listens too. The handler recognises the child by the process number, which the kernel gives it without a lock.
//! * **A library that installs a handler after ours** may call ours from its own. If ours is then installed on top of that handler, ours is
//!   in the chain twice: the lower one, which the library's handler calls, passes on to the handler below it, and not to the library's
//!   again.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The highest signal there is, and one more.
pub(crate) const SIGNALS: usize = 65;

/// The signals that came and were not taken yet.
static PENDING: [AtomicBool; SIGNALS] = [const { AtomicBool::new(false) }; SIGNALS];
/// The action that each signal had before ours was installed. Never freed: a handler may be reading it.
static BEFORE: [AtomicPtr<libc::sigaction>; SIGNALS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];
/// The action below our lowest handler, if ours was installed once more over a foreign handler that may call it. Never freed, as above.
static LOWEST: [AtomicPtr<libc::sigaction>; SIGNALS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];
/// The thread on which our handler calls the handler below it. (Of several threads at once, one is noted: on the others, the handler below
/// is called twice.)
static CHAINING: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
/// Is our handler in the chain, on top of it or below others?
static IN_CHAIN: [AtomicBool; SIGNALS] = [const { AtomicBool::new(false) }; SIGNALS];
/// The eventfd, and the process that opened it.
static BELL: AtomicU32 = AtomicU32::new(u32::MAX);
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The bell, held by the thread that waits for it.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// The bell of this process. There is one; the thread that opens it keeps it for ever.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by nothing else.
        let bell = Self(unsafe { OwnedFd::from_raw_fd(descriptor) });
        // Signals that came to the parent of this process, and were not taken before the fork, are not for this process.
        for pending in &PENDING {
            // Relaxed: until the process is said to have a bell, no handler sets it.
            pending.store(false, Ordering::Relaxed);
        }
        // Release, both: pairs with the acquire in `handler`; the bell is there before the process is said to have one.
        BELL.store(descriptor.cast_unsigned(), Ordering::Release);
        PROCESS.store(std::process::id(), Ordering::Release);
        Ok(bell)
    }

    /// Waits until the bell rings. Blocks the thread.
    ///
    /// # Errors
    /// The bell will never ring: other code of the process has closed a descriptor that it does not own.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut count = 0_u64;
        // SAFETY: the eight bytes are valid for writing.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        match io::Error::last_os_error() {
            // An interruption counts as a ring.
            error if read < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Bell {
    /// No thread waits for the bell any more: the kernel may give the number of the descriptor to another file.
    fn drop(&mut self) {
        // Release: as in `open`; from now on the handler is as in a process without a bell.
        PROCESS.store(0, Ordering::Release);
    }
}

/// Did this signal come since the last call?
pub(crate) fn take_pending(signal: c_int) -> bool {
    // AcqRel: pairs with the swap in `handler`; a signal that comes after this swap rings again.
    slot(signal).is_some_and(|slot| PENDING[slot].swap(false, Ordering::AcqRel))
}

/// Why a signal cannot be listened to.
pub(crate) fn check(signal: c_int) -> io::Result<()> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("signal {signal}: {why}")));
    match signal {
        libc::SIGKILL | libc::SIGSTOP => refused("the system never delivers it to a handler"),
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL => refused(
            "it says that the running code is broken, which cannot wait (fibra reports overflowing stacks by it)",
        ),
        _ if slot(signal).is_none() => refused("there is no such signal"),
        _ => Ok(()),
    }
}

fn slot(signal: c_int) -> Option<usize> {
    usize::try_from(signal).ok().filter(|slot| (1..SIGNALS).contains(slot))
}

fn current_action(signal: c_int) -> io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is a valid one, and this only reads the current one into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut action) {
            0 => Ok(action),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

/// From now on the handler gets this signal. False: it did already. One caller at a time.
pub(crate) fn install(signal: c_int) -> io::Result<bool> {
    check(signal)?;
    let before = current_action(signal)?;
    if is_ours(&before) {
        return Ok(false);
    }
    let slot = slot(signal).expect("checked");
    // Relaxed: one caller at a time, here and in `restore`.
    if IN_CHAIN[slot].load(Ordering::Relaxed) && LOWEST[slot].load(Ordering::Relaxed).is_null() {
        // A foreign handler was installed over ours, and may call ours. Release: pairs with the acquire in `at`.
        LOWEST[slot].store(BEFORE[slot].load(Ordering::Relaxed), Ordering::Release);
    }
    // Release: pairs with the acquire in `at`. It is there when the handler is first called.
    BEFORE[slot].store(Box::into_raw(Box::new(before)), Ordering::Release);
    IN_CHAIN[slot].store(true, Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one, and `handler` has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // Signals are handled one at a time: each needs so much of the alternate stack that there is no room for several.
        libc::sigfillset(&mut action.sa_mask);
        match libc::sigaction(signal, &action, std::ptr::null_mut()) {
            0 => Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                leave_top(slot);
                Err(error)
            }
        }
    }
}

/// Our handler is not on top any more; it may still be below a foreign handler that calls it.
fn leave_top(slot: usize) {
    // Relaxed, the loads and the flag: one caller at a time.
    let lowest = LOWEST[slot].load(Ordering::Relaxed);
    if lowest.is_null() {
        IN_CHAIN[slot].store(false, Ordering::Relaxed);
    } else {
        // Release: pairs with the acquire in `at`.
        BEFORE[slot].store(lowest, Ordering::Release);
    }
}

/// Reinstalls the action from before ours, unless a foreign handler was installed over ours. True: from now on, or since an earlier call,
/// the signal has its default effect, so a signal that came before that has not had its effect. One caller at a time.
pub(crate) fn restore(signal: c_int) -> bool {
    let Some(slot) = slot(signal) else { return false };
    let (Some(before), Ok(current)) = (at(&BEFORE[slot]), current_action(signal)) else { return false };
    if !is_ours(&current) {
        return current.sa_sigaction == libc::SIG_DFL;
    }
    // SAFETY: an action that the system has given.
    unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    leave_top(slot);
    before.sa_sigaction == libc::SIG_DFL
}

/// Sends it to this process.
pub(crate) fn send_to_self(signal: c_int) {
    // SAFETY: the call takes no pointers, and one may always send signals to oneself.
    unsafe { libc::kill(libc::getpid(), signal) };
}

fn at(place: &AtomicPtr<libc::sigaction>) -> Option<&'static libc::sigaction> {
    // Acquire: pairs with the releases in `install` and `leave_top`.
    let action = place.load(Ordering::Acquire);
    // SAFETY: made of a box that is never freed.
    unsafe { action.as_ref() }
}

extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the thread's own, always there.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the call takes nothing.
    let process = unsafe { libc::getpid() };
    // The system calls the handler with valid numbers only.
    let Some(slot) = slot(signal) else { return };
    // Loaded before `restore`, which may change them.
    let (before, lowest) = (at(&BEFORE[slot]), at(&LOWEST[slot]));
    // SAFETY: the call takes nothing. Zero, which is no thread's number, unless our handler may be called by our handler.
    let thread = lowest.map_or(0, |_| unsafe { libc::syscall(libc::SYS_gettid) } as u32);
    // Relaxed, here and below: only what this thread itself has written counts.
    let is_lower = lowest.is_some() && CHAINING[slot].load(Ordering::Relaxed) == thread;
    // Acquire, here and below: pairs with the releases in `open`.
    if PROCESS.load(Ordering::Acquire) == process as u32 {
        // Also if it was noted a moment ago: code that jumps out of a handler leaves its thread noted as being in the handler. AcqRel:
        // pairs with `take_pending`; the ring comes after it.
        PENDING[slot].swap(true, Ordering::AcqRel);
        let one = 1_u64;
        // Acquire: as above.
        let bell = BELL.load(Ordering::Acquire).cast_signed();
        // SAFETY: the eight bytes are valid for reading. If the counter is full, the bell has been ringing for long.
        unsafe { libc::write(bell, (&raw const one).cast(), size_of::<u64>()) };
    } else if !is_lower && restore(signal) {
        // A child of a fork. The signal takes effect when this handler returns: until then it is blocked.
        send_to_self(signal);
    }
    if is_lower {
        lowest.into_iter().for_each(|lowest| chain(lowest, signal, info, context));
    } else if let Some(before) = before {
        // Relaxed, both: as above.
        CHAINING[slot].store(thread, Ordering::Relaxed);
        chain(before, signal, info, context);
        // Unless another thread has noted itself meanwhile.
        let _ = CHAINING[slot].compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Calls the handler that was installed before ours, if the action was a handler.
fn chain(before: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let address = before.sa_sigaction;
    if matches!(address, libc::SIG_DFL | libc::SIG_IGN) {
        return;
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: installed with SA_SIGINFO, so it is a function of this signature.
        let function = unsafe {
            std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void)>(address)
        };
        function(signal, info, context);
    } else {
        // SAFETY: installed without SA_SIGINFO, so it is a function of this signature.
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(address) };
        function(signal);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn signals_that_no_program_can_listen_to_are_refused() {
        for signal in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, 0, -1, 65]
        {
            let error = install(signal).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(&format!("signal {signal}: ")), "{error}");
        }
        // The C library keeps this signal for itself.
        assert!(install(32).is_err());
        check(libc::SIGTERM).unwrap();
    }

    #[test]
    fn a_bell_begins_with_nothing_and_ends_without_listeners() {
        PENDING[libc::SIGWINCH as usize].store(true, Ordering::SeqCst);
        let bell = Bell::open().unwrap();
        assert!(!take_pending(libc::SIGWINCH), "it came to the parent, before a fork");
        assert_eq!(PROCESS.load(Ordering::SeqCst), std::process::id());
        drop(bell);
        assert_eq!(PROCESS.load(Ordering::SeqCst), 0, "the number of the descriptor may belong to another file now");
    }
}
