//! Workers that come when others are stuck, and leave without dropping work: growth, its limits and its reasons, draining, `set_workers`,
//! deadlines that a stuck worker does not hold up.
//!
//! A stuck worker is one whose fiber blocks its OS thread until the test lets it go; so these tests wait for what must happen, however long
//! that takes, and a runtime that does not grow hangs and is ended by the watchdog.
#![allow(clippy::disallowed_types)] // What blocks the thread must not be fibra's.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::support::{eventually, in_child, is_child, rerun_self, threads, watchdog};
use crate::tools::Rng;
use fibra::channel::{after, bounded, never, tick};
use fibra::{Builder, JoinHandle, PoolMetrics, Runtime, RuntimeBuilder, WorkerState};

pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// A runtime that does not wait for long before it grows, and keeps temporary workers for good unless told otherwise.
pub(crate) fn elastic(workers: usize, max_workers: usize) -> RuntimeBuilder {
    Runtime::builder()
        .workers(workers)
        .max_workers(max_workers)
        .stall_after(MOMENT)
        .scale_interval(Duration::from_millis(1))
        .temp_idle_timeout(Duration::from_secs(3600))
}

/// Blocks OS threads until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl Gate {
    fn block(&self) {
        let (open, bell, inside) = &*self.0;
        inside.fetch_add(1, SeqCst);
        drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn inside(&self) -> usize {
        self.0.2.load(SeqCst)
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// A fiber that blocks its worker here.
    fn stuck(&self, rt: &Runtime) -> JoinHandle<()> {
        let gate = self.clone();
        rt.spawn(move || gate.block())
    }
}

pub(crate) fn pool(rt: &Runtime) -> PoolMetrics {
    rt.metrics().pool
}

pub(crate) fn states(rt: &Runtime) -> Vec<WorkerState> {
    rt.metrics().workers.iter().map(|worker| worker.state).collect()
}

pub(crate) fn thread_id() -> ThreadId {
    std::thread::current().id()
}

// S1-110, S1-113, S1-114, S4-75, S4-86, S4-88, C-16, C-17: a worker is stuck and work waits, so another one comes; when it has been idle
// for long enough it leaves, and its seat serves again.
#[test]
fn a_worker_comes_when_one_is_stuck_and_leaves_when_it_is_idle() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 2).temp_idle_timeout(MOMENT).build().unwrap();
    assert_eq!((pool(&rt).workers, pool(&rt).max_workers, states(&rt).len()), (1, 2, 1));
    for round in 1..=3 {
        let gate = Gate::default();
        let stuck = gate.stuck(&rt);
        eventually(|| gate.inside() == 1, || "the fiber does not start".to_owned());
        // Only another worker can run this one.
        assert_ne!(rt.spawn(thread_id).join().unwrap(), thread_id());
        assert_eq!(pool(&rt).promoted, round, "{:?}", pool(&rt));
        assert!(pool(&rt).gate_passes >= round);
        gate.open();
        stuck.join().unwrap();
        eventually(|| pool(&rt).retired == round, || format!("it stays: {:?}", pool(&rt)));
        eventually(|| states(&rt)[1] == WorkerState::Dead, || format!("{:?}", states(&rt)));
        assert_eq!((pool(&rt).workers, pool(&rt).most_workers), (1, 2));
    }
}

// S1-111, S4-86: a hundred that are stuck, and there are never more than `max_workers`; each look that found so is counted.
#[test]
fn there_are_never_more_than_max_workers() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 5).build().unwrap();
    let gate = Gate::default();
    let stuck: Vec<_> = (0..100).map(|_| gate.stuck(&rt)).collect();
    eventually(|| pool(&rt).blocked.at_ceiling > 3, || format!("{:?}", pool(&rt)));
    let full = pool(&rt);
    assert_eq!((full.workers, full.most_workers, full.promoted, gate.inside()), (5, 5, 3, 5), "{full:?}");
    assert!(full.pressure > 0 && full.positive_samples > 0, "{full:?}");
    assert!(states(&rt).iter().all(|state| *state == WorkerState::Active));
    gate.open();
    stuck.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(pool(&rt).most_workers, 5);
}

