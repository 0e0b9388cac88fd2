//! actix, on the one arbiter of its system: all actors on one thread, as it is meant. Messages go by `do_send`, which never waits.

use ::actix::prelude::*;
use tokio::sync::mpsc::UnboundedSender;

super::bodies!();

type Ref = Addr<Worker>;

pub(super) struct Worker {
    node: Node<Ref>,
    done: UnboundedSender<()>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

struct Tell(Msg<Ref>);

impl Message for Tell {
    type Result = ();
}

struct Ask;

impl Message for Ask {
    type Result = u64;
}

struct Stop;

impl Message for Stop {
    type Result = ();
}

impl Handler<Tell> for Worker {
    type Result = ();
    fn handle(&mut self, Tell(message): Tell, _: &mut Context<Self>) {
        match self.node.handle(message) {
            Then::Nothing => {}
            Then::Pass(to, left) => to.do_send(Tell(Msg::Hop(left))),
            Then::Done => self.done.send(()).expect("the benchmark waits"),
        }
    }
}

impl Handler<Ask> for Worker {
    type Result = u64;
    fn handle(&mut self, _: Ask, _: &mut Context<Self>) -> u64 {
        self.node.answer()
    }
}

impl Handler<Stop> for Worker {
    type Result = ();
    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

fn run<T>(_workers: usize, body: impl Future<Output = T>) -> T {
    System::new().block_on(body)
}

fn start(body: impl Future<Output = ()> + 'static) {
    ::actix::spawn(body);
}

async fn node(done: UnboundedSender<()>, until: u64, seed: u64) -> Ref {
    Worker { node: Node::new(until, seed), done }.start()
}

async fn tell(to: &Ref, message: Msg<Ref>) {
    to.do_send(Tell(message));
}

async fn question(to: &Ref) -> u64 {
    to.send(Ask).await.expect("it answers")
}

async fn stop(node: Ref) {
    node.send(Stop).await.expect("it is there");
}
