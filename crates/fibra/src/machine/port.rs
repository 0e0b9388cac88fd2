//! Ports: the four queues by which a machine receives and sends, and what a machine sees of them during a tick.
//!
//! Above: machines. Below: `op`, `node`, `routing`.
//!
//! A queue is a list through the operations themselves: putting in and taking out cost a few instructions and never
//! allocate, and nothing can overflow. First in, first out. An operation in a queue belongs to the queue; a queue that
//! is dropped drops its operations, which sends requests, answers and notifications home. (For cancellations, the code
//! that drops the queue is responsible: see `Routing::retire`.)
//!
//! Invariants: `port_in` of a machine is filled by its loop (or, for a child, by its parent's port) and emptied by the
//! machine; `port_out` is filled by the machine's [`Ports`] and emptied by its loop (or its parent). Both are on one
//! thread.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use super::address::MachineRef;
use super::link::{Link, LinkKind};
use super::machine::Child;
use super::node::{NodeRef, OpNode, OpStage, Owned};
use super::op::{Cancel, Done, Notice, Op, OpId, Request, Timestamp};
use super::routing::Routing;
use crate::prim::fifo::Fifo;
use crate::prim::mpsc::Batch;

/// The kinds of messages that can be in a queue. Sealed.
pub trait Queued: sealed::Linkable {}

mod sealed {
    use super::{Cancel, Done, Link, LinkKind, NodeRef, NonNull, Notice, OpNode, Owned, Request};

    /// Gives up a handle for the link of its node in the role that the handle stands for, and back.
    pub trait Linkable: Sized {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn into_link(self) -> NonNull<Link>;
        /// # Safety
        /// The link came from `into_link` of the same type, and this is the only time that it is taken back.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        unsafe fn from_link(link: NonNull<Link>) -> Self;
        /// The message leaves the queue for good, into the hands of a machine. False: the machine need not see it.
        #[doc(hidden)]
        fn opened(&mut self) -> bool {
            true
        }
        /// The message is dropped with its queue.
        #[doc(hidden)]
        fn discarded(self) {}
    }

    macro_rules! linkable {
        ($handle:ident { $field:ident: $right:ident } as $kind:ident $(, $own:item)*) => {
            #[allow(private_interfaces)]
            impl Linkable for $handle {
                fn into_link(self) -> NonNull<Link> {
                    OpNode::link(self.$field.into_raw(), LinkKind::$kind)
                }
                unsafe fn from_link(link: NonNull<Link>) -> Self {
                    // SAFETY: the caller's promise: a living node, whose right was given up for the link.
                    let (node, kind) = unsafe { Link::node(link) };
                    debug_assert_eq!(kind, LinkKind::$kind);
                    // SAFETY: as above.
                    Self { $field: unsafe { $right::from_raw(node) } }
                }
                $($own)*
            }
        };
    }

    linkable!(Request { owned: Owned } as Main);
    linkable!(
        Done { owned: Owned } as Main,
        fn opened(&mut self) -> bool {
            // Not called while a parent passes the answer on.
            self.owned.acknowledge();
            true
        }
    );
    linkable!(
        Cancel { node: NodeRef } as Cancel,
        fn opened(&mut self) -> bool {
            // Too late: the completion has won, and the machine need not know.
            !self.node.is_answered()
        }
    );
    linkable!(
        Notice { node: NodeRef } as Note,
        fn opened(&mut self) -> bool {
            // First unmarked, then handled: a write from here on rings anew.
            self.node.unring();
            !self.node.is_acknowledged()
        },
        fn discarded(self) {
            self.by_mail();
        }
    );
}

impl Queued for Request {}
impl Queued for Done {}
impl Queued for Cancel {}
impl Queued for Notice {}

use sealed::Linkable;

/// A list through the operations in it: first in, first out.
pub struct Queue<T: Queued> {
    list: Fifo<Link>,
    length: usize,
    _items: PhantomData<T>,
}

impl<T: Queued> Queue<T> {
    pub(super) fn new() -> Self {
        Self { list: Fifo::new(), length: 0, _items: PhantomData }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        // SAFETY: the item was given up for its link, which is the queue's now.
        unsafe { self.list.push_back(item.into_link()) };
        self.length += 1;
    }

    /// Takes the oldest out, on the way to somewhere else.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        let link = self.list.pop_front()?;
        self.length -= 1;
        // SAFETY: put in by `push`, and out of the queue now.
        Some(unsafe { T::from_link(link) })
    }

    /// Takes the oldest out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        loop {
            let mut item = self.take()?;
            if item.opened() {
                return Some(item);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<T: Queued> Drop for Queue<T> {
    fn drop(&mut self) {
        while let Some(item) = self.take() {
            item.discarded();
        }
    }
}

impl<T: Queued> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.length).finish()
    }
}

