//! Panics stay in the fiber and come out of `join`; a detached one is counted once; what is thrown may itself misbehave.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use crate::support;
use crate::support::{is_child, rerun_self};
use fibra::{Builder, Runtime};

// S0-99, X-02: the panic is the fiber's, its worker goes on; message, payload, id and name come out of join.
#[test]
fn a_panic_comes_out_of_join() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let fiber = Builder::new()
            .name("clumsy")
            .spawn(|| -> u32 { panic!("dropped {} plates", std::hint::black_box(3)) })
            .unwrap();
        let id = fiber.id();
        let error = fiber.join().unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled() && !error.is_no_stack());
        assert_eq!((error.message(), error.fiber(), error.name()), ("dropped 3 plates", id, Some("clumsy")));
        let text = error.to_string();
        assert!(
            text.contains("clumsy") && text.contains("dropped 3 plates") && text.contains(&id.to_string()),
            "{text}"
        );
        assert_eq!(*error.into_panic().downcast::<String>().unwrap(), "dropped 3 plates");
        // The same worker, the only one, runs on.
        assert_eq!(fibra::spawn(|| 1).join().unwrap(), 1);
    });
}

// S0-99: payloads of any type come through; those that are text can be read.
#[test]
fn payloads_of_any_type_come_through() {
    fibra::run(|| {
        let fiber = fibra::spawn(|| panic_any(17u8));
        let error = fiber.join().unwrap_err();
        assert!(!error.message().is_empty());
        assert_eq!(*error.into_panic().downcast::<u8>().unwrap(), 17);
        let error = fibra::spawn(|| resume_unwind(Box::new("quiet"))).join().unwrap_err();
        assert_eq!(error.message(), "quiet");
        let cancelled = fibra::spawn(|| ());
        cancelled.cancel();
        if let Err(error) = cancelled.join() {
            assert!(error.try_into_panic().is_err(), "no panic, no payload");
        }
        let into_panic = fibra::spawn(|| panic!("x")).join().unwrap_err().into_panic();
        assert_eq!(*into_panic.downcast::<&str>().unwrap(), "x");
    });
}

#[test]
fn errors_of_joins_are_ordinary_errors() {
    fn ordinary<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
    fibra::run(|| {
        let error = fibra::spawn(|| panic!("boxed")).join().unwrap_err();
        ordinary(&error);
        let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
        assert!(boxed.to_string().contains("boxed"));
    });
}

// S0-99: destructors run while a fiber unwinds, on its own stack, and may block.
#[test]
fn destructors_of_a_panicking_fiber_run_and_may_block() {
    let _watchdog = support::watchdog(60);
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            // a fiber that waits while unwinding goes on unwinding on its own worker.
            let thread = std::thread::current().id();
            fibra::spawn(|| ()).join().unwrap();
            fibra::yield_now();
            assert_eq!(std::thread::current().id(), thread);
            self.0.fetch_add(1, SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                let slow = Slow(drops.clone());
                fibra::spawn(move || {
                    let _slow = slow;
                    panic!("while holding something slow");
                })
            })
            .collect();
        for fiber in fibers {
            assert!(fiber.join().unwrap_err().is_panic());
        }
    });
    assert_eq!(drops.load(SeqCst), 10);
}

// S0-99: what a fiber catches itself is its own business, before and after a switch.
#[test]
fn catching_works_across_switches() {
    fibra::run(|| {
        let fiber = fibra::spawn(|| {
            let caught = catch_unwind(|| {
                fibra::yield_now();
                panic!("caught");
            });
            fibra::yield_now();
            assert!(!std::thread::panicking());
            caught.unwrap_err().downcast::<&str>().is_ok()
        });
        assert!(fiber.join().unwrap());
    });
}

// S0-99: no handle is joined: the panic is counted, once, whether the handle went before or after.
#[test]
fn a_detached_panic_is_counted_once() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        drop(fibra::spawn(|| panic!("my handle is dropped")));
        let late = fibra::spawn(|| panic!("my handle is dropped after me"));
        late.wait();
        drop(late);
        let joined = fibra::spawn(|| panic!("a joiner is told"));
        assert!(joined.join().unwrap_err().is_panic());
        let cancelled = fibra::spawn(|| fibra::sleep(std::time::Duration::from_secs(3600)));
        fibra::yield_now();
        cancelled.cancel();
        drop(cancelled);
    });
    assert_eq!(runtime.metrics().detached_panics, 2);
}

