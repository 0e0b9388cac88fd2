//! `fork_join`: the nth Fibonacci number by the definition, dividing wherever n is at least 2: with `join(a, b)` (how=0) in fibra and
//! rayon, where the second half is offered and usually taken back, or (how=1) with a task that is spawned and joined for the second half.
//! One operation is one fork and its join. A leaf does nothing, so this measures what dividing costs, and how soon other workers help.

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, rayon as rayon_peer, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "fork_join",
    operation: "one fork and its join in a recursive fib: by join(a, b) (how=0), or by spawn and join (how=1)",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Rayon, rayon), (Peer::Tokio, tokio)],
};

const JOIN: u64 = 0;
const SPAWN: u64 = 1;

fn cases(size: Size) -> Vec<Case> {
    let n = size.pick(30, 12);
    let join = |w, goal| Case::new(&[("n", n), ("how", JOIN), ("w", w)], &[Peer::Fibra, Peer::Rayon]).time(goal);
    // The goal is set against Go, which takes as long as tokio here.
    let spawn =
        |w| Case::new(&[("n", n), ("how", SPAWN), ("w", w)], &[Peer::Fibra, Peer::Tokio]).time(Goal::Ratio(0.1));
    let (four, eight) = (join(4, Goal::Shown), join(8, Goal::Shown));
    vec![join(1, Goal::Shown), join(2, Goal::Ratio(1.4)), four, eight, spawn(1), spawn(2)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 1_000 }
}

/// The nth Fibonacci number, and the number of forks on the way to it.
fn expected(n: u64) -> (u64, u64) {
    let (mut this, mut next) = (0, 1);
    for _ in 0..n {
        (this, next) = (next, this + next);
    }
    (this, next - 1)
}

/// Measures `fib`, which is told how often it is called in this way.
fn passes(n: u64, fib: impl Fn(u64) -> u64) -> Sample {
    let (value, forks) = expected(n);
    let mut passes = Passes::new();
    while passes.begin() {
        assert_eq!(fib(n), value);
        passes.end(forks);
    }
    passes.sample()
}

fn fibra(params: &Params) -> Sample {
    let (n, how) = (params.get("n"), params.get("how"));
    Fibra::run(setup(params), move || passes(n, if how == JOIN { fibra_join } else { fibra_spawn }))
}

fn fibra_join(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = fibra::join(|| fibra_join(n - 1), || fibra_join(n - 2));
    a + b
}

fn fibra_spawn(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let other = fibra::spawn(move || fibra_spawn(n - 2));
    let one = fibra_spawn(n - 1);
    one + other.join().expect("a task of the benchmark does not panic")
}

fn rayon(params: &Params) -> Sample {
    let n = params.get("n");
    rayon_peer::run(setup(params), move || passes(n, rayon_join))
}

fn rayon_join(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = rayon::join(|| rayon_join(n - 1), || rayon_join(n - 2));
    a + b
}

/// Boxed, because a future cannot contain itself.
fn tokio_spawn(n: u64) -> std::pin::Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let other = tokio::spawn(tokio_spawn(n - 2));
        let one = tokio_spawn(n - 1).await;
        one + other.await.expect("a task of the benchmark does not panic")
    })
}

fn tokio(params: &Params) -> Sample {
    let n = params.get("n");
    let (value, forks) = expected(n);
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            assert_eq!(tokio_spawn(n).await, value);
            passes.end(forks);
        }
        passes.sample()
    })
}
