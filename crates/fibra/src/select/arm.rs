//! The arms of `select!`, with their types: each owns what its operation needs while the engine runs, and gives the result if it won.
//! Above: `private.rs`. Below: `case.rs`, `channel`.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::case::Case;
use crate::channel::chan::Chan;
use crate::channel::op::ChanOpKind;
use crate::channel::reason::Side;
use crate::channel::{CloseReason, Receiver, RecvError, SendError, Sender};
use crate::waiter::node::Outcome;

pub(crate) mod sealed {
    /// Only fibra's own operations can be arms: an arm takes part in the waiting protocol.
    pub trait Sealed {
        /// The object that the engine is to wait for; borrows from the arm.
        #[doc(hidden)]
        fn case(&mut self) -> super::Case<'_>;

        /// Is a try worth a lock? Asked in the first pass, when there is no case yet.
        #[doc(hidden)]
        #[inline]
        fn may_be_ready(&mut self) -> bool {
            self.case().may_be_ready(None)
        }

        /// Completes it if it is ready: the first pass.
        #[doc(hidden)]
        #[inline]
        fn complete(&mut self) -> bool {
            self.case().complete(None)
        }
    }
}

/// An operation that can be an arm of [`select!`](crate::select), by `on(operation)`. It does nothing by itself.
///
/// ```
/// let (tx, rx) = fibra::channel::bounded(1);
/// tx.send(3).unwrap();
/// let got = fibra::select! {
///     on(rx.receiving()) -> got => got,
/// };
/// assert_eq!(got, Ok(3));
/// ```
pub trait Arm: sealed::Sealed {
    /// What the arm yields if it wins.
    type Output;

    /// The result of the arm that won, once. (By reference: the arms of a select are dropped all together, or its code would grow with the
    /// square of their number.)
    #[doc(hidden)]
    fn finish(&mut self) -> Self::Output;
}

#[cold]
#[track_caller]
fn lost() -> ! {
    panic!("fibra: the result of an arm that did not win")
}

// ---- Receiving ------------------------------------------------------------------------------------------------------------

/// Receiving, as an arm; see [`Receiver::receiving`].
pub struct RecvArm<'a, T> {
    chan: &'a Chan<T>,
    slot: MaybeUninit<T>,
    told: Cell<Outcome>,
}

// SAFETY: it borrows a channel and holds at most a `T`; the pointers to it live only while the select runs.
unsafe impl<T: Send> Send for RecvArm<'_, T> {}

impl<'a, T> RecvArm<'a, T> {
    pub(crate) fn new(receiver: &'a Receiver<T>) -> Self {
        Self { chan: receiver.chan(), slot: MaybeUninit::uninit(), told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for RecvArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        drop_received(self);
        // SAFETY: the slot is room for a `T`, borrowed for as long as the case lives; if DONE, `finish` or the destructor reads it.
        unsafe {
            Case::channel(self.chan, self.chan.hint_word(), ChanOpKind::Recv, self.slot.as_mut_ptr().cast(), &self.told)
        }
    }

    #[inline(always)]
    fn may_be_ready(&mut self) -> bool {
        ChanOpKind::Recv.may_be_ready(self.chan.hint_word())
    }

    #[inline]
    fn complete(&mut self) -> bool {
        drop_received(self);
        // SAFETY: the slot is room for a `T`; if DONE, `finish` or the destructor reads it.
        told(&self.told, unsafe { self.chan.try_take(self.slot.as_mut_ptr()) })
    }
}

/// Notes the outcome of a try. False: there is none yet.
#[inline(always)]
fn told(told: &Cell<Outcome>, tried: Outcome) -> bool {
    told.set(tried);
    tried != Outcome::Pending
}

/// Drops a value that was received and not taken.
#[inline(always)]
fn drop_received<T>(arm: &mut RecvArm<'_, T>) {
    if arm.told.replace(Outcome::Pending) == Outcome::Done {
        // SAFETY: DONE: it was written, and `told` is reset, so it is dropped once.
        unsafe { arm.slot.assume_init_drop() };
    }
}

impl<T> Arm for RecvArm<'_, T> {
    type Output = Result<T, RecvError>;

