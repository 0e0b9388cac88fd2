//! `machine`: asking something that lives on an event loop, one question at a time. With `callers` = 0 the asker is a machine too (an
//! operation to the platform of the same loop and back, or with `w` = 2 to that of another thread's loop); otherwise so many fibers ask a
//! machine that is attached to their runtime.
//!
//! tokio's side is the nearest equivalent: a task that answers, by a oneshot channel, the questions that come over an mpsc channel.

use fibra::machine::{Caller, EventLoop, Machine, MachineRef, OpPool, Ports, Seat, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::measure::{Passes, Sample};
use crate::peers::{Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "machine",
    operation: "one question to a machine and its answer",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Tokio, with_tokio)],
};

fn cases(size: Size) -> Vec<Case> {
    let case = |callers, w, goal| {
        let n = size.pick(if (callers, w) == (0, 2) { 30_000 } else { 300_000 }, 600);
        Case::new(&[("callers", callers), ("n", n), ("w", w)], &[Peer::Fibra, Peer::Tokio]).time(goal)
    };
    let (operation, call) = (Goal::AtMost(60.0), Goal::AtMost(100.0));
    vec![
        case(0, 1, operation),
        case(0, 2, Goal::Shown),
        case(1, 1, call),
        case(100, 1, call),
        case(1, 2, Goal::Shown),
        case(100, 2, Goal::Shown),
    ]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 1_000 }
}

struct Doubles;

impl Machine for Doubles {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let number = request.data::<u32>().map_or(0, |number| *number as i32);
            ports.complete(request, number.wrapping_mul(2));
        }
    }
}

/// Asks the platform so many times, pass after pass.
struct Asks {
    pool: OpPool<u32>,
    to: MachineRef,
    asked: u64,
    n: u64,
    passes: Option<Passes>,
    sample: std::sync::mpsc::Sender<Sample>,
}

impl Machine for Asks {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while ports.input.completions.pop().is_some() {}
        if self.asked == self.n {
            self.asked = 0;
            let passes = self.passes.as_mut().expect("until the end");
            passes.end(self.n);
            if !passes.begin() {
                let passes = self.passes.take().expect("until the end");
                self.sample.send(passes.sample()).expect("the measurement waits");
                return ports.stop_all();
            }
        }
        self.asked += 1;
        let op = self.pool.take(0, self.asked as u32).expect("the one before has come back");
        ports.submit(op.to(self.to));
    }
}

fn with_fibra(params: &Params) -> Sample {
    let (n, callers) = (params.get("n"), params.get("callers"));
    if callers == 0 {
        let (sample, samples) = std::sync::mpsc::channel();
        let mut passes = Passes::new();
        assert!(passes.begin());
        let loops = params.workers();
        let to = MachineRef::platform(loops as u32 - 1);
        let asks = Asks { pool: OpPool::with_capacity(8), to, asked: 0, n, passes: Some(passes), sample };
        let mut seats = Seat::mesh(loops);
        let last = seats.pop().expect("one at least");
        match seats.pop() {
            None => EventLoop::at(last).app(asks).platform(Doubles).run().expect("the loop runs"),
            Some(here) => std::thread::scope(|scope| {
                scope.spawn(move || EventLoop::at(last).platform(Doubles).run().expect("the loop runs"));
                EventLoop::at(here).app(asks).run().expect("the loop runs");
            }),
        }
        return samples.recv().expect("it has ended");
    }
    let runtime = fibra::Runtime::builder().workers(params.workers()).build().expect("the runtime starts");
    runtime.run(move || {
        let machine = fibra::Handle::current().attach(Doubles);
        let mut passes = Passes::new();
        while passes.begin() {
            fibra::scope(|s| {
                for _ in 0..callers {
                    s.spawn(|| {
                        let mut caller = Caller::new(machine);
                        for number in 0..n / callers {
                            let answer = caller.call(0, number as u32).expect("it answers");
                            assert_eq!(answer.result, (number as i32).wrapping_mul(2));
                        }
                    });
                }
            });
            passes.end(n);
        }
        passes.sample()
    })
}

fn with_tokio(params: &Params) -> Sample {
    let (n, callers) = (params.get("n"), params.get("callers").max(1));
    tokio_peer::run(setup(params), async move {
        let (sender, mut receiver) = mpsc::channel::<(u32, oneshot::Sender<i32>)>(128);
        let serving = tokio::spawn(async move {
            while let Some((number, answer)) = receiver.recv().await {
                // The asker waits.
                let _ = answer.send((number as i32).wrapping_mul(2));
            }
        });
        let mut passes = Passes::new();
        while passes.begin() {
            let mut asking = Vec::new();
            for _ in 0..callers {
                let sender = sender.clone();
                asking.push(tokio::spawn(async move {
                    for number in 0..n / callers {
                        let (answer, answers) = oneshot::channel();
                        sender.send((number as u32, answer)).await.expect("it listens");
                        assert_eq!(answers.await.expect("it answers"), (number as i32).wrapping_mul(2));
                    }
                }));
            }
            for task in asking {
                task.await.expect("a task of the benchmark does not panic");
            }
            passes.end(n);
        }
        drop(sender);
        serving.await.expect("it ends");
        passes.sample()
    })
}
