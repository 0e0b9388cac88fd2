//! The state of one event loop: its machines, the operations in flight, the machines to tick, and the messages that are
//! to leave for other loops.
//!
//! Above: `port` (machines submit and cancel through it), `machine` (children register here) and `rounds`, which does the routing.
//! Below: `registry`, `mail`.
//!
//! All of it is used on the loop's own thread only.
//!
//! Invariants:
//! * `state` is never entered from within itself: what is called with it runs no user code, destructors of operations' data included;
//! * an operation is in the list of its source from its submission until its completion has come home, or the loop has
//!   [let go](Routing::let_go) of it.

use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;
use std::rc::Rc;

use super::address::{UNREACHABLE, place_of};
use super::flight::Flight;
use super::link::Link;
use super::mail::Post;
use super::mesh::Mesh;
use super::node::{InFlight, NodeRef, Owned};
use super::op::{Cancel, Done, OP_TIMER, OpId, Request, Timestamp};
use super::platform::Reactor;
use super::port::{Message, Messages, NotInFlight, Port, Queue, Queued};
use super::registry::{NO_MACHINE, RegistryState};
use super::table::Table;
use crate::prim::cell::OwnerCell;
use crate::prim::mpsc::Chain;
use crate::prim::sync::Arc;

/// The roots' own numbers.
pub(super) const APP: u32 = 0;
pub(super) const PLATFORM: u32 = 1;

/// The messages that are to leave for one other loop: they go out with one compare-exchange and at most one kick.
#[derive(Debug)]
pub(super) struct Outbox(Chain<Link>);

impl Outbox {
    pub(super) fn new() -> Self {
        Self(Chain::new())
    }

    fn push(&mut self, link: NonNull<Link>) {
        // SAFETY: the message was given up for its link, which is the outbox's now.
        unsafe { self.0.push(link) };
    }

    /// Sends everything. If that loop is gone, its operations are answered with [`UNREACHABLE`].
    fn flush(&mut self, to: &Post) {
        // SAFETY: the chain is the outbox's own.
        if !self.0.is_empty() && unsafe { to.send_chain(&mut self.0) }.is_err() {
            self.discard();
        }
    }

    /// Oldest first, as it would have arrived.
    fn discard(&mut self) {
        // SAFETY: put in by `push`, and out of the outbox now.
        unsafe { Messages::new(self.0.take_all()) }.for_each(unreachable_now);
    }
}

/// The destination of the message is gone, or cannot be reached from here: a request goes home with that answer,
/// answers and notifications go home by mail, cancellations end here.
pub(super) fn unreachable_now(message: Message) {
    match message {
        Message::Submission(mut request) => request.owned.answer(UNREACHABLE),
        Message::Notification(notice) => notice.by_mail(),
        Message::Completion(_) | Message::Cancellation(_) => {}
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.discard();
    }
}

/// What kind of loop it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A loop that user code runs ([`EventLoop`](super::EventLoop)): it ends when a machine says so.
    Thread,
    /// One of a runtime's workers: machines come and go.
    Worker,
}

#[derive(Debug)]
pub(super) struct Routing {
    pub(super) post: Arc<Post>,
    mesh: Arc<Mesh>,
    owner: Owner,
    pub(super) state: OwnerCell<RegistryState>,
    now: Cell<u64>,
    /// The reactor of the driver in which this loop sleeps.
    reactor: OnceCell<Rc<Reactor>>,
}

/// The messages that a loop still had when it ended, to be dropped after its mail is closed.
#[derive(Debug)]
pub(super) struct LeftOver {
    _timers: Queue<Request>,
    _inputs: Vec<Port>,
}

impl Routing {
    pub(super) fn new(post: Arc<Post>, mesh: Arc<Mesh>, owner: Owner) -> Self {
        let state = RegistryState::new(mesh.posts().len());
        Self { post, mesh, owner, state: OwnerCell::new(state), now: Cell::new(0), reactor: OnceCell::new() }
    }

    #[inline]
    pub(super) fn thread(&self) -> u32 {
        self.post.thread
    }

    /// Once, before the first round.
    pub(super) fn set_reactor(&self, reactor: Rc<Reactor>) {
        let _ = self.reactor.set(reactor);
    }

    pub(super) fn reactor(&self) -> Rc<Reactor> {
        self.reactor.get().expect("a loop that runs has a driver").clone()
    }