// S0-99: likewise where the handle is dropped on a plain thread, on a fiber of another runtime, or after the runtime itself.
#[test]
fn a_detached_panic_is_counted_wherever_its_handle_goes() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let other = Runtime::builder().workers(1).build().unwrap();
    let panicked = || {
        let fiber = runtime.spawn(|| panic!("no caller asks for my end"));
        fiber.wait();
        fiber
    };
    drop(panicked());
    assert_eq!(runtime.metrics().detached_panics, 1);
    let fiber = panicked();
    other.run(move || drop(fiber));
    assert_eq!((runtime.metrics().detached_panics, other.metrics().detached_panics), (2, 0));
    let (fiber, handle) = (panicked(), runtime.handle());
    assert!(panicked().join().unwrap_err().is_panic());
    drop(runtime);
    drop(fiber);
    assert_eq!(handle.metrics().detached_panics, 3);
}

/// Panics when dropped, once.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("a destructor that panics");
    }
}

// S0-99: a payload whose own destructor panics does no harm.
#[test]
fn a_payload_whose_drop_panics_does_no_harm() {
    let _watchdog = support::watchdog(60);
    let drops = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let bomb = Bomb(drops.clone());
        drop(fibra::spawn(move || panic_any(bomb)));
        let bomb = Bomb(drops.clone());
        let late = fibra::spawn(move || panic_any(bomb));
        late.wait();
        drop(late);
        let bomb = Bomb(drops.clone());
        let error = fibra::spawn(move || panic_any(bomb)).join().unwrap_err();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(error))).is_err(), "who holds the payload gets its panic");
        assert_eq!(fibra::spawn(|| 1).join().unwrap(), 1);
    });
    assert_eq!(drops.load(SeqCst), 3);
}

// S0-99: neither does a result whose destructor panics.
#[test]
fn a_result_whose_drop_panics_does_no_harm() {
    let _watchdog = support::watchdog(60);
    let drops = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        // Dropped by the fiber: the panic ends there.
        let bomb = Bomb(drops.clone());
        drop(fibra::spawn(move || bomb));
        // Dropped with the handle: the panic is that of the caller that drops it, and the frame is not lost.
        let bomb = Bomb(drops.clone());
        let late = fibra::spawn(move || bomb);
        late.wait();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(late))).is_err());
        let bomb = Bomb(drops.clone());
        let taken = fibra::spawn(move || bomb).join().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(taken))).is_err());
        // A closure that is never run because it was cancelled before.
        let bomb = Bomb(drops.clone());
        let never = fibra::spawn(move || {
            let _bomb = bomb;
        });
        never.cancel();
        assert!(never.join().is_err());
    });
    assert_eq!(drops.load(SeqCst), 4);
}

// S0-99: what a panic carried is dropped, though no joiner is told of it: of a result, of a fiber-local, of a waker.
#[test]
fn what_a_swallowed_panic_carried_is_dropped() {
    struct Throws(Arc<()>);
    impl Drop for Throws {
        fn drop(&mut self) {
            resume_unwind(Box::new(self.0.clone()));
        }
    }
    struct Bad(Arc<()>);
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new(self.0.clone()));
        }
    }
    fibra::fiber_local! {
        static THROWS: RefCell<Option<Throws>> = RefCell::new(None);
    }
    let _watchdog = support::watchdog(60);
    let token = Arc::new(());
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let throws = Throws(token.clone());
        drop(fibra::spawn(move || throws));
        let throws = Throws(token.clone());
        fibra::spawn(|| THROWS.with_borrow_mut(|slot| *slot = Some(throws))).join().unwrap();
    });
    let go = Arc::new(AtomicUsize::new(0));
    let awaited = runtime.spawn({
        let go = go.clone();
        move || {
            while go.load(SeqCst) == 0 {
                fibra::yield_now();
            }
        }
    });
    let mut awaited = pin!(awaited.into_future());
    let waker = Waker::from(Arc::new(Bad(token.clone())));
    assert!(awaited.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    go.store(1, SeqCst);
    // Waits for the fiber, and for the one that calls its waker.
    drop(runtime);
    assert_eq!(Arc::strong_count(&token), 1);
}

