//! Models of root scopes: workers that count with differences of their own, an owner that drains, spawns from outside that come too late.
//! The owner waits with a thread's record; a worker's mail is a mutex and a condition variable. A lost wake or a lost difference shows
//! as a deadlock.

use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};
use crate::sched::members::root::*;
use crate::waiter::node::Node;
use crate::waiter::record::model::{WaitReason, complete, thread_record, wait_with};

type R = &'static Root;

fn wake(owner: Option<RootWaiter>) {
    if let Some((waiter, ticket)) = owner {
        assert!(complete(waiter, ticket).is_none(), "the owner is a thread");
    }
}

#[derive(Default)]
struct PostedChanges {
    flush: bool,
    stop: bool,
}

/// A root, fibers of it that any thread of the model may run, and one worker's mail.
struct World {
    root: R,
    queue: Mutex<usize>,
    /// Fibers that were published and have not ended.
    live: AtomicI64,
    mail: Mutex<PostedChanges>,
    bell: Condvar,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            root: Box::leak(Box::new(Root::new())),
            queue: Mutex::new(0),
            live: AtomicI64::new(0),
            mail: Mutex::default(),
            bell: Condvar::new(),
        })
    }

    fn push(&self) {
        self.live.fetch_add(1, Ordering::SeqCst);
        *self.queue.lock() += 1;
    }

    fn spawn(&self, tally: &Tally<R>) {
        assert!(tally.count_spawn(self.root, wake), "closed under a live fiber");
        self.push();
    }

    /// Runs one fiber, if there is one; it starts `children` of its own.
    fn run_one(&self, tally: &Tally<R>, children: usize) -> bool {
        let mut queued = self.queue.lock();
        if *queued == 0 {
            return false;
        }
        *queued -= 1;
        drop(queued);
        (0..children).for_each(|_| self.spawn(tally));
        self.live.fetch_sub(1, Ordering::SeqCst);
        tally.count_end(self.root, wake);
        true
    }

    fn post(&self, change: impl FnOnce(&mut PostedChanges)) {
        change(&mut self.mail.lock());
        self.bell.notify_one();
    }

    /// A worker's loop until it is stopped: fibers, then mail.
    fn work(&self, tally: &Tally<R>) {
        loop {
            while self.run_one(tally, 0) {}
            let mut mail = self.mail.lock();
            while !mail.flush && !mail.stop {
                mail = self.bell.wait(mail);
            }
            if mail.stop {
                return;
            }
            mail.flush = false;
            drop(mail);
            wake(tally.flush(self.root));
        }
    }

    /// As `runtime::roots::await_empty` does, without a deadline.
    fn close(&self) {
        let record = thread_record();
        let closed = self.root.close_when_empty(|| {
            let publish = |node: &Node| {
                let (waiter, ticket, _) = node.target();
                self.root.publish((waiter, ticket))
            };
            let _ = wait_with(record, publish, |_| self.root.unpublish(), WaitReason::RunEnd, None);
            true
        });
        assert!(closed, "it does not give up");
        assert_eq!(self.live.load(Ordering::SeqCst), 0, "closed with a fiber alive");
    }
}

// S0-64, S0-101: what one worker counted up, another counts down, each with its own difference, while the owner drains.
#[test]
fn model_drain_against_ends() {
    check(2, || {
        let world = World::new();
        let mine = Tally::new();
        world.spawn(&mine);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                let tally = Tally::new();
                world.run_one(&tally, 1);
                world.work(&tally);
            })
        };
        assert!(world.root.begin_drain(2), "there is something to flush");
        world.post(|mail| mail.flush = true);
        wake(mine.flush(world.root));
        // The root fiber waits; its worker runs what is left.
        while world.run_one(&mine, 0) {}
        world.close();
        world.post(|mail| mail.stop = true);
        other.join().unwrap();
        assert!(!world.root.try_add(), "a closed root takes no fiber");
    });
}

