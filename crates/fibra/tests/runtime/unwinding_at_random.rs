//! Fibers that unwind in every way at once (destructors that wait, catch, open scopes, join and are cancelled) neither end the process nor
//! leave anything behind: afterwards a time-out arrives as ever.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::support::within_a_minute;
use fibra::Runtime;

struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn micros(&mut self) -> Duration {
        Duration::from_micros(self.below(300))
    }

    fn another(&mut self) -> Self {
        Self(self.below(u64::MAX) | 1)
    }
}

/// Unwinds; in a destructor it goes on with `act`.
fn unwind(depth: u32, chance: Chance) {
    let mut chance = Some(chance);
    let _finally = Finally(move || {
        let chance = chance.take().expect("dropped once");
        let _ = catch_unwind(AssertUnwindSafe(|| act(depth, chance)));
    });
    resume_unwind(Box::new("on purpose"))
}

fn act(depth: u32, mut chance: Chance) {
    for _ in 0..4 {
        let (one, other) = (chance.another(), chance.another());
        let deeper = depth.saturating_sub(1);
        match chance.below(9) {
            0 => fibra::sleep(chance.micros()),
            1 => (0..700).for_each(|_| drop(fibra::cancel_reason())),
            2 if depth > 0 => {
                let _ = catch_unwind(AssertUnwindSafe(|| unwind(deeper, one)));
            }
            3 if depth > 0 => {
                let scope = || {
                    fibra::scope(|s| {
                        s.spawn(move || act(deeper, one));
                        act(deeper, other);
                    });
                };
                let _ = catch_unwind(AssertUnwindSafe(|| fibra::timeout(chance.micros(), scope).is_ok()));
            }
            4 if depth > 0 => {
                let child = fibra::spawn(move || act(deeper, one));
                fibra::sleep(chance.micros());
                child.cancel();
                let _ = child.join();
            }
            5 if depth > 0 => {
                let child = fibra::spawn(move || unwind(deeper, one));
                fibra::yield_now();
                child.cancel();
                let _ = child.join();
            }
            6 if depth > 0 => {
                let halves = || fibra::join(|| act(deeper, one), || unwind(deeper, other));
                let _ = catch_unwind(AssertUnwindSafe(halves));
            }
            _ => fibra::yield_now(),
        }
    }
}

#[test]
fn nothing_aborts_and_nothing_is_left() {
    within_a_minute(|| {
        for (workers, round) in (1..=2).flat_map(|workers| (0..8).map(move |round| (workers, round))) {
            Runtime::builder().workers(workers).build().unwrap().run(move || {
                let seed = move |index: u64| (round * 1000 + index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let start = move |index| fibra::spawn(move || act(3, Chance(seed(index))));
                let fibers: Vec<_> = (0..24).map(start).collect();
                for (index, fiber) in fibers.into_iter().enumerate() {
                    if index % 3 == 0 {
                        fiber.cancel();
                    }
                    let _ = fiber.join();
                }
                let late = || fibra::sleep(Duration::from_secs(3600));
                assert!(fibra::timeout(Duration::from_millis(1), late).is_err());
            });
        }
    });
}