// S0-99: two panics at once on one fiber abort, as everywhere in Rust; two fibers of one worker may unwind interleaved.
#[test]
fn fibers_of_one_worker_may_unwind_interleaved() {
    let _watchdog = support::watchdog(60);
    struct Yields;
    impl Drop for Yields {
        fn drop(&mut self) {
            for _ in 0..10 {
                fibra::yield_now();
            }
        }
    }
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let panics = runtime.run(|| {
        let fibers: Vec<_> = (0..20)
            .map(|i| {
                fibra::spawn(move || {
                    let _yields = Yields;
                    panic!("panic {i}");
                })
            })
            .collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap_err().message().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(panics, (0..20).map(|i| format!("panic {i}")).collect::<Vec<_>>());
    assert!(!std::thread::panicking());
    assert!(!runtime.run(|| fibra::spawn(std::thread::panicking).join().unwrap()));
}

/// Goes down until less than 4 KiB of the stack are left, and panics there.
#[inline(never)]
fn panic_at_the_end(limit: usize) -> u32 {
    let here = std::hint::black_box([0u8; 256]);
    let room = std::ptr::from_ref(&here).addr() - limit;
    if room < 4096 {
        panic!("with {room} bytes left");
    }
    panic_at_the_end(limit) + u32::from(here[0])
}

/// The lowest address that the running fiber may use: of the lowest page, below this function's, that the kernel can write to.
fn limit() -> usize {
    let (page_size, here) = (support::page_size(), 0u8);
    let is_usable = |page: usize| {
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(page);
        // SAFETY: the kernel writes a byte, or refuses; no code uses what lies a page and more below this function's frame.
        unsafe { libc::syscall(libc::SYS_getrandom, byte, 1_usize, 0) == 1 }
    };
    let mut lowest = std::ptr::from_ref(&here).expose_provenance() / page_size * page_size;
    while is_usable(lowest - page_size) {
        lowest -= page_size;
    }
    lowest
}

// S1-10: the panic hook, backtrace included, does not need the stack of the fiber that panics.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn a_panic_near_the_end_of_the_stack_is_a_panic() {
    const TEST: &str = "a_panic_near_the_end_of_the_stack_is_a_panic";
    if is_child(TEST) {
        fibra::run(|| {
            for size in [32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20] {
                // Twice, so that the second one runs on a stack that was used up before.
                for _ in 0..2 {
                    let fiber = Builder::new().stack_size(size).spawn(move || panic_at_the_end(limit())).unwrap();
                    let error = fiber.join().unwrap_err();
                    assert!(error.is_panic() && error.message().contains("bytes left"), "{error}");
                    println!("{size}: {error}");
                }
            }
        });
        return;
    }
    let ended = rerun_self(TEST, &[("RUST_BACKTRACE", "1")]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("stack backtrace:"), "{ended:?}");
    assert!(ended.stderr.contains("panic_at_the_end"), "the backtrace walks the fiber's stack: {ended:?}");
    for size in [32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20] {
        assert!(ended.stdout.contains(&format!("{size}: ")), "{ended:?}");
    }
}

#[inline(never)]
#[allow(unconditional_recursion)] // Ends in the guard: that is the test.
fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    recurse(depth + 1) + block[(depth % 64) as usize]
}

// S1-10, X-18: running over the end ends the process with a report that names fiber, place and size; neighbours were not touched.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn overflow_is_reported_by_name() {
    const TEST: &str = "overflow_is_reported_by_name";
    if is_child(TEST) {
        fibra::run(|| {
            let fiber = Builder::new().name("bottomless").stack_size(64 << 10).spawn(|| recurse(0)).unwrap();
            println!("survived with {:?}", fiber.join().map_err(|error| error.to_string()));
        });
        return;
    }
    let ended = rerun_self(TEST, &[]);
    assert_eq!(ended.signal(), Some(libc::SIGABRT), "{ended:?}");
    for part in ["stack overflow", "bottomless", "panics.rs:", "64 KiB", "stack_size"] {
        assert!(ended.stderr.contains(part), "the report says {part}: {}", ended.stderr);
    }
    assert!(!ended.stdout.contains("survived"), "{ended:?}");
}

#[test]
fn the_report_of_a_panic_names_the_fiber() {
    const TEST: &str = "the_report_of_a_panic_names_the_fiber";
    if is_child(TEST) {
        let fiber = || fibra::Builder::new().name("speaker").spawn(|| panic!("hear me")).unwrap();
        let error = fibra::run(|| fiber().join().unwrap_err());
        assert!(error.is_panic());
        return;
    }
    let ended = rerun_self(TEST, &[]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("hear me") && ended.stderr.contains("\"speaker\""), "{ended:?}");
    assert_eq!(ended.stderr.matches("hear me").count(), 1, "said once: {ended:?}");
}
