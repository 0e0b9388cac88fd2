//! Tests of the blocking pool. A lost job or wake shows as a wait that gives up after a minute and says where.

use crate::blocking::pool::*;
use crate::prim::atomic::AtomicUsize;
use crate::prim::policy::Rng;
use std::process::Command;

/// A job that runs a closure and counts its runs.
#[repr(C)]
struct Counted<F> {
    job: Job,
    runs: AtomicUsize,
    body: F,
}

impl<F: Fn() + Sync> Counted<F> {
    fn new(body: F) -> Self {
        Self { job: Job::new(Self::run), runs: AtomicUsize::new(0), body }
    }

    /// # Safety
    /// `job` is the first field of a living `Counted<F>`.
    unsafe fn run(job: NonNull<Job>) {
        // SAFETY: `new` is the only one to pair this function with a job. The tests keep a job until `runs` says it ran.
        let this = unsafe { job.cast::<Self>().as_ref() };
        (this.body)();
        // Release: pairs with the acquire load in `runs`; the body has happened, and the job is not touched after this.
        this.runs.fetch_add(1, Ordering::Release);
    }

    fn pointer(&self) -> NonNull<Job> {
        // The pointer to the whole, since `run` goes back from the job to the whole.
        NonNull::from(self).cast()
    }

    fn runs(&self) -> usize {
        // Acquire: pairs with the release in `run`.
        self.runs.load(Ordering::Acquire)
    }

    fn submit(&self, pool: &BlockingPool) {
        self.try_submit(pool).unwrap();
    }

    fn try_submit(&self, pool: &BlockingPool) -> io::Result<()> {
        // SAFETY: every test keeps its jobs until they have run or were taken back.
        unsafe { pool.submit(self.pointer()) }
    }

    fn revoke(&self, pool: &BlockingPool) -> bool {
        // SAFETY: alive, and submitted to this pool.
        unsafe { pool.revoke(self.pointer()) }
    }
}

#[track_caller]
fn until(condition: impl Fn() -> bool) {
    let start = policy::now();
    while !condition() {
        assert!(policy::now() - start < 60_000_000_000, "waited for a minute");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A door that jobs wait behind.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    moved: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock();
        while !*open {
            open = self.moved.wait(open);
        }
    }
    fn open(&self) {
        *self.open.lock() = true;
        self.moved.notify_all();
    }
}

#[test]
fn queued_jobs_start_in_order() {
    let pool = BlockingPool::new("order", 1);
    let gate = Gate::default();
    let first = Counted::new(|| gate.pass());
    first.submit(&pool);
    let order = Mutex::new(Vec::new());
    let order = &order;
    let jobs: Vec<_> = (0..100).map(|number| Counted::new(move || order.lock().push(number))).collect();
    jobs.iter().for_each(|job| job.submit(&pool));
    until(|| pool.queued() == 100);
    // From the middle, the ends and everywhere: the rest keeps its order.
    let revoked = [0, 50, 51, 99];
    for number in revoked {
        assert!(jobs[number].revoke(&pool));
        assert!(!jobs[number].revoke(&pool), "only once");
    }
    gate.open();
    until(|| jobs.iter().filter(|job| job.runs() == 1).count() == 96);
    let expected: Vec<_> = (0..100).filter(|number| !revoked.contains(number)).collect();
    assert_eq!(*order.lock(), expected);
    assert_eq!(pool.peak(), 1);
    pool.shutdown(None).unwrap();
}

#[test]
fn a_burst_runs_every_job_exactly_once() {
    let pool = BlockingPool::new("burst", 8);
    let jobs: Vec<_> = (0..10_000).map(|_| Counted::new(|| {})).collect();
    jobs.iter().for_each(|job| job.submit(&pool));
    until(|| jobs.iter().all(|job| job.runs() > 0));
    pool.shutdown(None).unwrap();
    assert!(jobs.iter().all(|job| job.runs() == 1));
    assert!((1..=8).contains(&pool.peak()));
    assert_eq!((pool.threads(), pool.queued()), (0, 0));
}

