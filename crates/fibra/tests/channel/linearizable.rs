//! Linearizability: what fibers, threads and async tasks saw of one channel, under chance, must be what a sequential channel could have
//! shown them, each operation taking effect at one moment between its call and its return.
//!
//! Small histories, many of them, searched exhaustively (Wing and Gong's search, with a memory of where it has been). The one operation
//! that is not a single step is a send: a blocking one is admitted (buffered, or parked in the queue), and may return once its value lies
//! in the buffer or was taken, so that in a rendezvous, which has no buffer, a send and its receive overlap; and a dynamic select reserves
//! a place first and puts the value there afterwards. A try to send without a buffer needs a receiver that waits meanwhile.
//!
//! The search itself is tried on histories that no channel may show. `FIBRA_LONG=1` searches for a minute instead of a second.
#![allow(clippy::disallowed_types)] // The tests' own clock.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::channels;
use crate::channels::{Side, runtime, start};
use crate::support::watchdog;
use crate::tools::Rng;
use fibra::channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded, rendezvous,
    unbounded,
};

// ---- Histories ----------------------------------------------------------------------------------------------------------

/// An operation and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// A send that may have waited.
    Sent(u8),
    /// By a dynamic select, in two steps.
    SelectSent(u8),
    TrySent(u8),
    SendClosed,
    /// Full, or timed out.
    NotSent,
    /// A future that was dropped: its value may have been taken before. Settled when the whole history is known.
    GaveUpSending(u8),
    Got(u8),
    RecvClosed,
    /// Empty, timed out, or given up.
    NotGot,
    Closed,
}

/// With the moments of its call and of its return.
#[derive(Debug, Clone, Copy)]
struct Event {
    called: u64,
    returned: u64,
    done: Done,
}

// ---- The search ---------------------------------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
enum Act {
    Admit(u8),
    /// The value that was admitted lies in the buffer or was taken.
    Complete(u8),
    TrySend(u8),
    /// The first half of a dynamic select's send: a place.
    Reserve,
    /// The second half: the value into that place.
    Push(u8),
    SendClosed,
    NotSent,
    Recv(u8),
    RecvClosed,
    NotGot,
    Close,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    called: u64,
    returned: u64,
    act: Act,
    /// The step that must have been taken before.
    after: Option<usize>,
}

/// The sequential channel. There is never room while a player is parked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Model {
    buffer: Vec<u8>,
    parked: Vec<u8>,
    reserved: usize,
    closed: bool,
}

impl Model {
    fn has_room(&self, capacity: usize) -> bool {
        self.buffer.len() + self.reserved < capacity
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.parked.is_empty()
    }

    /// Receives this value, if it is the next one.
    fn recv(&mut self, value: u8, capacity: usize) -> bool {
        let queue = if self.buffer.is_empty() { &mut self.parked } else { &mut self.buffer };
        if queue.first() != Some(&value) {
            return false;
        }
        queue.remove(0);
        if self.has_room(capacity) && !self.parked.is_empty() {
            self.buffer.push(self.parked.remove(0));
        }
        true
    }

    /// What the channel is after this step, if it may happen now. `capacity` is `usize::MAX` for an unbounded channel.
    fn after(&self, act: Act, capacity: usize) -> Option<Self> {
        let mut next = self.clone();
        let (open, room) = (!self.closed, self.has_room(capacity));
        let legal = match act {
            Act::Admit(value) => {
                if room { &mut next.buffer } else { &mut next.parked }.push(value);
                open
            }
            Act::Complete(value) => !self.parked.contains(&value),
            Act::TrySend(value) if room => {
                next.buffer.push(value);
                open
            }
            // No room (there is no buffer, or it is reserved), but a receiver who has it at the same moment: `Search::partner`.
            Act::TrySend(_) => open && self.is_empty(),
            // Without a buffer the place is a receiver who waits.
            Act::Reserve => {
                next.reserved += 1;
                open && (room || capacity == 0)
            }
            Act::Push(value) => {
                next.reserved -= 1;
                next.buffer.push(value);
                true
            }
            Act::SendClosed => self.closed,
            Act::NotSent => open && !room,
            Act::Recv(value) => next.recv(value, capacity),
            Act::RecvClosed => self.closed && self.is_empty() && self.reserved == 0,
            // Closed, but a sender has a place: something may still come.
            Act::NotGot => (open || self.reserved > 0) && self.is_empty(),
            Act::Close => {
                next.closed = true;
                true
            }
        };
        legal.then_some(next)
    }
}

