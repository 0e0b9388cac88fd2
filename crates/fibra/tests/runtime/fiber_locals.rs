//! Fiber-locals: one value per fiber, made on first use, inherited where asked for, dropped at the end of the fiber on its stack.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::support;
use fibra::Runtime;

fibra::fiber_local! {
    static NUMBER: Cell<u64> = Cell::new(7);
    static TEXT: RefCell<String> = RefCell::new("fresh".to_owned());
    inherit static TRACE: Option<String> = None;
    inherit static DEPTH: Cell<u32> = Cell::new(0);
    static DROPS: RefCell<Vec<Dropping>> = RefCell::new(Vec::new());
    static LAST: Cell<u8> = Cell::new(1)
}

/// Does something when dropped.
struct Dropping(Box<dyn FnMut()>);

impl Drop for Dropping {
    fn drop(&mut self) {
        (self.0)();
    }
}

// a value per fiber, whatever other fibers of the same worker do in between.
#[test]
fn every_fiber_has_its_own() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let fibers: Vec<_> = (0..100u64)
            .map(|i| {
                fibra::spawn(move || {
                    assert_eq!(NUMBER.get(), 7, "made on first use");
                    NUMBER.set(i);
                    TEXT.set(format!("fiber {i}"));
                    for _ in 0..5 {
                        fibra::yield_now();
                        assert_eq!(NUMBER.get(), i);
                    }
                    TEXT.with_borrow_mut(|text| text.push('!'));
                    assert_eq!(NUMBER.replace(1), i);
                    assert_eq!(NUMBER.take(), 1);
                    TEXT.with_borrow(|text| text.clone())
                })
            })
            .collect();
        for (i, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), format!("fiber {i}!"));
        }
        assert_eq!((NUMBER.get(), LAST.get()), (7, 1), "ours was never touched");
    });
}

// it travels with the fiber through every kind of wait.
#[test]
fn it_survives_every_kind_of_wait() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        NUMBER.set(41);
        fibra::sleep(Duration::from_millis(1));
        fibra::blocking(|| assert_eq!(NUMBER.get(), 7, "the pool's thread has its own"));
        fibra::spawn(|| NUMBER.set(0)).join().unwrap();
        fibra::block_on(async { assert_eq!(NUMBER.get(), 41) });
        assert_eq!(NUMBER.get(), 41);
    });
}

#[test]
fn on_a_thread_it_is_a_thread_local() {
    NUMBER.set(3);
    std::thread::spawn(|| assert_eq!(NUMBER.get(), 7)).join().unwrap();
    fibra::run(|| {
        assert_eq!(NUMBER.get(), 7, "the root fiber is a fiber, though it runs on this thread");
        NUMBER.set(4);
    });
    assert_eq!(NUMBER.get(), 3);
    TRACE.scope(Some("thread".to_owned()), || {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        assert_eq!(runtime.spawn(|| TRACE.with(Clone::clone)).join().unwrap(), None, "threads have no children");
    });
}

// inherited values are cloned when the child is spawned; later changes are not shared.
#[test]
fn children_inherit_where_asked_for() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        DEPTH.set(1);
        NUMBER.set(99);
        let child = fibra::spawn(|| {
            let depth = DEPTH.get();
            DEPTH.set(depth + 1);
            let grandchild = fibra::spawn(|| DEPTH.get()).join().unwrap();
            (depth, grandchild, NUMBER.get())
        });
        DEPTH.set(50);
        assert_eq!(child.join().unwrap(), (1, 2, 7));
        let (local, built) =
            (fibra::spawn_local(|| DEPTH.get()), fibra::Builder::new().name("b").spawn(|| DEPTH.get()));
        assert_eq!((local.join().unwrap(), built.unwrap().join().unwrap()), (50, 50));
        assert_eq!(fibra::spawn_future(async { DEPTH.get() }).join().unwrap(), 50);
        let never = fibra::spawn(|| DEPTH.get());
        never.cancel();
        let _ = never.join();
    });
}

#[test]
fn a_scope_restores_what_was_there() {
    fibra::run(|| {
        assert_eq!(TRACE.with(Clone::clone), None);
        let result = TRACE.scope(Some("outer".to_owned()), || {
            TRACE.scope(Some("inner".to_owned()), || {
                fibra::yield_now();
                assert_eq!(TRACE.with(Clone::clone).as_deref(), Some("inner"));
                let child = fibra::spawn(|| TRACE.with(Clone::clone)).join().unwrap();
                assert_eq!(child.as_deref(), Some("inner"));
            });
            TRACE.with(Clone::clone)
        });
        assert_eq!(result.as_deref(), Some("outer"));
        let _ = catch_unwind(|| TRACE.scope(Some("gone".to_owned()), || panic!("inside")));
        assert_eq!(TRACE.with(Clone::clone), None, "also after a panic");
        let cancelled = fibra::spawn(|| {
            DROPS.with_borrow_mut(|drops| {
                drops.push(Dropping(Box::new(|| assert_eq!(NUMBER.get(), 7, "the scope was left before"))));
            });
            NUMBER.scope(Cell::new(1), || fibra::sleep(Duration::from_secs(3600)));
        });
        fibra::yield_now();
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
    });
}

