//! `noisy`: one task that computes for 50 ms at a time, without a blocking call, beside 1,000 tasks with small periodic requests.
//! Of the runtimes here only Go preempts (after 10 ms), so a task that cannot be moved off the hog's worker waits; the tail of the
//! latency of these tasks is the price.
//!
//! `spread` is as in `skew`. With `compute=1` the hog does its work in `fibra::compute`, as fibra's documentation recommends. The hog is
//! spawned like the other tasks, in the middle of them.

use std::time::{Duration, Instant};

use super::requests::{self, Requests};
use crate::measure::{Sample, Work};
use crate::peers::fibra::Fibra;
use crate::peers::threads::Threads;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "noisy",
    operation: "a request every 20 ms of each of 1,000 tasks, beside one that computes 50 ms in every 100: \
        latency of the requests",
    cases,
    sides: &[
        (Peer::Fibra, blocking::<Fibra>),
        (Peer::Tokio, tokio),
        (Peer::Threads, blocking::<Threads>),
        (Peer::Go, go::side),
    ],
};

const PERIOD: Duration = Duration::from_millis(20);
const HOG: Duration = Duration::from_millis(50);
const HOG_PERIOD: Duration = Duration::from_millis(100);

fn cases(size: Size) -> Vec<Case> {
    let case = |spread, compute| {
        let params = [
            ("tasks", size.pick(1_000, 100)),
            ("spread", spread),
            ("compute", compute),
            ("ms", size.pick(2_000, 200)),
            ("w", 2),
        ];
        Case::new(&params, &[Peer::Fibra, Peer::Tokio, Peer::Go])
            // The kernel, which preempts at once and has a thread for each task, is there to be seen.
            .beside(Peer::Threads)
            .metric("p99_us", "p99 us", Goal::Shown)
            .metric("p50_us", "p50 us", Goal::Shown)
            .metric("p99_quiet_us", "p99 us before", Goal::Shown)
            .metric("max_us", "worst us", Goal::Shown)
    };
    vec![case(1, 0), case(0, 0), case(1, 1), case(2, 0)]
}

/// Times and amounts of one run.
#[derive(Clone, Copy)]
struct Script {
    tasks: usize,
    start: Instant,
    turn: Instant,
    end: Instant,
    work: Work,
}

impl Script {
    fn new(params: &Params) -> Script {
        let length = Duration::from_millis(params.get("ms"));
        let work = Work::calibrate();
        let start = Instant::now();
        Script { tasks: params.size("tasks"), start, turn: start + length / 4, end: start + length, work }
    }

    fn requests(&self, task: usize) -> Requests {
        Requests::new(self.start, self.end, PERIOD, task as f64 / self.tasks as f64, self.work)
    }

    /// How long until the hog's next burst; `None` at the end.
    fn rest(&self, due: Instant) -> Option<Duration> {
        (due < self.end).then(|| due.saturating_duration_since(Instant::now()))
    }

    fn sample(&self, latencies: Vec<Vec<(Instant, Duration)>>) -> Sample {
        requests::sample(latencies.into_iter().flatten(), self.turn)
    }
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("tasks") }
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let (params, spread) = (params.clone(), params.get("spread"));
    let compute = params.get("compute") == 1;
    P::run(setup(&params), move || {
        let script = Script::new(&params);
        let spawn_requester = |task| {
            let body = move || {
                let mut requests = script.requests(task);
                while let Some(wait) = requests.wait() {
                    if !wait.is_zero() {
                        P::sleep(wait);
                    }
                    requests.serve();
                }
                requests.latencies()
            };
            P::spawn_by(spread, body)
        };
        let hog = move || {
            let mut due = script.turn;
            while let Some(rest) = script.rest(due) {
                P::sleep(rest);
                let work = || script.work.take(HOG);
                if compute {
                    P::compute(work)
                } else {
                    work()
                }
                due += HOG_PERIOD;
            }
        };
        let middle = script.tasks / 2;
        let mut handles: Vec<_> = (0..middle).map(spawn_requester).collect();
        let hog = P::spawn_by(spread, hog);
        handles.extend((middle..script.tasks).map(spawn_requester));
        let latencies = handles.into_iter().map(P::join).collect();
        P::join(hog);
        script.sample(latencies)
    })
}

fn tokio(params: &Params) -> Sample {
    let params = params.clone();
    tokio_peer::run(setup(&params), async move {
        let script = Script::new(&params);
        let spawn_requester = |task| {
            tokio::spawn(async move {
                let mut requests = script.requests(task);
                while let Some(wait) = requests.wait() {
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    requests.serve();
                }
                requests.latencies()
            })
        };
        let hog = async move {
            let mut due = script.turn;
            while let Some(rest) = script.rest(due) {
                tokio::time::sleep(rest).await;
                script.work.take(HOG);
                due += HOG_PERIOD;
            }
        };
        let middle = script.tasks / 2;
        let mut handles: Vec<_> = (0..middle).map(spawn_requester).collect();
        let hog = tokio::spawn(hog);
        handles.extend((middle..script.tasks).map(spawn_requester));
        let mut latencies = Vec::with_capacity(script.tasks);
        for handle in handles {
            latencies.push(handle.await.expect("a task of the benchmark does not panic"));
        }
        hog.await.expect("the hog ends");
        script.sample(latencies)
    })
}