// S4-82, S4-83, S4-84: pressure is what can run and does not, wherever it waits; `active` is who runs something.
#[test]
fn pressure_is_what_waits_in_the_queues() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 1).build().unwrap();
    let gate = Gate::default();
    let stuck = {
        let gate = gate.clone();
        rt.spawn(move || {
            // In the worker's own deque, and ready to run there.
            let fresh: Vec<_> = (0..3).map(|_| fibra::spawn(|| ())).collect();
            let local: Vec<_> = (0..2).map(|_| fibra::spawn_local(fibra::yield_now)).collect();
            fibra::yield_now();
            let waiting: Vec<_> = (0..4).map(|_| fibra::spawn(|| ())).collect();
            gate.block();
            fresh.into_iter().chain(local).chain(waiting).for_each(|fiber| fiber.join().unwrap());
        })
    };
    eventually(|| gate.inside() == 1, || "it does not start".to_owned());
    let before = pool(&rt).pressure;
    assert!(before >= 4, "{:?}", pool(&rt));
    // And from outside, in the injector.
    let outside: Vec<_> = (0..10).map(|_| rt.spawn(|| ())).collect();
    assert_eq!((pool(&rt).pressure, pool(&rt).active), (before + 10, 1), "{:?}", pool(&rt));
    gate.open();
    stuck.join().unwrap();
    outside.into_iter().for_each(|fiber| fiber.join().unwrap());
    // S4-76, S4-77: nothing is left to run, so it does not look around for ever, and sleeps.
    eventually(|| states(&rt) == [WorkerState::Sleep], || format!("{:?}", states(&rt)));
    assert_eq!((pool(&rt).pressure, pool(&rt).active), (0, 0), "{:?}", pool(&rt));
}

// C-15, S4-06: as many workers as the system gives this process processors (its quota of them too), and twice as many at most; 32 if
// asked for.
#[test]
fn the_number_of_workers_follows_the_machine() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().build().unwrap();
    let parallelism = std::thread::available_parallelism().unwrap().get();
    assert_eq!(
        (pool(&rt).workers, pool(&rt).base_workers, pool(&rt).max_workers),
        (parallelism, parallelism, 2 * parallelism)
    );
    let rt = Runtime::builder().workers(32).build().unwrap();
    assert_eq!((pool(&rt).workers, pool(&rt).max_workers), (32, 64));
}

// S1-112: one per interval, globally.
#[test]
fn one_worker_comes_per_interval() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 4).scale_interval(Duration::from_secs(3600)).build().unwrap();
    let gate = Gate::default();
    let stuck: Vec<_> = (0..10).map(|_| gate.stuck(&rt)).collect();
    eventually(|| pool(&rt).blocked.too_soon > 3, || format!("{:?}", pool(&rt)));
    assert_eq!((pool(&rt).workers, pool(&rt).promoted), (2, 1), "{:?}", pool(&rt));
    gate.open();
    stuck.into_iter().for_each(|fiber| fiber.join().unwrap());
}

// S4-90, C-16: a sleeper is used before a worker is added, and the look says so.
#[test]
fn a_sleeping_worker_is_used_first() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 4).build().unwrap();
    let gate = Gate::default();
    let (gate_of_fiber, (tell, told)) = (gate.clone(), mpsc::channel());
    // It has unstarted children and never switches: only sysmon can see that another worker is to come.
    let stuck = rt.spawn(move || {
        let children: Vec<_> = (0..10).map(|_| fibra::spawn(thread_id)).collect();
        tell.send(children).unwrap();
        gate_of_fiber.block();
    });
    for child in told.recv().unwrap() {
        child.join().unwrap();
    }
    assert_eq!((pool(&rt).workers, pool(&rt).promoted), (2, 0), "{:?}", pool(&rt));
    gate.open();
    stuck.join().unwrap();
}

