//! Workers that stand still: found by sysmon, and reported with the fiber in the way, what it does and where, and the fibers that
//! wait for it.
//!
//! A fiber that computes for long, or makes a system call that blocks, or waits for a lock of std that a neighbour holds across a
//! blocking call of fibra, holds up every started fiber of its worker; in the last case for ever. None of it can be helped from outside
//! (started fibers do not move), so it is said.
//!
//! * The sign is the worker's counter of switches: unchanged, while the worker is awake. Workers pay nothing for it.
//! * What the thread does is what the system says: `/proc/self/task/<thread>/syscall`, and the processor time it has used (`doing.rs`). A
//!   thread that wants a processor and gets none is *descheduled*: no stall, and said once per runtime when it lasts.
//! * Time is that of the watcher's own looks: a process that was stopped for an hour has not stood still for an hour.
//! * Which fiber runs there is found by a census of the frames, at the time of the report and not before (`inspect::list`, which lies
//!   above and comes in as a function).
//! * Where it is, is a snapshot of its registers and its stack (`trace/`), which is unwound and named by a thread that is started for the
//!   report (`report.rs`), since sysmon has more to do. What to use instead is in `advice.rs`.
//! * A stall is reported once per site, and at most one report is made in the time that counts as a stall. All stalls are counted: one that
//!   is reported, once the report is out.
//!
//! Above: `sysmon.rs`, whose thread runs this. Below: `idle.rs` (which workers are awake), `shared.rs`, `claim.rs`.

mod advice;
mod doing;
mod frames;
mod lost;
mod report;
// Sanitizers hold signals back until the thread makes a call that they know, and their stacks are not the system's.
#[cfg(all(
    feature = "backtrace",
    not(any(fibra_asan, fibra_tsan)),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
))]
mod trace;
#[cfg(not(all(
    feature = "backtrace",
    not(any(fibra_asan, fibra_tsan)),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
#[path = "stall/no_trace.rs"]
mod trace;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use self::doing::Doing;
use self::lost::Lost;
use self::report::{Case, ReportDesk};
use super::errands;
use crate::fiber::context;
use crate::fiber::frame::ParkedFiber;
use crate::prim::atomic::Ordering;
use crate::prim::policy::{self, cpu_nanos};
use crate::sched::monitoring::StallConfig;
use crate::sched::shared::RuntimeShared;

/// Looks in that time: a stall is noticed so much later than it could be, at most.
const LOOKS: u32 = 4;
/// Between two looks, at least and at most.
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// A worker that gets no processor is spoken of after so many times what counts as a stall.
const DESCHEDULED: u64 = 10;
/// Between two reports of a runtime, at least; or what counts as a stall, if that is longer.
const REPORT_PAUSE: u64 = 100_000_000;

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Stalls that were not counted before.
    pub(crate) stalls: u64,
    /// Some worker is awake, or was since the last look.
    pub(crate) active: bool,
}

/// The watcher's memory.
#[derive(Debug)]
pub(crate) struct StallWatch {
    config: StallConfig,
    after: u64,
    period: Duration,
    /// Its own time, in nanoseconds: that of its looks.
    time: u64,
    looked_at: u64,
    workers: Vec<Seen>,
    /// What the workers lose in short calls.
    lost: Vec<Lost>,
    desk: Arc<ReportDesk>,
    /// Not before.
    next_report: u64,
    /// Stalls to be counted when the report that is under way is out: a program that sees the number can read the report.
    pending: u64,
    /// That a worker gets no processor was said.
    said_descheduled: bool,
}

/// What it remembers of a worker.
#[derive(Debug, Clone, Default)]
struct Seen {
    switches: u64,
    /// Since when it has not switched.
    since: u64,
    /// The processor time its thread had used at the first look that found it so.
    cpu: Option<u64>,
    counted: bool,
    reported: bool,
}

impl StallWatch {
    pub(crate) fn new(config: StallConfig, workers: usize) -> Self {
        let after = u64::try_from(config.after.as_nanos()).unwrap_or(u64::MAX);
        let period = (config.after / LOOKS).clamp(PERIOD.0, PERIOD.1);
        let looked_at = policy::now();
        let (workers, lost) = (vec![Seen::default(); workers], vec![Lost::default(); workers]);
        Self {
            config,
            after,
            period,
            time: 0,
            looked_at,
            workers,
            lost,
            desk: Arc::default(),
            next_report: 0,
            pending: 0,
            said_descheduled: false,
        }
    }

