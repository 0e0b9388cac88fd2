//! Is there room for a thread to start? What std maps for it after it has begun (the stack of its signal handlers) must be there, or
//! std ends the process.
//!
//! Two things may run out: address space, where it is limited, and mappings, of which the system gives a process so many. Neither can be
//! asked for; so a piece of memory is mapped, divided into as many mappings as are needed, and given back at once.
//!
//! ```text
//! begin ── found a moment ago? ── no ──▶ wait until no thread is on its way ── look for 16, for 64, or for 1 where room is scarce
//!             └─ yes ───────────────────────────────────────────────────────────────────────────────────▶ on its way ──▶ its body
//! ```
//!
//! That wait holds up the worker that starts the thread, with all its fibers, until each thread on its way has had its first time slice:
//! tens of milliseconds where other programs want the processors too. So what a look finds holds for many threads, and for more of them
//! once these were used up. (Not for sixty-four at first: such a look takes a millisecond, which every program would pay at its start.)
//!
//! Above: `thread::start`, and `fiber::stack::arena`, which takes memory where that room would be. Below: the system.
//!
//! Invariants
//! * A look takes, for a moment, the very mappings and the address space that a thread on its way may need. So none is on its way then.
//!   What a start takes beside others, to see whether its own stack can be had, is a small part of what was found for it.
//! * Fibra takes mappings in numbers ([`take_mappings`]) and much address space ([`between`]) only when none is on its way; what was found
//!   before counts no more when it has taken either. What foreign code takes meanwhile is not covered, nor are limits of memory other than
//!   of address space (`RLIMIT_DATA`, `vm.overcommit_memory=2`).

use std::io;
use std::sync::Weak;
use std::time::Duration;

use super::Ready;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::instant::Instant;
use crate::prim::page_size;
use crate::prim::sync::{Mutex, MutexGuard};

/// The stack of a std thread with its guard, unless `RUST_MIN_STACK` says otherwise.
const STACK: usize = (2 << 20) + (64 << 10);
/// The memory that a thread maps in its first moments; this is far more than it really is, even with every register set that there is.
const BESIDE: usize = 128 << 10;
/// The mappings of a thread: its stack, that of its signal handlers, their guards, a heap of its own.
const PARTS: usize = 8;
/// The address space that a thread and its heap take at most, for a moment: the C library reserves 64 MiB for a heap, aligned to that.
const AMPLE: usize = STACK + BESIDE + (128 << 20);
/// A look takes one to two microseconds for each mapping. So it is taken for this many threads at once, and holds for these if they start
/// soon: a fiber with thread-locals of its own takes a thread, and a thousand may start together.
const SOME: usize = 16;
/// The same, when as many as were looked for last have started soon.
const MANY: usize = 64;
/// Long enough for that, also where the worker that starts them loses its processor meanwhile.
const SOON: Duration = Duration::from_millis(20);
/// How long the next look takes into account that what was found has been used up (it looks for [`MANY`]), or that there was not enough (it
/// looks for one thread, which takes less).
const REMEMBERED: Duration = Duration::from_millis(100);
/// So many mappings are left to threads by those that take them in numbers. It is not [`MANY`]: a process that has fewer can still have
/// stacks.
const LEFT: usize = PARTS * SOME;

/// The number of threads that have not reached their body yet. Raised only under `ONE_AT_A_TIME`.
static STARTING: AtomicUsize = AtomicUsize::new(0);
/// Held by a thread that looks for room for a new thread, and by a thread that maps memory where that room would be.
pub(super) static ONE_AT_A_TIME: Mutex<Starts> = Mutex::new(Starts { ready: Vec::new(), found: Found::Nothing });

/// What [`ONE_AT_A_TIME`] guards.
pub(super) struct Starts {
    /// Those that keep threads ready.
    pub(super) ready: Vec<Weak<dyn Ready>>,
    found: Found,
}

/// What the last look found, and when.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    /// Mappings and ample address space for this many threads more.
    Enough(usize, Instant),
    /// There was enough, and as many threads have started soon: then.
    UsedUp(Instant),
    /// Not enough for [`SOME`].
    Scarce(Instant),
}

/// A thread on its way to its body, or not even begun.
pub(super) struct Starting;

impl Starting {
    pub(super) fn begin() -> io::Result<Self> {
        loop {
            let mut starts = ONE_AT_A_TIME.lock();
            // Relaxed: incremented under the lock; a decrement that is seen late asks for too much room, or costs one more round.
            let on_their_way = STARTING.load(Ordering::Relaxed);
            if starts.has_enough() {
                starts.look(1 + on_their_way, 0)?;
            } else if on_their_way == 0 {
                starts.look_for_enough()?;
            } else {
                drop(starts);
                // Another thread that waits here too may have looked for both meanwhile.
                super::yield_now();
                continue;
            }
            STARTING.fetch_add(1, Ordering::Relaxed); // Relaxed: see the static.
            return Ok(Self);
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        STARTING.fetch_sub(1, Ordering::Relaxed); // Relaxed: as above.
    }
}

impl Starts {
    /// Is there enough for one more thread, as was found a moment ago?
    fn has_enough(&mut self) -> bool {
        match self.found {
            Found::Enough(left @ 1.., when) if when.elapsed() < SOON => {
                self.found = if left > 1 { Found::Enough(left - 1, when) } else { Found::UsedUp(Instant::now()) };
                true
            }
            _ => false,
        }
    }

