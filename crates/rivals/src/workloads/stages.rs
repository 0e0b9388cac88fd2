//! `stages`: numbers through ten stages that add one, as a stream: each a fiber (fused=0) with a channel of `cap` places behind it, or all
//! of them on one (fused=1). tokio and Go have ten tasks with channels between, also where fibra's stages are fused; tokio's smallest
//! channel has one place. One operation is one number through all ten.

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "stages",
    operation: "one number through ten stages of a stream, each a task, or fused",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Tokio, tokio), (Peer::Go, go::side)],
};

const STAGES: u64 = 10;

fn cases(size: Size) -> Vec<Case> {
    let case = |fused, cap, w| {
        let sizes = [("fused", fused), ("cap", cap), ("n", size.pick(100_000, 100)), ("w", w)];
        // The goals are for the pipeline as it is drawn (no places between the stages) and set against Go, fused or not.
        let most = if fused == 1 { 0.05 } else { 0.5 };
        let goal = if cap == 0 { Goal::To { most, rival: Peer::Go } } else { Goal::Shown };
        Case::new(&sizes, &[Peer::Fibra, Peer::Tokio, Peer::Go]).time(goal)
    };
    vec![case(0, 0, 1), case(0, 0, 2), case(0, 64, 1), case(0, 64, 2), case(1, 0, 1), case(1, 0, 2)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 100 }
}

fn sum(n: u64) -> u64 {
    n * (n - 1) / 2 + n * STAGES
}

fn fibra(params: &Params) -> Sample {
    let (n, cap, fused) = (params.get("n"), params.size("cap"), params.get("fused") == 1);
    Fibra::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let mut pipe = fibra::stream::buffered(cap).from_iter(0..n);
            if fused {
                pipe = pipe.fused();
            }
            for _ in 0..STAGES {
                pipe = pipe.map(|number| number + 1);
            }
            assert_eq!(pipe.fold(0, |sum, number| sum + number), sum(n));
            passes.end(n);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    use tokio::sync::mpsc;
    let (n, cap) = (params.get("n"), params.size("cap").max(1));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (tx, mut rx) = mpsc::channel(cap);
            tokio::spawn(async move {
                for number in 0..n {
                    assert!(tx.send(number).await.is_ok());
                }
            });
            for _ in 0..STAGES {
                let (tx, behind) = mpsc::channel(cap);
                let mut before = std::mem::replace(&mut rx, behind);
                tokio::spawn(async move {
                    while let Some(number) = before.recv().await {
                        assert!(tx.send(number + 1).await.is_ok());
                    }
                });
            }
            let mut total = 0;
            while let Some(number) = rx.recv().await {
                total += number;
            }
            assert_eq!(total, sum(n));
            passes.end(n);
        }
        passes.sample()
    })
}
