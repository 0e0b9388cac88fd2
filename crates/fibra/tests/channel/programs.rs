//! Whole programs over channels and select: the prime sieve, the philosophers, pipelines that are closed while values are under way, and
//! selects in great numbers and odd shapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::channels;
use crate::channels::{Side, alone, runtime, start, until_parked};
use crate::support::watchdog;
use crate::tools::{Rng, turns};
use fibra::channel::{Receiver, Select, Sender, TrySelectError, bounded, rendezvous, unbounded};

/// Makes a channel.
type Kind<T> = fn() -> (Sender<T>, Receiver<T>);

// ---- Programs -----------------------------------------------------------------------------------------------------------

/// A fiber per prime, each passing on what its prime does not divide.
fn sieve(primes: usize, channel: Kind<u32>) -> Vec<u32> {
    let (tx, mut numbers) = channel();
    drop(fibra::spawn(move || (2..).try_for_each(|number| tx.send(number))));
    let mut found = Vec::new();
    while found.len() < primes {
        let prime = numbers.recv().unwrap();
        found.push(prime);
        let (tx, rest) = channel();
        let before = std::mem::replace(&mut numbers, rest);
        drop(fibra::spawn(move || {
            before.iter().filter(|number| number % prime != 0).try_for_each(|number| tx.send(number))
        }));
    }
    found
}

// S0-44, S0-43: the end of the last receiver ends every fiber of the chain, or `run` would not return.
#[test]
fn the_prime_sieve() {
    let _watchdog = watchdog(120);
    let expected: Vec<u32> = (2..).filter(|n| (2..*n).all(|d| n % d != 0)).take(100).collect();
    for workers in [1, 2] {
        for channel in [rendezvous, || bounded(1), || bounded(16)] {
            assert_eq!(runtime(workers).run(|| sieve(100, channel)), expected);
        }
    }
}

// Forks are values: who has received one holds it. The last philosopher takes them the other way round.
#[test]
fn dining_philosophers() {
    let _watchdog = watchdog(120);
    const SEATS: usize = 5;
    let meals = turns(2_000);
    let rt = runtime(2);
    let forks: Vec<(Sender<usize>, Receiver<usize>)> = (0..SEATS).map(|_| bounded(1)).collect();
    forks.iter().enumerate().for_each(|(fork, (tx, _))| tx.send(fork).unwrap());
    let holders: Arc<Vec<AtomicUsize>> = Arc::new((0..SEATS).map(|_| AtomicUsize::new(0)).collect());
    let eaten: Vec<usize> = rt.run(|| {
        let philosophers: Vec<_> = (0..SEATS)
            .map(|seat| {
                let (left, right) = (seat, (seat + 1) % SEATS);
                let (first, second) = (left.min(right), left.max(right));
                let (first, second, holders) = (forks[first].clone(), forks[second].clone(), holders.clone());
                let dine = move || {
                    for _ in 0..meals {
                        let taken = [first.1.recv().unwrap(), second.1.recv().unwrap()];
                        for fork in taken {
                            assert_eq!(holders[fork].fetch_add(1, SeqCst), 0, "two hold fork {fork}");
                        }
                        fibra::yield_now();
                        for fork in taken {
                            holders[fork].fetch_sub(1, SeqCst);
                        }
                        second.0.send(taken[1]).unwrap();
                        first.0.send(taken[0]).unwrap();
                    }
                    meals
                };
                fibra::spawn(dine)
            })
            .collect();
        philosophers.into_iter().map(|philosopher| philosopher.join().unwrap()).collect()
    });
    assert_eq!(eaten, [meals; SEATS]);
}

/// One stage: passes on until its input ends, then drops its output.
fn stage(side: Side, handle: &fibra::Handle, rx: Receiver<u64>, tx: Sender<u64>) -> channels::Started<()> {
    let (async_rx, async_tx) = (rx.clone(), tx.clone());
    let blocking = move || rx.iter().for_each(|value| tx.send(value + 1).unwrap());
    let future = async move {
        while let Ok(value) = async_rx.recv_async().await {
            async_tx.send_async(value + 1).await.unwrap();
        }
    };
    start(side, handle, blocking, future)
}

