//! Channels whose lock has a home (`prim::home_lock`): two fibers of one worker wait for each other until it has one, and go on while
//! others, from other workers and threads, send, receive and look.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fibra::Builder;
use fibra::channel::{Receiver, Sender, bounded, rendezvous};
use fibra::time::Instant;

use crate::support;

/// So many messages between two fibers of one worker that it is the home, also after it was lost.
const MESSAGES: u64 = 20_000;
/// Visits meanwhile, at least.
const VISITS: u64 = 300;

/// Two fibers of this worker hand each other numbers over `there` and `back`, until `MESSAGES` have been answered with the next one.
fn talk(there: (&Sender<u64>, &Receiver<u64>), back: (&Sender<u64>, &Receiver<u64>)) {
    fibra::scope(|s| {
        s.spawn_local(move || {
            for _ in 0..MESSAGES {
                // A visitor may have taken the number, and sends it again.
                let n = there.1.recv().unwrap();
                back.0.send(n + 1).unwrap();
            }
        });
        for n in 0..MESSAGES {
            there.0.send(n).unwrap();
            assert_eq!(back.1.recv().unwrap(), n + 1);
        }
    });
}

/// Takes a number and puts it back, and looks: what a visitor from elsewhere does that leaves the talk as it is. It never waits for the
/// channel, which then would have no home any more.
fn visit(tx: &Sender<u64>, rx: &Receiver<u64>, over: &AtomicBool, visits: &AtomicU64) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(n) = rx.try_recv() {
            while tx.try_send(n).is_err() {
                std::thread::yield_now();
            }
        }
        assert!(rx.len() <= rx.capacity().unwrap());
        _ = format!("{rx:?}");
        visits.fetch_add(1, Ordering::Relaxed);
        // Until the talk has its home again.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// No number is lost, doubled or seen out of turn when a thread or a fiber from elsewhere comes to a channel that has a home. (Some faults
/// of the lock are seen by its models alone: a thread is inside for a few nanoseconds.)
fn stress_visited(make: fn() -> (Sender<u64>, Receiver<u64>)) {
    let _watchdog = support::watchdog(240);
    support::workers(2).run(move || {
        let (there, back) = (make(), make());
        let (over, visits) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            fibra::scope(|s| {
                let (there, back, over, visits) = (&there, &back, &over, &visits);
                // A plain thread; and a fiber that may be on the other worker.
                threads.spawn(|| visit(&there.0, &there.1, over, visits));
                let other = s.spawn(|| fibra::blocking(|| visit(&back.0, &back.1, over, visits)));
                // (In a process with several threads, as this is, no lock has a home before the monitor has asked the kernel for fences,
                // which it does after a second if not before.)
                let begun = Instant::now();
                while visits.load(Ordering::Relaxed) < VISITS || begun.elapsed() < Duration::from_millis(1_500) {
                    talk((&there.0, &there.1), (&back.0, &back.1));
                }
                over.store(true, Ordering::Relaxed);
                other.join().unwrap();
            });
        });
    });
}

#[test]
fn stress_a_rendezvous_with_a_home_is_visited() {
    stress_visited(rendezvous);
}

#[test]
fn stress_a_buffer_with_a_home_is_visited() {
    stress_visited(|| bounded(1));
}

/// The home of a channel ends, or its worker is another: what was sent on one worker is received on another, again and again.
#[test]
fn stress_a_channel_goes_from_worker_to_worker() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 30 } else { 100 };
    let _watchdog = support::watchdog(240);
    support::workers(3).run(|| {
        // Until the monitor has asked for fences; see above.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1_500) {
            fibra::yield_now();
        }
        for round in 0..ROUNDS {
            let (tx, rx) = bounded(4);
            // Enough waits on one worker.
            let (tx, rx) = Builder::new()
                .spread()
                .spawn(move || {
                    fibra::scope(|s| {
                        let tx = &tx;
                        s.spawn_local(move || (0..1_000).for_each(|n| tx.send(n).unwrap()));
                        (0..1_000).for_each(|n| assert_eq!(rx.recv(), Ok(n)));
                    });
                    (tx, rx)
                })
                .unwrap()
                .join()
                .unwrap();
            // And then all over the runtime.
            let sum: u64 = fibra::scope(|s| {
                let senders: Vec<_> = (0..4)
                    .map(|_| {
                        let tx = tx.clone();
                        s.spawn(move || (0..500).for_each(|n| tx.send(n).unwrap()))
                    })
                    .collect();
                let receivers: Vec<_> = (0..4)
                    .map(|_| {
                        let rx = rx.clone();
                        s.spawn(move || rx.iter().sum::<u64>())
                    })
                    .collect();
                senders.into_iter().for_each(|fiber| fiber.join().unwrap());
                drop(tx);
                drop(rx);
                receivers.into_iter().map(|fiber| fiber.join().unwrap()).sum()
            });
            assert_eq!(sum, 4 * 499 * 500 / 2, "round {round}");
        }
    });
}
