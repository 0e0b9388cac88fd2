//! Address space for stacks: arenas that grow, slots carved from them, own mappings for the largest sizes, and the
//! registry of all of it.
//!
//! Above: `cache` asks for new slots when no pooled stack is left; `overflow` asks which stack an address belongs to.
//! Below: `guard`, `mmap`.
//!
//! An arena belongs to one size. It is mapped without reserving memory, never unmapped, and used from its low end on:
//! guards are installed for a batch of slots when these are first handed out, since guarding a whole arena at once
//! would take seconds. Arenas of a size double from 16 MiB to 8 GiB, so that a small program (or one under `ulimit -v`)
//! reserves little and a million stacks take some forty mappings, most of which the kernel merges.
//!
//! The registry is a list that only grows, of one word per region: a signal handler walks it without a lock. The word
//! of an own mapping is cleared before it is unmapped, and its entry is used again.

use super::guard::{self, GuardKind};
use super::record::StackTop;
use super::size::{POOLED, StackSize};
use crate::prim::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::prim::sync::{Mutex, MutexGuard};
use std::io;
use std::ptr::NonNull;

/// The length of a size's first arena; each further one is twice as long, up to the largest.
const FIRST_ARENA: usize = 16 << 20;
const LARGEST_ARENA: usize = 8 << 30;

/// Arenas start where a page of page-table entries starts (2 MiB on x86_64), so that no such page is shared with a
/// foreign mapping.
const ARENA_ALIGNMENT: usize = 2 << 20;

/// The records of neighbouring slots are shifted against each other by this much, modulo [`COLOURS`]: one cache line.
///
/// Measured on a shared AMD EPYC, best of many samples, 16 colours against 1. Five lines of each of n stacks in random
/// order: 24 against 29 ns at n = 1000, 42 against 46 at 3000, equal at 100 and 10,000. Three lines strictly in order of
/// address: equal up to 1000, 10 against 8 ns at 3000, 16 to 19 against 12 at 30,000. Fibers that talk to each other do
/// not run in order of address, so the colours stay.
const COLOUR_STEP: usize = 64;
const COLOURS: usize = 16;

/// How far apart the slots of an arena lie: a page further than they are large. That page is never touched.
///
/// All stacks use the pages at their tops. If these were a power of two apart, their page numbers would agree in the low bits, by which
/// the processor chooses a set of its address translation buffer: a few hundred stacks would displace each other there. Decision 79.
fn stride(size: StackSize) -> usize {
    size.bytes() + guard::page_size()
}

/// How many slots there are in an arena. The last needs no page after it.
fn slots_in(len: usize, size: StackSize) -> usize {
    (len + guard::page_size()) / stride(size)
}

/// Why no stack could be made.
#[derive(Debug)]
pub(crate) enum NoStack {
    /// Guards by `mprotect` need mappings, and these are used up.
    OutOfMappings {
        /// The number of mappings that the kernel allows.
        max_map_count: usize,
    },
    /// The system refused memory or address space.
    OutOfMemory(io::Error),
}

impl std::fmt::Display for NoStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoStack::OutOfMappings { max_map_count } => write!(
                f,
                "no stack left: each takes two of the {max_map_count} mappings this process may have. Raise \
                 vm.max_map_count, or use Linux 6.13 or later without FIBRA_GUARD=mprotect, where stacks need no \
                 mappings of their own"
            ),
            NoStack::OutOfMemory(error) => write!(
                f,
                "no memory for a stack: {error}. Look at the memory limit of the process or container, ulimit -v, \
                 vm.overcommit_memory and vm.max_map_count, or run fewer fibers at once"
            ),
        }
    }
}

impl std::error::Error for NoStack {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NoStack::OutOfMappings { .. } => None,
            NoStack::OutOfMemory(error) => Some(error),
        }
    }
}

/// A run of address space that holds stacks of one size: base, length and size class in one word, so that a signal
/// handler reads all or nothing of it. The base is page-aligned and the length a power of two, which leaves 12 bits for
/// the other two.
#[derive(Clone, Copy)]
struct Region(usize);

