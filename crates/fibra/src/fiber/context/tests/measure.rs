//! Measures the cost of a switch, by the number of functions between the user's code and it. Prints; judges nothing, since machines differ:
//! `cargo test --release -p fibra --lib context::tests::measure -- --nocapture`.

use super::{Corosensei, Fiber, Inside, KIB, Own, Switch};
use crate::prim::policy;
use std::hint::black_box;

/// `DEPTH` calls that are not inlined, then the switch.
#[inline(never)]
fn one<S: Switch>(inside: &Inside<S>, word: usize) -> usize {
    black_box(inside.suspend(word))
}

#[inline(never)]
fn two<S: Switch>(inside: &Inside<S>, word: usize) -> usize {
    black_box(one(inside, word))
}

#[inline(never)]
fn three<S: Switch>(inside: &Inside<S>, word: usize) -> usize {
    black_box(two(inside, word))
}

/// Nanoseconds of the fastest of some runs, for one resume and suspend.
fn pair<S: Switch>(body: impl Fn(&Inside<S>, usize) -> usize + 'static) -> f64 {
    let pairs = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };
    let mut fiber = Fiber::<S>::new(64 * KIB, move |inside, mut word| {
        while word != 0 {
            word = body(inside, word);
        }
        0
    });
    let fastest = (0..9)
        .map(|_| {
            let start = policy::now();
            for _ in 0..pairs {
                black_box(fiber.resume(1));
            }
            policy::now() - start
        })
        .min()
        .unwrap();
    fiber.resume(0);
    fastest as f64 / pairs as f64
}

fn by_depth<S: Switch>() -> [f64; 4] {
    [
        pair::<S>(|inside, word| inside.suspend(word)),
        pair::<S>(|inside, word| one(inside, word)),
        pair::<S>(|inside, word| two(inside, word)),
        pair::<S>(|inside, word| three(inside, word)),
    ]
}

#[test]
fn resume_and_suspend_by_call_depth() {
    for (name, costs) in [("own", by_depth::<Own>()), ("corosensei", by_depth::<Corosensei>())] {
        println!("resume + suspend, {name}: {:.1?} ns at call depth 0 to 3", costs);
    }
}