#[test]
fn jobs_that_wait_for_later_ones_get_threads_of_their_own() {
    let pool = BlockingPool::new("chain", 32);
    let gates: Vec<_> = (0..33).map(|_| Gate::default()).collect();
    let gates = &gates;
    // Each waits for the one submitted after it.
    let jobs: Vec<_> = (0..32)
        .map(|number| {
            Counted::new(move || {
                gates[number + 1].pass();
                gates[number].open();
            })
        })
        .collect();
    for round in 1..=2 {
        // The second round finds idle threads.
        jobs.iter().for_each(|job| job.submit(&pool));
        gates[32].open();
        until(|| jobs.iter().all(|job| job.runs() == round));
        gates.iter().for_each(|gate| *gate.open.lock() = false);
    }
    assert!(pool.peak() <= 32);
    pool.shutdown(None).unwrap();
}

#[test]
fn a_job_is_either_revoked_or_run() {
    let pool = BlockingPool::new("revoke", 2);
    let mut rng = Rng::from_seed(3);
    let (mut revoked, mut ran) = (0, 0);
    for _ in 0..20_000 {
        let job = Box::new(Counted::new(|| {}));
        job.submit(&pool);
        for _ in 0..rng.below(3000) {
            std::hint::spin_loop();
        }
        if job.revoke(&pool) {
            assert_eq!(job.runs(), 0);
            revoked += 1;
        } else {
            until(|| job.runs() == 1);
            ran += 1;
        }
        // Freed here: if the pool touches it again, the address sanitizer reports it.
    }
    assert_eq!(revoked + ran, 20_000);
    println!("revoked {revoked}, ran {ran}");
    pool.shutdown(None).unwrap();
}

#[test]
fn idle_threads_end_and_come_back() {
    let pool = BlockingPool::with_keep_alive("idle", 4, 1_000_000);
    for _ in 0..3 {
        let jobs: Vec<_> = (0..4).map(|_| Counted::new(|| {})).collect();
        jobs.iter().for_each(|job| job.submit(&pool));
        until(|| jobs.iter().all(|job| job.runs() == 1));
        until(|| pool.threads() == 0);
    }
    // Each thread that left has taken its handle along, and was joined by the next.
    until(|| pool.shared.roster.lock().handles.is_empty());
    pool.shutdown(None).unwrap();
}

#[test]
fn a_job_that_meets_a_leaving_thread_is_not_lost() {
    // Threads leave after 0 to 40 µs; jobs come about as often.
    let mut rng = Rng::from_seed(5);
    for keep_alive in [0, 5_000, 20_000, 40_000] {
        let pool = BlockingPool::with_keep_alive("leaving", 3, keep_alive);
        for _ in 0..3000 {
            let jobs = [(); 2].map(|()| Counted::new(|| {}));
            jobs.iter().for_each(|job| job.submit(&pool));
            until(|| jobs.iter().all(|job| job.runs() == 1));
            for _ in 0..rng.below(2000) {
                std::hint::spin_loop();
            }
        }
        pool.shutdown(None).unwrap();
        assert_eq!(pool.threads(), 0);
    }
}

#[test]
fn shutdown_takes_back_the_queued_and_waits_for_the_running() {
    let pool = BlockingPool::new("shutdown", 2);
    let gate = Gate::default();
    let running: Vec<_> = (0..2).map(|_| Counted::new(|| gate.pass())).collect();
    running.iter().for_each(|job| job.submit(&pool));
    until(|| pool.threads() == 2 && pool.queued() == 0);
    let queued: Vec<_> = (0..5).map(|_| Counted::new(|| {})).collect();
    queued.iter().for_each(|job| job.submit(&pool));

    let unstarted: Vec<_> = pool.close().collect();
    assert_eq!(unstarted, queued.iter().map(Counted::pointer).collect::<Vec<_>>());
    assert!(!queued[0].revoke(&pool), "it belongs to the caller that closed the pool");
    let refused = Counted::new(|| {});
    assert!(refused.try_submit(&pool).unwrap_err().to_string().contains("shutting down"));
    assert_eq!(pool.close().count(), 0);

    assert_eq!(pool.shutdown(Some(0)), Err(2));
    assert_eq!(pool.shutdown(Some(policy::now() + 2_000_000)), Err(2));
    gate.open();
    assert_eq!(pool.shutdown(None), Ok(()));
    assert_eq!(pool.shutdown(Some(0)), Ok(()));
    assert!(running.iter().all(|job| job.runs() == 1) && queued.iter().all(|job| job.runs() == 0));
    assert_eq!((refused.runs(), pool.threads()), (0, 0));
}

