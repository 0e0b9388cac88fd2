//! The scheduler: what runs where and when.
//!
//! In reading order:
//!
//! ```text
//! worker.rs       one thread's loop; the switch into and out of fibers     parts.rs  its fields, in groups
//! queue/          fresh (stealable, unstarted), ready (started, owner-only), inbox (from other threads), injector (global)
//! life/           the life of a fiber on its worker: its stack, its end, taking back what was spawned
//! search.rs       a worker without work: how it steals, spins, blocks      rest.rs  what it gives back
//! thinning.rs     memory of deep calls that fibers which wait for long do not need
//! sleep.rs        the steps to sleep and back                             idle.rs  which workers sleep, search, are woken
//! patience.rs     how long a thief leaves an owner alone                 surplus.rs  when an owner wakes a thief
//! overload.rs     when a worker gives new fibers away                    breadth.rs  where work goes on that can begin anew
//! stretch.rs      for how long a state of a worker has lasted
//! calm.rs         whether a worker has slept most of the time
//! flight.rs       what a worker notes of its turns while the recorder is on
//! phase.rs        what a worker is doing                                  stats.rs what it counts
//! quiet.rs        asks the inspector when nothing runs any more
//! timers/         what happens at a moment
//! completions.rs  the driver of a worker: when the worker looks at it, and which waiters its reports go to
//! shared.rs       what all threads of a runtime share                     reach.rs  how its workers are reached from other threads
//! mail.rs         what a worker gets from other threads                   visitors.rs  threads from outside that touch a runtime
//! enqueue.rs      the way into the queues for everything above            complete.rs  completing the wait of a fiber, thread or future
//! call_wakers.rs  calling async wakers
//! members/        what fibers count in: roots, scopes; the lists of started ones
//! staff/          workers that come and go                                dealing.rs  which worker a spread fiber goes to
//! current.rs      which worker and fiber this is                          here.rs  what runs here, for cancellation
//! rules.rs        what the scheduler asks of the floors above             monitoring.rs  what it is told about the monitor
//! sysmon.rs       calling the monitor's thread                            bell.rs  the word by which a push calls it
//! kept.rs         what floors above keep for a runtime
//! (the choices of a worker are in `prim::policy`)
//! ```
//!
//! Above: `reactor`, `blocking`, `monitor`, and `wait`, which parks and wakes. Below: `driver`, `fiber`, `waiter`, `prim`.

pub(crate) mod bell;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod breadth;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod call_wakers;
#[cfg(not(any(loom, shuttle)))]
mod calm;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod complete;
#[cfg(not(any(loom, shuttle)))]
mod completions;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod current;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod dealing;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod enqueue;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod flight;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod here;
pub(crate) mod idle;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod kept;
pub(crate) mod life;
#[cfg(not(any(loom, shuttle)))]
mod mail;
pub(crate) mod members;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod monitoring;
#[cfg(not(any(loom, shuttle)))]
mod overload;
#[cfg(not(any(loom, shuttle)))]
mod parts;
#[cfg(not(any(loom, shuttle)))]
mod patience;
pub(crate) mod phase;
pub(crate) mod queue;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod quiet;
pub(crate) mod reach;
#[cfg(not(any(loom, shuttle)))]
mod rest;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod rules;
#[cfg(not(any(loom, shuttle)))]
mod search;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod shared;
mod sleep;
pub(crate) mod staff;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stats;
#[cfg(not(any(loom, shuttle)))]
mod stretch;
pub(crate) mod surplus;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod sysmon;
#[cfg(not(any(loom, shuttle)))]
mod thinning;
pub(crate) mod timers;
pub(crate) mod visitors;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod worker;
