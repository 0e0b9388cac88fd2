//! `fan_out`: the errgroup pattern. A request asks ten children, each of which yields twice and then answers; every 16th request has one
//! that fails at once, which cancels the others. One operation is one request.

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "fan_out",
    operation: "one request that asks ten children; every 16th has one that fails and cancels the rest",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Tokio, tokio)],
};

const CHILDREN: u64 = 10;
const FAILS_EVERY: u64 = 16;

fn cases(size: Size) -> Vec<Case> {
    let case =
        |w| Case::new(&[("n", size.pick(100_000, 200)), ("w", w)], &[Peer::Fibra, Peer::Tokio]).time(Goal::Shown);
    vec![case(1), case(2)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 1_000 }
}

fn fails(request: u64, child: u64) -> bool {
    request.is_multiple_of(FAILS_EVERY) && child == CHILDREN / 2
}

fn fibra(params: &Params) -> Sample {
    let n = params.get("n");
    Fibra::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            for request in 0..n {
                let answer = fibra::try_scope(|s| {
                    let children: Vec<_> = (0..CHILDREN)
                        .map(|child| {
                            s.spawn(move || {
                                if fails(request, child) {
                                    return Err("no answer");
                                }
                                fibra::yield_now();
                                fibra::yield_now();
                                Ok(child)
                            })
                        })
                        .collect();
                    Ok(children.into_iter().filter_map(|child| child.join().ok()).sum::<u64>())
                });
                assert_eq!(answer.is_err(), request.is_multiple_of(FAILS_EVERY));
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
            for request in 0..n {
                let mut set = tokio::task::JoinSet::new();
                for child in 0..CHILDREN {
                    set.spawn(async move {
                        if fails(request, child) {
                            return Err("no answer");
                        }
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                        Ok(child)
                    });
                }
                let mut answer = Ok(0);
                while let Some(ended) = set.join_next().await {
                    match ended {
                        Ok(Ok(value)) => answer = answer.map(|sum| sum + value),
                        Ok(Err(error)) => {
                            answer = Err(error);
                            set.abort_all();
                        }
                        Err(aborted) => assert!(aborted.is_cancelled()),
                    }
                }
                assert_eq!(answer.is_err(), request.is_multiple_of(FAILS_EVERY));
            }
            passes.end(n);
        }
        passes.sample()
    })
}