    /// A message came for a machine that is in no queue: the machine is ticked in the next round, with all machines
    /// above it.
    pub(super) fn stir(&self, machine: u32) {
        let is_there = self.state.with(|state| match state.slot(machine).map(|slot| (slot.gone, slot.parent)) {
            Some((false, NO_MACHINE)) => {
                state.mark(place_of(machine));
                true
            }
            Some((false, _)) => state.reach_child(place_of(machine)),
            Some((true, _)) | None => false,
        });
        if is_there {
            self.post.rouse();
        }
    }

    /// Whether there is a machine of this number, or operations of one that is gone.
    pub(super) fn is_known(&self, machine: u32) -> bool {
        self.state.with(|state| state.slot(machine).is_some())
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now.get())
    }

    /// The origin of an operation that was rung through a reference: this loop, another loop of the mesh, or (none)
    /// another mesh or a caller.
    pub(super) fn home_of(&self, node: &NodeRef) -> Option<u32> {
        let thread = node.fixed().source?.thread;
        self.mesh.post(thread).filter(|post| Arc::as_ptr(post) == node.home()).map(|_| thread)
    }

    pub(super) fn set_now(&self, now: u64) {
        self.now.set(now);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.mesh.posts().len() == 1
    }

    /// A machine asks its loop to end, or, on a worker, asks to be dropped.
    pub(super) fn stop(&self, machine: u32) {
        match (self.owner, self.root_of(machine)) {
            (Owner::Thread, _) => self.post.stop(),
            (Owner::Worker, Some(root)) => self.state.with(|state| state.leaving.push(root)),
            (Owner::Worker, None) => {}
        }
    }

    /// The same for every loop.
    pub(super) fn stop_all(&self, machine: u32) {
        match self.owner {
            Owner::Thread => self.mesh.posts().iter().for_each(|post| post.stop()),
            Owner::Worker => self.stop(machine),
        }
    }

    /// A root machine takes its place.
    pub(super) fn register_root(&self, root: u32) {
        let input = Box::new(Port::new());
        self.state.with(|state| {
            state.register(root, NO_MACHINE, input);
            state.mark(place_of(root));
        });
    }

    pub(super) fn register_child(&self, parent: u32) -> u32 {
        let machine = self.post.number_machine();
        let input = Box::new(Port::new());
        self.state.with(|state| state.register(machine, parent, input));
        machine
    }

    /// A machine is gone: all operations that it has in flight are cancelled. The machine stays registered until these
    /// have been answered. Cancellations that the machine itself had requested may still be `under_way` in its port:
    /// they go on from here. Messages that came for the machine and that it has not seen are dropped.
    pub(super) fn retire(&self, machine: u32, under_way: &mut Queue<Cancel>) {
        self.seen(machine);
        let input = self.state.with(|state| {
            while let Some(cancel) = under_way.take() {
                state.orphans.push(cancel);
            }
            let RegistryState { slots, orphans, orphaned, .. } = state;
            let slot = slots.get_mut(place_of(machine)).filter(|slot| slot.number == machine)?;
            // SAFETY: on the loop's own thread.
            unsafe {
                slot.flights.for_each(|op| {
                    if let Some(node) = op.cancel() {
                        orphans.push(Cancel { node });
                    }
                });
            }
            slot.gone = true;
            *orphaned += slot.flights.len();
            let input = slot.input.take();
            state.remove_if_done(machine, &self.post);
            input
        });
        // Outside: data may be dropped.
        drop(input);
    }

    /// The root above a machine, if the machine exists (and is not gone).
    fn root_of(&self, machine: u32) -> Option<u32> {
        self.state.with(|state| {
            let mut slot = state.slot(machine).filter(|slot| !slot.gone)?;
            while slot.parent != NO_MACHINE {
                slot = state.slot(slot.parent)?;
            }
            Some(slot.number)
        })
    }

    /// A child has put something out: its parent is ticked, and every machine in between up to the root. (For a root no
    /// signal is needed: its loop looks after each tick.)
    pub(super) fn signal_child(&self, child: u32) {
        self.state.with(|state| {
            let Some(slot) = state.slot_mut(child) else { return };
            let news = !std::mem::replace(&mut slot.unseen, true);
            state.above(child, |above| {
                above.child_signalled = true;
                above.unseen_below += u32::from(news);
            });
        });
    }

    /// The parent of a child looks at what that has put out.
    pub(super) fn seen(&self, machine: u32) {
        self.state.with(|state| {
            let Some(slot) = state.slot_mut(machine) else { return };
            if std::mem::replace(&mut slot.unseen, false) {
                state.above(machine, |above| above.unseen_below -= 1);
            }
        });
    }

    /// Takes the messages that came for a child, if there is a reason to tick it. To be [given back](Routing::end_child).
    pub(super) fn begin_child(&self, child: u32, is_first: bool) -> Option<Box<Port>> {
        self.state.with(|state| {
            let slot = state.slot_mut(child)?;
            let is_due = is_first || slot.has_input || slot.is_signalled();
            // Messages that the child left there at its last tick are a reason, too: children have always been ticked
            // for them.
            if !is_due && slot.input.as_ref().is_none_or(|input| input.is_empty()) {
                return None;
            }
            (slot.has_input, slot.child_signalled) = (false, false);
            slot.input.take()
        })
    }

    /// A child was ticked.
    pub(super) fn end_child(&self, child: u32, input: Box<Port>) {
        let left = self.state.with(|state| match state.slot_mut(child) {
            Some(slot) => slot.input.replace(input),
            None => Some(input),
        });
        // Outside: data may be dropped.
        drop(left);
    }

    /// Puts a message into a queue of a machine's input; the machine will be ticked then. Gives the message back if
    /// there is no such machine.
    #[inline]
    pub(super) fn put<T: Queued>(&self, to: u32, item: T, queue: impl Fn(&mut Port) -> &mut Queue<T>) -> Result<(), T> {
        self.state.with(|state| state.put(to, item, queue))
    }

    /// A machine puts out an operation without a destination. A child's parent may still know one; above a root there
    /// is no machine to ask.
    ///
    /// # Panics
    /// If there is no default for it.
    pub(super) fn check_destination(&self, machine: u32, request: &Request) {
        let source = request.source().expect("an operation under way was submitted and has a source");
        // On a worker every root has one: the worker's platform. But it has no app.
        let has_default = match self.owner {
            Owner::Thread => matches!(source.machine, APP | PLATFORM),
            Owner::Worker => source.machine == machine && machine != PLATFORM,
        };
        if has_default || request.opcode() == OP_TIMER || !self.state.with(|state| state.is_root(machine)) {
            return;
        }
        let (id, opcode, source) = (request.id(), request.opcode(), source.machine);
        panic!(
            "fibra: operation {id} (opcode {opcode}) of child machine {source} has no destination: there is no \
             default for children; use Op::to, or Request::set_destination in the parent that forwards it"
        )
    }

    /// An operation leaves its initiator.
    #[inline]
    pub(super) fn departs(&self, owned: &mut Owned, source: u32) {
        let op = owned.submit(&self.post);
        self.state.with(|state| {
            state.in_flight += 1;
            let slot = state.slot_mut(source).expect("a machine that is ticked is registered");
            // SAFETY: on the loop's own thread; submitted a moment ago.
            unsafe { slot.flights.push(op) };
        });
    }

    /// An operation has come home, and goes to its initiator. It comes back if the initiator is gone, or if this loop
    /// is not its home but a loop with the same number in another mesh: then the operation is still on its way, and its
    /// drop sends it to its true home.
    #[inline]
    pub(super) fn comes_home(&self, mut done: Done) -> Result<(), Done> {
        let Some(op) = done.owned.in_flight_from(&self.post) else { return Err(done) };
        let source = done.owned.fixed().source.expect("has a source").machine;
        self.state.with(|state| {
            let is_there = state.land(op, source, &self.post);
            done.owned.arrive();
            if is_there { state.put(source, done, |port| &mut port.completions) } else { Err(done) }
        })
    }

    /// The reference that is to be queued as the request to cancel; None if a cancellation was requested before.
    pub(super) fn cancel(&self, id: OpId, source: u32) -> Result<Option<NodeRef>, NotInFlight> {
        self.state.with(|state| {
            let RegistryState { slots, by_id, .. } = state;
            let slot = slots.get(place_of(source)).filter(|slot| slot.number == source).ok_or(NotInFlight)?;
            // SAFETY: on the loop's own thread.
            unsafe { slot.flights.index_rest(|op| by_id.insert(op.fixed().id, op)) };
            let op = by_id.get(id.0).filter(|op| op.fixed().source.is_some_and(|from| from.machine == source));
            Ok(op.ok_or(NotInFlight)?.cancel())
        })
    }

    pub(super) fn in_flight(&self, machine: u32) -> usize {
        self.state.with(|state| state.slot(machine).map_or(0, |slot| slot.flights.len()))
    }

    /// Whether an operation of this loop is in flight: with a machine here, or in the hands of a target that may answer
    /// from any thread.
    pub(super) fn is_awaiting(&self) -> bool {
        self.state.with(|state| state.in_flight > 0)
    }

    /// How many operations of machines that are gone are in flight.
    pub(super) fn orphaned(&self) -> usize {
        self.state.with(|state| state.orphaned)
    }

    /// The notes about an operation in flight from here.
    #[inline]
    pub(super) fn flight<R>(&self, op: InFlight, change: impl FnOnce(&mut Flight) -> R) -> R {
        // SAFETY: on the loop's own thread; no caller enters it twice.
        unsafe { op.flight(change) }
    }

    /// Puts a message into the outbox for another loop. Gives it back if there is no such loop.
    pub(super) fn send(&self, thread: u32, message: Message) -> Result<(), Message> {
        match self.mesh.index(thread) {
            Some(index) => {
                let link = message.into_link();
                self.state.with(|state| {
                    state.is_outbound = true;
                    state.outboxes[index].push(link);
                });
                Ok(())
            }
            None => Err(message),
        }
    }

    /// Sends everything that is in the outboxes.
    #[inline]
    pub(super) fn flush(&self) {
        if self.state.with(|state| std::mem::replace(&mut state.is_outbound, false)) {
            self.flush_all();
        }
    }

    fn flush_all(&self) {
        for (index, post) in self.mesh.posts().iter().enumerate() {
            if post.thread != self.post.thread {
                // Taken out of the state first: a message that cannot be sent is dropped, and its data with it, which
                // runs user code.
                let mut outbox = self.state.with(|state| std::mem::replace(&mut state.outboxes[index], Outbox::new()));
                outbox.flush(post);
            }
        }
    }

    /// Whether the loop has something to do before it may sleep.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.state
            .with(|state| state.marked.first != NO_MACHINE || !state.orphans.is_empty() || !state.leaving.is_empty())
            || !self.post.mail.is_empty()
    }

    /// The end: the loop forgets all of its operations, and closes its mail after this. The messages that it still had
    /// come back, to be dropped then.
    pub(super) fn let_go(&self) -> LeftOver {
        let (mut timers, mut inputs) = (Queue::new(), Vec::new());
        self.state.with(|state| {
            state.by_id = Table::new();
            state.in_flight = 0;
            for slot in &mut state.slots {
                inputs.extend(slot.input.take().map(|input| *input));
                // SAFETY: on the loop's own thread.
                while let Some((op, flight)) = unsafe { slot.flights.take_oldest() } {
                    op.leave(&self.post);
                    if flight.has_early_cancel {
                        // SAFETY: given up for this note, which is gone now.
                        drop(unsafe { op.into_reference() });
                    }
                    if let Some(timer) = flight.timer {
                        state.timers.remove(timer);
                        // SAFETY: as above.
                        timers.push(Request { owned: unsafe { op.into_owned() } });
                    }
                }
            }
        });
        LeftOver { _timers: timers, _inputs: inputs }
    }
}

