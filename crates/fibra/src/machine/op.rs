//! Operations, as machines see them: one type of handle for each right.
//!
//! Above: machines. Below: `node`, whose rules these handles carry out.
//!
//! | handle | held by | means |
//! |---|---|---|
//! | [`Op<D>`] | the initiator | not submitted yet: may be changed |
//! | [`Request`] | the target, or a parent in between | the initiator waits for the answer |
//! | [`Done`] | the initiator again | answered |
//! | [`Cancel`] | the target | the initiator does not want it any more |
//! | [`Notice`] | the initiator | a standing operation was rung |
//! | [`Doorbell`] | any code, on any thread | may ring a standing operation |
//!
//! The same memory serves from `Op` to `Done`; nothing is copied and nothing allocated. Dropping a handle is always
//! allowed: a dropped `Request` is answered with [`ABANDONED`](super::ABANDONED), a dropped `Done` returns the
//! operation to its pool, dropping the others has no effect. A drop never panics: if the destructor of the data does,
//! the panic hook reports it and the panic ends there.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::address::{MachineRef, NOWHERE};
use super::mail::Post;
use super::node::{Fixed, NodeRef, OpStage, Owned};
use crate::prim::sync::Arc;

/// The opcode that a loop handles itself: the operation is answered with 0 when its [deadline](Op::at) has come. All
/// other opcodes belong to the machines.
pub const OP_TIMER: u32 = u32::MAX;

/// A moment, in nanoseconds of the one monotonic clock of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub(super) u64);

impl Timestamp {
    /// The moment that is so many nanoseconds after the beginning of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl std::ops::Add<std::time::Duration> for Timestamp {
    type Output = Self;
    fn add(self, later: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub for Timestamp {
    type Output = std::time::Duration;
    fn sub(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The number of an operation: no two in a process have the same, ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(super) u64);

impl OpId {
    /// As a number; never 0.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a trace: that of its first operation, and the same for all that it caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub(super) u64);

impl TraceId {
    /// As a number; never 0.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The questions that every handle answers about its operation.
macro_rules! describe {
    ($($generic:ident)?; $handle:ty) => {
        impl<$($generic: Send + 'static)?> $handle {
            /// The number of the operation.
            #[inline]
            pub fn id(&self) -> OpId {
                OpId(self.facts().id)
            }

            /// The trace that it belongs to.
            pub fn trace(&self) -> TraceId {
                TraceId(self.facts().trace)
            }

            /// The operation that caused it, if any.
            pub fn parent(&self) -> Option<OpId> {
                Some(self.facts().parent).filter(|id| *id != 0).map(OpId)
            }

            /// The kind of work that is asked for.
            #[inline]
            pub fn opcode(&self) -> u32 {
                self.facts().opcode
            }

            /// Whether it goes on until it is cancelled or fails, and is rung in between.
            pub fn is_standing(&self) -> bool {
                self.facts().standing
            }

            /// The machine that submitted it. None before that.
            #[inline]
            pub fn source(&self) -> Option<MachineRef> {
                self.facts().source
            }
        }
    };
}

describe!(D; Op<D>);
describe!(; Request);
describe!(; Done);
describe!(; Cancel);
describe!(; Notice);

/// An operation that was not submitted yet. Its data is reached through `*`; dropped, it goes back to its pool.
#[must_use = "an operation does nothing until it is submitted"]
pub struct Op<D> {
    owned: Owned,
    _data: PhantomData<D>,
}

impl<D: Send + 'static> Op<D> {
    #[inline]
    pub(super) fn new(owned: Owned) -> Self {
        Self { owned, _data: PhantomData }
    }

    #[inline]
    pub(super) fn into_request(self) -> Request {
        Request { owned: self.owned }
    }

    #[inline]
    fn facts(&self) -> Fixed {
        self.owned.fixed()
    }

    /// Sets the machine that is to carry it out. Without this, the app's operations go to the platform of its loop, and
    /// the platform's to the app; a child must set it.
    #[inline]
    pub fn to(mut self, destination: MachineRef) -> Self {
        self.owned.moved(|moving| moving.destination = Some(destination));
        self
    }

    /// Says that this operation is done on behalf of `cause`: it joins the trace of `cause`, with `cause` as its
    /// parent.
    pub fn caused_by(mut self, cause: &Request) -> Self {
        let cause = cause.facts();
        self.owned.fix(|fixed| (fixed.trace, fixed.parent) = (cause.trace, cause.id));
        self
    }

    /// Makes it a standing operation: it goes on until it is cancelled or fails, and its target [rings](super::Ports::ring) in between.
    pub fn standing(mut self) -> Self {
        self.owned.fix(|fixed| fixed.standing = true);
        self
    }

    /// When an [`OP_TIMER`] is due. Without it, at once.
    pub fn at(mut self, deadline: Timestamp) -> Self {
        self.owned.moved(|moving| moving.deadline = deadline.0);
        self
    }
}

impl<D: Send + 'static> Deref for Op<D> {
    type Target = D;
    fn deref(&self) -> &D {
        self.owned.data().and_then(Option::as_ref).expect("an operation has the data that it was taken with")
    }
}

impl<D: Send + 'static> DerefMut for Op<D> {
    fn deref_mut(&mut self) -> &mut D {
        self.owned.data_mut().and_then(Option::as_mut).expect("an operation has the data that it was taken with")
    }
}

/// An operation that was submitted and waits for its answer: [`Ports::complete`](super::Ports::complete), now or later;
/// or [`Ports::forward`](super::Ports::forward). Dropped, it is answered with [`ABANDONED`](super::ABANDONED).
#[must_use = "a dropped request is answered with ABANDONED"]
pub struct Request {
    pub(super) owned: Owned,
}

impl Request {
    #[inline]
    fn facts(&self) -> Fixed {
        self.owned.fixed()
    }

    /// Its data, if that is a `D`.
    #[inline]
    pub fn data<D: Send + 'static>(&self) -> Option<&D> {
        self.owned.data().and_then(Option::as_ref)
    }

    /// Its data, if that is a `D`: this is how the target hands back more than a number.
    #[inline]
    pub fn data_mut<D: Send + 'static>(&mut self) -> Option<&mut D> {
        self.owned.data_mut().and_then(Option::as_mut)
    }

