//! How many spawns and joins, and how many yields, a second.

use fibra::time::Instant;

use super::page::{Page, rate, time};
use super::{Options, Outcome};

/// Fibers in all, and at once.
const SPAWNS: usize = 1_000_000;
const BATCH: usize = 10_000;
/// Yields in all, shared by so many fibers.
const YIELDS: usize = 2_000_000;
const YIELDERS: usize = 1_000;

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let begin = Instant::now();
    let mut sum = 0_usize;
    let mut batch = Vec::with_capacity(BATCH);
    for _ in 0..SPAWNS / BATCH {
        batch.extend((0..BATCH).map(|number| fibra::spawn(move || number)));
        for child in batch.drain(..) {
            sum += child.join().map_err(|error| error.to_string())?;
        }
    }
    let took = begin.elapsed();
    if sum != SPAWNS / BATCH * (BATCH * (BATCH - 1) / 2) {
        return Err(format!("the results add up to {sum}"));
    }
    let each = time(took / SPAWNS as u32);
    page.row("spawn + join", format_args!("{} a second, {each} each ({BATCH} at a time)", rate(SPAWNS, took)));

    let begin = Instant::now();
    let yielders: Vec<_> = (0..YIELDERS)
        .map(|_| {
            fibra::spawn(|| {
                for _ in 0..YIELDS / YIELDERS {
                    fibra::yield_now();
                }
            })
        })
        .collect();
    for yielder in yielders {
        yielder.join().map_err(|error| error.to_string())?;
    }
    let took = begin.elapsed();
    let each = time(took / YIELDS as u32);
    page.row("yield", format_args!("{} a second, {each} each ({YIELDERS} fibers in turn)", rate(YIELDS, took)));
    Ok(())
}
