//! What the integration tests share: a watchdog, what the kernel says about this process, and running a test in a child.
//!
//! The watchdog may not depend on what it watches: plain threads, std's locks, `/proc`. The `main.rs` of a room says `mod support;`, and
//! its modules use their part.
#![allow(dead_code)] // Every room uses another part.
#![allow(clippy::disallowed_types)] // The watchdog must work when the runtime does not.

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much longer things take here than in an ordinary build.
pub(crate) const SLOWDOWN: u64 = if cfg!(any(fibra_asan, fibra_tsan)) { 10 } else { 1 };

// ---- The watchdog -------------------------------------------------------------------------------------------------------

/// Ends the process, with a report, unless dropped in time. It is a thread: tests that count threads start it first.
#[derive(Debug)]
#[must_use = "dropping the watchdog calls it off"]
pub(crate) struct Watchdog {
    called_off: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Gives the test `seconds` (more under the sanitizers, and at most `FIBRA_WATCHDOG_S` where that is set). After that, prints the test's
/// name, where the watchdog was set and what the runtime knows about its fibers, and aborts.
#[track_caller]
pub(crate) fn watchdog(seconds: u64) -> Watchdog {
    let called_off = Arc::new((Mutex::new(false), Condvar::new()));
    let watched = Arc::clone(&called_off);
    let test = std::thread::current().name().unwrap_or("a test on an unnamed thread").to_owned();
    let place = Location::caller();
    let at_most = std::env::var("FIBRA_WATCHDOG_S").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(u64::MAX);
    let limit = Duration::from_secs((seconds * SLOWDOWN).min(at_most));
    let watch = move || {
        let (off, changed) = &*watched;
        let guard = off.lock().unwrap();
        let (guard, _) = changed.wait_timeout_while(guard, limit, |off| !*off).unwrap();
        if !*guard {
            bark(&test, place, limit);
        }
    };
    let thread =
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch).expect("a watchdog needs a thread");
    Watchdog { called_off, thread: Some(thread) }
}

/// A hang is a failure, not a stuck build.
#[track_caller]
pub(crate) fn within_a_minute<T>(f: impl FnOnce() -> T) -> T {
    let _watchdog = watchdog(60);
    f()
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.called_off.0.lock().unwrap() = true;
        self.called_off.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reports and aborts. Writes to stderr itself: what `eprintln!` says here would be captured, and lost with the process.
pub(crate) fn bark(test: &str, place: &Location<'_>, limit: Duration) -> ! {
    // The report may itself run into what hangs (a lock that is never given back).
    let _ = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(Duration::from_secs(5));
        let _ = writeln!(std::io::stderr(), "watchdog: the runtime's report hangs too");
        std::process::abort();
    });
    let _ = writeln!(std::io::stderr(), "\nwatchdog: {test} did not end within {limit:?} (set at {place})");
    fibra::__private::dump();
    std::process::abort()
}

// ---- Preambles ----------------------------------------------------------------------------------------------------------

/// A runtime with so many workers.
pub(crate) fn workers(count: usize) -> fibra::Runtime {
    fibra::Runtime::builder().workers(count).build().unwrap()
}

/// Waits until so many fibers of the runtime are parked.
#[track_caller]
pub(crate) fn until_parked(runtime: &fibra::Runtime, count: u64) {
    eventually(|| runtime.metrics().parked == count, || format!("{:?}", runtime.metrics()));
}

/// The text that `f` panics with.
#[track_caller]
pub(crate) fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it should panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("text")).to_owned(),
    }
}

/// Whether this is the process that was started for `test` alone, where no other test opens descriptors or uses the processor. Elsewhere
/// starts that process, asserts that the test passed there, and says no.
#[track_caller]
pub(crate) fn alone(test: &str) -> bool {
    if is_child(test) {
        return true;
    }
    let ended = rerun_self(test, &[]);
    assert!(ended.status.success(), "{ended:?}");
    false
}

/// Are long runs wanted?
pub(crate) fn is_long() -> bool {
    std::env::var("FIBRA_LONG").is_ok_and(|long| long != "0")
}

// ---- What the kernel says -----------------------------------------------------------------------------------------------

/// The OS threads of this process.
pub(crate) fn threads() -> usize {
    entries("/proc/self/task")
}

/// Their names, for messages.
pub(crate) fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has /proc");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

