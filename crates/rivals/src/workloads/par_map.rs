//! `par_map`: a function of about `work` rounds of a random generator over `n` numbers, eight at a time, results in order: the stage of a
//! stream (how=0), an ordered channel (how=1), or the same by hand: a channel of join handles (how=2). Beside it rayon's parallel iterator,
//! which divides the numbers beforehand, and tokio's tasks through `buffered`. One operation is one number.

use std::hint::black_box;

use futures_util::StreamExt;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, rayon as rayon_peer, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "par_map",
    operation: "one number mapped in parallel, in order: by a stage (how=0), an ordered channel (1), by hand (2)",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Rayon, rayon), (Peer::Tokio, tokio)],
};

const AT_A_TIME: usize = 8;

fn cases(size: Size) -> Vec<Case> {
    let case = |how, work, w| {
        let sizes = [("how", how), ("work", work), ("n", size.pick(20_000, 100)), ("w", w)];
        Case::new(&sizes, &[Peer::Fibra, Peer::Rayon, Peer::Tokio]).time(Goal::Shown)
    };
    (0..3).flat_map(|how| [case(how, 1, 1), case(how, 20_000, 2)]).collect()
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 100 }
}

fn work(number: u64, rounds: u64) -> u64 {
    let mut x = number | 1;
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
    number
}

fn fibra(params: &Params) -> Sample {
    let (n, rounds, how) = (params.get("n"), params.get("work"), params.get("how"));
    Fibra::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let in_order = match how {
                0 => fibra::stream::from_iter(0..n).par_map(AT_A_TIME, move |number| work(number, rounds)).eq(0..n),
                1 => {
                    let (tx, rx) = fibra::channel::ordered(AT_A_TIME);
                    fibra::spawn(move || (0..n).for_each(|number| tx.spawn(move || work(number, rounds)).unwrap()));
                    rx.iter().map(Result::unwrap).eq(0..n)
                }
                _ => {
                    let (tx, rx) = fibra::channel::bounded(AT_A_TIME);
                    fibra::spawn(move || {
                        (0..n).for_each(|number| tx.send(fibra::spawn(move || work(number, rounds))).unwrap());
                    });
                    rx.iter().map(|task| task.join().unwrap()).eq(0..n)
                }
            };
            assert!(in_order);
            passes.end(n);
        }
        passes.sample()
    })
}

fn rayon(params: &Params) -> Sample {
    let (n, rounds) = (params.get("n"), params.get("work"));
    rayon_peer::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let results: Vec<u64> = (0..n).into_par_iter().map(|number| work(number, rounds)).collect();
            assert!(results.into_iter().eq(0..n));
            passes.end(n);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    let (n, rounds) = (params.get("n"), params.get("work"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let tasks = futures_util::stream::iter(0..n);
            let mut results = tasks.map(|number| tokio::spawn(async move { work(number, rounds) })).buffered(AT_A_TIME);
            let mut next = 0;
            while let Some(result) = results.next().await {
                assert_eq!(result.expect("a task of the benchmark does not panic"), next);
                next += 1;
            }
            assert_eq!(next, n);
            passes.end(n);
        }
        passes.sample()
    })
}
