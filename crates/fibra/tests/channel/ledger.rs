//! The books of channels: under a random mixture of every operation, of fibers, threads and tasks, of cancellation, timeouts, dropped
//! futures and closing, every value is either accepted and received once, or refused and back with its sender; and it is dropped once.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::channels::{ABANDONED, ACCEPTED, Ledger, REFUSED, Side, Tracked, runtime};
use crate::support::watchdog;
use crate::tools::{Rng, turns};
use fibra::Handle;
use fibra::channel::{Receiver, Select, SendError, Sender, bounded, rendezvous, unbounded};

const TURNS: usize = 30;
const PLAYERS: [Side; 7] = [Side::Fiber, Side::Task, Side::Fiber, Side::Thread, Side::Fiber, Side::Task, Side::Thread];

type Ends = (Sender<Tracked>, Receiver<Tracked>);

/// What the players play on.
#[derive(Clone)]
struct Board {
    ends: Arc<[Ends]>,
    ledger: Ledger,
    /// Which turn, counted over all players, closes a channel, if one does.
    closing: Option<usize>,
    played: Arc<AtomicUsize>,
}

impl Board {
    fn new(rng: &mut Rng, closes: bool) -> Self {
        let ends = [rendezvous(), bounded(1), bounded(3), unbounded(), rendezvous(), bounded(1)];
        let closing = closes.then(|| rng.below(PLAYERS.len() * TURNS / 2));
        let ledger = Ledger::new(100_000);
        Self { ends: Arc::new(ends), ledger, closing, played: Arc::new(AtomicUsize::new(0)) }
    }

    fn some_end(&self, rng: &mut Rng) -> &Ends {
        &self.ends[rng.below(self.ends.len())]
    }

    fn offer(&self) -> (Tracked, Offer<'_>) {
        self.offer_or(REFUSED)
    }

    /// By a future, which may be dropped when its value was just taken.
    fn offer_async(&self) -> (Tracked, Offer<'_>) {
        self.offer_or(ABANDONED)
    }

    fn offer_or(&self, unanswered: u8) -> (Tracked, Offer<'_>) {
        let value = self.ledger.value();
        let offer = Offer { ledger: &self.ledger, number: value.number(), unanswered: Some(unanswered) };
        (value, offer)
    }
}

/// A send that is under way.
struct Offer<'a> {
    ledger: &'a Ledger,
    number: usize,
    /// What it means if it stays without an answer: its fiber unwinds, its future is dropped.
    unanswered: Option<u8>,
}

impl Offer<'_> {
    /// Writes the answer down: success, or the value.
    fn answer(mut self, answer: Result<(), Tracked>) {
        self.unanswered = None;
        match answer {
            Ok(()) => self.ledger.mark(self.number, ACCEPTED),
            Err(value) => {
                assert_eq!(value.number(), self.number, "another value came back");
                value.refused();
            }
        }
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        if let Some(fate) = self.unanswered {
            self.ledger.mark(self.number, fate);
        }
    }
}

fn short(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(3) as u64 * 30)
}

