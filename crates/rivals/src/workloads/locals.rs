//! `locals`: the price of thread-locals of one's own. With `moves=2` fibra's tasks have them and go on on any worker
//! (`Builder::moving`); with `moves=0` they are ordinary ones. The other peers have one kind of tasks, and are there to be compared with.
//!
//! `does` says what is measured: 0, a start and a join, one after the other; 1, a yield of one of two tasks; 2, a message to
//! another task and back; 3, the memory of a task that sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::measure::{Memory, Passes, Sample};
use crate::peers::fibra::Fibra;
use crate::peers::threads::Threads;
use crate::peers::tokio::{self as tokio_peer, Mpsc};
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "locals",
    operation: "with thread-locals of its own (moves=2) and without: a start and a join (does=0), a yield (1), \
        a message and its answer (2), one task asleep (3)",
    cases,
    sides: &[(Peer::Fibra, blocking::<Fibra>), (Peer::Tokio, tokio), (Peer::Crossbeam, blocking::<Threads>)],
};

const START: u64 = 0;
const YIELD: u64 = 1;
const MESSAGE: u64 = 2;
const SLEEP: u64 = 3;

fn cases(size: Size) -> Vec<Case> {
    let case = |does, moves, n| {
        let params = [("does", does), ("moves", moves), ("n", n), ("w", 2)];
        let case = Case::new(&params, &[Peer::Fibra, Peer::Tokio]).beside(Peer::Crossbeam);
        if does == SLEEP { case.metric("bytes", "bytes each", Goal::Shown) } else { case.time(Goal::Shown) }
    };
    let sizes = [
        (START, size.pick(1_000, 20)),
        (YIELD, size.pick(200_000, 200)),
        (MESSAGE, size.pick(20_000, 50)),
        (SLEEP, size.pick(1_000, 50)),
    ];
    sizes.into_iter().flat_map(|(does, n)| [0, 2].map(|moves| case(does, moves, n))).collect()
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 100 }
}

const AN_HOUR: Duration = Duration::from_secs(3_600);
/// Time for the last sleeper to be off its stack.
const SETTLE: Duration = Duration::from_millis(300);

/// Tasks that are about to sleep.
static ASLEEP: AtomicU64 = AtomicU64::new(0);

fn finish(before: &Memory, n: u64) -> ! {
    let (now, mut sample) = (Memory::now(), Sample::default());
    let grown = (now.resident + now.page_tables) as f64 - (before.resident + before.page_tables) as f64;
    sample.set("bytes", grown / n as f64);
    sample.print_and_exit()
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    let (does, moves, n) = (params.get("does"), params.get("moves"), params.get("n"));
    C::Tasks::run(setup(params), move || {
        if does == SLEEP {
            return blocking_sleepers::<C>(moves, n);
        }
        let mut passes = Passes::new();
        while passes.begin() {
            match does {
                START => (0..n).for_each(|_| C::Tasks::join(C::Tasks::spawn_by(moves, || ()))),
                YIELD => {
                    let yields = move || (0..n / 2).for_each(|_| C::Tasks::yield_now());
                    [0; 2].map(|_| C::Tasks::spawn_by(moves, yields)).into_iter().for_each(C::Tasks::join);
                }
                _ => blocking_messages::<C>(moves, n),
            }
            passes.end(n);
        }
        passes.sample()
    })
}

fn blocking_messages<C: Channels>(moves: u64, n: u64) {
    let (ping, pinged) = C::bounded::<u64>(1);
    let (pong, ponged) = C::bounded::<u64>(1);
    let echo = C::Tasks::spawn_by(moves, move || {
        while let Some(message) = C::receive(&pinged) {
            C::send(&pong, message);
        }
    });
    let player = C::Tasks::spawn_by(moves, move || {
        for number in 0..n {
            C::send(&ping, number);
            assert_eq!(C::receive(&ponged), Some(number));
        }
    });
    C::Tasks::join(player);
    C::Tasks::join(echo);
}

fn blocking_sleepers<C: Channels>(moves: u64, n: u64) -> Sample {
    // What only the first one needs.
    C::Tasks::join(C::Tasks::spawn_by(moves, || ()));
    let before = Memory::now();
    let sleeps = || {
        // Relaxed: a count that is only waited for.
        ASLEEP.fetch_add(1, Ordering::Relaxed);
        C::Tasks::sleep(AN_HOUR);
    };
    let _handles: Vec<_> = (0..n).map(|_| C::Tasks::spawn_by(moves, sleeps)).collect();
    // Relaxed: as above.
    while ASLEEP.load(Ordering::Relaxed) < n {
        C::Tasks::sleep(SETTLE / 10);
    }
    C::Tasks::sleep(SETTLE);
    finish(&before, n)
}

fn tokio(params: &Params) -> Sample {
    let (does, n) = (params.get("does"), params.get("n"));
    tokio_peer::run(setup(params), async move {
        if does == SLEEP {
            return tokio_sleepers(n).await;
        }
        let mut passes = Passes::new();
        while passes.begin() {
            match does {
                START => {
                    for _ in 0..n {
                        tokio::spawn(async {}).await.expect("an empty task ends");
                    }
                }
                YIELD => {
                    let yields = || async move {
                        for _ in 0..n / 2 {
                            tokio::task::yield_now().await;
                        }
                    };
                    for task in [0; 2].map(|_| tokio::spawn(yields())) {
                        task.await.expect("a yielding task ends");
                    }
                }
                _ => tokio_messages(n).await,
            }
            passes.end(n);
        }
        passes.sample()
    })
}

async fn tokio_messages(n: u64) {
    let (ping, mut pinged) = Mpsc::bounded::<u64>(1);
    let (pong, mut ponged) = Mpsc::bounded::<u64>(1);
    let echo = tokio::spawn(async move {
        while let Some(message) = Mpsc::receive(&mut pinged).await {
            Mpsc::send(&pong, message).await;
        }
    });
    let player = tokio::spawn(async move {
        for number in 0..n {
            Mpsc::send(&ping, number).await;
            assert_eq!(Mpsc::receive(&mut ponged).await, Some(number));
        }
    });
    player.await.expect("the game ends");
    echo.await.expect("the game ends");
}

async fn tokio_sleepers(n: u64) -> Sample {
    tokio::spawn(async {}).await.expect("an empty task ends");
    let before = Memory::now();
    let sleeps = || async {
        // Relaxed: as above.
        ASLEEP.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(AN_HOUR).await;
    };
    let _handles: Vec<_> = (0..n).map(|_| tokio::spawn(sleeps())).collect();
    // Relaxed: as above.
    while ASLEEP.load(Ordering::Relaxed) < n {
        tokio::time::sleep(SETTLE / 10).await;
    }
    tokio::time::sleep(SETTLE).await;
    finish(&before, n)
}
