//! Fibers, threads and futures send and receive in every way there is, at once, with time-outs and cancellation; a ledger of values says
//! whether one was lost or came twice, the watchdog whether a caller was left waiting. `FIBRA_REVIEW_SEED` gives other numbers.
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::watchdog;
use fibra::channel::{Receiver, RecvError, Select, Sender, TryRecvError, bounded};
use fibra::select;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A future that gives up after some polls.
struct GiveUp<F>(F, u64);

impl<F: Future + Unpin> Future for GiveUp<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.0).poll(cx) {
            return Poll::Ready(Some(output));
        }
        if self.1 == 0 {
            return Poll::Ready(None);
        }
        self.1 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

type Value = Box<u64>;

/// Sends in one of all the ways there are. True: it was sent. Never waits for ever, unless `patient`.
fn send_somehow(dice: &mut Dice, tx: &Sender<Value>, other: &Sender<Value>, value: Value, patient: bool) -> bool {
    let short = Duration::from_micros(dice.roll(80));
    match dice.roll(if patient { 13 } else { 8 }) {
        0 => tx.try_send(value).is_ok(),
        1 => tx.send_timeout(value, short).is_ok(),
        2 => {
            // Whether a future that gave up has sent is for the ledger to say: this one owns its value and drops it if not.
            let polls = dice.roll(3);
            let sent = fibra::block_on(GiveUp(tx.reserve_async(), polls));
            match sent {
                Some(Ok(permit)) => permit.try_send(value).is_ok(),
                _ => false,
            }
        }
        3 => match tx.reserve_timeout(short) {
            Ok(permit) => {
                if dice.roll(3) == 0 {
                    drop(permit);
                    false
                } else {
                    permit.try_send(value).is_ok()
                }
            }
            Err(_) => false,
        },
        4 => select! {
            send(tx, value) -> sent => sent.is_ok(),
            send(other, value) -> sent => sent.is_ok(),
            default(short) => false,
        },
        5 => {
            let mut select = Select::new();
            select.send(tx);
            select.send(other);
            match select.select_timeout(short) {
                Ok(operation) => {
                    let end = if operation.index() == 0 { tx } else { other };
                    operation.send(end, value).is_ok()
                }
                Err(_) => false,
            }
        }
        6 => select! { send(tx, value) -> sent => sent.is_ok(), default => false },
        7 => {
            let mut select = Select::new();
            select.send(tx);
            select.send(other);
            let _ = select.ready_timeout(short);
            tx.try_send(value).is_ok()
        }
        8 => tx.send(value).is_ok(),
        9 => fibra::block_on(tx.send_async(value)).is_ok(),
        10 => tx.reserve().is_ok_and(|permit| permit.try_send(value).is_ok()),
        11 => select! {
            send(tx, value) -> sent => sent.is_ok(),
            send(other, value) -> sent => sent.is_ok(),
        },
        _ => fibra::block_on(async {
            match tx.reserve_async().await {
                Ok(permit) => permit.try_send(value).is_ok(),
                Err(_) => false,
            }
        }),
    }
}

/// Receives in one of all the ways there are. `Err`: closed.
fn receive_somehow(dice: &mut Dice, rx: &Receiver<Value>, other: &Receiver<Value>) -> Result<Option<Value>, RecvError> {
    let short = Duration::from_micros(dice.roll(80));
    match dice.roll(9) {
        0 => Ok(rx.try_recv().ok()),
        1 => Ok(rx.recv_timeout(short).ok()),
        2 => {
            let polls = dice.roll(3);
            Ok(fibra::block_on(GiveUp(rx.recv_async(), polls)).and_then(Result::ok))
        }
        3 => select! {
            recv(rx) -> got => Ok(got.ok()),
            recv(other) -> got => Ok(got.ok()),
            default(short) => Ok(None),
        },
        4 => {
            let mut select = Select::new();
            select.recv(rx);
            select.recv(other);
            Ok(match select.select_timeout(short) {
                Ok(operation) => {
                    let end = if operation.index() == 0 { rx } else { other };
                    operation.recv(end).ok()
                }
                Err(_) => None,
            })
        }
        5 => {
            let mut select = Select::new();
            select.recv(rx);
            let _ = select.ready_timeout(short);
            Ok(rx.try_recv().ok())
        }
        6 => fibra::block_on(rx.recv_async()).map(Some),
        7 => rx.recv().map(Some),
        _ => select! {
            recv(rx) -> got => got.map(Some),
            closed(rx) => Ok(None),
        },
    }
}

