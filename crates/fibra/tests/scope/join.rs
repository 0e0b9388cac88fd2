//! Joining: before and after the end, by fibers, threads and async code, many at once, with a deadline, or not at all.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support;
use fibra::{Builder, JoinHandle, Runtime};

const LONG: Duration = Duration::from_secs(3600);

/// A foreign executor: polls on a plain thread and knows nothing of fibra.
fn foreign_block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A fiber that ends when told to.
fn held<T: Send + 'static>(runtime: &Runtime, value: T) -> (JoinHandle<T>, Arc<AtomicBool>) {
    let go = Arc::new(AtomicBool::new(false));
    let seen = go.clone();
    let fiber = runtime.spawn(move || {
        while !seen.load(SeqCst) {
            fibra::sleep(Duration::from_millis(1));
        }
        value
    });
    (fiber, go)
}

// X-15, S1-22, S1-52: before and after the end, from a fiber and from a thread; what the fiber wrote is seen by who joined.
#[test]
fn joining_works_before_and_after_the_end() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    // After the end, by a thread.
    let early = runtime.spawn(|| vec![1, 2, 3]);
    early.wait();
    assert!(early.is_finished());
    assert_eq!(early.join().unwrap(), [1, 2, 3]);
    // Before the end, by a thread.
    let (fiber, go) = held(&runtime, "value".to_owned());
    let joiner = std::thread::spawn(move || fiber.join().unwrap());
    go.store(true, SeqCst);
    assert_eq!(joiner.join().unwrap(), "value");
    // Before the end and after it, by fibers.
    runtime.run(|| {
        let child = fibra::spawn(|| {
            fibra::sleep(Duration::from_millis(2));
            Box::new(4)
        });
        assert_eq!(*child.join().unwrap(), 4);
        let child = fibra::spawn(|| 5);
        child.wait();
        assert_eq!(child.join().unwrap(), 5);
    });
}

// X-15, S1-87: the result outlives the fiber, its stack, and the runtime.
#[test]
fn a_result_outlives_its_runtime() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let fiber = runtime.spawn(|| "still there".to_owned());
    fiber.wait();
    let held = Builder::new().name("late");
    let cancelled = runtime.handle().spawn_with(held, || fibra::sleep(LONG)).unwrap();
    drop(runtime);
    assert_eq!(fiber.join().unwrap(), "still there");
    let error = cancelled.join().unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.name(), Some("late"));
}

// X-15, S4-24, S1-64, S1-66, G-13: many joiners of all three kinds at once; all are woken, each once. Their nodes are gone as soon as they
// are let go (AddressSanitizer sees who touches one after that).
#[test]
fn many_may_wait_at_once() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for _ in 0..20 {
        let (fiber, go) = held(&runtime, 7);
        let fiber = Arc::new(fiber);
        let woken = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (fiber, woken) = (fiber.clone(), woken.clone());
                std::thread::spawn(move || {
                    fiber.wait();
                    assert!(fiber.is_finished());
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        let fibers: Vec<_> = (0..16)
            .map(|i| {
                let (fiber, woken) = (fiber.clone(), woken.clone());
                runtime.spawn(move || {
                    if i % 2 == 0 {
                        fiber.wait();
                    } else {
                        assert!(fiber.wait_timeout(LONG));
                    }
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        go.store(true, SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(woken.load(SeqCst), 20);
        let fiber = Arc::into_inner(fiber).expect("all joiners are gone");
        assert_eq!(fiber.join().unwrap(), 7);
    }
}

// S1-65, S4-31, S4-32: a joiner whose time is up takes itself out of the list, learns why, and may wait again.
#[test]
fn a_join_with_a_deadline_hands_the_handle_back() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let body = |runtime: &Runtime| {
        let (mut fiber, go) = held(runtime, 9);
        for _ in 0..5 {
            fiber = fiber.join_timeout(Duration::from_millis(1)).expect_err("it has not ended");
            assert!(!fiber.wait_timeout(Duration::ZERO));
            assert!(!fiber.wait_deadline(fibra::time::Instant::now()));
            fiber = fiber.join_deadline(fibra::time::Instant::now()).expect_err("it has not ended");
            fiber = fiber.try_join().expect_err("it has not ended");
        }
        go.store(true, SeqCst);
        assert_eq!(fiber.join_timeout(LONG).expect("it ends").unwrap(), 9);
    };
    body(&runtime);
    let inner = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| body(&inner));
}

// S1-50, S1-57, S4-44: the end of the fiber races with the deadline of its joiner, again and again; both answers are right.
#[test]
fn stress_the_end_may_race_with_the_deadline() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let mut ended = 0;
        for i in 0..3000u64 {
            let fiber = fibra::spawn(move || {
                fibra::sleep(Duration::from_nanos(i % 7 * 10_000));
                i
            });
            match fiber.join_timeout(Duration::from_nanos(i % 11 * 8_000)) {
                Ok(result) => {
                    ended += 1;
                    assert_eq!(result.unwrap(), i);
                }
                Err(fiber) => assert_eq!(fiber.join().unwrap(), i),
            }
        }
        println!("{ended} of 3000 ended in time");
    });
}

// S1-61, S1-62, S1-63, S4-30, S4-04: joining races with the end, from threads and fibers, in every shortcut there is: before it starts,
// while it ends, after it has ended. No joiner is overlooked.
#[test]
fn stress_joining_may_race_with_the_end() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..5000u32 {
        let fiber = runtime.spawn(move || round);
        for _ in 0..round % 200 {
            std::hint::spin_loop();
        }
        assert_eq!(fiber.join().unwrap(), round);
    }
    runtime.run(|| {
        for round in 0..5000u32 {
            let fiber = fibra::spawn(move || {
                if round % 3 == 0 {
                    fibra::yield_now();
                }
                round
            });
            if round % 5 == 0 {
                fibra::yield_now();
            }
            assert_eq!(fiber.join().unwrap(), round);
        }
    });
}

