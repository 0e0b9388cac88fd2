//! `select`: each of `ways` tasks sends into a rendezvous channel of its own; one task selects over all of them until it has
//! everything. One operation is one message chosen. `macro=1` names eight channels in the peer's select macro, `macro=0` builds
//! the set at run time.
//!
//! tokio has no rendezvous and runs with capacity 1; its select at run time, like that of kanal and flume, is the `select_all` of
//! `futures` over streams. Two are only shown, because they take messages that were not chosen: kanal's streams stand in line at
//! their channels and keep what they are handed, and may's event queue counts what a coroutine per (unbounded) channel has
//! already received.

use std::hint::black_box;

use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::flume::Flume;
use crate::peers::kanal::Kanal;
use crate::peers::may::Unbounded;
use crate::peers::threads::Threads;
use crate::peers::tokio::Mpsc;
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, go, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "select",
    operation: "one message chosen from several channels that are all being fed",
    cases,
    sides: &[
        (Peer::Fibra, fibra),
        (Peer::Tokio, tokio),
        (Peer::Kanal, kanal),
        (Peer::Flume, flume),
        (Peer::May, may),
        (Peer::Crossbeam, crossbeam),
        (Peer::Go, go::side),
    ],
};

/// "64-way at most 1.6 x our 8-way."
const MORE_WAYS_COST_AT_MOST: f64 = 1.6;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for (ways, by_macro) in [(8, 1), (8, 0), (64, 0)] {
        for w in [1, 2, 8] {
            let params = [("ways", ways), ("macro", by_macro), ("n", size.pick(1_000_000, 640)), ("w", w)];
            let goal = if w <= 2 { Goal::Ratio(0.30) } else { Goal::Shown };
            let mut case = Case::new(&params, &[Peer::Fibra, Peer::Tokio, Peer::Go]).time(goal);
            if by_macro == 0 {
                case = case.with(Peer::Flume, &[]).beside(Peer::Kanal).beside(Peer::May);
                // A thread has no workers: what it does at eight it does at two.
                if w <= 2 {
                    case = case.with(Peer::Crossbeam, &[("n", size.pick(25_600, 128))]);
                }
            }
            if ways == 64 {
                let goal = Goal::Own { most: MORE_WAYS_COST_AT_MOST, key: "ways", value: 8 };
                case = case.metric("ns", "times ways=8", goal);
            }
            cases.push(case);
        }
    }
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 4 * params.size("ways") }
}

/// The ends that the selecting task gets.
struct Fed<C: Channels> {
    receivers: Vec<C::Receiver<u64>>,
    /// To be held until everything has arrived: a closed channel would be ready for ever.
    senders: Vec<C::Sender<u64>>,
    total: u64,
}

fn blocking<C: Channels>(params: &Params, select_all: fn(Fed<C>)) -> Sample {
    let (ways, n) = (params.get("ways"), params.get("n"));
    let each = n / ways;
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let mut fed = Fed { receivers: Vec::new(), senders: Vec::new(), total: each * ways };
            for _ in 0..ways {
                let (sender, receiver) = C::bounded::<u64>(0);
                fed.receivers.push(receiver);
                fed.senders.push(sender.clone());
                C::Tasks::spawn(move || {
                    for number in 0..each {
                        C::send(&sender, number);
                    }
                });
            }
            select_all(fed);
            passes.end(each * ways);
        }
        passes.sample()
    })
}

fn fibra(params: &Params) -> Sample {
    match params.get("macro") {
        0 => blocking::<Fibra>(params, |fed| {
            let mut select = fibra::channel::Select::new();
            for receiver in &fed.receivers {
                select.recv(receiver);
            }
            for _ in 0..fed.total {
                let chosen = select.select();
                let receiver = &fed.receivers[chosen.index()];
                black_box(chosen.recv(receiver).expect("the channel is open"));
            }
        }),
        _ => blocking::<Fibra>(params, |fed| {
            let [a, b, c, d, e, f, g, h] = fed.receivers.as_slice() else { panic!("macro=1 is for ways=8") };
            for _ in 0..fed.total {
                let number = fibra::select! {
                    recv(a) -> number => number,
                    recv(b) -> number => number,
                    recv(c) -> number => number,
                    recv(d) -> number => number,
                    recv(e) -> number => number,
                    recv(f) -> number => number,
                    recv(g) -> number => number,
                    recv(h) -> number => number,
                };
                black_box(number.expect("the channel is open"));
            }
        }),
    }
}

