//! `JoinSet`: results in the order in which fibers end, from fibers, threads and async code; cancellation, panics, drops; nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support;
use fibra::channel::{bounded, unbounded};
use fibra::{Builder, JoinSet, Runtime};

const LONG: Duration = Duration::from_secs(3600);

/// Runs a test on fibers of one worker, of two, and on a plain thread that has entered a runtime.
fn everywhere(test: impl Fn() + Sync) {
    let _watchdog = support::watchdog(120);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        runtime.run(&test);
        let entered = runtime.handle().enter();
        test();
        drop(entered);
        runtime.shutdown_timeout(Duration::from_secs(10)).unwrap();
    }
}

/// Counts how many there are.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn silent<T>(text: &'static str) -> T {
    std::panic::resume_unwind(Box::new(text))
}

/// Fibers that end one after the other, in an order of the test's choice: the next one is told when the last one was taken.
#[test]
fn results_come_in_the_order_of_the_ends() {
    everywhere(|| {
        let mut set = JoinSet::new();
        let gates: Vec<_> = (0..10)
            .map(|n| {
                let (open, opened) = bounded::<()>(1);
                set.spawn(move || {
                    opened.recv().unwrap();
                    n
                });
                open
            })
            .collect();
        assert_eq!(set.len(), 10);
        assert!(set.try_join_next().is_none());
        for n in [3, 9, 0, 1, 8, 2, 7, 4, 6, 5] {
            gates[n].send(()).unwrap();
            assert_eq!(set.join_next().unwrap().unwrap(), n);
        }
        assert!(set.is_empty() && set.join_next().is_none() && set.try_join_next().is_none());
        // And those that have all ended before the set is asked.
        let (open, opened) = bounded(1);
        let order = [2, 0, 1];
        for n in order {
            let (open, opened) = (open.clone(), opened.clone());
            set.spawn(move || {
                if n != order[0] {
                    opened.recv().unwrap();
                }
                open.send(()).unwrap();
                n
            });
        }
        while set.try_join_next().is_none() {
            fibra::yield_now();
        }
        assert_eq!(set.len(), 2);
        set.shutdown();
    });
}

#[test]
fn many_pass_through_a_set() {
    everywhere(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut set = JoinSet::new();
        let mut sum = 0;
        let mut take = |set: &mut JoinSet<(u64, Counted)>| sum += set.join_next().unwrap().unwrap().0;
        for n in 0..10_000_u64 {
            let counted = Counted::new(&alive);
            set.spawn(move || {
                if n % 3 == 0 {
                    fibra::yield_now();
                }
                (n, counted)
            });
            if set.len() > 100 + (n as usize % 7) {
                take(&mut set);
            }
        }
        while !set.is_empty() {
            take(&mut set);
        }
        assert_eq!((sum, alive.load(SeqCst)), (9_999 * 10_000 / 2, 0));
        // All at once.
        set.extend((0..10_000).map(|n| {
            let counted = Counted::new(&alive);
            move || (n, counted)
        }));
        assert_eq!(set.len(), 10_000);
        let all = set.join_all();
        assert_eq!((all.len(), all.iter().map(|(n, _)| n).sum::<u64>()), (10_000, 9_999 * 10_000 / 2));
        drop(all);
        assert_eq!(alive.load(SeqCst), 0);
    });
}

