//! `actor_*`: actors against actors. Each workload is written once for fibra, whose handlers and clients block, and once for peers that
//! await (`bodies!`): tokio with a task, a channel of 64 and a oneshot each, written by hand; actix on one arbiter (it has no other form);
//! ractor; kameo.
//!
//! Mailboxes hold 64 messages where they have a bound (fibra, tokio, kameo); ractor's and actix's `do_send` have none, which spares them
//! all waiting for a place. What a node does with a message is the same for all: [`Node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::measure::{Memory, Meter, Passes, Sample};
use crate::peers::Peer;
use crate::plan::{Case, Goal, Size, Workload};

mod actix;
mod fibra;
mod kameo;
mod ractor;
mod tokio;

const ALL: [Peer; 5] = [Peer::Fibra, Peer::Tokio, Peer::Actix, Peer::Ractor, Peer::Kameo];

macro_rules! workload {
    ($const:ident, $name:literal, $what:literal, $cases:path, $body:ident) => {
        pub(crate) const $const: Workload = Workload {
            name: $name,
            operation: $what,
            cases: $cases,
            sides: &[
                (Peer::Fibra, fibra::$body),
                (Peer::Tokio, tokio::$body),
                (Peer::Actix, actix::$body),
                (Peer::Ractor, ractor::$body),
                (Peer::Kameo, kameo::$body),
            ],
        };
    };
}

workload!(RING, "actor_ring", "one hop of a token round a ring of actors", ring_cases, ring);
workload!(FAN_IN, "actor_fan_in", "one message to an actor that a hundred tasks send to", fan_in_cases, fan_in);
workload!(FAN_OUT, "actor_fan_out", "one message from one task to one of many actors", fan_out_cases, fan_out);
workload!(ASK, "actor_ask", "one question and its answer", ask_cases, ask);
workload!(
    RANDOM,
    "actor_random",
    "one hop of one of many messages, from actor to actor at random",
    random_cases,
    random
);
workload!(SPAWN, "actor_spawn", "one actor: started, told something, stopped and gone", spawn_cases, spawn_stop);
workload!(IDLE, "actor_idle", "one actor that has handled a message and waits: bytes of memory", idle_cases, idle);

fn on(params: &[(&str, u64)], goal: Goal) -> Case {
    Case::new(params, &ALL).time(goal)
}

/// actix has one thread: it takes part with one worker.
fn two_workers(params: &[(&str, u64)]) -> Case {
    Case::new(params, &[Peer::Fibra, Peer::Tokio, Peer::Ractor, Peer::Kameo]).time(Goal::Shown)
}

fn ring_cases(size: Size) -> Vec<Case> {
    let params = |w| [("actors", size.pick(1_000, 50)), ("n", size.pick(500_000, 500)), ("w", w)];
    vec![on(&params(1), Goal::Ratio(0.6)), two_workers(&params(2))]
}

fn fan_in_cases(size: Size) -> Vec<Case> {
    let params = |w| [("senders", 100), ("n", size.pick(500_000, 1_000)), ("w", w)];
    vec![on(&params(1), Goal::Ratio(0.5)), two_workers(&params(2))]
}

fn fan_out_cases(size: Size) -> Vec<Case> {
    let params = |w| [("actors", size.pick(1_000, 50)), ("n", size.pick(500_000, 500)), ("w", w)];
    vec![on(&params(1), Goal::Shown), two_workers(&params(2))]
}

fn ask_cases(size: Size) -> Vec<Case> {
    let params = |w| [("n", size.pick(300_000, 300)), ("w", w)];
    vec![on(&params(1), Goal::Ratio(0.4)), two_workers(&params(2))]
}

fn random_cases(size: Size) -> Vec<Case> {
    let params = |w| {
        [("actors", size.pick(1_000, 50)), ("messages", size.pick(64, 8)), ("n", size.pick(500_000, 500)), ("w", w)]
    };
    vec![on(&params(1), Goal::Shown), two_workers(&params(2))]
}

fn spawn_cases(size: Size) -> Vec<Case> {
    vec![on(&[("n", size.pick(50_000, 100)), ("w", 1)], Goal::Shown)]
}

