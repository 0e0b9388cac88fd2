//! Fibers that end at awkward moments: cancelled between two polls, still unstarted when their runtime ends, detached with a large result.
#![cfg(not(any(loom, shuttle)))]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a size that nothing else here has.
const ODD: usize = 4093;

/// Counts blocks of [`ODD`] bytes that are alive.
struct Counting;
static ODD_BLOCKS: AtomicUsize = AtomicUsize::new(0);
#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == ODD {
            ODD_BLOCKS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() == ODD {
            ODD_BLOCKS.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

// A task that is cancelled while it owns no stack ends, and its future is dropped.
#[test]
fn a_pending_future_is_cancelled() {
    let _watchdog = support::watchdog(30);
    struct Dropped(std::sync::Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = std::sync::Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let dropped = Dropped(drops.clone());
        let task = fibra::spawn_future(async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        });
        // Whether it has been polled by now or not: both ways end it.
        for _ in 0..10 {
            fibra::yield_now();
        }
        task.cancel();
        assert!(task.join().unwrap_err().is_cancelled());
    });
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

// A daemon that has not even started when the run ends does not hold it up.
#[test]
fn an_unstarted_daemon_ends_with_the_runtime() {
    let _watchdog = support::watchdog(30);
    for _ in 0..20 {
        fibra::run(|| {
            let forever = || {
                loop {
                    fibra::sleep(std::time::Duration::from_secs(3600));
                }
            };
            drop(fibra::Builder::new().daemon(true).spawn(forever).unwrap());
        });
    }
}

// A result that is boxed because it is large, but has no destructor of its own, is freed with its handle, whichever of the two ends first.
#[test]
fn a_large_plain_result_is_freed() {
    let _watchdog = support::watchdog(30);
    fibra::run(|| {
        // The handle goes first.
        drop(fibra::spawn(|| [1u8; ODD]));
        // The fiber ends first.
        let ended = fibra::spawn(|| [1u8; ODD]);
        ended.wait();
        drop(ended);
    });
    assert_eq!(ODD_BLOCKS.load(Ordering::SeqCst), 0);
}
