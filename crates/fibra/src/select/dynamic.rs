//! [`Select`]: a select over a set of operations that is known only at run time, as in crossbeam-channel.
//!
//! It completes in two steps: [`Select::select`] does the operation as far as it can be done without the value's type, and the
//! [`SelectedOperation`] does the rest. A value received is held in between (and put back if the operation is dropped); for a send a place is
//! reserved, in a rendezvous one of the receivers who wait. The peer of a receive is through with it at once; the peer of a send stays
//! as cancellable as before, and if it has gone elsewhere meanwhile the value waits for the next one. So a forgotten operation holds up nobody
//! for ever but whoever needs that one place.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use super::case::Case;
use super::engine::{self, Patience};
use super::port::{Op, Port};
use crate::channel::state::outcome;
use crate::channel::{
    ReadyTimeoutError, Receiver, RecvError, SelectTimeoutError, SendError, Sender, TryReadyError, TrySelectError,
};
use crate::time::Instant;

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
    few: [Option<Entry<'a>>; FEW],
    /// Instead of `few`, if there are more.
    many: Vec<Option<Entry<'a>>>,
    count: usize,
    biased: bool,
}

/// One operation.
#[derive(Clone, Copy)]
struct Entry<'a> {
    port: &'a dyn Port,
    op: Op,
    /// Of the value, for a receive.
    layout: Layout,
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Select<'_> {
    fn clone(&self) -> Self {
        Self { few: self.few, many: self.many.clone(), count: self.count, biased: self.biased }
    }
}

impl<'a> Select<'a> {
    /// An empty set. Among operations that are ready one is chosen at random.
    pub fn new() -> Self {
        Self { few: [None; FEW], many: Vec::new(), count: 0, biased: false }
    }

    /// An empty set. Among operations that are ready the one added first is chosen.
    pub fn new_biased() -> Self {
        Self { biased: true, ..Self::new() }
    }

    /// Adds a send and returns its index.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Entry { port: sender.chan(), op: Op::Reserve, layout: Layout::new::<()>() })
    }

    /// Adds a receive and returns its index.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(Entry { port: receiver.chan(), op: Op::Recv, layout: Layout::new::<T>() })
    }

    fn add(&mut self, entry: Entry<'a>) -> usize {
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

    fn entries(&self) -> &[Option<Entry<'a>>] {
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
        let told = Cell::new(0);
        self.with_cases(
            |entry| {
                let op = if entry.op == Op::Recv { Op::ReadyRecv } else { Op::ReadySend };
                // SAFETY: these operations have no slot.
                unsafe { Case::port(entry.port, op, std::ptr::null_mut(), &told) }
            },
            |cases| engine::run(cases, self.biased, patience, site),
        )
    }

    fn run(&self, patience: Patience, site: &'static Location<'static>) -> Option<SelectedOperation<'a>> {
        let told = Cell::new(0);
        // One of them is filled at most, so one room serves all.
        let mut room = Room::for_all(self.entries().iter().flatten().map(|entry| entry.layout));
        let slot = room.slot();
        let index = self.with_cases(
            // SAFETY: the room is large enough for every one of them, and only the one that completes is written. It outlives the cases.
            |entry| unsafe { Case::port(entry.port, entry.op, slot, &told) },
            |cases| engine::run(cases, self.biased, patience, site),
        )?;
        let entry = self.entries()[index].expect("it was a case");
        let stage = match (entry.op, told.get()) {
            (Op::Recv, outcome::DONE) => Stage::Received,
            (Op::Reserve, outcome::DONE) => Stage::Reserved,
            _ => Stage::Closed,
        };
        Some(SelectedOperation { port: entry.port, is_recv: entry.op == Op::Recv, index, stage, room })
    }

    /// Makes the cases, on the stack if they are few.
    fn with_cases<'c, R>(&self, case: impl Fn(&Entry<'a>) -> Case<'c>, f: impl FnOnce(&mut [Case<'c>]) -> R) -> R
    where
        'a: 'c,
    {
        let make = |entry: &Option<Entry<'a>>| entry.as_ref().map_or_else(Case::off, &case);
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

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The value is in the room.
    Received,
    /// A place is reserved.
    Reserved,
    /// The channel is closed.
    Closed,
    /// The second step was taken.
    Over,
}

/// An operation of a [`Select`] that was chosen and has to be completed, by [`send`](Self::send) or [`recv`](Self::recv) on the very channel
/// it is for. Neither waits.
///
/// # Panics
/// Dropping it instead panics, as in crossbeam-channel; what was received goes back into the channel before that.
#[must_use = "a selected operation has to be completed"]
pub struct SelectedOperation<'a> {
    port: &'a dyn Port,
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
        match mem::replace(&mut self.stage, Stage::Over) {
            // SAFETY: the engine wrote a value of this channel's type, which is `T`: it is this very channel. It is read once.
            Stage::Received => Ok(unsafe { self.room.slot().cast::<T>().read() }),
            _ => Err(RecvError),
        }
    }

    /// By address and by id: an empty channel type may share its address with nothing else, and ids are never reused.
    #[track_caller]
    fn check(&mut self, right_kind: bool, port: &dyn Port, what: &str) {
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
            complete || std::thread::panicking(),
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
    fn for_all(layouts: impl Iterator<Item = Layout>) -> Self {
        let (mut size, mut align) = (0, 1);
        for layout in layouts {
            size = size.max(layout.size());
            align = align.max(layout.align());
        }
        if size <= INLINE && align <= align_of::<u128>() {
            return Self::Inline(MaybeUninit::uninit());
        }
        let layout = Layout::from_size_align(size, align).expect("the largest of valid layouts").pad_to_align();
        // SAFETY: the size is not zero: it is larger than INLINE, or padded to an alignment above 1.
        let memory = if layout.size() == 0 { Some(NonNull::dangling()) } else { NonNull::new(unsafe { alloc(layout) }) };
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
            // SAFETY: allocated with this layout by `for_all`, freed once.
            unsafe { dealloc(memory.as_ptr(), *layout) };
        }
    }
}