/// A machine's reference to the state of its loop.
pub(super) type SharedRouting = Rc<Routing>;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // S3-25, S3-27: a loop has a number, lists of machines and an outbox for each other loop of its own; what is in one outbox goes to that
    // loop, in order, and not before the loop says so.
    #[test]
    fn each_loop_has_an_outbox_for_each_other() {
        let seats = super::super::Seat::mesh(3);
        let mut pool = super::super::OpPool::with_capacity(8);
        let routings: Vec<Routing> =
            seats.iter().map(|seat| Routing::new(seat.post.clone(), seat.mesh.clone(), Owner::Thread)).collect();
        for (number, routing) in (0..).zip(&routings) {
            assert_eq!((routing.thread(), routing.state.with(|state| state.outboxes.len())), (number, 3));
        }
        routings[0].register_root(APP);
        assert!(routings[0].is_pending() && !routings[1].is_pending(), "lists of their own");
        for (number, to) in [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1)] {
            let mut request = pool.take(1, number).unwrap().into_request();
            request.owned.submit(&seats[0].post);
            routings[0].send(to, request.into()).unwrap();
        }
        assert!(seats[1].post.mail.is_empty() && seats[2].post.mail.is_empty());
        routings[0].flush();
        for (to, expected) in [(1, &[1, 3, 5][..]), (2, &[2, 4])] {
            // SAFETY: what is in the mail was given up for it, and is taken out once.
            let arrived: Vec<i32> = unsafe { Messages::new(seats[to].post.mail.take_all()) }
                .map(|message| match message {
                    Message::Submission(mut request) => {
                        // It was submitted by no machine, and is home here.
                        request.owned.answer(0);
                        request.owned.arrive();
                        *request.data().unwrap()
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(arrived, expected);
        }
    }
}
