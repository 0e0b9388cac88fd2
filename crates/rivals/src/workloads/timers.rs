//! `timers`: many tasks, each asleep once for a random time below a second. What counts is the CPU time of one of them, its spawn
//! and join included: the wall time is that of the longest sleep.
//!
//! Three passes in one process. In the first every stack is cold (the first touch of a stack page alone is 2.2 us here), in the
//! third the peer has its stacks, task slots and timer memory from before. All are reported; the goal is for the third, the warm one. (Not
//! the second: in the first, starting takes so long that many tasks end before others start, so that the second, in which all sleep at the
//! same time, needs more than a tenth more stacks than there are: decision 74.)
//! Each task also reports how late it woke. Waking early is a bug of the peer, and fails the run if the peer is fibra.

use std::time::{Duration, Instant};

use crate::measure::{Meter, Random, Sample, Span, percentile};
use crate::peers::fibra::Fibra;
use crate::peers::may::May;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "timers",
    operation: "one task that sleeps once, for a random time below a second; spawn and join included",
    cases,
    sides: &[
        (Peer::Fibra, blocking::<Fibra>),
        (Peer::Tokio, tokio),
        (Peer::May, blocking::<May>),
        (Peer::Go, go::side),
    ],
};

fn cases(size: Size) -> Vec<Case> {
    let case = |n, peers: &[Peer], late| {
        Case::new(&[("n", n), ("span_ms", size.pick(1_000, 100)), ("w", 2)], peers)
            .metric("cpu_warm", "CPU ns, warm", Goal::Ratio(0.4))
            .metric("cpu_second", "CPU ns, second pass", Goal::Shown)
            .metric("cpu_cold", "CPU ns, cold", Goal::Shown)
            .metric("late_p50_us", "late p50 us", Goal::Shown)
            .metric("late_p99_us", "late p99 us", late)
            .metric("early", "woken early", Goal::AtMost(0.0))
    };
    let two = [Peer::Fibra, Peer::Tokio, Peer::Go];
    // may's stacks cost two mappings each, and the kernel's default is 65,530 mappings.
    let three = [Peer::Fibra, Peer::Tokio, Peer::May, Peer::Go];
    match size {
        Size::Full => vec![
            case(25_000, &three, Goal::Shown),
            case(100_000, &two, Goal::AtMost(2_000.0)),
            case(1_000_000, &two, Goal::Shown),
        ],
        Size::Quick => vec![case(1_000, &three, Goal::Shown)],
    }
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: params.size("n") + 1_000 }
}

/// The same sleeps for every peer and all passes.
fn lengths(params: &Params) -> Vec<Duration> {
    let mut random = Random::new();
    let span = params.get("span_ms") * 1_000_000;
    (0..params.get("n")).map(|_| Duration::from_nanos(random.below(span))).collect()
}

/// How many nanoseconds after its deadline a sleep that began at `start` is over; negative is early.
fn lateness(start: Instant, length: Duration) -> i64 {
    start.elapsed().as_nanos() as i64 - length.as_nanos() as i64
}

/// What one pass saw: its times, and each task's lateness.
struct Pass(Span, Vec<i64>);

impl Pass {
    fn early(&self) -> usize {
        self.1.iter().filter(|&&nanoseconds| nanoseconds < 0).count()
    }
}

/// Times of all passes; lateness of the last, which is the warm one; early wakes of any.
fn sample(passes: &[Pass; 3]) -> Sample {
    let [cold, second, warm] = passes;
    let n = warm.1.len();
    let mut late: Vec<f64> = warm.1.iter().map(|&nanoseconds| nanoseconds as f64 / 1e3).collect();
    late.sort_by(f64::total_cmp);
    let mut sample = warm.0.sample(n as u64);
    sample.set("cpu_warm", warm.0.cpu_seconds * 1e9 / n as f64);
    sample.set("cpu_second", second.0.cpu_seconds * 1e9 / n as f64);
    sample.set("cpu_cold", cold.0.cpu_seconds * 1e9 / n as f64);
    sample.set("late_p50_us", percentile(&late, 0.50));
    sample.set("late_p99_us", percentile(&late, 0.99));
    sample.set("early", passes.iter().map(Pass::early).sum::<usize>() as f64);
    sample
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let lengths = lengths(params);
    P::run(setup(params), move || sample(&std::array::from_fn(|_| blocking_pass::<P>(&lengths))))
}

fn blocking_pass<P: Blocking>(lengths: &[Duration]) -> Pass {
    let meter = Meter::start();
    let mut handles = Vec::with_capacity(lengths.len());
    handles.extend(lengths.iter().map(|&length| {
        P::spawn(move || {
            let start = Instant::now();
            P::sleep(length);
            lateness(start, length)
        })
    }));
    let late = handles.into_iter().map(P::join).collect();
    Pass(meter.stop(), late)
}

fn tokio(params: &Params) -> Sample {
    let lengths = lengths(params);
    tokio_peer::run(setup(params), async move {
        sample(&[tokio_pass(&lengths).await, tokio_pass(&lengths).await, tokio_pass(&lengths).await])
    })
}

async fn tokio_pass(lengths: &[Duration]) -> Pass {
    let meter = Meter::start();
    let mut handles = Vec::with_capacity(lengths.len());
    handles.extend(lengths.iter().map(|&length| {
        tokio::spawn(async move {
            let start = Instant::now();
            tokio::time::sleep(length).await;
            lateness(start, length)
        })
    }));
    let mut late = Vec::with_capacity(lengths.len());
    for handle in handles {
        late.push(handle.await.expect("a sleeping task ends"));
    }
    Pass(meter.stop(), late)
}
