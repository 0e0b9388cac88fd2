//! The event loop: drives an app machine and a platform machine on the calling thread, alone or in a mesh with loops on other threads.
//!
//! Above: users. Below: `routing`, `port`, `timer`, `mail`, `driver`.
//!
//! A round, in this order:
//!
//! ```text
//! 1 wait      for a kick or the next timer, unless something is pending; returns the time. The one place where the thread blocks.
//! 2 timers    what is due is answered, in the order of deadlines
//! 3 mail      what other threads sent, as much as is there now, goes to its machine
//! 4 outputs   of machines that put something out: submissions, cancellations, notifications, completions are routed
//! 5 tick      machines that something came for
//! ```
//!
//! What is signalled in 4 and 5 is pending, so that the next round does not block.
//!
//! Ending: the app is dropped, its operations are cancelled, and rounds go on until they are answered; then the platform likewise;
//! then the mail is
//! closed, and what is in it answered. A target that does not answer a cancellation is waited for [`GRACE`], which is then said.
//!
//! Invariants: the platform outlives the app; nothing is routed to a machine but by this file; no user code runs under a borrow of the
//! routing's state, `Machine::tick` and destructors included.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use super::machine::Machine;
use super::mail::Post;
use super::node::{CANCELLED, MachineRef, NOWHERE, UNREACHABLE};
use super::op::{Cancel, Done, Notice, OP_TIMER, Request, Timestamp};
use super::port::{Message, Port, Ports};
use super::routing::{APP, PLATFORM, Routing, unreachable_now};
use super::timer::Expired;
use crate::driver::{Driver, Timeout};
use crate::prim::clock;
use crate::prim::sync::Arc;

/// How long an ending loop waits for the answers to its cancellations.
const GRACE: Duration = Duration::from_secs(5);

/// A place in a mesh of event loops: send it to a thread and make the loop there, with [`EventLoop::at`].
#[derive(Debug)]
pub struct Seat {
    post: Arc<Post>,
    mesh: Arc<[Arc<Post>]>,
    /// The loop took it over: what is sent to it is not lost with the seat.
    taken: bool,
}

impl Seat {
    /// A mesh of so many loops, one seat for each. They reach each other's machines by [`MachineRef`].
    ///
    /// # Panics
    /// If there is no seat, or more than 2^32.
    pub fn mesh(loops: usize) -> Vec<Self> {
        assert!(loops > 0, "fibra: a mesh has at least one loop");
        let loops = u32::try_from(loops).expect("fibra: a mesh has at most 2^32 loops");
        let mesh: Arc<[Arc<Post>]> = (0..loops).map(|thread| Arc::new(Post::new(thread))).collect();
        mesh.iter().map(|post| Self { post: post.clone(), mesh: mesh.clone(), taken: false }).collect()
    }

    /// The number of this loop in the mesh.
    pub fn thread(&self) -> u32 {
        self.post.thread
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.taken {
            discard(&self.post);
        }
    }
}

/// Ends a loop from any thread. While one is there, the loop does not end for want of work.
pub struct Stopper {
    post: Arc<Post>,
}

impl Stopper {
    /// Ends the loop, in order, after its current round.
    pub fn stop(&self) {
        self.post.stop();
    }
}

impl Clone for Stopper {
    fn clone(&self) -> Self {
        self.post.enter();
        Self { post: self.post.clone() }
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.post.leave();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").field("thread", &self.post.thread).finish()
    }
}

/// An event loop that was not started yet. It stays on its thread.
///
/// See [`Machine`] for a program.
#[must_use = "an event loop does nothing until it is run"]
pub struct EventLoop {
    seat: Seat,
    machines: [Option<Box<dyn Machine>>; 2],
    _on_one_thread: PhantomData<*const ()>,
}

impl EventLoop {
    /// A loop that is alone.
    #[allow(clippy::new_without_default)] // `Default` would hide that it belongs to this thread.
    pub fn new() -> Self {
        Self::at(Seat::mesh(1).remove(0))
    }

    /// The loop of one seat of a [mesh](Seat::mesh).
    pub fn at(seat: Seat) -> Self {
        Self { seat, machines: [None, None], _on_one_thread: PhantomData }
    }