    /// The machine that is to carry it out, if the initiator or a loop has set one.
    #[inline]
    pub fn destination(&self) -> Option<MachineRef> {
        self.owned.moving().destination
    }

    /// Sends it elsewhere when it is [forwarded](super::Ports::forward).
    #[inline]
    pub fn set_destination(&mut self, destination: MachineRef) {
        self.owned.moved(|moving| moving.destination = Some(destination));
    }

    /// When it is due, if it is an [`OP_TIMER`].
    pub fn deadline(&self) -> Timestamp {
        Timestamp(self.owned.moving().deadline)
    }

    /// Answers it from anywhere: a machine may hand a request to a fiber or to another thread, which does the work and calls this. The
    /// answer goes home by mail. On the machine's own loop [`Ports::complete`](super::Ports::complete) is the shorter way, and keeps the
    /// order: an answer by mail may overtake those that the machine gave through its ports in the same tick.
    ///
    /// ```
    /// use fibra::channel::{Sender, unbounded};
    /// use fibra::machine::{Machine, Ports, Request, Timestamp};
    ///
    /// /// Lets a fiber do the work.
    /// struct Front(Sender<Request>);
    ///
    /// impl Machine for Front {
    ///     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
    ///         while let Some(request) = ports.input.submissions.pop() {
    ///             let _ = self.0.send(request); // Not taken, it is dropped, and so answered.
    ///         }
    ///     }
    /// }
    ///
    /// let rt = fibra::Runtime::builder().workers(2).build()?;
    /// let (sender, requests) = unbounded();
    /// let front = rt.attach(Front(sender));
    /// rt.spawn(move || {
    ///     for request in requests {
    ///         let number = *request.data::<i32>().unwrap();
    ///         fibra::sleep(std::time::Duration::from_millis(1));
    ///         request.answer(number + 1);
    ///     }
    /// });
    /// assert_eq!(rt.run(|| front.call(0, 41).unwrap().result), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn answer(mut self, result: i32) {
        self.owned.answer(result);
    }

    /// A handle by which any thread can ring this operation.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::new(self.owned.reference())
    }
}