/// One turn of a player that may block.
fn turn(board: &Board, rng: &mut Rng) {
    let (tx, rx) = board.some_end(rng);
    match rng.below(18) {
        0 | 1 => {
            let (value, offer) = board.offer();
            offer.answer(tx.send(value).map_err(|error| error.0));
        }
        2 => {
            let (value, offer) = board.offer();
            offer.answer(tx.try_send(value).map_err(|error| error.into_inner()));
        }
        3 => {
            let (value, offer) = board.offer();
            offer.answer(tx.send_timeout(value, short(rng)).map_err(|error| error.into_inner()));
        }
        4 => {
            let (value, offer) = board.offer_async();
            offer.answer(fibra::block_on(tx.send_async(value)).map_err(|error| error.0));
        }
        5 => {
            let (value, offer) = board.offer();
            match tx.force_send(value) {
                Ok(pushed_out) => {
                    offer.answer(Ok(()));
                    pushed_out.into_iter().for_each(Tracked::received);
                }
                Err(error) => offer.answer(Err(error.0)),
            }
        }
        6 => {
            if let Ok(permit) = tx.reserve()
                && rng.below(3) > 0
            {
                let (value, offer) = board.offer();
                offer.answer(permit.try_send(value).map_err(|SendError(value)| value));
            }
        }
        7 | 8 => rx.recv().into_iter().for_each(Tracked::received),
        9 => rx.try_recv().into_iter().for_each(Tracked::received),
        10 => rx.recv_timeout(short(rng)).into_iter().for_each(Tracked::received),
        11 => fibra::block_on(rx.recv_async()).into_iter().for_each(Tracked::received),
        12 => {
            // A place that is held for a while.
            let permit = if rng.below(2) == 0 { tx.try_reserve().ok() } else { tx.reserve_timeout(short(rng)).ok() };
            if let Some(permit) = permit {
                let (value, offer) = board.offer();
                (0..rng.below(3)).for_each(|_| fibra::yield_now());
                offer.answer(permit.try_send(value).map_err(|SendError(value)| value));
            }
        }
        13 | 14 => select_by_macro(board, rng),
        15 => watch(board, rng),
        _ => select(board, rng),
    }
}

/// The same by the macro, where a value moves only if its arm wins.
fn select_by_macro(board: &Board, rng: &mut Rng) {
    let ((tx, _), (other, rx)) = (board.some_end(rng), board.some_end(rng));
    let (value, offer) = board.offer();
    let (first, second) = (rng.below(2) == 0, rng.below(2) == 0);
    let answer = match rng.below(3) {
        0 => fibra::select! {
            send(tx, value) -> sent => sent.map_err(|SendError(value)| value),
            send(other, value) -> sent, if first => sent.map_err(|SendError(value)| value),
            recv(rx) -> got, if second => {
                got.into_iter().for_each(Tracked::received);
                Err(value)
            }
        },
        1 => fibra::select! {
            send(tx, value) -> sent, if first => sent.map_err(|SendError(value)| value),
            recv(rx) -> got => {
                got.into_iter().for_each(Tracked::received);
                Err(value)
            }
            recv(rx) -> got, if second => {
                got.into_iter().for_each(Tracked::received);
                Err(value)
            }
            default => Err(value),
        },
        _ => fibra::select_biased! {
            recv(rx) -> got, if first => {
                got.into_iter().for_each(Tracked::received);
                Err(value)
            }
            send(other, value) -> sent => sent.map_err(|SendError(value)| value),
            default(short(rng)) => Err(value),
        },
    };
    offer.answer(answer);
}

/// Waits until something can be done, and tries that.
fn watch(board: &Board, rng: &mut Rng) {
    let arms: Vec<(bool, &Ends)> = (0..1 + rng.below(4)).map(|_| (rng.below(2) == 0, board.some_end(rng))).collect();
    let mut select = Select::new();
    for (sends, (tx, rx)) in &arms {
        if *sends {
            select.send(tx)
        } else {
            select.recv(rx)
        };
    }
    let index = match rng.below(3) {
        0 => select.ready(),
        1 => select.try_ready().unwrap_or(0),
        _ => select.ready_timeout(short(rng)).unwrap_or(0),
    };
    let (sends, (tx, rx)) = arms[index];
    if sends {
        let (value, offer) = board.offer();
        offer.answer(tx.try_send(value).map_err(|error| error.into_inner()));
    } else {
        rx.try_recv().into_iter().for_each(Tracked::received);
    }
}