/// Changes nothing: taken as soon as it may be, it can only help.
fn is_silent(act: Act) -> bool {
    matches!(act, Act::Complete(_) | Act::SendClosed | Act::NotSent | Act::RecvClosed | Act::NotGot)
}

struct Search {
    steps: Vec<Step>,
    capacity: usize,
    seen: HashSet<(u64, Model)>,
}

impl Search {
    fn may_come_next(&self, done: u64) -> impl Iterator<Item = usize> + '_ {
        let open = move |index: &usize| done & (1 << index) == 0;
        let first_return = (0..self.steps.len()).filter(open).map(|index| self.steps[index].returned).min();
        (0..self.steps.len()).filter(open).filter(move |index| {
            let step = &self.steps[*index];
            step.after.is_none_or(|before| done & (1 << before) != 0) && Some(step.called) < first_return
        })
    }

    fn finds_order(&mut self, mut done: u64, model: &Model) -> bool {
        while let Some(index) = self.may_come_next(done).find(|index| {
            let act = self.steps[*index].act;
            is_silent(act) && model.after(act, self.capacity).is_some()
        }) {
            done |= 1 << index;
        }
        if done.count_ones() as usize == self.steps.len() {
            return true;
        }
        if !self.seen.insert((done, model.clone())) {
            return false;
        }
        let candidates: Vec<usize> =
            self.may_come_next(done).filter(|index| !is_silent(self.steps[*index].act)).collect();
        candidates.iter().any(|index| {
            let act = self.steps[*index].act;
            if let Act::TrySend(value) = act
                && self.may_be_left(*index, model)
            {
                let mut next = model.clone();
                next.buffer.push(value);
                if self.finds_order(done | (1 << index), &next) {
                    return true;
                }
            }
            let Some(next) = model.after(act, self.capacity) else { return false };
            match act {
                Act::TrySend(value) if !model.has_room(self.capacity) => {
                    let partner = self.partner(&candidates, value);
                    partner.is_some_and(|partner| self.finds_order(done | (1 << index) | (1 << partner), &next))
                }
                _ => self.finds_order(done | (1 << index), &next),
            }
        })
    }

    /// Without a buffer, a value that is tried may also be left for a future that waits meanwhile; another one may be quicker to get it.
    fn may_be_left(&self, index: usize, model: &Model) -> bool {
        let Step { called, returned, .. } = self.steps[index];
        let waits = |step: &Step| {
            matches!(step.act, Act::Recv(_) | Act::RecvClosed | Act::NotGot)
                && step.called < returned
                && called < step.returned
        };
        self.capacity == 0 && !model.closed && model.parked.is_empty() && self.steps.iter().any(waits)
    }

    /// Who may receive this value now.
    fn partner(&self, candidates: &[usize], value: u8) -> Option<usize> {
        let receives = |index: &usize| matches!(self.steps[*index].act, Act::Recv(got) if got == value);
        candidates.iter().copied().find(receives)
    }
}

/// Is there an order of the steps that a sequential channel of this capacity could have gone through?
fn is_linearizable(history: &[Event], capacity: usize) -> bool {
    let mut steps: Vec<Step> = Vec::new();
    for &Event { called, returned, done } in history {
        let mut add = |act, after| {
            steps.push(Step { called, returned, act, after });
            steps.len() - 1
        };
        match done {
            Done::Sent(value) => {
                let admitted = add(Act::Admit(value), None);
                add(Act::Complete(value), Some(admitted))
            }
            Done::SelectSent(value) => {
                let reserved = add(Act::Reserve, None);
                add(Act::Push(value), Some(reserved))
            }
            Done::TrySent(value) => add(Act::TrySend(value), None),
            Done::SendClosed => add(Act::SendClosed, None),
            Done::NotSent => add(Act::NotSent, None),
            Done::GaveUpSending(_) => unreachable!("settled"),
            Done::Got(value) => add(Act::Recv(value), None),
            Done::RecvClosed => add(Act::RecvClosed, None),
            Done::NotGot => add(Act::NotGot, None),
            Done::Closed => add(Act::Close, None),
        };
    }
    assert!(steps.len() <= 64, "too long a history: {} steps", steps.len());
    Search { steps, capacity, seen: HashSet::new() }.finds_order(0, &Model::default())
}

// ---- The search is tried ------------------------------------------------------------------------------------------------

