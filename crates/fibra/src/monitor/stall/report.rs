//! A report of a stalled worker: taken down by sysmon, named, written and printed by a thread of its own.
//!
//! Above: `stall.rs` decides that there is something to report and collects it: a [`Case`]. Below: `trace/` names the frames.
//!
//! The first naming reads the program's debug information, which takes from milliseconds to a second; standard error may be a pipe that
//! nothing reads; and the stalled thread may hold a lock that naming needs. Sysmon, which rescues fibers, must not wait for any of that.
//! So the desk starts a thread for a case and takes the next one when that has ended.
//!
//! *Once per site.* A site is where the running fiber was spawned, with the innermost function that the user wrote, or the system call. A
//! case from a site that was reported before is dropped without a word: it is counted, and the report has said so.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::advice::advice;
use super::doing::Doing;
use super::frames::{self, Frame};
use super::trace::{self, NoTrace, Snapshot};
use crate::monitor::errands;
use crate::prim::sync::{Condvar, Mutex};
use crate::prim::{policy, thread};
use crate::sched::monitoring::OnWorker;

/// Sites that are remembered; those beyond are not reported: a program with so many has other worries, and memory has an end.
const MOST_SITES: usize = 1000;
/// At the end of a runtime a report that is under way gets so much time.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// All there is to say about a stall.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) runtime: String,
    pub(super) worker: usize,
    pub(super) thread: u32,
    pub(super) thread_name: String,
    pub(super) stood: Duration,
    /// Processor time since it was first seen so.
    pub(super) used: Duration,
    pub(super) doing: Doing,
    pub(super) descriptor: Option<String>,
    pub(super) fibers: OnWorker,
    /// Unstarted fibers that no other worker can take.
    pub(super) unstarted: usize,
    /// Where it is; or why that is not known, empty if nothing is to be said.
    pub(super) snapshot: Result<Snapshot, NoTrace>,
}

impl Case {
    /// What makes two stalls the same for a reader.
    fn site(&self, frames: &[Frame]) -> String {
        let user = frames::users(frames);
        let function = user.map_or("", Frame::name);
        let file = user.and_then(|user| user.file.as_deref()).unwrap_or("");
        let call =
            if matches!(self.doing, Doing::Computing) { "computing".to_owned() } else { self.doing.call().to_owned() };
        format!("{} {function} {file} {call}", self.fibers.site)
    }

    /// The whole report.
    fn text(&self, all: Vec<Frame>) -> String {
        let Self { runtime, worker, thread, thread_name, stood, fibers, .. } = self;
        let mut text = format!(
            "fibra: worker {worker} of \"{runtime}\" (thread {thread}, {thread_name}) has stood still for {stood:.1?}"
        );
        let advice = advice(&self.doing, self.descriptor.as_deref(), &all, fibers.others > 0);
        // Writing to a string does not fail.
        let _ = match fibers.running.as_str() {
            "" => writeln!(text, ", between two fibers."),
            running => writeln!(text, "; it runs\n{}", running.trim_end()),
        };
        let _ = match &self.doing {
            Doing::Computing => {
                writeln!(text, "It is spinning or computing ({:.1?} of processor time). {advice}", self.used)
            }
            doing @ Doing::Call(..) => {
                let of = self.descriptor.as_ref().map_or_else(String::new, |file| format!(" on {file}"));
                writeln!(text, "It is blocked in the system call {}{of}. {advice}", doing.call_text())
            }
            Doing::Blocked => writeln!(text, "It is blocked in the kernel. {advice}"),
        };
        match &self.snapshot {
            Ok(_) => {
                text.push_str("It is here, innermost first:\n");
                frames::print(&mut text, &frames::without_entry(all));
            }
            Err("") => {}
            Err(why) => {
                let _ = writeln!(text, "There is no backtrace: {why}.");
            }
        }
        let list = fibers.list.trim_end();
        let _ = match fibers.others {
            0 => writeln!(text, "No other fiber has started on this worker."),
            1 => writeln!(text, "Another fiber lives on this worker and cannot run meanwhile:\n{list}"),
            n => writeln!(text, "{n} other fibers live on this worker and cannot run meanwhile:\n{list}"),
        };
        if self.unstarted > 0 {
            let _ = writeln!(text, "{} unstarted ones wait for it too: there is no other worker.", self.unstarted);
        }
        text.push_str("Further stalls at this place are counted (Metrics::stalls), not printed.");
        text
    }
}

