//! The workloads, one file each: semantics, sizes, goals, and a body for each kind of peer. To add one, write its file and name it here.

mod idle_mem;
mod noisy;
mod requests;
mod skew;
mod spawn_await;
mod spawn_join;
mod timers;
mod yielding;

use crate::plan::Workload;

/// In the order they run and are printed.
pub(crate) const ALL: &[Workload] = &[
    spawn_join::WORKLOAD,
    spawn_await::WORKLOAD,
    yielding::WORKLOAD,
    timers::WORKLOAD,
    idle_mem::WORKLOAD,
    skew::WORKLOAD,
    noisy::WORKLOAD,
];