// S4-81, S4-90, X-09: workers that are busy, and slow, are not stuck as long as they switch; and where no work waits for another, stuck
// ones are left alone. Each look that added no worker says why.
#[test]
fn slow_is_not_stuck() {
    let _watchdog = watchdog(240);
    let rt = elastic(2, 8).stall_after(Duration::from_millis(500)).build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let slow: Vec<_> = (0..64)
        .map(|_| {
            let over = over.clone();
            rt.spawn(move || {
                while !over.load(SeqCst) {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                    fibra::yield_now();
                }
            })
        })
        .collect();
    eventually(|| pool(&rt).blocked.not_stuck > 5, || format!("{:?}", pool(&rt)));
    over.store(true, SeqCst);
    slow.into_iter().for_each(|fiber| fiber.join().unwrap());
    let gate = Gate::default();
    let stuck = [gate.stuck(&rt), gate.stuck(&rt)];
    eventually(|| gate.inside() == 2, || "they do not start".to_owned());
    let before = pool(&rt).blocked.no_work;
    eventually(|| pool(&rt).blocked.no_work > before + 20, || format!("{:?}", pool(&rt)));
    assert_eq!((pool(&rt).workers, pool(&rt).promoted, pool(&rt).most_workers), (2, 0, 2), "{:?}", pool(&rt));
    gate.open();
    stuck.into_iter().for_each(|fiber| fiber.join().unwrap());
}

// a hundred fibers call `std::thread::sleep`, on every worker there is, while a plain thread starts a fiber every 100 ms: nine of ten
// run before the last of the sleepers is through.
#[test]
fn blocking_calls_do_not_starve_a_heartbeat() {
    let _watchdog = watchdog(240);
    kidnap(|| std::thread::sleep(Duration::from_millis(500)), 100);
}

// The same with loops that compute.
#[test]
fn busy_loops_do_not_starve_a_heartbeat() {
    let _watchdog = watchdog(240);
    let busy = || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
    };
    kidnap(busy, 100);
}