#[test]
fn every_kind_of_fiber() {
    everywhere(|| {
        let mut set = JoinSet::new();
        set.spawn(|| 1);
        set.spawn_blocking(|| 2);
        set.spawn_future(async { 3 });
        if fibra::current().is_some() {
            set.spawn_local(|| 4);
        } else {
            set.spawn(|| 4);
        }
        let named = Builder::new().name("five").spawn(|| 5).unwrap();
        let id = named.id();
        assert_eq!(set.insert(named), id);
        // One that has ended before it comes into the set.
        let ended = fibra::spawn(|| 6);
        ended.wait();
        set.insert(ended);
        let mut all = set.join_all();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn panics_and_cancellations_are_results() {
    everywhere(|| {
        let mut set = JoinSet::new();
        let panics = set.spawn(|| silent::<()>("no luck"));
        let error = set.join_next().unwrap().unwrap_err();
        assert!(error.is_panic() && error.message() == "no luck" && error.fiber() == panics);
        set.spawn(|| fibra::sleep(LONG));
        set.spawn(|| fibra::sleep(LONG));
        set.cancel_all();
        assert!(set.join_next().unwrap().unwrap_err().is_cancelled());
        assert!(set.join_next().unwrap().unwrap_err().is_cancelled());
        // `join_all` passes a panic on.
        set.spawn(|| fibra::sleep(LONG));
        set.spawn(|| silent("again"));
        let caught = catch_unwind(AssertUnwindSafe(|| set.join_all()));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"again"));
    });
}

// A child of a scope: a joiner takes its panic; if there is none, it is the scope's.
#[test]
fn children_of_a_scope() {
    everywhere(|| {
        let words = ["a", "bb", "ccc"];
        let mut lengths = fibra::scope(|s| {
            let mut set = JoinSet::new();
            set.insert(s.spawn(|| silent("taken")));
            assert_eq!(set.join_next().unwrap().unwrap_err().message(), "taken");
            words.iter().for_each(|word| _ = set.insert(s.spawn(|| word.len())));
            set.join_all()
        });
        lengths.sort_unstable();
        assert_eq!(lengths, [1, 2, 3]);

        let caught = catch_unwind(AssertUnwindSafe(|| {
            fibra::scope(|s| {
                let mut set = JoinSet::new();
                set.insert(s.spawn(|| fibra::sleep(LONG)));
                set.insert(s.spawn(|| silent("the scope's")));
                fibra::sleep(LONG);
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"the scope's"));
    });
}

#[test]
fn dropping_cancels_and_detaching_does_not() {
    everywhere(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let (started, has_started) = unbounded();
        let (go, gone) = unbounded::<()>();
        let mut set = JoinSet::new();
        for n in 0..100 {
            let (counted, started, gone) = (Counted::new(&alive), started.clone(), gone.clone());
            set.spawn(move || {
                started.send(()).unwrap();
                match n % 4 {
                    0 => {}
                    1 => drop(gone.recv()),
                    2 => silent("while the set is dropped"),
                    _ => fibra::sleep(LONG),
                }
                counted
            });
        }
        // Some before they have started, some before they have ended.
        has_started.recv().unwrap();
        drop(set);
        wait_for_none(&alive);

        let (done, is_done) = unbounded();
        let mut set = JoinSet::new();
        for _ in 0..10 {
            let (counted, gone, done) = (Counted::new(&alive), gone.clone(), done.clone());
            set.spawn(move || {
                gone.recv().unwrap();
                done.send(()).unwrap();
                counted
            });
        }
        set.detach_all();
        assert!(set.is_empty() && set.join_next().is_none());
        drop(set);
        (0..10).for_each(|_| go.send(()).unwrap());
        (0..10).for_each(|_| is_done.recv().unwrap());
        wait_for_none(&alive);
    });
}

#[track_caller]
fn wait_for_none(alive: &AtomicUsize) {
    let patience = fibra::time::Instant::now() + Duration::from_secs(30 * support::SLOWDOWN);
    while alive.load(SeqCst) > 0 {
        assert!(fibra::time::Instant::now() < patience, "{} are left", alive.load(SeqCst));
        fibra::sleep(Duration::from_millis(1));
    }
}

#[test]
fn shutdown_waits_for_all() {
    everywhere(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut set = JoinSet::new();
        for n in 0..1000 {
            let counted = Counted::new(&alive);
            set.spawn(move || {
                if n % 2 == 0 {
                    fibra::sleep(LONG);
                }
                counted
            });
            if n % 100 == 0 {
                fibra::yield_now();
            }
        }
        set.shutdown();
        assert_eq!((set.len(), alive.load(SeqCst)), (0, 0));
        set.shutdown();
    });
}

#[test]
fn a_deadline_takes_nothing() {
    everywhere(|| {
        let mut set = JoinSet::new();
        let (open, opened) = bounded(1);
        set.spawn(move || opened.recv().unwrap());
        assert!(set.join_next_timeout(Duration::ZERO).is_err());
        assert!(set.join_next_timeout(Duration::from_millis(2)).is_err());
        assert!(set.join_next_deadline(fibra::time::Instant::now()).is_err());
        assert_eq!(set.len(), 1);
        open.send(7).unwrap();
        assert_eq!(set.join_next_timeout(Duration::MAX).unwrap().unwrap().unwrap(), 7);
        assert!(set.join_next_timeout(LONG).unwrap().is_none());
        assert!(set.join_next_timeout(Duration::ZERO).unwrap().is_none());
    });
}

// A caller that is cancelled while it waits has taken nothing: another one finds everything. Again and again, at whatever moment.
#[test]
#[allow(clippy::disallowed_types)] // Held for a moment, never across a wait.
fn a_cancelled_wait_loses_nothing() {
    const EACH: u64 = 200;
    type Place = Arc<std::sync::Mutex<Option<JoinSet<u64>>>>;
    /// Puts the set back when its fiber unwinds.
    struct Borrowed(Option<JoinSet<u64>>, Place);
    impl Drop for Borrowed {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = self.0.take();
        }
    }
    everywhere(|| {
        for round in 0..50 {
            let mut set = JoinSet::new();
            // The last one to end waits for a few takers to come, and to be cancelled.
            let (open, opened) = bounded::<()>(1);
            set.spawn(move || opened.recv().map_or(0, |()| 0));
            set.extend((0..EACH).map(|n| {
                move || {
                    (0..(n + round) % 5).for_each(|_| fibra::yield_now());
                    n
                }
            }));
            let place: Place = Arc::new(std::sync::Mutex::new(Some(set)));
            let sum = Arc::new(AtomicUsize::new(0));
            for taken in 0.. {
                if taken == 5 {
                    open.send(()).unwrap();
                }
                let (from, total) = (place.clone(), sum.clone());
                let taker = fibra::spawn(move || {
                    let set = from.lock().unwrap().take();
                    let mut borrowed = Borrowed(set, from);
                    while let Some(result) = borrowed.0.as_mut().unwrap().join_next() {
                        total.fetch_add(result.unwrap() as usize, SeqCst);
                    }
                });
                fibra::yield_now();
                taker.cancel();
                assert!(taker.join().is_err() || taken >= 5);
                if place.lock().unwrap().as_ref().unwrap().is_empty() {
                    break;
                }
            }
            assert_eq!(sum.load(SeqCst) as u64, EACH * (EACH - 1) / 2);
        }
    });
}

#[test]
fn as_an_arm_of_a_select() {
    everywhere(|| {
        let (jobs, queue) = unbounded();
        (0..100_u64).for_each(|n| jobs.send(n).unwrap());
        drop(jobs);
        let (mut set, mut open, mut sum) = (JoinSet::new(), true, 0);
        while open || !set.is_empty() {
            fibra::select! {
                recv(queue) -> job, if open && set.len() < 5 => match job {
                    Ok(n) => _ = set.spawn(move || { fibra::yield_now(); n }),
                    Err(_) => open = false,
                },
                on(set.joining()) -> result, if !set.is_empty() => sum += result.unwrap().unwrap(),
            }
        }
        assert_eq!(sum, 99 * 100 / 2);
        // An empty set is ready at once, with nothing; an arm that loses takes nothing.
        let nothing = fibra::select! { on(set.joining()) -> result => result.is_none() };
        assert!(nothing);
        let (open, opened) = bounded(1);
        set.spawn(move || opened.recv().unwrap());
        let lost = fibra::select! {
            on(set.joining()) -> _result => false,
            after(Duration::from_millis(1)) => true,
        };
        assert!(lost && set.len() == 1);
        open.send(5).unwrap();
        let five = fibra::select! { on(set.joining()) -> result => result.unwrap().unwrap() };
        assert_eq!(five, 5);
    });
}

#[test]
fn as_a_future() {
    everywhere(|| {
        let mut set = JoinSet::new();
        let gates: Vec<_> = (0..3)
            .map(|n| {
                let (open, opened) = bounded::<()>(1);
                set.spawn(move || opened.recv().map_or(99, |()| n));
                open
            })
            .collect();
        // Polled in vain, forgotten, dropped: the set is as it was.
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, SeqCst);
            }
        }
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(flag.clone());
        let poll = |set: &mut JoinSet<i32>, forget: bool| {
            let mut next = set.join_next_async();
            let polled = std::pin::Pin::new(&mut next).poll(&mut Context::from_waker(&waker));
            if forget {
                std::mem::forget(next);
            }
            polled
        };
        use std::future::Future;
        assert!(poll(&mut set, false).is_pending());
        assert!(poll(&mut set, true).is_pending());
        gates[1].send(()).unwrap();
        // A forgotten future does not keep the notification for itself.
        assert_eq!(set.join_next().unwrap().unwrap(), 1);
        support::eventually(|| fibra::current().is_some() || flag.0.load(SeqCst), || "the waker was not called".into());
        gates[2].send(()).unwrap();
        assert_eq!(fibra::block_on(set.join_next_async()).unwrap().unwrap(), 2);
        gates[0].send(()).unwrap();
        let rest = fibra::block_on(async {
            let first = set.join_next_async().await.unwrap().unwrap();
            (first, set.join_next_async().await.is_none())
        });
        assert_eq!(rest, (0, true));
        assert!(matches!(poll(&mut set, false), Poll::Ready(None)));
    });
}