/// A select over a few ends, some of them several times.
fn select(board: &Board, rng: &mut Rng) {
    let arms: Vec<(bool, &Ends)> = (0..1 + rng.below(6)).map(|_| (rng.below(2) == 0, board.some_end(rng))).collect();
    let (value, offer) = board.offer();
    let mut select = if rng.below(2) == 0 { Select::new() } else { Select::new_biased() };
    for (sends, (tx, rx)) in &arms {
        if *sends {
            select.send(tx)
        } else {
            select.recv(rx)
        };
    }
    let chosen = match rng.below(3) {
        0 => select.select(),
        1 => match select.try_select() {
            Ok(chosen) => chosen,
            Err(_) => return offer.answer(Err(value)),
        },
        _ => match select.select_timeout(short(rng)) {
            Ok(chosen) => chosen,
            Err(_) => return offer.answer(Err(value)),
        },
    };
    let (sends, (tx, rx)) = arms[chosen.index()];
    if rng.below(8) == 0 {
        // Given up: a value goes back, a place too.
        assert!(catch_unwind(AssertUnwindSafe(|| drop(chosen))).is_err());
        offer.answer(Err(value));
    } else if sends {
        (0..rng.below(3)).for_each(|_| fibra::yield_now());
        offer.answer(chosen.send(tx, value).map_err(|error| error.0));
    } else {
        chosen.recv(rx).into_iter().for_each(Tracked::received);
        offer.answer(Err(value));
    }
}

/// One turn of async code: sometimes patient, sometimes not.
async fn turn_async(board: &Board, rng: &mut Rng) {
    let (tx, rx) = board.some_end(rng);
    let polls = rng.below(3);
    match rng.below(8) {
        0 | 1 => {
            let (value, offer) = board.offer_async();
            offer.answer(tx.send_async(value).await.map_err(|error| error.0));
        }
        2 => {
            // Given up: no result tells the value.
            let (value, offer) = board.offer_async();
            if let Some(answer) = give_up(tx.send_async(value), polls).await {
                offer.answer(answer.map_err(|error| error.0));
            }
        }
        3 => {
            if let Some(Ok(permit)) = give_up(tx.reserve_async(), polls).await {
                let (value, offer) = board.offer();
                offer.answer(permit.try_send(value).map_err(|SendError(value)| value));
            }
        }
        4 | 5 => rx.recv_async().await.into_iter().for_each(Tracked::received),
        6 => give_up(rx.recv_async(), polls).await.into_iter().flatten().for_each(Tracked::received),
        _ => turn(board, rng),
    }
}

/// Polls a future so often more, and then drops it.
async fn give_up<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// Before every turn: it may be the one that closes.
fn count_turn(board: &Board, rng: &mut Rng) {
    if Some(board.played.fetch_add(1, SeqCst)) == board.closing {
        let (tx, rx) = board.some_end(rng);
        match rng.below(3) {
            0 => tx.close(),
            1 => rx.close(),
            _ => tx.close_now(),
        };
    }
}

fn play(board: &Board, mut rng: Rng) {
    for _ in 0..TURNS {
        count_turn(board, &mut rng);
        turn(board, &mut rng);
    }
}

async fn play_async(board: Board, mut rng: Rng) {
    for _ in 0..TURNS {
        count_turn(&board, &mut rng);
        turn_async(&board, &mut rng).await;
    }
}