// X-13, S4-60, S4-67, C-23: six stages, a thousand runs: closed by the last sender, or by an onlooker, while values are under way,
// every value that was accepted comes out, in order.
#[test]
fn stress_six_stages_lose_nothing_at_the_end() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    let handle = rt.handle();
    let mut rng = Rng::new();
    let sides = [Side::Fiber, Side::Fiber, Side::Fiber, Side::Task, Side::Thread];
    for run in 0..turns(1_000) {
        let kinds: [Kind<u64>; 4] = [rendezvous, || bounded(1), || bounded(5), unbounded];
        let (first, mut last) = kinds[rng.below(4)]();
        let mut stages = Vec::new();
        for _ in 0..6 {
            let (tx, rx) = kinds[rng.below(4)]();
            // Threads are few: there are two cores.
            let side = if rng.below(4) == 0 { sides[rng.below(5)] } else { Side::Fiber };
            stages.push(stage(side, &handle, std::mem::replace(&mut last, rx), tx));
        }
        let count = rng.below(30) as u64;
        // Every third is closed by another one than its sender, at any time.
        let onlooker = (run % 3 == 0).then(|| {
            let first = first.clone();
            handle.spawn(move || {
                fibra::yield_now();
                first.close();
            })
        });
        let source = handle.spawn(move || {
            let accepted = (0..count).take_while(|value| first.send(*value).is_ok()).count() as u64;
            if accepted.is_multiple_of(2) {
                first.close();
            }
            accepted
        });
        let arrived: Vec<u64> = last.iter().collect();
        let accepted = source.join().unwrap();
        assert_eq!(arrived, (6..accepted + 6).collect::<Vec<_>>(), "run {run}");
        stages.into_iter().for_each(channels::Started::join);
        onlooker.into_iter().for_each(|onlooker| onlooker.join().unwrap());
    }
}

