//! The frame: the record of one fiber. The process-wide slab it comes from is in `slab.rs`.
//!
//! Frames are never freed and never become anything else (law: every word is in type-stable memory), so a stale queue entry,
//! waker or handle that looks at a recycled frame sees a valid word with another ticket. Runtimes take frames from
//! the slab through per-worker caches and give them back.
//!
//! ```text
//!  64-byte line 0: what a switch touches   word | kind, flags | context | queue link | stack | thunk | home, join state | runtime
//!  line 1: what spawn, join and end touch  id | root scope | siblings on the worker | joiners | spawn site | extras
//!  line 2: storage                         the closure until the fiber starts, then its result
//! ```
//!
//! 192 bytes, so that a parked fiber costs one stack page, 512 bytes of page table and this. What only a started fiber
//! has (name, status, wait record, fiber-locals) lives at the top of its stack: see `fiber::top`.
//!
//! Access: `waiter`, `join` and `id` are atomics, open to all. `link` belongs to the one queue the frame is in. Everything in a
//! `Cell` belongs to the spawner until publication, then to the worker that runs it, then to the side that recycles it.
//!
//! Above: `sched`, `task`. Below: `waiter`, `stack`, `context`.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ops::ControlFlow;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::CENSUS;
use super::context::Context;
use super::local::Inherited;
use super::outcome::JoinState;
use super::stack::{StackSize, StackTop};
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::prim::cell::UnsafeCell;
use crate::prim::peek::peek_words;
use crate::prim::sync::Mutex;
use crate::prim::{prefetch, prefetch_many};
pub(crate) use crate::waiter::flags::{FlagSet, flag};
use crate::waiter::node::{WaitList, Waiter, WaiterKind, WaiterRef};
use crate::waiter::word::{Ticket, WaiterState};

/// Bytes of closure or result that fit without a box.
pub(crate) const INLINE_BYTES: usize = 64;
const INLINE_ALIGN: usize = 16;

/// The operations on the closure in the storage; one static per closure type.
#[derive(Debug)]
pub(crate) struct Thunk {
    /// On the fiber's own stack: take the closure out, run it, leave the result in the storage. Never unwinds.
    pub(crate) run: unsafe fn(&Frame) -> RunResult,
    /// On the fiber's own stack: drop the closure without running it (cancelled before it started). Never unwinds.
    pub(crate) discard: unsafe fn(&Frame),
}

/// How one run of a thunk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunResult {
    /// The fiber has ended; its result, if that kind of end has one, is in the storage.
    Ended(super::outcome::FiberEnd),
    /// A future that is not ready: its word is PARKING, its waker is published.
    Pending,
}

/// The properties that few fibers have: given to the builder, boxed.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) stack_size: Option<StackSize>,
    /// Fiber-locals from its parent; taken when it starts.
    pub(crate) inherited: Mutex<Option<Inherited>>,
    /// The fiber counts among those that are on their way to its worker; cleared when it arrives.
    pub(crate) coming: AtomicBool,
    /// The whole work of the fiber, if a joiner may do that instead. Weak: the closure owns it, and it goes with the closure.
    pub(crate) errand: Option<Weak<dyn Errand>>,
}

/// The work of a fiber, as long as it has not been begun: see `task::blocking`.
pub(crate) trait Errand: Debug + Send + Sync {
    /// Has it not been begun, so that another thread may still do it?
    fn is_open(&self) -> bool;

    /// May the calling thread do it?
    fn is_fit_here(&self) -> bool;

    /// Does it, if it was not begun. True: it is done, and its result is written to `result`.
    ///
    /// # Safety
    /// [`is_fit_here`](Self::is_fit_here) says so.
    /// `result` can take a `Result<T, Box<dyn Any + Send>>` with the `T` that the fiber returns.
    unsafe fn run_here(&self, result: *mut ()) -> bool;
}