    /// The machine that the program is about. What it submits without a destination goes to the platform.
    pub fn app(mut self, machine: impl Machine) -> Self {
        self.machines[APP as usize] = Some(Box::new(machine));
        self
    }

    /// The machine that serves the app, and outlives it. What it submits without a destination goes to the app.
    pub fn platform(mut self, machine: impl Machine) -> Self {
        self.machines[PLATFORM as usize] = Some(Box::new(machine));
        self
    }

    /// A handle by which any thread can end the loop.
    pub fn stopper(&self) -> Stopper {
        self.seat.post.enter();
        Stopper { post: self.seat.post.clone() }
    }

    /// Runs the machines on this thread until one of them [stops](Ports::stop) the loop, a [`Stopper`] does, or nothing can happen any
    /// more: no
    /// message, no timer, no doorbell or stopper outside, no other loop.
    ///
    /// # Errors
    /// The system has no file descriptor left for the loop to sleep on, or waiting failed.
    ///
    /// # Panics
    /// If a machine panics: the other one is dropped, and operations that others wait for are answered. If an operation of a child
    /// gets here without a
    /// destination.
    pub fn run(mut self) -> io::Result<()> {
        let driver = Driver::new()?;
        self.seat.taken = true;
        let post = self.seat.post.clone();
        post.set_kicker(driver.kicker());
        let routing = Rc::new(Routing::new(post, self.seat.mesh.clone()));
        let mut running = Running { routing, roots: [None, None], driver };
        for (root, machine) in [APP, PLATFORM].into_iter().zip(std::mem::take(&mut self.machines)) {
            if let Some(machine) = machine {
                running.routing.register_root(root);
                running.routing.state.borrow_mut().with_input.add(root);
                running.roots[root as usize] =
                    Some(Root { machine: Some(machine), port_in: Port::new(), port_out: Port::new() });
            }
        }
        while running.round(None)? {}
        running.end()
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("thread", &self.seat.thread()).finish_non_exhaustive()
    }
}

/// A machine that its loop drives.
struct Root {
    machine: Option<Box<dyn Machine>>,
    port_in: Port,
    port_out: Port,
}

struct Running {
    routing: Rc<Routing>,
    roots: [Option<Root>; 2],
    driver: Driver,
}

impl Running {
    /// One round. False if the loop is to end. With `until`, it sleeps no longer than that, and does not end.
    fn round(&mut self, until: Option<u64>) -> io::Result<bool> {
        let Some(now) = self.wait(until)? else { return Ok(false) };
        self.routing.set_now(now);
        self.expire(now);
        self.open_mail();
        self.route_outputs();
        self.routing.flush();
        self.tick(Timestamp(now));
        Ok(until.is_some() || !self.routing.post.is_stopped())
    }

    /// Phase 1. None: nothing can happen any more.
    fn wait(&mut self, until: Option<u64>) -> io::Result<Option<u64>> {
        if self.routing.is_pending() {
            // A wait of no time. The driver has nothing but kicks to report, and what they were for is pending.
            return Ok(Some(clock::now()));
        }
        let next = self.routing.state.borrow().timers.next_deadline();
        let next = next.into_iter().chain(until).min();
        let post = &self.routing.post;
        let sleeps = post.mail.may_sleep() && (until.is_some() || !post.is_stopped());
        let nothing_left = self.routing.is_alone() && next.is_none() && !post.is_watched();
        let now = match (sleeps, next) {
            (false, _) => Ok(Some(clock::now())),
            (true, _) if nothing_left => Ok(None),
            (true, Some(next)) => self.driver.wait(Timeout::Until(next)).map(Some),
            (true, None) => self.driver.wait(Timeout::Forever).map(Some),
        };
        post.mail.awake();
        now
    }

    /// Phase 2.
    fn expire(&mut self, now: u64) {
        loop {
            let request = {
                let state = &mut *self.routing.state.borrow_mut();
                let Some(expired) = state.timers.pop_expired(now) else { return };
                state.in_flight.get_mut(expired.ticket).and_then(|flight| flight.timer.take())
            };
            if let Some((_, request)) = request {
                self.answer(request, 0);
            }
        }
    }

