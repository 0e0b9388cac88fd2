//! Seats: the places for workers of a runtime, more of them than there are workers. A worker is added when others are stuck (or when the
//! program asks for one), and leaves when it is idle, without dropping work. This file holds the protocols only, so that the product and
//! the models run the same lines.
//!
//! Above: `elastic.rs`, which decides when a worker is added and when one leaves, and `launch.rs`. Below: `idle.rs` (the word of each
//! seat), `reach.rs` (mail).
//!
//! # Leaving against being sent something
//!
//! ```text
//!  the worker that leaves                             a sender of a new fiber for it (`spread`, machines)
//!  word: DRAINING          (read-modify-write)        coming + 1                (read-modify-write)
//!  coming and inbox, are they empty?                  is the word DRAINING or DEAD?  (read-modify-write)
//!  yes: gives back what it has; word: DEAD            yes: coming - 1, choose another worker; no: push
//!  no: sleeps                                         if coming is 0 then, and the word DRAINING: wakes the worker
//! ```
//!
//! The two meet at the word: if the sender's look comes first, the worker sees `coming` and stays; if it comes later, the sender chooses
//! another worker. Everything else that is sent to a worker by name is for fibers that have started there, and a worker does not leave
//! while it has started fibers.
//!
//! *Commands* go to every seat. A seat that is DEAD when they are posted has nothing to do: its worker has flushed every difference and has
//! no fiber, and a worker that comes later sees what the poster did before. A worker that leaves between the post and the poster's second
//! look leaves the command behind; then either the worker or the poster answers it for the seat (`Reach::serve_vacant`). Both look once
//! more when they have taken the commands out: if the seat has its next worker by then, that worker gets them, since they may have been
//! posted to it.
//!
//! # Coming against the end of the runtime
//!
//! Threads are started under the lock of [`Staff`], which shutdown closes before it joins them: a thread that was started before is in the
//! list that shutdown takes, and none is started after.
//!
//! # Seeded bugs
//!
//! | bug | where | model that must fail |
//! |---|---|---|
//! | `seat_reserved_late` | a sender looks at the word before it counts |
//! `sched::staff::seats::model::model_leaving_against_a_spread_fiber` |
//! | `seat_leaves_blindly` | the worker does not look what is coming | `sched::staff::seats::model::model_leaving_against_a_spread_fiber` |
//! | `vacant_unserved` | a poster does not look whether the worker has left | `sched::staff::seats::model::model_leaving_against_a_command`
//! |
//! | `seat_wish_unseen` | no second look at the wish before a sleep | `sched::sleep::model::model_wish_reaches_a_worker_going_to_sleep` |
//! | `vacant_served_blindly` | answered though the next worker is there | `sched::staff::seats::model::model_command_for_the_next_worker` |
//! | `staff_starts_unlocked` | a thread is started without the lock | `sched::staff::seats::model::model_coming_against_shutdown` |

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::sync::Mutex;
use crate::sched::idle::Idle;
use crate::sched::phase::Phase;
use crate::sched::reach::{self, Reach};

/// How long the worker of a seat is to stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Stay {
    /// For good: one of the base number.
    Permanent = 0,
    /// Until it has been idle for a while.
    Temporary = 1,
    /// Until its fibers have ended.
    Leaving = 2,
    /// The seat has no worker, or a worker on its last steps.
    Vacant = 3,
}

/// What is wanted of each seat, and how many have ever been used.
#[derive(Debug)]
pub(crate) struct Seats {
    stays: Box<[AtomicU32]>,
    made: AtomicUsize,
}

impl Seats {
    /// For `seats` seats, of which the first `workers` are taken for good.
    pub(crate) fn new(seats: usize, workers: usize) -> Self {
        let stay = |seat| if seat < workers { Stay::Permanent } else { Stay::Vacant };
        Self {
            stays: (0..seats).map(|seat| AtomicU32::new(stay(seat) as u32)).collect(),
            made: AtomicUsize::new(workers),
        }
    }

    /// How many seats have, or had, a worker; they are the first ones. The number only grows, and it grows before the worker is counted as
    /// alive (`Idle::arrive`): a worker that has announced its sleep sees all seats that had a worker by then.
    #[inline(always)]
    pub(crate) fn made(&self) -> usize {
        // Acquire: pairs with `take`.
        self.made.load(Ordering::Acquire)
    }