/// The record of a fiber.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub(crate) waiter: Waiter,
    pub(crate) context: UnsafeCell<Context>,
    pub(crate) link: AtomicPtr<Frame>,
    /// The stack of a started fiber. Written by its worker; other threads look only under the census lock.
    pub(crate) stack: AtomicPtr<StackTop>,
    pub(crate) thunk: Cell<Option<&'static Thunk>>,
    pub(crate) home: AtomicU32,
    pub(crate) join: JoinState,
    /// The runtime it belongs to; `sched` knows the type.
    pub(crate) runtime: AtomicPtr<()>,

    pub(crate) id: AtomicU64,
    /// The root scope it counts in; `sched` knows the type.
    pub(crate) root: RootPlace,
    pub(crate) prev_started: Cell<*const Frame>,
    pub(crate) next_started: Cell<*const Frame>,
    /// Guarded by the lock in `join`.
    pub(crate) joiners: WaitList,
    pub(crate) site: Site,
    extras: AtomicPtr<Extras>,

    storage: UnsafeCell<Storage>,
}

const _: () = assert!(mem::size_of::<Frame>() == 192);

#[derive(Debug)]
#[repr(C, align(16))]
struct Storage([MaybeUninit<u8>; INLINE_BYTES]);

// SAFETY: see "Access" in the header: cells are handed from owner to owner through the queues and the join state, which
// order the accesses; everything shared is atomic.
unsafe impl Sync for Frame {}
// SAFETY: as above.
unsafe impl Send for Frame {}

/// A frame, by address: valid for ever.
pub(crate) type FrameRef = &'static Frame;

