//! `spawn_await`: spawn one empty task and join it at once, over and over: the latency of a spawn.

use crate::measure::{Passes, Sample};
use crate::peers::{Blocking, Peer, Setup, task_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "spawn_await",
    operation: "one empty task, spawned and joined before the next",
    cases,
    sides: task_sides!(blocking, tokio),
};

fn cases(size: Size) -> Vec<Case> {
    let n = size.pick(300_000, 1_000);
    let case = |w, goal| {
        Case::new(&[("n", n), ("w", w)], &[Peer::Fibra, Peer::Tokio, Peer::Go])
            // With two workers each join of may crosses cores: 30 us.
            .with(Peer::May, &[("n", size.pick(50_000, 200))])
            .with(Peer::Threads, &[("n", size.pick(10_000, 100))])
            .time(goal)
    };
    vec![case(1, Goal::Ratio(0.25)), case(2, Goal::Ratio(0.20))]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 1_000 }
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let n = params.get("n");
    P::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n {
                P::join(P::spawn(|| ()));
            }
            passes.end(n);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    let n = params.get("n");
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n {
                tokio::spawn(async {}).await.expect("an empty task ends");
            }
            passes.end(n);
        }
        passes.sample()
    })
}
