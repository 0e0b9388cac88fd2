//! `mpmc`: `p` tasks send into one channel of capacity 128, `c` tasks read from it until it closes. One operation is one message.
//! Shapes: 1 to 1, 4 to 4, 100 to 1. tokio's channel has one receiver and takes no part in 4 to 4.

use std::hint::black_box;

use super::message::{BYTES, Message, by_message};
use crate::measure::{Passes, Sample};
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, channel_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "mpmc",
    operation: "one message through a buffered channel, from p tasks to c tasks",
    cases,
    sides: channel_sides!(blocking, awaiting),
};

/// Senders, receivers, and the goals at one and at two workers.
const SHAPES: [(u64, u64, [f64; 2]); 3] = [(1, 1, [0.45, 0.35]), (4, 4, [0.5, 0.4]), (100, 1, [0.5, 1.0])];
const CAPACITY: u64 = 128;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for (p, c, goals) in SHAPES {
        for bytes in BYTES {
            // Four workers are a point of the curve, at one size and shape.
            let workers: &[u64] = if bytes == 8 && p == 4 { &[1, 2, 4, 8] } else { &[1, 2, 8] };
            for &w in workers {
                cases.push(case(size, (p, c), bytes, w, goals));
            }
        }
    }
    cases
}

fn case(size: Size, (p, c): (u64, u64), bytes: u64, w: u64, goals: [f64; 2]) -> Case {
    let goal = match (bytes, w) {
        (8, 1) => Goal::Ratio(goals[0]),
        (8, 2) => Goal::Ratio(goals[1]),
        _ => Goal::Shown,
    };
    let n = size.pick(if bytes == 8 && w <= 2 { 10_000_000 } else { 2_000_000 }, 1_000);
    let params = [("p", p), ("c", c), ("cap", CAPACITY), ("bytes", bytes), ("n", n), ("w", w)];
    let less = [("n", size.pick(1_000_000, 500))];
    let mut case = Case::new(&params, &[Peer::Fibra, Peer::Kanal, Peer::Go])
        .with(Peer::Flume, &less)
        .with(Peer::May, &less)
        .time(goal);
    if c == 1 {
        case = case.with(Peer::Tokio, &less);
    }
    // A thread has no workers: what it does at eight it does at two.
    if w <= 2 {
        case = case.with(Peer::Crossbeam, &[("n", size.pick(300_000, 500))]);
    }
    case
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * (params.size("p") + params.size("c")) }
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    by_message!(params, blocking_with, C)
}

fn blocking_with<C: Channels, M: Message>(params: &Params) -> Sample {
    let (p, c, capacity, n) = (params.get("p"), params.get("c"), params.size("cap"), params.get("n"));
    let each = n / p;
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let (sender, receiver) = C::bounded::<M>(capacity);
            let mut senders = Vec::with_capacity(p as usize);
            for _ in 0..p {
                let sender = sender.clone();
                senders.push(C::Tasks::spawn(move || {
                    for number in 0..each {
                        C::send(&sender, M::numbered(number));
                    }
                }));
            }
            drop(sender);
            let mut receivers = Vec::with_capacity(c as usize);
            for _ in 0..c {
                let receiver = receiver.clone();
                receivers.push(C::Tasks::spawn(move || {
                    let mut count = 0;
                    while let Some(message) = C::receive(&receiver) {
                        black_box(message.number());
                        count += 1;
                    }
                    count
                }));
            }
            drop(receiver);
            senders.into_iter().for_each(C::Tasks::join);
            let count: u64 = receivers.into_iter().map(C::Tasks::join).sum();
            assert_eq!(count, each * p);
            passes.end(count);
        }
        passes.sample()
    })
}

fn awaiting<C: AsyncChannels>(params: &Params) -> Sample {
    by_message!(params, awaiting_with, C)
}

fn awaiting_with<C: AsyncChannels, M: Message>(params: &Params) -> Sample {
    let (p, c, capacity, n) = (params.get("p"), params.get("c"), params.size("cap"), params.get("n"));
    let each = n / p;
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (sender, receiver) = C::bounded::<M>(capacity);
            let mut senders = Vec::with_capacity(p as usize);
            for _ in 0..p {
                let sender = sender.clone();
                senders.push(tokio::spawn(async move {
                    for number in 0..each {
                        C::send(&sender, M::numbered(number)).await;
                    }
                }));
            }
            drop(sender);
            let mut ends: Vec<_> = (1..c).map(|_| C::share(&receiver)).collect();
            ends.push(receiver);
            let mut receivers = Vec::with_capacity(c as usize);
            for mut receiver in ends {
                receivers.push(tokio::spawn(async move {
                    let mut count = 0;
                    while let Some(message) = C::receive(&mut receiver).await {
                        black_box(message.number());
                        count += 1;
                    }
                    count
                }));
            }
            for sender in senders {
                sender.await.expect("a sender ends");
            }
            let mut count = 0;
            for receiver in receivers {
                count += receiver.await.expect("a receiver ends");
            }
            assert_eq!(count, each * p);
            passes.end(count);
        }
        passes.sample()
    })
}