/// Where cases are handed in.
#[derive(Debug, Default)]
pub(super) struct ReportDesk {
    state: Mutex<ReportedStalls>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct ReportedStalls {
    busy: bool,
    sites: HashSet<String>,
    /// Stalls whose sites are known to be in `sites`, the spawn site of the fiber, and the functions on its stack.
    seen: HashSet<(String, Vec<u64>)>,
}

impl ReportDesk {
    /// Is there nothing under way?
    pub(super) fn is_free(&self) -> bool {
        !self.state.lock().busy
    }

    /// Has the case named, and printed if it is news. The desk is free: there is one caller, and it has asked `is_free`.
    pub(super) fn hand_in(self: &Arc<Self>, case: Case) {
        self.state.lock().busy = true;
        let name = format!("{}-report", case.runtime);
        // Kept by both: what was to run on a thread is dropped if there is none.
        let case = Arc::new(Mutex::new(Some(case)));
        let (desk, copy) = (self.clone(), case.clone());
        let process = move || {
            let _free = Free(&desk);
            let case = copy.lock().take();
            case.iter().for_each(|case| desk.process(case));
        };
        if thread::start_quiet(name, process).is_err() {
            let _free = Free(self);
            let case = case.lock().take();
            case.into_iter().for_each(|case| self.process_unnamed(case));
        }
    }

    /// There is no thread for it, and sysmon must wait neither for the names of functions nor for standard error.
    fn process_unnamed(&self, mut case: Case) {
        case.snapshot = Err("there is no thread to find the names of its functions");
        let mut state = self.state.lock();
        if state.sites.len() < MOST_SITES && state.sites.insert(case.site(&[])) {
            drop(state);
            errands::say_soon(case.text(Vec::new()));
        }
    }

    fn process(&self, case: &Case) {
        let functions = case.snapshot.as_ref().map(trace::functions).unwrap_or_default();
        let cheap = (case.site(&[]), functions);
        if self.state.lock().seen.contains(&cheap) {
            return;
        }
        let frames = case.snapshot.as_ref().map(trace::name).unwrap_or_default();
        let site = case.site(&frames);
        let mut state = self.state.lock();
        let is_news = state.sites.len() < MOST_SITES && state.sites.insert(site);
        if state.seen.len() < MOST_SITES {
            state.seen.insert(cheap);
        }
        drop(state);
        if is_news {
            crate::prim::say(format_args!("{}", case.text(frames)));
        }
    }

    /// Waits a little for the report that is under way, at the end of a runtime.
    pub(super) fn finish(&self) {
        let until = policy::now().saturating_add(LAST_WAIT.as_nanos() as u64);
        let mut state = self.state.lock();
        while state.busy {
            let left = until.saturating_sub(policy::now());
            if left == 0 {
                return;
            }
            state = self.done.wait_timeout(state, Duration::from_nanos(left));
        }
    }
}

/// The desk is free again, also after a panic.
struct Free<'a>(&'a ReportDesk);

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy = false;
        self.0.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(site: &str, doing: Doing) -> Case {
        Case {
            runtime: "r".to_owned(),
            worker: 3,
            thread: 17,
            thread_name: "r-worker-3".to_owned(),
            stood: Duration::from_secs(1),
            used: Duration::from_millis(900),
            doing,
            descriptor: None,
            fibers: OnWorker { site: site.to_owned(), ..OnWorker::default() },
            unstarted: 0,
            snapshot: Err("it was not wanted"),
        }
    }

    #[test]
    fn a_site_is_the_fibers_spawn_the_users_function_and_what_it_does() {
        let at = |function: &str| vec![Frame { function: Some(function.to_owned()), ..Frame::default() }];
        let computing = case("a.rs:1:1", Doing::Computing);
        assert_eq!(computing.site(&at("app::f")), computing.site(&at("app::f")));
        assert_ne!(computing.site(&at("app::f")), computing.site(&at("app::g")));
        assert_ne!(computing.site(&[]), case("a.rs:2:1", Doing::Computing).site(&[]));
        let call = |number| case("a.rs:1:1", Doing::Call(number, String::new()));
        assert_ne!(call(libc::SYS_read).site(&[]), call(libc::SYS_futex).site(&[]));
    }

    #[test]
    fn the_text_says_why_there_is_no_backtrace() {
        let text = case("a.rs:1:1", Doing::Computing).text(Vec::new());
        assert!(text.contains("There is no backtrace: it was not wanted."), "{text}");
        assert!(text.contains("900.0ms of processor time") && text.contains("worker 3 of \"r\""), "{text}");
    }
}
