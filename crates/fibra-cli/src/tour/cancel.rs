//! A fiber that sleeps for an hour is cancelled: it unwinds from there, and its destructors run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};

/// A resource that has to be cleaned up when its owner goes.
struct TidyUp(Arc<AtomicBool>);

impl Drop for TidyUp {
    fn drop(&mut self) {
        // Relaxed: read after the join, which orders it.
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let tidy = Arc::new(AtomicBool::new(false));
    let mess = TidyUp(tidy.clone());
    let sleeper = fibra::spawn(move || {
        let _mess = mess;
        fibra::sleep(Duration::from_secs(3600));
    });
    // Lets the fiber fall asleep before it is cancelled.
    fibra::sleep(Duration::from_millis(1));
    let begin = Instant::now();
    sleeper.cancel();
    let error = match sleeper.join() {
        Err(error) if error.is_cancelled() => error,
        other => return Err(format!("expected a cancellation, got {other:?}")),
    };
    page.row("joined", format_args!("{error}, {} after it was asked", time(begin.elapsed())));
    // Relaxed: see above.
    if !tidy.load(Ordering::Relaxed) {
        return Err("a destructor did not run".to_owned());
    }
    page.row("", format_args!("it slept in the middle of an hour, unwound from there, and its destructors ran"));
    Ok(())
}