// From the thread of a foreign executor, and with a set that outlives its runtime.
#[test]
fn a_set_outlives_its_runtime() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let mut set = JoinSet::new();
    {
        let _entered = runtime.handle().enter();
        set.spawn(|| "done".to_owned());
        set.spawn(|| {
            fibra::sleep(LONG);
            "never".to_owned()
        });
    }
    assert_eq!(set.join_next().unwrap().unwrap(), "done");
    runtime.shutdown_timeout(Duration::from_secs(10)).unwrap();
    assert!(set.join_next().unwrap().unwrap_err().is_cancelled());
    // One that is refused is a member that has ended.
    let late = Runtime::builder().workers(1).max_fibers(1).build().unwrap();
    late.run(move || {
        let only = fibra::spawn(|| fibra::sleep(LONG)).cancel_on_drop();
        set.spawn(|| "too many".to_owned());
        assert!(set.join_next().unwrap().unwrap_err().is_cancelled());
        assert!(set.is_empty());
        drop(only);
    });
}

// A value's destructor panics while the set is dropped: everything else goes all the same.
#[test]
fn a_destructor_that_panics_leaves_nothing_behind() {
    struct Bomb(#[allow(dead_code)] Counted, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.1 {
                silent("a bomb")
            }
        }
    }
    everywhere(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut set = JoinSet::new();
        for n in 0..20 {
            let counted = Counted::new(&alive);
            let fiber = fibra::spawn(move || {
                if n > 15 {
                    fibra::sleep(LONG);
                }
                Bomb(counted, n == 3)
            });
            if n <= 15 {
                fiber.wait();
            }
            set.insert(fiber);
        }
        let caught = catch_unwind(AssertUnwindSafe(|| drop(set)));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"a bomb"));
        wait_for_none(&alive);
    });
}

#[test]
fn traits() {
    fn is_send<T: Send + Sync>() {}
    is_send::<JoinSet<u32>>();
    is_send::<JoinSet<std::cell::Cell<u32>>>();
    fn future_is_send<T: Send>(_: &T) {}
    let mut set = JoinSet::<u32>::default();
    future_is_send(&set.join_next_async());
    assert_eq!(format!("{set:?}"), "JoinSet { len: 0, .. }");
    assert_eq!(format!("{:?}", set.joining()), "JoinNext { len: 0, .. }");
    // Without a runtime, an empty set answers at once.
    assert!(set.join_next().is_none());
    let _: JoinSet<std::rc::Rc<u32>> = JoinSet::new();
}
