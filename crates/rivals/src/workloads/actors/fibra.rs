//! fibra's actors. Clients and handlers block.

use std::sync::Arc;

use fibra::actor::{self, Actor, Addr, Context, Failure, Reply};
use fibra::channel::{Receiver, Sender, unbounded};

use super::{Msg, Node, Then, idle_sample, passes};
use crate::measure::{Memory, Meter, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Setup};
use crate::plan::Params;

struct Worker {
    node: Node<Addr<Worker>>,
    done: Sender<()>,
}

enum Op {
    Tell(Msg<Addr<Worker>>),
    Ask(Reply<u64>),
}

impl Actor for Worker {
    type Message = Op;

    fn handle(&mut self, op: Op, _: &mut Context<Self>) -> Result<(), Failure> {
        match op {
            Op::Tell(message) => match self.node.handle(message) {
                Then::Nothing => {}
                Then::Pass(to, left) => to.send(Op::Tell(Msg::Hop(left)))?,
                Then::Done => self.done.send(())?,
            },
            Op::Ask(reply) => reply.send(self.node.answer()),
        }
        Ok(())
    }
}

fn worker(done: &Sender<()>, until: u64, seed: u64) -> Addr<Worker> {
    actor::spawn(Worker { node: Node::new(until, seed), done: done.clone() })
}

fn tell(to: &Addr<Worker>, message: Msg<Addr<Worker>>) {
    assert!(to.send(Op::Tell(message)).is_ok(), "it is there");
}

fn run(params: &Params, body: impl FnOnce(Sender<()>, Receiver<()>) -> Sample + Send + 'static) -> Sample {
    let setup = Setup { workers: params.workers(), kept_stacks: 64 };
    Fibra::run(setup, move || {
        let (done, ended) = unbounded();
        body(done, ended)
    })
}

pub(super) fn ring(params: &Params) -> Sample {
    let (actors, n) = (params.get("actors"), params.get("n"));
    run(params, move |done, ended| {
        let workers: Vec<_> = (0..actors).map(|seed| worker(&done, 0, seed)).collect();
        for (at, worker) in workers.iter().enumerate() {
            tell(worker, Msg::Peers(Arc::new(vec![workers[(at + 1) % workers.len()].clone()])));
        }
        passes(|| {
            tell(&workers[0], Msg::Hop(n));
            ended.recv().expect("the token ends somewhere");
            n
        })
    })
}

pub(super) fn fan_in(params: &Params) -> Sample {
    let (senders, n) = (params.get("senders"), params.get("n"));
    run(params, move |done, ended| {
        passes(|| {
            let sink = worker(&done, n / senders * senders, 1);
            for _ in 0..senders {
                let sink = sink.clone();
                fibra::spawn(move || (0..n / senders).for_each(|_| tell(&sink, Msg::Add)));
            }
            ended.recv().expect("it counts to the end");
            n
        })
    })
}

pub(super) fn fan_out(params: &Params) -> Sample {
    let (actors, n) = (params.get("actors"), params.get("n"));
    run(params, move |done, ended| {
        passes(|| {
            let workers: Vec<_> = (0..actors).map(|seed| worker(&done, n / actors, seed)).collect();
            for _ in 0..n / actors {
                workers.iter().for_each(|worker| tell(worker, Msg::Add));
            }
            (0..actors).for_each(|_| ended.recv().expect("all count to the end"));
            n
        })
    })
}

pub(super) fn ask(params: &Params) -> Sample {
    let n = params.get("n");
    run(params, move |done, _ended| {
        let worker = worker(&done, 0, 1);
        let mut count = 0;
        passes(|| {
            for _ in 0..n {
                count += 1;
                assert_eq!(worker.call(Op::Ask), Ok(count));
            }
            n
        })
    })
}

pub(super) fn random(params: &Params) -> Sample {
    let (actors, messages, n) = (params.get("actors"), params.get("messages"), params.get("n"));
    run(params, move |done, ended| {
        let workers: Vec<_> = (0..actors).map(|seed| worker(&done, 0, seed * 7919)).collect();
        let all = Arc::new(workers.clone());
        workers.iter().for_each(|worker| tell(worker, Msg::Peers(all.clone())));
        passes(|| {
            workers.iter().take(messages as usize).for_each(|worker| tell(worker, Msg::Hop(n / messages)));
            (0..messages).for_each(|_| ended.recv().expect("each message ends somewhere"));
            n
        })
    })
}

pub(super) fn spawn_stop(params: &Params) -> Sample {
    let n = params.get("n");
    run(params, move |done, _ended| {
        passes(|| {
            for seed in 0..n {
                let worker = worker(&done, 0, seed);
                tell(&worker, Msg::Add);
                worker.stop();
                worker.stopped();
            }
            n
        })
    })
}

pub(super) fn idle(params: &Params) -> Sample {
    let n = params.get("n");
    run(params, move |done, _ended| {
        let (before, meter) = (Memory::now(), Meter::start());
        let mut workers = Vec::with_capacity(n as usize);
        for seed in 0..n {
            let worker = worker(&done, 0, seed);
            tell(&worker, Msg::Add);
            workers.push(worker);
        }
        for worker in &workers {
            assert!(worker.call(Op::Ask).is_ok());
        }
        idle_sample(&before, &meter, n).print_and_exit()
    })
}
