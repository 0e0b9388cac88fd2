//! [`Select`]: a select over a set of operations that is known only at run time, as in crossbeam-channel. Above: users. Below: `engine.rs`,
//! `case.rs`, `channel::any`.
//!
//! It completes in two steps: [`Select::select`] does the operation as far as it can be done without the value's type, and the
//! [`SelectedOperation`] does the rest. A value received is held in between (and put back if the operation is dropped); for a send a place
//! is reserved, in a rendezvous one of the waiting receivers. The peer of a receive is through with it at once; the peer of a send stays as
//! cancellable as before, and if it has gone elsewhere meanwhile the value waits for the next one. So a forgotten operation can block only
//! a peer that needs that one place.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::case::Case;
use super::engine::{self, Candidates, LastCandidates, Patience};
use crate::cancel::is_unwinding;
use crate::channel::any::AnyChan;
use crate::channel::op::ChanOpKind;
use crate::channel::{
    ReadyTimeoutError, Receiver, RecvError, SelectTimeoutError, SendError, Sender, TryReadyError, TrySelectError,
};
use crate::prim::atomic::AtomicU8;
use crate::time::Instant;
use crate::wait::park;
use crate::waiter::node::Outcome;

/// Operations up to this many are held without allocating.
const FEW: usize = 8;
/// Values up to this size are held without allocating.
const INLINE: usize = 64;

/// A set of operations on channels, of which one is to be completed.
///
/// ```
/// use fibra::channel::{Select, unbounded};
///
/// let channels: Vec<_> = (0..100).map(|_| unbounded()).collect();
/// channels[42].0.send("here").unwrap();
///
/// let mut select = Select::new();
/// for (_, rx) in &channels {
///     select.recv(rx);
/// }
/// let operation = select.select();
/// let index = operation.index();
/// assert_eq!((index, operation.recv(&channels[index].1)), (42, Ok("here")));
/// ```
pub struct Select<'a> {
    few: [Option<SelectOperation<'a>>; FEW],
    /// Instead of `few`, if there are more.
    many: Vec<Option<SelectOperation<'a>>>,
    count: usize,
    biased: bool,
    /// Large enough for the value of every receive.
    layout: Layout,
}

// SAFETY: every use of a channel locks it. Values of a type that is not `Send` pass through another thread only as bytes: only the handle
// itself completes an operation, and a thread has it only if the values are `Send`; without it the value goes back. The set holds the
// handles by reference, so it drops none, and reserving a place evicts nothing.
unsafe impl Send for Select<'_> {}
// SAFETY: as above; methods that change the set take it by `&mut`.
unsafe impl Sync for Select<'_> {}

/// One operation.
#[derive(Clone, Copy)]
struct SelectOperation<'a> {
    port: &'a dyn AnyChan,
    op: ChanOpKind,
    /// The hints of the port, for a look without a call.
    hints: &'a AtomicU8,
}

/// The set, for the first pass: no cases are made unless it has to wait.
struct Trial<'t, 'a> {
    entries: &'t [Option<SelectOperation<'a>>],
    asks: bool,
    slot: *mut (),
    told: &'t Cell<Outcome>,
}

impl Candidates for Trial<'_, '_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn may_be_ready(&mut self, index: usize) -> bool {
        self.entries[index].is_some_and(|entry| entry.op.may_be_ready(entry.hints))
    }

    #[inline]
    fn complete(&mut self, index: usize) -> bool {
        let Some(entry) = self.entries[index] else { return false };
        let op = if self.asks { entry.op.asked() } else { entry.op };
        // SAFETY: the room is large enough for every operation of the set, and empty; to ask takes none.
        self.told.set(unsafe { entry.port.try_now(op, self.slot) });
        self.told.get() != Outcome::Pending
    }
}

impl LastCandidates for Trial<'_, '_> {
    fn complete_last(&mut self, index: usize) -> bool {
        let Some(entry) = self.entries[index] else { return false };
        let op = if self.asks { entry.op.asked() } else { entry.op };
        // SAFETY: as in `complete`.
        self.told.set(unsafe { entry.port.try_last(op, self.slot) });
        self.told.get() != Outcome::Pending
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Select<'_> {
    fn clone(&self) -> Self {
        Self { many: self.many.clone(), ..*self }
    }
}

impl<'a> Select<'a> {
    /// An empty set. Among operations that are ready one is chosen at random.
    pub fn new() -> Self {
        Self { few: [None; FEW], many: Vec::new(), count: 0, biased: false, layout: Layout::new::<()>() }
    }

