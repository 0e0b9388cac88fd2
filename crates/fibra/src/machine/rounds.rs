//! The rounds of an event loop: what a loop does between two sleeps, independent of how it sleeps.
//!
//! Above: `event_loop`, which sleeps in a driver; `machine::attach`, where a fiber of each worker runs the machines of its runtime and
//! sleeps as fibers do. Below: `routing`, `port`, `mail`, `sched::timers::heap`.
//!
//! A round, in this order:
//!
//! ```text
//! 1 wait      for a kick or the next timer, unless something is pending; returns the time. The one place where the loop blocks.
//! 2 timers    what is due is answered, in the order of deadlines
//! 3 mail      what other threads sent, as much as is there now, goes to its machine
//! 4 tick      machines that something came for; what one has put out (submissions, cancellations, notifications, completions) is
//!             routed when its tick is over
//! 5 flush     what is for other loops leaves
//! ```
//!
//! A machine to which step 4 routes a message, and that has had its tick in this round, is ticked in the next round,
//! which does not block. Up to [`ROUNDS_PER_TURN`] rounds are a turn: they use the time that the first one read.
//!
//! (The older design keeps a second list, of machines with output, and routes that output before the ticks of the next
//! round. But a root puts messages out only during its own tick, so its loop need not be told: it looks after each
//! tick. That saves a ninth of an operation.)
//!
//! Ending: the app is dropped (on a worker: every machine that was attached), its operations are cancelled, and rounds
//! go on until they are answered; then the platform likewise; then the mail is closed, and the operations in it are
//! answered. A target that does not answer a cancellation is waited for [`GRACE`]; then the loop reports it.
//!
//! Invariants: the platform outlives the app; only this file routes messages to machines; no user code runs under a
//! borrow of the routing's state, `Machine::tick` and destructors included.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use super::address::{CANCELLED, MachineRef, NOWHERE, UNREACHABLE, place_of};
use super::call::{Attach, Detach};
use super::flight;
use super::machine::Machine;
use super::mesh::{Seat, discard};
use super::op::{Cancel, Done, Notice, OP_TIMER, Request, Timestamp};
use super::platform::{Platform, Reactor};
use super::port::{Message, Messages, Port, Ports, Queue};
use super::routing::{APP, Owner, PLATFORM, Routing, unreachable_now};
use crate::prim::{discard_payload, policy};

/// How long an ending loop waits for the answers to its cancellations.
const GRACE: Duration = Duration::from_secs(5);

/// The payload of a panic.
type Payload = Box<dyn std::any::Any + Send>;

/// For this many cycles (10 to 15 µs) a reading of the clock serves the turns that follow: a machine's time may be
/// behind the clock by that much and a turn, and a timer late by as much.
const CLOCK_CYCLES: u64 = 32_000;

/// Rounds of a loop before it looks at the clock and its driver again, and, on a worker, lets the fibers beside it run.
/// An operation between two machines and back takes two.
const ROUNDS_PER_TURN: usize = 8;

/// What a loop may do before its next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing: there is something to do.
    Pending,
    /// Sleep until its bell rings, or until then.
    Until(Option<u64>),
}

/// A machine that its loop drives.
struct RootMachine {
    number: u32,
    machine: Box<dyn Machine>,
    port_out: Port,
}

/// The machines of one loop, and what is under way between them.
pub(crate) struct Machines {
    routing: Rc<Routing>,
    /// Each in its machine's place.
    roots: Vec<Option<Box<RootMachine>>>,
    owner: Owner,
    /// The time when the clock was last read, and the cycles then.
    clock: Cell<(u64, u64)>,
}

impl Machines {
    /// Takes a seat. A worker's loop goes on when a machine panics, and when there is nothing left to do.
    pub(crate) fn new(mut seat: Seat, on_worker: bool) -> Self {
        seat.taken = true;
        let owner = if on_worker { Owner::Worker } else { Owner::Thread };
        let routing = Rc::new(Routing::new(seat.post.clone(), seat.mesh.clone(), owner));
        Self { routing, roots: Vec::new(), owner, clock: Cell::new((policy::now(), policy::cycles())) }
    }

