//! Models of the join state: a fiber that ends, as `task::spawn` and `sched::worker` do it, against a handle that joins,
//! waits for a while or goes, as `task::join` does it. Result, joiner list and the frame as a whole are plain memory, so that loom
//! reports a side that touches them at the wrong time; the side that recycles the frame touches all of it.

use super::*;
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};

struct World {
    join: JoinState,
    /// The storage of the frame. A value is 7; 0 is none.
    result: UnsafeCell<u32>,
    /// Guarded by the lock in `join`: is the one joiner linked?
    joiner: UnsafeCell<bool>,
    woken: Mutex<bool>,
    bell: Condvar,
    drops: AtomicU32,
    recycled: AtomicU32,
}

// SAFETY: the cells are guarded by the protocol under test; loom checks them.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            join: JoinState::new(),
            result: UnsafeCell::new(0),
            joiner: UnsafeCell::new(false),
            woken: Mutex::new(false),
            bell: Condvar::new(),
            drops: AtomicU32::new(0),
            recycled: AtomicU32::new(0),
        })
    }

    fn set_joiner(&self, linked: bool) -> bool {
        // SAFETY: under the lock, or alone with the frame; the model checks exactly that.
        self.joiner.with_mut(|joiner| unsafe { std::mem::replace(&mut *joiner, linked) })
    }

    fn set_result(&self, value: u32) -> u32 {
        // SAFETY: the protocol says which side owns the storage; the model checks exactly that.
        self.result.with_mut(|result| unsafe { std::mem::replace(&mut *result, value) })
    }

    /// Takes the value out and drops it.
    fn drop_result(&self) {
        assert_eq!(self.set_result(0), 7, "no value to drop");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    /// The next life of the frame begins: everything in it is written.
    fn recycle(&self) {
        assert!(!self.set_joiner(false), "recycled with a joiner linked");
        self.set_result(0);
        self.recycled.fetch_add(1, Ordering::Relaxed);
        self.join.reset(true);
    }

    /// The fiber's end: `publish_value`, then `Worker::publish_end`; with a `successor`, `Worker::end_here` first.
    fn end(&self, has_destructor: bool, successor: bool) {
        self.set_result(7);
        if has_destructor && !self.join.publish_result(FiberEnd::Value) {
            self.drop_result();
        }
        let ended_here = if successor { self.join.finish_unless_joined(FiberEnd::Value) } else { None };
        let finished = ended_here.unwrap_or_else(|| self.join.finish(FiberEnd::Value));
        match finished {
            Finish::LeaveToHandle => {}
            Finish::Recycle => self.recycle(),
            Finish::CompleteJoiners => {
                while self.set_joiner(false) {
                    *self.woken.lock() = true;
                    self.bell.notify_one();
                }
                self.join.unlock_finished(FiberEnd::Value);
            }
        }
    }

    /// `JoinWait::publish` of the owner of the handle.
    fn publish_alone(&self) -> bool {
        assert!(!self.set_joiner(true), "another joiner beside the owner of the handle");
        let announced = self.join.announce_joiner();
        if !announced {
            self.set_joiner(false);
        }
        announced
    }

    /// `publish_joiner`.
    fn publish(&self) -> bool {
        let Some(locked) = self.join.lock() else { return false };
        self.set_joiner(true);
        self.join.unlock(locked, true);
        true
    }

    /// `unpublish_joiner`.
    fn unpublish(&self) {
        match self.join.lock() {
            Some(locked) => {
                self.set_joiner(false);
                self.join.unlock(locked, false);
            }
            None => self.join.wait_until_unlocked(),
        }
    }

    fn await_wake(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            woken = self.bell.wait(woken);
        }
    }

    /// `JoinHandle::take_value`, or `take_result`.
    fn take(&self) {
        if self.join.has_value() {
            self.drop_result();
            return self.recycle();
        }
        assert_eq!(self.join.result(), Some(FiberEnd::Value));
        self.drop_result();
        self.join.wait_until_unlocked();
        self.recycle();
    }

    /// The drop of a handle.
    fn detach(&self, has_destructor: bool) {
        let mut taken = false;
        loop {
            match self.join.detach(taken) {
                Detach::LeaveToFiber => return,
                Detach::Recycle => return self.recycle(),
                Detach::TakeResult(_) => {
                    if has_destructor {
                        self.drop_result();
                    }
                    taken = true;
                }
            }
        }
    }

    fn assert_over(&self, drops: u32) {
        assert_eq!(self.drops.load(Ordering::Relaxed), drops, "drops of the result");
        assert_eq!(self.recycled.load(Ordering::Relaxed), 1, "the frame is recycled once");
    }
}

fn ending(world: &Arc<World>, has_destructor: bool, successor: bool) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || world.end(has_destructor, successor))
}

/// For a fiber that ends on the scheduler's stack, and for one that leaves its stack to a successor.
fn check_both(model: impl Fn(bool) + Copy + Send + Sync + 'static) {
    for successor in [false, true] {
        check(3, move || model(successor));
    }
}

// S1-17: a joiner that comes at the same time as the end is woken, or sees the end.
#[test]
fn model_finish_against_join() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, true, successor);
        if world.join.result().is_none() && world.publish() {
            world.await_wake();
        }
        world.take();
        fiber.join().unwrap();
        world.assert_over(1);
    });
}

// The same for a joiner that owns the handle, and so announces itself in one step.
#[test]
fn model_finish_against_join_of_the_owner() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, true, successor);
        if world.join.result().is_none() && world.publish_alone() {
            world.await_wake();
        }
        world.take();
        fiber.join().unwrap();
        world.assert_over(1);
    });
}

// The owner's join with a deadline: it leaves the list while the fiber ends.
#[test]
fn model_finish_against_an_owner_that_leaves() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, true, successor);
        if world.publish_alone() {
            world.unpublish();
        }
        if world.join.result().is_some() {
            world.take();
        } else {
            world.detach(true);
        }
        fiber.join().unwrap();
        world.assert_over(1);
    });
}

// A joiner whose time is up (or a future that is polled again) leaves the list while the fiber ends, and then takes the result: not before
// the worker has let go of the frame.
#[test]
fn model_finish_against_a_joiner_that_leaves() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, true, successor);
        if world.publish() {
            world.unpublish();
        }
        if world.join.result().is_some() {
            world.take();
        } else {
            world.detach(true);
        }
        fiber.join().unwrap();
        world.assert_over(1);
    });
}

// A joiner was linked before; the worker walks the list while the handle goes.
#[test]
fn model_finish_against_detach_after_a_join() {
    check_both(|successor| {
        let world = World::new();
        assert!(world.publish());
        let fiber = ending(&world, false, successor);
        world.await_wake();
        world.detach(false);
        fiber.join().unwrap();
        world.assert_over(0);
    });
}

// The handle goes while the fiber ends: a value with a destructor is dropped once, by one of the two.
#[test]
fn model_finish_against_detach_with_a_value() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, true, successor);
        world.detach(true);
        fiber.join().unwrap();
        world.assert_over(1);
    });
}

// The same with a value that needs no dropping, which is announced by the end only.
#[test]
fn model_finish_against_detach_without_destructor() {
    check_both(|successor| {
        let world = World::new();
        let fiber = ending(&world, false, successor);
        world.detach(false);
        fiber.join().unwrap();
        world.assert_over(0);
    });
}