fn idle_cases(size: Size) -> Vec<Case> {
    let params = [("n", size.pick(1_000_000, 500)), ("w", 2)];
    let goal = if size == Size::Full { Goal::AtMost(300.0) } else { Goal::Shown };
    vec![Case::new(&params, &ALL).metric("bytes", "bytes each", goal).metric("ns", "ns to spawn", Goal::Shown)]
}

/// A message to a node. `R` is the type of an actor's address.
pub(super) enum Msg<R> {
    /// The nodes to which it passes messages on.
    Peers(Arc<Vec<R>>),
    /// Pass it on, so many times in all.
    Hop(u64),
    /// Count.
    Add,
}

/// Counts down to the end of a pass, and tells the client.
#[derive(Clone)]
pub(super) struct Left {
    left: Arc<AtomicU64>,
}

impl Left {
    pub(super) fn new(left: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(left)) }
    }

    /// One less. True: that was the last one.
    pub(super) fn one_less(&self) -> bool {
        // Relaxed: a count; the client is told through a channel.
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// The state of an actor, the same for every peer.
pub(super) struct Node<R> {
    peers: Option<Arc<Vec<R>>>,
    /// Counted by this node alone.
    count: u64,
    until: u64,
    dice: u64,
}

/// What a node does next.
pub(super) enum Then<'a, R> {
    Nothing,
    Pass(&'a R, u64),
    /// A message has made all its hops, or the count is full.
    Done,
}

impl<R> Node<R> {
    pub(super) fn new(until: u64, seed: u64) -> Self {
        Self { peers: None, count: 0, until, dice: seed | 1 }
    }

    pub(super) fn handle(&mut self, message: Msg<R>) -> Then<'_, R> {
        match message {
            Msg::Peers(peers) => self.peers = Some(peers),
            Msg::Hop(0) => return Then::Done,
            Msg::Hop(left) => {
                let peers = self.peers.as_ref().expect("told before");
                self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let to = if peers.len() == 1 { 0 } else { (self.dice >> 33) as usize % peers.len() };
                return Then::Pass(&peers[to], left - 1);
            }
            Msg::Add => {
                self.count += 1;
                if self.count == self.until {
                    return Then::Done;
                }
            }
        }
        Then::Nothing
    }

    pub(super) fn answer(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// The end of `idle`: memory since `before`.
pub(super) fn idle_sample(before: &Memory, meter: &Meter, n: u64) -> Sample {
    let span = meter.stop();
    let after = Memory::now();
    let mut sample = span.sample(n);
    let used = (after.resident + after.page_tables) as f64 - (before.resident + before.page_tables) as f64;
    sample.set("bytes", used / n as f64);
    sample
}

/// The workloads of a peer that awaits. Its module has `run`, `Ref`, and async `node(done, until, seed)`, `tell`, `ask`, `stop`.
macro_rules! bodies {
    () => {
        use super::super::super::measure::{Memory, Meter, Passes, Sample};
        use super::super::super::plan::Params;
        use super::{Left, Msg, Node, Then, idle_sample};
        use std::sync::Arc;

        pub(super) fn ring(params: &Params) -> Sample {
            let (actors, n) = (params.get("actors"), params.get("n"));
            run(params.workers(), async move {
                let mut passes = Passes::new();
                let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
                let mut nodes = Vec::new();
                for seed in 0..actors {
                    nodes.push(node(done.clone(), 0, seed).await);
                }
                for (at, node) in nodes.iter().enumerate() {
                    tell(node, Msg::Peers(Arc::new(vec![nodes[(at + 1) % nodes.len()].clone()]))).await;
                }
                while passes.begin() {
                    tell(&nodes[0], Msg::Hop(n)).await;
                    ended.recv().await.expect("the token ends somewhere");
                    passes.end(n);
                }
                passes.sample()
            })
        }

        pub(super) fn fan_in(params: &Params) -> Sample {
            let (senders, n) = (params.get("senders"), params.get("n"));
            run(params.workers(), async move {
                let mut passes = Passes::new();
                while passes.begin() {
                    let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
                    let sink = node(done, n / senders * senders, 1).await;
                    for _ in 0..senders {
                        let sink = sink.clone();
                        start(async move {
                            for _ in 0..n / senders {
                                tell(&sink, Msg::Add).await;
                            }
                        });
                    }
                    ended.recv().await.expect("it counts to the end");
                    passes.end(n);
                    stop(sink).await;
                }
                passes.sample()
            })
        }

        pub(super) fn fan_out(params: &Params) -> Sample {
            let (actors, n) = (params.get("actors"), params.get("n"));
            run(params.workers(), async move {
                let mut passes = Passes::new();
                while passes.begin() {
                    let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
                    let mut nodes = Vec::new();
                    for seed in 0..actors {
                        nodes.push(node(done.clone(), n / actors, seed).await);
                    }
                    for _ in 0..n / actors {
                        for node in &nodes {
                            tell(node, Msg::Add).await;
                        }
                    }
                    let left = Left::new(actors);
                    while !{
                        ended.recv().await.expect("all count to the end");
                        left.one_less()
                    } {}
                    passes.end(n);
                    for node in nodes {
                        stop(node).await;
                    }
                }
                passes.sample()
            })
        }

        pub(super) fn ask(params: &Params) -> Sample {
            let n = params.get("n");
            run(params.workers(), async move {
                let mut passes = Passes::new();
                let (done, _ended) = tokio::sync::mpsc::unbounded_channel();
                let node = node(done, 0, 1).await;
                let mut count = 0;
                while passes.begin() {
                    for _ in 0..n {
                        count += 1;
                        assert_eq!(question(&node).await, count);
                    }
                    passes.end(n);
                }
                passes.sample()
            })
        }

        pub(super) fn random(params: &Params) -> Sample {
            let (actors, messages, n) = (params.get("actors"), params.get("messages"), params.get("n"));
            run(params.workers(), async move {
                let mut passes = Passes::new();
                let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
                let mut nodes = Vec::new();
                for seed in 0..actors {
                    nodes.push(node(done.clone(), 0, seed * 7919).await);
                }
                let all = Arc::new(nodes.clone());
                for node in &nodes {
                    tell(node, Msg::Peers(all.clone())).await;
                }
                while passes.begin() {
                    for node in nodes.iter().take(messages as usize) {
                        tell(node, Msg::Hop(n / messages)).await;
                    }
                    for _ in 0..messages {
                        ended.recv().await.expect("each message ends somewhere");
                    }
                    passes.end(n);
                }
                passes.sample()
            })
        }

        pub(super) fn spawn_stop(params: &Params) -> Sample {
            let n = params.get("n");
            run(params.workers(), async move {
                let mut passes = Passes::new();
                let (done, _ended) = tokio::sync::mpsc::unbounded_channel();
                while passes.begin() {
                    for seed in 0..n {
                        let node = node(done.clone(), 0, seed).await;
                        tell(&node, Msg::Add).await;
                        stop(node).await;
                    }
                    passes.end(n);
                }
                passes.sample()
            })
        }

        pub(super) fn idle(params: &Params) -> Sample {
            let n = params.get("n");
            run(params.workers(), async move {
                let (done, _ended) = tokio::sync::mpsc::unbounded_channel();
                let (before, meter) = (Memory::now(), Meter::start());
                let mut nodes = Vec::with_capacity(n as usize);
                for seed in 0..n {
                    let node = node(done.clone(), 0, seed).await;
                    tell(&node, Msg::Add).await;
                    nodes.push(node);
                }
                // (All have handled it when the last ones have answered.)
                for node in &nodes {
                    question(node).await;
                }
                idle_sample(&before, &meter, n).print_and_exit()
            })
        }
    };
}
pub(super) use bodies;

/// The type of a parameterless pass, for fibra's side.
pub(super) fn passes(mut pass: impl FnMut() -> u64) -> Sample {
    let mut passes = Passes::new();
    while passes.begin() {
        let operations = pass();
        passes.end(operations);
    }
    passes.sample()
}
