//! Pipelines in scopes, cancelled at random everywhere: by handles, scopes, tokens, deadlines and panics, on several workers and plain
//! threads at once. Every message is accounted for, nothing is left behind, and the channels work on. With `FIBRA_LONG=1`, a million
//! cancellations. And very many fibers that are cancelled at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, is_long};
use crate::tools;
use crate::tools::Rng;
use fibra::channel::{Receiver, RecvTimeoutError, Sender, bounded, rendezvous};
use fibra::time::Instant;
use fibra::{CancelToken, FiberId, Runtime, Scope};

const LONG: Duration = Duration::from_secs(3600);

// ---- The ledger ---------------------------------------------------------------------------------------------------------------

#[derive(Debug, Default)]
struct Ledger {
    made: AtomicU64,
    /// Came to the sink, back to its sender, or was found in a channel afterwards.
    delivered: AtomicU64,
    returned: AtomicU64,
    left: AtomicU64,
    /// Went with its owner, who was cancelled.
    unwound: AtomicU64,
    /// Dropped by a fiber that may not.
    lost: AtomicU64,
}

/// A message. It must not go but on purpose: settled, or with its owner, which is cancelled. One that is dropped by a
/// receiver whose receive was cancelled is lost.
struct Msg<'a> {
    id: u64,
    ledger: &'a Ledger,
    settled: bool,
    owner: Option<FiberId>,
}

fn myself() -> Option<FiberId> {
    fibra::current().map(|fiber| fiber.id())
}

impl<'a> Msg<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        Self { id: ledger.made.fetch_add(1, SeqCst), ledger, settled: false, owner: myself() }
    }

    /// Just received.
    fn mine(mut self) -> Self {
        self.owner = myself();
        self
    }

    fn settle(mut self, account: fn(&Ledger) -> &AtomicU64) {
        account(self.ledger).fetch_add(1, SeqCst);
        self.settled = true;
    }
}

impl Drop for Msg<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let gone_with_its_owner = fibra::is_cancelled() && self.owner == myself();
            let account = if gone_with_its_owner { &self.ledger.unwound } else { &self.ledger.lost };
            account.fetch_add(1, SeqCst);
        }
    }
}

// ---- The pipeline -------------------------------------------------------------------------------------------------------------

struct Pipes<'a> {
    first: (Sender<Msg<'a>>, Receiver<Msg<'a>>),
    second: (Sender<Msg<'a>>, Receiver<Msg<'a>>),
    third: (Sender<Msg<'a>>, Receiver<Msg<'a>>),
    last: (Sender<Msg<'a>>, Receiver<Msg<'a>>),
    side: (Sender<Msg<'a>>, Receiver<Msg<'a>>),
}

impl<'a> Pipes<'a> {
    fn new(rng: &mut Rng) -> Self {
        let mut pipe = || match rng.below(3) {
            0 => rendezvous(),
            capacity => bounded(capacity),
        };
        Self { first: pipe(), second: pipe(), third: pipe(), last: pipe(), side: pipe() }
    }

    fn all(&self) -> [&(Sender<Msg<'a>>, Receiver<Msg<'a>>); 5] {
        [&self.first, &self.second, &self.third, &self.last, &self.side]
    }
}

/// To the next stage. False: no stage is there.
fn pass<'a>(to: &Sender<Msg<'a>>, message: Msg<'a>) -> bool {
    to.send(message).map_err(|error| error.into_inner().settle(|ledger| &ledger.returned)).is_ok()
}

fn source<'a>(pipes: &Pipes<'a>, ledger: &'a Ledger) {
    while pass(&pipes.first.0, Msg::new(ledger)) {}
}

/// Plain, with a reservation now and then, and a job on the blocking pool.
fn plain_stage(pipes: &Pipes<'_>, mut rng: Rng) {
    while let Ok(message) = pipes.first.1.recv().map(Msg::mine) {
        match rng.below(40) {
            0 => {
                let id = fibra::blocking(|| message.id);
                assert_eq!(id, message.id);
            }
            1..10 => match pipes.second.0.reserve() {
                Ok(permit) => {
                    permit.send(message);
                    continue;
                }
                Err(_) => return message.settle(|ledger| &ledger.returned),
            },
            10..15 => fibra::yield_now(),
            _ => {}
        }
        if !pass(&pipes.second.0, message) {
            return;
        }
    }
}

