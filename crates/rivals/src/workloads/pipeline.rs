//! `pipeline`: numbers go through three machines in a chain, 64 on their way at a time: the source submits an operation, the first stage
//! changes its data and passes it on, the second changes it and answers. With `w` = 1 all three are on one event loop, the last one as a
//! child of the one before; with 2 the stages are on the loop of another thread.
//!
//! The limit is the same written by hand (`threads`): three queues and a loop around them on one thread; with two, a channel each way.

use std::collections::VecDeque;

use fibra::machine::{Child, EventLoop, Machine, MachineRef, OpPool, Ports, Request, Seat, Timestamp};

use crate::measure::{Passes, Sample};
use crate::peers::Peer;
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "pipeline",
    operation: "one number through three machines in a chain",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Threads, by_hand)],
};

/// Numbers on their way at a time.
const WINDOW: usize = 64;

fn cases(size: Size) -> Vec<Case> {
    let case = |loops| {
        Case::new(&[("n", size.pick(1_000_000, 640)), ("w", loops)], &[Peer::Fibra, Peer::Threads]).time(Goal::Shown)
    };
    vec![case(1), case(2)]
}

fn first(number: u32) -> u32 {
    number.wrapping_mul(3)
}

fn second(number: u32) -> u32 {
    number ^ 0x5555
}

/// The beginning and the end of the chain.
struct Source {
    pool: OpPool<u32>,
    to: MachineRef,
    /// Of this pass.
    sent: u64,
    back: u64,
    n: u64,
    passes: Option<Passes>,
    sample: std::sync::mpsc::Sender<Sample>,
}

impl Machine for Source {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), 0);
            self.back += 1;
        }
        if self.back == self.n {
            (self.sent, self.back) = (0, 0);
            let passes = self.passes.as_mut().expect("until the end");
            passes.end(self.n);
            if !passes.begin() {
                let passes = self.passes.take().expect("until the end");
                self.sample.send(passes.sample()).expect("the measurement waits");
                return ports.stop_all();
            }
        }
        while self.sent < self.n
            && let Ok(op) = self.pool.take(0, self.sent as u32)
        {
            self.sent += 1;
            ports.submit(op.to(self.to));
        }
    }
}

/// Changes what comes and passes it on.
struct First {
    to: Option<MachineRef>,
    child: Option<Child<Second>>,
}

impl First {
    fn pass(mut request: Request, to: MachineRef, ports: &mut Ports<'_>) {
        let number = request.data_mut::<u32>().expect("a number");
        *number = first(*number);
        request.set_destination(to);
        ports.forward(request);
    }
}

impl Machine for First {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        if self.to.is_none() {
            let child = ports.child(Second);
            self.to = Some(child.id());
            self.child = Some(child);
        }
        let to = self.to.expect("made above");
        while let Some(request) = ports.input.submissions.pop() {
            Self::pass(request, to, ports);
        }
        if let Some(child) = &mut self.child {
            child.tick(now, ports);
            child.forward_all(ports);
        }
    }
}

/// Changes what comes and answers.
struct Second;

impl Machine for Second {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(mut request) = ports.input.submissions.pop() {
            let number = request.data_mut::<u32>().expect("a number");
            *number = second(*number);
            ports.complete(request, 0);
        }
    }
}

fn with_fibra(params: &Params) -> Sample {
    let n = params.get("n");
    let (sample, samples) = std::sync::mpsc::channel();
    let source = move |to| {
        let mut passes = Passes::new();
        assert!(passes.begin());
        Source { pool: OpPool::with_capacity(WINDOW), to, sent: 0, back: 0, n, passes: Some(passes), sample }
    };
    if params.workers() == 1 {
        let first = First { to: None, child: None };
        EventLoop::new().app(source(MachineRef::platform(0))).platform(first).run().expect("the loop runs");
    } else {
        let mut seats = Seat::mesh(2);
        let (there, here) = (seats.pop().expect("two"), seats.pop().expect("two"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let first = First { to: Some(MachineRef::platform(1)), child: None };
                EventLoop::at(there).app(first).platform(Second).run().expect("the loop runs");
            });
            EventLoop::at(here).app(source(MachineRef::app(1))).run().expect("the loop runs");
        });
    }
    samples.recv().expect("it has ended")
}

fn by_hand(params: &Params) -> Sample {
    let n = params.get("n");
    let mut passes = Passes::new();
    if params.workers() == 1 {
        let mut stages = [(); 3].map(|()| VecDeque::with_capacity(WINDOW));
        while passes.begin() {
            let (mut sent, mut back, mut sum) = (0, 0, 0_u32);
            while back < n {
                while sent < n && sent - back < WINDOW as u64 {
                    stages[0].push_back(sent as u32);
                    sent += 1;
                }
                while let Some(number) = stages[0].pop_front() {
                    stages[1].push_back(first(number));
                }
                while let Some(number) = stages[1].pop_front() {
                    stages[2].push_back(second(number));
                }
                while let Some(number) = stages[2].pop_front() {
                    sum = sum.wrapping_add(number);
                    back += 1;
                }
            }
            std::hint::black_box(sum);
            passes.end(n);
        }
        return passes.sample();
    }
    let (to_stages, numbers) = crossbeam_channel::bounded::<u32>(WINDOW);
    let (to_source, results) = crossbeam_channel::bounded::<u32>(WINDOW);
    let stages = std::thread::spawn(move || {
        for number in numbers {
            if to_source.send(second(first(number))).is_err() {
                return;
            }
        }
    });
    while passes.begin() {
        let (mut sent, mut back, mut sum) = (0, 0, 0_u32);
        while back < n {
            while sent < n && sent - back < WINDOW as u64 {
                to_stages.send(sent as u32).expect("the other thread listens");
                sent += 1;
            }
            sum = sum.wrapping_add(results.recv().expect("the other thread answers"));
            back += 1;
            while let Ok(number) = results.try_recv() {
                sum = sum.wrapping_add(number);
                back += 1;
            }
        }
        std::hint::black_box(sum);
        passes.end(n);
    }
    drop(to_stages);
    stages.join().expect("it ends");
    passes.sample()
}