// destructors run on the fiber: they may use fibra, may block, may panic, may make new values; the joiner sees all that done.
#[test]
fn destructors_run_at_the_end_of_the_fiber() {
    let _watchdog = support::watchdog(60);
    let order = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        for ending in 0..3 {
            let order = order.clone();
            let before = order.load(SeqCst);
            let inner = order.clone();
            let started = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let starts = started.clone();
            let fiber = fibra::spawn(move || {
                let id = fibra::current().unwrap().id();
                DROPS.with_borrow_mut(|drops| {
                    let blocks = inner.clone();
                    drops.push(Dropping(Box::new(move || {
                        assert_eq!(fibra::current().unwrap().id(), id);
                        fibra::sleep(Duration::from_millis(1));
                        fibra::spawn(|| ()).join().unwrap();
                        blocks.fetch_add(1, SeqCst);
                    })));
                });
                TEXT.set("a second one".to_owned());
                starts.store(true, SeqCst);
                match ending {
                    0 => {}
                    1 => panic!("an end like any other"),
                    _ => fibra::sleep(Duration::from_secs(3600)),
                }
            });
            while !started.load(SeqCst) {
                fibra::yield_now();
            }
            if ending == 2 {
                fiber.cancel();
            }
            assert_eq!(fiber.join().is_ok(), ending == 0);
            assert_eq!(order.load(SeqCst), before + 1, "before the joiner was told");
        }
    });
}

#[test]
fn a_destructor_that_panics_ends_there() {
    let _watchdog = support::watchdog(60);
    let others = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let counter = others.clone();
        let fiber = fibra::spawn(move || {
            let counts = counter.clone();
            TRACE.with(|_| ());
            DROPS.with_borrow_mut(|drops| {
                drops.push(Dropping(Box::new(|| panic!("in a destructor"))));
                drops.push(Dropping(Box::new(move || {
                    counts.fetch_add(1, SeqCst);
                })));
            });
            5
        });
        assert_eq!(fiber.join().unwrap(), 5, "the result stands");
    });
    assert_eq!(others.load(SeqCst), 1, "and the others were dropped");
}

#[test]
fn a_destructor_may_make_new_values() {
    let _watchdog = support::watchdog(60);
    let drops = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let counter = drops.clone();
        fibra::spawn(move || {
            let first = counter.clone();
            DROPS.with_borrow_mut(|list| {
                list.push(Dropping(Box::new(move || {
                    let second = first.clone();
                    first.fetch_add(1, SeqCst);
                    DROPS.with_borrow_mut(|list| {
                        list.push(Dropping(Box::new(move || {
                            second.fetch_add(1, SeqCst);
                        })));
                    });
                })));
            });
        })
        .join()
        .unwrap();
    });
    assert_eq!(drops.load(SeqCst), 2);
}

// a stack that is used again brings nothing of its last fiber.
#[test]
fn nothing_is_left_for_the_next_fiber() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        for i in 0..1000 {
            let seen = fibra::spawn(move || NUMBER.replace(i)).join().unwrap();
            assert_eq!(seen, 7);
        }
    });
}

// a task's locals travel with it between polls, also to another worker.
#[test]
fn tasks_keep_theirs_between_polls() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    runtime.run(|| {
        let tasks: Vec<_> = (0..50u64)
            .map(|i| {
                let drops = drops.clone();
                fibra::spawn_future(async move {
                    NUMBER.set(i);
                    DROPS.with_borrow_mut(|list| {
                        list.push(Dropping(Box::new(move || {
                            drops.fetch_add(1, SeqCst);
                        })));
                    });
                    for _ in 0..10 {
                        fibra::spawn(|| fibra::sleep(Duration::from_micros(10))).await.unwrap();
                        assert_eq!(NUMBER.get(), i);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    assert_eq!(drops.load(SeqCst), 50);
}

#[test]
fn an_initialiser_that_panics_can_be_tried_again() {
    thread_local!(static TRIES: Cell<u32> = const { Cell::new(0) });
    fn init() -> u32 {
        TRIES.set(TRIES.get() + 1);
        if TRIES.get() == 1 {
            panic!("the first time");
        }
        TRIES.get()
    }
    fibra::fiber_local!(static TRIED: u32 = init());
    let runtime = Runtime::current_thread().unwrap();
    runtime.run(|| {
        assert!(catch_unwind(AssertUnwindSafe(|| TRIED.with(|value| *value))).is_err());
        assert_eq!(TRIED.with(|value| *value), 2);
    });
}

// A task with locals of its own keeps its stack, and is polled there: if each poll asks for the next, others come in between.
#[test]
fn a_task_that_keeps_its_stack_and_wakes_itself_lets_others_run() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (begun, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let task = fibra::spawn_future({
            let (begun, stop) = (begun.clone(), stop.clone());
            async move {
                NUMBER.set(1);
                begun.store(true, SeqCst);
                std::future::poll_fn(|cx| {
                    if stop.load(SeqCst) {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                NUMBER.get()
            }
        });
        while !begun.load(SeqCst) {
            fibra::yield_now();
        }
        stop.store(true, SeqCst);
        assert_eq!(task.join().unwrap(), 1);
    });
}
