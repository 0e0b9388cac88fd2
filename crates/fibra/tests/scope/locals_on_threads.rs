//! Fiber-locals on plain threads: when the thread ends, destructors may use other ones, and themselves; nothing aborts.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support;

/// Calls a function when it is dropped.
struct OnDrop(fn());

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_destructor_may_use_another_local_of_its_thread() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    fibra::fiber_local! {
        static SET_BEFORE: Cell<usize> = Cell::new(0);
        static FIRST: OnDrop = OnDrop(|| {
            SEEN.fetch_add(SET_BEFORE.get(), SeqCst);
            SEEN.fetch_add(NEVER_USED.get(), SeqCst);
            SEEN.fetch_add(1000 * SET_AFTER.get(), SeqCst);
        });
        static NEVER_USED: Cell<usize> = Cell::new(30);
        static SET_AFTER: Cell<usize> = Cell::new(4);
    }
    let _watchdog = support::watchdog(60);
    std::thread::spawn(|| {
        SET_BEFORE.set(200);
        FIRST.with(|_| ());
        SET_AFTER.set(7);
    })
    .join()
    .unwrap();
    // The one that was set last is gone by then, and made anew.
    assert_eq!(SEEN.load(SeqCst), 4230);
}

#[test]
fn a_destructor_may_use_its_own_local_and_may_panic() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    fibra::fiber_local! {
        static OWN: OnDrop = OnDrop(|| {
            if DROPPED.fetch_add(1, SeqCst) < 3 {
                OWN.with(|_| ());
            }
        });
        static PANICS: OnDrop = OnDrop(|| panic!("in a destructor at the end of a thread"));
    }
    let _watchdog = support::watchdog(60);
    std::thread::spawn(|| {
        OWN.with(|_| ());
        PANICS.with(|_| ());
    })
    .join()
    .unwrap();
    assert_eq!(DROPPED.load(SeqCst), 4);
}

#[test]
fn a_thread_local_of_std_may_use_one_in_its_destructor() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static BEFORE: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    }
    fibra::fiber_local! {
        static LOCAL: Cell<usize> = Cell::new(1);
        static DROPS: OnDrop = OnDrop(|| {
            SEEN.fetch_add(100, SeqCst);
        });
    }
    fn look() {
        SEEN.fetch_add(LOCAL.get(), SeqCst);
    }
    let _watchdog = support::watchdog(60);
    // std drops them in one order or the other: one of the two comes after ours.
    std::thread::spawn(|| {
        BEFORE.set(Some(OnDrop(look)));
        LOCAL.set(1);
        DROPS.with(|_| ());
        AFTER.set(Some(OnDrop(look)));
    })
    .join()
    .unwrap();
    assert_eq!(SEEN.load(SeqCst), 102);
}
