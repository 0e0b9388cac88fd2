//! ractor: a task and four channels for each actor; its mailboxes have no bound.

use ::ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc::UnboundedSender;

super::bodies!();

type Ref = ActorRef<Op>;

pub(super) struct Worker;

pub(super) enum Op {
    Tell(Msg<Ref>),
    Ask(RpcReplyPort<u64>),
}

impl Actor for Worker {
    type Msg = Op;
    type State = (Node<Ref>, UnboundedSender<()>);
    type Arguments = (Node<Ref>, UnboundedSender<()>);

    async fn pre_start(&self, _: Ref, arguments: Self::Arguments) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(&self, _: Ref, op: Op, (node, done): &mut Self::State) -> Result<(), ActorProcessingErr> {
        match op {
            Op::Tell(message) => match node.handle(message) {
                Then::Nothing => {}
                Then::Pass(to, left) => to.cast(Op::Tell(Msg::Hop(left)))?,
                Then::Done => done.send(()).expect("the benchmark waits"),
            },
            Op::Ask(reply) => drop(reply.send(node.answer())),
        }
        Ok(())
    }
}

fn run<T: Send + 'static>(workers: usize, body: impl Future<Output = T> + Send + 'static) -> T {
    crate::peers::tokio::run(crate::peers::Setup { workers, kept_stacks: 1 }, body)
}

fn start(body: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(body);
}

async fn node(done: UnboundedSender<()>, until: u64, seed: u64) -> Ref {
    Actor::spawn(None, Worker, (Node::new(until, seed), done)).await.expect("it starts").0
}

async fn tell(to: &Ref, message: Msg<Ref>) {
    assert!(to.cast(Op::Tell(message)).is_ok(), "it is there");
}

async fn question(to: &Ref) -> u64 {
    let answer = to.call(Op::Ask, None).await.expect("it is there");
    answer.expect("it answers")
}

async fn stop(node: Ref) {
    node.stop_and_wait(None, None).await.expect("it goes");
}