#[test]
fn shutdown_without_close_runs_what_is_queued() {
    let pool = BlockingPool::new("drain", 1);
    let jobs: Vec<_> = (0..100).map(|_| Counted::new(|| {})).collect();
    jobs.iter().for_each(|job| job.submit(&pool));
    pool.shutdown(None).unwrap();
    assert!(jobs.iter().all(|job| job.runs() == 1));
}

#[test]
fn a_dropped_pool_runs_what_is_queued() {
    let pool = BlockingPool::new("dropped", 1);
    let gate = Gate::default();
    let first = Counted::new(|| gate.pass());
    let second = Counted::new(|| {});
    first.submit(&pool);
    second.submit(&pool);
    drop(pool);
    gate.open();
    until(|| first.runs() == 1 && second.runs() == 1);
}

#[test]
fn shutdown_from_inside_a_job_does_not_wait_for_itself() {
    let pool = BlockingPool::new("inside", 4);
    let outcome = Mutex::new(None);
    let job = Counted::new(|| *outcome.lock() = Some(pool.shutdown(None)));
    job.submit(&pool);
    until(|| job.runs() == 1);
    assert_eq!(outcome.lock().take(), Some(Err(1)));
    until(|| pool.threads() == 0);
}

#[test]
fn a_panic_that_escapes_costs_no_thread() {
    let pool = BlockingPool::new("panic", 1);
    let job = Counted::new(|| panic::resume_unwind(Box::new(())));
    let after = Counted::new(|| {});
    job.submit(&pool);
    after.submit(&pool);
    until(|| after.runs() == 1);
    assert_eq!(pool.peak(), 1);
    pool.shutdown(None).unwrap();
}

#[test]
fn without_threads_to_be_had_jobs_are_refused_or_wait() {
    let pool = BlockingPool::new("none", 4);
    let refuse = |on| pool.shared.refuse_threads.store(on, Ordering::Relaxed);
    refuse(true);
    let gate = Gate::default();
    let first = Counted::new(|| gate.pass());
    assert!(first.try_submit(&pool).is_err());
    assert_eq!((pool.threads(), pool.queued(), first.runs()), (0, 0, 0));
    refuse(false);
    first.submit(&pool);
    until(|| pool.queued() == 0);
    // The one thread is busy and no second can be started: the job waits for it.
    refuse(true);
    let second = Counted::new(|| {});
    second.submit(&pool);
    assert_eq!((pool.threads(), pool.queued()), (1, 1));
    gate.open();
    until(|| second.runs() == 1);
    pool.shutdown(None).unwrap();
}