impl Region {
    const NONE: Region = Region(0);

    fn new(base: usize, len: usize, class: usize) -> Region {
        debug_assert!(base & 0xfff == 0 && len.is_power_of_two() && class < 64);
        Region(base | (class << 6) | len.trailing_zeros() as usize)
    }

    fn base(self) -> usize {
        self.0 & !0xfff
    }

    fn len(self) -> usize {
        1 << (self.0 & 0x3f)
    }

    fn size(self) -> StackSize {
        StackSize::of_class((self.0 >> 6) & 0x3f)
    }

    fn contains(self, address: usize) -> bool {
        self.0 != 0 && address.wrapping_sub(self.base()) < self.len()
    }
}

/// An entry of the registry; never freed.
struct ArenaEntry {
    region: AtomicUsize,
    next: *const ArenaEntry,
}

static REGISTRY: AtomicPtr<ArenaEntry> = AtomicPtr::new(std::ptr::null_mut());

/// The stack in whose slot an address lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) record: NonNull<StackTop>,
    pub(crate) size: StackSize,
    /// The lowest address of the slot.
    pub(crate) slot: usize,
}

impl Found {
    /// Whether the address lies where a fiber may not go: in the guard or in the reserve, whether the reserve is open or not.
    pub(crate) fn in_guard(&self, address: usize) -> bool {
        address.wrapping_sub(self.slot) < guard::guard_bytes()
    }

    /// The lowest address that a fiber may use.
    pub(crate) fn lowest(&self) -> usize {
        self.slot + guard::guard_bytes()
    }

    pub(crate) fn in_slot(&self, address: usize) -> bool {
        address.wrapping_sub(self.slot) < self.size.bytes()
    }
}

/// The stack whose slot holds `address`, if it is one of ours. Takes no lock and allocates nothing: a signal handler
/// may call it.
pub(crate) fn find(address: usize) -> Option<Found> {
    // Acquire: pairs with the release store in `register`; the entries behind the head are complete.
    let mut entry = REGISTRY.load(Ordering::Acquire).cast_const();
    // SAFETY: entries are leaked, and complete before they are reachable.
    while let Some(ArenaEntry { region, next }) = unsafe { entry.as_ref() } {
        // Relaxed: the word is all there is to read. A fiber that runs on a stack of the region got it after the word was
        // written.
        let region = Region(region.load(Ordering::Relaxed));
        if region.contains(address) {
            let size = region.size();
            let index = (address - region.base()) / stride(size);
            let slot = region.base() + index * stride(size);
            let record = NonNull::new(record_of_slot(slot, size, index))?;
            // (Between two slots, or after the last, no stack is.)
            return Some(Found { record, size, slot })
                .filter(|found| found.in_slot(address) && index < slots_in(region.len(), size));
        }
        entry = *next;
    }
    None
}

fn record_of_slot(slot: usize, size: StackSize, index: usize) -> *mut StackTop {
    let colour = (index % COLOURS) * COLOUR_STEP;
    std::ptr::with_exposed_provenance_mut(slot + size.bytes() - colour - size_of::<StackTop>())
}

/// The inverse of [`record_of_slot`]: a slot ends where a page does, and its record and colour lie in its last page.
pub(super) fn slot_of_record(record: NonNull<StackTop>, size: StackSize) -> *mut u8 {
    const { assert!(size_of::<StackTop>() + (COLOURS - 1) * COLOUR_STEP <= 4096, "in the smallest page") };
    let end = (record.addr().get() + size_of::<StackTop>()).next_multiple_of(guard::page_size());
    std::ptr::with_exposed_provenance_mut(end - size.bytes())
}

/// One size's arena: the part of it that was never handed out.
struct Growing {
    base: usize,
    /// The first slot that was never handed out.
    fresh: usize,
    slots: usize,
    /// How long the next arena will be.
    next_len: usize,
}

