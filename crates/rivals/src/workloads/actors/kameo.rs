//! kameo: a task for each actor, a mailbox of 64 messages, a box for each message.

use std::convert::Infallible;

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, Spawn};
use ::kameo::message::{Context, Message};
use tokio::sync::mpsc::UnboundedSender;

super::bodies!();

type Ref = ActorRef<Worker>;

pub(super) struct Worker {
    node: Node<Ref>,
    done: UnboundedSender<()>,
}

impl Actor for Worker {
    type Args = Self;
    type Error = Infallible;
    async fn on_start(worker: Self, _: Ref) -> Result<Self, Infallible> {
        Ok(worker)
    }
}

struct Tell(Msg<Ref>);
struct Ask;

impl Message<Tell> for Worker {
    type Reply = ();
    async fn handle(&mut self, Tell(message): Tell, _: &mut Context<Self, ()>) {
        match self.node.handle(message) {
            Then::Nothing => {}
            Then::Pass(to, left) => drop(to.tell(Tell(Msg::Hop(left))).await),
            Then::Done => self.done.send(()).expect("the benchmark waits"),
        }
    }
}

impl Message<Ask> for Worker {
    type Reply = u64;
    async fn handle(&mut self, _: Ask, _: &mut Context<Self, u64>) -> u64 {
        self.node.answer()
    }
}

fn run<T: Send + 'static>(workers: usize, body: impl Future<Output = T> + Send + 'static) -> T {
    crate::peers::tokio::run(crate::peers::Setup { workers, kept_stacks: 1 }, body)
}

fn start(body: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(body);
}

async fn node(done: UnboundedSender<()>, until: u64, seed: u64) -> Ref {
    Worker::spawn(Worker { node: Node::new(until, seed), done })
}

async fn tell(to: &Ref, message: Msg<Ref>) {
    assert!(to.tell(Tell(message)).await.is_ok(), "it is there");
}

async fn question(to: &Ref) -> u64 {
    to.ask(Ask).await.expect("it answers")
}

async fn stop(node: Ref) {
    node.stop_gracefully().await.expect("it is there");
    node.wait_for_shutdown().await;
}