    /// Phase 3. Bounded: what is sent meanwhile is for the next round.
    fn open_mail(&mut self) {
        let mut link = self.routing.post.mail.take_all();
        while !link.is_null() {
            // SAFETY: in the mail until now, so part of a living node.
            let next = unsafe { &*link }.next();
            // SAFETY: it was given up for the mail, and is taken out once.
            let message = unsafe { Message::from_link(link) };
            link = next;
            self.route(message);
        }
    }

    /// Phase 4.
    fn route_outputs(&mut self) {
        let orphans = std::mem::replace(&mut self.routing.state.borrow_mut().orphans, super::port::Queue::new());
        let mut orphans = orphans;
        while let Some(cancel) = orphans.take() {
            self.route_cancellation(cancel);
        }
        let outputs = self.routing.state.borrow_mut().with_output.detach();
        for root in outputs {
            while let Some(message) = self.roots[root as usize].as_mut().and_then(|root| root.port_out.take()) {
                self.route(message);
            }
        }
    }

    /// Phase 5.
    fn tick(&mut self, now: Timestamp) {
        let inputs = self.routing.state.borrow_mut().with_input.detach();
        for root in inputs {
            let Some(here) = self.roots[root as usize].as_mut() else { continue };
            self.routing.state.borrow_mut().child_signalled[root as usize] = false;
            let mut ports =
                Ports { input: &mut here.port_in, out: &mut here.port_out, routing: &self.routing, me: root };
            if let Some(machine) = &mut here.machine {
                machine.tick(now, &mut ports);
            }
            // A child has signalled and its parent has not looked since: the root is called once more for it. Once: no new signal, no
            // call.
            let state = &mut *self.routing.state.borrow_mut();
            if state.child_signalled[root as usize] && state.unseen[root as usize] > 0 {
                state.with_input.add(root);
            }
        }
    }

    fn route(&mut self, message: Message) {
        match message {
            Message::Submission(request) => self.route_submission(request),
            Message::Cancellation(cancel) => self.route_cancellation(cancel),
            Message::Completion(done) => self.route_completion(done),
            Message::Notification(notice) => self.route_notification(notice),
        }
    }

    fn route_submission(&mut self, request: Request) {
        let id = request.id().0;
        self.deliver(request);
        let early = self.routing.state.borrow_mut().in_flight.get_mut(id).and_then(|flight| flight.early.take());
        if let Some(cancel) = early {
            self.route_cancellation(cancel);
        }
    }

    fn deliver(&mut self, mut request: Request) {
        let here = self.routing.thread();
        let source = request.source().expect("submitted by somebody");
        if request.opcode() == OP_TIMER && source.thread == here {
            return self.set_timer(request);
        }
        let destination = request.destination().unwrap_or_else(|| match source.machine {
            APP => MachineRef::platform(source.thread),
            PLATFORM => MachineRef::app(source.thread),
            child => panic!(
                "fibra: operation {} (opcode {}) of child machine {child} has no destination: there is no default for \
                 children; use Op::to, or Request::set_destination in the parent that forwards it",
                request.id(),
                request.opcode(),
            ),
        });
        request.set_destination(destination);
        if source.thread == here
            && let Some(flight) = self.routing.state.borrow_mut().in_flight.get_mut(request.id().0)
        {
            flight.destination = Some(destination);
        }
        if destination.thread != here {
            return self.send(destination.thread, request.into());
        }
        match self.machine(destination.machine) {
            Some(port) => port.submissions.push(request),
            None => self.answer(request, UNREACHABLE),
        }
    }

    fn set_timer(&mut self, request: Request) {
        let state = &mut *self.routing.state.borrow_mut();
        let id = request.id().0;
        // Unknown: of another mesh, brought here by a machine. Dropped, it is answered.
        let Some(flight) = state.in_flight.get_mut(id) else { return };
        let expired = Expired { waiter: std::ptr::null(), ticket: id, arm: 0 };
        flight.timer = Some((state.timers.insert(request.deadline().0, expired), request));
    }

