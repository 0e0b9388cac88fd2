//! What one event loop knows: which machines there are, what is in flight, who has something to do, and what is to leave for other loops.
//!
//! Above: `port` (machines submit and cancel through it), `machine` (children register here) and `event_loop`, which does the routing.
//! Below:
//! `table`, `timer`, `mail`.
//!
//! On one thread and never re-entered: no user code runs while `state` is borrowed.
//!
//! Invariants:
//! * an operation is in `in_flight` of its source's loop from its submission until its completion has come home; those of one machine
//!   are a list, in the order of submission, so that the end of a machine costs what that one has in flight;
//! * a machine is in `machines` until it is gone *and* nothing of its own is in flight; numbers are not used again;
//! * a machine is in a list of marks at most once, and lists are first in, first out.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use super::mail::Post;
use super::mesh::Mesh;
use super::node::{Link, MachineRef, NodeRef, Owned, UNREACHABLE};
use super::op::{Cancel, OP_TIMER, OpId, Request, Timestamp};
use super::platform::Reactor;
use super::port::{Message, Messages, NotInFlight, Queue};
use super::table::Table;
use super::timer::{Timer, Timers};
use crate::prim::mpsc::Chain;
use crate::prim::sync::Arc;

/// The roots' own numbers.
pub(super) const APP: u32 = 0;
pub(super) const PLATFORM: u32 = 1;

/// An operation on its way.
#[derive(Debug)]
pub(super) struct Flight {
    node: NodeRef,
    source: u32,
    /// Where its loop sent it: its cancellation goes there too.
    pub(super) destination: Option<MachineRef>,
    /// The operation itself, if it is a timer of this loop.
    pub(super) timer: Option<(Timer, Request)>,
    /// A cancellation that came here before the operation, which a parent has in hand. It follows if the operation is forwarded.
    pub(super) early: Option<Cancel>,
    /// The ids of those that the same machine submitted just before and after it; 0: none.
    before: u64,
    after: u64,
}

#[derive(Debug)]
struct Registered {
    parent: Option<u32>,
    in_flight: usize,
    /// The ids of what it submitted first and last, of what is in flight; 0: none.
    oldest: u64,
    newest: u64,
    gone: bool,
    /// It has put something out that its parent has not looked at.
    unseen: bool,
    /// Of a root: it is in the list of this [`Mark`].
    marked: [bool; 2],
    /// A machine somewhere below has put something out since this one was last ticked.
    child_signalled: bool,
    /// How many machines below are `unseen`.
    unseen_below: usize,
    /// Something came for it, or for a machine below, that is in no queue.
    stirred: bool,
}

impl Registered {
    fn new(parent: Option<u32>) -> Self {
        Self {
            parent,
            in_flight: 0,
            oldest: 0,
            newest: 0,
            gone: false,
            unseen: false,
            marked: [false; 2],
            child_signalled: false,
            unseen_below: 0,
            stirred: false,
        }
    }
}

/// The two lists of roots that have something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Something came for it.
    Input,
    /// It has put something out.
    Output,
}

/// The roots in one of the lists, in the order in which they came to be there.
#[derive(Debug, Default)]
struct Marks {
    order: Vec<u32>,
    /// The memory of the list that was detached before.
    spare: Vec<u32>,
}

/// What is to leave for one other loop: it goes out with one compare-exchange and at most one kick.
#[derive(Debug)]
pub(super) struct Outbox(Chain<Link>);

impl Outbox {
    fn new() -> Self {
        Self(Chain::new())
    }