fn crossbeam(params: &Params) -> Sample {
    blocking::<Threads>(params, |fed| {
        let mut select = crossbeam_channel::Select::new();
        for receiver in &fed.receivers {
            select.recv(receiver);
        }
        for _ in 0..fed.total {
            let chosen = select.select();
            let receiver = &fed.receivers[chosen.index()];
            black_box(chosen.recv(receiver).expect("the channel is open"));
        }
    })
}

fn may(params: &Params) -> Sample {
    blocking::<Unbounded>(params, |fed| {
        may::cqueue::scope(|queue| {
            for (token, receiver) in fed.receivers.into_iter().enumerate() {
                may::go!(queue, token, move |events| {
                    while let Some(number) = Unbounded::receive(&receiver) {
                        black_box(number);
                        events.send(token);
                    }
                });
            }
            // So that the coroutines above end.
            drop(fed.senders);
            for _ in 0..fed.total {
                assert!(queue.poll(None).is_ok(), "the queue is open");
            }
        });
    })
}

/// Channels with a task that feeds each and closes it then.
fn feed<C: AsyncChannels>(ways: u64, each: u64) -> Vec<C::Receiver<u64>> {
    let mut receivers = Vec::new();
    for _ in 0..ways {
        let (sender, receiver) = C::bounded::<u64>(0);
        receivers.push(receiver);
        tokio::spawn(async move {
            for number in 0..each {
                C::send(&sender, number).await;
            }
        });
    }
    receivers
}

/// Runs the passes of a peer that makes a stream of each receiver.
fn streams<C, S>(params: &Params, stream: fn(C::Receiver<u64>) -> S) -> Sample
where
    C: AsyncChannels,
    S: Stream<Item = u64> + Send + Unpin + 'static,
{
    let (ways, n) = (params.get("ways"), params.get("n"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let mut all = stream::select_all(feed::<C>(ways, n / ways).into_iter().map(stream));
            let mut count = 0;
            while let Some(number) = all.next().await {
                black_box(number);
                count += 1;
            }
            assert_eq!(count, n / ways * ways);
            passes.end(count);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    match params.get("macro") {
        0 => streams::<Mpsc, _>(params, |mut receiver| stream::poll_fn(move |context| receiver.poll_recv(context))),
        _ => tokio_macro(params),
    }
}

fn tokio_macro(params: &Params) -> Sample {
    let n = params.get("n");
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let receivers = <[_; 8]>::try_from(feed::<Mpsc>(8, n / 8));
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = receivers.expect("eight were asked for");
            let mut count = 0;
            loop {
                let number = tokio::select! {
                    Some(number) = a.recv() => number,
                    Some(number) = b.recv() => number,
                    Some(number) = c.recv() => number,
                    Some(number) = d.recv() => number,
                    Some(number) = e.recv() => number,
                    Some(number) = f.recv() => number,
                    Some(number) = g.recv() => number,
                    Some(number) = h.recv() => number,
                    else => break,
                };
                black_box(number);
                count += 1;
            }
            assert_eq!(count, n / 8 * 8);
            passes.end(count);
        }
        passes.sample()
    })
}

fn flume(params: &Params) -> Sample {
    streams::<Flume, _>(params, flume::Receiver::into_stream)
}

/// kanal's own stream borrows its receiver, so each borrows from a list that outlives it.
fn kanal(params: &Params) -> Sample {
    let (ways, n) = (params.get("ways"), params.get("n"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let receivers = feed::<Kanal>(ways, n / ways);
            let mut all = stream::select_all(receivers.iter().map(|receiver| Box::pin(receiver.stream())));
            let mut count = 0;
            while let Some(number) = all.next().await {
                black_box(number);
                count += 1;
            }
            assert_eq!(count, n / ways * ways);
            passes.end(count);
        }
        passes.sample()
    })
}