/// Gives and takes everywhere until all players have ended, so that none waits for ever; cancels one of them now and then.
fn one_round(handle: &Handle, rng: &mut Rng, closes: bool, cancels: bool) {
    let board = Board::new(rng, closes);
    let _entered = handle.enter();
    let (mut fibers, mut threads) = (Vec::new(), Vec::new());
    for side in PLAYERS {
        let (board, rng) = (board.clone(), rng.fork());
        match side {
            Side::Fiber => fibers.push(handle.spawn(move || play(&board, rng))),
            Side::Task => fibers.push(fibra::spawn_future(play_async(board, rng))),
            _ => threads.push(std::thread::spawn(move || play(&board, rng))),
        }
    }
    let mut victims = if cancels { 1 + rng.below(fibers.len()) } else { 0 };
    while fibers.iter().any(|fiber| !fiber.is_finished()) || threads.iter().any(|thread| !thread.is_finished()) {
        if victims > 0 && rng.below(4) == 0 {
            victims -= 1;
            fibers[rng.below(fibers.len())].cancel();
        }
        for (tx, rx) in board.ends.iter() {
            rx.recv_timeout(short(rng)).into_iter().for_each(Tracked::received);
            let (value, offer) = board.offer();
            offer.answer(tx.send_timeout(value, short(rng)).map_err(|error| error.into_inner()));
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for fiber in fibers {
        let ended = fiber.join();
        assert!(ended.is_ok() || cancels && ended.as_ref().is_err_and(|error| error.is_cancelled()), "{ended:?}");
    }
    for (tx, rx) in board.ends.iter() {
        tx.close();
        rx.iter().for_each(Tracked::received);
        assert!(rx.is_empty() && rx.try_recv().is_err());
    }
    let ledger = board.ledger.clone();
    drop(board);
    ledger.check_fates();
}

fn rounds(seconds_of_watchdog: u64, count: usize, closes: bool, cancels: bool) {
    let _watchdog = watchdog(seconds_of_watchdog);
    let mut rng = Rng::new();
    let long = if std::env::var_os("FIBRA_LONG").is_some() { 50 } else { 1 };
    let runtimes = [runtime(2), runtime(1)];
    for round in 0..turns(count) * long {
        one_round(&runtimes[round % 2].handle(), &mut rng, closes, cancels);
    }
    for runtime in runtimes {
        assert_eq!((runtime.metrics().live, runtime.metrics().parked), (0, 0));
    }
}

// S0-38, X-14
#[test]
fn stress_nothing_is_lost_or_doubled() {
    rounds(120, 60, false, false);
}

// C-25, S1-81: match, timeout and cancellation compete for one claim.
#[test]
fn stress_nothing_is_lost_under_cancellation() {
    rounds(120, 60, false, true);
}

// C-23, S4-67, S4-68: what was admitted is delivered, what was not comes back.
#[test]
fn stress_nothing_is_lost_under_close() {
    rounds(120, 60, true, false);
}

#[test]
fn stress_nothing_is_lost_under_close_and_cancellation() {
    rounds(120, 60, true, true);
}

// S0-41, S0-43, C-24: receivers and senders come and go; the side that is left hears that the other has gone, and what lay in the
// buffer is dropped with the channel.
#[test]
fn stress_ends_die_at_any_time() {
    let _watchdog = watchdog(120);
    let mut rng = Rng::new();
    let rt = runtime(2);
    let kinds: [fn() -> Ends; 4] = [rendezvous, || bounded(1), || bounded(3), unbounded];
    for round in 0..turns(800) {
        let (tx, rx) = kinds[round % 4]();
        let ledger = Ledger::new(1_000);
        let refused = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..3)
            .map(|index| {
                let (tx, books, refused, count) = (tx.clone(), ledger.clone(), refused.clone(), rng.below(20));
                let send = move || {
                    for _ in 0..count {
                        if let Err(error) = tx.send(books.value()) {
                            error.0.refused();
                            refused.fetch_add(1, SeqCst);
                        }
                    }
                };
                let (send, by_thread) = if index == 0 { (None, Some(send)) } else { (Some(send), None) };
                (send.map(|send| rt.spawn(send)), by_thread.map(std::thread::spawn))
            })
            .collect();
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let (rx, count) = (rx.clone(), rng.below(30));
                rt.spawn(move || rx.iter().take(count).for_each(Tracked::received))
            })
            .collect();
        drop((tx, rx));
        for (fiber, thread) in senders {
            fiber.into_iter().for_each(|fiber| fiber.join().unwrap());
            thread.into_iter().for_each(|thread| thread.join().unwrap());
        }
        receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
        ledger.check_drops();
        assert_eq!(ledger.count(REFUSED), refused.load(SeqCst));
    }
}
