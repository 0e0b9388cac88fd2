//! `ring`: a thousand tasks in a ring of rendezvous channels and one token that goes round; each adds one to it. One operation is
//! one hop. tokio and may have no rendezvous and run with capacity 1. A ring of a thousand threads takes 15 us a hop: crossbeam
//! has a smaller one.

use crate::measure::{Passes, Sample};
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, channel_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "ring",
    operation: "one hop of a token round a ring of tasks, over rendezvous channels",
    cases,
    sides: channel_sides!(blocking, awaiting),
};

fn cases(size: Size) -> Vec<Case> {
    let case = |w, goal| {
        let params = [("tasks", size.pick(1_000, 50)), ("laps", size.pick(1_000, 5)), ("w", w)];
        Case::new(&params, &[Peer::Fibra, Peer::Tokio, Peer::Kanal, Peer::Flume, Peer::Go])
            .with(Peer::May, &[("laps", size.pick(100, 5))])
            .time(goal)
    };
    let threads = |case: Case| case.with(Peer::Crossbeam, &[("tasks", size.pick(100, 20)), ("laps", size.pick(50, 2))]);
    let mut cases = vec![threads(case(1, Goal::Ratio(0.45))), threads(case(2, Goal::Ratio(0.5))), case(8, Goal::Shown)];
    // The curve: what a hop costs when the tasks no longer fit into a cache.
    let sizes = [
        (size.pick(10_000, 100), size.pick(100, 3)),
        (size.pick(100_000, 200), size.pick(10, 2)),
        (size.pick(1_000_000, 300), size.pick(2, 2)),
    ];
    for (tasks, laps) in sizes {
        let params = [("tasks", tasks), ("laps", laps), ("w", 1)];
        let case = Case::new(&params, &[Peer::Fibra, Peer::Tokio, Peer::Kanal, Peer::Flume, Peer::Go]);
        cases.push(case.time(Goal::Shown));
    }
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("tasks") }
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    let (tasks, laps) = (params.get("tasks"), params.get("laps"));
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let (first, mut last) = C::bounded::<u64>(0);
            for _ in 1..tasks {
                let (next, end) = C::bounded::<u64>(0);
                let before = std::mem::replace(&mut last, end);
                C::Tasks::spawn(move || {
                    while let Some(token) = C::receive(&before) {
                        C::send(&next, token + 1);
                    }
                });
            }
            let starter = C::Tasks::spawn(move || {
                for _ in 0..laps {
                    C::send(&first, 1);
                    assert_eq!(C::receive(&last), Some(tasks));
                }
            });
            C::Tasks::join(starter);
            passes.end(tasks * laps);
        }
        passes.sample()
    })
}

fn awaiting<C: AsyncChannels>(params: &Params) -> Sample {
    let (tasks, laps) = (params.get("tasks"), params.get("laps"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (first, mut last) = C::bounded::<u64>(0);
            for _ in 1..tasks {
                let (next, end) = C::bounded::<u64>(0);
                let mut before = std::mem::replace(&mut last, end);
                tokio::spawn(async move {
                    while let Some(token) = C::receive(&mut before).await {
                        C::send(&next, token + 1).await;
                    }
                });
            }
            let starter = tokio::spawn(async move {
                for _ in 0..laps {
                    C::send(&first, 1).await;
                    assert_eq!(C::receive(&mut last).await, Some(tasks));
                }
            });
            starter.await.expect("the token comes round");
            passes.end(tasks * laps);
        }
        passes.sample()
    })
}