/// Takes what comes and gives what it has, whichever is possible.
fn select_stage(pipes: &Pipes<'_>) {
    let mut kept: Vec<Msg<'_>> = Vec::new();
    loop {
        let kept_one = kept.pop();
        match kept_one {
            None => fibra::select! {
                recv(pipes.second.1) -> got => match got {
                    Ok(message) => kept.push(message.mine()),
                    Err(_) => return,
                },
                recv(pipes.side.1) -> got => match got {
                    Ok(message) => kept.push(message.mine()),
                    Err(_) => return,
                },
            },
            Some(message) => fibra::select! {
                send(pipes.third.0, message) -> sent => if let Err(error) = sent {
                    return error.into_inner().settle(|ledger| &ledger.returned);
                },
                after(Duration::from_micros(200)) => kept.push(message),
            },
        }
    }
}

/// Waits for a moment only: inside a timeout, or with a deadline form.
fn impatient_stage(pipes: &Pipes<'_>, mut rng: Rng) {
    loop {
        let moment = Duration::from_micros(rng.below(60) as u64);
        let message = if rng.below(2) == 0 {
            match fibra::timeout(moment, || pipes.third.1.recv()) {
                Ok(Ok(message)) => message,
                Ok(Err(_)) => return,
                Err(_) => continue,
            }
        } else {
            match pipes.third.1.recv_timeout(moment) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(_) => return,
            }
        };
        if !pass(&pipes.last.0, message.mine()) {
            return;
        }
    }
}

fn sink(pipes: &Pipes<'_>) {
    let mut seen = std::collections::HashSet::new();
    while let Ok(message) = pipes.last.1.recv() {
        assert!(seen.insert(message.id), "twice: {}", message.id);
        message.settle(|ledger| &ledger.delivered);
    }
}

/// A future among them.
async fn asynchronous_source<'a>(pipes: &Pipes<'a>, ledger: &'a Ledger) {
    loop {
        if let Err(error) = pipes.side.0.send_async(Msg::new(ledger)).await {
            return error.into_inner().settle(|ledger| &ledger.returned);
        }
    }
}

/// One life of a pipeline, which ends by cancellation, in one of many ways.
fn round(ledger: &Ledger, rng: &mut Rng) {
    let pipes = Pipes::new(rng);
    let token = CancelToken::new();
    let way = rng.below(7);
    let moment = Duration::from_micros(rng.below(300) as u64);
    let mut builder = Scope::builder().token(token.clone());
    if way == 0 {
        builder = builder.timeout(moment);
    }
    if rng.below(8) == 0 {
        builder = builder.max_concurrency(3);
    }
    let (pipes, mut inner) = (&pipes, rng.fork());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        builder.run(|s| {
            let (for_plain, for_impatient) = (inner.fork(), inner.fork());
            let mut handles = vec![
                s.spawn(|| source(pipes, ledger)),
                s.spawn(|| plain_stage(pipes, for_plain)),
                s.spawn(|| select_stage(pipes)),
                // Stages in a scope of their own: cancelled with the one around it.
                s.spawn(|| {
                    fibra::scope(|stages| {
                        stages.spawn(|| sink(pipes));
                        impatient_stage(pipes, for_impatient);
                        stages.cancel();
                    });
                }),
            ];
            if inner.below(2) == 0 {
                handles.push(s.spawn_future(asynchronous_source(pipes, ledger)));
            }
            for _ in 0..inner.below(4) {
                fibra::yield_now();
            }
            fibra::sleep(moment / 2);
            match way {
                1 => handles[inner.below(handles.len())].cancel(),
                2 => handles.iter().for_each(|handle| handle.cancel()),
                3 => token.cancel(),
                4 => s.token().cancel_with("by the scope's own"),
                5 => drop(s.spawn(|| resume_unwind(Box::new("a stage panics")))),
                _ => {}
            }
            if inner.below(2) == 0 {
                fibra::sleep(moment / 4);
            }
            s.cancel();
            drop(handles);
        })
    }));
    if let Err(payload) = outcome {
        assert!(!fibra::is_cancellation(&*payload), "the caller was not cancelled");
        let text = payload.downcast_ref::<&str>().copied();
        assert_eq!((text, way), (Some("a stage panics"), 5), "{:?}", payload.downcast_ref::<String>());
    }
    // Nothing of it is left: what is in the channels can be had, and they work on.
    for (tx, rx) in pipes.all() {
        while let Ok(message) = rx.try_recv() {
            message.settle(|ledger| &ledger.left);
        }
        assert!(tx.is_empty() && !tx.is_closed());
        fibra::scope(|s| {
            let got = s.spawn(|| rx.recv().map(|message| message.settle(|ledger| &ledger.delivered)));
            assert!(pass(tx, Msg::new(ledger)));
            got.join().unwrap().unwrap();
        });
    }
}

