//! Dining philosophers as actors: those who take the left fork first are caught in a deadlock, which is reported; those who keep an order
//! all eat.
//!
//! ```text
//! cargo run --release -p fibra --example philosophers -- [philosophers] [meals]
//! ```
//!
//! What it shows: `actor::Lock`, held while a handler waits; messages to oneself; `run_until_quiescent`, which returns when nothing is left
//! to do, and names those who wait for each other if that is because of a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fibra::actor::{Actor, Builder, Context, Deadlocked, Failure, Lock, lock_both, run_until_quiescent};

const NAMES: [&str; 5] = ["Aristotle", "Hypatia", "Kant", "Arendt", "Marx"];

struct Philosopher {
    left: Arc<Lock<u32>>,
    right: Arc<Lock<u32>>,
    is_careful: bool,
    /// How many have the left fork in hand.
    holding: Arc<AtomicUsize>,
    at_table: usize,
    eaten: Arc<AtomicUsize>,
    meals: u32,
}

/// Time to eat.
struct Hungry;

impl Actor for Philosopher {
    type Message = Hungry;

    fn handle(&mut self, Hungry: Hungry, ctx: &mut Context<Self>) -> Result<(), Failure> {
        let (mut left, mut right) = if self.is_careful {
            lock_both(&self.left, &self.right)
        } else {
            let left = self.left.lock();
            // All reach for the left fork at the same moment, as in the story.
            self.holding.fetch_add(1, Ordering::SeqCst);
            while self.holding.load(Ordering::SeqCst) < self.at_table {
                fibra::yield_now();
            }
            (left, self.right.lock())
        };
        *left += 1;
        *right += 1;
        fibra::yield_now();
        drop((left, right));
        self.eaten.fetch_add(1, Ordering::SeqCst);
        self.meals -= 1;
        if self.meals > 0 {
            // (To a mailbox that only it sends to: there is a place.)
            ctx.address().send(Hungry)?;
        }
        Ok(())
    }
}

/// One dinner: how many meals were eaten, or who waits for whom.
fn dine(count: usize, meals: u32, is_careful: bool) -> Result<usize, Deadlocked> {
    let eaten = Arc::new(AtomicUsize::new(0));
    run_until_quiescent(|| {
        let forks: Vec<_> = (0..count).map(|_| Arc::new(Lock::new(0))).collect();
        let holding = Arc::new(AtomicUsize::new(0));
        for number in 0..count {
            let philosopher = Philosopher {
                left: forks[number].clone(),
                right: forks[(number + 1) % count].clone(),
                is_careful,
                holding: holding.clone(),
                at_table: count,
                eaten: eaten.clone(),
                meals,
            };
            let name = NAMES.get(number).map_or_else(|| format!("philosopher {number}"), ToString::to_string);
            let address = Builder::new().name(name).spawn(philosopher).expect("the defaults are fine");
            address.send(Hungry).expect("it was just spawned");
        }
    })?;
    Ok(eaten.load(Ordering::SeqCst))
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let count = arguments.next().unwrap_or(5).max(2);
    let meals = arguments.next().unwrap_or(100) as u32;
    match dine(count, meals, false) {
        Ok(eaten) => println!("left fork first: {eaten} meals"),
        Err(stuck) => println!("left fork first: {stuck}"),
    }
    match dine(count, meals, true) {
        Ok(eaten) => println!("forks in order: {eaten} meals"),
        Err(stuck) => println!("forks in order: {stuck}"),
    }
}