/// A select that receives from any of these.
fn from_any<'a, T: 'a>(channels: impl IntoIterator<Item = &'a Receiver<T>>) -> Select<'a> {
    let mut select = Select::new();
    for rx in channels {
        select.recv(rx);
    }
    select
}

/// A select that sends to any of these.
fn to_any<'a, T: 'a>(channels: impl IntoIterator<Item = &'a Sender<T>>) -> Select<'a> {
    let mut select = Select::new();
    for tx in channels {
        select.send(tx);
    }
    select
}

// ---- Many selects -------------------------------------------------------------------------------------------------------

/// Sends each of `values` once, on whatever channel takes it; says how many went where.
fn spread(channels: &[Sender<u64>], values: u64) -> Vec<u64> {
    let mut sent = vec![0; channels.len()];
    for value in 0..values {
        let chosen = to_any(channels).select();
        let index = chosen.index();
        chosen.send(&channels[index], value).unwrap();
        sent[index] += 1;
    }
    sent
}

/// Receives from whatever channel has something, until all of them have ended; says how many came whence.
fn gather(channels: &[Receiver<u64>]) -> Vec<u64> {
    let mut received = vec![0; channels.len()];
    let mut open: Vec<usize> = (0..channels.len()).collect();
    while !open.is_empty() {
        let chosen = from_any(open.iter().map(|index| &channels[*index])).select();
        let place = chosen.index();
        match chosen.recv(&channels[open[place]]) {
            Ok(_) => received[open[place]] += 1,
            Err(_) => drop(open.swap_remove(place)),
        }
    }
    received
}

/// That many at this channel, none at the others.
fn only(channel: usize, count: u64) -> Vec<u64> {
    (0..4).map(|other| if other == channel { count } else { 0 }).collect()
}

// S0-47, S0-50, S0-57, S0-58: plain senders and receivers on every channel, and selects over all of them, at once: each channel's books
// balance, and all of them hear of the end.
#[test]
fn stress_selects_among_plain_ends() {
    let _watchdog = watchdog(120);
    let values = turns(100_000) as u64 / 10;
    for workers in [1, 2] {
        let (txs, rxs): (Vec<_>, Vec<_>) = [rendezvous(), bounded(1), bounded(10), rendezvous()].into_iter().unzip();
        let (sent, received) = runtime(workers).run(move || {
            let mut senders = Vec::new();
            let mut receivers = Vec::new();
            for (index, (tx, rx)) in txs.iter().cloned().zip(rxs.iter().cloned()).enumerate() {
                senders.push(fibra::spawn(move || {
                    (0..values).for_each(|value| tx.send(value).unwrap());
                    only(index, values)
                }));
                receivers.push(fibra::spawn(move || only(index, rx.iter().count() as u64)));
            }
            for _ in 0..2 {
                let (txs, rxs) = (txs.clone(), rxs.clone());
                senders.push(fibra::spawn(move || spread(&txs, 3 * values)));
                receivers.push(fibra::spawn(move || gather(&rxs)));
            }
            drop((txs, rxs));
            let sum = |fibers: Vec<fibra::JoinHandle<Vec<u64>>>| {
                fibers.into_iter().map(|fiber| fiber.join().unwrap()).fold(vec![0; 4], |mut sum, part| {
                    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                    sum
                })
            };
            (sum(senders), sum(receivers))
        });
        assert_eq!(sent, received);
        assert_eq!(sent.iter().sum::<u64>(), 10 * values);
    }
}

// S0-49, S0-58: mixed arms, both directions, the same channel several times, in many fibers and a few threads, until they are told to
// stop: what was sent is what was received, channel by channel.
#[test]
fn stress_selects_among_selects() {
    let _watchdog = watchdog(120);
    let rounds = turns(100_000) / 12;
    let (players, channels) = (10, 6);
    let rt = runtime(2);
    let ends: Arc<Vec<(Sender<usize>, Receiver<usize>)>> =
        Arc::new((0..channels).map(|index| if index % 3 == 0 { bounded(2) } else { rendezvous() }).collect());
    let (quit, quitting) = bounded::<()>(0);
    let balance: Arc<Vec<[AtomicUsize; 2]>> = Arc::new((0..channels).map(|_| Default::default()).collect());
    let played = Arc::new(AtomicUsize::new(0));
    let mut rng = Rng::new();
    let started: Vec<_> = (0..players)
        .map(|player| {
            let (ends, quitting, balance, played) = (ends.clone(), quitting.clone(), balance.clone(), played.clone());
            let mut rng = rng.fork();
            let play = move || loop {
                let arms: Vec<(bool, usize)> =
                    (0..1 + rng.below(8)).map(|_| (rng.below(2) == 0, rng.below(channels))).collect();
                let mut select = Select::new();
                let stop = select.recv(&quitting);
                for (sends, channel) in &arms {
                    if *sends {
                        select.send(&ends[*channel].0)
                    } else {
                        select.recv(&ends[*channel].1)
                    };
                }
                let chosen = select.select();
                if chosen.index() == stop {
                    return chosen.recv(&quitting).unwrap_err();
                }
                let (sends, channel) = arms[chosen.index() - 1];
                if sends {
                    chosen.send(&ends[channel].0, channel).unwrap();
                } else {
                    assert_eq!(chosen.recv(&ends[channel].1), Ok(channel), "a value of another channel");
                }
                balance[channel][usize::from(sends)].fetch_add(1, SeqCst);
                played.fetch_add(1, SeqCst);
            };
            let side = if player == 0 { Side::Thread } else { Side::Fiber };
            start(side, &rt.handle(), play, async { unreachable!() })
        })
        .collect();
    // By chance all of them may wait for what no other offers: then one of them is helped.
    let (mut before, short) = (0, Duration::from_millis(1));
    while before < rounds * players {
        std::thread::sleep(short);
        let now = played.load(SeqCst);
        if std::mem::replace(&mut before, now) == now {
            for (channel, (tx, rx)) in ends.iter().enumerate() {
                if rx.recv_timeout(short).is_ok() {
                    balance[channel][0].fetch_add(1, SeqCst);
                }
                if tx.send_timeout(channel, short).is_ok() {
                    balance[channel][1].fetch_add(1, SeqCst);
                }
            }
        }
    }
    drop(quit);
    drop(started.into_iter().map(channels::Started::join).collect::<Vec<_>>());
    for (channel, [received, sent]) in balance.iter().enumerate() {
        let left = ends[channel].1.len();
        assert_eq!(sent.load(SeqCst), received.load(SeqCst) + left, "channel {channel}");
    }
}

// S0-48, S0-60, C-20, G-19: two kinds of players that can only meet each other, over channels named in opposite orders.
#[test]
fn stress_selects_cross() {
    let _watchdog = watchdog(120);
    let rounds = turns(20_000);
    for (workers, sides) in
        [(1, [Side::Fiber; 4]), (2, [Side::Fiber; 4]), (2, [Side::Fiber, Side::Thread, Side::Thread, Side::Fiber])]
    {
        let rt = runtime(workers);
        let ((a_tx, a_rx), (b_tx, b_rx)) = (rendezvous::<u32>(), rendezvous::<u32>());
        let started: Vec<_> = sides
            .into_iter()
            .enumerate()
            .map(|(player, side)| {
                let ends = (a_tx.clone(), a_rx.clone(), b_tx.clone(), b_rx.clone());
                let play = move || {
                    let (a_tx, a_rx, b_tx, b_rx) = ends;
                    let (tx, rx) = if player % 2 == 0 { (a_tx, b_rx) } else { (b_tx, a_rx) };
                    let (mut sent, mut received) = (0, 0);
                    for _ in 0..rounds {
                        let mut select = Select::new();
                        // The order of the arms, like that of the channels, differs between players.
                        let sending = if player < 2 {
                            let sending = select.send(&tx);
                            select.recv(&rx);
                            sending
                        } else {
                            select.recv(&rx);
                            select.send(&tx)
                        };
                        let chosen = select.select();
                        if chosen.index() == sending {
                            chosen.send(&tx, 7).unwrap();
                            sent += 1;
                        } else {
                            assert_eq!(chosen.recv(&rx), Ok(7));
                            received += 1;
                        }
                    }
                    (sent, received)
                };
                start(side, &rt.handle(), play, async { unreachable!() })
            })
            .collect();
        let totals: Vec<(usize, usize)> = started.into_iter().map(channels::Started::join).collect();
        assert_eq!(totals[0].0 + totals[2].0, totals[1].1 + totals[3].1, "a");
        assert_eq!(totals[1].0 + totals[3].0, totals[0].1 + totals[2].1, "b");
    }
}

// ---- Shapes -------------------------------------------------------------------------------------------------------------

// S0-59, S0-52, S0-55, S0-57: any number of arms; the one that fires is the one named, whether it was ready or came later; and the
// losers leave no trace.
#[test]
fn a_select_of_any_size() {
    let _watchdog = watchdog(120);
    for workers in [1, 2] {
        runtime(workers).run(|| {
            for arms in [1, 2, 7, 8, 9, 100, 1_000] {
                let ends: Vec<(Sender<usize>, Receiver<usize>)> = (0..arms).map(|_| rendezvous()).collect();
                let txs: Vec<_> = ends.iter().map(|(tx, _)| tx.clone()).collect();
                let rxs: Vec<_> = ends.iter().map(|(_, rx)| rx.clone()).collect();
                let mut rng = Rng::new();
                let order: Vec<usize> = (0..100).map(|_| rng.below(arms)).collect();
                let wanted = order.clone();
                let sender = fibra::spawn(move || {
                    for (turn, channel) in wanted.into_iter().enumerate() {
                        if turn % 3 == 0 {
                            fibra::yield_now();
                        }
                        txs[channel].send(channel).unwrap();
                    }
                });
                for channel in order {
                    let mut select = Select::new();
                    let indices: Vec<usize> = rxs.iter().map(|rx| select.recv(rx)).collect();
                    assert_eq!(indices, (0..arms).collect::<Vec<_>>());
                    let chosen = select.select();
                    assert_eq!(chosen.index(), channel);
                    assert_eq!(chosen.recv(&rxs[channel]), Ok(channel));
                }
                sender.join().unwrap();
                // Nothing is left in any queue: no fiber waits there any more.
                for (tx, rx) in &ends {
                    assert!(tx.try_send(0).is_err_and(|error| error.is_full()));
                    assert!(rx.try_recv().is_err_and(|error| error.is_empty()));
                }
            }
        });
    }
}

// S0-59: sends and receives mixed, all parked at once, and one fires.
#[test]
fn a_thousand_mixed_arms_park() {
    let _watchdog = watchdog(120);
    alone(|| {
        let ends: Vec<(Sender<usize>, Receiver<usize>)> = (0..1_000).map(|_| rendezvous()).collect();
        for peer in [0, 1, 499, 500, 998, 999] {
            let all = ends.clone();
            let selecting = fibra::spawn_local(move || {
                let mut select = Select::new();
                for (index, (tx, rx)) in all.iter().enumerate() {
                    if index.is_multiple_of(2) {
                        select.send(tx)
                    } else {
                        select.recv(rx)
                    };
                }
                let chosen = select.select();
                let index = chosen.index();
                let (tx, rx) = &all[index];
                if index.is_multiple_of(2) {
                    chosen.send(tx, index).unwrap()
                } else {
                    assert_eq!(chosen.recv(rx), Ok(index))
                };
                index
            });
            until_parked(1);
            let (tx, rx) = &ends[peer];
            if peer % 2 == 0 {
                assert_eq!(rx.recv(), Ok(peer));
            } else {
                tx.send(peer).unwrap();
            }
            assert_eq!(selecting.join().unwrap(), peer);
        }
    });
}

// S0-49: one channel in several arms, on both sides of the match.
#[test]
fn one_channel_in_several_arms() {
    let _watchdog = watchdog(60);
    for channel in [rendezvous::<u32>, || bounded(1)] {
        alone(move || {
            let (tx, rx) = channel();
            let receiving = fibra::spawn_local({
                let rx = rx.clone();
                move || {
                    let chosen = from_any([&rx; 5]).select();
                    assert!(chosen.index() < 5);
                    chosen.recv(&rx).unwrap()
                }
            });
            until_parked(1);
            let chosen = to_any([&tx; 5]).select();
            assert!(chosen.index() < 5);
            chosen.send(&tx, 42).unwrap();
            assert_eq!(receiving.join().unwrap(), 42);
            assert!(rx.is_empty() && rx.try_recv().is_err());
        });
    }
}

// S0-49, C-20: a select with both ends of a rendezvous does not meet itself, but another one of the same kind.
#[test]
fn both_ends_of_one_channel_in_one_select() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let both = |tx: &Sender<u32>, rx: &Receiver<u32>| {
            let mut select = Select::new();
            let sending = select.send(tx);
            select.recv(rx);
            let chosen = select.select();
            if chosen.index() == sending {
                chosen.send(tx, 7).unwrap();
                None
            } else {
                Some(chosen.recv(rx).unwrap())
            }
        };
        let mut select = Select::new();
        select.send(&tx);
        select.recv(&rx);
        assert_eq!(select.try_select().map(|chosen| chosen.index()), Err(TrySelectError));
        for _ in 0..100 {
            let (other_tx, other_rx) = (tx.clone(), rx.clone());
            let other = fibra::spawn_local(move || both(&other_tx, &other_rx));
            until_parked(1);
            let mut results = [both(&tx, &rx), other.join().unwrap()];
            results.sort_unstable();
            assert_eq!(results, [None, Some(7)]);
        }
    });
    // With a buffer, one end is always ready.
    let (tx, rx) = bounded::<u32>(1);
    for value in 0..10 {
        let mut select = Select::new_biased();
        let (sending, receiving) = (select.send(&tx), select.recv(&rx));
        let chosen = select.try_select().unwrap();
        if value % 2 == 0 {
            assert_eq!(chosen.index(), sending);
            chosen.send(&tx, value).unwrap();
        } else {
            assert_eq!(chosen.index(), receiving);
            assert_eq!(chosen.recv(&rx), Ok(value - 1));
        }
    }
}