/// An operation that was answered. Dropped, it goes back to its pool.
pub struct Done {
    pub(super) owned: Owned,
}

impl Done {
    #[inline]
    fn facts(&self) -> Fixed {
        self.owned.fixed()
    }

    /// The answer: the target's, or [`CANCELLED`](super::CANCELLED), [`ABANDONED`](super::ABANDONED),
    /// [`UNREACHABLE`](super::UNREACHABLE).
    #[inline]
    pub fn result(&self) -> i32 {
        self.owned.moving().result
    }

    /// Its data, if that is a `D`.
    #[inline]
    pub fn data<D: Send + 'static>(&self) -> Option<&D> {
        self.owned.data().and_then(Option::as_ref)
    }

    /// Takes the data out, if that is a `D`, and returns the operation to its pool.
    ///
    /// # Errors
    /// The data is not a `D`, or this is the answer of a child on its way to its initiator, which owns the data: the
    /// operation comes back.
    #[inline]
    pub fn into_data<D: Send + 'static>(mut self) -> Result<D, Self> {
        if self.owned.state() < OpStage::Home {
            return Err(self);
        }
        match self.owned.data_mut::<D>().and_then(Option::take) {
            Some(data) => Ok(data),
            None => Err(self),
        }
    }
}

/// The request of an initiator that one of its operations end: answer that operation soon, usually with
/// [`CANCELLED`](super::CANCELLED). If it has been answered already, there is nothing to do. Dropping the `Cancel`
/// acknowledges it.
pub struct Cancel {
    pub(super) node: NodeRef,
}

impl Cancel {
    #[inline]
    fn facts(&self) -> Fixed {
        self.node.fixed()
    }

    /// The machine that it is for, once a loop or a parent has said so.
    #[inline]
    pub fn destination(&self) -> Option<MachineRef> {
        Some(self.node.cancel_to()).filter(|to| *to != NOWHERE).map(MachineRef::unpack)
    }

    /// Sends it elsewhere when it is [forwarded](super::Ports::forward): where the operation itself was forwarded to.
    #[inline]
    pub fn set_destination(&mut self, destination: MachineRef) {
        self.node.set_cancel_to(destination);
    }
}

/// A standing operation was rung: read everything in the memory that it shares with its target.
pub struct Notice {
    pub(super) node: NodeRef,
}

impl Notice {
    #[inline]
    fn facts(&self) -> Fixed {
        self.node.fixed()
    }

    /// It was queued and cannot go on as it is: rings anew, by mail. Otherwise the mark would stay set for ever, and no
    /// later ring would be delivered.
    pub(super) fn by_mail(self) {
        self.node.unring();
        self.node.ring();
    }
}

/// Rings a standing operation from anywhere: clone it, send it to other threads. The initiator gets one [`Notice`] for
/// any number of rings until it has taken it, and at least one after the last. While a doorbell exists, its loop does
/// not end for want of work.
///
/// # Panics
/// Making one panics when an operation has more than 2^24 of them: forgotten ones count.
pub struct Doorbell {
    node: NodeRef,
    home: Arc<Post>,
}

// SAFETY: a reference touches only what is fixed, atomic, or guarded by the mark that a ring sets: see `node`.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    fn new(node: NodeRef) -> Self {
        assert!(!node.is_crowded(), "fibra: there are millions of doorbells of operation {}", node.fixed().id);
        let home = node.home_post();
        home.enter();
        Self { node, home }
    }

    /// Rings. True if this ring is the one that is delivered; false if one is under way already, which then also stands
    /// for this one, or if the operation has ended.
    pub fn ring(&self) -> bool {
        self.node.ring()
    }

    /// The number of the operation.
    pub fn id(&self) -> OpId {
        OpId(self.node.fixed().id)
    }
}

impl Clone for Doorbell {
    fn clone(&self) -> Self {
        Self::new(self.node.clone())
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.home.leave();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Doorbell").field(&self.id()).finish()
    }
}

impl<D> fmt::Debug for Op<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Op").field(&self.owned).finish()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.owned).finish()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Done").field(&self.owned).finish()
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.id()).finish()
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notice").field(&self.id()).finish()
    }
}
