//! Stacks of fibers: reserved by the million, guarded, pooled.
//!
//! Above: the frame binds a stack at its first run and gives it back at its end; the overflow report asks which stack's
//! guard was hit. Below: `mmap`, `madvise`, `mprotect`.
//!
//! ```text
//! size.rs    which sizes there are
//! guard.rs   the two ways to guard memory, and what a page is
//! arena.rs   address space, slots carved from it, and the registry a signal handler can read
//! record.rs  `Stack` and the record at the top of each
//! depot.rs   where caches leave batches for each other
//! cache.rs   one per worker: take, give
//! trim.rs    what of the idle memory goes back to the system, off the fibers' paths
//! touched.rs how much of a stack was used
//! ```
//!
//! # One slot
//!
//! ```text
//! slot + size ─┬───────────────────────────────┐
//!              │ colour: 0 to 15 lines of 64 B │  so that the records of many stacks do not share a few cache sets
//!              ├───────────────────────────────┤
//!              │ record (StackTop), 256 B      │
//!      top() ─ ├───────────────────────────────┤  `Stack` points here; the fiber's frames grow down from here
//!              │ usable                        │
//!    limit() ─ ├───────────────────────────────┤
//!              │ reserve, 8 KiB                │  guarded until a panic near the limit opens it; closed again by `give`
//!              ├───────────────────────────────┤
//!              │ guard, one page               │  never accessible
//!       slot ─ └───────────────────────────────┘
//! ```
//!
//! Slots of an arena lie a page further apart than they are large (`arena.rs` says why). `size()` is the whole slot:
//! that is what is reserved and what `stack_size` means everywhere. What a fiber can use is `top() - limit()`: the
//! size less 12 KiB of guard and reserve (4 KiB pages) and less the record and its colour (256 to 1216 bytes). A 32
//! KiB stack has 19 KiB to run on, a 256 KiB one 243.
//!
//! Measured with Rust 1.95 on x86_64: from `panic!` to the hook 256 to 480 bytes; from the hook to the end of the
//! unwinding 2 KiB, and 5 KiB the first time in a process. Hence a reserve of 8 KiB; a panic must still reach the hook
//! on what the fiber has left, 512 bytes.
//!
//! # Invariants
//!
//! * Slots of arenas are never unmapped: a pointer to a record is valid for ever. Sizes above 1 MiB have a mapping of
//!   their own, which is unmapped only by `give`, by the pool it overflows, or by trimming, never while a holder owns
//!   the `Stack`.
//! * A context that the upper layer prepared on a stack is retired (`Stack::set_prepared`) before the memory goes: a
//!   stack that is trimmed or unmapped leaks no sanitizer handle, coroutine or thread.
//! * The lowest page of every stack that was ever handed out is inaccessible.
//! * A stack is in exactly one place: with its owner, in one cache, or in one depot. Only that place reads or writes
//!   its record; the exceptions are the atomic `owner`, which a signal handler reads, and what never changes after the
//!   first `take`.

pub(crate) mod depot;

#[cfg(not(any(loom, shuttle)))]
mod arena;
#[cfg(not(any(loom, shuttle)))]
mod cache;
#[cfg(not(any(loom, shuttle)))]
mod guard;
#[cfg(not(any(loom, shuttle)))]
mod record;
#[cfg(not(any(loom, shuttle)))]
mod size;
#[cfg(not(any(loom, shuttle)))]
mod touched;
#[cfg(not(any(loom, shuttle)))]
mod trim;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::{
    arena::{Found, NoStack, find},
    cache::{Locks, StackCache},
    guard::{discard, discard_within, guard_kind, guard_kind_from_env, page_size},
    record::{Stack, StackTop, USER_AREA},
    size::StackSize,
    touched::{freshen, touched},
    trim::{is_depot_fat, trim_depot},
};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use guard::{GuardKind, RESERVE};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