fn kidnap(hog: impl Fn() + Send + Copy + 'static, count: usize) {
    let rt = elastic(2, 8).build().unwrap();
    let hogs: Vec<_> = (0..count).map(|_| rt.spawn(hog)).collect();
    let beats = Arc::new(AtomicUsize::new(0));
    let mut sent = 0;
    while !hogs.iter().all(JoinHandle::is_finished) {
        let beats = beats.clone();
        drop(rt.spawn(move || beats.fetch_add(1, SeqCst)));
        sent += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let kept = beats.load(SeqCst);
    println!("{kept} of {sent} beats kept; {:?}", pool(&rt));
    assert!(kept * 10 >= sent * 9, "{kept} of {sent} beats were kept; {:?}", pool(&rt));
    assert!(pool(&rt).most_workers <= 8);
}

// S1-108: without sysmon no worker comes, and that is all: what waited is done when the stuck one goes on.
#[test]
fn without_sysmon_nothing_is_lost() {
    const TEST: &str = "without_sysmon_nothing_is_lost";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(120);
    let rt = elastic(1, 4).build().unwrap();
    let gate = Gate::default();
    let stuck = gate.stuck(&rt);
    eventually(|| gate.inside() == 1, || "it does not start".to_owned());
    let waiting: Vec<_> = (0..100).map(|number| rt.spawn(move || number)).collect();
    std::thread::sleep(10 * MOMENT);
    assert_eq!((pool(&rt).workers, pool(&rt).promoted), (1, 0));
    gate.open();
    stuck.join().unwrap();
    assert_eq!(waiting.into_iter().map(|fiber| fiber.join().unwrap()).sum::<usize>(), 4950);
    rt.set_workers(3).unwrap();
    assert_eq!(pool(&rt).workers, 3);
}

/// Fibers that are parked, one on each of the workers, with the thread they live on.
pub(crate) fn one_on_each(
    rt: &Runtime,
    workers: usize,
) -> Vec<(fibra::channel::Sender<()>, JoinHandle<ThreadId>, ThreadId)> {
    let _entered = rt.handle().enter();
    let start = |_| {
        let ((go, wait), (tell, told)) = (bounded(0), mpsc::channel());
        let fiber = Builder::new()
            .spread()
            .spawn(move || {
                tell.send(thread_id()).unwrap();
                wait.recv().unwrap();
                // Its unstarted child is for others: this worker takes no more work.
                let child = fibra::spawn(thread_id);
                fibra::yield_now();
                child.join().unwrap()
            })
            .unwrap();
        (go, fiber, told.recv().unwrap())
    };
    let fibers: Vec<_> = (0..workers).map(start).collect();
    let mut homes: Vec<_> = fibers.iter().map(|fiber| format!("{:?}", fiber.2)).collect();
    homes.sort();
    homes.dedup();
    assert_eq!(homes.len(), workers, "they live on different workers");
    fibers
}

// S1-93, S4-78, S4-79, S4-80: superfluous workers are DRAINING while fibers live on them, which go on there; what those spawn runs
// elsewhere; then they are DEAD. Nothing new is placed on them.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber's OS thread is its stack there, not its worker")]
fn a_draining_worker_stays_for_its_own_fibers_only() {
    let _watchdog = watchdog(120);
    let rt = elastic(3, 3).build().unwrap();
    let fibers = one_on_each(&rt, 3);
    rt.set_workers(1).unwrap();
    let wanted = [WorkerState::Draining, WorkerState::Draining];
    eventually(|| states(&rt)[1..] == wanted, || format!("{:?}", states(&rt)));
    assert_eq!((pool(&rt).workers, pool(&rt).base_workers), (3, 1));
    let homes: Vec<_> = fibers.iter().map(|fiber| fiber.2).collect();
    // Whatever is started now runs on the one that stays, spread or not.
    let _entered = rt.handle().enter();
    let placed: Vec<_> = (0..20).map(|_| Builder::new().spread().spawn(thread_id).unwrap().join().unwrap()).collect();
    let staying = placed[0];
    assert!(placed.iter().all(|home| *home == staying) && homes.contains(&staying), "{placed:?}");
    for (go, fiber, home) in fibers {
        go.send(()).unwrap();
        let child_ran_on = fiber.join().unwrap();
        if home != staying {
            assert_eq!(child_ran_on, staying, "a draining worker has taken a new fiber");
        }
    }
    eventually(|| states(&rt)[1..] == [WorkerState::Dead; 2], || format!("{:?}", states(&rt)));
    assert_eq!((pool(&rt).workers, pool(&rt).retired), (1, 2));
}

// A worker that is leaving is wanted again: it stays, and takes work as before.
#[test]
fn a_draining_worker_can_be_kept() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 2).build().unwrap();
    let fibers = one_on_each(&rt, 2);
    for _ in 0..3 {
        rt.set_workers(1).unwrap();
        eventually(|| states(&rt)[1] == WorkerState::Draining, || format!("{:?}", states(&rt)));
        rt.set_workers(2).unwrap();
        eventually(|| states(&rt)[1] != WorkerState::Draining, || format!("{:?}", states(&rt)));
    }
    assert_eq!((pool(&rt).workers, pool(&rt).retired), (2, 0));
    for (go, fiber, _) in fibers {
        go.send(()).unwrap();
        fiber.join().unwrap();
    }
}