/// Everything that changes when address space is taken; all of it is off the hot paths.
pub(super) struct Arenas {
    growing: [Growing; POOLED],
    /// How many `mprotect` guards there are, for the cap.
    protected: usize,
    /// Registry entries of own mappings that were unmapped.
    vacant: Vec<&'static ArenaEntry>,
}

// SAFETY: `ArenaEntry::next` is a raw pointer to a leaked entry and never changes.
unsafe impl Sync for ArenaEntry {}

static ARENAS: Mutex<Arenas> = Mutex::new(Arenas {
    growing: [const { Growing { base: 0, fresh: 0, slots: 0, next_len: FIRST_ARENA } }; POOLED],
    protected: 0,
    vacant: Vec::new(),
});

/// For a fork: no other thread is inside the arenas meanwhile.
pub(super) fn lock_arenas() -> MutexGuard<'static, Arenas> {
    ARENAS.lock()
}

/// Carves up to `wanted` new, guarded slots of a pooled size and appends their records, not yet written, to `out`. At
/// least one, or an error.
pub(super) fn carve(size: StackSize, wanted: usize, out: &mut Vec<NonNull<StackTop>>) -> Result<(), NoStack> {
    let mut arenas = ARENAS.lock();
    let mut count = wanted;
    if guard::guard_kind() == GuardKind::Mprotect {
        count = count.min(guard::mprotect_cap().saturating_sub(arenas.protected));
        if count == 0 {
            return Err(NoStack::OutOfMappings { max_map_count: guard::max_map_count() });
        }
    }
    if arenas.growing[size.class()].fresh == arenas.growing[size.class()].slots {
        arenas.grow(size)?;
    }
    let growing = &mut arenas.growing[size.class()];
    let count = count.min(growing.slots - growing.fresh);
    let first = std::ptr::with_exposed_provenance_mut(growing.base + growing.fresh * stride(size));
    let guard = |count| {
        taking_mappings(count, || {
            // SAFETY: these slots lie in a mapped arena and were never handed out.
            unsafe { guard::guard_slots(first, stride(size), count) }
        })
    };
    let guarded = guard(count).or_else(|_| guard(1)).map_err(no_guard)?;
    for index in growing.fresh..growing.fresh + guarded {
        out.extend(NonNull::new(record_of_slot(growing.base + index * stride(size), size, index)));
    }
    growing.fresh += guarded;
    arenas.protected += guarded;
    Ok(())
}

/// Runs `guard`, which guards that many stacks, when the mappings that it takes are to be had.
fn taking_mappings<R>(stacks: usize, guard: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    match guard::guard_kind() {
        GuardKind::Madvise => guard(),
        GuardKind::Mprotect => crate::prim::thread::take_mappings(2 * stacks, guard),
    }
}

fn no_guard(error: io::Error) -> NoStack {
    // `mprotect` says ENOMEM when there are too many mappings; it needs next to no memory otherwise.
    if guard::guard_kind() == GuardKind::Mprotect && error.raw_os_error() == Some(libc::ENOMEM) {
        NoStack::OutOfMappings { max_map_count: guard::max_map_count() }
    } else {
        NoStack::OutOfMemory(error)
    }
}

impl Arenas {
    /// Maps the next arena of a size: the planned length, or whatever smaller power of two the system still gives.
    fn grow(&mut self, size: StackSize) -> Result<(), NoStack> {
        let mut len = self.growing[size.class()].next_len;
        let base = loop {
            match map(len, ARENA_ALIGNMENT) {
                Ok(base) => break base,
                Err(error) if len == size.bytes() => return Err(NoStack::OutOfMemory(error)),
                Err(_) => len /= 2,
            }
        };
        self.register(Region::new(base, len, size.class()));
        self.growing[size.class()] =
            Growing { base, fresh: 0, slots: slots_in(len, size), next_len: (len * 2).min(LARGEST_ARENA) };
        Ok(())
    }