    /// Is there enough for one thread, and for how many more? No thread is on its way.
    fn look_for_enough(&mut self) -> io::Result<()> {
        let numbers: &[usize] = match self.found {
            Found::Scarce(when) if when.elapsed() < REMEMBERED => &[],
            Found::UsedUp(when) if when.elapsed() < REMEMBERED => &[MANY, SOME],
            _ => &[SOME],
        };
        for number in numbers {
            let room = Room::map(AMPLE * number, PARTS * number, libc::PROT_NONE);
            if room.and_then(|room| room.divide(PARTS * number)).is_ok() {
                self.found = Found::Enough(number - 1, Instant::now());
                return self.look(1, 0);
            }
            self.found = Found::Scarce(Instant::now());
        }
        self.look(1, PARTS)
    }

    /// Is there room in the address space for so many threads that begin, and are there so many mappings left?
    fn look(&mut self, threads: usize, mappings: usize) -> io::Result<()> {
        let room = Room::map(STACK + BESIDE * threads, mappings, libc::PROT_READ | libc::PROT_WRITE);
        let found = room.and_then(|room| room.divide(mappings));
        if found.is_err() && matches!(self.found, Found::Enough(..)) {
            self.found = Found::Nothing;
        }
        found
    }
}

/// A piece of memory that only this knows, taken for a look.
struct Room {
    start: *mut libc::c_void,
    len: usize,
}

impl Room {
    /// Of that many bytes at least, and large enough for so many mappings. (One that is inaccessible takes address space and nothing else.)
    fn map(bytes: usize, mappings: usize, access: libc::c_int) -> io::Result<Self> {
        let len = bytes.max(mappings * page_size());
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, private, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start, len }) }
    }

    /// Divides it into as many mappings as that.
    fn divide(&self, mappings: usize) -> io::Result<()> {
        for part in (1..mappings).step_by(2) {
            let page = self.start.wrapping_byte_add(part * page_size());
            // SAFETY: a page of this mapping, which no code uses.
            if unsafe { libc::mprotect(page, page_size(), libc::PROT_READ) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no code knows of it.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// The lock, at a moment at which no thread is on its way to its body. (What these do until then is the system's and std's.)
fn lock_when_none_starts() -> MutexGuard<'static, Starts> {
    loop {
        let starts = ONE_AT_A_TIME.lock();
        // Relaxed: the lock orders it after every increment; a decrement that is seen late costs one more look.
        if STARTING.load(Ordering::Relaxed) == 0 {
            return starts;
        }
        drop(starts);
        super::yield_now();
    }
}

/// A thread was refused all the same.
pub(super) fn forget_what_was_found() {
    ONE_AT_A_TIME.lock().found = Found::Nothing;
}

/// See [`super::between_starts`].
pub(super) fn between<R>(map: impl FnOnce() -> R) -> R {
    if !address_space_is_limited() {
        return map();
    }
    let mut starts = lock_when_none_starts();
    starts.found = Found::Nothing;
    map()
}

/// Runs `take`, which takes so many mappings, when no thread of fibra is on its way to its body. An error if threads that start later
/// would find none.
pub(crate) fn take_mappings<R>(mappings: usize, take: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let mut starts = lock_when_none_starts();
    starts.found = Found::Nothing;
    let all = mappings + LEFT;
    match Room::map(0, all, libc::PROT_NONE) {
        Ok(room) => room.divide(all)?,
        // With large pages this asks for more address space than a thread does. Where there is none for a thread, none can start.
        Err(error) if Room::map(STACK, 0, libc::PROT_NONE).is_ok() => return Err(error),
        Err(_) => {}
    }
    take()
}

/// Over a fork: no thread looks for room then, and the child forgets the threads that were starting.
pub(crate) struct StartsLock(MutexGuard<'static, Starts>);

impl StartsLock {
    pub(crate) fn take() -> Self {
        Self(ONE_AT_A_TIME.lock())
    }

    pub(crate) fn forget_starts(&mut self) {
        let Self(starts) = self;
        STARTING.store(0, Ordering::Relaxed); // Relaxed: the child has one thread.
        // None of them exists there, and their locks may be held by a thread that does not either.
        std::mem::take(&mut starts.ready).into_iter().for_each(std::mem::forget);
    }
}

fn address_space_is_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) != 0 || limit.rlim_cur != libc::RLIM_INFINITY }
}

#[cfg(test)]
mod tests;
