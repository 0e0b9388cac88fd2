//! A bank: accounts are actors, transfers lock two of them, and tellers fail all the time. No cent is ever lost.
//!
//! ```text
//! cargo run --release -p fibra --example bank -- [accounts] [transfers] [seed]
//! ```
//!
//! What it shows: a supervisor that starts tellers anew under the same address, `actor::lock_both` (two locks in an order that all keep, so
//! that no two transfers wait for each other), a transfer that is done or not done whatever happens to the teller that does it (it panics,
//! fails, is killed, or its client gives up), and calls that always end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fibra::actor::{
    Actor, Addr, CallError, ChildOptions, Context, Failure, Lock, Reply, Supervisor, lock_both, run_until_quiescent,
};

/// Cents in each account at the beginning.
const START: i64 = 10_000;
/// Tellers that do transfers at the same time.
const TELLERS: usize = 8;

/// The books: they outlive tellers.
struct Books {
    accounts: Vec<Lock<i64>>,
    lives: AtomicU64,
}

/// A teller: an actor that does transfers, and has bad days.
struct Teller {
    books: Arc<Books>,
    life: u64,
}

/// What a transfer meets on its way.
#[derive(Clone, Copy)]
enum Trouble {
    None,
    Fails,
    Panics,
    Dawdles,
}

struct Transfer {
    from: usize,
    to: usize,
    cents: i64,
    trouble: Trouble,
    done: Reply<bool>,
}

impl Actor for Teller {
    type Message = Transfer;

    fn handle(&mut self, transfer: Transfer, _: &mut Context<Self>) -> Result<(), Failure> {
        let Transfer { from, to, cents, trouble, done } = transfer;
        let (mut from, mut to) = lock_both(&self.books.accounts[from], &self.books.accounts[to]);
        match trouble {
            Trouble::Fails => return Err(Failure::msg("the printer is broken")),
            Trouble::Panics => std::panic::resume_unwind(Box::new("the teller has fainted")),
            // A wait with both locks held: here it may be killed.
            Trouble::Dawdles => fibra::sleep(Duration::from_micros(200)),
            Trouble::None => {}
        }
        let is_covered = *from >= cents;
        if is_covered {
            // No wait between the two: it is done or not done.
            *from -= cents;
            *to += cents;
        }
        done.send(is_covered);
        Ok(())
    }

    fn stopping(&mut self, why: &fibra::actor::StopReason) {
        if !why.is_normal() {
            self.life += 1;
        }
    }
}

/// Numbers that are good enough for troubles.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[derive(Default)]
struct Tally {
    done: u64,
    refused: u64,
    failed: u64,
}

/// A client: asks tellers for transfers, kills one now and then, and gives up now and then.
fn client(tellers: &[Addr<Teller>], accounts: usize, transfers: usize, mut dice: Dice) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..transfers {
        let teller = &tellers[dice.below(tellers.len())];
        let from = dice.below(accounts);
        let to = (from + 1 + dice.below(accounts - 1)) % accounts;
        let cents = dice.below(500) as i64;
        let trouble = match dice.below(20) {
            0 => Trouble::Fails,
            1 => Trouble::Panics,
            2..6 => Trouble::Dawdles,
            _ => Trouble::None,
        };
        if dice.below(50) == 0 {
            teller.kill();
        }
        let ask = |done| Transfer { from, to, cents, trouble, done };
        let answer =
            if dice.below(10) == 0 { teller.call_timeout(ask, Duration::from_micros(50)) } else { teller.call(ask) };
        match answer {
            Ok(true) => tally.done += 1,
            Ok(false) => tally.refused += 1,
            Err(CallError::Cycle(names)) => unreachable!("clients are no actors: {names:?}"),
            Err(_) => tally.failed += 1,
        }
    }
    tally
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let accounts = arguments.next().unwrap_or(20).max(2);
    let transfers = arguments.next().unwrap_or(4_000);
    let seed = arguments.next().unwrap_or(1) as u64;
    let accounts_of_all = (0..accounts).map(|_| Lock::new(START)).collect();
    let books = Arc::new(Books { accounts: accounts_of_all, lives: AtomicU64::new(0) });

    let shared = books.clone();
    let outcome = run_until_quiescent(move || {
        let sup = Supervisor::one_for_one().max_restarts(u32::MAX, Duration::from_secs(1));
        let tellers: Vec<Addr<Teller>> = (0..TELLERS)
            .map(|number| {
                let books = shared.clone();
                sup.child_with(format!("teller {number}"), ChildOptions::default(), move || {
                    // Relaxed: a number for people.
                    let life = books.lives.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Failure>(Teller { books: books.clone(), life })
                })
            })
            .collect();
        let sup = sup.spawn();
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let tellers = tellers.clone();
                let dice = Dice(seed.wrapping_mul(1_000_003).wrapping_add(number));
                fibra::spawn(move || client(&tellers, accounts, transfers / 4, dice))
            })
            .collect();
        let mut all = Tally::default();
        for client in clients {
            let Tally { done, refused, failed } = client.join().expect("clients do not fail");
            (all.done, all.refused, all.failed) = (all.done + done, all.refused + refused, all.failed + failed);
        }
        sup.stop();
        sup.stopped();
        all
    });
    let Tally { done, refused, failed } = outcome.expect("locks in one order: no deadlock");
    let total: i64 = books.accounts.iter().map(|account| *account.lock()).sum();
    // Relaxed: all tellers have ended.
    let lives = books.lives.load(Ordering::Relaxed);
    println!("{done} transfers done, {refused} not covered, {failed} failed; {lives} lives of {TELLERS} tellers");
    println!("{total} cents in {accounts} accounts, {} at the beginning", START * accounts as i64);
    assert_eq!(total, START * accounts as i64, "money is conserved");
}