    fn finish(&mut self) -> Self::Output {
        self.chan.free_if_spare();
        match self.told.replace(Outcome::Pending) {
            // SAFETY: DONE: it was written, and `told` is reset, so it is read once.
            Outcome::Done => Ok(unsafe { self.slot.assume_init_read() }),
            Outcome::Closed => Err(RecvError),
            _ => lost(),
        }
    }
}

impl<T> Drop for RecvArm<'_, T> {
    fn drop(&mut self) {
        drop_received(self);
    }
}

// ---- Sending --------------------------------------------------------------------------------------------------------------

/// Sending, as an arm that owns its value; see [`Sender::sending`]. If it does not win, the value is dropped with it.
pub struct SendArm<'a, T> {
    chan: &'a Chan<T>,
    value: ManuallyDrop<T>,
    told: Cell<Outcome>,
}

impl<'a, T> SendArm<'a, T> {
    pub(crate) fn new(sender: &'a Sender<T>, value: T) -> Self {
        Self { chan: sender.chan(), value: ManuallyDrop::new(value), told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for SendArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        if self.told.get() == Outcome::Done {
            lost();
        }
        // SAFETY: the slot holds a `T`, borrowed for as long as the case lives; if DONE, it is not touched again.
        unsafe {
            Case::channel(self.chan, self.chan.hint_word(), ChanOpKind::Send, (&raw mut *self.value).cast(), &self.told)
        }
    }

    #[inline(always)]
    fn may_be_ready(&mut self) -> bool {
        ChanOpKind::Send.may_be_ready(self.chan.hint_word())
    }

    #[inline]
    fn complete(&mut self) -> bool {
        if self.told.get() == Outcome::Done {
            lost();
        }
        // SAFETY: it holds a `T`; if DONE, that is not touched again.
        told(&self.told, unsafe { self.chan.try_offer(&raw const *self.value) })
    }
}

impl<T> Arm for SendArm<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn finish(&mut self) -> Self::Output {
        match self.told.get() {
            Outcome::Done => Ok(()),
            Outcome::Closed => {
                // Marked as sent: the value is gone, for the destructor and for a second call.
                self.told.set(Outcome::Done);
                // SAFETY: it was not sent, and is taken once.
                Err(SendError(unsafe { ManuallyDrop::take(&mut self.value) }))
            }
            _ => lost(),
        }
    }
}

impl<T> Drop for SendArm<'_, T> {
    fn drop(&mut self) {
        if self.told.get() != Outcome::Done {
            // SAFETY: it was not sent, and not taken out by `finish`, which would have said so.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Sending a value that lies in a variable of the user's.
pub struct SendFromArm<'a, T> {
    chan: &'a Chan<T>,
    place: *const T,
    told: Cell<Outcome>,
    _value: PhantomData<T>,
}

// SAFETY: it points at a `T` that it may move away, as if it held the value; the pointer is used only while the select runs and by
// `finish`.
unsafe impl<T: Send> Send for SendFromArm<'_, T> {}

impl<'a, T> SendFromArm<'a, T> {
    /// # Safety
    /// `place` stays a valid, untouched `T` until the select has returned. If this arm wins, the caller forgets it: it has moved.
    pub(super) unsafe fn new(sender: &'a Sender<T>, place: *const T) -> Self {
        Self { chan: sender.chan(), place, told: Cell::new(Outcome::Pending), _value: PhantomData }
    }
}

impl<T> sealed::Sealed for SendFromArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        if self.told.get() != Outcome::Pending {
            lost();
        }
        // SAFETY: the contract of `new`.
        unsafe {
            Case::channel(self.chan, self.chan.hint_word(), ChanOpKind::Send, self.place.cast_mut().cast(), &self.told)
        }
    }

    #[inline(always)]
    fn may_be_ready(&mut self) -> bool {
        ChanOpKind::Send.may_be_ready(self.chan.hint_word())
    }

    #[inline]
    fn complete(&mut self) -> bool {
        if self.told.get() != Outcome::Pending {
            lost();
        }
        // SAFETY: the contract of `new`.
        told(&self.told, unsafe { self.chan.try_offer(self.place) })
    }
}