/// One operation after the other.
fn in_turn(done: &[Done]) -> Vec<Event> {
    let moments = (0..).map(|index| 10 * index);
    moments.zip(done).map(|(called, done)| Event { called, returned: called + 1, done: *done }).collect()
}

/// All at once.
fn at_once(done: &[Done]) -> Vec<Event> {
    done.iter().map(|done| Event { called: 0, returned: 1, done: *done }).collect()
}

#[test]
fn the_search_accepts_what_a_channel_may_show() {
    use Done::*;
    assert!(is_linearizable(&[], 1));
    assert!(is_linearizable(&in_turn(&[Sent(1), NotSent, Got(1), NotGot, TrySent(2), Closed]), 1));
    assert!(is_linearizable(&in_turn(&[Sent(1), Sent(2), Closed, Got(1), Got(2), RecvClosed, SendClosed]), 3));
    assert!(is_linearizable(&in_turn(&(0..20).map(Sent).chain((0..20).map(Got)).collect::<Vec<_>>()), usize::MAX));
    assert!(is_linearizable(&at_once(&[Got(1), Sent(1)]), 0));
    assert!(is_linearizable(&at_once(&[Got(2), TrySent(2)]), 0));
    assert!(is_linearizable(&at_once(&[NotSent, NotGot]), 0));
    assert!(is_linearizable(&in_turn(&[SelectSent(1), Got(1)]), 1));
    // Past a place that is reserved, into the hands of one who waits.
    let reserved = Event { called: 1, returned: 99, done: SelectSent(1) };
    let handed = [(2, 3, NotSent), (4, 9, Got(2)), (5, 6, TrySent(2)), (11, 99, Got(1))];
    let handed = handed.map(|(called, returned, done)| Event { called, returned, done });
    assert!(is_linearizable(&[&[reserved][..], &handed].concat(), 1));
    assert!(is_linearizable(&at_once(&[Got(2), Got(1), Sent(1), Sent(2), Closed, RecvClosed]), 0));
    // Parked when the channel was closed, and delivered afterwards.
    let parked = [
        Event { called: 0, returned: 9, done: Sent(1) },
        Event { called: 1, returned: 2, done: Closed },
        Event { called: 3, returned: 4, done: Got(1) },
    ];
    assert!(is_linearizable(&parked, 0));
}

#[test]
fn the_search_rejects_what_no_channel_may_show() {
    use Done::*;
    let bad: &[(&str, usize, Vec<Event>)] = &[
        ("out of order", 3, in_turn(&[Sent(1), Sent(2), Got(2), Got(1)])),
        ("twice", 3, in_turn(&[Sent(1), Got(1), Got(1)])),
        ("from nowhere", 3, in_turn(&[Got(1)])),
        ("before it was sent", 3, in_turn(&[Got(1), Sent(1)])),
        ("lost", 3, in_turn(&[Sent(1), NotGot])),
        ("lost at the end", 3, in_turn(&[Sent(1), Closed, RecvClosed])),
        ("sent after the close", 3, in_turn(&[Closed, Sent(1)])),
        ("tried after the close", 3, in_turn(&[Closed, TrySent(1)])),
        ("still open after the close", 3, in_turn(&[Closed, NotGot])),
        ("closed without a close", 3, in_turn(&[SendClosed])),
        ("the end without a close", 3, in_turn(&[RecvClosed])),
        ("full though it is not", 3, in_turn(&[Sent(1), NotSent])),
        ("more than fits", 1, in_turn(&[Sent(1), Sent(2)])),
        ("more than fits, tried", 1, in_turn(&[Sent(1), TrySent(2)])),
        ("full though unbounded", usize::MAX, in_turn(&[NotSent])),
        ("a send that did not wait for its receiver", 0, in_turn(&[Sent(1), Got(1)])),
        ("a receive that did not wait for its sender", 0, in_turn(&[Got(1), Sent(1)])),
        ("tried though no receiver waited", 0, in_turn(&[TrySent(1), Got(1)])),
        ("no receiver took it", 0, at_once(&[Sent(1), Closed, RecvClosed])),
        ("selected after the close", 1, in_turn(&[Closed, SelectSent(1)])),
        ("more than fits, selected", 1, in_turn(&[Sent(1), SelectSent(2)])),
        ("selected, and lost", 1, in_turn(&[SelectSent(1), NotGot])),
        ("one for two", 0, at_once(&[Sent(1), Got(1), Got(1)])),
    ];
    for (what, capacity, history) in bad {
        assert!(!is_linearizable(history, *capacity), "{what}: {history:?}");
    }
}