// S1-115: workers come and go at random while fibers of all kinds run: every one of them ends once, with the right value.
#[test]
fn stress_a_storm_of_workers_loses_nothing() {
    let _watchdog = watchdog(240);
    const SEATS: usize = 6;
    let rt = Arc::new(elastic(2, SEATS).temp_idle_timeout(Duration::from_millis(1)).build().unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let changes = {
        let (rt, over) = (rt.clone(), over.clone());
        std::thread::spawn(move || {
            let mut rng = Rng::new();
            let mut changes = 0;
            while !over.load(SeqCst) {
                rt.set_workers(1 + rng.below(SEATS)).unwrap();
                changes += 1;
                if rng.below(4) == 0 {
                    std::thread::sleep(Duration::from_micros(rng.below(3000) as u64));
                }
            }
            changes
        })
    };
    let ended = Arc::new(AtomicUsize::new(0));
    let mut started = 0;
    for round in 0..60 {
        let sum: usize = rt.run(|| {
            let mut children = Vec::new();
            for number in 0..50 {
                let ended = ended.clone();
                let work = move || {
                    match number % 7 {
                        0 => fibra::yield_now(),
                        1 => fibra::sleep(Duration::from_micros(50)),
                        2 => {
                            let (tx, rx) = bounded(0);
                            let sender = fibra::spawn(move || tx.send(1).unwrap());
                            assert_eq!(rx.recv(), Ok(1));
                            sender.join().unwrap();
                        }
                        3 => fibra::scope(|s| {
                            s.spawn(fibra::yield_now);
                            s.spawn(|| ());
                        }),
                        4 => assert!(fibra::timeout(Duration::from_micros(200), || never::<()>().recv()).is_err()),
                        5 => std::thread::sleep(Duration::from_micros(300)),
                        _ => assert_eq!(fibra::join(|| 1, || 2), (1, 2)),
                    }
                    ended.fetch_add(1, SeqCst);
                    number
                };
                started += 1;
                children.push(match number % 3 {
                    0 => Builder::new().spread().spawn(work).unwrap(),
                    1 => fibra::spawn_local(work),
                    _ => fibra::spawn(work),
                });
            }
            children.into_iter().map(|child| child.join().unwrap()).sum()
        });
        assert_eq!(sum, 49 * 50 / 2, "round {round}");
    }
    over.store(true, SeqCst);
    let changes = changes.join().unwrap();
    assert_eq!(ended.load(SeqCst), started);
    println!("{changes} changes; {:?}", pool(&rt));
    assert!(pool(&rt).most_workers <= SEATS);
    let rt = Arc::into_inner(rt).unwrap();
    let metrics = rt.metrics();
    assert_eq!(metrics.live, 0, "{metrics:?}");
}

// S1-122: runtimes end while workers come: each thread that was started is joined.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "stacks are OS threads there, which are counted too")]
fn a_worker_that_comes_during_shutdown_is_joined() {
    in_child("a_worker_that_comes_during_shutdown_is_joined", || {
        let _watchdog = watchdog(240);
        drop(elastic(1, 4).build().unwrap());
        let before = threads();
        for round in 0..100 {
            let rt = elastic(1, 4).stall_after(Duration::from_millis(1)).build().unwrap();
            let gate = Gate::default();
            let stuck: Vec<_> = (0..8).map(|_| gate.stuck(&rt)).collect();
            eventually(|| gate.inside() > round % 4, || format!("{:?}", pool(&rt)));
            gate.open();
            drop(rt);
            drop(stuck);
        }
        eventually(|| threads() <= before, || format!("{} threads, {before} before", threads()));
    });
}

// C-18, S1-103, S1-104: the deadline of a scope fires although the worker that keeps it is stuck in the scope's own body: the child,
// which lives on another worker, is cancelled, and only that lets the body go on.
#[test]
fn a_stuck_worker_does_not_hold_up_deadlines() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 2).build().unwrap();
    struct Tells(mpsc::Sender<ThreadId>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(thread_id()).unwrap();
        }
    }
    let (ready, is_ready) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let result = rt.run(move || {
        let here = thread_id();
        fibra::Scope::builder().timeout(MOMENT).run(|s| {
            let child = move || {
                let _tells = Tells(tell);
                ready.send(()).unwrap();
                let _ = never::<()>().recv();
            };
            Builder::new().spread().spawn_scoped(s, child).unwrap();
            // Blocks the worker that keeps the deadline, until the child is unwinding. (If it has not begun when the deadline comes, it
            // never does; the deadline has come all the same.)
            if is_ready.recv().is_ok() {
                assert_ne!(told.recv().unwrap(), here);
            }
        })
    });
    assert!(result.is_err(), "the scope timed out");
}

