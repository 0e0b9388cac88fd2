//! How many instructions fibra's cheapest operations take. `.ci/instructions` runs this under valgrind, once with N and once with
//! 2N operations: the difference divided by N is the cost of one, and what the runtime does to start and stop cancels out.
//!
//! ```text
//! instructions <operation> <N>
//! instructions                    lists the operations
//! ```
//!
//! One worker and no elastic second one: the count must not depend on who was faster. Counts see what times on a shared machine
//! cannot (a few instructions more on a hot path) and do not see what times do (mispredictions, cache misses): keep both.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Does its operation this many times, give or take a rounding to its batch.
type Operation = fn(usize);

const OPERATIONS: [(&str, Operation); 4] =
    [("yield", yield_now), ("park_wake", park_wake), ("spawn_join", spawn_join), ("spawn_await", spawn_await)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, number] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let operation = OPERATIONS.iter().find(|(known, _)| known == name);
    let (Some(&(_, operation)), Ok(number)) = (operation, number.parse::<usize>()) else {
        eprintln!("instructions: unknown operation {name}, or {number} is not a number");
        return ExitCode::from(2);
    };
    let runtime = fibra::Runtime::builder().workers(1).max_workers(1).build().expect("the runtime starts");
    runtime.run(move || operation(number));
    ExitCode::SUCCESS
}

/// Two fibers that yield to each other: one operation is one yield.
fn yield_now(number: usize) {
    let fibers = [(); 2].map(|()| {
        fibra::spawn(move || {
            for _ in 0..number / 2 {
                fibra::yield_now();
            }
        })
    });
    for fiber in fibers {
        fiber.join().expect("a yielding fiber ends");
    }
}

/// Whose turn it is of two fibers, and the waker of the one that waits.
#[derive(Default)]
struct Baton {
    turn: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
}

impl Baton {
    /// Parks until it is this fiber's turn.
    fn await_turn(&self, me: usize) {
        fibra::block_on(poll_fn(|context| {
            if self.turn.get() == me {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        }));
    }

    fn pass_to(&self, other: usize) {
        self.turn.set(other);
        // Taken out first: waking may run anything.
        let waker = self.waiting.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Two fibers of one worker that wake each other in turn and park: one operation is one park and one wake. It goes through
/// `block_on` because that is the park a program can reach without a channel.
fn park_wake(number: usize) {
    let baton = Rc::new(Baton::default());
    let fibers = [0, 1].map(|me| {
        let baton = Rc::clone(&baton);
        fibra::spawn_local(move || {
            for _ in 0..number / 2 {
                baton.await_turn(me);
                baton.pass_to(1 - me);
            }
        })
    });
    for fiber in fibers {
        fiber.join().expect("a parking fiber ends");
    }
}

/// Fibers in a batch: one operation is one spawn, its run and its join.
fn spawn_join(number: usize) {
    const BATCH: usize = 100;
    let mut fibers = Vec::with_capacity(BATCH);
    for _ in 0..number / BATCH {
        fibers.extend((0..BATCH).map(|_| fibra::spawn(|| ())));
        for fiber in fibers.drain(..) {
            fiber.join().expect("an empty fiber ends");
        }
    }
}

/// One fiber at a time: one operation is one spawn, its run and its join.
fn spawn_await(number: usize) {
    for _ in 0..number {
        fibra::spawn(|| ()).join().expect("an empty fiber ends");
    }
}