    fn route_cancellation(&mut self, mut cancel: Cancel) {
        if cancel.node.is_answered() {
            return;
        }
        let here = self.routing.thread();
        if cancel.source().is_some_and(|source| source.thread == here) {
            let timer = {
                let state = &mut *self.routing.state.borrow_mut();
                let Some(flight) = state.in_flight.get_mut(cancel.id().0) else { return };
                if let Some(destination) = flight.destination
                    && cancel.node.cancel_to() == NOWHERE
                {
                    cancel.set_destination(destination);
                }
                let timer = flight.timer.take();
                if timer.is_none() && cancel.node.cancel_to() == NOWHERE {
                    flight.early = Some(cancel);
                    return;
                }
                if let Some((timer, _)) = &timer {
                    state.timers.remove(*timer);
                }
                timer
            };
            if let Some((_, request)) = timer {
                return self.answer(request, CANCELLED);
            }
        }
        let Some(destination) = cancel.destination() else { return };
        if destination.thread != here {
            self.send(destination.thread, cancel.into());
        } else if let Some(port) = self.machine(destination.machine) {
            port.cancellations.push(cancel);
        }
    }

    fn route_completion(&mut self, mut done: Done) {
        let source = done.source().expect("submitted by somebody");
        if source.thread != self.routing.thread() {
            return self.send(source.thread, Message::Completion(done));
        }
        // Of a machine that is gone, it ends here: dropped, it goes back to its pool.
        if self.routing.comes_home(&mut done.owned)
            && let Some(port) = self.machine(source.machine)
        {
            port.completions.push(done);
        }
    }

    fn route_notification(&mut self, notice: Notice) {
        let source = notice.source().expect("submitted by somebody");
        if source.thread != self.routing.thread() {
            return self.send(source.thread, Message::Notification(notice));
        }
        if let Some(port) = self.machine(source.machine) {
            port.notifications.push(notice);
        }
    }

    /// Answers for the target, which is the loop itself or nobody.
    fn answer(&mut self, mut request: Request, result: i32) {
        request.owned.answer(result);
        self.route_completion(Done { owned: request.owned });
    }

    fn send(&mut self, thread: u32, message: Message) {
        if let Err(message) = self.routing.send(thread, message) {
            unreachable_now(message);
        }
    }

    /// The input port of a machine's root, which is marked as having input.
    fn machine(&mut self, machine: u32) -> Option<&mut Port> {
        let root = self.routing.root_of(machine)?;
        let port = &mut self.roots[root as usize].as_mut()?.port_in;
        self.routing.state.borrow_mut().with_input.add(root);
        Some(port)
    }

    /// Drops a root machine, and what is in its ports; its operations are cancelled.
    fn drop_root(&mut self, root: u32) {
        if let Some(mut here) = self.roots[root as usize].take() {
            drop(here.machine.take());
            drop(here);
            self.routing.retire(root);
        }
    }

    /// The orderly end; see the head of this file.
    fn end(mut self) -> io::Result<()> {
        for root in [APP, PLATFORM] {
            self.drop_root(root);
            let until = clock::now().saturating_add(GRACE.as_nanos() as u64);
            while self.routing.orphaned() > 0 {
                self.round(Some(until))?;
                let left = self.routing.orphaned();
                if left > 0 && clock::now() >= until {
                    crate::prim::say(format_args!(
                        "fibra: an event loop ends although {left} of its operations were cancelled {} s ago and not \
                         answered: a machine that gets a Cancel must answer the operation, or drop it",
                        GRACE.as_secs()
                    ));
                    break;
                }
            }
        }
        // What the last round has put out.
        self.route_outputs();
        self.routing.flush();
        Ok(())
    }
}

/// Also when a machine has panicked: whoever waits elsewhere gets an answer.
impl Drop for Running {
    fn drop(&mut self) {
        self.drop_root(APP);
        self.drop_root(PLATFORM);
        self.routing.flush();
        discard(&self.routing.post);
    }
}

/// Closes the mail of a loop. What is in it ends or goes home.
fn discard(post: &Post) {
    let mut link = post.mail.close();
    while !link.is_null() {
        // SAFETY: in the mail until now, so part of a living node.
        let next = unsafe { &*link }.next();
        // SAFETY: it was given up for the mail, and is taken out once.
        let message = unsafe { Message::from_link(link) };
        link = next;
        unreachable_now(message);
    }
}
