//! `skew`: the price of pinning. 64 long-lived tasks serve small periodic requests; then 8 of them, all on one worker, turn
//! CPU-heavy. What counts is the latency of the 56 others from then on. A runtime that moves started tasks spreads the 8 out; fibra
//! must not (law 1), so every task that lives on their worker waits behind them.
//!
//! `load` is the CPU the eight want together, in percent of one core. `spread=1` spawns the tasks as fibra's documentation recommends for
//! long-lived ones (on the worker with the fewest), `spread=0` with plain `spawn`, `spread=2` as fibers that move
//! (`Builder::moving`, with thread-locals of their own); other peers have one way only. With `compute=1` the
//! eight do their work in `fibra::compute`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::requests::{self, Requests};
use crate::measure::{Sample, Work, thread_id};
use crate::peers::fibra::Fibra;
use crate::peers::threads::Threads;
use crate::peers::{Blocking, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "skew",
    operation: "a request every 5 ms of each of 64 tasks, of which 8 on one worker turn CPU-heavy: latency of \
        the others",
    cases,
    sides: &[
        (Peer::Fibra, blocking::<Fibra>),
        (Peer::Tokio, tokio),
        (Peer::Threads, blocking::<Threads>),
        (Peer::Go, go::side),
    ],
};

const TASKS: usize = 64;
const HEAVY: usize = 8;
const PERIOD: Duration = Duration::from_millis(5);
const HEAVY_PERIOD: Duration = Duration::from_millis(10);

fn cases(size: Size) -> Vec<Case> {
    let case = |load, spread, compute| {
        let params =
            [("load", load), ("spread", spread), ("compute", compute), ("ms", size.pick(2_000, 100)), ("w", 2)];
        Case::new(&params, &[Peer::Fibra, Peer::Tokio, Peer::Go])
            // The kernel, which preempts at once and has a thread for each task, is there to be seen.
            .beside(Peer::Threads)
            .metric("p99_us", "p99 us", Goal::Shown)
            .metric("p50_us", "p50 us", Goal::Shown)
            .metric("p99_quiet_us", "p99 us before", Goal::Shown)
            .metric("beside", "others beside the 8", Goal::Shown)
    };
    vec![
        case(80, 1, 0),
        case(150, 1, 0),
        case(80, 0, 0),
        case(80, 1, 1),
        case(150, 1, 1),
        case(80, 2, 0),
        case(150, 2, 0),
    ]
}

/// What the tasks tell the body (where they run) and what the body tells the tasks (which of them turn heavy).
struct Roles {
    thread: [AtomicU64; TASKS],
    heavy: [AtomicBool; TASKS],
}

static ROLES: Roles =
    Roles { thread: [const { AtomicU64::new(0) }; TASKS], heavy: [const { AtomicBool::new(false) }; TASKS] };

impl Roles {
    /// Called by a task when it first runs. (Relaxed here and below: each cell stands for itself, nothing is read through it.)
    fn arrive(&self, task: usize) {
        self.thread[task].store(thread_id(), Ordering::Relaxed);
    }

    fn is_heavy(&self, task: usize) -> bool {
        self.heavy[task].load(Ordering::Relaxed)
    }

    /// Makes the first eight tasks of the fullest worker heavy and returns how many others live there; `None` until all tasks
    /// have arrived. Where each task is a thread of its own, or may move, any eight are as good.
    fn turn(&self) -> Option<usize> {
        let threads: Vec<u64> = self.thread.iter().map(|thread| thread.load(Ordering::Relaxed)).collect();
        if threads.contains(&0) {
            return None;
        }
        let neighbours = |thread: u64| threads.iter().filter(|&&other| other == thread).count();
        let fullest = threads.iter().copied().max_by_key(|&thread| neighbours(thread)).expect("there are tasks");
        let crowd = neighbours(fullest);
        let together = (0..TASKS).filter(|&task| crowd < HEAVY || threads[task] == fullest);
        for task in together.take(HEAVY) {
            self.heavy[task].store(true, Ordering::Relaxed);
        }
        Some(crowd.saturating_sub(HEAVY))
    }
}