impl<T> Arm for SendFromArm<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn finish(&mut self) -> Self::Output {
        match self.told.get() {
            Outcome::Done => Ok(()),
            Outcome::Closed => {
                self.told.set(Outcome::Done);
                // SAFETY: it was not sent, is taken once, and the caller, whose arm has won, forgets it.
                Err(SendError(unsafe { self.place.read() }))
            }
            _ => lost(),
        }
    }
}

// ---- The other side of a channel going ------------------------------------------------------------------------------------

/// Waiting for the other side of a channel to go, as an arm; see [`Sender::closing`] and [`Receiver::closing`].
pub struct ClosedArm<'a, T> {
    chan: &'a Chan<T>,
    side: Side,
    told: Cell<Outcome>,
}

impl<'a, T> ClosedArm<'a, T> {
    pub(crate) fn new(chan: &'a Chan<T>, side: Side) -> Self {
        Self { chan, side, told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for ClosedArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        // SAFETY: this operation has no slot.
        unsafe {
            Case::channel(
                self.chan,
                self.chan.hint_word(),
                ChanOpKind::Gone(self.side),
                std::ptr::null_mut(),
                &self.told,
            )
        }
    }

    #[inline(always)]
    fn may_be_ready(&mut self) -> bool {
        ChanOpKind::Gone(self.side).may_be_ready(self.chan.hint_word())
    }
}

impl<T> Arm for ClosedArm<'_, T> {
    type Output = CloseReason;

    fn finish(&mut self) -> CloseReason {
        self.chan.gone(self.side).unwrap_or_else(|| lost())
    }
}

/// Either end of a channel, for `closed(end)`.
pub trait End {
    /// The type of the channel's values.
    type Value;
    /// The arm that waits for the other side.
    fn closing(&self) -> ClosedArm<'_, Self::Value>;
}

impl<T> End for Sender<T> {
    type Value = T;
    fn closing(&self) -> ClosedArm<'_, T> {
        ClosedArm::new(self.chan(), Side::Receivers)
    }
}

impl<T> End for Receiver<T> {
    type Value = T;
    fn closing(&self) -> ClosedArm<'_, T> {
        ClosedArm::new(self.chan(), Side::Senders)
    }
}

macro_rules! pointer_to_end {
    ($($pointer:ty),+) => {$(
        impl<E: End + ?Sized> End for $pointer {
            type Value = E::Value;
            fn closing(&self) -> ClosedArm<'_, E::Value> {
                (**self).closing()
            }
        }
    )+};
}
pointer_to_end!(&E, &mut E, Box<E>, Rc<E>, Arc<E>);

// ---- Time, and switched off ------------------------------------------------------------------------------------------------

/// A time-out, as an arm.
#[derive(Debug)]
pub struct AfterArm {
    duration: Duration,
    told: Cell<Outcome>,
}

impl AfterArm {
    pub(super) fn new(duration: Duration) -> Self {
        Self { duration, told: Cell::new(Outcome::Pending) }
    }
}

impl sealed::Sealed for AfterArm {
    fn case(&mut self) -> Case<'_> {
        Case::after(self.duration, &self.told)
    }
}

impl Arm for AfterArm {
    type Output = ();
    fn finish(&mut self) {}
}

/// An arm with a guard: `None` if it is switched off.
impl<A: Arm> sealed::Sealed for Option<A> {
    fn case(&mut self) -> Case<'_> {
        self.as_mut().map_or_else(Case::off, sealed::Sealed::case)
    }

    #[inline(always)]
    fn may_be_ready(&mut self) -> bool {
        self.as_mut().is_some_and(sealed::Sealed::may_be_ready)
    }

    #[inline(always)]
    fn complete(&mut self) -> bool {
        self.as_mut().is_some_and(sealed::Sealed::complete)
    }
}

impl<A: Arm> Arm for Option<A> {
    type Output = A::Output;
    fn finish(&mut self) -> A::Output {
        self.as_mut().map_or_else(|| lost(), Arm::finish)
    }
}

macro_rules! debug {
    ($($arm:ident),+) => {$(
        impl<T> fmt::Debug for $arm<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($arm)).field("channel", self.chan).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(RecvArm, SendArm, SendFromArm, ClosedArm);
