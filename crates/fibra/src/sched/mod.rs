//! The scheduler: what runs where and when.
//!
//! ```text
//! worker.rs     one thread's loop; the switch into and out of fibers
//! mail.rs       what a worker gets from other threads                ending.rs  the end of a fiber      timing.rs  its timers
//! offer.rs      the second half of a `join`: offered, and taken back if nobody came      newest.rs  taking back what one has spawned
//! sleep.rs      a worker without work: the steps to sleep and back   search.rs  how it steals, spins, blocks   rest.rs  what it gives back
//! queue/        fresh (stealable, unstarted), ready (started, owner-only), inbox (from other threads), injector (global)
//! idle.rs       who sleeps, who searches, who is woken
//! seats.rs      places for workers that come and go                  elastic.rs  who comes and who leaves
//! phase.rs      what a worker is doing                               wheel.rs   deadlines that fire although a worker is stuck
//! alarms.rs     wakers that are called at a moment
//! shared.rs     what all threads of a runtime share                  reach.rs  how its workers are reached from other threads
//! root.rs       counting fibers without a shared line
//! enqueue.rs    the way into the queues for everything above        wake.rs  completing a wait, whatever waits
//! gathering.rs  those of several fibers that have ended, for one who waits for the next
//! scope.rs      scopes: who counts in one, and who is cancelled with it
//! cancel.rs     asking a fiber to end                                wakers.rs  calling async wakers
//! blocking.rs   the pool of threads for blocking work               sysmon.rs  the thread that looks after workers
//! binding.rs    how a fiber comes by its stack                       succession.rs  a stack goes from a fiber to the next
//! started.rs    the lists of started fibers
//! readiness.rs  who waits for a socket, and where it is registered    source.rs  all of them      outside_io.rs  for plain threads
//! strays.rs     threads for calls that nobody waits for at the end    per_process.rs  what a forked child makes anew
//! errands.rs    what sysmon has other threads do: printing, calling wakers
//! signals.rs    who listens to which signal of the system
//! visitors.rs   threads from outside that touch a runtime            stall.rs   reports a worker that stands still
//! claim.rs      which thread may touch the buffer through which sysmon looks at a thread that computes
//! (the choices of a worker are in `prim::policy`)                    current.rs  which worker and fiber this is
//! ```
//!
//! Above: `wait`, which parks and wakes. Below: `machine` (timers), `driver`, `fiber`, `prim`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod alarms;
#[cfg(not(any(loom, shuttle)))]
mod binding;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod blocking;
#[allow(dead_code)] // Without backtraces, nothing but its tests and models uses it.
pub(crate) mod claim;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod current;
#[cfg(not(any(loom, shuttle)))]
mod describe;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod elastic;
#[cfg(not(any(loom, shuttle)))]
mod ending;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod enqueue;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod errands;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod fork;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod gathering;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod here;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod hook;
pub(crate) mod idle;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod launch;
#[cfg(not(any(loom, shuttle)))]
mod mail;
#[cfg(all(not(any(loom, shuttle)), feature = "unstable-migration"))]
pub(crate) mod migrate;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod names;
mod newest;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod objects;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod offer;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod open_scopes;
#[cfg(not(any(loom, shuttle)))]
mod outside_io;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod per_process;
pub(crate) mod phase;
pub(crate) mod queue;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod quiet;
pub(crate) mod reach;
pub(crate) mod readiness;
#[cfg(not(any(loom, shuttle)))]
mod rest;
pub(crate) mod root;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod rules;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod scope;
#[cfg(not(any(loom, shuttle)))]
mod search;
pub(crate) mod seats;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod shared;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod signals;
mod sleep;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod source;
#[cfg(not(any(loom, shuttle)))]
mod stackless;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stall;
#[cfg(not(any(loom, shuttle)))]
mod started;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stats;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod strays;
#[cfg(not(any(loom, shuttle)))]
mod succession;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod sysmon;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod timing;
pub(crate) mod visitors;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod wake;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod wakers;
pub(crate) mod wheel;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod worker;
