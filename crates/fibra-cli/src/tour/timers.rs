//! Many fibers asleep at once: none wakes early, and how late they are.

use std::time::Duration;

use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

const SLEEPERS: usize = 10_000;
/// The longest sleep; the others are spread evenly below it.
const LONGEST: Duration = Duration::from_millis(100);

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|number| {
            let length = LONGEST * (number as u32 + 1) / SLEEPERS as u32;
            fibra::spawn(move || {
                let deadline = Instant::now() + length;
                fibra::sleep_until(deadline);
                // Before the deadline is `None`.
                Instant::now().checked_duration_since(deadline)
            })
        })
        .collect();
    let mut late = Vec::with_capacity(SLEEPERS);
    for sleeper in sleepers {
        match sleeper.join().map_err(|error| error.to_string())? {
            Some(by) => late.push(by),
            None => return Err("a sleeper woke before its time".to_owned()),
        }
    }
    late.sort_unstable();
    let median = late[SLEEPERS / 2];
    let worst = late[SLEEPERS * 99 / 100];
    page.row("asleep", format_args!("{} fibers, for up to {}", host::count(SLEEPERS as u64), time(LONGEST)));
    page.row(
        "woken",
        format_args!("none early; half of them less than {} late, 99 % less than {}", time(median), time(worst)),
    );
    Ok(())
}
