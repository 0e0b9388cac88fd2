//! What one event loop knows: which machines there are, what is in flight, who has something to do, and what is to leave for other loops.
//!
//! Above: `port` (machines submit and cancel through it), `machine` (children register here) and `event_loop`, which does the routing.
//! Below:
//! `table`, `timer`, `mail`.
//!
//! On one thread and never re-entered: no user code runs while `state` is borrowed.
//!
//! Invariants:
//! * an operation is in `in_flight` of its source's loop from its submission until its completion has come home;
//! * a machine is in `machines` until it is gone *and* nothing of its own is in flight; numbers are not used again;
//! * a machine is in a list of marks at most once, and lists are first in, first out.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;

use super::mail::Post;
use super::node::{Link, MachineRef, NodeRef, Owned, UNREACHABLE};
use super::op::{Cancel, OpId, Request, Timestamp};
use super::port::{Message, NotInFlight, Queue};
use super::table::Table;
use super::timer::{Timer, Timers};
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
}

#[derive(Debug)]
struct Registered {
    parent: Option<u32>,
    in_flight: usize,
    gone: bool,
    /// It has put something out that its parent has not looked at.
    unseen: bool,
}

/// The roots that have something to do, in the order in which they came to have it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Marks {
    marked: [bool; 2],
    order: [u32; 2],
    length: usize,
}

