//! Models of what several parts of the scheduler do together.

use super::queue::Entry;
use super::queue::fresh::{Fresh, Steal};
use super::visitors::Visitors;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};
use crate::wait::word::{Claim, Commit, Release, State, Ticket, WaitKind, Word};

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
                    // `Worker::start_entry`.
                    assert!(offered.word.start(Ticket::from_bits(first.ticket)), "its only entry, and stale");
                    offered.run();
                }
            })
        };
        // SAFETY: not published yet.
        offered.closure.with_mut(|closure| unsafe { *closure = 7 });
        let ticket = offered.word.publish_spawned();
        let entry = Entry { frame: 1, ticket: ticket.to_bits() };
        // SAFETY: this thread is the owner of the deque.
        unsafe { offered.fresh.push(entry) };
        // `Worker::run_next_if_newest`, then `set_running`.
        let now = offered.word.snapshot();
        // SAFETY: as above.
        let taken = unsafe { offered.fresh.take_newest_if(entry) } || seeded_bug("take_back_starts_stolen");
        if now.state() == State::Runnable && taken {
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
                    if offered.word.start(Ticket::from_bits(first.ticket)) {
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
            let entry = Entry { frame: 1, ticket: ticket.to_bits() };
            // SAFETY: this thread is the owner of the deque.
            unsafe { offered.fresh.push(entry) };
            // `Worker::take_back`. SAFETY: as above.
            let is_ours = if unsafe { offered.fresh.take_newest_if(entry) } {
                offered.word.withdraw();
                true
            } else if seeded_bug("offer_claimed_by_look") {
                let is_ours = offered.word.snapshot().state() == State::Runnable;
                is_ours.then(|| offered.word.withdraw());
                is_ours
            } else {
                let is_ours = offered.word.start(ticket);
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

/// A runtime with one fiber, as one who wakes it from outside sees it.
struct Runtime {
    word: Word,
    visitors: Visitors,
    inbox: Mutex<bool>,
    bell: Condvar,
    /// The memory of the runtime, behind everything above: read by whoever is inside, written when it is freed.
    memory: UnsafeCell<bool>,
}

// SAFETY: the cell is guarded by the protocol under test; loom checks it.
unsafe impl Sync for Runtime {}
// SAFETY: as above.
unsafe impl Send for Runtime {}

impl Runtime {
    fn touch(&self) {
        // SAFETY: the claimed fiber, or the visit, keeps it alive; that is what the model checks.
        assert!(!self.memory.with(|freed| unsafe { *freed }), "touched after it was freed");
    }

    /// `sched::enqueue::enqueue_from_outside`: the fiber is claimed and RUNNABLE.
    fn enqueue_from_outside(&self) {
        self.touch();
        if !seeded_bug("visit_after_push") {
            self.visitors.enter();
        }
        *self.inbox.lock() = true;
        if seeded_bug("visit_after_push") {
            self.visitors.enter();
        }
        // The kick of a sleeping worker.
        self.touch();
        self.bell.notify_one();
        self.visitors.leave();
    }
}

// The last fiber of a runtime is woken from outside; it ends and the runtime is freed, but not while that thread is still kicking.
#[test]
fn model_wake_from_outside_against_shutdown() {
    check(3, || {
        let runtime = Arc::new(Runtime {
            word: Word::new(),
            visitors: Visitors::new(),
            inbox: Mutex::new(false),
            bell: Condvar::new(),
            memory: UnsafeCell::new(false),
        });
        runtime.word.adopt();
        let ticket = runtime.word.begin_park(WaitKind::Binding);
        let outside = {
            let runtime = runtime.clone();
            thread::spawn(move || match runtime.word.claim(ticket, 0, true) {
                Claim::Lost => panic!("nobody else completes it"),
                Claim::Direct => runtime.enqueue_from_outside(),
                Claim::Held => match runtime.word.release() {
                    // From here on the runtime may be gone.
                    Release::Deferred => {}
                    Release::Enqueue => runtime.enqueue_from_outside(),
                },
            })
        };
        if runtime.word.commit_park() == Commit::Parked {
            let mut woken = runtime.inbox.lock();
            while !*woken {
                woken = runtime.bell.wait(woken);
            }
        }
        runtime.word.resume();
        runtime.word.finish(false);
        runtime.visitors.await_none();
        // SAFETY: nobody is inside; that is what the model checks.
        runtime.memory.with_mut(|freed| unsafe { *freed = true });
        outside.join().unwrap();
    });
}
