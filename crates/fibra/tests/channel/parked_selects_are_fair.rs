//! One channel in several arms of a select that waits: each arm is served as often as the others, by any peer.
//!
//! The partner only tries, so it succeeds only while the select waits: every round is one of a parked select. Bounds are generous: with
//! equal chances, an arm of two that gets less than a quarter of 2,000 rounds is not seen once in the age of the world.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fibra::channel::{Receiver, Select, Sender, rendezvous};
use fibra::{Runtime, select, select_biased};

use crate::support::watchdog;
use crate::tools::turns;

/// Which arm won, of those on one channel.
#[derive(Default)]
struct Wins([AtomicUsize; 3]);

impl Wins {
    fn note(&self, arm: usize) {
        self.0[arm].fetch_add(1, SeqCst);
    }

    fn of(&self) -> [usize; 3] {
        [0, 1, 2].map(|arm| self.0[arm].load(SeqCst))
    }

    /// Each of the first `arms` has at least half of its share.
    #[track_caller]
    fn check(&self, arms: usize, what: &str) {
        let wins = self.of();
        let all: usize = wins.iter().sum();
        for (arm, won) in wins.iter().enumerate().take(arms) {
            assert!(won * arms * 2 > all, "{what}: arm {arm} of {wins:?}");
        }
    }
}

/// Receives `rounds` values, each through one of the arms.
type Receives = fn(&Receiver<u32>, &Wins, usize);
/// Sends `rounds` values, each through one of the arms.
type Sends = fn(&Sender<u32>, &Wins, usize);

const RECEIVES: &[(&str, usize, Receives)] = &[
    ("select! recv, recv", 2, |rx, wins, rounds| {
        for _ in 0..rounds {
            wins.note(select! { recv(rx) -> _ => 0, recv(rx) -> _ => 1 });
        }
    }),
    ("select! recv, other, recv, recv", 3, |rx, wins, rounds| {
        let (_tx, other) = rendezvous::<u32>();
        for _ in 0..rounds {
            wins.note(select! {
                recv(rx) -> _ => 0,
                recv(other) -> _ => unreachable!("nothing is sent"),
                recv(rx) -> _ => 1,
                recv(rx) -> _ => 2,
            });
        }
    }),
    ("Select::recv, recv, recv", 3, |rx, wins, rounds| {
        let mut set = Select::new();
        (0..3).for_each(|arm| assert_eq!(set.recv(rx), arm));
        for _ in 0..rounds {
            let operation = set.select();
            wins.note(operation.index());
            operation.recv(rx).unwrap();
        }
    }),
    ("Select of twelve", 3, |rx, wins, rounds| {
        let others: Vec<_> = (0..9).map(|_| rendezvous::<u32>()).collect();
        let mut set = Select::new();
        (0..3).for_each(|arm| assert_eq!(set.recv(rx), arm));
        for (_, other) in &others {
            set.recv(other);
        }
        for _ in 0..rounds {
            let operation = set.select();
            wins.note(operation.index());
            operation.recv(rx).unwrap();
        }
    }),
];

const SENDS: &[(&str, usize, Sends)] = &[
    ("select! send, send", 2, |tx, wins, rounds| {
        for _ in 0..rounds {
            wins.note(select! { send(tx, 1) -> _ => 0, send(tx, 2) -> _ => 1 });
        }
    }),
    ("Select::send, send, send", 3, |tx, wins, rounds| {
        let mut set = Select::new();
        (0..3).for_each(|arm| assert_eq!(set.send(tx), arm));
        for _ in 0..rounds {
            let operation = set.select();
            wins.note(operation.index());
            operation.send(tx, 1).unwrap();
        }
    }),
];

/// Sends so many, each when the select waits.
fn feed(tx: &Sender<u32>, rounds: usize) {
    for _ in 0..rounds {
        while tx.try_send(1).is_err() {
            fibra::yield_now();
        }
    }
}

/// Receives so many, each when the select waits.
fn drain(rx: &Receiver<u32>, rounds: usize) {
    for _ in 0..rounds {
        while rx.try_recv().is_err() {
            fibra::yield_now();
        }
    }
}

#[test]
fn fibers_serve_every_arm_of_a_parked_select() {
    let _watchdog = watchdog(120);
    let rounds = turns(10_000);
    // The chance of a runtime with one thread has a seed, which is always the same: what fails here fails again.
    for (what, arms, receive) in RECEIVES {
        Runtime::current_thread().unwrap().run(|| {
            let ((tx, rx), wins) = (rendezvous(), Wins::default());
            fibra::scope(|s| {
                s.spawn(|| receive(&rx, &wins, rounds));
                feed(&tx, rounds);
            });
            wins.check(*arms, what);
        });
    }
    for (what, arms, send) in SENDS {
        Runtime::current_thread().unwrap().run(|| {
            let ((tx, rx), wins) = (rendezvous(), Wins::default());
            fibra::scope(|s| {
                s.spawn(|| send(&tx, &wins, rounds));
                drain(&rx, rounds);
            });
            wins.check(*arms, what);
        });
    }
}

#[test]
fn threads_serve_every_arm_of_a_parked_select() {
    let _watchdog = watchdog(120);
    let rounds = turns(2_000);
    for (what, arms, receive) in RECEIVES {
        let ((tx, rx), wins) = (rendezvous(), Wins::default());
        std::thread::scope(|threads| {
            threads.spawn(|| receive(&rx, &wins, rounds));
            feed(&tx, rounds);
        });
        wins.check(*arms, what);
    }
    for (what, arms, send) in SENDS {
        let ((tx, rx), wins) = (rendezvous(), Wins::default());
        std::thread::scope(|threads| {
            threads.spawn(|| send(&tx, &wins, rounds));
            drain(&rx, rounds);
        });
        wins.check(*arms, what);
    }
}

// S0-45: a biased one keeps the order of its arms, also when it waits.
#[test]
fn a_biased_select_keeps_its_order_when_it_waits() {
    let _watchdog = watchdog(60);
    let rounds = turns(1_000);
    let biased: [Receives; 2] = [
        |rx, wins, rounds| {
            for _ in 0..rounds {
                wins.note(select_biased! { recv(rx) -> _ => 0, recv(rx) -> _ => 1 });
            }
        },
        |rx, wins, rounds| {
            let mut set = Select::new_biased();
            (0..3).for_each(|arm| assert_eq!(set.recv(rx), arm));
            for _ in 0..rounds {
                let operation = set.select();
                wins.note(operation.index());
                operation.recv(rx).unwrap();
            }
        },
    ];
    for receive in biased {
        Runtime::current_thread().unwrap().run(|| {
            let ((tx, rx), wins) = (rendezvous(), Wins::default());
            fibra::scope(|s| {
                s.spawn(|| receive(&rx, &wins, rounds));
                feed(&tx, rounds);
            });
            assert_eq!(wins.of(), [rounds, 0, 0]);
        });
    }
}