// ---- Making histories ---------------------------------------------------------------------------------------------------

static CLOCK: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy)]
enum Op {
    Send(u8),
    TrySend(u8),
    /// Given up after so many microseconds, or polls.
    SendTimeout(u8, u64),
    SelectSend(u8),
    /// Whichever comes first, of the same channel.
    SelectEither(u8),
    Recv,
    TryRecv,
    RecvTimeout(u64),
    SelectRecv,
    Close,
}

impl Op {
    fn random(rng: &mut Rng, value: u8) -> Self {
        let patience = rng.below(4) as u64 * 20;
        match rng.below(24) {
            0..5 => Op::Send(value),
            5..8 => Op::TrySend(value),
            8..10 => Op::SendTimeout(value, patience),
            10 => Op::SelectSend(value),
            11..13 => Op::SelectEither(value),
            13..18 => Op::Recv,
            18..20 => Op::TryRecv,
            20..22 => Op::RecvTimeout(patience),
            22 => Op::SelectRecv,
            _ => Op::Close,
        }
    }

    fn run(self, tx: &Sender<u8>, rx: &Receiver<u8>) -> Done {
        match self {
            Op::Send(value) => tx.send(value).map_or(Done::SendClosed, |()| Done::Sent(value)),
            Op::TrySend(value) => match tx.try_send(value) {
                Ok(()) => Done::TrySent(value),
                Err(TrySendError::Full(_)) => Done::NotSent,
                Err(TrySendError::Disconnected(_)) => Done::SendClosed,
            },
            Op::SendTimeout(value, patience) => match tx.send_timeout(value, Duration::from_micros(patience)) {
                Ok(()) => Done::Sent(value),
                Err(SendTimeoutError::Timeout(_)) => Done::NotSent,
                Err(SendTimeoutError::Disconnected(_)) => Done::SendClosed,
            },
            Op::SelectSend(value) => {
                let mut select = Select::new();
                select.send(tx);
                let chosen = select.select();
                chosen.send(tx, value).map_or(Done::SendClosed, |()| Done::SelectSent(value))
            }
            Op::SelectEither(value) => {
                let mut select = Select::new();
                let (sending, _receiving) = (select.send(tx), select.recv(rx));
                let chosen = select.select();
                if chosen.index() == sending {
                    chosen.send(tx, value).map_or(Done::SendClosed, |()| Done::SelectSent(value))
                } else {
                    chosen.recv(rx).map_or(Done::RecvClosed, Done::Got)
                }
            }
            Op::Recv => rx.recv().map_or(Done::RecvClosed, Done::Got),
            Op::TryRecv => match rx.try_recv() {
                Ok(value) => Done::Got(value),
                Err(TryRecvError::Empty) => Done::NotGot,
                Err(TryRecvError::Disconnected) => Done::RecvClosed,
            },
            Op::RecvTimeout(patience) => match rx.recv_timeout(Duration::from_micros(patience)) {
                Ok(value) => Done::Got(value),
                Err(RecvTimeoutError::Timeout) => Done::NotGot,
                Err(RecvTimeoutError::Disconnected) => Done::RecvClosed,
            },
            Op::SelectRecv => {
                let mut select = Select::new();
                select.recv(rx);
                let chosen = select.select();
                chosen.recv(rx).map_or(Done::RecvClosed, Done::Got)
            }
            Op::Close => {
                tx.close();
                Done::Closed
            }
        }
    }

    async fn run_async(self, tx: &Sender<u8>, rx: &Receiver<u8>) -> Done {
        match self {
            Op::Send(value) => tx.send_async(value).await.map_or(Done::SendClosed, |()| Done::Sent(value)),
            Op::SendTimeout(value, patience) => match give_up(tx.send_async(value), patience / 20).await {
                Some(Ok(())) => Done::Sent(value),
                Some(Err(_)) => Done::SendClosed,
                None => Done::GaveUpSending(value),
            },
            Op::Recv => rx.recv_async().await.map_or(Done::RecvClosed, Done::Got),
            Op::RecvTimeout(patience) => match give_up(rx.recv_async(), patience / 20).await {
                Some(Ok(value)) => Done::Got(value),
                Some(Err(_)) => Done::RecvClosed,
                None => Done::NotGot,
            },
            // These would block the poll, which is allowed; it becomes a fiber.
            other => other.run(tx, rx),
        }
    }
}