/// Where a fiber was spawned. An atomic, because a census of another thread may look while the frame gets its next life.
#[derive(Debug)]
pub(crate) struct Site(AtomicPtr<Location<'static>>);

impl Site {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn set(&self, site: &'static Location<'static>) {
        // Relaxed: a location is constant, and says nothing about the rest of the frame.
        self.0.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        // Relaxed: as above.
        let site = self.0.load(Ordering::Relaxed);
        // SAFETY: null, or made from a reference that is good for ever.
        unsafe { site.as_ref() }
    }
}

/// The root scope that a fiber counts in. An atomic for the same reason; owned like a cell otherwise.
#[derive(Debug)]
pub(crate) struct RootPlace(AtomicPtr<()>);

impl RootPlace {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn set(&self, root: *const ()) {
        // Relaxed: its owner's; a census compares it only.
        self.0.store(root.cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

impl Frame {
    /// Where id, spawn site and extras lie in a frame: for a debugger.
    pub(super) const PARTS: [usize; 3] =
        [mem::offset_of!(Frame, id), mem::offset_of!(Frame, site), mem::offset_of!(Frame, extras)];

    /// Does the calling code run on this fiber's stack? For assertions.
    pub(crate) fn is_stood_on(&self) -> bool {
        // Relaxed: called by the fiber's own worker, which has bound the stack.
        let stack = self.stack.load(Ordering::Relaxed);
        // SAFETY: called by the fiber's own worker, which alone takes the stack off the frame.
        unsafe { stack.as_ref() }.is_some_and(StackTop::is_stood_on)
    }

    pub(super) fn new() -> Self {
        Self {
            waiter: Waiter::new(WaiterKind::Fiber),
            context: UnsafeCell::new(Context::default()),
            link: AtomicPtr::new(ptr::null_mut()),
            stack: AtomicPtr::new(ptr::null_mut()),
            thunk: Cell::new(None),
            home: AtomicU32::new(NO_HOME),
            join: JoinState::new(),
            runtime: AtomicPtr::new(ptr::null_mut()),
            id: AtomicU64::new(0),
            root: RootPlace::new(),
            prev_started: Cell::new(ptr::null()),
            next_started: Cell::new(ptr::null()),
            joiners: WaitList::new(),
            site: Site::new(),
            extras: AtomicPtr::new(ptr::null_mut()),
            storage: UnsafeCell::new(Storage([MaybeUninit::uninit(); INLINE_BYTES])),
        }
    }

    /// Makes a frame again of memory that went back to the system: free, as [`Frame::new`] makes it or as it was left (the system may
    /// have kept what was in it), and with a ticket above all that its place in memory has given out.
    pub(super) fn revive(&'static self, floor: Ticket) {
        self.waiter.word.renew(floor);
        // Relaxed: free, and so its reviver's alone; everything else that is not zero in a new frame is written by every spawn.
        self.home.store(NO_HOME, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn waiter_ref(&'static self) -> WaiterRef {
        // SAFETY: frames are never freed, and `waiter` is of kind Fiber for ever.
        unsafe { WaiterRef::new(NonNull::from(&self.waiter)) }
    }

    /// The frame around a waiter of kind Fiber.
    #[inline(always)]
    pub(crate) fn from_waiter(waiter: WaiterRef) -> FrameRef {
        debug_assert_eq!(waiter.get().kind(), WaiterKind::Fiber);
        // SAFETY: waiters of kind Fiber exist only as the first field of a frame (`repr(C)`), and frames live for ever.
        unsafe { waiter.as_ptr().cast::<Frame>().as_ref() }
    }

    /// The frame at an address taken from a queue entry.
    ///
    /// # Safety
    /// `address` came from [`Frame::address`].
    #[inline(always)]
    pub(crate) unsafe fn from_address(address: usize) -> FrameRef {
        // SAFETY: the caller's promise, and frames live for ever.
        unsafe { &*ptr::with_exposed_provenance(address) }
    }

    #[inline(always)]
    pub(crate) fn address(&'static self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    /// Prefetches the two cache lines that a spawn writes.
    #[inline(always)]
    pub(crate) fn prefetch(&'static self) {
        let address = ptr::from_ref(self).cast::<u8>();
        prefetch(address);
        prefetch(address.wrapping_add(64));
    }

    /// Fetches the whole frame of a fiber that is about to be woken. One of many such calls, as are the next two.
    #[inline(always)]
    pub(crate) fn fetch(&'static self) {
        let address = ptr::from_ref(self).cast::<u8>();
        (0..size_of::<Frame>()).step_by(64).for_each(|line| prefetch_many(address.wrapping_add(line)));
    }

    /// Fetches its stack, if it has one.
    #[inline(always)]
    pub(crate) fn fetch_stack(&self) {
        // Relaxed: an address that is not read through. (Null does no harm.)
        StackTop::fetch(self.stack.load(Ordering::Relaxed));
    }

    /// Fetches the links that change when this fiber, which is the calling worker's, ends.
    #[inline(always)]
    pub(crate) fn fetch_neighbours(&self) {
        for neighbour in [self.prev_started.get(), self.next_started.get()] {
            prefetch_many(neighbour.cast::<u8>().wrapping_add(mem::offset_of!(Frame, prev_started)));
        }
    }

    /// Prefetches what a census reads at the top of its stack, if it has one.
    fn prefetch_top(&self) {
        // Relaxed: an address that is not read through.
        let top = self.stack.load(Ordering::Relaxed).cast::<u8>();
        if !top.is_null() {
            prefetch(top.wrapping_add(64));
            prefetch(top.wrapping_add(128));
        }
    }

    /// Started fibers are on no worker only with `unstable-migration`: see `sched::life::migrate`, which then says so.
    #[cfg(not(feature = "unstable-migration"))]
    #[inline(always)]
    pub(crate) const fn is_adrift(&self) -> bool {
        false
    }

    /// Its flags, at a look; see [`Flags::look`](crate::waiter::flags::Flags::look).
    #[inline(always)]
    pub(crate) fn flags(&self) -> FlagSet {
        self.waiter.flags.look()
    }

    #[inline(always)]
    pub(crate) fn has(&self, any: FlagSet) -> bool {
        self.waiter.flags.has(any)
    }

    /// Are start and end of this fiber the usual ones: a stack of the default size, counted in the root of its run and nowhere else?
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        const ODD: FlagSet = flag::EXTRAS
            .and(flag::HALF)
            .and(flag::TASK)
            .and(flag::SCOPED)
            .and(flag::DAEMON)
            .and(flag::ROOT)
            .and(flag::HOOKED)
            .and(flag::MOVES);
        self.flags().among(ODD | flag::UNCAPPED) == flag::UNCAPPED
    }

    /// Sets a flag of the running fiber's own.
    pub(crate) fn raise(&self, flags: FlagSet) {
        self.waiter.flags.raise(flags);
    }

    /// Clears a flag of the running fiber's own.
    pub(crate) fn lower(&self, flags: FlagSet) {
        self.waiter.flags.lower(flags);
    }

    /// True if a `T` is kept in the storage itself, false if it is boxed.
    pub(crate) const fn fits<T>() -> bool {
        mem::size_of::<T>() <= INLINE_BYTES && mem::align_of::<T>() <= INLINE_ALIGN
    }

    /// True if a `T` in the storage must be taken out before the frame is recycled: it has a destructor, or a box.
    pub(crate) const fn must_be_taken<T>() -> bool {
        mem::needs_drop::<T>() || !Self::fits::<T>()
    }

    /// Puts a value into the storage, boxed if it is large.
    ///
    /// # Safety
    /// The caller owns the storage, and it holds nothing that still has to be dropped.
    #[inline(always)]
    pub(crate) unsafe fn put<T>(&self, value: T) {
        self.storage.with_mut(|storage| {
            if const { Self::fits::<T>() } {
                // SAFETY: the storage is the caller's, large enough and aligned (`fits`).
                unsafe { storage.cast::<T>().write(value) }
            } else {
                // SAFETY: as above; a box pointer always fits.
                unsafe { storage.cast::<Box<T>>().write(Box::new(value)) }
            }
        });
    }

    /// Looks at the value that `put` left there.
    ///
    /// # Safety
    /// The storage holds a `T` that no other code takes meanwhile.
    pub(crate) unsafe fn look_at<T, R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.storage.with(|storage| {
            if const { Self::fits::<T>() } {
                // SAFETY: the caller's promise.
                look(unsafe { &*storage.cast::<T>() })
            } else {
                // SAFETY: the caller's promise.
                look(unsafe { &*storage.cast::<Box<T>>() })
            }
        })
    }

    /// Takes the value out that `put` left there.
    ///
    /// # Safety
    /// The caller owns the storage, and it holds a `T` put there by `put::<T>`; it counts as moved out afterwards.
    #[inline(always)]
    pub(crate) unsafe fn take<T>(&self) -> T {
        self.storage.with_mut(|storage| {
            if const { Self::fits::<T>() } {
                // SAFETY: the caller's promise.
                unsafe { storage.cast::<T>().read() }
            } else {
                // SAFETY: the caller's promise.
                unsafe { *storage.cast::<Box<T>>().read() }
            }
        })
    }
}

/// `home` of a frame that no worker owns yet.
pub(crate) const NO_HOME: u32 = u32::MAX;

/// A frame during a census, which keeps boxed extras where they are.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    frame: FrameRef,
    census: PhantomData<&'a ()>,
}

impl<'a> Counted<'a> {
    /// Only for the time in which the lock of the census is held.
    fn new(frame: FrameRef) -> Self {
        Self { frame, census: PhantomData }
    }

    /// Its name, if it has one.
    pub(crate) fn name(self) -> Option<&'a Arc<str>> {
        // SAFETY: only `census` makes one, for the time it holds its lock: we are within a census.
        unsafe { self.frame.extras() }.and_then(|extras| extras.name.as_ref())
    }

    /// A handle to check later whether the fiber is still in the same wait.
    pub(crate) fn watch(self) -> ParkedFiber {
        ParkedFiber { frame: self.frame, ticket: self.frame.waiter.word.snapshot().ticket() }
    }
}

/// A fiber in one of its waits, for reports that read what lies on its stack, or what it waits for: that stays as it is while the wait
/// lasts. A frame exists for ever, so that it may be checked at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkedFiber {
    frame: FrameRef,
    ticket: Ticket,
}

impl Hash for ParkedFiber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.address(), self.ticket.to_bits()).hash(state);
    }
}