// S0-101: the last fiber ends on another worker while the owner goes to sleep.
#[test]
fn model_publish_against_the_last_end() {
    check(3, || {
        let world = World::new();
        assert!(world.root.try_add());
        assert!(!world.root.begin_drain(1), "no worker has counted anything");
        let ender = {
            let world = world.clone();
            thread::spawn(move || wake(world.root.add(-1)))
        };
        world.close();
        ender.join().unwrap();
    });
}

// A spawn from outside while the root is drained and closed: either it is refused, or it is run and waited for. The
// worker that runs it may keep a difference only if the owner will ask for it.
#[test]
fn model_spawn_from_outside_against_close() {
    check(3, || {
        let world = World::new();
        let outside = {
            let world = world.clone();
            thread::spawn(move || {
                let accepted = world.root.try_add();
                if accepted {
                    world.push();
                }
                // The worker that takes it out of the injector at once.
                let tally = Tally::new();
                let ran = world.run_one(&tally, 0);
                assert_eq!(ran, accepted);
                world.work(&tally);
                (accepted, tally.settle().is_none())
            })
        };
        if world.root.begin_drain(1) {
            world.post(|mail| mail.flush = true);
        }
        world.close();
        world.post(|mail| mail.stop = true);
        let (_, settled) = outside.join().unwrap();
        assert!(
            settled && world.root.pending.load(Ordering::SeqCst) == CLOSED,
            "something was counted after the close"
        );
    });
}

// A root's next life: a worker that brought the number to 0 in the first life is still looking for the waiter. It wakes the next owner in
// vain, or wakes no owner; the next life is counted and waited for all the same.
#[test]
fn model_late_ender_of_the_life_before() {
    check(2, || {
        let world = World::new();
        assert!(world.root.try_add());
        world.root.begin_drain(0);
        let ender = {
            let world = world.clone();
            thread::spawn(move || {
                wake(world.root.add(-1));
            })
        };
        world.close();
        world.root.reset();
        assert!(world.root.try_add());
        world.root.begin_drain(0);
        let next_ender = {
            let world = world.clone();
            thread::spawn(move || wake(world.root.add(-1)))
        };
        world.close();
        ender.join().unwrap();
        next_ender.join().unwrap();
    });
}

// More of everything, for random schedules: fibers that start fibers, two runs after one another on the same root, while the
// worker also deals with another root.
#[cfg(not(loom))]
#[test]
fn model_drain_of_many() {
    check(0, || {
        let (world, elsewhere) = (World::new(), World::new());
        for _ in 0..2 {
            let mine = Tally::new();
            (0..3).for_each(|_| world.spawn(&mine));
            let other = {
                let (world, elsewhere) = (world.clone(), elsewhere.clone());
                thread::spawn(move || {
                    let tally = Tally::new();
                    world.run_one(&tally, 2);
                    elsewhere.spawn(&tally);
                    world.run_one(&tally, 1);
                    assert!(elsewhere.run_one(&tally, 0));
                    world.work(&tally);
                    wake(tally.settle());
                })
            };
            world.run_one(&mine, 1);
            if world.root.begin_drain(2) {
                world.post(|mail| mail.flush = true);
                wake(mine.flush(world.root));
            }
            while world.run_one(&mine, 0) {}
            world.close();
            world.post(|mail| mail.stop = true);
            other.join().unwrap();
            assert_eq!(elsewhere.root.pending.load(Ordering::SeqCst), 1, "the other root's owner only");
            world.root.reset();
            world.mail.lock().stop = false;
        }
    });
}

// A scope is cancelled while its first child on another worker starts: the child is told, or sees by itself that it is cancelled.
#[test]
fn model_cancel_against_a_child_that_starts() {
    check(3, || {
        let root: R = Box::leak(Box::new(Root::new()));
        let holders = Arc::new(Holders::new());
        let child = {
            let holders = holders.clone();
            thread::spawn(move || {
                holders.mark(1);
                root.is_cancelled()
            })
        };
        assert!(root.cancel(ReasonKind::Scope));
        let is_told = holders.look().may_have(1);
        assert!(child.join().unwrap() || is_told, "the child goes on in a scope that is cancelled");
    });
}
