//! A million fibers at once: spawned in a burst, all of them parked, woken together, joined.
//!
//! They wait for one fiber, the gate, to end: `JoinHandle::wait` may be called by any number of fibers at once. Each has a stack of
//! its own with a guard of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fibra::time::Instant;

use super::page::Page;
use super::{MILLION, Options, Outcome};
use crate::host;

/// The pause between two looks at the progress.
const LOOK: Duration = Duration::from_millis(1);
/// After so long without any progress the part goes on with the fibers that there are.
const PATIENCE: Duration = Duration::from_secs(3);
/// The gate is opened by cancelling it; it would not open by itself.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

pub(crate) fn run(page: &Page, options: &Options) -> Outcome {
    let stack_size = stack_size();
    let allowed = host::allow(options.fibers.unwrap_or(MILLION), stack_size);
    let fibers = allowed.fibers;
    match &allowed.because {
        Some(because) => page.row("fibers", format_args!("{}: {because}", host::count(fibers as u64))),
        None => page.row("fibers", format_args!("{}", host::count(fibers as u64))),
    }

    let gate = Arc::new(fibra::spawn(|| fibra::sleep(FOR_EVER)));
    let woken = Arc::new(AtomicUsize::new(0));
    fibra::yield_now();
    let mut handles = Vec::with_capacity(fibers);
    let empty = host::memory_in_use();

    let begin = Instant::now();
    for number in 0..fibers {
        let (gate, woken) = (gate.clone(), woken.clone());
        handles.push(fibra::spawn(move || {
            gate.wait();
            // Relaxed: a count that is only waited for.
            woken.fetch_add(1, Ordering::Relaxed);
            number
        }));
    }
    page.timed("spawned", begin.elapsed(), fibers, "");

    let begin = Instant::now();
    let parked = progress(fibers, || {
        // Beside them, the gate is parked.
        (fibra::Handle::current().metrics().parked as usize).saturating_sub(1)
    });
    page.timed("all parked", begin.elapsed(), parked, "  (each has touched its own stack)");
    if parked < fibers {
        page.row("", format_args!("{} wait for a stack: there are no more", host::count((fibers - parked) as u64)));
    }
    let used = host::memory_in_use().saturating_sub(empty);
    page.row(
        "memory",
        format_args!(
            "{}, {} bytes each, page tables included; {} of stack reserved each",
            host::bytes(used),
            host::count(used / parked.max(1) as u64),
            host::bytes(stack_size)
        ),
    );

    let begin = Instant::now();
    gate.cancel();
    // Relaxed: as above. Fibers that did not get a stack before get one now.
    let ran = progress(fibers, || woken.load(Ordering::Relaxed));
    page.timed("all woken", begin.elapsed(), ran, "");

    let begin = Instant::now();
    let (mut sum, mut joined) = (0_u64, 0_u64);
    for handle in handles {
        match handle.join() {
            Ok(number) => {
                sum += number as u64;
                joined += 1;
            }
            Err(error) if error.is_no_stack() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    page.timed("all joined", begin.elapsed(), fibers, "");
    let expected = (fibers as u64) * (fibers as u64 - 1) / 2;
    if joined == fibers as u64 && sum != expected {
        return Err(format!("the results add up to {sum} and not to {expected}"));
    }
    if joined < fibers as u64 {
        page.row("", format_args!("{} never got a stack", host::count(fibers as u64 - joined)));
    }
    Ok(())
}

/// Waits until `done` says `all` (or nothing has moved for [`PATIENCE`]), and says how far it came.
fn progress(all: usize, done: impl Fn() -> usize) -> usize {
    let mut last = (done(), Instant::now());
    loop {
        let now = done();
        if now >= all {
            return all;
        }
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            return now;
        }
        fibra::sleep(LOOK);
    }
}

/// The size that the runtime reserves for a stack, as far as this process can know: the variable, or the default.
fn stack_size() -> u64 {
    let asked = std::env::var("FIBRA_STACK_SIZE").ok().and_then(|text| text.trim().parse::<u64>().ok());
    asked.unwrap_or(256 << 10).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_ends_when_all_are_there() {
        let steps = std::cell::Cell::new(0);
        let done = || {
            steps.set(steps.get() + 1);
            steps.get()
        };
        assert_eq!(progress(5, done), 5);
    }
}
