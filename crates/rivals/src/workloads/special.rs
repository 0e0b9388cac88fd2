//! `special`: the special channels beside tokio's. kind=0, `oneshot`: a task asks another for an answer, each time over a new channel.
//! kind=1, `watch`: two tasks tell each other of a change in turn. kind=2, `broadcast`: one task sends batches of 32 to four others, and
//! waits until all have had each batch. One operation is one answer, one change and its echo, one message to all four.

use crate::measure::{Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "special",
    operation: "one answer by oneshot (kind=0), a change and its echo by watch (1), a message to four by broadcast (2)",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Tokio, tokio)],
};

const ONESHOT: u64 = 0;
const WATCH: u64 = 1;
const BROADCAST: u64 = 2;

const RECEIVERS: usize = 4;
const BATCH: u64 = 32;

fn cases(size: Size) -> Vec<Case> {
    let case = |kind, w| {
        let sizes = [("kind", kind), ("n", size.pick(320_000, 320)), ("w", w)];
        Case::new(&sizes, &[Peer::Fibra, Peer::Tokio]).time(Goal::Ratio(0.7))
    };
    [ONESHOT, WATCH, BROADCAST].into_iter().flat_map(|kind| [case(kind, 1), case(kind, 2)]).collect()
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 100 }
}

fn fibra(params: &Params) -> Sample {
    use fibra::channel;
    let (kind, n) = (params.get("kind"), params.get("n"));
    Fibra::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            match kind {
                ONESHOT => {
                    let (ask, asked) = channel::bounded::<channel::OneshotSender<u64>>(16);
                    let answering = fibra::spawn(move || {
                        for (number, reply) in asked.iter().enumerate() {
                            assert!(reply.send(number as u64).is_ok());
                        }
                    });
                    let asking = fibra::spawn(move || {
                        for number in 0..n {
                            let (reply, answer) = channel::oneshot();
                            assert!(ask.send(reply).is_ok());
                            assert_eq!(answer.recv(), Ok(number));
                        }
                    });
                    Fibra::join(asking);
                    Fibra::join(answering);
                }
                WATCH => {
                    let (ping, pinged) = channel::watch(0);
                    let (pong, ponged) = channel::watch(0);
                    let echo = fibra::spawn(move || {
                        while pinged.changed().is_ok() {
                            assert!(pong.send(pinged.get()).is_ok());
                        }
                    });
                    let player = fibra::spawn(move || {
                        for number in 1..=n {
                            assert!(ping.send(number).is_ok());
                            assert!(ponged.changed().is_ok());
                            assert_eq!(ponged.get(), number);
                        }
                    });
                    Fibra::join(player);
                    Fibra::join(echo);
                }
                _ => {
                    let (tx, rx) = channel::broadcast::<u64>(2 * BATCH as usize);
                    let (had, batches) = channel::bounded(RECEIVERS);
                    let first: Vec<_> = (0..RECEIVERS).map(|_| tx.subscribe()).collect();
                    drop(rx);
                    let receivers: Vec<_> = first
                        .into_iter()
                        .map(|rx| {
                            let had = had.clone();
                            fibra::spawn(move || {
                                let mut next = 0;
                                while let Ok(number) = rx.recv() {
                                    assert_eq!(number, next);
                                    next += 1;
                                    if next % BATCH == 0 {
                                        assert!(had.send(()).is_ok());
                                    }
                                }
                                next
                            })
                        })
                        .collect();
                    let sending = fibra::spawn(move || {
                        for number in 0..n {
                            assert_eq!(tx.send(number), Ok(RECEIVERS));
                            if number % BATCH == BATCH - 1 {
                                (0..RECEIVERS).for_each(|_| assert!(batches.recv().is_ok()));
                            }
                        }
                    });
                    Fibra::join(sending);
                    assert!(receivers.into_iter().all(|receiver| Fibra::join(receiver) == n));
                }
            }
            passes.end(n);
        }
        passes.sample()
    })
}

fn tokio(params: &Params) -> Sample {
    use tokio::sync::{broadcast, mpsc, oneshot, watch};
    let (kind, n) = (params.get("kind"), params.get("n"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            match kind {
                ONESHOT => {
                    let (ask, mut asked) = mpsc::channel::<oneshot::Sender<u64>>(16);
                    let answering = tokio::spawn(async move {
                        let mut number = 0;
                        while let Some(reply) = asked.recv().await {
                            assert!(reply.send(number).is_ok());
                            number += 1;
                        }
                    });
                    let asking = tokio::spawn(async move {
                        for number in 0..n {
                            let (reply, answer) = oneshot::channel();
                            assert!(ask.send(reply).await.is_ok());
                            assert_eq!(answer.await, Ok(number));
                        }
                    });
                    asking.await.expect("a task of the benchmark does not panic");
                    answering.await.expect("a task of the benchmark does not panic");
                }
                WATCH => {
                    let (ping, mut pinged) = watch::channel(0);
                    let (pong, mut ponged) = watch::channel(0);
                    let echo = tokio::spawn(async move {
                        while pinged.changed().await.is_ok() {
                            let number = *pinged.borrow();
                            assert!(pong.send(number).is_ok());
                        }
                    });
                    let player = tokio::spawn(async move {
                        for number in 1..=n {
                            assert!(ping.send(number).is_ok());
                            assert!(ponged.changed().await.is_ok());
                            assert_eq!(*ponged.borrow(), number);
                        }
                    });
                    player.await.expect("a task of the benchmark does not panic");
                    echo.await.expect("a task of the benchmark does not panic");
                }
                _ => {
                    let (tx, _) = broadcast::channel::<u64>(2 * BATCH as usize);
                    let (had, mut batches) = mpsc::channel(RECEIVERS);
                    let first: Vec<_> = (0..RECEIVERS).map(|_| tx.subscribe()).collect();
                    let receivers: Vec<_> = first
                        .into_iter()
                        .map(|mut rx| {
                            let had = had.clone();
                            tokio::spawn(async move {
                                let mut next = 0;
                                while let Ok(number) = rx.recv().await {
                                    assert_eq!(number, next);
                                    next += 1;
                                    if next % BATCH == 0 {
                                        assert!(had.send(()).await.is_ok());
                                    }
                                }
                                next
                            })
                        })
                        .collect();
                    let sending = tokio::spawn(async move {
                        for number in 0..n {
                            assert_eq!(tx.send(number).expect("four tasks receive"), RECEIVERS);
                            if number % BATCH == BATCH - 1 {
                                for _ in 0..RECEIVERS {
                                    assert!(batches.recv().await.is_some());
                                }
                            }
                        }
                    });
                    sending.await.expect("a task of the benchmark does not panic");
                    for receiver in receivers {
                        assert_eq!(receiver.await.expect("a task of the benchmark does not panic"), n);
                    }
                }
            }
            passes.end(n);
        }
        passes.sample()
    })
}
