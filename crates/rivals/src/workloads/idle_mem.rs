//! `idle_mem`: tasks that only wait. Each one sleeps for an hour, or waits to receive from a channel of its own (`chan=1`, fibra only);
//! when all wait, the growth of resident memory and of page tables is divided by their number. Handles are kept, as a program that means
//! to join would keep them. The process then ends without waking a task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::measure::{Memory, Meter, Sample, Span};
use crate::peers::fibra::Fibra;
use crate::peers::may::May;
use crate::peers::threads::Threads;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "idle_mem",
    operation: "one task asleep for an hour: bytes of memory and page tables",
    cases,
    sides: &[
        (Peer::Fibra, fibra),
        (Peer::Tokio, tokio),
        (Peer::May, blocking::<May>),
        (Peer::Threads, blocking::<Threads>),
    ],
};

/// A fiber parked in `sleep`, on a 256 KiB stack, all told (the goal with a channel of its own is 5,000).
const GOAL_BYTES: f64 = 4_900.0;
/// The same with a channel of its own, its sender kept.
const GOAL_WITH_CHANNEL: f64 = 5_000.0;

fn cases(size: Size) -> Vec<Case> {
    let case_of = |n, chan, peers: &[Peer]| {
        let goal = if chan == 1 { GOAL_WITH_CHANNEL } else { GOAL_BYTES };
        Case::new(&[("n", n), ("chan", chan), ("w", 2)], peers)
            .metric("bytes", "bytes each", Goal::AtMost(goal))
            .metric("page_table_bytes", "of them page tables", Goal::Shown)
            .metric("ns", "ns to spawn (CPU)", Goal::Shown)
    };
    let case = |n, peers: &[Peer]| case_of(n, 0, peers);
    let two = [Peer::Fibra, Peer::Tokio];
    let three = [Peer::Fibra, Peer::Tokio, Peer::May];
    match size {
        // may and threads need two mappings for each stack, and the kernel's default is 65,530 mappings.
        Size::Full => {
            vec![
                case(25_000, &three).with(Peer::Threads, &[("n", 10_000)]),
                case(100_000, &two),
                case(1_000_000, &two),
                case_of(1_000_000, 1, &[Peer::Fibra]),
            ]
        }
        // Too few to divide the fixed costs away: no goal.
        Size::Quick => {
            vec![Case::new(&[("n", 1_000), ("chan", 0), ("w", 2)], &three).with(Peer::Threads, &[("n", 100)]).metric(
                "bytes",
                "bytes each",
                Goal::Shown,
            )]
        }
    }
}

fn setup(params: &Params) -> Setup {
    // Stacks that were there before would not be counted.
    Setup { workers: params.workers(), kept_stacks: 1 }
}

const AN_HOUR: Duration = Duration::from_secs(3_600);
/// How often the body looks whether all tasks have begun their sleep.
const LOOK: Duration = Duration::from_millis(10);
/// Time for the last of them to be off its stack, and for the workers to be idle.
const SETTLE: Duration = Duration::from_millis(300);
/// Time for a worker to give back the queue of fibers that had not started.
const REST: Duration = Duration::from_secs(3);

/// Tasks that are about to sleep.
static ASLEEP: AtomicU64 = AtomicU64::new(0);

fn note_asleep() {
    // Relaxed: a count that is only waited for; nothing else is read through it.
    ASLEEP.fetch_add(1, Ordering::Relaxed);
}

fn all_asleep(n: usize) -> bool {
    // Relaxed: as above.
    ASLEEP.load(Ordering::Relaxed) >= n as u64
}

fn finish(before: &Memory, spawning: &Span, n: usize) -> ! {
    let after = Memory::now();
    let each = |before: u64, after: u64| (after as f64 - before as f64) / n as f64;
    let page_tables = each(before.page_tables, after.page_tables);
    let mut sample = spawning.sample(n as u64);
    sample.set("bytes", each(before.resident, after.resident) + page_tables);
    sample.set("page_table_bytes", page_tables);
    sample.print_and_exit()
}

fn blocking<P: Blocking>(params: &Params) -> Sample {
    let n = params.size("n");
    P::run(setup(params), move || {
        P::join(P::spawn(|| ()));
        let before = Memory::now();
        let meter = Meter::start();
        let mut handles = Vec::with_capacity(n);
        handles.extend((0..n).map(|_| {
            P::spawn(|| {
                note_asleep();
                P::sleep(AN_HOUR);
            })
        }));
        while !all_asleep(n) {
            P::sleep(LOOK);
        }
        let spawning = meter.stop();
        P::sleep(SETTLE);
        finish(&before, &spawning, n)
    })
}

fn fibra(params: &Params) -> Sample {
    if params.get("chan") == 1 { fibra_with_channels(params) } else { blocking::<Fibra>(params) }
}

fn fibra_with_channels(params: &Params) -> Sample {
    let n = params.size("n");
    Fibra::run(setup(params), move || {
        Fibra::join(Fibra::spawn(|| ()));
        let before = Memory::now();
        let meter = Meter::start();
        let mut kept = Vec::with_capacity(n);
        kept.extend((0..n).map(|_| {
            let (sender, receiver) = fibra::channel::rendezvous::<u64>();
            let fiber = Fibra::spawn(move || {
                note_asleep();
                let _ = receiver.recv();
            });
            (sender, fiber)
        }));
        while !all_asleep(n) {
            Fibra::sleep(LOOK);
        }
        let spawning = meter.stop();
        Fibra::sleep(REST);
        finish(&before, &spawning, n)
    })
}

fn tokio(params: &Params) -> Sample {
    let n = params.size("n");
    tokio_peer::run(setup(params), async move {
        tokio::spawn(async {}).await.expect("an empty task ends");
        let before = Memory::now();
        let meter = Meter::start();
        let mut handles = Vec::with_capacity(n);
        handles.extend((0..n).map(|_| {
            tokio::spawn(async {
                note_asleep();
                tokio::time::sleep(AN_HOUR).await;
            })
        }));
        while !all_asleep(n) {
            tokio::time::sleep(LOOK).await;
        }
        let spawning = meter.stop();
        tokio::time::sleep(SETTLE).await;
        finish(&before, &spawning, n)
    })
}