impl ParkedFiber {
    /// Is it still parked in the same wait? If so, what was read before this call was valid.
    pub(crate) fn is_parked(self) -> bool {
        let word = self.frame.waiter.word.snapshot();
        word.ticket() == self.ticket && word.state() == WaiterState::Parked
    }

    /// Is it the same fiber, and has it neither begun nor ended a wait since?
    pub(crate) fn has_not_moved(self) -> bool {
        self.frame.waiter.word.snapshot().ticket() == self.ticket
    }

    /// The address of the frame: it names this fiber, and means nothing when the fiber has ended.
    pub(crate) fn address(self) -> usize {
        ptr::from_ref(self.frame).addr()
    }

    /// The bytes of a frame: the closure of an unstarted fiber lies in it, or is pointed to from it.
    pub(crate) const FRAME: usize = size_of::<Frame>();

    /// The address at which its stack begins (frames of calls grow down from there); 0 if it has none.
    pub(crate) fn stack_end(self) -> usize {
        // Relaxed: an address that is only compared, and read by the kernel.
        self.frame.stack.load(Ordering::Relaxed).addr()
    }

    /// The suspended execution, if there is one: its stack pointer and the end of its stack.
    pub(crate) fn suspended(self) -> Option<(usize, usize)> {
        let context = self.frame.context.with(<*const Context>::addr);
        let [context] = peek_words(context)?;
        let end = self.stack_end();
        (self.is_parked() && end != 0).then_some((context, end))
    }
}