#[test]
fn try_join_takes_what_is_there() {
    fibra::run(|| {
        let fiber = fibra::spawn(|| "ready");
        fiber.wait();
        assert_eq!(fiber.try_join().expect("it has ended").unwrap(), "ready");
    });
}

// A fiber that waits for itself would never end: an error and a panic say so.
#[test]
fn joining_oneself_is_an_error() {
    let _watchdog = support::watchdog(60);
    fn with_own_handle(body: fn(JoinHandle<()>)) -> Result<(), fibra::JoinError> {
        let (give, take) = std::sync::mpsc::channel::<JoinHandle<()>>();
        let (tell, told) = std::sync::mpsc::channel();
        let fiber = fibra::spawn_local(move || {
            let mine = loop {
                match take.try_recv() {
                    Ok(handle) => break handle,
                    Err(_) => fibra::yield_now(),
                }
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(mine)));
            tell.send(result).unwrap();
        });
        give.send(fiber).unwrap();
        loop {
            match told.try_recv() {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(payload)) => std::panic::resume_unwind(payload),
                Err(_) => fibra::yield_now(),
            }
        }
    }
    fibra::run(|| {
        with_own_handle(|mine| {
            let error = mine.join().unwrap_err();
            assert!(error.message().contains("itself"), "{error}");
        })
        .unwrap();
        with_own_handle(|mine| {
            let error = mine.join_timeout(LONG).expect("at once").unwrap_err();
            assert!(error.message().contains("itself"), "{error}");
        })
        .unwrap();
        with_own_handle(|mine| {
            let error = fibra::block_on(mine.into_future()).unwrap_err();
            assert!(error.message().contains("itself"), "{error}");
        })
        .unwrap();
        let waits = std::panic::catch_unwind(|| with_own_handle(|mine| mine.wait()));
        let text = waits.unwrap_err();
        assert!(text.downcast_ref::<&str>().unwrap().contains("its own end"));
    });
}

#[test]
fn a_timed_wait_for_oneself_ends() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (give, take) = std::sync::mpsc::channel::<JoinHandle<bool>>();
        let fiber = fibra::spawn_local(move || {
            fibra::yield_now();
            match take.try_recv() {
                Ok(mine) => mine.wait_timeout(Duration::from_millis(1)),
                Err(_) => false,
            }
        });
        give.send(fiber).unwrap();
    });
}

// awaited from an executor that knows nothing of fibra, and from spawn_future and block_on.
#[test]
fn a_handle_can_be_awaited_anywhere() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let (fiber, go) = held(&runtime, "awaited".to_owned());
    let foreign = std::thread::spawn(move || foreign_block_on(fiber.into_future()).unwrap());
    go.store(true, SeqCst);
    assert_eq!(foreign.join().unwrap(), "awaited");
    for i in 0..1000 {
        let fiber = runtime.spawn(move || i);
        assert_eq!(foreign_block_on(async { fiber.await }).unwrap(), i);
    }
    runtime.run(|| {
        let fiber = fibra::spawn(|| {
            fibra::sleep(Duration::from_millis(1));
            1
        });
        assert_eq!(fibra::block_on(fiber.into_future()).unwrap(), 1);
        let inner = fibra::spawn(|| {
            fibra::sleep(Duration::from_millis(1));
            2
        });
        assert_eq!(fibra::spawn_future(inner.into_future()).join().unwrap().unwrap(), 2);
        let panics = fibra::spawn(|| panic!("through await"));
        assert!(fibra::block_on(panics.into_future()).unwrap_err().is_panic());
    });
}

