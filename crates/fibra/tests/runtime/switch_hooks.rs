//! Hooks around suspensions: what a library keeps in thread-locals follows its fiber and never shows in a neighbour. Installed hooks are
//! the process's for good, so that these tests run in processes of their own.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fibra::hooks::{Carried, SwitchHook, carry, install};

use crate::support::{in_child, is_child, rerun_self, watchdog};

thread_local! {
    /// The context of a library that imitates opentelemetry: a stack of names, of which the last one is current.
    static CONTEXT: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// A guard like those of opentelemetry and tokio: dropped in order, or it panics.
struct Attached(u32);

fn attach(number: u32) -> Attached {
    CONTEXT.with_borrow_mut(|context| context.push(number));
    Attached(number)
}

impl Drop for Attached {
    fn drop(&mut self) {
        let last = CONTEXT.with_borrow_mut(Vec::pop);
        assert_eq!(last, Some(self.0), "guards are dropped in order");
    }
}

fn context() -> Vec<u32> {
    CONTEXT.with_borrow(Clone::clone)
}

struct Follow;

impl SwitchHook for Follow {
    type Saved = Vec<u32>;

    fn suspend(&self) -> Vec<u32> {
        CONTEXT.take()
    }

    fn resume(&self, saved: Vec<u32>) {
        let left = CONTEXT.replace(saved);
        assert!(left.is_empty(), "a neighbour left something behind");
    }

    fn ended(&self) {
        CONTEXT.take();
    }
}

/// Every way to leave a worker, inside a context of its own.
fn suspends_in_every_way(number: u32) {
    assert_eq!(context(), [], "fiber {number} begins with nothing");
    let outer = attach(number);
    let here = |depth: &[u32]| assert_eq!(context(), depth);
    fibra::yield_now();
    here(&[number]);
    let inner = attach(number + 1000);
    fibra::sleep(Duration::from_micros(100));
    here(&[number, number + 1000]);
    let (tx, rx) = fibra::channel::rendezvous();
    let child = fibra::spawn_local(move || {
        assert_eq!(context(), [], "a child inherits nothing");
        tx.send(1).unwrap();
    });
    assert_eq!(rx.recv(), Ok(1));
    here(&[number, number + 1000]);
    child.join().unwrap();
    assert_eq!(fibra::blocking(context), [], "another thread");
    here(&[number, number + 1000]);
    drop(inner);
    fibra::scope(|s| {
        s.spawn(|| assert_eq!(context(), []));
    });
    assert!(fibra::timeout(Duration::from_micros(10), || fibra::sleep(Duration::from_secs(60))).is_err());
    // Calls that never wait let others run now and then.
    (0..3000).for_each(|_| _ = fibra::is_cancelled());
    here(&[number]);
    fibra::select! {
        recv(rx) -> message => assert!(message.is_err()),
        default(Duration::from_micros(50)) => {}
    }
    here(&[number]);
    drop(outer);
}

#[test]
fn a_context_follows_its_fiber_and_no_neighbour_sees_it() {
    in_child("a_context_follows_its_fiber_and_no_neighbour_sees_it", || {
        let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
        // Also for a runtime that is there already.
        install(Follow);
        rt.run(|| {
            let fibers: Vec<_> = (0..20).map(|number| fibra::spawn(move || suspends_in_every_way(number))).collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            // One that forgets its guard leaves nothing to the next.
            fibra::spawn(|| std::mem::forget(attach(7))).join().unwrap();
            fibra::spawn(|| assert_eq!(context(), [])).join().unwrap();
            // Nor does one that is cancelled in the middle.
            // A local one has begun when `yield_now` returns.
            let waits = fibra::spawn_local(|| {
                let _attached = attach(8);
                fibra::sleep(Duration::from_secs(3600));
            });
            fibra::yield_now();
            waits.cancel();
            assert!(waits.join().unwrap_err().is_cancelled());
            assert_eq!(context(), []);
        });
    });
}

#[test]
fn hooks_installed_by_a_fiber_hold_for_it_and_for_its_children() {
    in_child("hooks_installed_by_a_fiber_hold_for_it_and_for_its_children", || {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        struct Counts;
        impl SwitchHook for Counts {
            type Saved = ();
            fn started(&self) {
                STARTED.fetch_add(1, Ordering::Relaxed);
            }
            fn suspend(&self) {}
            fn resume(&self, (): ()) {}
            fn ended(&self) {
                ENDED.fetch_add(1, Ordering::Relaxed);
            }
        }
        fibra::run(|| {
            install(Follow);
            install(Counts);
            let _attached = attach(1);
            fibra::spawn(|| assert_eq!(context(), [])).join().unwrap();
            assert_eq!(context(), [1]);
            assert_eq!((STARTED.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed)), (1, 1));
            // A local one has begun when `yield_now` returns.
            let cancelled = fibra::spawn_local(|| fibra::sleep(Duration::from_secs(60)));
            fibra::yield_now();
            cancelled.cancel();
            let panics = fibra::spawn(|| panic!("on purpose"));
            assert!(cancelled.join().is_err() && panics.join().is_err());
        });
        assert_eq!(STARTED.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed), "however they end");
    });
}