impl std::ops::Deref for Counted<'_> {
    type Target = Frame;
    fn deref(&self) -> &Frame {
        self.frame
    }
}

/// Frames that a census looks at before it gives the census lock to the threads that wait for it.
const AT_ONCE: usize = 1024;
/// Frames whose stacks a census prefetches before it looks at the first of them: each lies on a page of its own, far away.
const AHEAD: usize = 16;

/// Calls `look` for every frame ever made, free ones included. Boxed extras stay where they are meanwhile. Not under one lock: a fiber that
/// ends or begins meanwhile is seen or not, and named fibers that end wait for a short time only.
pub(crate) fn census(mut look: impl FnMut(Counted<'_>)) {
    census_until(|frame| {
        look(frame);
        ControlFlow::Continue(())
    });
}

/// The same until `look` breaks. True: `look` broke before the last frame.
pub(crate) fn census_until(mut look: impl FnMut(Counted<'_>) -> ControlFlow<()>) -> bool {
    let mut frames = super::slab::all().peekable();
    while frames.peek().is_some() {
        let _census = CENSUS.lock();
        for _ in 0..AT_ONCE / AHEAD {
            let next: [Option<FrameRef>; AHEAD] = std::array::from_fn(|_| frames.next());
            next.iter().flatten().for_each(|frame| frame.prefetch_top());
            if next.into_iter().flatten().try_for_each(|frame| look(Counted::new(frame))).is_break() {
                return true;
            }
        }
    }
    false
}

impl Frame {
    /// Drops the extras (name, stack size) at the end of a life, while no census looks at them.
    #[inline(always)]
    pub(crate) fn clear_extras(&self) {
        if self.has(flag::EXTRAS) {
            self.clear_extras_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_extras_slow(&self) {
        // AcqRel: takes it from the life that ends; no other thread swaps.
        let extras = self.extras.swap(ptr::null_mut(), Ordering::AcqRel);
        let _census = CENSUS.lock();
        // SAFETY: the pointer came from `Box::into_raw` in `set_extras` (EXTRAS says so), the swap made it ours, and no census is looking.
        drop(unsafe { Box::from_raw(extras) });
    }

    /// Gives the frame its extras, before it is published.
    pub(crate) fn set_extras(&self, extras: Extras) {
        // Release: pairs with the acquire in `extras`.
        self.extras.store(Box::into_raw(Box::new(extras)), Ordering::Release);
        self.raise(flag::EXTRAS);
    }

    /// The extras, if the fiber has any.
    ///
    /// # Safety
    /// The caller keeps the frame from being recycled (it is the fiber itself, its worker or its handle) or calls from within a census.
    #[inline(always)]
    pub(crate) unsafe fn extras(&self) -> Option<&Extras> {
        if !self.has(flag::EXTRAS) {
            return None;
        }
        // Acquire: pairs with the release in `set_extras`.
        let extras = self.extras.load(Ordering::Acquire);
        // SAFETY: not freed while the caller keeps its promise, and not written after publication.
        unsafe { extras.as_ref() }
    }
}
