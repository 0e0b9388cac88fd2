//! A checker counts only after a bug made it fail: under ThreadSanitizer and AddressSanitizer (`.ci/tsan`, `.ci/asan`), bugs in
//! code that runs on fibers are found, in spite of the suppressions and of what the tools are told about stacks and about std.
//!
//! Each bug runs in a child, which the tool must end with its report. Without a sanitizer there is nothing to compile here.
#![cfg(any(fibra_asan, fibra_tsan))]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{is_child, rerun_self, watchdog};

/// Runs `bug` in a child and demands that the tool reports it with these words.
#[track_caller]
fn is_found(test: &str, words: &[&str], bug: impl FnOnce()) {
    if is_child(test) {
        let _watchdog = watchdog(30);
        return bug();
    }
    let ended = rerun_self(test, &[]);
    assert!(!ended.status.success(), "the sanitizer did not find the bug: {ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "the report does not say {word:?}:\n{}", ended.stderr);
    }
}

/// What is shared without any order.
#[cfg(fibra_tsan)]
struct Racy(std::cell::UnsafeCell<u64>);

#[cfg(fibra_tsan)]
// SAFETY: none; that is the bug.
unsafe impl Sync for Racy {}

#[cfg(fibra_tsan)]
static RACY: Racy = Racy(std::cell::UnsafeCell::new(0));

#[cfg(fibra_tsan)]
impl Racy {
    #[inline(never)]
    fn bump(&self) {
        // SAFETY: none; that is the bug.
        unsafe { *self.0.get() += 1 };
    }
}

/// Two fibers run `body` on two workers at once, each told its number.
fn on_two_workers(body: fn(usize)) {
    static HERE: AtomicUsize = AtomicUsize::new(0);
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(move || {
        let fibers: Vec<_> = (0..2)
            .map(|number| {
                fibra::spawn(move || {
                    // Relaxed: they must not be ordered by their meeting. Neither leaves its worker before the other is there.
                    HERE.fetch_add(1, Ordering::Relaxed);
                    while HERE.load(Ordering::Relaxed) < 2 {
                        std::hint::spin_loop();
                    }
                    body(number);
                    fibra::yield_now();
                    body(number);
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

#[cfg(fibra_tsan)]
#[test]
fn a_race_between_fibers_is_found() {
    is_found("a_race_between_fibers_is_found", &["ThreadSanitizer: data race", "bump"], || {
        on_two_workers(|_| RACY.bump());
    });
}

/// The shim for std's locks adds no order where there is none: one of the two takes the lock, the other does not.
#[cfg(fibra_tsan)]
#[test]
fn a_race_around_a_lock_is_found() {
    #[allow(clippy::disallowed_types)] // A user's code.
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    is_found("a_race_around_a_lock_is_found", &["ThreadSanitizer: data race", "bump"], || {
        on_two_workers(|number| {
            let _guard = (number == 0).then(|| LOCK.lock().unwrap());
            RACY.bump();
        });
    });
}

/// The other direction: what is ordered is not reported. (The two tests above would pass under a tool that reports everything.)
#[cfg(fibra_tsan)]
#[test]
fn what_a_lock_orders_is_not_reported() {
    #[allow(clippy::disallowed_types)] // A user's code.
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    on_two_workers(|_| {
        for _ in 0..1000 {
            let _guard = LOCK.lock().unwrap();
            RACY.bump();
        }
    });
}

#[cfg(fibra_asan)]
#[test]
fn a_use_after_free_on_a_fiber_is_found() {
    is_found("a_use_after_free_on_a_fiber_is_found", &["AddressSanitizer: heap-use-after-free"], || {
        on_two_workers(|_| {
            let freed = Box::into_raw(Box::new(1u64));
            // SAFETY: none; that is the bug.
            unsafe {
                drop(Box::from_raw(freed));
                fibra::yield_now();
                std::hint::black_box(freed.read_volatile());
            }
        });
    });
}

#[cfg(fibra_asan)]
#[test]
fn a_write_past_a_local_of_a_fiber_is_found() {
    #[inline(never)]
    fn past_the_end(by: usize) {
        let mut local = [0u8; 32];
        // SAFETY: none; that is the bug.
        unsafe { std::hint::black_box(local.as_mut_ptr()).add(by).write_volatile(1) };
    }
    is_found("a_write_past_a_local_of_a_fiber_is_found", &["AddressSanitizer: stack-buffer-overflow"], || {
        on_two_workers(|_| {
            fibra::yield_now();
            past_the_end(std::hint::black_box(32));
        });
    });
}

#[cfg(fibra_asan)]
#[test]
fn a_leak_on_a_fiber_is_found() {
    is_found("a_leak_on_a_fiber_is_found", &["LeakSanitizer: detected memory leaks"], || {
        on_two_workers(|_| {
            std::mem::forget(std::hint::black_box(Box::new([7u8; 1000])));
        });
    });
}
