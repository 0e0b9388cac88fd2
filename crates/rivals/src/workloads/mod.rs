//! The workloads, one file each: semantics, sizes, goals, and a body for each kind of peer. To add one, write its file and name it here.

mod actors;
mod cancel;
pub(crate) mod conn_mem;
mod fan_out;
mod fork_join;
mod http;
mod idle_mem;
mod locals;
mod machine;
mod machine_echo;
mod machine_mem;
mod message;
mod mpmc;
mod mutex;
mod noisy;
mod par_map;
mod pingpong;
mod pipeline;
mod requests;
mod ring;
mod scope;
mod select;
mod sieve;
mod skew;
mod skynet;
mod spawn_await;
mod spawn_join;
mod special;
mod stages;
mod tcp_echo;
mod timers;
mod yielding;

use crate::plan::Workload;

pub(crate) use http::serve as serve_http;

/// In the order they run and are printed.
pub(crate) const ALL: &[Workload] = &[
    spawn_join::WORKLOAD,
    spawn_await::WORKLOAD,
    yielding::WORKLOAD,
    pingpong::WORKLOAD,
    ring::WORKLOAD,
    sieve::WORKLOAD,
    mpmc::WORKLOAD,
    select::WORKLOAD,
    special::WORKLOAD,
    stages::WORKLOAD,
    par_map::WORKLOAD,
    skynet::WORKLOAD,
    mutex::WORKLOAD,
    scope::WORKLOAD,
    fan_out::WORKLOAD,
    cancel::WORKLOAD,
    fork_join::WORKLOAD,
    timers::WORKLOAD,
    idle_mem::WORKLOAD,
    conn_mem::WORKLOAD,
    skew::WORKLOAD,
    noisy::WORKLOAD,
    locals::WORKLOAD,
    tcp_echo::WORKLOAD,
    http::WORKLOAD,
    machine::WORKLOAD,
    machine_echo::WORKLOAD,
    machine_mem::WORKLOAD,
    pipeline::WORKLOAD,
    actors::RING,
    actors::FAN_IN,
    actors::FAN_OUT,
    actors::ASK,
    actors::RANDOM,
    actors::SPAWN,
    actors::IDLE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;
    use crate::plan::{Goal, Size};

    /// What a child would refuse is found here rather than after an hour of measuring.
    #[test]
    fn every_case_can_run() {
        for workload in ALL {
            for case in [Size::Full, Size::Quick].into_iter().flat_map(workload.cases) {
                assert!(!case.metrics.is_empty(), "{}: nothing is compared", workload.name);
                let peers: BTreeSet<_> = case.entrants.iter().map(|entrant| entrant.peer.name()).collect();
                assert_eq!(peers.len(), case.entrants.len(), "{}: a peer runs twice in a case", workload.name);
                // A bound needs no rival.
                let is_bounded = case.metrics.iter().any(|metric| matches!(metric.goal, Goal::AtMost(_)));
                assert!(peers.contains("fibra"), "{}: fibra is missing", workload.name);
                assert!(peers.len() > 1 || is_bounded, "{}: who is compared?", workload.name);
                for entrant in &case.entrants {
                    assert!(entrant.params.workers() > 0);
                    let has_side = workload.sides.iter().any(|(peer, _)| *peer == entrant.peer);
                    assert!(has_side, "{} has no {} side", workload.name, entrant.peer.name());
                }
            }
        }
    }
}