#[test]
fn hooks_are_layers() {
    in_child("hooks_are_layers", || {
        static LOG: fibra::sync::Mutex<Vec<&str>> = fibra::sync::Mutex::new(Vec::new());
        struct Notes(&'static str, &'static str);
        impl SwitchHook for Notes {
            type Saved = ();
            fn suspend(&self) {
                LOG.try_lock().unwrap().push(self.0);
            }
            fn resume(&self, (): ()) {
                LOG.try_lock().unwrap().push(self.1);
            }
        }
        install(Notes("first leaves", "first is back"));
        install(Notes("second leaves", "second is back"));
        fibra::run(fibra::yield_now);
        let log = LOG.try_lock().unwrap();
        assert_eq!(log[..4], ["second leaves", "first leaves", "first is back", "second is back"]);
    });
}

#[test]
fn a_hook_that_panics_or_blocks_does_no_harm() {
    const TEST: &str = "a_hook_that_panics_or_blocks_does_no_harm";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        assert!(ended.stderr.contains("the hook's own trouble"), "{ended:?}");
        assert!(ended.stderr.contains("inside `no_suspend`"), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    struct Panics;
    impl SwitchHook for Panics {
        type Saved = ();
        fn started(&self) {
            fibra::sleep(Duration::from_millis(1));
        }
        fn suspend(&self) {
            panic!("the hook's own trouble");
        }
        fn resume(&self, (): ()) {
            unreachable!("nothing was saved");
        }
        fn ended(&self) {
            fibra::yield_now();
        }
    }
    install(Panics);
    fibra::run(|| {
        let (tx, rx) = fibra::channel::rendezvous();
        let child = fibra::spawn(move || rx.recv().unwrap());
        tx.send(5).unwrap();
        assert_eq!(child.join().unwrap(), 5);
        // Cancellation still works: what a hook did is not taken for an unwinding of the fiber's.
        // A local one has begun when `yield_now` returns.
        let waits = fibra::spawn_local(|| fibra::sleep(Duration::from_secs(3600)));
        fibra::yield_now();
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
    });
}

/// Enters what must be left in order, like tokio's runtime.
#[derive(Default)]
struct Enters(u32, Option<Attached>, Option<Arc<AtomicUsize>>);

impl Carried for Enters {
    fn enter(&mut self) {
        self.1 = Some(attach(self.0));
    }
    fn leave(&mut self) {
        self.1 = None;
        if let Some(count) = &self.2 {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn what_is_carried_is_left_around_every_suspension() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    rt.run(|| {
        let fibers: Vec<_> = (0..10)
            .map(|number| {
                fibra::spawn(move || {
                    carry(Enters(number, None, None), || {
                        for _ in 0..10 {
                            fibra::yield_now();
                            assert_eq!(context(), [number]);
                        }
                        carry(Enters(number + 100, None, None), || {
                            fibra::sleep(Duration::from_micros(10));
                            assert_eq!(context(), [number, number + 100]);
                        });
                        assert_eq!(context(), [number]);
                    });
                    assert_eq!(context(), []);
                    fibra::yield_now();
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        // It is left when the call unwinds, too: by a panic, and by cancellation.
        let left = Arc::new(AtomicUsize::new(0));
        let counted = left.clone();
        let panics = fibra::spawn(move || carry(Enters(1, None, Some(counted)), || panic!("on purpose")));
        assert!(panics.join().unwrap_err().is_panic());
        assert_eq!(left.load(Ordering::Relaxed), 1);
        let counted = left.clone();
        // A local one has begun when `yield_now` returns.
        let waits = fibra::spawn_local(move || {
            carry(Enters(2, None, Some(counted)), || fibra::sleep(Duration::from_secs(3600)));
        });
        fibra::yield_now();
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        assert_eq!(left.load(Ordering::Relaxed), 3, "when it slept, and at the end");
        assert_eq!(context(), []);
    });
}

#[test]
fn on_a_plain_thread_it_is_entered_and_left() {
    assert_eq!(carry(Enters(3, None, None), context), [3]);
    let depth = Cell::new(0);
    carry(Enters(4, None, None), || depth.set(context().len()));
    assert_eq!((depth.get(), context().len()), (1, 0));
}

// The flag that `carry` raises for itself is not lowered when a hook was installed meanwhile, by this fiber.
#[test]
fn a_hook_installed_inside_of_carry_stays() {
    in_child("a_hook_installed_inside_of_carry_stays", || {
        let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
        rt.run(|| {
            carry(Enters(1, None, None), || carry(Enters(2, None, None), || install(Follow)));
            let _outer = attach(3);
            let neighbour = fibra::spawn_local(context);
            assert_eq!(neighbour.join().unwrap(), [], "the context is this fiber's alone");
            assert_eq!(context(), [3]);
        });
    });
}