fn check(ledger: &Ledger) {
    let [made, delivered, returned, left, unwound, lost] =
        [&ledger.made, &ledger.delivered, &ledger.returned, &ledger.left, &ledger.unwound, &ledger.lost]
            .map(|account| account.load(SeqCst));
    assert_eq!(lost, 0, "{ledger:?}");
    assert_eq!(made, delivered + returned + left + unwound, "{ledger:?}");
}

/// So many cancellations there are on any machine, however long they take.
const FEWEST: u64 = 500;

// S4-03, S4-47, X-03: cancelled at random at every blocking point, nothing is lost, doubled or left behind.
#[test]
fn stress_pipelines_cancelled_at_random() {
    let goal: u64 = if is_long() { 1_000_000 } else { tools::turns(5_000) as u64 };
    let limit = Duration::from_secs(if is_long() { 1800 } else { 4 });
    let _watchdog = support::watchdog(limit.as_secs() + 60);
    let mut rng = Rng::new();
    let runtime = Runtime::builder().workers(2).max_blocking_threads(4).build().unwrap();
    let (ledger, rounds) = (Ledger::default(), AtomicU64::new(0));
    let (begun, fired) = (Instant::now(), AtomicBool::new(false));
    let goes_on = || {
        let cancellations = runtime.metrics().cancellations;
        let over = cancellations >= goal || cancellations >= FEWEST.min(goal) && begun.elapsed() > limit;
        !fired.load(SeqCst) && !over
    };
    let drive = |mut rng: Rng| {
        // Not to be forgotten by the others if one of them fails.
        let failed = OnPanic(&fired);
        while goes_on() {
            round(&ledger, &mut rng);
            rounds.fetch_add(1, SeqCst);
        }
        drop(failed);
    };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let (rng, handle) = (rng.fork(), runtime.handle());
            threads.spawn(move || {
                let _entered = handle.enter();
                drive(rng);
            });
        }
        let rngs: Vec<_> = (0..3).map(|_| rng.fork()).collect();
        runtime.run(|| {
            fibra::scope(|s| {
                for rng in rngs {
                    s.spawn(|| drive(rng));
                }
            });
        });
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
    let metrics = runtime.metrics();
    println!(
        "{} cancellations in {} rounds, {:?}: {ledger:?}",
        metrics.cancellations,
        rounds.into_inner(),
        begun.elapsed()
    );
    assert_eq!(metrics.parked, 0);
    assert!(metrics.cancellations >= FEWEST.min(goal), "{metrics:?}");
    check(&ledger);
}

struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

// ---- Very many at once ----------------------------------------------------------------------------------------------------------

/// Parks so many, on timers, on one channel and on one token, cancels all at once, and tells what CPU time that took.
fn cancel_many(runtime: &Runtime, count: usize) -> Duration {
    let (_tx, rx) = rendezvous::<u32>();
    let (token, unwound) = (CancelToken::new(), AtomicU64::new(0));
    struct Counts<'a>(&'a AtomicU64);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let mut taken = Duration::ZERO;
    let _entered = runtime.handle().enter();
    fibra::scope(|s| {
        for index in 0..count {
            let (rx, token, unwound) = (&rx, &token, &unwound);
            s.spawn(move || {
                let _counts = Counts(unwound);
                match index % 3 {
                    0 => fibra::sleep(LONG),
                    1 => _ = rx.recv(),
                    _ => _ = token.wait(),
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(60 * support::SLOWDOWN);
        while runtime.metrics().parked < count as u64 {
            assert!(Instant::now() < until, "{:?}", runtime.metrics());
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = support::cpu_time();
        s.cancel();
        while runtime.metrics().live > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        taken = support::cpu_time() - before;
    });
    assert_eq!(unwound.into_inner(), count as u64);
    taken
}

// S4-19: cancelling costs the same per fiber, however many there are.
#[test]
fn very_many_are_cancelled_at_once() {
    let _watchdog = support::watchdog(300);
    let many = tools::stacks(if is_long() { 100_000 } else { 20_000 });
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let (few, all) = (cancel_many(&runtime, many / 8), cancel_many(&runtime, many));
        println!(
            "{} of {many}: {:?} each; of {}: {:?} each",
            many,
            all / many as u32,
            many / 8,
            few / (many as u32 / 8)
        );
        // Eight times as many: eight times the cost, and not sixty-four times.
        ratios.push(all.as_nanos() / few.as_nanos().max(1));
        if ratios.last().is_some_and(|ratio| *ratio < 24) {
            return;
        }
    }
    panic!("cancelling is not linear: {ratios:?}");
}
