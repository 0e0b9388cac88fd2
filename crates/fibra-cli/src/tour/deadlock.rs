//! Two fibers lock two mutexes in opposite order: the report says which fiber waits for which, with names and lines, and one of them is
//! cancelled.

use std::sync::Arc;
use std::time::Duration;

use fibra::inspect;
use fibra::sync::{Barrier, Mutex};
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};

/// A fiber that holds the first mutex, and wants the second.
fn locks(name: &str, first: &Arc<Mutex<u32>>, second: &Arc<Mutex<u32>>, both: &Arc<Barrier>) -> fibra::JoinHandle<()> {
    let (first, second, both) = (first.clone(), second.clone(), both.clone());
    let transfer = move || {
        let mut from = first.lock();
        both.wait();
        let mut to = second.lock();
        *from -= 1;
        *to += 1;
    };
    fibra::Builder::new().name(name).spawn(transfer).expect("two more fibers")
}

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let (savings, wallet) = (Arc::new(Mutex::new(10)), Arc::new(Mutex::new(10)));
    let both = Arc::new(Barrier::new(2));
    let ada = locks("ada", &savings, &wallet, &both);
    let grace = locks("grace", &wallet, &savings, &both);
    let deadlock = loop {
        if let Some(deadlock) = inspect::deadlocks().pop() {
            break deadlock;
        }
        fibra::sleep(Duration::from_millis(1));
    };
    let text = deadlock.to_string();
    let mut lines = text.lines();
    page.row("found", format_args!("{}", lines.next().unwrap_or_default()));
    lines.for_each(|line| page.row("", format_args!("{}", line.trim())));
    let begin = Instant::now();
    ada.cancel();
    grace.join().map_err(|error| format!("grace was to go on, but: {error}"))?;
    page.row("resolved", format_args!("ada was cancelled and let go; grace went on after {}", time(begin.elapsed())));
    match ada.join() {
        Err(error) if error.is_cancelled() && deadlock.is_certain() => Ok(()),
        other => Err(format!("a certain deadlock, and ada cancelled, were expected, not {other:?}")),
    }
}
