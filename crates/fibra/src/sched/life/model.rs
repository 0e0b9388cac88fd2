//! Models of taking back what was spawned (`newest.rs`), against a thief.

use super::newest::{claim_back, take_newest, withdraw_newest};
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::sched::queue::Entry;
use crate::sched::queue::fresh::{Fresh, Steal};
use crate::waiter::word::{Ticket, Word};

/// Where the frame is, as far as entries go.
const FRAME: usize = 1;

/// A frame in its spawner's deque: what a start touches is plain memory.
struct Offered {
    fresh: Fresh,
    word: Word,
    closure: UnsafeCell<u32>,
    starts: AtomicU32,
}

// SAFETY: the deque has one owner (the model's main thread); the cell is guarded by the protocol under test, loom checks it.
unsafe impl Sync for Offered {}
// SAFETY: as above.
unsafe impl Send for Offered {}

impl Offered {
    fn run(&self) {
        // SAFETY: whoever started it is alone with it; that is what the model checks.
        assert_eq!(self.closure.with_mut(|closure| unsafe { std::mem::take(&mut *closure) }), 7);
        self.starts.fetch_add(1, Ordering::Relaxed);
    }
}

// S4-22: the joiner of an unstarted fiber takes it out of its own deque and starts it without asking; a thief who comes at
// the same time starts it from its entry. One of the two does, and what the spawner wrote is seen.
#[test]
fn model_take_back_against_thief() {
    check(3, || {
        let offered = Arc::new(Offered {
            fresh: Fresh::new(),
            word: Word::new(),
            closure: UnsafeCell::new(0),
            starts: AtomicU32::new(0),
        });
        let thief = {
            let offered = offered.clone();
            thread::spawn(move || {
                // SAFETY: the thief is the owner of its own deque.
                if let Steal::Stolen { first, .. } = unsafe { offered.fresh.steal_half_into(&Fresh::new(), 1) } {
                    assert!(first.start(&offered.word), "its only entry, and stale");
                    offered.run();
                }
            })
        };
        // SAFETY: not published yet.
        offered.closure.with_mut(|closure| unsafe { *closure = 7 });
        let ticket = offered.word.publish_spawned();
        // SAFETY: this thread is the owner of the deque.
        unsafe { offered.fresh.push(Entry::sole(FRAME, ticket.to_bits())) };
        // `Worker::run_next_if_newest`, then `set_running`. SAFETY: as above.
        if unsafe { take_newest(&offered.fresh, &offered.word, FRAME) } {
            offered.word.start_owned();
            offered.run();
        }
        thief.join().unwrap();
        assert_eq!(offered.starts.load(Ordering::Relaxed), 1, "started once");
    });
}

// The second half of a `join`: the joiner takes it out of its deque, or claims it where a thief has carried it, or loses it to him. Taken
// back, the frame is offered again, and the thief, who may still have the entry of its first life, does not start the second.
#[test]
fn model_offer_taken_back_against_thief() {
    check(3, || {
        let offered = Arc::new(Offered {
            fresh: Fresh::new(),
            word: Word::new(),
            closure: UnsafeCell::new(0),
            starts: AtomicU32::new(0),
        });
        let thief = {
            let offered = offered.clone();
            thread::spawn(move || {
                // SAFETY: the thief is the owner of its own deque.
                if let Steal::Stolen { first, .. } = unsafe { offered.fresh.steal_half_into(&Fresh::new(), 1) } {
                    // `Worker::start_entry`, some time later.
                    if first.start(&offered.word) {
                        offered.run();
                        return 1;
                    }
                }
                0
            })
        };
        let (mut lives, mut taken_back) = (0, 0);
        while lives < 2 && taken_back == lives {
            lives += 1;
            // SAFETY: not published.
            offered.closure.with_mut(|closure| unsafe { *closure = 7 });
            let ticket = offered.word.publish_spawned();
            let entry = Entry::contested(FRAME, ticket.to_bits());
            // SAFETY: this thread is the owner of the deque.
            unsafe { offered.fresh.push(entry) };
            // `Worker::take_back`. SAFETY: as above.
            let is_ours = if unsafe { withdraw_newest(&offered.fresh, &offered.word, entry) } {
                true
            } else {
                let is_ours = claim_back(&offered.word, ticket);
                is_ours.then(|| offered.word.recycle());
                is_ours
            };
            if is_ours {
                offered.run();
                taken_back += 1;
            }
        }
        let stolen = thief.join().unwrap();
        assert_eq!(taken_back + stolen, lives, "each life was run by one of the two");
        assert_eq!(offered.starts.load(Ordering::Relaxed), lives);
    });
}
