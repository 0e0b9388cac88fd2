//! Models of workers that leave and come, over the code that ships: `reserve`, `may_leave`, `post`, `serve_vacant`, the words of the seats,
//! the staff's lock. The models' runtime has two seats; its fibers are only a link and its commands are numbers.

use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use crate::prim::linked::Linked;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::sched::queue::Entry;
use crate::sched::queue::fresh::Fresh;
use crate::sched::queue::injector::Injector;
use crate::sched::reach::{self, Reach, Sent, WorkerMail};
use crate::sched::staff::seats::*;
use crate::sched::visitors::Visitors;

struct Fiber(AtomicPtr<Fiber>);

// SAFETY: one cell, null at first, and only lists write it.
unsafe impl Linked for Fiber {
    fn link(&self) -> &AtomicPtr<Fiber> {
        &self.0
    }
}

impl Sent for Fiber {
    fn home(&self) -> Option<usize> {
        unreachable!("it has not started")
    }
    fn entry(&'static self) -> Entry {
        unreachable!("it is sent by name")
    }
}

/// Worker 0 stays, worker 1 is about to leave.
struct World {
    idle: Idle,
    seats: Seats,
    injector: Injector,
    fresh: Fresh,
    mail: [WorkerMail<Fiber, u32>; 2],
    coming: [AtomicU64; 2],
    visitors: Visitors,
    stop: AtomicBool,
    /// Commands that were answered for a seat without a worker.
    served: AtomicU64,
}

// SAFETY: the deque is never touched.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(2, 2),
            seats: Seats::new(2, 2),
            injector: Injector::with_ring(2),
            fresh: Fresh::new(),
            mail: [WorkerMail::new(), WorkerMail::new()],
            coming: [AtomicU64::new(0), AtomicU64::new(0)],
            visitors: Visitors::new(),
            stop: AtomicBool::new(false),
            served: AtomicU64::new(0),
        })
    }

    /// The steps of a worker without fibers that leaves, as in `elastic.rs`. False: something is on its way, and it stays.
    fn leave(&self) -> bool {
        self.idle.set_draining(1, true);
        if !may_leave(self, 1) {
            return false;
        }
        self.seats.leave(&self.idle, 1);
        reach::serve_vacant(self, 1);
        true
    }
}

impl Reach for World {
    type Fiber = Fiber;
    type Command = u32;

    fn idle(&self) -> &Idle {
        &self.idle
    }
    fn injector(&self) -> &Injector {
        &self.injector
    }
    fn workers(&self) -> usize {
        self.seats.made()
    }
    fn seats(&self) -> usize {
        2
    }
    fn coming(&self, worker: usize) -> &AtomicU64 {
        &self.coming[worker]
    }
    fn mail(&self, worker: usize) -> &WorkerMail<Fiber, u32> {
        &self.mail[worker]
    }
    fn fresh(&self, _: usize) -> &Fresh {
        &self.fresh
    }
    fn visitors(&self) -> &Visitors {
        &self.visitors
    }
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }
    fn kick(&self, _: usize) {
        unreachable!("both are awake")
    }
    fn serve_vacant(&self, _: u32) {
        // Relaxed: a sum, read when both threads have ended.
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

// S1-115, S4-78: a fiber is spread while the worker it is meant for leaves: it arrives at a worker that stays, or is sent to another one.
#[test]
fn model_leaving_against_a_spread_fiber() {
    check(3, || {
        let world = World::new();
        let sender = {
            let world = world.clone();
            thread::spawn(move || {
                let sent = reserve(&*world, 1);
                if sent {
                    let fiber: &'static Fiber = Box::leak(Box::new(Fiber(AtomicPtr::new(std::ptr::null_mut()))));
                    // SAFETY: a new fiber, which no other thread knows.
                    unsafe { reach::deliver(&*world, 1, fiber) };
                }
                sent
            })
        };
        let left = world.leave();
        let sent = sender.join().unwrap();
        assert!(!(left && sent), "a fiber was sent to a worker that has left");
        assert_eq!(world.mail[1].inbox.take_all().count(), usize::from(sent));
    });
}

// S1-115: a command is posted while the worker leaves: it is answered once, by the worker or for it.
#[test]
fn model_leaving_against_a_command() {
    check(3, || {
        let world = World::new();
        let poster = {
            let world = world.clone();
            thread::spawn(move || reach::post(&*world, 1, 7))
        };
        assert!(world.leave());
        poster.join().unwrap();
        let lost = world.mail[1].take_commands().len();
        // Relaxed: both threads have ended.
        assert_eq!((world.served.load(Ordering::Relaxed), lost), (1, 0));
    });
}

// S1-115: a worker leaves, the next one comes into its seat and is sent a command, while the first is still about to answer what was left
// to it: the command is the second one's.
#[test]
fn model_command_for_the_next_worker() {
    check(3, || {
        let world = World::new();
        let next = {
            let world = world.clone();
            thread::spawn(move || {
                let is_free = world.idle.phase_handshake(1) == Phase::Dead;
                if is_free {
                    world.seats.take(&world.idle, 1, Stay::Permanent);
                    reach::post(&*world, 1, 7);
                }
                is_free
            })
        };
        assert!(world.leave());
        let has_come = next.join().unwrap();
        let arrived = world.mail[1].take_commands().len();
        // Relaxed: both threads have ended.
        assert_eq!((world.served.load(Ordering::Relaxed), arrived), (0, usize::from(has_come)));
    });
}

// S1-122: a worker is added while the runtime shuts down: it is joined, or not started.
#[test]
fn model_coming_against_shutdown() {
    check(3, || {
        let (staff, running) = (Arc::new(Staff::<u32>::new()), Arc::new(AtomicU64::new(0)));
        let sysmon = {
            let (staff, running) = (staff.clone(), running.clone());
            thread::spawn(move || {
                staff.hire(|threads| {
                    // Relaxed: the thread that runs.
                    running.fetch_add(1, Ordering::Relaxed);
                    threads.push(1);
                });
            })
        };
        let joined = staff.close().len();
        sysmon.join().unwrap();
        // Relaxed: as above.
        assert_eq!(joined as u64, running.load(Ordering::Relaxed), "a thread was started that shutdown does not join");
    });
}