// The same of a plain thread's scope, whose deadline is kept by a worker that is stuck.
#[test]
fn deadlines_of_threads_do_not_depend_on_a_worker() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 1).build().unwrap();
    let gate = Gate::default();
    let stuck = gate.stuck(&rt);
    eventually(|| gate.inside() == 1, || "it does not start".to_owned());
    let _entered = rt.handle().enter();
    // (A thread that comes too late to wait sees for itself that its time is up.)
    while pool(&rt).rescued_deadlines == 0 {
        let result = fibra::Scope::builder().timeout(MOMENT).run(|_| never::<()>().recv());
        assert!(result.is_err());
    }
    gate.open();
    stuck.join().unwrap();
}

// C-18: an async receive from a timer is called in time although the worker on which it was polled is stuck, in that very fiber.
#[test]
fn a_stuck_worker_does_not_hold_up_async_timers() {
    struct Calls(Mutex<bool>, Condvar);
    impl std::task::Wake for Calls {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
    }
    let _watchdog = watchdog(120);
    let rt = elastic(1, 1).build().unwrap();
    for timer in [after, tick] {
        rt.run(|| {
            let timer = timer(MOMENT);
            let calls = Arc::new(Calls(Mutex::new(false), Condvar::new()));
            let waker = std::task::Waker::from(calls.clone());
            let mut context = std::task::Context::from_waker(&waker);
            let mut future = std::pin::pin!(timer.recv_async());
            if future.as_mut().poll(&mut context).is_ready() {
                return; // A loaded machine: the moment is over already.
            }
            // Blocks the worker that keeps the time.
            drop(calls.1.wait_while(calls.0.lock().unwrap(), |called| !*called).unwrap());
            assert!(future.as_mut().poll(&mut context).is_ready());
        });
    }
}

