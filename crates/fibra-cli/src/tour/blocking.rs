//! Calls that block an OS thread go to a pool, and the fibers of the worker go on meanwhile.

use std::time::Duration;

use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

/// Blocking calls at once, each so long.
const CALLS: u32 = 32;
const LENGTH: Duration = Duration::from_millis(50);

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let begin = Instant::now();
    let calls: Vec<_> = (0..CALLS).map(|_| fibra::spawn_blocking(|| std::thread::sleep(LENGTH))).collect();
    let mut turns = 0_u64;
    while !calls.iter().all(fibra::JoinHandle::is_finished) {
        fibra::sleep(Duration::from_micros(100));
        turns += 1;
    }
    for call in calls {
        call.join().map_err(|error| error.to_string())?;
    }
    let took = begin.elapsed();
    page.row("called", format_args!("{CALLS} functions that block their thread for {} each", time(LENGTH)));
    page.row(
        "done",
        format_args!("in {} on {} threads, while a fiber took {} turns", time(took), threads(), host::count(turns)),
    );
    Ok(())
}

fn threads() -> usize {
    fibra::Handle::current().metrics().blocking_peak
}