    /// An empty set. Among operations that are ready the one added first is chosen.
    pub fn new_biased() -> Self {
        Self { biased: true, ..Self::new() }
    }

    /// Adds a send and returns its index.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(
            SelectOperation { port: sender.chan(), op: ChanOpKind::Reserve, hints: sender.chan().hint_word() },
            Layout::new::<()>(),
        )
    }

    /// Adds a receive and returns its index.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(
            SelectOperation { port: receiver.chan(), op: ChanOpKind::Recv, hints: receiver.chan().hint_word() },
            Layout::new::<T>(),
        )
    }

    fn add(&mut self, entry: SelectOperation<'a>, value: Layout) -> usize {
        let (size, align) = (self.layout.size().max(value.size()), self.layout.align().max(value.align()));
        self.layout = Layout::from_size_align(size, align).expect("the larger of two layouts").pad_to_align();
        let index = self.count;
        if index < FEW {
            self.few[index] = Some(entry);
        } else {
            if index == FEW {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(Some(entry));
        }
        self.count += 1;
        index
    }

    fn entries(&self) -> &[Option<SelectOperation<'a>>] {
        if self.count <= FEW { &self.few[..self.count] } else { &self.many }
    }

    /// Takes an operation out of the set. The indices of the others stay as they are.
    ///
    /// # Panics
    /// If there is none with that index, or not any more.
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        assert!(index < self.count, "fibra: Select::remove({index}) of a set of {}", self.count);
        let slot = if self.count <= FEW { &mut self.few[index] } else { &mut self.many[index] };
        assert!(slot.take().is_some(), "fibra: Select::remove({index}): it was removed already");
    }

    /// Is there anything in the set?
    fn is_empty(&self) -> bool {
        self.entries().iter().all(Option::is_none)
    }

    /// Completes one of the operations, if one is ready.
    ///
    /// # Errors
    /// If none is.
    #[track_caller]
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Patience::None, Location::caller()).ok_or(TrySelectError)
    }

    /// Completes one of the operations, waiting until one is ready.
    ///
    /// # Panics
    /// If the set is empty: that wait would never end.
    #[track_caller]
    pub fn select(&mut self) -> SelectedOperation<'a> {
        assert!(!self.is_empty(), "fibra: no operations have been added to `Select`");
        self.run(Patience::Endless, Location::caller()).expect("a select without a deadline completes something")
    }

    /// Completes one of the operations, waiting for at most `timeout`.
    ///
    /// # Errors
    /// If none became ready in time.
    #[track_caller]
    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(until(Instant::after(timeout)), Location::caller()).ok_or(SelectTimeoutError)
    }

    /// Completes one of the operations, waiting until `deadline` at most.
    ///
    /// # Errors
    /// If none became ready in time.
    #[track_caller]
    pub fn select_deadline(
        &mut self,
        deadline: impl Into<Instant>,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(until(deadline.into()), Location::caller()).ok_or(SelectTimeoutError)
    }

    /// The index of an operation that is ready, without doing it. It may be gone before you try it.
    ///
    /// # Errors
    /// If none is.
    #[track_caller]
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.ask(Patience::None, Location::caller()).ok_or(TryReadyError)
    }

    /// Waits until one of the operations is ready and returns its index, without doing it. It may be gone before you try it.
    ///
    /// On a rendezvous a set that waits here is met by every sender and receiver, with one exception: a `send` does not become ready by a
    /// receiver that only looks now and then (`try_recv`), since neither stays for the other.
    ///
    /// # Panics
    /// If the set is empty.
    #[track_caller]
    pub fn ready(&mut self) -> usize {
        assert!(!self.is_empty(), "fibra: no operations have been added to `Select`");
        self.ask(Patience::Endless, Location::caller()).expect("a select without a deadline ends with something")
    }

    /// Like [`ready`](Self::ready), but gives up after `timeout`.
    ///
    /// # Errors
    /// If none became ready in time.
    #[track_caller]
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.ask(until(Instant::after(timeout)), Location::caller()).ok_or(ReadyTimeoutError)
    }

    /// Like [`ready`](Self::ready), but gives up at `deadline`.
    ///
    /// # Errors
    /// If none became ready in time.
    #[track_caller]
    pub fn ready_deadline(&mut self, deadline: impl Into<Instant>) -> Result<usize, ReadyTimeoutError> {
        self.ask(until(deadline.into()), Location::caller()).ok_or(ReadyTimeoutError)
    }

    fn ask(&self, patience: Patience, site: &'static Location<'static>) -> Option<usize> {
        let told = Cell::new(Outcome::Pending);
        self.complete_one(
            Trial { entries: self.entries(), asks: true, slot: ptr::null_mut(), told: &told },
            patience,
            site,
        )
    }

    #[inline]
    fn run(&self, patience: Patience, site: &'static Location<'static>) -> Option<SelectedOperation<'a>> {
        let told = Cell::new(Outcome::Pending);
        // At most one of them is filled, so one room serves all.
        let mut room = Room::new(self.layout);
        let trial = Trial { entries: self.entries(), asks: false, slot: room.slot(), told: &told };
        let index = self.complete_one(trial, patience, site)?;
        let entry = self.entries()[index].expect("it was completed");
        let stage = match (entry.op, told.get()) {
            (ChanOpKind::Recv, Outcome::Done) => Stage::Received,
            (ChanOpKind::Reserve, Outcome::Done) => Stage::Reserved,
            _ => Stage::Closed,
        };
        Some(SelectedOperation { port: entry.port, is_recv: entry.op == ChanOpKind::Recv, index, stage, room })
    }

    #[inline]
    fn complete_one(
        &self,
        mut trial: Trial<'_, 'a>,
        patience: Patience,
        site: &'static Location<'static>,
    ) -> Option<usize> {
        if !park::passes() {
            match patience {
                Patience::None => park::count_call(),
                _ => park::entry(),
            }
        }
        if let Some(index) = engine::try_ready(&mut trial, self.biased) {
            return Some(index);
        }
        if patience == Patience::None {
            return engine::try_all_at_last(&mut trial, self.biased);
        }
        self.wait_for_one(&trial, patience, site)
    }

    #[inline(never)]
    fn wait_for_one(
        &self,
        trial: &Trial<'_, 'a>,
        patience: Patience,
        site: &'static Location<'static>,
    ) -> Option<usize> {
        self.with_cases(
            |entry| {
                let op = if trial.asks { entry.op.asked() } else { entry.op };
                // SAFETY: the room is large enough for every operation of the set, and only the one that completes is written; to ask
                // takes none. It outlives the cases.
                unsafe { Case::channel(entry.port, entry.hints, op, trial.slot, trial.told) }
            },
            |cases| engine::wait_for(cases, self.biased, patience, site),
        )
    }

    /// Makes the cases, on the stack if they are few.
    fn with_cases<'c, R>(
        &self,
        case: impl Fn(&SelectOperation<'a>) -> Case<'c>,
        f: impl FnOnce(&mut [Case<'c>]) -> R,
    ) -> R
    where
        'a: 'c,
    {
        let make = |entry: &Option<SelectOperation<'a>>| entry.as_ref().map_or_else(Case::off, &case);
        let entries = self.entries();
        if self.count <= FEW {
            let mut cases: [Case<'c>; FEW] = std::array::from_fn(|at| make(entries.get(at).unwrap_or(&None)));
            f(&mut cases[..self.count])
        } else {
            f(&mut entries.iter().map(make).collect::<Vec<_>>())
        }
    }
}

fn until(deadline: Instant) -> Patience {
    Patience::Until(deadline.as_nanos())
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.entries().iter().map(|entry| entry.map(|entry| entry.op));
        f.debug_list().entries(kinds).finish()
    }
}

/// The progress of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The value is in the room.
    Received,
    /// A place is reserved.
    Reserved,
    /// The channel is closed.
    Closed,
    /// The second step was done.
    Over,
}