/// Polls a future so often, and once more, and then drops it. (The first poll may be pending only because the budget of its worker is used
/// up, and then says nothing about the channel.)
async fn give_up<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls + 1;
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

fn now() -> u64 {
    CLOCK.fetch_add(1, SeqCst)
}

fn play(script: &[Op], tx: &Sender<u8>, rx: &Receiver<u8>) -> Vec<Event> {
    let one = |op: &Op| {
        let called = now();
        let done = op.run(tx, rx);
        Event { called, returned: now(), done }
    };
    script.iter().map(one).collect()
}

async fn play_async(script: &[Op], tx: &Sender<u8>, rx: &Receiver<u8>) -> Vec<Event> {
    let mut events = Vec::new();
    for op in script {
        let called = now();
        let done = op.run_async(tx, rx).await;
        events.push(Event { called, returned: now(), done });
    }
    events
}

/// The players have random scripts; this thread closes the channel at some time, which lets all of them go on, and takes what is left.
fn one_history(handle: &fibra::Handle, rng: &mut Rng, (tx, rx): (Sender<u8>, Receiver<u8>)) -> (Vec<Side>, Vec<Event>) {
    let (players, mut value) = (2 + rng.below(3), 0);
    let sides = [Side::Fiber, Side::Fiber, Side::Thread, Side::Task];
    let sides: Vec<Side> = (0..players).map(|_| sides[rng.below(sides.len())]).collect();
    let started: Vec<_> = sides
        .iter()
        .map(|side| {
            let script: Arc<[Op]> = (0..1 + rng.below(4))
                .map(|_| {
                    value += 1;
                    Op::random(rng, value)
                })
                .collect();
            let (tx, rx, copy) = (tx.clone(), rx.clone(), script.clone());
            let (async_tx, async_rx) = (tx.clone(), rx.clone());
            let blocking = move || play(&script, &tx, &rx);
            start(*side, handle, blocking, async move { play_async(&copy, &async_tx, &async_rx).await })
        })
        .collect();
    for _ in 0..rng.below(8) {
        std::thread::yield_now();
    }
    let mut events = play(&[Op::Close, Op::Recv], &tx, &rx);
    while !matches!(events.last(), Some(Event { done: Done::RecvClosed, .. })) {
        events.extend(play(&[Op::Recv], &tx, &rx));
    }
    events.extend(started.into_iter().flat_map(channels::Started::join));
    events.sort_by_key(|event| event.called);
    // Everything that went in has come out: so one that was given up was sent if a receiver has it, and otherwise nothing happened.
    let got: Vec<u8> =
        events.iter().filter_map(|event| if let Done::Got(value) = event.done { Some(value) } else { None }).collect();
    events.retain_mut(|event| {
        let Done::GaveUpSending(value) = event.done else { return true };
        event.done = Done::Sent(value);
        got.contains(&value)
    });
    (sides, events)
}

fn search(capacity: usize, channel: fn() -> (Sender<u8>, Receiver<u8>)) {
    let _watchdog = watchdog(120);
    let long = std::env::var_os("FIBRA_LONG").is_some();
    let until = Instant::now() + Duration::from_millis(if long { 60_000 } else { 1_000 });
    let runtimes = [runtime(1), runtime(2)];
    let mut rng = Rng::new();
    let mut histories = 0;
    while histories < 50 || Instant::now() < until {
        let handle = runtimes[histories % 2].handle();
        let (sides, history) = one_history(&handle, &mut rng, channel());
        let shown = || history.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>().join("\n");
        assert!(is_linearizable(&history, capacity), "history {histories}, players {sides:?}:\n{}", shown());
        histories += 1;
    }
    println!("{histories} histories");
}

// S0-44, S0-51, S1-80, S4-52..S4-58: a send and the receive of its value overlap, in all forms, also with timeouts, selects of
// both ends and a close.
#[test]
fn a_rendezvous_is_linearizable() {
    search(0, rendezvous);
}

// S4-52..S4-54, S4-56..S4-61, S4-67..S4-70, S4-74: FIFO through buffer and parked senders; what was admitted before the close is delivered.
#[test]
fn a_buffer_of_one_is_linearizable() {
    search(1, || bounded(1));
}

// S0-36, S1-79, S4-60, S4-62..S4-65
#[test]
fn a_buffer_of_three_is_linearizable() {
    search(3, || bounded(3));
}

#[test]
fn an_unbounded_channel_is_linearizable() {
    search(usize::MAX, unbounded);
}
