//! Clocks, CPU time, noise, memory and pinning: everything that asks the operating system. Linux only, as the goals are.
//!
//! Invariant: nothing here knows a peer, and every function may be called on a small stack (a may coroutine has 32 KiB).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// The figures of one measurement, by name. The child prints them, the parent reads them back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(BTreeMap<String, f64>);

impl Sample {
    pub(crate) fn set(&mut self, key: &str, value: f64) {
        self.0.insert(key.to_owned(), value);
    }

    pub(crate) fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }

    pub(crate) fn print(&self) {
        let mut out = std::io::stdout().lock();
        for (key, value) in self.iter() {
            // A closed pipe cannot be reported from here; the parent reports a sample without figures.
            let _ = writeln!(out, "{key} {value}");
        }
        let _ = out.flush();
    }

    /// For workloads whose tasks are still asleep for an hour: no peer needs to end them.
    pub(crate) fn print_and_exit(&self) -> ! {
        self.print();
        // SAFETY: `_exit` ends the process without running anything of ours; stdout was flushed above.
        unsafe { libc::_exit(0) }
    }

    pub(crate) fn parse(text: &str) -> Sample {
        let mut sample = Sample::default();
        for line in text.lines() {
            if let Some((key, value)) = line.split_once(' ')
                && let Ok(value) = value.parse()
            {
                sample.set(key, value);
            }
        }
        sample
    }
}

/// A running measurement of wall time and of this process's CPU time.
pub(crate) struct Meter {
    start: Instant,
    cpu: f64,
}

/// What a `Meter` saw.
pub(crate) struct Span {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        Meter { cpu: cpu_seconds(), start: Instant::now() }
    }

    pub(crate) fn stop(&self) -> Span {
        let seconds = self.start.elapsed().as_secs_f64();
        Span { seconds, cpu_seconds: cpu_seconds() - self.cpu }
    }
}

impl Span {
    /// Wall and CPU time per operation.
    pub(crate) fn sample(&self, operations: u64) -> Sample {
        let per_operation = 1e9 / operations as f64;
        let mut sample = Sample::default();
        sample.set("ns", self.seconds * per_operation);
        sample.set("cpu", self.cpu_seconds * per_operation);
        sample
    }
}

/// Measured passes after a warm-up; the sample is their median by wall time.
pub(crate) struct Passes {
    meter: Option<Meter>,
    started: Instant,
    warm: bool,
    done: Vec<Sample>,
}

/// As many measured passes as this, unless they take too long.
const PASSES: usize = 3;
/// No new pass begins after this.
const PATIENCE: Duration = Duration::from_secs(4);

impl Passes {
    pub(crate) fn new() -> Passes {
        Passes { meter: None, started: Instant::now(), warm: false, done: Vec::with_capacity(PASSES) }
    }

    /// True while another pass is wanted; the pass is measured from here to `end`.
    pub(crate) fn begin(&mut self) -> bool {
        let enough = self.done.len() >= PASSES || (!self.done.is_empty() && self.started.elapsed() > PATIENCE);
        if enough {
            return false;
        }
        self.meter = Some(Meter::start());
        true
    }

    pub(crate) fn end(&mut self, operations: u64) {
        let span = self.meter.take().expect("end follows begin").stop();
        if self.warm {
            self.done.push(span.sample(operations));
        }
        self.warm = true;
    }

    pub(crate) fn sample(mut self) -> Sample {
        self.done.sort_by(|a, b| a.get("ns").partial_cmp(&b.get("ns")).expect("times are numbers"));
        self.done.swap_remove(self.done.len() / 2)
    }
}