impl Marks {
    /// Adding twice is adding once.
    pub(super) fn add(&mut self, root: u32) {
        if !std::mem::replace(&mut self.marked[root as usize], true) {
            self.order[self.length] = root;
            self.length += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the whole list; what is marked from now on goes to a new one.
    pub(super) fn detach(&mut self) -> impl Iterator<Item = u32> + use<> {
        let taken = std::mem::take(self);
        taken.order.into_iter().take(taken.length)
    }
}

/// What is to leave for one other loop: a chain, newest first, that goes out with one compare-exchange and at most one kick.
#[derive(Debug)]
pub(super) struct Outbox {
    newest: *mut Link,
    oldest: *mut Link,
}

impl Outbox {
    fn new() -> Self {
        Self { newest: ptr::null_mut(), oldest: ptr::null_mut() }
    }

    fn push(&mut self, message: Message) {
        let link = message.into_link();
        // SAFETY: the message was given up for its link, which is the outbox's now.
        unsafe { &*link }.set_next(self.newest);
        self.newest = link;
        if self.oldest.is_null() {
            self.oldest = link;
        }
    }

    /// Sends everything. If that loop is gone, its operations are answered with [`UNREACHABLE`].
    fn flush(&mut self, to: &Post) {
        if self.newest.is_null() {
            return;
        }
        // SAFETY: the chain is the outbox's own.
        if unsafe { to.send(self.newest, self.oldest) }.is_ok() {
            (self.newest, self.oldest) = (ptr::null_mut(), ptr::null_mut());
        } else {
            self.discard();
        }
    }

    fn discard(&mut self) {
        let mut link = std::mem::replace(&mut self.newest, ptr::null_mut());
        self.oldest = ptr::null_mut();
        while !link.is_null() {
            // SAFETY: in the chain, and out of it now.
            let next = unsafe { &*link }.next();
            // SAFETY: put in by `push`; taken out once.
            let message = unsafe { Message::from_link(link) };
            link = next;
            unreachable_now(message);
        }
    }
}

/// Its destination is gone: a request goes home with that answer; the rest ends here.
pub(super) fn unreachable_now(message: Message) {
    if let Message::Submission(mut request) = message {
        request.owned.answer(UNREACHABLE);
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
    next_machine: u32,
    pub(super) timers: Timers,
    /// Cancellations of machines that are gone, which have no port to put them in.
    pub(super) orphans: Queue<Cancel>,
    pub(super) with_input: Marks,
    pub(super) with_output: Marks,
    /// A child somewhere below this root has put something out.
    pub(super) child_signalled: [bool; 2],
    /// How many machines below this root are `unseen`.
    pub(super) unseen: [usize; 2],
    outboxes: Vec<Outbox>,
}

#[derive(Debug)]
pub(super) struct Routing {
    pub(super) post: Arc<Post>,
    mesh: Arc<[Arc<Post>]>,
    pub(super) state: RefCell<State>,
    now: Cell<u64>,
}

impl Routing {
    pub(super) fn new(post: Arc<Post>, mesh: Arc<[Arc<Post>]>) -> Self {
        let outboxes = mesh.iter().map(|_| Outbox::new()).collect();
        let state = State {
            in_flight: Table::new(),
            machines: Table::new(),
            next_machine: PLATFORM + 1,
            timers: Timers::new(),
            orphans: Queue::new(),
            with_input: Marks::default(),
            with_output: Marks::default(),
            child_signalled: [false; 2],
            unseen: [0; 2],
            outboxes,
        };
        Self { post, mesh, state: RefCell::new(state), now: Cell::new(0) }
    }

    pub(super) fn thread(&self) -> u32 {
        self.post.thread
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now.get())
    }

    pub(super) fn set_now(&self, now: u64) {
        self.now.set(now);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.mesh.len() == 1
    }

    pub(super) fn stop(&self) {
        self.post.stop();
    }

    pub(super) fn stop_all(&self) {
        self.mesh.iter().for_each(|post| post.stop());
    }

    /// A root machine takes its place.
    pub(super) fn register_root(&self, root: u32) {
        self.state
            .borrow_mut()
            .machines
            .insert(root as u64, Registered { parent: None, in_flight: 0, gone: false, unseen: false });
    }

    pub(super) fn register_child(&self, parent: u32) -> u32 {
        let state = &mut *self.state.borrow_mut();
        let machine = state.next_machine;
        state.next_machine = machine.checked_add(1).expect("a loop has had 2^32 machines");
        state
            .machines
            .insert(machine as u64, Registered { parent: Some(parent), in_flight: 0, gone: false, unseen: false });
        machine
    }

    /// A machine is gone: all that it has in flight is cancelled. It stays registered until that has been answered.
    pub(super) fn retire(&self, machine: u32) {
        self.seen(machine);
        let state = &mut *self.state.borrow_mut();
        for (_, flight) in state.in_flight.iter().filter(|(_, flight)| flight.source == machine) {
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

    /// A machine has put something out: its root is looked at.
    pub(super) fn signal(&self, machine: u32) {
        if let Some(root) = self.root_of(machine) {
            let state = &mut *self.state.borrow_mut();
            if machine == root {
                state.with_output.add(root);
            } else {
                state.child_signalled[root as usize] = true;
                let registered = state.machines.get_mut(machine as u64).expect("it has a root");
                if !std::mem::replace(&mut registered.unseen, true) {
                    state.unseen[root as usize] += 1;
                }
            }
        }
    }

    /// The parent of a child looks at what that has put out.
    pub(super) fn seen(&self, machine: u32) {
        if let Some(root) = self.root_of(machine) {
            let state = &mut *self.state.borrow_mut();
            let registered = state.machines.get_mut(machine as u64).expect("it has a root");
            if std::mem::replace(&mut registered.unseen, false) {
                state.unseen[root as usize] -= 1;
            }
        }
    }

    /// An operation leaves its initiator.
    pub(super) fn departs(&self, owned: &mut Owned, source: u32) {
        owned.submit(self.post.clone());
        let flight = Flight { node: owned.reference(), source, destination: None, timer: None, early: None };
        let state = &mut *self.state.borrow_mut();
        state.in_flight.insert(owned.fixed().id, flight);
        if let Some(registered) = state.machines.get_mut(source as u64) {
            registered.in_flight += 1;
        }
    }

    /// An operation has come home. False if its initiator is gone, or if this is not its home but a loop with the same number in another
    /// mesh: then it is still on its way, and finds it when it is dropped.
    pub(super) fn comes_home(&self, owned: &mut Owned) -> bool {
        let state = &mut *self.state.borrow_mut();
        let Some(flight) = state.in_flight.remove(owned.fixed().id) else { return false };
        owned.arrive();
        let source = flight.source as u64;
        let Some(registered) = state.machines.get_mut(source) else { return false };
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
        match self.state.borrow_mut().outboxes.get_mut(thread as usize) {
            Some(outbox) => {
                outbox.push(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    pub(super) fn flush(&self) {
        for (index, post) in self.mesh.iter().enumerate() {
            if index as u32 != self.post.thread {
                // Out of the state first: what cannot be sent is dropped, and its data with it.
                let mut outbox = std::mem::replace(&mut self.state.borrow_mut().outboxes[index], Outbox::new());
                outbox.flush(post);
            }
        }
    }

    /// Whether something is to be done before the loop may sleep.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.borrow();
        !state.with_input.is_empty()
            || !state.with_output.is_empty()
            || !state.orphans.is_empty()
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
        let mut marks = Marks::default();
        [PLATFORM, APP, PLATFORM].into_iter().for_each(|root| marks.add(root));
        let detached = marks.detach();
        assert!(marks.is_empty());
        marks.add(APP);
        assert_eq!(detached.collect::<Vec<_>>(), [PLATFORM, APP]);
        assert_eq!(marks.detach().collect::<Vec<_>>(), [APP]);
    }
}