/// Fibers and threads send and receive in all ways at once, with cancellation and time-outs; nothing is lost, nothing comes twice,
/// no caller is left waiting.
#[test]
fn everything_against_everything() {
    let _watchdog = watchdog(60);
    // Other numbers, for longer runs by hand.
    let seed: u64 = std::env::var("FIBRA_REVIEW_SEED").map_or(0, |seed| seed.parse().unwrap());
    for (round, capacity) in [0, 1, 2, 0, 5, 0, 1].into_iter().enumerate() {
        let sent: Arc<Mutex<Vec<u64>>> = Arc::default();
        let got: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (tx, rx) = bounded::<Value>(capacity);
        let (other_tx, other_rx) = bounded::<Value>(usize::from(round % 2 == 1));
        let sender = |seed: u64| {
            let (tx, other, sent) = (tx.clone(), other_tx.clone(), sent.clone());
            move || {
                let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                for number in 0..600 {
                    let value = seed << 32 | number;
                    let swap = dice.roll(4) == 0;
                    let (first, second) = if swap { (&other, &tx) } else { (&tx, &other) };
                    if send_somehow(&mut dice, first, second, Box::new(value), true) {
                        sent.lock().unwrap().push(value);
                    }
                }
            }
        };
        let receiver = |seed: u64| {
            let (rx, other, got) = (rx.clone(), other_rx.clone(), got.clone());
            move || {
                let mut dice = Dice(seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1);
                let (mut first, mut second) = (&rx, &other);
                loop {
                    match receive_somehow(&mut dice, first, second) {
                        Ok(Some(value)) => got.lock().unwrap().push(*value),
                        Ok(None) => {
                            let (one, two) = (rx.try_recv(), other.try_recv());
                            let over = one == Err(TryRecvError::Disconnected) && two == Err(TryRecvError::Disconnected);
                            got.lock().unwrap().extend(one.into_iter().chain(two).map(|value| *value));
                            if over {
                                break;
                            }
                        }
                        Err(RecvError) => match second.try_recv() {
                            Ok(value) => got.lock().unwrap().push(*value),
                            Err(TryRecvError::Disconnected) => break,
                            Err(TryRecvError::Empty) => {}
                        },
                    }
                    if dice.roll(3) == 0 {
                        mem::swap(&mut first, &mut second);
                    }
                }
            }
        };
        // One for each channel that never leaves it: the others may all wait at the other one.
        let drain = |rx: &Receiver<Value>| {
            let (rx, got) = (rx.clone(), got.clone());
            move || {
                for turn in 0_u32.. {
                    let received = if turn % 2 == 0 { rx.recv() } else { fibra::block_on(rx.recv_async()) };
                    match received {
                        Ok(value) => got.lock().unwrap().push(*value),
                        Err(RecvError) => break,
                    }
                }
            }
        };
        fibra::run(|| {
            let base = seed + round as u64 * 100;
            let mut senders: Vec<_> = (1..=3).map(|seed| fibra::spawn(sender(base + seed))).collect();
            let mut receivers: Vec<_> = (11..=13).map(|seed| fibra::spawn(receiver(base + seed))).collect();
            receivers.push(fibra::spawn(drain(&rx)));
            receivers.push(fibra::spawn(drain(&other_rx)));
            let threads = [std::thread::spawn(sender(base + 21)), std::thread::spawn(receiver(base + 31))];
            // These are cancelled in the middle: what they hold is dropped, what they sent is sent.
            let cancelled: Vec<_> = (41..=44)
                .map(|seed| {
                    let (tx, other) = (tx.clone(), other_tx.clone());
                    let (rx, other_rx) = (rx.clone(), other_rx.clone());
                    fibra::spawn(move || {
                        let mut dice = Dice(base + seed);
                        loop {
                            if seed % 2 == 0 {
                                // Not counted: waits, and never lets anything through.
                                let (full, _keep) = bounded::<u8>(0);
                                let moment = Duration::from_micros(dice.roll(50));
                                select! { send(full, 1) -> _ => {}, closed(rx) => break, default(moment) => {} }
                            } else {
                                let mut select = Select::new();
                                select.recv(&rx);
                                select.recv(&other_rx);
                                select.send(&tx);
                                select.send(&other);
                                let _ = select.ready();
                                fibra::yield_now();
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                fibra::sleep(Duration::from_micros(200));
            }
            cancelled.iter().for_each(|handle| handle.cancel());
            cancelled.into_iter().for_each(|handle| drop(handle.join()));
            senders.drain(..).for_each(|handle| handle.join().unwrap());
            let [sending, receiving] = threads;
            fibra::blocking(move || sending.join().unwrap());
            tx.close();
            other_tx.close();
            receivers.drain(..).for_each(|handle| handle.join().unwrap());
            fibra::blocking(move || receiving.join().unwrap());
        });
        let mut ledger: HashMap<u64, i32> = HashMap::new();
        sent.lock().unwrap().iter().for_each(|value| *ledger.entry(*value).or_default() += 1);
        got.lock().unwrap().iter().for_each(|value| *ledger.entry(*value).or_default() -= 1);
        let wrong: Vec<_> = ledger.into_iter().filter(|(_, count)| *count != 0).collect();
        assert!(wrong.is_empty(), "round {round}, capacity {capacity}: lost (1) or doubled (-1): {wrong:?}");
    }
}
