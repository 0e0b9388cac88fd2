//! Machines: what a user writes, and the children that a machine may have.
//!
//! Above: users. Below: `port`, `routing`.
//!
//! A machine is an ordinary value with one function, [`Machine::tick`], that its loop calls when something came for it.
//! The function runs to its end on the loop's thread, and does not block. A child is a machine that another one owns:
//! it has ports of its own, but its output goes only as far as its parent passes it on.
//!
//! Invariants: a child is ticked by its parent only, within the parent's own tick; a child is dropped before its
//! parent, because the parent contains it; a machine that is dropped has its operations cancelled, and they stay in
//! memory until they are answered.

use std::fmt;

use super::op::Timestamp;
use super::port::{Port, Ports, Queue};
use super::routing::SharedRouting;

/// A state machine that an event loop drives: it receives messages and answers, and puts out its own.
///
/// ```
/// use fibra::machine::{EventLoop, Machine, OpPool, Ports, Timestamp};
///
/// const DOUBLE: u32 = 1;
///
/// /// Asks once, and stops when it has the answer.
/// struct App(OpPool<i32>);
///
/// impl Machine for App {
///     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
///         if ports.in_flight() == 0 && ports.input.is_empty() {
///             let op = self.0.take(DOUBLE, 21).expect("the pool is large enough");
///             ports.submit(op);
///         }
///         while let Some(done) = ports.input.completions.pop() {
///             assert_eq!(done.result(), 42);
///             ports.stop();
///         }
///     }
/// }
///
/// /// Answers.
/// struct Platform;
///
/// impl Machine for Platform {
///     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
///         while let Some(request) = ports.input.submissions.pop() {
///             let number = *request.data::<i32>().expect("that is what the app sends");
///             ports.complete(request, number * 2);
///         }
///     }
/// }
///
/// EventLoop::new().app(App(OpPool::with_capacity(1))).platform(Platform).run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Machine: 'static {
    /// Called once when the machine begins, and then whenever something came for it. `now` is the time at which the loop's round
    /// began, or, when much is to be done, one of the few before it. What is left in `ports.input` is there again at the next tick, but is
    /// no reason for one.
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>);
}

/// A machine inside another one. Its parent owns it, ticks it and sees to what it puts out:
///
/// * [`Child::tick`] hands over what came for the child (or for its own children), and ticks the child if there is anything. What came for
///   a child is never in its parent's input.
/// * [`Child::output`] is what the child wants. The parent forwards it ([`Ports::forward`]), answers it itself ([`Ports::complete`]),
///   makes other
///   operations of it, or one of many. What is answered finds its way back through [`Child::tick`].
///
/// A child may be dropped at any time: its operations are cancelled, and stay in memory until they are answered.
pub struct Child<M: Machine> {
    /// Dropped before everything else.
    machine: Option<M>,
    port_out: Port,
    routing: SharedRouting,
    id: u32,
    begun: bool,
}

impl<M: Machine> Child<M> {
    pub(super) fn new(routing: SharedRouting, parent: u32, machine: M) -> Self {
        let id = routing.register_child(parent);
        Self { machine: Some(machine), port_out: Port::new(), routing, id, begun: false }
    }

    /// The address of the child: others may submit to it.
    pub fn id(&self) -> super::MachineRef {
        super::MachineRef { thread: self.routing.thread(), machine: self.id }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        self.machine.as_ref().expect("there until dropped")
    }

    /// The machine.
    pub fn machine_mut(&mut self) -> &mut M {
        self.machine.as_mut().expect("there until dropped")
    }

    /// Hands over what came for the child, and ticks it if there was anything, for itself or for a child of its own, if one of those has
    /// put something out that it has not looked at, or if this is its first tick. `ports` are the parent's. To tick a child for which
    /// nothing came costs a few instructions, however much came for others.
    pub fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        assert!(
            std::rc::Rc::ptr_eq(&self.routing, ports.routing),
            "fibra: a child is ticked by its own parent: machine {} belongs to another loop",
            self.id
        );
        let is_first = !std::mem::replace(&mut self.begun, true);
        let Some(input) = self.routing.begin_child(self.id, is_first) else { return };
        /// Gives the port back, also if the machine panics.
        struct Ticked<'a>(Option<Box<Port>>, &'a SharedRouting, u32);
        impl Drop for Ticked<'_> {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(|input| self.1.end_child(self.2, input));
            }
        }
        let mut ticked = Ticked(Some(input), &self.routing, self.id);
        let input = ticked.0.as_deref_mut().expect("given back at the end");
        let mut ports = Ports { input, out: &mut self.port_out, routing: &self.routing, me: self.id, is_child: true };
        self.machine.as_mut().expect("there until dropped").tick(now, &mut ports);
    }

    /// The messages that the child has put out and its parent has not taken.
    pub fn output(&mut self) -> &mut Port {
        self.routing.seen(self.id);
        &mut self.port_out
    }

    /// Forwards all that the child has put out, unchanged. Operations of a child need a [destination](super::Op::to).
    pub fn forward_all(&mut self, ports: &mut Ports<'_>) {
        while let Some(message) = self.output().next() {
            ports.forward(message);
        }
    }
}

impl<M: Machine> Drop for Child<M> {
    fn drop(&mut self) {
        /// Also if the machine's destructor panics.
        struct Retires<'a>(&'a mut Port, &'a SharedRouting, u32);
        impl Drop for Retires<'_> {
            fn drop(&mut self) {
                let Self(port_out, routing, id) = self;
                routing.retire(*id, &mut port_out.cancellations);
                **port_out = Port::new();
            }
        }
        // The machine's answers go home before those of its destructor; and children before parents: the machine's own children retire
        // first.
        self.port_out.completions = Queue::new();
        let _retires = Retires(&mut self.port_out, &self.routing, self.id);
        drop(self.machine.take());
    }
}

impl<M: Machine + fmt::Debug> fmt::Debug for Child<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("id", &self.id()).field("machine", self.machine()).finish_non_exhaustive()
    }
}
