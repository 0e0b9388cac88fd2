//! How other threads reach a worker: they put fibers and commands where the worker finds them, and wake it for each.
//!
//! Above: `shared.rs`, the runtime that ships, and `sleep.rs`, where a worker goes to sleep; models bring a runtime of their own, with
//! fibers that are only a link and a condition variable in place of a driver. Both run these lines. Below: the queues, and `idle.rs`,
//! which has the proof that none of these wakes is lost.
//!
//! Invariants
//! * Every push is followed by its wake: a directed wake for what only one worker can do, an undirected one for the rest.
//! * A thread that is no worker of the runtime touches the runtime only while the fiber it has claimed, or a visit, keeps the runtime
//!   alive.

use std::ptr::NonNull;

use super::idle::{Idle, Reached};
use super::phase::Phase;
use super::queue::Entry;
use super::queue::fresh::Fresh;
use super::queue::injector::Injector;
use super::visitors::Visitors;
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::linked::Linked;
use crate::prim::mpsc::Mpsc;
use crate::prim::sync::Mutex;

/// What arrives at a worker from outside; looked at on every turn, so the two things to look at share a line.
#[derive(Debug)]
pub(crate) struct WorkerMail<F, C> {
    /// Fibers that live there and that other threads have woken, or sent. Never closed: fibers are woken as long as there are any.
    /// On a line of its own: other threads write it, the owner looks at it all the time.
    pub(crate) inbox: CacheLine<Mpsc<F>>,
    pub(crate) has_commands: AtomicBool,
    commands: Mutex<Vec<C>>,
}

impl<F: Linked, C> WorkerMail<F, C> {
    pub(crate) fn new() -> Self {
        Self { inbox: CacheLine(Mpsc::new()), has_commands: AtomicBool::new(false), commands: Mutex::new(Vec::new()) }
    }

    fn put(&self, command: C) {
        self.commands.lock().push(command);
        // SeqCst read-modify-write: first half of the handshake with a worker that goes to sleep; `wake_worker` is the second.
        self.has_commands.swap(true, Ordering::SeqCst);
    }

    /// Takes the commands that have arrived. The caller is the worker whose mail this is, or answers for one that has left.
    pub(super) fn take_commands(&self) -> Vec<C> {
        // SeqCst: pairs with the swap in `put`.
        if self.has_commands.swap(false, Ordering::SeqCst) {
            return std::mem::take(&mut *self.commands.lock());
        }
        Vec::new()
    }
}

/// A fiber that another thread hands to a worker.
pub(crate) trait Sent: Linked {
    /// The worker that its stack belongs to. `None`: a task between two polls, which has no stack and goes to any worker.
    fn home(&self) -> Option<usize>;

    /// The entry that stands for it in a queue from which any worker takes.
    fn entry(&'static self) -> Entry;
}

/// A runtime, as far as reaching its workers goes.
pub(crate) trait Reach {
    type Fiber: Sent + 'static;
    type Command;

    fn idle(&self) -> &Idle;
    fn injector(&self) -> &Injector;
    /// The seats that have, or had, a worker: the first so many (`seats.rs`).
    fn workers(&self) -> usize;
    /// All seats.
    fn seats(&self) -> usize;
    /// New fibers that are on their way to this worker, sent by name.
    fn coming(&self, worker: usize) -> &AtomicU64;
    fn mail(&self, worker: usize) -> &WorkerMail<Self::Fiber, Self::Command>;
    fn fresh(&self, worker: usize) -> &Fresh;
    fn visitors(&self) -> &Visitors;
    /// Set once, before every worker is woken for the last time.
    fn stop(&self) -> &AtomicBool;

    /// Ends the sleep of a worker that was woken, or its next one.
    fn kick(&self, worker: usize);

    /// Answers a command that was posted to a seat without a worker: such a seat has no fibers and no differences.
    fn serve_vacant(&self, command: Self::Command);

    /// A started fiber that is on no worker, because it moves. True: it was sent to where it last ran.
    fn send_home(&self, _: &'static Self::Fiber) -> bool {
        false
    }

