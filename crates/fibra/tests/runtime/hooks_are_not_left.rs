//! A panic hook that the program has set while its fibers run is called on the fiber's own stack. std allows no other panic on a thread
//! that is in a hook, and holds a lock meanwhile: so calls that need not wait do not let others run there.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

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
