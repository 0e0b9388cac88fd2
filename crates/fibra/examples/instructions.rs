//! A program for `.ci/instructions`: `instructions <what> <n>` does one thing n times on one worker, and nothing else, so that
//! callgrind can count what it takes.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let n: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| usage());
    let runtime = fibra::Runtime::current_thread();
    match what.as_str() {
        "yield" => runtime.run(move || yields(n)),
        "park_wake" => runtime.run(move || parks(n)),
        "spawn_join" => runtime.run(move || spawns(n)),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: instructions yield|park_wake|spawn_join <n>");
    std::process::exit(2)
}

/// Two fibers that yield to each other: n yields in all.
fn yields(n: u64) {
    let half = n / 2;
    let other = fibra::spawn_local(move || (0..half).for_each(|_| fibra::yield_now()));
    (0..half).for_each(|_| fibra::yield_now());
    other.join().expect("yielding does not fail");
}

/// Two fibers that wake each other and park: n parks in all.
fn parks(n: u64) {
    let table = Rc::new([const { Cell::new(None) }; 2]);
    let half = n / 2;
    let other = {
        let table = Rc::clone(&table);
        fibra::spawn_local(move || take_turns(&table, 1, half))
    };
    take_turns(&table, 0, half);
    // Whoever is last has nobody to wake it.
    wake(&table[1]);
    other.join().expect("parking does not fail");
}

fn take_turns(table: &[Cell<Option<Waker>>; 2], me: usize, turns: u64) {
    for _ in 0..turns {
        let mut parked = false;
        fibra::block_on(poll_fn(|context| {
            if parked {
                return Poll::Ready(());
            }
            parked = true;
            table[me].set(Some(context.waker().clone()));
            wake(&table[1 - me]);
            Poll::Pending
        }));
    }
    wake(&table[1 - me]);
}

fn wake(place: &Cell<Option<Waker>>) {
    if let Some(waker) = place.take() {
        waker.wake();
    }
}

/// n spawns of a small closure, each joined before the next.
fn spawns(n: u64) {
    for i in 0..n {
        let handle = fibra::spawn(move || i);
        assert_eq!(handle.join().expect("the fiber returns"), i);
    }
}
