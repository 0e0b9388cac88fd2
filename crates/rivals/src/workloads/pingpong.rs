//! `pingpong`: two tasks, two rendezvous channels; one sends a message, the other sends it back. One operation is one round trip,
//! which is two transfers. tokio and may have no rendezvous and run with capacity 1.

use super::message::{BYTES, Message, by_message};
use crate::measure::{Passes, Sample};
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, channel_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "pingpong",
    operation: "one message to another task and back, over rendezvous channels",
    cases,
    sides: channel_sides!(blocking, awaiting),
};

/// "Cost must not grow with worker count."
const WORKERS_COST_AT_MOST: f64 = 1.5;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in BYTES {
        let n = size.pick(if bytes == 8 { 1_000_000 } else { 300_000 }, 500);
        // Four workers are a point of the curve, at one size.
        let workers: &[u64] = if bytes == 8 { &[1, 2, 4, 8] } else { &[1, 2, 8] };
        for &w in workers {
            let goal = match (bytes, w) {
                (8, 1) => Goal::Ratio(0.40),
                (8, 2) => Goal::Ratio(0.25),
                _ => Goal::Shown,
            };
            let rivals = [Peer::Fibra, Peer::Tokio, Peer::Kanal, Peer::Flume, Peer::Go];
            let mut case = Case::new(&[("bytes", bytes), ("n", n), ("w", w)], &rivals)
                // Between two workers its tasks change cores again and again.
                .with(Peer::May, &[("n", size.pick(300_000, 200))])
                .time(goal);
            // A thread has no workers: what it does at eight it does at two.
            if w <= 2 {
                case = case.with(Peer::Crossbeam, &[("n", size.pick(5_000, 100))]);
            }
            if w > 1 {
                case = case.metric("ns", "times w=1", Goal::Own { most: WORKERS_COST_AT_MOST, key: "w", value: 1 });
            }
            cases.push(case);
        }
    }
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 100 }
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    by_message!(params, blocking_with, C)
}

fn blocking_with<C: Channels, M: Message>(params: &Params) -> Sample {
    let n = params.get("n");
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let (ping, pinged) = C::bounded::<M>(0);
            let (pong, ponged) = C::bounded::<M>(0);
            let echo = C::Tasks::spawn(move || {
                while let Some(message) = C::receive(&pinged) {
                    C::send(&pong, message);
                }
            });
            let player = C::Tasks::spawn(move || {
                for number in 0..n {
                    C::send(&ping, M::numbered(number));
                    let back = C::receive(&ponged).expect("the other plays on");
                    assert_eq!(back.number(), number);
                }
            });
            C::Tasks::join(player);
            C::Tasks::join(echo);
            passes.end(n);
        }
        passes.sample()
    })
}

fn awaiting<C: AsyncChannels>(params: &Params) -> Sample {
    by_message!(params, awaiting_with, C)
}

fn awaiting_with<C: AsyncChannels, M: Message>(params: &Params) -> Sample {
    let n = params.get("n");
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (ping, mut pinged) = C::bounded::<M>(0);
            let (pong, mut ponged) = C::bounded::<M>(0);
            let echo = tokio::spawn(async move {
                while let Some(message) = C::receive(&mut pinged).await {
                    C::send(&pong, message).await;
                }
            });
            let player = tokio::spawn(async move {
                for number in 0..n {
                    C::send(&ping, M::numbered(number)).await;
                    let back = C::receive(&mut ponged).await.expect("the other plays on");
                    assert_eq!(back.number(), number);
                }
            });
            player.await.expect("the game ends");
            echo.await.expect("the game ends");
            passes.end(n);
        }
        passes.sample()
    })
}
