//! Several runtimes in one process: they join and wake one another's fibers, and end independently.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support;
use crate::support::{is_child, rerun_self, watchdog};
use crate::tools::{Counter, Event, Rng, many, turns};

fn runtime(name: &str, workers: usize) -> fibra::Runtime {
    fibra::Runtime::builder().workers(workers).name(name).build().unwrap()
}

// S0-62: fibers of each runtime spawn on the others and join what they get.
#[test]
fn joins_cross_from_runtime_to_runtime() {
    let _watchdog = watchdog(120);
    let runtimes = [runtime("one", 1), runtime("two", 2), runtime("three", 3)];
    let handles: Vec<_> = runtimes.iter().map(fibra::Runtime::handle).collect();
    std::thread::scope(|scope| {
        for (index, rt) in runtimes.iter().enumerate() {
            let handles = handles.clone();
            scope.spawn(move || {
                rt.run(|| {
                    let fibers: Vec<_> = (0..many(300))
                        .map(|count| {
                            let other = handles[(index + count) % 3].clone();
                            let third = handles[(index + count + 1) % 3].clone();
                            fibra::spawn(move || {
                                let far = other.spawn(move || third.spawn(move || count * 2).join().unwrap() + 1);
                                far.join().unwrap()
                            })
                        })
                        .collect();
                    for (count, fiber) in fibers.into_iter().enumerate() {
                        assert_eq!(fiber.join().unwrap(), count * 2 + 1);
                    }
                });
            });
        }
    });
}

// S1-39: a wake from another runtime brings a fiber back to its own.
#[test]
fn wakes_cross_from_runtime_to_runtime() {
    let _watchdog = watchdog(120);
    let (here, there) = (runtime("here", 2), runtime("there", 2));
    let mut rng = Rng::new();
    let events: Arc<Vec<Event>> = Arc::new((0..many(500)).map(|_| Event::new()).collect());
    let waiters: Vec<_> = (0..events.len())
        .map(|index| {
            let events = events.clone();
            here.spawn(move || {
                events[index].wait();
                std::thread::current().name().map(str::to_owned)
            })
        })
        .collect();
    let mut order: Vec<usize> = (0..events.len()).collect();
    (1..order.len()).rev().for_each(|index| order.swap(index, rng.below(index + 1)));
    let setters: Vec<_> = order
        .into_iter()
        .map(|index| {
            let events = events.clone();
            there.spawn(move || events[index].set())
        })
        .collect();
    setters.into_iter().for_each(|setter| setter.join().unwrap());
    for waiter in waiters {
        let name = waiter.join().unwrap().unwrap_or_default();
        if !cfg!(fibra_context = "thread") {
            assert!(name.starts_with("here-worker-"), "{name}");
        }
    }
}

// S0-66: one ends while the others go on, over and over, with wakes that arrive late.
#[test]
fn runtimes_end_beside_others_that_wake_their_fibers() {
    let _watchdog = watchdog(120);
    let lasting = runtime("lasting", 2);
    for _ in 0..turns(200) {
        let short = runtime("short", 2);
        let counter = Counter::new();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let (counter, done) = (counter.clone(), done.clone());
            drop(short.spawn(move || {
                counter.wait(1);
                done.fetch_add(1, SeqCst);
            }));
        }
        let waker = lasting.spawn(move || counter.add(1));
        // It may be cancelled before, while or after it is woken.
        drop(short);
        waker.join().unwrap();
        assert!(done.load(SeqCst) <= 20);
    }
    assert_eq!(lasting.metrics().live, 0);
}

// S0-63: `fibra::run` uses the calling thread and starts one thread fewer than it has workers (and the system monitor, if wanted).
#[test]
fn run_uses_the_calling_thread() {
    const TEST: &str = "run_uses_the_calling_thread";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let sysmon = usize::from(std::env::var("FIBRA_SYSMON").is_err());
        let (before, here) = (support::threads(), std::thread::current().id());
        let mut local = 1;
        let counts = fibra::run(|| {
            local += 1; // Neither `Send` nor `'static`.
            #[cfg(not(fibra_context = "thread"))]
            assert_eq!(std::thread::current().id(), here);
            support::threads()
        });
        let own = usize::from(cfg!(fibra_context = "thread"));
        assert_eq!((counts, local), (before + 2 + sysmon + own, 2), "{here:?}");
        return;
    }
    for variables in [&[("FIBRA_WORKERS", "3"), ("FIBRA_SYSMON", "0")][..], &[("FIBRA_WORKERS", "3")]] {
        let ended = rerun_self(TEST, variables);
        assert!(ended.status.success(), "{ended:?}");
    }
}