/// CPU seconds, user and system, of this process so far.
fn cpu_seconds() -> f64 {
    clock_seconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The same of the calling thread.
pub(crate) fn thread_cpu_seconds() -> f64 {
    clock_seconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec that the call fills.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "Linux has CPU clocks of processes and threads");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The load of the rest of the machine while a child runs: the CPU, in cores, that neither the child nor this process used.
pub(crate) struct Noise {
    start: Instant,
    busy: f64,
    children: f64,
}

impl Noise {
    pub(crate) fn start() -> Noise {
        Noise { start: Instant::now(), busy: busy_seconds(), children: children_cpu_seconds() }
    }

    /// To be asked when the child has ended; `None` if it ran too shortly for the machine's counters, which tick in hundredths of a second.
    pub(crate) fn stop(&self) -> Option<f64> {
        const SHORTEST: f64 = 0.2;
        let seconds = self.start.elapsed().as_secs_f64();
        let others = busy_seconds() - self.busy - (children_cpu_seconds() - self.children);
        (seconds >= SHORTEST).then(|| (others / seconds).max(0.0))
    }
}

/// CPU seconds of the children that have ended.
fn children_cpu_seconds() -> f64 {
    // SAFETY: an rusage is plain numbers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage that the call fills.
    let status = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(status, 0, "getrusage of one's children cannot fail");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU seconds that all processes of the machine have used so far (to a hundredth: fine for noise, not for measuring).
fn busy_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    const IDLE_AND_IOWAIT: [usize; 2] = [3, 4];
    const FIELDS: usize = 8;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let ticks = first.split_whitespace().skip(1).take(FIELDS).enumerate();
    ticks
        .filter(|(field, _)| !IDLE_AND_IOWAIT.contains(field))
        .map(|(_, ticks)| ticks.parse::<f64>().unwrap_or(0.0) / TICKS_PER_SECOND)
        .sum()
}

/// Resident memory and page tables of this process, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) page_tables: u64,
}

impl Memory {
    pub(crate) fn now() -> Memory {
        let text = fs::read_to_string("/proc/self/status").expect("Linux has /proc/self/status");
        let bytes = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field exists");
            line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).expect("a number of kB") * 1024
        };
        Memory { resident: bytes("VmRSS:"), page_tables: bytes("VmPTE:") }
    }
}

/// The value below which `share` of the sorted values lie.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        len => sorted[((len - 1) as f64 * share) as usize],
    }
}

/// The same random numbers for every peer.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        Random(0x2545_F491_4F6C_DD1D)
    }

    /// The next number: a 64-bit linear congruence, of which the good upper half is used.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) * limit) >> 32
    }
}

/// Computation of a known length: calibrated once, so that a peer whose thread was interrupted still does all of its work.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    rounds_per_microsecond: f64,
}

impl Work {
    /// Finds the speed of this core: the best of several tries, since the others were disturbed.
    pub(crate) fn calibrate() -> Work {
        const TRIES: usize = 20;
        const ROUNDS: u64 = 100_000;
        let best = (0..TRIES)
            .map(|_| {
                let start = Instant::now();
                compute(ROUNDS);
                start.elapsed()
            })
            .min()
            .expect("there are tries");
        Work { rounds_per_microsecond: ROUNDS as f64 / (best.as_secs_f64() * 1e6) }
    }

    /// Computes for about this long, without a blocking call.
    pub(crate) fn take(self, length: Duration) {
        compute((length.as_secs_f64() * 1e6 * self.rounds_per_microsecond) as u64);
    }
}

fn compute(rounds: u64) {
    let mut value = rounds;
    for _ in 0..rounds {
        value = std::hint::black_box(value.wrapping_mul(31).rotate_left(7));
    }
}

/// Keeps this process, and every thread it will start, on the last core it may use.
pub(crate) fn pin_to_one_core() {
    // SAFETY: a cpu_set_t is a plain array of bits for which all zeros is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the pointer is to a live set of the stated size.
    let status = unsafe { libc::sched_getaffinity(0, size, &mut allowed) };
    assert_eq!(status, 0, "sched_getaffinity: {}", std::io::Error::last_os_error());
    // SAFETY: every index is below the number of bits in the set.
    let last = (0..libc::CPU_SETSIZE as usize).rev().find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) });
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index was found in a set of the same size.
    unsafe { libc::CPU_SET(last.expect("some core is allowed"), &mut one) };
    // SAFETY: the pointer is to a live set of the stated size.
    let status = unsafe { libc::sched_setaffinity(0, size, &one) };
    assert_eq!(status, 0, "sched_setaffinity: {}", std::io::Error::last_os_error());
}

/// A hanging child ends itself with SIGALRM; its parent reports that.
pub(crate) fn die_after_seconds(seconds: u32) {
    // SAFETY: no handler is installed, so the alarm ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Which OS thread runs the caller.
pub(crate) fn thread_id() -> u64 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() as u64 }
}
