//! A tree of fibers that borrow from one another's stacks; a time-out ends all of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fibra::sync::Semaphore;
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

/// Departments, and clerks in each.
const DEPARTMENTS: usize = 20;
const CLERKS: usize = 50;
/// How long the work may take.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long it would take.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Counts the fibers that leave.
struct Badge<'a>(&'a AtomicUsize);

impl Drop for Badge<'_> {
    fn drop(&mut self) {
        // Relaxed: read after the scope, which orders it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let numbers: Vec<u64> = (1..=1000).collect();
    let sum = fibra::scope(|s| {
        let halves: Vec<_> = numbers.chunks(500).map(|half| s.spawn(move || half.iter().sum::<u64>())).collect();
        halves.into_iter().map(|half| half.join().map_err(|error| error.to_string())).sum::<Result<u64, _>>()
    })?;
    if sum != 500_500 {
        return Err(format!("two halves of 500500 add up to {sum}"));
    }
    page.row("scope", format_args!("two fibers added up a vector on this stack: {}", host::count(sum)));

    let left = AtomicUsize::new(0);
    let desks = Semaphore::new(CLERKS / 2);
    let begin = Instant::now();
    let outcome = fibra::timeout(PATIENCE, || {
        fibra::scope(|house| {
            for _ in 0..DEPARTMENTS {
                house.spawn(|| {
                    let _badge = Badge(&left);
                    fibra::scope(|department| {
                        for _ in 0..CLERKS {
                            department.spawn(|| {
                                let _badge = Badge(&left);
                                // Half of them wait for a desk, the others work for ever.
                                let _desk = desks.acquire(1);
                                fibra::sleep(FOR_EVER);
                            });
                        }
                    });
                });
            }
        });
    });
    let took = begin.elapsed();
    let expected = DEPARTMENTS * (CLERKS + 1);
    // Relaxed: see above.
    let left = left.load(Ordering::Relaxed);
    if outcome.is_ok() || left != expected {
        return Err(format!("{outcome:?}, and {left} of {expected} fibers have gone"));
    }
    let late = time(took.saturating_sub(PATIENCE));
    page.row(
        "timeout",
        format_args!("{} fibers in a tree were given {}", host::count(expected as u64), time(PATIENCE)),
    );
    page.row("", format_args!("all had unwound {late} after that; every destructor ran, every desk is free"));
    if desks.available() != CLERKS / 2 {
        return Err(format!("{} of {} desks are free", desks.available(), CLERKS / 2));
    }
    Ok(())
}