/// The open file descriptors, without the one this takes itself.
pub(crate) fn fds() -> usize {
    if cfg!(fibra_tsan) {
        // Once it has something to report, suppressed or not, the sanitizer talks to its symbolizer through two pipes.
        let all = std::fs::read_dir("/proc/self/fd").expect("Linux has /proc");
        let is_pipe = |path: &std::path::Path| path.to_string_lossy().starts_with("pipe:");
        let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        return targets.filter(|target| !is_pipe(target)).count() - 1;
    }
    entries("/proc/self/fd") - 1
}

/// The memory mappings.
pub(crate) fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has /proc").lines().count()
}

/// The resident memory, in bytes.
pub(crate) fn rss() -> u64 {
    status("VmRSS:")
}

/// The memory of the page tables, in bytes.
pub(crate) fn page_tables() -> u64 {
    status("VmPTE:")
}

/// The CPU time this process has used, in user code and in the kernel, on all threads.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local `timespec`, which the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("Linux has /proc").count()
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel tells this field");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}

/// Waits until the condition holds, for things that the kernel does a moment later (an ended thread leaves `/proc` after
/// it was joined). Panics with what `what` says after half a minute, which a busy machine may need.
#[track_caller]
pub(crate) fn eventually(mut holds: impl FnMut() -> bool, what: impl FnOnce() -> String) {
    let until = Instant::now() + Duration::from_secs(30 * SLOWDOWN);
    while !holds() {
        assert!(Instant::now() < until, "{}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}

// ---- A test in a child --------------------------------------------------------------------------------------------------

/// Names, in a child, the test it was started for.
const CHILD: &str = "FIBRA_TEST_CHILD";

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The signal that ended it, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.status)
    }
}

/// The name by which the test harness knows a test of the caller's file: a room's modules stand before it.
#[track_caller]
pub(crate) fn full_name(test: &str) -> String {
    let file = std::path::Path::new(Location::caller().file());
    let module = file.file_stem().and_then(|stem| stem.to_str()).expect("a test lies in a file with a name");
    let is_program = module == "main" || file.parent().is_some_and(|folder| folder.ends_with("tests"));
    if is_program { test.to_owned() } else { format!("{module}::{test}") }
}

/// Are we the child that [`rerun_self`] started for this test of the caller's file?
#[track_caller]
pub(crate) fn is_child(test: &str) -> bool {
    let test = full_name(test);
    std::env::var(CHILD).is_ok_and(|name| name == test)
}

/// This program once more, for one test of the caller's file, which finds that it [`is_child`].
#[track_caller]
pub(crate) fn myself(test: &str) -> Command {
    let test = full_name(test);
    let mut command = Command::new(std::env::current_exe().expect("a test knows its binary"));
    command.args(["--exact", &test, "--nocapture", "--include-ignored", "--test-threads=1"]).env(CHILD, &test);
    command
}

/// Runs one test of the caller's file in a process of its own, with these variables, and waits for its end: for what ends the
/// process, for what can be set only once in one, and for what the kernel says about the whole of it. The test asks [`is_child`]
/// to know which side it is on.
#[track_caller]
pub(crate) fn rerun_self(test: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = myself(test);
    command.envs(variables.iter().copied());
    let ended = ended(command.stdin(Stdio::null()));
    assert!(ended.stdout.contains("running 1 test"), "there is no test {test} in this binary\n{ended:?}");
    ended
}

/// What a page of memory has, in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn page_size() -> usize {
    // SAFETY: a number of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Runs a program to its end, which must come by itself: one that hangs is asked for its snapshot (if the program takes the signal for
/// it), ended, and shown.
#[track_caller]
pub(crate) fn ended(command: &mut Command) -> Ended {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    // Longer than the watchdogs of the children, which say more; far longer than a child takes on a loaded machine.
    let status = wait(&mut child, Duration::from_secs(200 * SLOWDOWN));
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let Some(status) = status else {
        panic!("{command:?} did not end by itself\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    };
    Ended { status, stdout, stderr }
}

/// Runs the test in a process of its own, which must end well.
#[track_caller]
pub(crate) fn in_child(test: &str, f: impl FnOnce()) {
    if is_child(test) {
        let _watchdog = watchdog(30);
        return f();
    }
    let ended = rerun_self(test, &[]);
    assert!(ended.status.success(), "{ended:?}");
}

/// Reads a stream to its end on a thread of its own, so that a child never waits for us.
fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    let mut stream = stream.expect("the stream was asked for");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the child's end; one that takes too long is asked what it is doing, and killed.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() >= until {
            // (A program that was not told to answer this signal ends by it.)
            let _ = Command::new("kill").args(["-QUIT", &child.id().to_string()]).status();
            std::thread::sleep(Duration::from_secs(3));
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
