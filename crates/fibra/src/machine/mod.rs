//! Machines: event loops without fibers, and without allocation.
//!
//! A [`Machine`] is a value with one function that its [`EventLoop`] calls when something came for it. Machines work for each other by
//! **operations**: one submits, another one answers, and the same piece of memory travels there and back. Operations come from a pool
//! of the machine's
//! own ([`OpPool`]), queues are lists through the operations, and so a loop that has warmed up allocates nothing and cannot overflow.
//!
//! | to | there is |
//! |---|---|
//! | run | [`EventLoop`], with an *app* and a *platform* that serves it; [`Stopper`] |
//! | run on several threads | [`Seat::mesh`], [`EventLoop::at`]; machines are addressed by [`MachineRef`] |
//! | ask | [`OpPool::take`], [`Ports::submit`]; the answer comes as a [`Done`] |
//! | answer | a [`Request`], [`Ports::complete`] |
//! | change one's mind | [`Ports::cancel`]; the target gets a [`Cancel`] |
//! | be told again and again | [`Op::standing`], [`Ports::ring`], [`Doorbell`], [`Notice`]; [`ring`](ring()), [`channel`](channel()) |
//! | let time pass | [`OP_TIMER`] |
//! | read, write, accept, connect, receive | [`platform`]: a ready-made [`Platform`] |
//! | build of parts | [`Ports::child`], [`Child`] |
//! | run beside fibers | [`Runtime::attach`](crate::Runtime::attach), [`MachineRef::call`], [`Caller`] |
//!
//! # What holds
//!
//! * Every operation that was submitted comes back exactly once: answered by its target, or with [`CANCELLED`], [`ABANDONED`] or
//!   [`UNREACHABLE`].
//! * Cancelling is a wish. If the target was faster, its answer stands.
//! * An operation's memory is used again only when its answer *and* its own cancellation have been acknowledged.
//! * From one machine to another, messages of one kind that it gives to its [`Ports`] arrive in order, also between threads.
//! * Any handle, machine or loop may be dropped at any time, or forgotten: dropped, what others wait for is answered; forgotten, it
//!   stays in memory.
//! * The app is dropped before the platform, and children before their parents.
//!
//! Machines must not block: there is one place where a loop's thread waits, and that is the loop's.
//!
//! See [`Machine`] for a first program, and the guide for one with a child, a ring and two threads.

// For readers of the source. Above this module: `net`, whose sockets machines take. Beside: `runtime`, to which machines are attached.
// Below: `task`, `wait`, `sched` (whose `timers::heap` a loop has one of), `driver`, `prim`. From the bottom up:
// `address`, `table`, `link`, `desk`, `mail`, `flight`, `node`, `pool`, `op`, `spsc`, `ring`, `mesh`, `port`, `registry`, `routing`,
// `machine`, `call`, `rounds`, `platform`, `event_loop`; each says what it relies on. What needs fibers (`EventLoop::run`,
// `Runtime::attach`, `MachineRef::call`) is in `attach`.

mod address;
#[cfg(not(any(loom, shuttle)))]
mod attach;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod call;
mod desk;
#[cfg(not(any(loom, shuttle)))]
mod event_loop;
mod flight;
mod link;
#[cfg(not(any(loom, shuttle)))]
#[allow(clippy::module_inception)] // That is what it is about.
mod machine;
mod mail;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod mesh;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod node;
mod op;
#[cfg(not(any(loom, shuttle)))]
pub mod platform;
mod pool;
#[cfg(not(any(loom, shuttle)))]
mod port;
#[cfg(not(any(loom, shuttle)))]
mod registry;
#[cfg(not(any(loom, shuttle)))]
mod ring;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod rounds;
#[cfg(not(any(loom, shuttle)))]
mod routing;
mod spsc;
#[cfg(not(any(loom, shuttle)))]
mod table;

#[cfg(not(any(loom, shuttle)))]
pub use self::{
    address::{ABANDONED, CANCELLED, MachineRef, UNREACHABLE},
    call::{Answer, CallError, Caller},
    event_loop::EventLoop,
    machine::{Child, Machine},
    mesh::{Seat, Stopper},
    op::{Cancel, Done, Doorbell, Notice, OP_TIMER, Op, OpId, Request, Timestamp, TraceId},
    platform::{
        OP_ACCEPT, OP_CLOSE, OP_CONNECT, OP_READ, OP_RECEIVE, OP_RECV_FROM, OP_SEND_TO, OP_WATCH, OP_WRITE,
        OP_WRITE_ALL, Platform,
    },
    pool::{Exhausted, OpPool, PoolGauge},
    port::{Message, NotInFlight, Port, Ports, Queue, Queued},
    ring::{Overflow, RingReader, RingStats, RingWriter, channel, ring},
};
