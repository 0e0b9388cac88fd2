//! Spawning and joining in batches on two workers always comes to an end: no wake of a joiner is lost.
//!
//! The test runs in a process without the system monitor (`FIBRA_SYSMON=0`), whose look once a millisecond would rescue work that a lost
//! wake has left lying: without it a lost wake is a hang, and the watchdog reports it. There is no limit on how long a repetition takes,
//! since a loaded machine may take any time. A repetition that takes more than two seconds is *told of*: the detector prints what the
//! runtime knows about its fibers while it lasts. The slowest one is printed with what explains it: the processor time that the process
//! got meanwhile and waited for, how often the kernel took a processor away from one of its threads, and how often its workers slept.
//!
//! One thing could still rescue a lost wake: a worker that sleeps with full caches wakes once, after a second, to give them back. Such a
//! repetition takes a second at least, and has waited for a processor for much less than that.
//!
//! `FIBRA_LONG=1` goes on for a hundred seconds, and prints the five slowest.
#![allow(clippy::disallowed_types)] // The detector must work when the runtime does not.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::{self, is_long};
use fibra::Runtime;

/// Fibers of a repetition: enough that some of them are old enough to be stolen while their spawner joins the first.
const BATCH: u64 = 500;
/// From here on a repetition is told of.
const SLOW: Duration = Duration::from_secs(2);

/// Watches one number that has to grow; tells of it, once for each value, when it has not for [`SLOW`].
struct Detector {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Detector {
    fn new(repetitions: Arc<AtomicU64>) -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let seen_over = over.clone();
        let watch = move || {
            let (over, changed) = &*seen_over;
            let (mut last, mut since, mut told) = (0, Instant::now(), 0);
            let mut guard = over.lock().unwrap();
            while !*guard {
                guard = changed.wait_timeout(guard, SLOW / 8).unwrap().0;
                let now = repetitions.load(SeqCst);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > SLOW && told != now + 1 {
                    told = now + 1;
                    let waited = since.elapsed();
                    let _ = writeln!(std::io::stderr(), "repetition {now} has taken {waited:?} so far; the runtime:");
                    fibra::__private::dump();
                }
            }
            told
        };
        let thread = std::thread::Builder::new().name("detector".to_owned()).spawn(watch).unwrap();
        Self { over, thread: Some(thread) }
    }

    /// The last repetition that was told of, plus one; 0 if there was none.
    fn finish(mut self) -> u64 {
        *self.over.0.lock().unwrap() = true;
        self.over.1.notify_all();
        self.thread.take().expect("finished once").join().unwrap()
    }
}

/// What a repetition took.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall: Duration,
    /// Of all threads of the process.
    cpu: Duration,
    /// What its threads, taken together, waited for a processor while they wanted to run; zero where the kernel does not tell.
    waited: Duration,
    /// Times the kernel took a processor away from a thread of the process that wanted to go on.
    preempted: i64,
    /// Times a worker went to sleep.
    sleeps: u64,
    stolen: u64,
}

/// What has happened in this process so far.
fn so_far(start: Instant) -> Took {
    // SAFETY: all zeros is a valid `rusage`; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waited = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let waited = Duration::from_nanos(waited.sum());
    let metrics = fibra::Handle::current().metrics();
    let sleeps = metrics.workers.iter().map(|worker| worker.sleeps).sum();
    let (wall, cpu) = (start.elapsed(), support::cpu_time());
    Took { wall, cpu, waited, preempted: usage.ru_nivcsw, sleeps, stolen: metrics.stolen }
}

impl Took {
    fn since(self, before: Took) -> Took {
        Took {
            wall: self.wall - before.wall,
            cpu: self.cpu - before.cpu,
            waited: self.waited.saturating_sub(before.waited),
            preempted: self.preempted - before.preempted,
            sleeps: self.sleeps - before.sleeps,
            stolen: self.stolen - before.stolen,
        }
    }
}

/// One repetition: a batch that is joined in the order of spawning, one that is joined newest first, and one fiber at a time.
fn repeat() -> u64 {
    let spawn_all = || (0..BATCH).map(|value| fibra::spawn(move || value)).collect::<Vec<_>>();
    let in_order: u64 = spawn_all().into_iter().map(|fiber| fiber.join().unwrap()).sum();
    let newest_first: u64 = spawn_all().into_iter().rev().map(|fiber| fiber.join().unwrap()).sum();
    let one_at_a_time: u64 = (0..BATCH / 10).map(|value| fibra::spawn(move || value).join().unwrap()).sum();
    in_order + newest_first + one_at_a_time
}

// S1-17: a joiner is woken by the end of its fiber; nothing has to rescue it.
#[test]
fn a_thousand_repetitions_of_spawn_and_join_come_to_their_end_without_rescue() {
    const TEST: &str = "a_thousand_repetitions_of_spawn_and_join_come_to_their_end_without_rescue";
    if !support::is_child(TEST) {
        let ended = support::rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
        assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
        if is_long() || ended.stderr.contains("has taken") {
            let _ = write!(std::io::stderr(), "{}", ended.stderr);
        }
        return;
    }
    let _watchdog = support::watchdog(180);
    let for_long = if is_long() { Duration::from_secs(100) } else { Duration::ZERO };
    let done = Arc::new(AtomicU64::new(0));
    let detector = Detector::new(done.clone());
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let mut all = runtime.run(move || {
        let start = Instant::now();
        let mut all = Vec::new();
        while all.len() < 1_000 || start.elapsed() < for_long {
            let before = so_far(start);
            assert_eq!(repeat(), BATCH * (BATCH - 1) + BATCH / 10 * (BATCH / 10 - 1) / 2);
            done.fetch_add(1, SeqCst);
            all.push((all.len(), so_far(start).since(before)));
        }
        all
    });
    let told = detector.finish();
    all.sort_by_key(|(_, took)| std::cmp::Reverse(took.wall));
    for (repetition, took) in all.iter().take(if is_long() { 5 } else { 1 }) {
        eprintln!("slow: repetition {repetition}: {took:?}");
    }
    let median = all[all.len() / 2].1;
    eprintln!("median of {}: {median:?}; last told of: {told}", all.len());
}
