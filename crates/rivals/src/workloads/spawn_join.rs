//! `spawn_join`: spawn a batch of empty tasks, join them all in the order of spawning, and again.

use crate::measure::{Passes, Sample};
use crate::peers::{Blocking, Peer, Setup, task_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "spawn_join",
    operation: "one empty task, spawned in a batch and joined",
    cases,
    sides: task_sides!(blocking, tokio),
};

fn cases(size: Size) -> Vec<Case> {
    let (n, batch) = (size.pick(1_000_000, 2_000), size.pick(10_000, 500));
    let case = |w, goal| {
        Case::new(&[("n", n), ("batch", batch), ("w", w)], &[Peer::Fibra, Peer::Tokio, Peer::May, Peer::Go])
            .with(Peer::Threads, &[("n", size.pick(20_000, 200)), ("batch", size.pick(1_000, 100))])
            .time(goal)
    };
    vec![case(1, Goal::Ratio(0.10)), case(2, Goal::Ratio(0.13))]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("batch") }
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let (n, batch) = (params.size("n"), params.size("batch"));
    P::run(setup(params), move || {
        let mut handles = Vec::with_capacity(batch);
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n / batch {
                handles.extend((0..batch).map(|_| P::spawn(|| ())));
                for handle in handles.drain(..) {
                    P::join(handle);
                }
            }
            passes.end((n / batch * batch) as u64);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    let (n, batch) = (params.size("n"), params.size("batch"));
    tokio_peer::run(setup(params), async move {
        let mut handles = Vec::with_capacity(batch);
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n / batch {
                handles.extend((0..batch).map(|_| tokio::spawn(async {})));
                for handle in handles.drain(..) {
                    handle.await.expect("an empty task ends");
                }
            }
            passes.end((n / batch * batch) as u64);
        }
        passes.sample()
    })
}