    /// The time for a round that follows at once. The clock is read only if it may have moved: the reading costs a
    /// tenth of a round.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let (now, read) = self.clock.get();
        let cycles = policy::cycles();
        if cycles.wrapping_sub(read) < CLOCK_CYCLES {
            return now;
        }
        let now = policy::now();
        self.clock.set((now, cycles));
        now
    }

    pub(super) fn add(&mut self, root: u32, machine: Box<dyn Machine>) {
        self.routing.register_root(root);
        let place = place_of(root);
        while self.roots.len() <= place {
            self.roots.push(None);
        }
        let root = RootMachine { number: root, machine, port_out: Port::new() };
        self.roots[place] = Some(Box::new(root));
    }

    #[inline]
    fn root_mut(&mut self, number: u32) -> Option<&mut RootMachine> {
        self.roots.get_mut(place_of(number))?.as_deref_mut().filter(|root| root.number == number)
    }

    /// The bell that ends its sleep.
    pub(super) fn set_bell(&self, bell: super::mail::Bell) {
        self.routing.post.set_bell(bell);
    }

    /// The descriptors of the driver in which it sleeps.
    pub(crate) fn set_reactor(&self, reactor: Rc<Reactor>) {
        self.routing.set_reactor(reactor);
    }

    /// The same for a fiber.
    pub(crate) fn set_waker(&self, waker: std::task::Waker) {
        self.set_bell(super::mail::Bell::Fiber(waker));
    }

    /// Ends it after this round.
    pub(crate) fn stop(&self) {
        self.routing.post.stop();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.routing.post.is_stopped()
    }

    /// Runs until it is stopped, or (not on a worker) nothing can happen any more. `rest` does what it is told and returns the time; `work`
    /// carries out the rest of each round.
    pub(crate) fn run(
        &mut self,
        rest: &mut impl FnMut(&Self, Rest) -> io::Result<u64>,
        work: &mut impl FnMut(&mut Self, u64),
    ) -> io::Result<()> {
        while let Some(now) = self.wait(None, rest)? {
            work(self, now);
            if self.is_stopped() {
                break;
            }
        }
        self.end(rest, work)
    }

    /// A turn: rounds in a row without waiting, as long as there is something to do. An answer that is given in one
    /// round leaves in the next. The rounds share a reading of the clock.
    pub(crate) fn work(&mut self, now: u64) {
        if now > self.clock.get().0 {
            self.clock.set((now, policy::cycles()));
        }
        self.routing.set_now(now);
        for _ in 0..ROUNDS_PER_TURN {
            self.expire(now);
            self.open_mail();
            self.route_orphans();
            self.tick(Timestamp(now));
            self.routing.flush();
            if self.owner == Owner::Worker {
                self.see_off();
            }
            if !self.routing.is_pending() || self.is_stopped() {
                break;
            }
        }
    }

    /// Drops the roots that want to go.
    #[inline]
    fn see_off(&mut self) {
        if self.routing.state.with(|state| !state.leaving.is_empty()) {
            let leaving = self.routing.state.with(|state| state.take_leaving());
            leaving.into_iter().for_each(|root| self.drop_root_quietly(root));
        }
    }

    /// Phase 1. None: nothing can happen any more. With `until`, it sleeps no longer than that, and something can.
    #[inline]
    fn wait(
        &mut self,
        until: Option<u64>,
        rest: &mut impl FnMut(&Self, Rest) -> io::Result<u64>,
    ) -> io::Result<Option<u64>> {
        if self.routing.is_pending() {
            return rest(self, Rest::Pending).map(Some);
        }
        if self.owner == Owner::Worker && !self.is_stopped() {
            // Other fibers run first: those that were answered a moment ago often ask again, and a loop that has not
            // gone to sleep need not be woken.
            let now = rest(self, Rest::Pending)?;
            if self.routing.is_pending() {
                return Ok(Some(now));
            }
        }
        let next = self.routing.state.with(|state| state.timers.next_deadline());
        let next = next.into_iter().chain(until).min();
        let post = &self.routing.post;
        post.mail.sleep(|may_sleep| {
            let sleeps = may_sleep && (until.is_some() || !post.is_stopped());
            let ends_idle = self.owner == Owner::Thread && self.routing.is_alone();
            let nothing_left = ends_idle && next.is_none() && !self.routing.is_awaiting() && !post.is_watched();
            match sleeps {
                false => rest(self, Rest::Pending).map(Some),
                true if nothing_left => Ok(None),
                true => rest(self, Rest::Until(next)).map(Some),
            }
        })
    }

    /// Phase 2.
    #[inline]
    fn expire(&mut self, now: u64) {
        while let Some(op) = self.routing.state.with(|state| state.timers.pop_expired(now)) {
            self.routing.flight(op, |flight| flight.timer = None);
            // SAFETY: kept by `set_timer` for the timer, which is gone now.
            let request = Request { owned: unsafe { op.into_owned() } };
            self.answer(request, 0);
        }
    }

    /// Phase 3. Bounded: what is sent meanwhile is for the next round.
    #[inline]
    fn open_mail(&mut self) {
        // SAFETY: what is in the mail was given up for it, and is taken out once.
        unsafe { Messages::new(self.routing.post.mail.take_all()) }.for_each(|message| self.route(message));
    }

    #[inline]
    fn route_orphans(&mut self) {
        if self.routing.state.with(|state| state.orphans.is_empty()) {
            return;
        }
        let mut orphans = self.routing.state.with(|state| std::mem::replace(&mut state.orphans, Queue::new()));
        while let Some(cancel) = orphans.take() {
            self.route_cancellation(cancel);
        }
    }

    /// Routes what a root has put out. Submissions first and then cancellations, so that a cancellation never comes before its operation;
    /// notifications before completions, so that a standing operation never rings after its end.
    #[inline]
    fn route_output(&mut self, root: u32) {
        while let Some(request) = self.root_mut(root).and_then(|root| root.port_out.submissions.take()) {
            self.route_submission(request);
        }
        let Some(RootMachine { port_out, .. }) = self.root_mut(root) else { return };
        if !port_out.cancellations.is_empty() || !port_out.notifications.is_empty() {
            self.route_rare(root);
        }
        while let Some(done) = self.root_mut(root).and_then(|root| root.port_out.completions.take()) {
            self.route_completion(done);
        }
    }

    #[cold]
    fn route_rare(&mut self, root: u32) {
        while let Some(cancel) = self.root_mut(root).and_then(|root| root.port_out.cancellations.take()) {
            self.route_cancellation(cancel);
        }
        while let Some(notice) = self.root_mut(root).and_then(|root| root.port_out.notifications.take()) {
            self.route_notification(notice);
        }
    }

    /// Phase 4.
    #[inline]
    fn tick(&mut self, now: Timestamp) {
        let mut list = self.routing.state.with(|state| state.detach());
        while let Some((number, input, next)) = self.routing.state.with(|state| state.next_to_tick(list)) {
            list = next;
            let Some(mut input) = input else { continue };
            let Some(Some(root)) = self.roots.get_mut(place_of(number)) else { continue };
            let RootMachine { machine, port_out, .. } = &mut **root;
            let (out, routing) = (&mut *port_out, &self.routing);
            let mut ports = Ports { input: &mut input, out, routing, me: number, is_child: false };
            match self.owner {
                Owner::Thread => machine.tick(now, &mut ports),
                Owner::Worker => {
                    // The machine is dropped, whatever state it is in: no code sees it again.
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| machine.tick(now, &mut ports))) {
                        discard_payload(payload);
                        self.drop_root_quietly(number);
                        continue;
                    }
                }
            }
            let has_output = !port_out.is_empty();
            self.routing.state.with(|state| state.end_tick(number, input));
            if has_output {
                self.route_output(number);
            }
        }
    }

    /// Handles the operations that attach or detach a machine, for which the loop itself is the target. Gives back
    /// every other operation.
    fn come_and_go(&mut self, mut request: Request) -> Option<Request> {
        let ends = self.is_stopped();
        if let Some(attach) = request.data_mut::<Attach>() {
            // Too late: the loop is ending. The closure that would make the machine is dropped with the operation.
            let (root, build) = (attach.machine, attach.build.take_if(|_| !ends));
            // If it panics (the hook has reported it), there is no machine; its callers get `UNREACHABLE`.
            let built = build.and_then(|build| catch_unwind(AssertUnwindSafe(build)).map_err(discard_payload).ok());
            let result = if built.is_some() { 0 } else { UNREACHABLE };
            match built {
                Some(machine) => self.add(root, machine),
                None => self.routing.post.free_number(root),
            }
            self.answer(request, result);
        } else if request.data::<Detach>().is_some() {
            let root = request.destination().map(|to| to.machine);
            let found = root.is_some_and(|root| self.root_mut(root).is_some());
            root.into_iter().for_each(|root| self.drop_root_quietly(root));
            self.answer(request, if found { 0 } else { UNREACHABLE });
        } else {
            return Some(request);
        }
        None
    }

    fn route(&mut self, message: Message) {
        match message {
            Message::Submission(request) => self.route_submission(request),
            Message::Cancellation(cancel) => self.route_cancellation(cancel),
            Message::Completion(done) => self.route_completion(done),
            Message::Notification(notice) => self.route_notification(notice),
        }
    }

    #[inline]
    fn route_submission(&mut self, mut request: Request) {
        let here = self.routing.thread();
        let source = request.source().expect("an operation under way was submitted and has a source");
        let op = request.owned.in_flight_from(&self.routing.post);
        if request.opcode() == OP_TIMER && source.thread == here {
            return self.set_timer(request);
        }
        let destination = request.destination().unwrap_or_else(|| {
            let destination = match (source.machine, self.owner) {
                (APP, _) | (_, Owner::Worker) => MachineRef::platform(source.thread),
                (PLATFORM, _) => MachineRef::app(source.thread),
                _ => unreachable!("checked when it was put out"),
            };
            request.set_destination(destination);
            destination
        });
        let has_early_cancel = op.is_some_and(|op| {
            self.routing.flight(op, |flight| {
                flight.destination = Some(destination);
                std::mem::replace(&mut flight.has_early_cancel, false)
            })
        });
        // SAFETY: given up for that note.
        let early = op.filter(|_| has_early_cancel).map(|op| Cancel { node: unsafe { op.into_reference() } });
        self.deliver(request, destination);
        if let Some(cancel) = early {
            self.route_cancellation(cancel);
        }
    }

    #[inline]
    fn deliver(&mut self, request: Request, destination: MachineRef) {
        if destination.thread != self.routing.thread() {
            return self.send(destination.thread, request.into());
        }
        let request = match self.owner {
            Owner::Thread => request,
            Owner::Worker => match self.come_and_go(request) {
                Some(request) => request,
                None => return,
            },
        };
        if self.owner == Owner::Worker && destination.machine == PLATFORM && !self.is_stopped() {
            self.have_platform();
        }
        if let Err(request) = self.routing.put(destination.machine, request, |port| &mut port.submissions) {
            self.answer(request, UNREACHABLE);
        }
    }

    /// The machines of a worker get their platform when they need it; not while operations of one that is gone are unanswered.
    fn have_platform(&mut self) {
        if !self.routing.is_known(PLATFORM) {
            self.add(PLATFORM, Box::new(Platform::new()));
        }
    }

    fn set_timer(&mut self, request: Request) {
        // The operation belongs to another mesh, and a machine brought it here: the drop answers it.
        let Some(op) = request.owned.in_flight_from(&self.routing.post) else { return };
        let timer = self.routing.state.with(|state| state.timers.insert(request.deadline().0, op));
        let has_early_cancel = self.routing.flight(op, |flight| {
            flight.timer = Some(timer);
            std::mem::replace(&mut flight.has_early_cancel, false)
        });
        flight::keep(request.owned);
        if has_early_cancel {
            // SAFETY: given up for that note.
            self.route_cancellation(Cancel { node: unsafe { op.into_reference() } });
        }
    }

    fn route_cancellation(&mut self, mut cancel: Cancel) {
        if cancel.node.is_answered() {
            return;
        }
        let here = self.routing.thread();
        if let Some(op) = cancel.node.in_flight_from(&self.routing.post) {
            let (destination, timer) = self.routing.flight(op, |flight| (flight.destination, flight.timer.take()));
            if let Some(timer) = timer {
                self.routing.state.with(|state| state.timers.remove(timer));
                // SAFETY: kept by `set_timer` for the timer, which is gone now.
                let request = Request { owned: unsafe { op.into_owned() } };
                return self.answer(request, CANCELLED);
            }
            if cancel.node.cancel_to() == NOWHERE {
                match destination {
                    Some(destination) => cancel.set_destination(destination),
                    None => {
                        // The loop keeps the cancellation until the operation comes by, or is home.
                        cancel.node.into_raw();
                        return self.routing.flight(op, |flight| flight.has_early_cancel = true);
                    }
                }
            }
        } else if cancel.source().is_some_and(|source| source.thread == here) && cancel.node.cancel_to() == NOWHERE {
            return;
        }
        let Some(destination) = cancel.destination() else { return };
        if destination.thread != here {
            self.send(destination.thread, cancel.into());
        } else {
            // The target is gone: the drop of the cancellation acknowledges it.
            drop(self.routing.put(destination.machine, cancel, |port| &mut port.cancellations));
        }
    }

    #[inline]
    fn route_completion(&mut self, done: Done) {
        let source = done.source().expect("an operation under way was submitted and has a source");
        if source.thread != self.routing.thread() {
            return self.send(source.thread, Message::Completion(done));
        }
        // The machine is gone, and the answer ends here: the drop returns the operation to its pool.
        drop(self.routing.comes_home(done));
    }

    fn route_notification(&mut self, notice: Notice) {
        let source = notice.source().expect("an operation under way was submitted and has a source");
        match self.routing.home_of(&notice.node) {
            Some(thread) if thread == self.routing.thread() => {
                drop(self.routing.put(source.machine, notice, |port| &mut port.notifications));
            }
            Some(thread) => self.send(thread, Message::Notification(notice)),
            None => notice.by_mail(),
        }
    }

    /// Answers in place of the target, which is the loop itself or does not exist.
    fn answer(&mut self, mut request: Request, result: i32) {
        request.owned.answer(result);
        self.route_completion(Done { owned: request.owned });
    }

    fn send(&mut self, thread: u32, message: Message) {
        if let Err(message) = self.routing.send(thread, message) {
            unreachable_now(message);
        }
    }

    /// Drops a root machine, and what is in its ports; its operations are cancelled. If its destructor panics, that is handed back.
    fn drop_root(&mut self, root: u32) -> Result<(), Payload> {
        if self.root_mut(root).is_none() {
            return Ok(());
        }
        let Some(here) = self.roots[place_of(root)].take() else { return Ok(()) };
        let RootMachine { machine, mut port_out, .. } = *here;
        // The answers that it gave go home before those that its destructor gives.
        port_out.completions = Queue::new();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(machine)));
        self.routing.retire(root, &mut port_out.cancellations);
        drop(port_out);
        dropped
    }

    /// The same on a loop that goes on without the machine.
    fn drop_root_quietly(&mut self, root: u32) {
        self.drop_root(root).unwrap_or_else(discard_payload);
    }

    /// Drops the roots in order, the platform last; `after` is called between the others and the platform, and after that. Hands back the
    /// first panic of a destructor.
    fn drop_roots(&mut self, mut after: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<Result<(), Payload>> {
        let mut others: Vec<u32> =
            self.roots.iter().flatten().map(|root| root.number).filter(|root| *root != PLATFORM).collect();
        others.sort_unstable();
        let mut first = Ok(());
        let keep = |first: &mut Result<(), Payload>, dropped: Result<(), Payload>| match (&first, dropped) {
            (_, Ok(())) => {}
            (Ok(()), dropped) => *first = dropped,
            (Err(_), Err(payload)) => discard_payload(payload),
        };
        others.into_iter().for_each(|root| keep(&mut first, self.drop_root(root)));
        after(self)?;
        keep(&mut first, self.drop_root(PLATFORM));
        after(self)?;
        Ok(first)
    }

    /// The orderly end; see the head of this file.
    fn end(
        &mut self,
        rest: &mut impl FnMut(&Self, Rest) -> io::Result<u64>,
        work: &mut impl FnMut(&mut Self, u64),
    ) -> io::Result<()> {
        let dropped = self.drop_roots(|machines| {
            let until = policy::now().saturating_add(GRACE.as_nanos() as u64);
            while machines.routing.orphaned() > 0 {
                if let Some(now) = machines.wait(Some(until), rest)? {
                    work(machines, now);
                }
                let left = machines.routing.orphaned();
                if left > 0 && policy::now() >= until {
                    crate::prim::say(format_args!(
                        "fibra: an event loop ends although {left} of its operations were cancelled {} s ago and not \
                         answered: a machine that gets a Cancel must answer the operation, or drop it",
                        GRACE.as_secs()
                    ));
                    break;
                }
            }
            Ok(())
        })?;
        // Sends the messages that the last round has left.
        self.route_orphans();
        self.routing.flush();
        match (dropped, self.owner) {
            (Ok(()), _) => {}
            (Err(payload), Owner::Worker) => discard_payload(payload),
            (Err(payload), Owner::Thread) => std::panic::resume_unwind(payload),
        }
        Ok(())
    }
}

/// Also when a machine has panicked: initiators on other loops get an answer, and targets on other loops get a
/// cancellation.
impl Drop for Machines {
    fn drop(&mut self) {
        if let Ok(Err(payload)) = self.drop_roots(|_| Ok(())) {
            discard_payload(payload);
        }
        self.route_orphans();
        self.routing.flush();
        // The loop first forgets its operations, then closes its mail: a sender that finds the mail closed may free
        // them.
        let left = self.routing.let_go();
        discard(&self.routing.post);
        drop(left);
    }
}
