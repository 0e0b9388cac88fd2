//! `skynet`: a task starts ten, each of them ten, and so on to the leaves; a leaf sends its number up a rendezvous channel, every
//! other task the sum of its ten. One operation is one leaf. tokio has no rendezvous and runs with capacity 1; may uses its
//! channels as they are. may and crossbeam run with fewer leaves: a stack of theirs costs two kernel mappings, of which a process
//! has 65,530.

use crate::measure::{Passes, Sample};
use crate::peers::may::Unbounded;
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, channel_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "skynet",
    operation: "one leaf of a tree of tasks, ten to a node, that sums their numbers over rendezvous channels",
    cases,
    sides: channel_sides!(blocking, awaiting, Unbounded),
};

const CHILDREN: u64 = 10;

fn cases(size: Size) -> Vec<Case> {
    let case = |w, goal| {
        let leaves = size.pick(1_000_000, 1_000);
        Case::new(&[("leaves", leaves), ("w", w)], &[Peer::Fibra, Peer::Tokio, Peer::Kanal, Peer::Flume, Peer::Go])
            .with(Peer::May, &[("leaves", size.pick(10_000, 100))])
            .time(goal)
    };
    let threads = |case: Case| case.with(Peer::Crossbeam, &[("leaves", size.pick(1_000, 10))]);
    let (four, eight) = (case(4, Goal::Shown), case(8, Goal::Shown));
    vec![threads(case(1, Goal::Ratio(0.20))), threads(case(2, Goal::Ratio(0.12))), four, eight]
}

fn setup(params: &Params) -> Setup {
    // For may, which has few leaves; all of its coroutines may be alive at once.
    Setup { workers: params.workers(), kept_stacks: 20_000 }
}

/// What arrives at the root: the sum of the numbers of the leaves.
fn sum_of(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}

fn node<C: Channels>(parent: &C::Sender<u64>, first: u64, leaves: u64) {
    if leaves == 1 {
        C::send(parent, first);
        return;
    }
    let (sender, receiver) = C::bounded::<u64>(0);
    let below = leaves / CHILDREN;
    for child in 0..CHILDREN {
        let sender = sender.clone();
        C::Tasks::spawn(move || node::<C>(&sender, first + child * below, below));
    }
    let sum = (0..CHILDREN).map(|_| C::receive(&receiver).expect("every child answers")).sum();
    C::send(parent, sum);
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    let leaves = params.get("leaves");
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let (sender, receiver) = C::bounded::<u64>(0);
            C::Tasks::spawn(move || node::<C>(&sender, 0, leaves));
            assert_eq!(C::receive(&receiver), Some(sum_of(leaves)));
            passes.end(leaves);
        }
        passes.sample()
    })
}

/// Boxed, because a future cannot contain itself.
fn async_node<C: AsyncChannels>(
    parent: C::Sender<u64>,
    first: u64,
    leaves: u64,
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if leaves == 1 {
            C::send(&parent, first).await;
            return;
        }
        let (sender, mut receiver) = C::bounded::<u64>(0);
        let below = leaves / CHILDREN;
        for child in 0..CHILDREN {
            tokio::spawn(async_node::<C>(sender.clone(), first + child * below, below));
        }
        let mut sum = 0;
        for _ in 0..CHILDREN {
            sum += C::receive(&mut receiver).await.expect("every child answers");
        }
        C::send(&parent, sum).await;
    })
}

fn awaiting<C: AsyncChannels>(params: &Params) -> Sample {
    let leaves = params.get("leaves");
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (sender, mut receiver) = C::bounded::<u64>(0);
            tokio::spawn(async_node::<C>(sender, 0, leaves));
            assert_eq!(C::receive(&mut receiver).await, Some(sum_of(leaves)));
            passes.end(leaves);
        }
        passes.sample()
    })
}