    fn register(&mut self, region: Region) {
        if let Some(entry) = self.vacant.pop() {
            // Relaxed: see `find`.
            entry.region.store(region.0, Ordering::Relaxed);
            return;
        }
        // Relaxed: only changed under the lock that the caller holds.
        let next = REGISTRY.load(Ordering::Relaxed);
        let entry = Box::leak(Box::new(ArenaEntry { region: AtomicUsize::new(region.0), next }));
        // Release: pairs with the acquire load in `find`.
        REGISTRY.store(entry, Ordering::Release);
    }

    fn unregister(&mut self, region: Region) {
        // Relaxed: only changed under the lock that the caller holds.
        let mut entry = REGISTRY.load(Ordering::Relaxed).cast_const();
        // SAFETY: entries are leaked, and complete before they are reachable.
        while let Some(found) = unsafe { entry.as_ref() } {
            // Relaxed: as above.
            if found.region.load(Ordering::Relaxed) == region.0 {
                found.region.store(Region::NONE.0, Ordering::Relaxed);
                self.vacant.push(found);
                return;
            }
            entry = found.next;
        }
        unreachable!("a stack with a mapping of its own is registered until it is unmapped");
    }
}

/// Maps one guarded stack of a size that is too large for arenas; its record is not yet written.
pub(super) fn map_own(size: StackSize) -> Result<NonNull<StackTop>, NoStack> {
    debug_assert!(size.class() >= POOLED);
    let mut arenas = ARENAS.lock();
    if guard::guard_kind() == GuardKind::Mprotect && arenas.protected >= guard::mprotect_cap() {
        return Err(NoStack::OutOfMappings { max_map_count: guard::max_map_count() });
    }
    let base = map(size.bytes(), guard::page_size()).map_err(NoStack::OutOfMemory)?;
    let start = std::ptr::with_exposed_provenance_mut::<u8>(base);
    // SAFETY: the mapping is new.
    if let Err(error) = taking_mappings(1, || unsafe { guard::guard_slots(start, size.bytes(), 1) }) {
        // SAFETY: as above; no other code has seen it.
        unsafe { libc::munmap(start.cast(), size.bytes()) };
        return Err(no_guard(error));
    }
    arenas.protected += 1;
    arenas.register(Region::new(base, size.bytes(), size.class()));
    Ok(NonNull::new(record_of_slot(base, size, 0)).expect("a mapping is never at address 0"))
}

/// Unmaps what [`map_own`] mapped.
///
/// # Safety
/// `slot` is the low end of a stack from `map_own` of that size, and no fiber or pool uses it any more.
pub(super) unsafe fn unmap_own(slot: *mut u8, size: StackSize) {
    let mut arenas = ARENAS.lock();
    // First the registry, then the mapping: the kernel may hand the same addresses out again at once.
    arenas.unregister(Region::new(slot.expose_provenance(), size.bytes(), size.class()));
    arenas.protected -= 1;
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(slot.cast(), size.bytes()) };
}

/// Maps `len` bytes without reserving memory, at a multiple of `alignment`, with no huge pages: one touched page must
/// cost one page.
fn map(len: usize, alignment: usize) -> io::Result<usize> {
    crate::prim::thread::between_starts(|| map_now(len, alignment))
}

fn map_now(len: usize, alignment: usize) -> io::Result<usize> {
    // The kernel aligns to pages; for more, map more and cut both ends off.
    let slack = if alignment > guard::page_size() { alignment } else { 0 };
    // SAFETY: a new anonymous mapping at an address of the kernel's choice; what is cut off lies inside it and no other
    // code has seen it.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            len + slack,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = start.expose_provenance().next_multiple_of(alignment);
        let head = base - start.expose_provenance();
        let tail = slack - head;
        if head > 0 {
            libc::munmap(start, head);
        }
        if tail > 0 {
            libc::munmap(start.byte_add(head + len), tail);
        }
        // An error means a kernel without huge pages.
        libc::madvise(start.byte_add(head), len, libc::MADV_NOHUGEPAGE);
        Ok(base)
    }
}