// A call that hangs must not hold up one that was to begin at once.
#[test]
fn a_job_that_must_not_wait_gets_a_thread_or_is_refused() {
    let pool = BlockingPool::new("at-once", 3);
    let refuse = |on| pool.shared.refuse_threads.store(on, Ordering::Relaxed);
    // SAFETY: the jobs are kept until they have run, or were refused.
    let at_once = |job: NonNull<Job>| unsafe { pool.submit_at_once(job) };
    let (gate, other) = (Gate::default(), Gate::default());
    let (hangs, hangs_too) = (Counted::new(|| gate.pass()), Counted::new(|| other.pass()));
    hangs.submit(&pool);
    until(|| pool.queued() == 0);
    refuse(true);
    let refused = Counted::new(|| {});
    assert!(at_once(refused.pointer()).is_err());
    assert_eq!((pool.threads(), pool.queued(), refused.runs()), (1, 0, 0), "not queued behind the call that hangs");
    // One that waits is not the one for which a thread is started.
    hangs_too.submit(&pool);
    assert_eq!(pool.queued(), 1);
    refuse(false);
    let first = Counted::new(|| {});
    at_once(first.pointer()).unwrap();
    until(|| first.runs() == 1 && pool.queued() == 0);
    // Both threads hang now; a third is the last.
    let last = Counted::new(|| gate.pass());
    at_once(last.pointer()).unwrap();
    until(|| pool.queued() == 0);
    assert!(at_once(refused.pointer()).is_err(), "the limit holds");
    gate.open();
    other.open();
    until(|| hangs.runs() + hangs_too.runs() + last.runs() == 3);
    // An idle thread takes one, too.
    until(|| pool.shared.state.lock().idle.len() == 3);
    refuse(true);
    at_once(refused.pointer()).unwrap();
    until(|| refused.runs() == 1);
    pool.shutdown(None).unwrap();
}

#[test]
fn threads_bear_the_name_of_the_pool() {
    let pool = BlockingPool::new("api", 1);
    let name = Mutex::new(None);
    let job = Counted::new(|| *name.lock() = std::thread::current().name().map(str::to_owned));
    job.submit(&pool);
    until(|| job.runs() == 1);
    assert_eq!(name.lock().as_deref(), Some("api-blocking-1"));
    pool.shutdown(None).unwrap();
}

/// Whether this is the process that was started for `test` alone, where no other test starts threads. Elsewhere, starts that
/// process, asserts that the test passed there, and returns false.
fn alone(test: &str) -> bool {
    if std::env::var_os("FIBRA_TEST_ALONE").is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("blocking::pool::tests::{test}"), "--nocapture", "--test-threads=1"])
        .env("FIBRA_TEST_ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
    false
}

#[test]
fn a_thousand_pools_leave_no_thread() {
    if !alone("a_thousand_pools_leave_no_thread") {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for round in 0..1000 {
        let pool = BlockingPool::with_keep_alive("cycle", 4, if round % 2 == 0 { KEEP_ALIVE } else { 0 });
        let jobs: Vec<_> = (0..4).map(|_| Counted::new(|| {})).collect();
        jobs.iter().for_each(|job| job.submit(&pool));
        pool.shutdown(None).unwrap();
        assert!(jobs.iter().all(|job| job.runs() == 1));
        let roster = pool.shared.roster.lock();
        assert!(roster.handles.is_empty() && roster.last_to_leave.is_none());
    }
    // The kernel lists a joined thread for a moment longer.
    until(|| threads() == before);
}

#[test]
fn after_fork_the_child_neither_hangs_nor_touches_anything() {
    if !alone("after_fork_the_child_neither_hangs_nor_touches_anything") {
        return;
    }
    let pool = BlockingPool::new("fork", 4);
    let job = Counted::new(|| {});
    job.submit(&pool);
    until(|| job.runs() == 1);
    // The worst moment: another thread is inside the pool, so the child finds the lock taken.
    let state = pool.shared.state.lock();
    // SAFETY: the child calls only what is under test and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let late = Counted::new(|| {});
        let refused = late.try_submit(&pool).is_err_and(|error| error.to_string().contains("fork"));
        let quiet = pool.shutdown(None).is_ok() && pool.close().next().is_none() && pool.threads() == 0;
        let revoked = late.revoke(&pool);
        mem::forget(state);
        drop(pool);
        // SAFETY: ends the child without the end of the test harness.
        unsafe { libc::_exit(if refused && quiet && revoked { 0 } else { 1 }) };
    }
    drop(state);
    let mut status = 0;
    let start = policy::now();
    loop {
        // SAFETY: the child is ours, and `status` lives through the call.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if policy::now() - start > 60_000_000_000 => {
                // SAFETY: the child is ours and has not been waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            0 => std::thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
    }
    assert_eq!(status, 0);
    pool.shutdown(None).unwrap();
}
