//! `yield`: some tasks that do nothing but yield; spawning and joining them is part of the time and small beside it.
//!
//! The cases with `depth` put that many functions that are not inlined between the task's loop and the yield. A switch that pairs
//! calls with returns mispredicts each of them on the way back, which the depth-0 figure hides. For tokio the same number of
//! futures whose `poll` is not inlined lie between. may runs at depth 0 only: with a second call site in this program the
//! compiler would no longer inline its yield into the first, and the figure it is compared by would double.

use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::may::May;
use crate::peers::threads::Threads;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "yield",
    operation: "one yield of one task",
    cases,
    sides: &[
        (Peer::Fibra, blocking::<Fibra>),
        (Peer::Tokio, tokio),
        (Peer::May, flat::<May>),
        (Peer::Threads, flat::<Threads>),
        (Peer::Go, go::side),
    ],
};

fn cases(size: Size) -> Vec<Case> {
    let n = size.pick(5_000_000, 20_000);
    let case = |tasks, depth, w, goal| {
        Case::new(&[("tasks", tasks), ("depth", depth), ("n", n), ("w", w)], &[Peer::Fibra, Peer::Tokio, Peer::Go])
            .time(goal)
    };
    let may = |case: Case| case.with(Peer::May, &[]);
    let threads = |case: Case| case.with(Peer::Threads, &[("n", size.pick(200_000, 2_000))]);
    let mut cases = Vec::new();
    for (tasks, goals) in
        [(2, [Goal::Shown; 2]), (100, [Goal::Shown; 2]), (1_000, [Goal::Ratio(0.45), Goal::Ratio(0.65)])]
    {
        for (w, goal) in [1, 2].into_iter().zip(goals) {
            let case = may(case(tasks, 0, w, goal));
            cases.push(if tasks <= 100 { threads(case) } else { case });
        }
    }
    // Two more points of the curve over workers.
    cases.extend([4, 8].map(|w| may(case(1_000, 0, w, Goal::Shown))));
    cases.extend((1..=3).map(|depth| case(100, depth, 1, Goal::Shown)));
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("tasks") }
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    match params.get("depth") {
        0 => blocking_through::<P>(params, P::yield_now),
        1 => blocking_through::<P>(params, || {
            depth_1::<P>();
        }),
        2 => blocking_through::<P>(params, || {
            depth_2::<P>();
        }),
        3 => blocking_through::<P>(params, || {
            depth_3::<P>();
        }),
        other => panic!("depth={other}: 0 to 3"),
    }
}

/// For peers that are only measured at depth 0, and must not be compiled for any other.
fn flat<P: Blocking>(params: &Params) -> Sample {
    assert_eq!(params.get("depth"), 0, "this peer runs at depth 0 only");
    blocking_through::<P>(params, || P::yield_now())
}

fn blocking_through<P: Blocking>(params: &Params, yield_once: impl Fn() + Copy + Send + 'static) -> Sample {
    let (tasks, n) = (params.size("tasks"), params.get("n"));
    let each = n / tasks as u64;
    P::run(setup(params), move || {
        let mut handles = Vec::with_capacity(tasks);
        let mut passes = Passes::new();
        while passes.begin() {
            handles.extend((0..tasks).map(|_| {
                P::spawn(move || {
                    for _ in 0..each {
                        yield_once();
                    }
                })
            }));
            for handle in handles.drain(..) {
                P::join(handle);
            }
            passes.end(each * tasks as u64);
        }
        passes.sample()
    })
}

// Each adds to what the one below returns, so that none of the calls can become a jump.

#[inline(never)]
fn depth_1<P: Blocking>() -> u64 {
    P::yield_now();
    black_box(1)
}

#[inline(never)]
fn depth_2<P: Blocking>() -> u64 {
    depth_1::<P>() + black_box(1)
}

#[inline(never)]
fn depth_3<P: Blocking>() -> u64 {
    depth_2::<P>() + black_box(1)
}

/// A future whose `poll` is a call.
struct Outlined<F>(F);

impl<F: Future + Unpin> Future for Outlined<F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        black_box(Pin::new(&mut self.0).poll(context))
    }
}

fn tokio(params: &Params) -> Sample {
    match params.get("depth") {
        0 => tokio_through(params, tokio::task::yield_now),
        1 => tokio_through(params, || Outlined(Box::pin(tokio::task::yield_now()))),
        2 => tokio_through(params, || Outlined(Outlined(Box::pin(tokio::task::yield_now())))),
        3 => tokio_through(params, || Outlined(Outlined(Outlined(Box::pin(tokio::task::yield_now()))))),
        other => panic!("depth={other}: 0 to 3"),
    }
}

fn tokio_through<F>(params: &Params, yield_once: impl Fn() -> F + Copy + Send + 'static) -> Sample
where
    F: Future + Send + 'static,
{
    let (tasks, n) = (params.size("tasks"), params.get("n"));
    let each = n / tasks as u64;
    tokio_peer::run(setup(params), async move {
        let mut handles = Vec::with_capacity(tasks);
        let mut passes = Passes::new();
        while passes.begin() {
            handles.extend((0..tasks).map(|_| {
                tokio::spawn(async move {
                    for _ in 0..each {
                        yield_once().await;
                    }
                })
            }));
            for handle in handles.drain(..) {
                handle.await.expect("a yielding task ends");
            }
            passes.end(each * tasks as u64);
        }
        passes.sample()
    })
}
