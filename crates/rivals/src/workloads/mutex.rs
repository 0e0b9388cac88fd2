//! `mutex`: tasks lock one mutex, add one, unlock it, again and again. Contended: 1000 tasks share it, as in the peers' programs. Not
//! contended: one task alone. The lock is each peer's own; threads use std's, with fewer of them.

use std::sync::Arc;

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::may::May;
use crate::peers::threads::Threads;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "mutex",
    operation: "one lock and unlock of a mutex that all tasks share",
    cases,
    sides: &[
        (Peer::Fibra, blocking::<Fibra, fibra::sync::Mutex<u64>>),
        (Peer::Tokio, tokio),
        (Peer::May, blocking::<May, may::sync::Mutex<u64>>),
        (Peer::Threads, blocking::<Threads, std::sync::Mutex<u64>>),
        (Peer::Go, go::side),
    ],
};

fn cases(size: Size) -> Vec<Case> {
    let case = |tasks: u64, rounds: u64, w, goal| {
        Case::new(&[("tasks", tasks), ("rounds", rounds), ("w", w)], &[Peer::Fibra, Peer::Tokio, Peer::May, Peer::Go])
            .with(Peer::Threads, &[("tasks", tasks.min(8)), ("rounds", rounds)])
            .time(goal)
    };
    let (tasks, rounds) = (size.pick(1_000, 20), size.pick(1_000, 50));
    // The goals are against Go (one worker) and Boost (two), which is not here; see performance.md.
    vec![
        case(1, size.pick(1_000_000, 1_000), 1, Goal::Shown),
        case(tasks, rounds, 1, Goal::To { most: 1.0, rival: Peer::Go }),
        case(tasks, rounds, 2, Goal::Shown),
    ]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("tasks") }
}

/// A lock around a number.
trait Counter: Send + Sync + 'static {
    fn new() -> Self;
    fn count(&self);
    fn total(&self) -> u64;
}

impl Counter for fibra::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline(always)]
    fn count(&self) {
        *self.lock() += 1;
    }
    fn total(&self) -> u64 {
        *self.lock()
    }
}

impl Counter for may::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline(always)]
    fn count(&self) {
        *self.lock().expect("nobody panics") += 1;
    }
    fn total(&self) -> u64 {
        *self.lock().expect("nobody panics")
    }
}

#[allow(clippy::disallowed_types)] // A rival.
impl Counter for std::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline(always)]
    fn count(&self) {
        *self.lock().expect("nobody panics") += 1;
    }
    fn total(&self) -> u64 {
        *self.lock().expect("nobody panics")
    }
}

fn blocking<P: Blocking, M: Counter>(params: &Params) -> Sample {
    let (tasks, rounds) = (params.get("tasks"), params.get("rounds"));
    P::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let shared = Arc::new(M::new());
            let handles: Vec<_> = (0..tasks)
                .map(|_| {
                    let shared = shared.clone();
                    P::spawn(move || (0..rounds).for_each(|_| shared.count()))
                })
                .collect();
            handles.into_iter().for_each(P::join);
            assert_eq!(shared.total(), tasks * rounds);
            passes.end(tasks * rounds);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    let (tasks, rounds) = (params.get("tasks"), params.get("rounds"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let shared = Arc::new(tokio::sync::Mutex::new(0_u64));
            let handles: Vec<_> = (0..tasks)
                .map(|_| {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        for _ in 0..rounds {
                            *shared.lock().await += 1;
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.await.expect("a task of the benchmark does not panic");
            }
            assert_eq!(*shared.lock().await, tasks * rounds);
            passes.end(tasks * rounds);
        }
        passes.sample()
    })
}
