//! Workers that stand still: found by sysmon, and reported with who stands in the way, doing what, and who waits for it.
//!
//! A fiber that computes for long, or makes a system call that blocks, or waits for a lock of std that a neighbour holds across a
//! blocking call of fibra, holds up every started fiber of its worker; in the last case for ever. None of it can be helped from outside
//! (started fibers do not move), so it is said.
//!
//! * The sign is the worker's counter of switches: unchanged, while the worker is awake. Workers pay nothing for it.
//! * What the thread does is what the system says: `/proc/self/task/<thread>/syscall`, and the processor time it has used. A thread that
//!   wants a processor and gets none has no stall: it is counted only once it has used a good part of the time.
//! * Time is that of the watcher's own looks: a process that was stopped for an hour has not stood still for an hour.
//! * Which fiber runs there is found by a census of the frames, at the time of the report and not before (`observe::report`, which lies
//!   above and comes in as a function). A backtrace of it would have to be made by that thread itself, inside a signal handler, where
//!   nothing that makes one is allowed: see decision 30.
//!
//! Above: `sysmon.rs`, whose thread runs this. Below: `idle.rs` (who is awake), `shared.rs`.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use super::shared::Shared;
use crate::prim::atomic::Ordering;
use crate::prim::policy::{self, cpu_nanos};

/// How long a worker may stand still before it is reported, unless `FIBRA_STALL_MS` says otherwise.
pub(crate) const STALL_MILLIS: u64 = 1000;
/// Looks in that time: a stall is noticed so much later than it could be, at most.
const LOOKS: u32 = 4;
/// Between two looks, at least and at most.
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// After a report of a worker the next one of it waits for so many times what counts as a stall; a stall that lasts is reported then.
const REPORT_PAUSE: u64 = 10;

/// What a runtime wants reported, and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StallConfig {
    pub(crate) after: Duration,
    /// The started fibers of a worker of this runtime.
    pub(crate) fibers: fn(&Shared, usize) -> OnWorker,
}

/// The started fibers of a worker, as text: a line each.
#[derive(Debug, Default)]
pub(crate) struct OnWorker {
    /// The one that runs; empty if the worker is between two fibers.
    pub(crate) running: String,
    /// How many others there are.
    pub(crate) others: usize,
    /// Some of them.
    pub(crate) list: String,
}

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
    /// Not before.
    next_report: u64,
}

impl StallWatch {
    pub(crate) fn new(config: StallConfig, workers: usize) -> Self {
        let after = u64::try_from(config.after.as_nanos()).unwrap_or(u64::MAX);
        let period = (config.after / LOOKS).clamp(PERIOD.0, PERIOD.1);
        let looked_at = policy::now();
        Self { config, after, period, time: 0, looked_at, workers: vec![Seen::default(); workers] }
    }

    /// Between two looks.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Is it time for a look?
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.looked_at) >= self.period.as_nanos() as u64
    }

    /// It was away: nobody knows what happened meanwhile.
    pub(crate) fn resume(&mut self, now: u64) {
        self.looked_at = now;
        self.workers.iter_mut().for_each(|seen| seen.begin(seen.switches, self.time));
    }

    /// One look at every worker.
    pub(crate) fn look(&mut self, shared: &Shared, now: u64) -> Looked {
        let elapsed = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        // More than that, and the watcher itself was held up; then so were the workers, perhaps.
        self.time += elapsed.min(2 * self.period.as_nanos() as u64);
        let mut looked = Looked::default();
        for (worker, seen) in self.workers.iter_mut().enumerate() {
            let Some((thread, switches)) = running(shared, worker) else {
                let switches = shared.remotes[worker].stats.switches.get();
                looked.active |= switches != seen.switches;
                seen.begin(switches, self.time);
                continue;
            };
            looked.active = true;
            if switches != seen.switches {
                seen.begin(switches, self.time);
                continue;
            }
            let used = cpu_nanos(thread).unwrap_or(0);
            let used = used.saturating_sub(*seen.cpu.get_or_insert(used));
            let stood = self.time - seen.since;
            let must_report = !seen.reported && self.time >= seen.next_report;
            if stood < self.after || seen.counted && !must_report {
                continue;
            }
            let doing = Doing::of(thread);
            if doing == Doing::Computing && used < self.after / 2 {
                continue;
            }
            if must_report {
                let text = report(shared, worker, thread, &doing, Duration::from_nanos(stood), used, &self.config);
                // While the report was made, it may have gone on; then the fibers in it are not those concerned.
                if running(shared, worker) != Some((thread, switches)) {
                    continue;
                }
                crate::prim::say(format_args!("{}", text.trim_end()));
                seen.reported = true;
                seen.next_report = self.time.saturating_add(self.after.saturating_mul(REPORT_PAUSE));
            }
            // After it was said: who sees the number can read the report.
            looked.stalls += u64::from(!std::mem::replace(&mut seen.counted, true));
        }
        looked
    }
}

impl Seen {
    /// It has switched, or was asleep: from now on.
    fn begin(&mut self, switches: u64, now: u64) {
        *self = Self { switches, since: now, next_report: self.next_report, ..Self::default() };
    }
}

/// The thread and the switches of a worker that runs its loop and is awake.
fn running(shared: &Shared, worker: usize) -> Option<(u32, u64)> {
    let remote = &shared.remotes[worker];
    // Relaxed: a number.
    let thread = remote.thread.load(Ordering::Relaxed);
    (thread != 0 && shared.idle.is_awake(worker)).then(|| (thread, remote.stats.switches.get()))
}

