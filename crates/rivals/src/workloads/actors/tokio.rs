//! An actor written by hand on tokio: a task, a channel of 64 messages, a oneshot for each answer.

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{mpsc, oneshot};

super::bodies!();

#[derive(Clone)]
pub(super) struct Ref(mpsc::Sender<Op>);

enum Op {
    Tell(Msg<Ref>),
    Ask(oneshot::Sender<u64>),
    Stop(oneshot::Sender<()>),
}

fn run<T: Send + 'static>(workers: usize, body: impl Future<Output = T> + Send + 'static) -> T {
    crate::peers::tokio::run(crate::peers::Setup { workers, kept_stacks: 1 }, body)
}

fn start(body: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(body);
}

async fn node(done: UnboundedSender<()>, until: u64, seed: u64) -> Ref {
    let (tx, mut rx) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut node = Node::<Ref>::new(until, seed);
        while let Some(op) = rx.recv().await {
            match op {
                Op::Tell(message) => match node.handle(message) {
                    Then::Nothing => {}
                    Then::Pass(to, left) => tell(to, Msg::Hop(left)).await,
                    Then::Done => done.send(()).expect("the benchmark waits"),
                },
                Op::Ask(reply) => drop(reply.send(node.answer())),
                Op::Stop(gone) => {
                    let _ = gone.send(());
                    return;
                }
            }
        }
    });
    Ref(tx)
}

async fn tell(to: &Ref, message: Msg<Ref>) {
    assert!(to.0.send(Op::Tell(message)).await.is_ok(), "it is there");
}

async fn question(to: &Ref) -> u64 {
    let (tx, rx) = oneshot::channel();
    assert!(to.0.send(Op::Ask(tx)).await.is_ok(), "it is there");
    rx.await.expect("it answers")
}

async fn stop(node: Ref) {
    let (tx, rx) = oneshot::channel();
    assert!(node.0.send(Op::Stop(tx)).await.is_ok(), "it is there");
    rx.await.expect("it says that it goes");
}
