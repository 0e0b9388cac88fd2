//! `scope`: open a scope, start `k` empty children in it that borrow from outside, wait for all, and again. tokio has no tasks that borrow:
//! its `JoinSet` shares by `Arc`. Threads are `std::thread::scope`, far fewer of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "scope",
    operation: "one child of a scope that is opened, filled and waited for",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Tokio, tokio), (Peer::Threads, threads)],
};

fn cases(size: Size) -> Vec<Case> {
    let case = |w, k: u64| {
        let n = size.pick(1_000_000, 2_000);
        Case::new(&[("n", n), ("k", k), ("w", w)], &[Peer::Fibra, Peer::Tokio])
            .with(Peer::Threads, &[("n", size.pick(10_000, 200))])
            .time(Goal::Shown)
    };
    vec![case(1, 2), case(1, 100), case(2, 2), case(2, 100)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 1_000 }
}

fn fibra(params: &Params) -> Sample {
    let (n, k) = (params.size("n"), params.size("k"));
    Fibra::run(setup(params), move || {
        let sum = AtomicU64::new(0);
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n / k {
                fibra::scope(|s| {
                    for _ in 0..k {
                        s.spawn(|| sum.fetch_add(1, Relaxed));
                    }
                });
            }
            passes.end((n / k * k) as u64);
        }
        assert_eq!(sum.load(Relaxed) % (n / k * k) as u64, 0, "every child has run");
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    let (n, k) = (params.size("n"), params.size("k"));
    tokio_peer::run(setup(params), async move {
        let sum = Arc::new(AtomicU64::new(0));
        let mut passes = Passes::new();
        while passes.begin() {
            for _ in 0..n / k {
                let mut set = tokio::task::JoinSet::new();
                for _ in 0..k {
                    let sum = sum.clone();
                    set.spawn(async move { sum.fetch_add(1, Relaxed) });
                }
                while let Some(ended) = set.join_next().await {
                    ended.expect("a task of the benchmark does not panic");
                }
            }
            passes.end((n / k * k) as u64);
        }
        passes.sample()
    })
}

fn threads(params: &Params) -> Sample {
    let (n, k) = (params.size("n"), params.size("k"));
    let sum = AtomicU64::new(0);
    let mut passes = Passes::new();
    while passes.begin() {
        for _ in 0..n / k {
            std::thread::scope(|s| {
                for _ in 0..k {
                    s.spawn(|| sum.fetch_add(1, Relaxed));
                }
            });
        }
        passes.end((n / k * k) as u64);
    }
    passes.sample()
}