// S4-87 to S4-90: `FIBRA_STATS` prints what the metrics say when a runtime ends, for people and as JSON, and on a signal.
#[test]
fn statistics_are_printed_at_the_end_and_on_a_signal() {
    const TEST: &str = "statistics_are_printed_at_the_end_and_on_a_signal";
    if is_child(TEST) {
        let _watchdog = watchdog(120);
        // (Room for one more: where threads get no processor for long, a second one would come.)
        let built = elastic(1, 2).name("sta\"ts").build();
        let Ok(rt) = built else {
            println!("refused: {}", built.unwrap_err());
            return;
        };
        let gate = Gate::default();
        let stuck = gate.stuck(&rt);
        eventually(|| gate.inside() == 1, || "it does not start".to_owned());
        rt.spawn(|| ()).join().unwrap();
        if std::env::var_os("FIBRA_STATS_SIGNAL").is_some() {
            // Listeners are told one after the other, the runtime's before this one: when this one has heard it, all is printed.
            let heard = fibra::signal::listen(fibra::signal::Signal::USR2).unwrap();
            // SAFETY: a signal to this very process, which is listened to.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
            heard.recv().unwrap();
        }
        gate.open();
        stuck.join().unwrap();
        return;
    }
    let mark = "fibra: statistics of \"sta\"ts\"";
    let text = rerun_self(TEST, &[("FIBRA_STATS", "1")]).stderr;
    assert_eq!(text.matches(mark).count(), 1, "{text}");
    for part in [
        "positive_samples",
        "negative_samples",
        "negative_streak_max",
        "current",
        "passes",
        "promoted 1",
        "no_work",
        "nonpositive",
        "idle_capacity",
        "not_stuck",
        "injector_overflows",
        "stacks_fresh",
        "worker 0",
        "worker 1",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let json = rerun_self(TEST, &[("FIBRA_STATS", "json")]).stderr;
    let line = json.lines().find(|line| line.starts_with("{\"runtime\":\"sta\\\"ts\",\"fibers\":{")).expect(&json);
    for part in ["\"promoted\":1", "\"state\":\"", "\"idle_capacity\":", "\"workers\":[{"] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(line.ends_with("]}"), "{line}");
    assert_eq!(line.matches('{').count(), line.matches('}').count());
    let text = rerun_self(TEST, &[("FIBRA_STATS_SIGNAL", "USR2")]).stderr;
    assert_eq!(text.matches(mark).count(), 1, "at the signal, and not at the end: {text}");
    assert!(!rerun_self(TEST, &[]).stderr.contains(mark));
    for (variable, value) in [("FIBRA_STATS", "please"), ("FIBRA_STATS_SIGNAL", "KILL")] {
        let refused = rerun_self(TEST, &[(variable, value)]).stdout;
        assert!(refused.contains("refused") && refused.contains(variable) && refused.contains(value), "{refused}");
    }
}

// S1-114: what is out of range is refused, with the option and its value.
#[test]
fn odd_values_are_refused() {
    for (built, option) in [
        (Runtime::builder().stall_after(Duration::ZERO).build(), "stall_after"),
        (Runtime::builder().scale_interval(Duration::from_secs(3601)).build(), "scale_interval"),
        (Runtime::builder().temp_idle_timeout(Duration::MAX).build(), "temp_idle_timeout"),
    ] {
        let error = built.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(option), "{error}");
    }
    let rt = elastic(1, 3).build().unwrap();
    for workers in [0, 4] {
        let error = rt.set_workers(workers).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("set_workers({workers})")), "{error}");
    }
    assert_eq!(pool(&rt).workers, 1);
    let rt = Runtime::current_thread().unwrap();
    assert_eq!(rt.set_workers(1).unwrap_err().kind(), std::io::ErrorKind::Unsupported);
    assert_eq!(pool(&rt).max_workers, 1);
}

// S1-114: each has a variable, which is checked like the option.
#[test]
fn the_environment_sets_what_the_builder_does_not() {
    const TEST: &str = "the_environment_sets_what_the_builder_does_not";
    if is_child(TEST) {
        match Runtime::builder().workers(1).max_workers(2).build() {
            Err(error) => println!("refused: {error}"),
            Ok(rt) => {
                let _watchdog = watchdog(120);
                let gate = Gate::default();
                let stuck = gate.stuck(&rt);
                eventually(|| gate.inside() == 1, || "it does not start".to_owned());
                rt.spawn(|| ()).join().unwrap();
                eventually(|| pool(&rt).retired == 1, || format!("{:?}", pool(&rt)));
                gate.open();
                stuck.join().unwrap();
                println!("came and went");
            }
        }
        return;
    }
    let quick = [("FIBRA_STALL_AFTER_MS", "5"), ("FIBRA_SCALE_INTERVAL_MS", "5"), ("FIBRA_TEMP_IDLE_MS", "5")];
    let ended = rerun_self(TEST, &quick);
    assert!(ended.status.success() && ended.stdout.contains("came and went"), "{ended:?}");
    for (variable, _) in quick {
        for value in ["0", "soon", "3600001"] {
            let ended = rerun_self(TEST, &[(variable, value)]);
            assert!(ended.stdout.contains("refused") && ended.stdout.contains(variable), "{ended:?}");
        }
    }
}