// S0-45: the first ready arm, always.
#[test]
fn a_biased_select_takes_the_first_ready_arm() {
    let ends: Vec<(Sender<usize>, Receiver<usize>)> = (0..20).map(|_| bounded(1)).collect();
    let mut rng = Rng::new();
    for _ in 0..1_000 {
        let ready: Vec<usize> = (0..20).filter(|_| rng.below(5) == 0).collect();
        ready.iter().for_each(|index| ends[*index].0.send(*index).unwrap());
        let mut select = Select::new_biased();
        for (_, rx) in &ends {
            select.recv(rx);
        }
        let chosen = select.try_select();
        match ready.first() {
            None => assert!(chosen.is_err()),
            Some(first) => {
                let chosen = chosen.unwrap();
                assert_eq!(chosen.index(), *first);
                assert_eq!(chosen.recv(&ends[*first].1), Ok(*first));
            }
        }
        ends.iter().for_each(|(_, rx)| rx.try_iter().for_each(drop));
    }
}

/// How often each arm wins when the arms in `ready`, of so many, are ready.
fn wins(
    arms: usize,
    ready: &[usize],
    trials: usize,
    mut select_once: impl FnMut(&[Receiver<usize>]) -> usize,
) -> Vec<usize> {
    let ends: Vec<(Sender<usize>, Receiver<usize>)> = (0..arms).map(|_| bounded(1)).collect();
    let rxs: Vec<Receiver<usize>> = ends.iter().map(|(_, rx)| rx.clone()).collect();
    let mut wins = vec![0; arms];
    ready.iter().for_each(|index| ends[*index].0.send(*index).unwrap());
    for _ in 0..trials {
        let winner = select_once(&rxs);
        wins[winner] += 1;
        ends[winner].0.send(winner).unwrap();
    }
    wins
}