    pub(crate) fn stay(&self, seat: usize) -> Stay {
        // Relaxed: a wish; the thread that acts on it changes it by compare-exchange.
        match self.stays[seat].load(Ordering::Relaxed) {
            0 => Stay::Permanent,
            1 => Stay::Temporary,
            2 => Stay::Leaving,
            _ => Stay::Vacant,
        }
    }

    /// Changes the wish from `from` to `to`. False: it was not `from` any more.
    pub(crate) fn change(&self, seat: usize, from: Stay, to: Stay) -> bool {
        // AcqRel: of two threads that change it one wins, and sees what the other did before. Relaxed on failure: nothing follows from it.
        self.stays[seat].compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives a DEAD seat to a worker that is about to start. The caller holds the lock of the staff, so no other thread does.
    pub(crate) fn take(&self, idle: &Idle, seat: usize, stay: Stay) {
        debug_assert_eq!(idle.phase(seat), Phase::Dead, "a seat is taken once");
        // Relaxed: ordered by the word, which `arrive` changes, and by the start of the thread.
        self.stays[seat].store(stay as u32, Ordering::Relaxed);
        // Release: pairs with `made`. Only the holder of the staff's lock changes it.
        self.made.fetch_max(seat + 1, Ordering::Release);
        idle.arrive(seat);
    }

    /// The worker of this seat leaves: its last step.
    pub(crate) fn leave(&self, idle: &Idle, seat: usize) {
        // Relaxed: ordered by the word.
        self.stays[seat].store(Stay::Vacant as u32, Ordering::Relaxed);
        idle.leave(seat);
    }
}

/// Before a new fiber is sent to this worker by name. False: the worker is leaving, or gone; choose another. (Worker 0 never leaves.)
pub(crate) fn reserve<R: Reach>(runtime: &R, worker: usize) -> bool {
    let coming = runtime.coming(worker);
    let too_early = seeded_bug("seat_reserved_late").then(|| runtime.idle().phase_handshake(worker));
    // SeqCst read-modify-write: first half of the handshake with `may_leave`; the look at the word is the second.
    coming.fetch_add(1, Ordering::SeqCst);
    if too_early.unwrap_or_else(|| runtime.idle().phase_handshake(worker)).accepts() {
        return true;
    }
    unreserve(runtime, worker);
    false
}

/// What was reserved does not come, or lies in the worker's inbox by now. A worker that stayed because of it, and sleeps, looks again.
pub(crate) fn unreserve<R: Reach>(runtime: &R, worker: usize) {
    // SeqCst read-modify-write, before the look at the word: a worker that saw it coming, in `may_leave`, was DRAINING by then.
    let was_last = runtime.coming(worker).fetch_sub(1, Ordering::SeqCst) == 1;
    if was_last && !runtime.idle().phase_handshake(worker).accepts() {
        reach::wake_worker(runtime, worker);
    }
}

/// Asked by a worker that is DRAINING and has no fiber: is nothing on its way to it?
pub(crate) fn may_leave<R: Reach>(runtime: &R, worker: usize) -> bool {
    if seeded_bug("seat_leaves_blindly") {
        return true;
    }
    // SeqCst read-modify-write: second half of the handshake with `reserve`; that the word is DRAINING was the first.
    runtime.coming(worker).fetch_add(0, Ordering::SeqCst) == 0 && runtime.mail(worker).inbox.is_empty_handshake()
}

/// The threads of a runtime's workers, also of workers that have left. See the header.
#[derive(Debug)]
pub(crate) struct Staff<H>(Mutex<Open<H>>);

#[derive(Debug)]
struct Open<H> {
    threads: Vec<H>,
    closed: bool,
}

impl<H> Staff<H> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Open { threads: Vec::new(), closed: false }))
    }

    /// Calls `start` under the lock, with the list of threads, unless the runtime is being shut down.
    pub(crate) fn hire<T>(&self, start: impl FnOnce(&mut Vec<H>) -> T) -> Option<T> {
        let mut staff = self.0.lock();
        if staff.closed {
            return None;
        }
        if seeded_bug("staff_starts_unlocked") {
            drop(staff);
            let mut threads = Vec::new();
            let result = start(&mut threads);
            self.0.lock().threads.append(&mut threads);
            return Some(result);
        }
        Some(start(&mut staff.threads))
    }

    /// No thread is started from now on. The caller joins the returned threads, or detaches them.
    pub(crate) fn close(&self) -> Vec<H> {
        let mut staff = self.0.lock();
        staff.closed = true;
        std::mem::take(&mut staff.threads)
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