    fn push(&mut self, message: Message) {
        // SAFETY: the message was given up for its link, which is the outbox's now.
        unsafe { self.0.push(message.into_link()) };
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

/// Its destination is gone, or not to be reached from here: a request goes home with that answer, answers and notifications go home by
/// mail, cancellations end here.
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

#[derive(Debug)]
pub(super) struct State {
    pub(super) in_flight: Table<Flight>,
    machines: Table<Registered>,
    /// Each is for the operation with this number.
    pub(super) timers: Timers<u64>,
    /// Cancellations of machines that are gone, which have no port to put them in.
    pub(super) orphans: Queue<Cancel>,
    marks: [Marks; 2],
    outboxes: Vec<Outbox>,
    /// Roots that want to go, on a loop that goes on without them.
    leaving: Vec<u32>,
}

impl State {
    /// Puts a root into a list. Adding twice is adding once.
    pub(super) fn mark(&mut self, mark: Mark, root: u32) {
        if let Some(registered) = self.machines.get_mut(root as u64)
            && !std::mem::replace(&mut registered.marked[mark as usize], true)
        {
            self.marks[mark as usize].order.push(root);
        }
    }

    /// Takes a whole list; what is marked from now on goes to a new one. It is to be [given back](Self::give_back).
    pub(super) fn detach(&mut self, mark: Mark) -> Vec<u32> {
        let marks = &mut self.marks[mark as usize];
        let list = std::mem::replace(&mut marks.order, std::mem::take(&mut marks.spare));
        for root in &list {
            if let Some(registered) = self.machines.get_mut(*root as u64) {
                registered.marked[mark as usize] = false;
            }
        }
        list
    }

    /// The memory of a list that has been worked through.
    pub(super) fn give_back(&mut self, mark: Mark, mut list: Vec<u32>) {
        list.clear();
        self.marks[mark as usize].spare = list;
    }

    /// A machine is about to be ticked.
    pub(super) fn before_tick(&mut self, machine: u32) {
        if let Some(registered) = self.machines.get_mut(machine as u64) {
            (registered.child_signalled, registered.stirred) = (false, false);
        }
    }

    /// Something came for it that is in no queue.
    pub(super) fn is_stirred(&self, machine: u32) -> bool {
        self.machines.get(machine as u64).is_some_and(|registered| registered.stirred)
    }

    /// A machine below has signalled since the last tick, and its parent has not looked since: this one is called once more for it. Once:
    /// no new signal, no call.
    pub(super) fn is_signalled(&self, machine: u32) -> bool {
        let registered = self.machines.get(machine as u64);
        registered.is_some_and(|registered| registered.child_signalled && registered.unseen_below > 0)
    }

    /// A root was ticked.
    pub(super) fn after_tick(&mut self, root: u32) {
        if self.is_signalled(root) {
            self.mark(Mark::Input, root);
        }
    }

    /// Calls this for every machine above another one, up to the root.
    fn above(&mut self, machine: u32, mut each: impl FnMut(&mut Registered)) {
        let mut next = self.machines.get(machine as u64).and_then(|registered| registered.parent);
        while let Some(registered) = next.and_then(|parent| self.machines.get_mut(parent as u64)) {
            each(registered);
            next = registered.parent;
        }
    }

    /// The roots that want to go.
    pub(super) fn take_leaving(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.leaving)
    }
}

/// What kind of loop it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// One that somebody runs: it ends when a machine says so.
    Thread,
    /// One of a runtime's workers: machines come and go.
    Worker,
}

#[derive(Debug)]
pub(super) struct Routing {
    pub(super) post: Arc<Post>,
    mesh: Arc<Mesh>,
    owner: Owner,
    pub(super) state: RefCell<State>,
    now: Cell<u64>,
    /// Of the driver in which this loop sleeps.
    reactor: OnceCell<Rc<Reactor>>,
}

impl Routing {
    pub(super) fn new(post: Arc<Post>, mesh: Arc<Mesh>, owner: Owner) -> Self {
        let state = State {
            in_flight: Table::new(),
            machines: Table::new(),
            timers: Timers::new(),
            orphans: Queue::new(),
            marks: Default::default(),
            outboxes: mesh.posts().iter().map(|_| Outbox::new()).collect(),
            leaving: Vec::new(),
        };
        Self { post, mesh, owner, state: RefCell::new(state), now: Cell::new(0), reactor: OnceCell::new() }
    }

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

