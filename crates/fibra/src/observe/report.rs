//! The list of fibers: who is there, what each does or waits for, where and since when. For shutdown, for a run that waits, for watchdogs.

use std::fmt::Write;
use std::io::Write as _;
use std::time::Duration;

use crate::fiber::frame::{self, Counted, flag};
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::sched::shared::Shared;
use crate::sched::stall::OnWorker;
use crate::wait::reason::WaitReason;
use crate::wait::word::State;

/// Longest list that is printed.
const MOST: usize = 50;
/// The same of one worker's fibers.
const MOST_ON_WORKER: usize = 10;

/// One line per fiber of this runtime that has not ended, at most fifty.
pub(crate) fn fibers_of(shared: &Shared) -> String {
    list(Some(std::ptr::from_ref(shared).cast()))
}

fn list(runtime: Option<*const ()>) -> String {
    let mut text = String::new();
    let mut count = 0;
    frame::census(|frame| {
        let state = frame.waiter.word.snapshot().state();
        // Relaxed: compared only.
        let owner = frame.runtime.load(Ordering::Relaxed).cast_const();
        if matches!(state, State::Init | State::Done | State::Cancelled)
            || runtime.is_some_and(|runtime| runtime != owner)
        {
            return;
        }
        // A half of a `join` that nobody took is its joiner's business, and will not become a fiber.
        if state == State::Runnable && frame.has(flag::HALF) && frame.top().is_none() {
            return;
        }
        count += 1;
        if count <= MOST {
            line(&mut text, frame, state);
        }
    });
    if count > MOST {
        let _ = writeln!(text, "  and {} more", count - MOST);
    }
    text
}

/// The started fibers of one worker: the one it runs, and the others, at most ten of them.
pub(crate) fn on_worker(shared: &Shared, worker: usize) -> OnWorker {
    let mut found = OnWorker::default();
    frame::census(|frame| {
        // Relaxed, both: compared only. Whoever has a stack and this home started there and stays.
        let owner = frame.runtime.load(Ordering::Relaxed).cast_const();
        let home = frame.home.load(Ordering::Relaxed);
        if owner != std::ptr::from_ref(shared).cast() || home as usize != worker || frame.top().is_none() {
            return;
        }
        match frame.waiter.word.snapshot().state() {
            State::Init | State::Done | State::Cancelled => {}
            State::Running => {
                line(&mut found.running, frame, State::Running);
                found.site = frame.site.get().map_or_else(String::new, |site| site.to_string());
            }
            state => {
                found.others += 1;
                if found.others <= MOST_ON_WORKER {
                    line(&mut found.list, frame, state);
                }
            }
        }
    });
    if found.others > MOST_ON_WORKER {
        let _ = writeln!(found.list, "  and {} more", found.others - MOST_ON_WORKER);
    }
    found
}

/// Within a census.
fn line(text: &mut String, frame: Counted<'_>, state: State) {
    // Relaxed: a picture of a moving thing.
    let _ = write!(text, "  fiber #{}", frame.id.load(Ordering::Relaxed));
    if let Some(name) = frame.name() {
        let _ = write!(text, " \"{name}\"");
    }
    let wait = frame.top().and_then(|top| top.wait_record());
    match (state, wait) {
        (State::Parked | State::Parking, Some((reason, object, site, since))) => {
            let since = Duration::from_nanos(policy::now().saturating_sub(since));
            match WaitReason::from_bits(reason) {
                Some(reason) => {
                    let _ = write!(text, ": {reason}");
                }
                None => {
                    let _ = write!(text, ": waiting");
                }
            }
            if object != 0 {
                let _ = write!(text, " ({object:#x})");
            }
            let _ = write!(text, " at {site} for {since:.1?}");
        }
        (State::Runnable, _) if frame.top().is_none() => {
            let _ = write!(text, ": not started");
        }
        (State::Runnable, _) => {
            let _ = write!(text, ": ready to run");
        }
        (State::Running, _) => {
            let _ = write!(text, ": running");
        }
        _ => {
            let _ = write!(text, ": parked");
        }
    }
    if let Some(status) = frame.top().map(|top| top.status()).filter(|status| !status.is_empty()) {
        let _ = write!(text, " [{status}]");
    }
    if let Some(site) = frame.site.get() {
        let _ = write!(text, ", spawned at {site}");
    }
    text.push('\n');
}

/// A run has waited for a while: say for whom.
pub(crate) fn say_whom_we_wait_for(shared: &Shared, waited: Duration) {
    let text = format!(
        "fibra: run of \"{}\" has waited for {waited:?} for its fibers to end; these are still there:\n{}",
        shared.config.name,
        fibers_of(shared)
    );
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Everything there is to say about every runtime of the process, to standard error: for watchdogs.
pub(crate) fn dump() {
    let text = format!("fibra: fibers of this process:\n{}", list(None));
    let _ = std::io::stderr().write_all(text.as_bytes());
}