    /// Between two looks.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Is it time for a look?
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.looked_at) >= self.period.as_nanos() as u64
    }

    /// The monitor was away and does not know what happened meanwhile: the time of each worker starts anew.
    pub(crate) fn resume(&mut self, now: u64) {
        self.looked_at = now;
        self.workers.iter_mut().for_each(|seen| seen.begin(seen.switches, self.time));
    }

    /// One look at every worker.
    pub(crate) fn look(&mut self, shared: &RuntimeShared, now: u64) -> Looked {
        let elapsed = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        // More than that, and the watcher itself was held up; then so were the workers, perhaps.
        let elapsed = elapsed.min(2 * self.period.as_nanos() as u64);
        self.time += elapsed;
        let mut looked = Looked::default();
        let is_desk_free = self.desk.is_free();
        if is_desk_free {
            looked.stalls = std::mem::take(&mut self.pending);
        }
        let mut may_report = is_desk_free && self.time >= self.next_report;
        for (worker, seen) in self.workers.iter_mut().enumerate() {
            let Some((thread, switches)) = running(shared, worker) else {
                let switches = shared.remotes[worker].stats.switches.get();
                looked.active |= switches != seen.switches;
                seen.begin(switches, self.time);
                self.lost[worker].pass(elapsed, self.after);
                continue;
            };
            looked.active = true;
            self.lost[worker].look(shared, worker, thread, elapsed, &self.config);
            if switches != seen.switches {
                seen.begin(switches, self.time);
                continue;
            }
            let used = cpu_nanos(thread).unwrap_or(0);
            let used = used.saturating_sub(*seen.cpu.get_or_insert(used));
            let stood = self.time - seen.since;
            let must_report = !seen.reported && may_report;
            if stood < self.after || seen.counted && !must_report {
                continue;
            }
            let doing = Doing::of(thread);
            if doing == Doing::Computing && used < self.after / 2 {
                if stood >= self.after.saturating_mul(DESCHEDULED)
                    && !std::mem::replace(&mut self.said_descheduled, true)
                {
                    say_descheduled(shared, worker, thread, Duration::from_nanos(stood), Duration::from_nanos(used));
                }
                continue;
            }
            if must_report {
                let case = case(shared, worker, thread, doing, Duration::from_nanos(stood), used, &self.config);
                // While it was taken down, the worker may have gone on; then the fibers in it are not those concerned.
                if running(shared, worker) != Some((thread, switches)) {
                    continue;
                }
                self.desk.hand_in(case);
                may_report = false;
                seen.reported = true;
                self.next_report = self.time.saturating_add(self.after.max(REPORT_PAUSE));
                self.pending += u64::from(!std::mem::replace(&mut seen.counted, true));
                continue;
            }
            // Too soon after another report: it is reported later, if it lasts.
            looked.stalls += u64::from(!std::mem::replace(&mut seen.counted, true));
        }
        looked.active |= self.pending > 0;
        looked
    }

    /// The runtime ends: a report that is under way is waited for, though not for long. Returns the stalls that are not counted yet.
    pub(crate) fn finish(&mut self) -> u64 {
        self.desk.finish();
        std::mem::take(&mut self.pending)
    }
}

impl Seen {
    /// It has switched, or was asleep: from now on.
    fn begin(&mut self, switches: u64, now: u64) {
        *self = Self { switches, since: now, ..Self::default() };
    }
}

/// The thread and the switches of a worker that runs its loop and is awake.
fn running(shared: &RuntimeShared, worker: usize) -> Option<(u32, u64)> {
    let remote = &shared.remotes[worker];
    // Relaxed: a number.
    let thread = remote.thread.load(Ordering::Relaxed);
    (thread != 0 && shared.idle.is_awake(worker)).then(|| (thread, remote.stats.switches.get()))
}

/// In the child of a fork: no thread is being looked at there.
pub(crate) fn forget_in_child() {
    trace::forget();
}

/// A thread that has not got on for `time`, and has used so much of a processor meanwhile: does it just get none? Then it is slow, and not
/// stuck.
pub(crate) fn is_slow(thread: u32, used: u64, time: u64) -> bool {
    used < time / 2 && Doing::of(thread) == Doing::Computing
}

/// The functions on the stack of a parked fiber as text, innermost first, a line or two each. Slow: debug information is read.
pub(crate) fn stack_of_parked(fiber: ParkedFiber) -> Result<String, &'static str> {
    const GONE_ON: &str = "the fiber has gone on meanwhile";
    let (context, _) = fiber.suspended().ok_or(GONE_ON)?;
    let at = context::look(context).ok_or("the switch in use does not say where a fiber is")?;
    let snapshot = trace::suspended(at)?;
    if !fiber.is_parked() {
        return Err(GONE_ON);
    }
    let all = frames::without_wait(frames::without_entry(trace::name(&snapshot)));
    let mut text = String::new();
    frames::print(&mut text, &all);
    Ok(text)
}

/// All there is to say about a worker that stands still.
fn case(
    shared: &RuntimeShared,
    worker: usize,
    thread: u32,
    doing: Doing,
    stood: Duration,
    used: u64,
    config: &StallConfig,
) -> Case {
    let snapshot = match (config.backtrace, &doing) {
        (false, _) => Err(""),
        (true, Doing::Computing) => trace::computing(thread),
        (true, _) => trace::blocked(thread),
    };
    Case {
        runtime: shared.config.name.clone(),
        worker,
        thread,
        thread_name: thread_name(thread),
        stood,
        used: Duration::from_nanos(used),
        descriptor: doing.descriptor(),
        doing,
        fibers: (config.fibers)(shared, worker),
        unstarted: if shared.seats.made() == 1 { shared.remotes[worker].fresh.len() } else { 0 },
        snapshot,
    }
}

fn thread_name(thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// A worker wants a processor and gets none: that is the machine's doing, not the program's.
fn say_descheduled(shared: &RuntimeShared, worker: usize, thread: u32, stood: Duration, used: Duration) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    errands::say_soon(format!(
        "fibra: worker {worker} of \"{}\" (thread {thread}, {}) is descheduled: it was given {used:.1?} of \
         processor time in {stood:.1?}. The machine's load is {load}, with {processors} processors for this process. \
         This is said once.",
        shared.config.name,
        thread_name(thread),
    ));
}