    /// Something came for a machine that is in no queue: it is ticked in the next round, and whoever is above it.
    pub(super) fn stir(&self, machine: u32) {
        let Some(root) = self.root_of(machine) else { return };
        {
            let state = &mut *self.state.borrow_mut();
            if let Some(registered) = state.machines.get_mut(machine as u64) {
                registered.stirred = true;
            }
            state.above(machine, |above| above.stirred = true);
            state.mark(Mark::Input, root);
        }
        self.post.rouse();
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now.get())
    }

    /// Where an operation came from: this loop, another one of the mesh, or (none) somewhere else.
    pub(super) fn home_of(&self, node: &NodeRef) -> Option<u32> {
        let home = node.home()?;
        self.mesh.post(home.thread).filter(|post| Arc::ptr_eq(post, home)).map(|post| post.thread)
    }

    pub(super) fn set_now(&self, now: u64) {
        self.now.set(now);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.mesh.posts().len() == 1
    }

    /// A machine wants its loop to end, or, on a worker, to go.
    pub(super) fn stop(&self, machine: u32) {
        match (self.owner, self.root_of(machine)) {
            (Owner::Thread, _) => self.post.stop(),
            (Owner::Worker, Some(root)) => self.state.borrow_mut().leaving.push(root),
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
        let state = &mut *self.state.borrow_mut();
        state.machines.insert(root as u64, Registered::new(None));
        state.mark(Mark::Input, root);
    }

    pub(super) fn register_child(&self, parent: u32) -> u32 {
        let machine = self.post.number_machine();
        self.state.borrow_mut().machines.insert(machine as u64, Registered::new(Some(parent)));
        machine
    }

    /// A machine is gone: all that it has in flight is cancelled. It stays registered until that has been answered. What it had cancelled
    /// itself may still be `under_way` in its port: that goes on from here.
    pub(super) fn retire(&self, machine: u32, under_way: &mut Queue<Cancel>) {
        self.seen(machine);
        let state = &mut *self.state.borrow_mut();
        while let Some(cancel) = under_way.take() {
            state.orphans.push(cancel);
        }
        let mut next = state.machines.get(machine as u64).map_or(0, |registered| registered.oldest);
        while let Some(flight) = state.in_flight.get(next) {
            next = flight.after;
            if let Some(node) = flight.node.cancel() {
                state.orphans.push(Cancel { node });
            }
        }
        if let Some(registered) = state.machines.get_mut(machine as u64) {
            registered.gone = true;
            if registered.in_flight == 0 {
                state.machines.remove(machine as u64);
            }
        }
    }

    /// The root above a machine, if the machine is there (and not gone).
    pub(super) fn root_of(&self, machine: u32) -> Option<u32> {
        let state = self.state.borrow();
        let mut registered = state.machines.get(machine as u64).filter(|registered| !registered.gone)?;
        let mut machine = machine;
        while let Some(parent) = registered.parent {
            (machine, registered) = (parent, state.machines.get(parent as u64)?);
        }
        Some(machine)
    }

    /// Whether a machine is `ancestor`, or a child of it, or a child's child.
    pub(super) fn is_within(&self, machine: u32, ancestor: u32) -> bool {
        let state = self.state.borrow();
        let mut machine = Some(machine);
        while let Some(here) = machine {
            if here == ancestor {
                return true;
            }
            machine = state.machines.get(here as u64).and_then(|registered| registered.parent);
        }
        false
    }

    /// A machine has put something out: its root is looked at, and every machine in between.
    pub(super) fn signal(&self, machine: u32) {
        let Some(root) = self.root_of(machine) else { return };
        let state = &mut *self.state.borrow_mut();
        if machine == root {
            return state.mark(Mark::Output, root);
        }
        let registered = state.machines.get_mut(machine as u64).expect("it has a root");
        let news = !std::mem::replace(&mut registered.unseen, true);
        state.above(machine, |above| {
            above.child_signalled = true;
            above.unseen_below += usize::from(news);
        });
    }

    /// The parent of a child looks at what that has put out.
    pub(super) fn seen(&self, machine: u32) {
        let state = &mut *self.state.borrow_mut();
        let Some(registered) = state.machines.get_mut(machine as u64) else { return };
        if std::mem::replace(&mut registered.unseen, false) {
            state.above(machine, |above| above.unseen_below -= 1);
        }
    }

    /// An operation without a destination is put out by a machine. A child's parent may still know one; after a root there is nobody.
    ///
    /// # Panics
    /// If there is no default for it.
    pub(super) fn check_destination(&self, machine: u32, request: &Request) {
        let source = request.source().expect("submitted by somebody");
        let is_root = self.root_of(machine) == Some(machine);
        // On a worker every root has one: the worker's platform. But it has no app.
        let has_default = match self.owner {
            Owner::Thread => matches!(source.machine, APP | PLATFORM),
            Owner::Worker => source.machine == machine && machine != PLATFORM,
        };
        if !is_root || has_default || request.opcode() == OP_TIMER {
            return;
        }
        let (id, opcode, source) = (request.id(), request.opcode(), source.machine);
        panic!(
            "fibra: operation {id} (opcode {opcode}) of child machine {source} has no destination: there is no \
             default for children; use Op::to, or Request::set_destination in the parent that forwards it"
        )
    }

    /// An operation leaves its initiator.
    pub(super) fn departs(&self, owned: &mut Owned, source: u32) {
        owned.submit(self.post.clone());
        let (id, node) = (owned.fixed().id, owned.reference());
        let state = &mut *self.state.borrow_mut();
        let mut before = 0;
        if let Some(registered) = state.machines.get_mut(source as u64) {
            registered.in_flight += 1;
            before = std::mem::replace(&mut registered.newest, id);
            if before == 0 {
                registered.oldest = id;
            }
        }
        if let Some(flight) = state.in_flight.get_mut(before) {
            flight.after = id;
        }
        let flight = Flight { node, source, destination: None, timer: None, early: None, before, after: 0 };
        state.in_flight.insert(id, flight);
    }

    /// An operation has come home. False if its initiator is gone, or if this is not its home but a loop with the same number in another
    /// mesh: then it is still on its way, and finds it when it is dropped.
    pub(super) fn comes_home(&self, owned: &mut Owned) -> bool {
        let state = &mut *self.state.borrow_mut();
        let Some(flight) = state.in_flight.remove(owned.fixed().id) else { return false };
        owned.arrive();
        let (source, before, after) = (flight.source as u64, flight.before, flight.after);
        if let Some(flight) = state.in_flight.get_mut(before) {
            flight.after = after;
        }
        if let Some(flight) = state.in_flight.get_mut(after) {
            flight.before = before;
        }
        let Some(registered) = state.machines.get_mut(source) else { return false };
        if before == 0 {
            registered.oldest = after;
        }
        if after == 0 {
            registered.newest = before;
        }
        registered.in_flight -= 1;
        let gone = registered.gone;
        if gone && registered.in_flight == 0 {
            state.machines.remove(source);
        }
        !gone
    }

    /// What is to be queued as the request to cancel; None if that was asked for before.
    pub(super) fn cancel(&self, id: OpId, source: u32) -> Result<Option<NodeRef>, NotInFlight> {
        let state = self.state.borrow();
        let flight = state.in_flight.get(id.0).filter(|flight| flight.source == source).ok_or(NotInFlight)?;
        Ok(flight.node.cancel())
    }

    pub(super) fn in_flight(&self, machine: u32) -> usize {
        self.state.borrow().machines.get(machine as u64).map_or(0, |registered| registered.in_flight)
    }

    /// Whether anything of this loop is in flight: with a machine here, or in the hands of somebody who may answer from anywhere.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.state.borrow().in_flight.is_empty()
    }

    /// How many operations are in flight of machines that are gone.
    pub(super) fn orphaned(&self) -> usize {
        let state = self.state.borrow();
        state
            .machines
            .iter()
            .filter(|(_, registered)| registered.gone)
            .map(|(_, registered)| registered.in_flight)
            .sum()
    }

    /// Puts a message into the outbox for another loop. Gives it back if there is no such loop.
    pub(super) fn send(&self, thread: u32, message: Message) -> Result<(), Message> {
        match self.mesh.index(thread) {
            Some(index) => {
                self.state.borrow_mut().outboxes[index].push(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    pub(super) fn flush(&self) {
        for (index, post) in self.mesh.posts().iter().enumerate() {
            if post.thread != self.post.thread {
                // Out of the state first: what cannot be sent is dropped, and its data with it.
                let mut outbox = std::mem::replace(&mut self.state.borrow_mut().outboxes[index], Outbox::new());
                outbox.flush(post);
            }
        }
    }

    /// Whether something is to be done before the loop may sleep.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.borrow();
        state.marks.iter().any(|marks| !marks.order.is_empty())
            || !state.orphans.is_empty()
            || !state.leaving.is_empty()
            || !self.post.mail.is_empty()
    }
}

/// Of a machine: its place in the loop that it belongs to.
pub(super) type SharedRouting = Rc<Routing>;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // G-09, S3-06, S3-07: first in, first out; adding twice is adding once; a detached list is a new one's beginning.
    #[test]
    fn marks_are_in_order_and_single() {
        let mesh = super::super::Seat::mesh(1).remove(0).mesh.clone();
        let routing = Routing::new(Arc::new(Post::new(0)), mesh, Owner::Thread);
        [APP, PLATFORM].into_iter().for_each(|root| routing.register_root(root));
        let state = &mut *routing.state.borrow_mut();
        for mark in [Mark::Input, Mark::Output] {
            let begun = state.detach(mark);
            state.give_back(mark, begun);
            [PLATFORM, APP, PLATFORM].into_iter().for_each(|root| state.mark(mark, root));
            let detached = state.detach(mark);
            assert_eq!(detached, [PLATFORM, APP]);
            state.mark(mark, APP);
            assert_eq!(state.detach(mark), [APP]);
            assert!(state.detach(mark).is_empty());
        }
    }
}