    /// A started fiber that is on no worker, because fibers of this runtime may move. True: it was sent on its way.
    fn send_adrift(&self, _: &'static Self::Fiber) -> bool {
        false
    }
}

/// From any thread: hands a fiber (started, or bound to that worker) to its worker.
///
/// # Safety
/// The fiber is RUNNABLE and only the caller holds it, so that its link is free. The caller does not touch it afterwards.
pub(crate) unsafe fn deliver<R: Reach>(runtime: &R, worker: usize, fiber: &'static R::Fiber) {
    // SAFETY: the caller's promise; it lives for ever.
    let pushed = unsafe { runtime.mail(worker).inbox.push(NonNull::from(fiber)) };
    debug_assert!(pushed.is_ok(), "an inbox is never closed");
    if pushed == Ok(true) {
        wake_worker(runtime, worker);
    }
}

/// From any thread: hands an unstarted fiber or a task to any worker.
pub(crate) fn inject<R: Reach>(runtime: &R, entry: Entry) {
    runtime.injector().push(entry);
    wake_any_worker(runtime);
}

/// From any thread: asks one worker to do something. See `seats.rs` for a seat that has none.
pub(crate) fn post<R: Reach>(runtime: &R, worker: usize, command: R::Command) {
    // A worker that comes later sees what the caller did before this look.
    if runtime.idle().phase_handshake(worker) == Phase::Dead {
        return runtime.serve_vacant(command);
    }
    runtime.mail(worker).put(command);
    match runtime.idle().try_wake(worker) {
        Reached::Slept => runtime.kick(worker),
        Reached::Awake => {}
        Reached::Dead if seeded_bug("vacant_unserved") => {}
        Reached::Dead => serve_vacant(runtime, worker),
    }
}

/// Answers the commands that were posted to a worker that has left. The worker calls this after its last step, and so does a poster that
/// sees after its post that the worker has left. Each command is answered by one of the two.
///
/// The next worker of the seat may have come meanwhile, and some of the commands taken here may have been posted to that one: then it gets
/// all of them. If the seat has no worker after they were taken, then any worker that was there before has left too, and a worker that
/// comes later sees what the posters did.
pub(crate) fn serve_vacant<R: Reach>(runtime: &R, worker: usize) {
    let commands = runtime.mail(worker).take_commands();
    if commands.is_empty() {
        return;
    }
    let is_vacant = runtime.idle().phase_handshake(worker) == Phase::Dead || seeded_bug("vacant_served_blindly");
    for command in commands {
        if is_vacant { runtime.serve_vacant(command) } else { post(runtime, worker, command) }
    }
}

/// Tells every worker to end. The flag is set first: it is a push like any other, and the wakes follow.
pub(crate) fn stop<R: Reach>(runtime: &R) {
    // SeqCst read-modify-write: first half of the handshake with workers that go to sleep; the directed wakes are the second.
    runtime.stop().swap(true, Ordering::SeqCst);
    (0..runtime.seats()).for_each(|worker| wake_worker(runtime, worker));
}

/// A directed wake: wakes that worker, if it sleeps.
pub(crate) fn wake_worker<R: Reach>(runtime: &R, worker: usize) {
    if runtime.idle().wake_worker(worker) {
        runtime.kick(worker);
    }
}

/// An undirected wake: wakes some sleeping worker, if no worker is searching. True if one was woken.
pub(crate) fn wake_any_worker<R: Reach>(runtime: &R) -> bool {
    let woken = runtime.idle().wake_any_worker();
    woken.into_iter().for_each(|worker| runtime.kick(worker));
    woken.is_some()
}

/// Enqueues a fiber from a thread that is no worker of its runtime.
///
/// # Safety
/// As for [`deliver`]. The fiber is claimed and RUNNABLE, so it has not ended, and its runtime lives until the push; the visit keeps the
/// runtime alive from then on.
pub(crate) unsafe fn enqueue_from_outside<R: Reach>(runtime: &R, fiber: &'static R::Fiber) {
    let counted = !seeded_bug("visit_uncounted");
    if counted {
        runtime.visitors().enter();
    }
    match fiber.home() {
        None if runtime.send_home(fiber) => {}
        None => inject(runtime, fiber.entry()),
        Some(_) if runtime.send_adrift(fiber) => {}
        // SAFETY: the caller's promise.
        Some(home) => unsafe { deliver(runtime, home, fiber) },
    }
    if counted {
        runtime.visitors().leave();
    }
}

/// Is there mail for this worker? For a worker that is awake: it may miss what is arriving at this moment.
pub(super) fn has_mail<R: Reach>(runtime: &R, worker: usize) -> bool {
    let mail = runtime.mail(worker);
    // Relaxed, both: hints; only `has_mail_handshake`, which a worker calls before it sleeps, must not miss anything.
    let stopped = runtime.stop().load(Ordering::Relaxed);
    !mail.inbox.is_empty() || mail.has_commands.load(Ordering::Relaxed) || stopped
}

/// The same question for a worker that has announced its sleep: a thread whose push this does not see sees the announcement.
pub(super) fn has_mail_handshake<R: Reach>(runtime: &R, worker: usize) -> bool {
    let mail = runtime.mail(worker);
    // SeqCst, both: second half of the handshakes with `post` and `stop`; the announcement was the first.
    let stopped = runtime.stop().load(Ordering::SeqCst) && !seeded_bug("idle_stop_unseen");
    stopped || mail.has_commands.load(Ordering::SeqCst) || !mail.inbox.is_empty_handshake()
}

/// Do other workers, or the injector, have unstarted fibers? A hint, exact only for pushes that happened before the call.
pub(super) fn others_have_surplus<R: Reach>(runtime: &R, worker: usize) -> bool {
    !runtime.injector().is_empty() || others(runtime, worker).any(|fresh| !fresh.is_empty())
}

/// Do other workers have unstarted fibers? For a worker that has announced its sleep, as [`has_mail_handshake`]; the other side of the
/// handshake is a worker that judges its surplus.
pub(super) fn others_have_fresh_handshake<R: Reach>(runtime: &R, worker: usize) -> bool {
    others(runtime, worker).any(|fresh| !fresh.is_empty_handshake())
}

fn others<R: Reach>(runtime: &R, worker: usize) -> impl Iterator<Item = &Fresh> {
    (0..runtime.workers()).filter(move |other| *other != worker).map(|other| runtime.fresh(other))
}