/// An operation of a [`Select`] that was chosen and has to be completed, by [`send`](Self::send) or [`recv`](Self::recv) on the
/// very channel it is for. Neither waits.
///
/// # Panics
/// Dropping it instead panics, as in crossbeam-channel; a received value goes back into the channel before that.
#[must_use = "a selected operation has to be completed"]
pub struct SelectedOperation<'a> {
    port: &'a dyn AnyChan,
    is_recv: bool,
    index: usize,
    stage: Stage,
    room: Room,
}

impl SelectedOperation<'_> {
    /// The index of the operation in its set.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Completes a send.
    ///
    /// # Panics
    /// If the operation chosen is not a send on this channel.
    ///
    /// # Errors
    /// If the channel is closed: the value comes back.
    #[track_caller]
    pub fn send<T>(mut self, sender: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        self.check(!self.is_recv, sender.chan(), "sender");
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Reserved => {
                let value = ManuallyDrop::new(value);
                let mut locked = sender.chan().lock();
                // SAFETY: the value is the channel's if this is true, and moved out below otherwise.
                let sent = unsafe { locked.state().send_reserved(&raw const *value) };
                locked.unlock();
                if sent { Ok(()) } else { Err(SendError(ManuallyDrop::into_inner(value))) }
            }
            _ => Err(SendError(value)),
        }
    }

    /// Completes a receive.
    ///
    /// # Panics
    /// If the operation chosen is not a receive on this channel.
    ///
    /// # Errors
    /// If nothing will come any more.
    #[track_caller]
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        self.check(self.is_recv, receiver.chan(), "receiver");
        receiver.chan().free_if_spare();
        match mem::replace(&mut self.stage, Stage::Over) {
            // SAFETY: the engine wrote a value of this channel's type, which is `T`: it is this very channel. It is read once.
            Stage::Received => Ok(unsafe { self.room.slot().cast::<T>().read() }),
            _ => Err(RecvError),
        }
    }

    /// By id: ids are never reused, so the same id is the same channel, and with it the same type of values.
    #[track_caller]
    fn check(&mut self, right_kind: bool, port: &dyn AnyChan, what: &str) {
        if !right_kind || self.port.order() != port.order() {
            let index = self.index;
            self.undo();
            panic!("fibra: operation {index} was selected, and completed with another {what} than it was added with");
        }
    }

    /// Takes the first step back.
    fn undo(&mut self) {
        match mem::replace(&mut self.stage, Stage::Over) {
            // SAFETY: the value of this channel's type that the engine wrote; it is the channel's again.
            Stage::Received => unsafe { self.port.put_back(self.room.slot()) },
            Stage::Reserved => self.port.give_back(),
            Stage::Closed | Stage::Over => {}
        }
    }
}