/// What a thread does that does not switch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doing {
    /// On a processor, or waiting for one.
    Computing,
    /// Blocked in a system call, with its first argument.
    Call(i64, String),
    /// Blocked, and that is all the system says.
    Blocked,
}

impl Doing {
    fn of(thread: u32) -> Self {
        if let Ok(text) = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")) {
            return Self::from_syscall(&text);
        }
        // Not every kernel has that file.
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        Self::from_stat(&stat)
    }

    /// `running`, or the number and the arguments of the call, or -1 if it is blocked outside one (in a page fault).
    fn from_syscall(text: &str) -> Self {
        let mut words = text.split_whitespace();
        match words.next().map(str::parse) {
            Some(Ok(-1)) => Self::Blocked,
            Some(Ok(number)) => Self::Call(number, words.next().unwrap_or_default().to_owned()),
            _ => Self::Computing,
        }
    }

    /// The state follows the name, which is in brackets and may hold any others.
    fn from_stat(stat: &str) -> Self {
        match stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R')) {
            Some(false) => Self::Blocked,
            _ => Self::Computing,
        }
    }
}

/// A thread that has not got on for `time`, and has used so much of a processor meanwhile: does it just get none? Then it is slow, and not
/// stuck.
pub(super) fn is_slow(thread: u32, used: u64, time: u64) -> bool {
    used < time / 2 && Doing::of(thread) == Doing::Computing
}

/// The whole report.
fn report(
    shared: &Shared,
    worker: usize,
    thread: u32,
    doing: &Doing,
    stood: Duration,
    used: u64,
    config: &StallConfig,
) -> String {
    let fibers = (config.fibers)(shared, worker);
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    let mut text = format!(
        "fibra: worker {worker} of \"{}\" (thread {thread}, {}) has stood still for {stood:.1?}",
        shared.config.name,
        name.trim_end()
    );
    // Writing to a string does not fail.
    let _ = match fibers.running.as_str() {
        "" => writeln!(text, ", between two fibers."),
        running => writeln!(text, "; it runs\n{}", running.trim_end()),
    };
    let _ = match doing {
        Doing::Computing => {
            let used = Duration::from_nanos(used);
            writeln!(text, "It is spinning or computing ({used:.1?} of processor time). {}", advice(doing, &fibers))
        }
        Doing::Call(number, argument) => {
            let call = call_name(*number).map_or_else(|| format!("{number} "), str::to_owned);
            writeln!(text, "It is blocked in the system call {call}({argument}, ..). {}", advice(doing, &fibers))
        }
        Doing::Blocked => writeln!(text, "It is blocked in the kernel. {}", advice(doing, &fibers)),
    };
    let _ = match fibers.others {
        0 => writeln!(text, "No other fiber has started on this worker."),
        1 => writeln!(text, "Another fiber lives on this worker and cannot run meanwhile:\n{}", fibers.list.trim_end()),
        n => {
            writeln!(text, "{n} other fibers live on this worker and cannot run meanwhile:\n{}", fibers.list.trim_end())
        }
    };
    let unstarted = shared.remotes[worker].fresh.len();
    if shared.remotes.len() == 1 && unstarted > 0 {
        let _ = writeln!(text, "{unstarted} unstarted ones wait for it too: there is no other worker.");
    }
    text
}

/// What is the likely cause, and what to do.
fn advice(doing: &Doing, fibers: &OnWorker) -> &'static str {
    match doing {
        Doing::Computing => {
            "Fibers are not preempted: call fibra::yield_now() now and then, or move the work into fibra::blocking()."
        }
        Doing::Call(number, _) if call_name(*number) == Some("futex") && fibers.others > 0 => {
            "Most likely it waits for a lock of std or parking_lot that one of the fibers below holds across a \
             blocking call of fibra: that fiber can never give it back, since this worker does not get to run it. \
             Give the lock back before blocking, or use fibra::sync::Mutex. What has to wait for other threads \
             belongs in fibra::blocking()."
        }
        Doing::Call(number, _) if call_name(*number) == Some("futex") => {
            "It waits for another thread, or for a lock of std or parking_lot that another thread or a fiber holds. \
             Use fibra::sync and fibra::channel, or wait in fibra::blocking()."
        }
        Doing::Call(..) | Doing::Blocked => {
            "Such a call blocks the worker, not the fiber: make it in fibra::blocking(), or use what fibra has for it."
        }
    }
}

/// The calls that programs block in.
const CALLS: &[(i64, &str)] = &[
    (libc::SYS_futex, "futex"),
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
];

fn call_name(number: i64) -> Option<&'static str> {
    CALLS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::Doing;

    #[test]
    fn what_a_thread_does_is_read_from_proc() {
        let futex = format!("{} 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f4e\n", libc::SYS_futex);
        assert_eq!(Doing::from_syscall(&futex), Doing::Call(libc::SYS_futex, "0x7f00".to_owned()));
        assert_eq!(Doing::from_syscall("running\n"), Doing::Computing);
        assert_eq!(Doing::from_syscall("-1 0x7ffd 0x7f4e\n"), Doing::Blocked);
        assert_eq!(Doing::from_syscall(""), Doing::Computing, "a thread that has just ended");
        assert_eq!(Doing::from_stat("17 (a) b) S 1 2"), Doing::Blocked);
        assert_eq!(Doing::from_stat("17 (a) S) R 1 2"), Doing::Computing);
        assert_eq!(Doing::from_stat(""), Doing::Computing);
        assert_eq!(super::call_name(libc::SYS_wait4), Some("wait4"));
        assert_eq!(super::call_name(999), None);
    }
}