/// Times and amounts of one run.
#[derive(Clone, Copy)]
struct Script {
    start: Instant,
    turn: Duration,
    end: Instant,
    work: Work,
    burst: Duration,
}

impl Script {
    fn new(params: &Params) -> Script {
        let length = Duration::from_millis(params.get("ms"));
        let work = Work::calibrate();
        let start = Instant::now();
        let burst = HEAVY_PERIOD.mul_f64(params.get("load") as f64 / 100.0 / HEAVY as f64);
        Script { start, turn: length / 4, end: start + length, work, burst }
    }

    fn requests(&self, task: usize) -> Requests {
        Requests::new(self.start, self.end, PERIOD, task as f64 / TASKS as f64, self.work)
    }

    /// A heavy task's computation, done by `compute`; then how long it rests (zero if it is behind: then it gives way once), or `None` at
    /// the end.
    fn burst(&self, due: &mut Instant, compute: impl FnOnce(&(dyn Fn() + Sync))) -> Option<Duration> {
        compute(&|| self.work.take(self.burst));
        let now = Instant::now();
        *due = (*due + HEAVY_PERIOD).max(now);
        (now < self.end).then(|| *due - now)
    }

    fn sample(&self, turned: (Instant, usize), latencies: Vec<Vec<(Instant, Duration)>>) -> Sample {
        let light = latencies.into_iter().enumerate().filter(|(task, _)| !ROLES.is_heavy(*task));
        let mut sample = requests::sample(light.flat_map(|(_, latencies)| latencies), turned.0);
        sample.set("beside", turned.1 as f64);
        sample
    }
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * TASKS }
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let (params, spread) = (params.clone(), params.get("spread"));
    let apart = params.get("compute") == 1;
    P::run(setup(&params), move || {
        let script = Script::new(&params);
        let task = |task| {
            move || {
                ROLES.arrive(task);
                let mut requests = script.requests(task);
                while let Some(wait) = requests.wait() {
                    if !wait.is_zero() {
                        P::sleep(wait);
                    }
                    if ROLES.is_heavy(task) {
                        let mut due = Instant::now();
                        let compute = |work: &(dyn Fn() + Sync)| if apart { P::compute(work) } else { work() };
                        while let Some(rest) = script.burst(&mut due, compute) {
                            if rest.is_zero() { P::yield_now() } else { P::sleep(rest) }
                        }
                        break;
                    }
                    requests.serve();
                }
                requests.latencies()
            }
        };
        let spawn = |number| P::spawn_by(spread, task(number));
        let handles: Vec<_> = (0..TASKS).map(spawn).collect();
        P::sleep(script.turn);
        let beside = loop {
            match ROLES.turn() {
                Some(beside) => break beside,
                None => P::sleep(PERIOD),
            }
        };
        let turned = (Instant::now(), beside);
        let latencies = handles.into_iter().map(P::join).collect();
        script.sample(turned, latencies)
    })
}

fn tokio(params: &Params) -> Sample {
    let params = params.clone();
    tokio_peer::run(setup(&params), async move {
        let script = Script::new(&params);
        let spawn = |task| {
            tokio::spawn(async move {
                ROLES.arrive(task);
                let mut requests = script.requests(task);
                while let Some(wait) = requests.wait() {
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    if ROLES.is_heavy(task) {
                        let mut due = Instant::now();
                        while let Some(rest) = script.burst(&mut due, |work| work()) {
                            if rest.is_zero() {
                                tokio::task::yield_now().await;
                            } else {
                                tokio::time::sleep(rest).await;
                            }
                        }
                        break;
                    }
                    requests.serve();
                }
                requests.latencies()
            })
        };
        let handles: Vec<_> = (0..TASKS).map(spawn).collect();
        tokio::time::sleep(script.turn).await;
        let beside = loop {
            match ROLES.turn() {
                Some(beside) => break beside,
                None => tokio::time::sleep(PERIOD).await,
            }
        };
        let turned = (Instant::now(), beside);
        let mut latencies = Vec::with_capacity(TASKS);
        for handle in handles {
            latencies.push(handle.await.expect("a task of the benchmark does not panic"));
        }
        script.sample(turned, latencies)
    })
}