/// One side of a machine: four queues.
#[derive(Debug)]
pub struct Port {
    /// Operations to be done.
    pub submissions: Queue<Request>,
    /// Operations that are not wanted any more.
    pub cancellations: Queue<Cancel>,
    /// Answers.
    pub completions: Queue<Done>,
    /// Standing operations that were rung.
    pub notifications: Queue<Notice>,
}

impl Port {
    pub(super) fn new() -> Self {
        Self {
            submissions: Queue::new(),
            cancellations: Queue::new(),
            completions: Queue::new(),
            notifications: Queue::new(),
        }
    }

    /// Whether all four queues are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty()
            && self.cancellations.is_empty()
            && self.completions.is_empty()
            && self.notifications.is_empty()
    }

    /// The next message of any kind: submissions first and then cancellations, so that a cancellation never comes
    /// before its operation; notifications before completions, so that a standing operation never rings after its end.
    #[allow(clippy::should_implement_trait)] // A port is no iterator: it may have more later.
    pub fn next(&mut self) -> Option<Message> {
        let message = self.submissions.pop().map(Message::Submission);
        let message = message.or_else(|| self.cancellations.pop().map(Message::Cancellation));
        let message = message.or_else(|| self.notifications.pop().map(Message::Notification));
        message.or_else(|| self.completions.pop().map(Message::Completion))
    }

    pub(super) fn push(&mut self, message: Message) {
        match message {
            Message::Submission(request) => self.submissions.push(request),
            Message::Cancellation(cancel) => self.cancellations.push(cancel),
            Message::Completion(done) => self.completions.push(done),
            Message::Notification(notice) => self.notifications.push(notice),
        }
    }
}

/// Anything that can be in a port.
#[derive(Debug)]
pub enum Message {
    /// An operation to be done.
    Submission(Request),
    /// An operation that is not wanted any more.
    Cancellation(Cancel),
    /// An answer.
    Completion(Done),
    /// A standing operation was rung.
    Notification(Notice),
}

impl Message {
    pub(super) fn into_link(self) -> NonNull<Link> {
        match self {
            Self::Submission(request) => request.into_link(),
            Self::Cancellation(cancel) => cancel.into_link(),
            Self::Completion(done) => done.into_link(),
            Self::Notification(notice) => notice.into_link(),
        }
    }

    /// The kind travels with the link: its role, and the state of the operation.
    ///
    /// # Safety
    /// The link came from [`Message::into_link`] or from a node's own ring or drop, and this is the only time that it is taken back.
    pub(super) unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: the caller's promise.
        let (_, kind) = unsafe { Link::node(link) };
        match kind {
            // SAFETY: as above, here and below.
            LinkKind::Cancel => Self::Cancellation(unsafe { Cancel::from_link(link) }),
            // SAFETY: as above.
            LinkKind::Note => Self::Notification(unsafe { Notice::from_link(link) }),
            LinkKind::Main => {
                // SAFETY: as above.
                let request = unsafe { Request::from_link(link) };
                match request.owned.state() {
                    OpStage::Fresh | OpStage::Submitted => Self::Submission(request),
                    OpStage::Answered | OpStage::Home | OpStage::Acknowledged => {
                        Self::Completion(Done { owned: request.owned })
                    }
                }
            }
        }
    }
}

/// Messages that came out of a loop's mail, or could not get in; to be taken one by one, oldest first.
pub(super) struct Messages(Batch<Link>);

impl Messages {
    /// # Safety
    /// Each link came from [`Message::into_link`] or from a node's own ring or drop, and belongs to the caller, which gives it up.
    pub(super) unsafe fn new(links: Batch<Link>) -> Self {
        Self(links)
    }
}

impl Iterator for Messages {
    type Item = Message;
    fn next(&mut self) -> Option<Message> {
        // SAFETY: the links are ours (see `new`), and each is taken back once.
        self.0.next().map(|link| unsafe { Message::from_link(link) })
    }
}

impl From<Request> for Message {
    fn from(request: Request) -> Self {
        Self::Submission(request)
    }
}

impl From<Cancel> for Message {
    fn from(cancel: Cancel) -> Self {
        Self::Cancellation(cancel)
    }
}

impl From<Done> for Message {
    fn from(done: Done) -> Self {
        Self::Completion(done)
    }
}

impl From<Notice> for Message {
    fn from(notice: Notice) -> Self {
        Self::Notification(notice)
    }
}

/// The operation is not in flight: never submitted by this machine, or answered already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotInFlight;

