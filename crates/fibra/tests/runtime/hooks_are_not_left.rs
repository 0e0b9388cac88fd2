//! A panic hook that the program has set while its fibers run is called on the fiber's own stack. std allows no other panic on a thread
//! that is in a hook, and holds a lock meanwhile: so calls that need not wait do not let others run there.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use fibra::Runtime;

use crate::support::{is_child, rerun_self, watchdog};

static TURNS: AtomicUsize = AtomicUsize::new(0);
static TURNS_IN_HOOK: AtomicUsize = AtomicUsize::new(usize::MAX);

#[test]
fn a_hook_of_the_program_is_not_interrupted() {
    const NAME: &str = "a_hook_of_the_program_is_not_interrupted";
    if !is_child(NAME) {
        let ended = rerun_self(NAME, &[]);
        assert!(ended.status.success(), "{}", ended.stderr);
        return;
    }
    let _watchdog = watchdog(60);
    Runtime::builder().workers(1).build().unwrap().run(|| {
        let (_tx, rx) = fibra::channel::bounded::<u32>(1);
        std::panic::set_hook(Box::new(move |_| {
            let before = TURNS.load(SeqCst);
            for _ in 0..2048 {
                assert!(rx.try_recv().is_err());
            }
            TURNS_IN_HOOK.store(TURNS.load(SeqCst) - before, SeqCst);
        }));
        let over = Cell::new(false);
        fibra::scope(|s| {
            // A neighbour that panics and is cancelled whenever it has a turn.
            s.spawn_local(|| {
                while !over.get() {
                    TURNS.fetch_add(1, SeqCst);
                    let _ = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(())));
                    fibra::yield_now();
                }
            });
            assert!(s.spawn_local(|| panic!("on purpose")).join().unwrap_err().is_panic());
            over.set(true);
        });
        assert_eq!(TURNS_IN_HOOK.load(SeqCst), 0);
        assert!(!std::thread::panicking());
        // In a destructor others have their turns, also while it unwinds.
        struct Polls;
        impl Drop for Polls {
            fn drop(&mut self) {
                let other = fibra::spawn(|| ());
                while !other.is_finished() {}
            }
        }
        let polls = fibra::spawn(|| {
            let _polls = Polls;
            panic!("on purpose")
        });
        assert!(polls.join().unwrap_err().is_panic());
    });
    let _ = std::panic::take_hook();
}

/// Is `thread::panicking` true in a destructor that unwinding calls?
fn is_an_unwinding_seen() -> bool {
    struct Asks<'a>(&'a Cell<bool>);
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            self.0.set(std::thread::panicking());
        }
    }
    let seen = Cell::new(false);
    let caught: Result<(), _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _asks = Asks(&seen);
        std::panic::resume_unwind(Box::new(()))
    }));
    assert!(caught.is_err());
    seen.get()
}

// To learn whether the thread unwinds, std's count is looked for, by unwinding: std counts its end but not its beginning in a hook.
#[test]
fn a_thread_that_asks_first_in_a_hook_spoils_no_count() {
    const NAME: &str = "a_thread_that_asks_first_in_a_hook_spoils_no_count";
    if !is_child(NAME) {
        for runtime_first in ["0", "1"] {
            let ended = rerun_self(NAME, &[("RUNTIME_FIRST", runtime_first)]);
            assert!(ended.status.success(), "{}", ended.stderr);
        }
        return;
    }
    static TOLD: AtomicBool = AtomicBool::new(false);
    let _watchdog = watchdog(60);
    if std::env::var("RUNTIME_FIRST").unwrap() == "1" {
        fibra::run(|| ());
    }
    std::panic::set_hook(Box::new(|_| {
        let (tx, rx) = fibra::channel::bounded::<u32>(1);
        drop(tx);
        let is_told = matches!(rx.closed(), fibra::channel::CloseReason::Panicked { .. });
        TOLD.store(is_told, SeqCst);
    }));
    let thread = std::thread::spawn(|| {
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        is_an_unwinding_seen()
    });
    assert!(thread.join().unwrap(), "std's count of this thread is wrong");
    assert!(TOLD.load(SeqCst), "a channel that a panic drops says so");
}