// S4-24, S4-32: a future dropped while it waits leaves the list; the fiber goes on, detached.
#[test]
fn an_await_may_be_dropped_in_the_middle() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    for round in 0..200 {
        let ended = ended.clone();
        let fiber = runtime.spawn(move || {
            if round % 2 == 0 {
                fibra::sleep(Duration::from_micros(round));
            }
            ended.fetch_add(1, SeqCst);
            vec![round]
        });
        let mut future = Box::pin(fiber.into_future());
        for _ in 0..round % 4 {
            // Polled again and again, each time with another waker.
            if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                break;
            }
        }
        drop(future);
    }
    support::eventually(|| ended.load(SeqCst) == 200, || format!("{} of 200", ended.load(SeqCst)));
}

// S4-92, S4-95: a forgotten future leaves nothing that dangles.
#[test]
fn a_forgotten_await_does_no_harm() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (fiber, go) = held(&runtime, ());
    let mut future = Box::pin(fiber.into_future());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // Forgotten, but not lost: this test is AddressSanitizer's, and its LeakSanitizer finds it here.
    static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);
    std::hint::black_box(&FORGOTTEN).store(std::ptr::from_ref(&*future).addr(), SeqCst);
    std::mem::forget(future);
    go.store(true, SeqCst);
    for i in 0..100 {
        assert_eq!(runtime.spawn(move || i).join().unwrap(), i);
    }
}

// A waker that panics when it is called does not keep the other joiners asleep.
#[test]
fn a_waker_that_panics_does_not_stop_the_others() {
    let _watchdog = support::watchdog(60);
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (fiber, go) = held(&runtime, ());
    let shared = Arc::new(fiber);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let shared = shared.clone();
            runtime.spawn(move || shared.wait())
        })
        .collect();
    let (other, other_go) = held(&runtime, ());
    let mut future = Box::pin(other.into_future());
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Bad)))).is_pending());
    other_go.store(true, SeqCst);
    go.store(true, SeqCst);
    waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    // Polled again, with another waker, it is simply ready (or becomes so).
    assert!(foreign_block_on(future).is_ok());
    assert_eq!(runtime.spawn(|| 3).join().unwrap(), 3);
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// S4-105, S1-06: a result that no joiner takes is dropped exactly once, whichever of fiber and handle goes last.
#[test]
fn stress_a_result_that_no_joiner_takes_is_dropped_once() {
    let _watchdog = support::watchdog(120);
    let drops = Arc::new(AtomicUsize::new(0));
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..2000 {
        let counted = Counted(drops.clone());
        let fiber = runtime.spawn(move || {
            if round % 3 == 0 {
                fibra::yield_now();
            }
            // Larger than what a frame holds, every other time.
            (counted, [round; 4])
        });
        match round % 5 {
            0 => drop(fiber),
            1 => {
                fiber.wait();
                drop(fiber);
            }
            2 => drop(fiber.join().unwrap()),
            3 => drop(fiber.into_future()),
            // The end and the drop of the handle race.
            _ => {
                std::thread::yield_now();
                drop(fiber);
            }
        }
    }
    drop(runtime);
    assert_eq!(drops.load(SeqCst), 2000);
}

// S1-06: large results and large closures, which do not fit in a frame, are moved all the same.
#[test]
fn large_closures_and_results_are_moved() {
    fibra::run(|| {
        let large = [7u64; 1000];
        let fiber = fibra::spawn(move || {
            let mut large = large;
            large[999] = 8;
            large
        });
        let result = fiber.join().unwrap();
        assert_eq!((result[0], result[999]), (7, 8));
        #[repr(align(64))]
        struct Aligned(u8);
        let aligned = Aligned(1);
        let fiber = fibra::spawn(move || {
            assert_eq!(std::ptr::from_ref(&aligned).addr() % 64, 0);
            Aligned(aligned.0 + 1)
        });
        let result = fiber.join().unwrap();
        assert_eq!((result.0, std::ptr::from_ref(&result).addr() % 64), (2, 0));
    });
}

// S0-98: the new fiber owns all it starts with: the spawner's stack frame is gone before it runs.
#[test]
fn a_fiber_owns_what_it_starts_with() {
    #[inline(never)]
    fn start(i: u64) -> JoinHandle<u64> {
        let local = std::hint::black_box([i; 16]);
        fibra::spawn(move || local.iter().sum())
    }
    fibra::run(|| {
        let fibers: Vec<_> = (0..100).map(start).collect();
        for (i, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), i as u64 * 16);
        }
    });
}