impl fmt::Display for NotInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such operation of this machine is in flight")
    }
}

impl std::error::Error for NotInFlight {}

/// The interface of a machine during a tick: its input, and its ways out.
#[derive(Debug)]
pub struct Ports<'a> {
    /// The messages that came for this machine. Messages that it leaves here it finds at its next tick.
    pub input: &'a mut Port,
    pub(super) out: &'a mut Port,
    pub(super) routing: &'a Rc<Routing>,
    pub(super) me: u32,
    /// The machine is a child: its parent has to learn of what it puts out. For a root, its loop looks after each tick.
    pub(super) is_child: bool,
}

impl Ports<'_> {
    /// This machine.
    #[inline]
    pub fn me(&self) -> MachineRef {
        MachineRef { thread: self.routing.thread(), machine: self.me }
    }

    /// Submits an operation: it will come back exactly once, in `input.completions`.
    ///
    /// # Panics
    /// If it has no [destination](Op::to) and there is no default: for the platform of a worker, which has no app.
    #[inline]
    pub fn submit<D: Send + 'static>(&mut self, op: Op<D>) -> OpId {
        let request = op.into_request();
        let id = request.id();
        self.depart(request);
        id
    }

    /// The same for data of any type.
    fn depart(&mut self, mut request: Request) {
        let me = self.me();
        request.owned.fix(|fixed| fixed.source = Some(me));
        self.routing.departs(&mut request.owned, self.me);
        if request.destination().is_none() {
            self.routing.check_destination(self.me, &request);
        }
        self.out.submissions.push(request);
        self.signal();
    }

    /// Asks for an operation of this machine to end early. The answer comes in any case, in `input.completions`; if the
    /// target was faster, it is the target's own. Asking twice has the effect of asking once.
    ///
    /// # Errors
    /// No operation of that number is in flight from this machine: its answer may be in `input.completions` already.
    pub fn cancel(&mut self, id: OpId) -> Result<(), NotInFlight> {
        if let Some(node) = self.routing.cancel(id, self.me)? {
            self.put(Cancel { node });
        }
        Ok(())
    }

    /// Answers a request. It goes back to its source, wherever that is.
    #[inline]
    pub fn complete(&mut self, mut request: Request, result: i32) {
        request.owned.answer(result);
        self.out.completions.push(Done { owned: request.owned });
        self.signal();
    }

    /// Rings a standing operation: its initiator gets a [`Notice`]. False if one is under way already, which stands for this one too.
    pub fn ring(&mut self, request: &Request) -> bool {
        let rung = request.owned.ring();
        let first = rung.is_some();
        if let Some(node) = rung {
            self.put(Message::Notification(Notice { node }));
        }
        first
    }

    /// Passes on a message of a child, or one that came in and is for another machine: a request to its destination, a
    /// cancellation after the operation that it is for, an answer or a notification to the operation's source.
    ///
    /// # Panics
    /// If it is a child's request without a destination, and there is no parent above this machine that could still say one.
    pub fn forward(&mut self, message: impl Into<Message>) {
        let message = message.into();
        // Taken out, a notification can be rung again. If it was, that ring stands for this one.
        if let Message::Notification(notice) = &message
            && !notice.node.mark_rung()
        {
            return;
        }
        self.put(message);
    }

    /// Creates a child of this machine: the caller owns it, ticks it and sees to what it puts out.
    pub fn child<M: super::Machine>(&mut self, machine: M) -> Child<M> {
        Child::new(self.routing.clone(), self.me, machine)
    }

    /// How many operations of this machine are in flight.
    pub fn in_flight(&self) -> usize {
        self.routing.in_flight(self.me)
    }

    /// Ends this loop after the round: the app is dropped first, its operations are cancelled and waited for, then the platform. On a
    /// worker of a runtime, where other machines go on, it is this machine (with its parents) that is dropped.
    pub fn stop(&mut self) {
        self.routing.stop(self.me);
    }

    /// Ends every loop of the mesh. On a worker of a runtime it is as [`stop`](Self::stop).
    pub fn stop_all(&mut self) {
        self.routing.stop_all(self.me);
    }

    /// The time at which this round began.
    pub fn now(&self) -> Timestamp {
        self.routing.now()
    }

    #[inline]
    fn signal(&self) {
        if self.is_child {
            self.routing.signal_child(self.me);
        }
    }

    fn put(&mut self, message: impl Into<Message>) {
        let message = message.into();
        if let Message::Submission(request) = &message
            && request.destination().is_none()
        {
            self.routing.check_destination(self.me, request);
        }
        self.out.push(message);
        self.signal();
    }
}
