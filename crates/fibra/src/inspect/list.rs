//! Lists of fibers for reports about something that hangs: a shutdown, a run that waits, a stalled worker, a watchdog; and the dump.

use std::fmt::Write as _;
use std::time::Duration;

use super::collect::collect;
use super::deadlock;
use super::snapshot::{FiberState, Snapshot};
use crate::prim::say;
use crate::sched::monitoring::OnWorker;
use crate::sched::shared::RuntimeShared;
use crate::trace::{self, When};

/// Longest list that is printed.
const MOST: usize = 50;
/// The same of one worker's fibers.
const MOST_ON_WORKER: usize = 10;

impl Snapshot {
    /// One line per fiber, at most fifty.
    pub(super) fn list(&self) -> String {
        let mut text = String::new();
        for fiber in self.fibers.iter().take(MOST) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {}", self.fiber_line(fiber));
        }
        if self.fibers.len() > MOST {
            let _ = writeln!(text, "  and {} more", self.fibers.len() - MOST);
        }
        text
    }
}

/// One line per fiber of this runtime that has not ended, at most fifty.
pub(crate) fn fibers_of(shared: &RuntimeShared) -> String {
    collect(Some(shared)).0.list()
}

/// The started fibers of one worker: the one it runs, and the others, at most ten of them.
pub(crate) fn on_worker(shared: &RuntimeShared, worker: usize) -> OnWorker {
    let snapshot = collect(Some(shared)).0;
    let mut found = OnWorker::default();
    for fiber in snapshot.fibers.iter().filter(|fiber| fiber.worker == Some(worker)) {
        if fiber.state == FiberState::Running {
            found.running = format!("  {}\n", snapshot.fiber_line(fiber));
            found.site = fiber.spawned_at.map_or_else(String::new, ToString::to_string);
            continue;
        }
        found.others += 1;
        if found.others <= MOST_ON_WORKER {
            let _ = writeln!(found.list, "  {}", snapshot.fiber_line(fiber));
        }
    }
    if found.others > MOST_ON_WORKER {
        let _ = writeln!(found.list, "  and {} more", found.others - MOST_ON_WORKER);
    }
    found
}

/// A run has waited for a while: says for which fibers, on standard error.
pub(crate) fn say_whom_we_wait_for(shared: &RuntimeShared, waited: Duration) {
    let list = fibers_of(shared);
    say(format_args!(
        "fibra: run of \"{}\" has waited for {waited:?} for its fibers to end; these are still there:\n{}",
        shared.config.name,
        list.trim_end(),
    ));
}

/// The snapshot of a runtime on standard error, with its deadlocks.
pub(crate) fn print(shared: &RuntimeShared) {
    say_all(&format!("runtime \"{}\"", shared.config.name), Some(shared));
    trace::write_at(When::Signal);
}

/// The snapshot of the process, with its deadlocks.
pub(super) fn print_all() {
    say_all("all runtimes", None);
}

fn say_all(of: &str, only: Option<&RuntimeShared>) {
    let (snapshot, found) = collect(only);
    let mut text = format!("fibra: snapshot of {of} in process {}: {snapshot}", std::process::id());
    for deadlock in deadlock::of(&snapshot, &found) {
        let _ = writeln!(text, "{deadlock}");
    }
    say(format_args!("{}", text.trim_end()));
}