/// Within six standard deviations of an even share: a fair select fails once in hundreds of millions.
#[track_caller]
fn assert_even(wins: &[usize], ready: &[usize], trials: usize) {
    let share = 1.0 / ready.len() as f64;
    let (mean, deviation) = (trials as f64 * share, (trials as f64 * share * (1.0 - share)).sqrt());
    for (arm, count) in wins.iter().enumerate() {
        if ready.contains(&arm) {
            let off = (*count as f64 - mean).abs();
            assert!(
                off <= 6.0 * deviation,
                "arm {arm} of {ready:?} won {count} of {trials}, not about {mean}: {wins:?}"
            );
        } else {
            assert_eq!(*count, 0, "arm {arm} was not ready");
        }
    }
}

fn select_dynamically(rxs: &[Receiver<usize>]) -> usize {
    let chosen = from_any(rxs).select();
    let index = chosen.index();
    assert_eq!(chosen.recv(&rxs[index]), Ok(index));
    index
}

// S0-46: every ready arm has the same chance, be all ready or only some: the neighbour of arms that are not ready has no more.
#[test]
fn a_select_is_fair() {
    let _watchdog = watchdog(120);
    let trials = turns(20_000);
    let cases: [(usize, &[usize]); 6] =
        [(2, &[0, 1]), (8, &[0, 1, 2, 3, 4, 5, 6, 7]), (8, &[0, 1, 7]), (5, &[3, 4]), (12, &[0, 6, 7, 11]), (3, &[1])];
    for (arms, ready) in cases {
        assert_even(&wins(arms, ready, trials, select_dynamically), ready, trials);
    }
    let ready_once = |rxs: &[Receiver<usize>]| {
        let index = from_any(rxs).ready();
        assert_eq!(rxs[index].try_recv(), Ok(index));
        index
    };
    assert_even(&wins(8, &[0, 1, 7], trials, ready_once), &[0, 1, 7], trials);
}

// S0-46: the same on a fiber, whose chance is another one than a thread's.
#[test]
fn a_select_on_a_fiber_is_fair() {
    let _watchdog = watchdog(120);
    let trials = turns(20_000);
    alone(|| assert_even(&wins(8, &[0, 1, 7], trials, select_dynamically), &[0, 1, 7], trials));
}