impl Drop for SelectedOperation<'_> {
    #[track_caller]
    fn drop(&mut self) {
        let complete = self.stage == Stage::Over;
        self.undo();
        assert!(
            complete || is_unwinding(),
            "fibra: a `SelectedOperation` was dropped without completing the operation"
        );
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedOperation").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Memory for one value of whatever type wins. It owns no value.
enum Room {
    Inline(MaybeUninit<[u128; INLINE / 16]>),
    Heap(NonNull<u8>, Layout),
}

impl Room {
    #[inline]
    fn new(layout: Layout) -> Self {
        if layout.size() <= INLINE && layout.align() <= align_of::<u128>() {
            return Self::Inline(MaybeUninit::uninit());
        }
        // SAFETY: the size is not zero: it is larger than INLINE, or padded to an alignment above 16; or the value is empty.
        let memory = if layout.size() == 0 { Some(empty(layout)) } else { NonNull::new(unsafe { alloc(layout) }) };
        Self::Heap(memory.unwrap_or_else(|| handle_alloc_error(layout)), layout)
    }

    fn slot(&mut self) -> *mut () {
        match self {
            Self::Inline(memory) => memory.as_mut_ptr().cast(),
            Self::Heap(memory, _) => memory.as_ptr().cast(),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Heap(memory, layout) = self
            && layout.size() != 0
        {
            // SAFETY: allocated with this layout by `new`, freed once.
            unsafe { dealloc(memory.as_ptr(), *layout) };
        }
    }
}

/// An address that is aligned as asked, for values without a size.
fn empty(layout: Layout) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not zero")
}
