//! The idle protocol: which workers sleep, which one searches, and which sleeper a push wakes. Independent of how a worker sleeps
//! (epoll, a condition variable).
//!
//! Above: `sleep.rs` (the steps of a worker without work) and `reach.rs` (the steps of a publisher). Below: `phase.rs`, `prim`.
//!
//! # Concepts
//!
//! * A worker is *running* something, *searching* (its own queues are empty and it looks at those of others, spinning for a while), or
//!   *asleep* (blocked in its driver, at the runtime's one blocking point).
//! * A *directed* wake is for work that only one worker can do: a started fiber in its inbox, the stop flag. If that worker
//!   sleeps, it is woken, always.
//! * An *undirected* wake is for work that any worker can do: surplus in a `fresh` deque, an entry in the injector. It is gated: if a
//!   worker searches already, that searcher will find the work. Otherwise exactly one sleeper is woken, and counts as searching from
//!   that moment on, not from the moment it gets the processor, so that the next push does not wake another.
//!
//! # The problem
//!
//! Waking a sleeper costs 30 to 60 µs, ten thousand times what a switch of fibers costs; not waking one leaves a processor idle while
//! work waits; and a wake that is lost between a worker's last look and its going to sleep leaves work waiting for ever.
//!
//! # Rejected
//!
//! 1. *Wake on every push* (and *wake all*). A burst of a thousand spawns is a thousand system calls, and the woken ones find
//!    that the first has taken everything.
//! 2. *A semaphore.* A binary one coalesces two wakes into one worker; a counting one has wakes left over that send workers into empty
//!    queues.
//! 3. *Hand the work over to the sleeper.* The spawner would keep what it spawned for 3 ns; the other side of the machine needs 30 µs.
//!    Most surplus is gone before a sleeper is up.
//! 4. *Lock-free sleeper list.* Count, list and state of a sleeper would change one after another, with a window between any two, each
//!    to be argued away. Going to sleep and waking are the slow paths by definition; a lock makes the three one.
//!
//! # The protocol
//!
//! State: one word per worker (`phase.rs`: ACTIVE, SPIN, SLEEP, WOKEN and so on); one word with the counts of searchers and sleepers;
//! the list of sleepers under a lock. The sleep of a worker begins and ends only under the lock; list and sleeper count change with it.
//! The number of searchers changes by itself.
//!
//! *Publishing work* (any thread):
//! 1. push it (a SeqCst read-modify-write, or for `fresh` followed by one: the pop of the spawner's own next item);
//! 2. directed: [`wake_worker`](Idle::wake_worker); undirected: [`wake_any_worker`](Idle::wake_any_worker), before which a worker may ask
//!    [`has_gate_open`](Idle::has_gate_open), a plain load;
//! 3. if either says so, kick that worker's eventfd.
//!
//! *Going to sleep* (a worker whose queues are empty; `sleep.rs`):
//! 1. if searching, [`stop_search`](Idle::stop_search);
//! 2. [`announce_sleep`](Idle::announce_sleep);
//! 3. look again, with the `is_empty_handshake` looks: own inbox, commands, stop flag, injector, the `fresh` deques of all others;
//! 4. if there is nothing, block in the driver until kicked, or until the next timer. If all there is are unstarted fibers in deques of
//!    others, which may be too young to be taken, block as well, but with a time-out, so that the worker soon looks again;
//! 5. in any case [`woke`](Idle::woke). It says whether the worker counts as searching now, and then it must search, or stop
//!    searching by the rule below. A kick may still be under way; the next sleep then ends early, once.
//!
//! *Searching*: at most [`MAX_SEARCHERS`], by [`try_start_search`](Idle::try_start_search). A searcher that *finds* something leaves
//! the state first, then looks at all queues, and if anything is left calls `wake_any_worker`, before it runs what it found. One that finds
//! *nothing* leaves the state and looks again: that is steps 1 to 3 above.
//!
//! # Why no wake is lost
//!
//! *Directed.* Both the publisher, after its push, and the sleeper, before its second look, do a read-modify-write on the worker's
//! word. Whichever is later in that word's history sees the other. If it is the publisher, it sees SLEEP and wakes
//! (or WOKEN: another publisher wakes it). If it is the sleeper, the publisher's push happens before its second look.
//! A publisher that finds WOKEN leaves its mark too: the worker's own swap in `woke` comes later, and it then reads its inbox.
//!
//! *Undirected.* The same with the word of counts: a publisher's look comes before or after a sleeper's announcement, and before or after
//! a searcher's departure. Before: the push is seen in the second look. After: the gate is open, and a sleeper is woken. If
//! the look finds the gate closed because a worker searches, then that searcher's departure comes later, and after it the searcher looks
//! at all queues. Between departure and announcement a worker is in neither count; then its announcement comes later, and its second
//! look after that.
//! `has_gate_open` is a load, not a read-modify-write; there the two locations are `bottom` of the deque and the counts, and the four
//! SeqCst accesses (swap, load; announce or leave, load) cannot all miss each other.
//!
//! *Enough are woken.* Two items pushed before any worker runs wake one worker: the second push finds a searcher. When that one has
//! found the first item, it looks at all queues, sees the second and wakes the next; and so on until no worker sleeps or no work is left
//! (S2-59).
//!
//! *Not too many.* Only `wake_any_worker` wakes for surplus; it adds one searcher and removes one sleeper in a single step, and only if
//! there is room for a searcher.
//!
//! # The watcher
//!
//! Sysmon watches workers that run something, and must cost nothing when all of them sleep. So it leaves when all sleep
//! ([`dismiss_watcher`](Idle::dismiss_watcher)), and the first worker that wakes calls it back
//! ([`must_wake_sysmon`](Idle::must_wake_sysmon), right after `woke`). It says that it leaves and then looks at the counts; a worker leaves
//! the counts (or was taken out of them by the thread that woke it) and then looks whether sysmon watches. All four are SeqCst, so one of
//! the two sees the other: no worker runs unwatched.
//!
//! # Workers that come and go
//!
//! A runtime has more seats than workers (`elastic.rs`). The word of a seat also says whether a worker is there and whether it is leaving;
//! [`Phase`] has the table. A DRAINING worker is not in the list of sleepers and not in their count, so that no undirected wake goes to it;
//! what is sent to it by name wakes it as before. The number of workers that are alive is in the word of counts too: a worker that begins
//! its sleep sees every worker that was added before, and a worker that is added later sees the sleeper.
//!
//! # Seeded bugs
//!
//! CI switches each on (`FIBRA_BUG=…`, see `prim::bug`) and expects the model beside it to fail; `.ci/bugs` holds the same list.
//!
//! | bug | where | model that must fail |
//! |---|---|---|
//! | `idle_wake_load` | `wake_worker` looks with a plain load | `sched::idle::model::model_directed_wake_is_not_lost` |
//! | `idle_gate_load` | `has_gate_open` is a relaxed load | `sched::sleep::model::model_surplus_wake_is_not_lost` |
//! | `surplus_appears_unseen` | `Surplus` waits when surplus appears | `sched::sleep::model::model_surplus_wake_is_not_lost` |
//! | `idle_wake_uncounted` | the woken one does not count as searching | `sched::idle::model::model_exactly_one_is_woken` |
//! | `idle_woke_blindly` | one that wakes by itself does not look what woke it | `sched::idle::model::model_own_wake_against_wake_any` |
//! | `idle_no_second_look` | the worker sleeps without a second look | `sched::sleep::model::model_undirected_wake_is_not_lost` |
//! | `idle_leave_late` | the searcher leaves after its second look | `sched::sleep::model::model_searcher_that_leaves_looks_again` |
//! | `idle_no_chain` | a searcher that found work wakes no other worker | `sched::sleep::model::model_two_items_wake_two_workers` |
//! | `idle_stop_unseen` | the second look leaves out the stop flag | `sched::sleep::model::model_stop_reaches_a_worker_going_to_sleep` |
//! | `idle_draining_listed` | a DRAINING worker sleeps in the list | `sched::idle::model::model_draining_worker_is_not_woken_for_surplus` |
//! | `idle_dismiss_early` | the watcher looks first and says then that it leaves | `sched::idle::model::model_no_worker_runs_unwatched` |

use std::fmt;

use super::phase::{Phase, check_edge};
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering, handshake_load_u32, handshake_load_u64};
use crate::prim::bug::seeded_bug;
use crate::prim::sync::Mutex;

/// How many workers may search at a time. One finds what there is, and then wakes the next; more of them would compete for it.
pub(crate) const MAX_SEARCHERS: u32 = 1;

/// Why a worker is awake again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "Searcher: the worker counts as searching"]
pub(crate) enum WokenAs {
    /// By a timer, by I/O, or it has changed its mind.
    Unprompted,
    /// There is something in its inbox, or the runtime stops.
    Directed,
    /// For surplus: it counts as searching already.
    Searcher,
}

/// What a directed wake found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "Slept: the caller must kick it; Dead: no worker reads what was sent"]
pub(crate) enum Reached {
    /// It sleeps no more, and the caller must kick it.
    Slept,
    /// It is awake, or on its way up, and sees what was sent.
    Awake,
    /// The seat has no worker.
    Dead,
}

/// The counts of searchers, of sleepers that may be woken for surplus, of DRAINING workers that sleep, and of workers that are alive: 16
/// bits each, lowest first. (A runtime has at most 2048 seats.)
#[derive(Clone, Copy)]
struct Counts(u64);

const ONE_SEARCHER: u64 = 1;
const ONE_SLEEPER: u64 = 1 << 16;
const ONE_DRAINING_SLEEPER: u64 = 1 << 32;
const ONE_ALIVE: u64 = 1 << 48;

impl Counts {
    #[inline(always)]
    fn searching(self) -> u32 {
        u32::from(self.0 as u16)
    }

    #[inline(always)]
    fn sleeping(self) -> u32 {
        u32::from((self.0 >> 16) as u16)
    }

    fn draining_asleep(self) -> u32 {
        u32::from((self.0 >> 32) as u16)
    }

    fn alive(self) -> u32 {
        u32::from((self.0 >> 48) as u16)
    }

    /// Does every worker sleep?
    fn all_sleep(self) -> bool {
        self.sleeping() + self.draining_asleep() == self.alive()
    }

    /// Whether an undirected wake would wake a worker.
    #[inline(always)]
    fn gate_open(self) -> bool {
        self.sleeping() > 0 && self.searching() < MAX_SEARCHERS
    }
}

pub(crate) struct Idle {
    /// See [`Counts`]. The sleepers' half changes under the lock only.
    counts: CacheLine<AtomicU64>,
    /// The word of each worker.
    workers: Box<[CacheLine<AtomicU32>]>,
    /// The workers that are SLEEPING. The last to come is the first to be woken, because its caches are the warmest.
    /// Never grows beyond its first allocation.
    sleepers: Mutex<Vec<usize>>,
    /// 0: the watcher has left, and is to be called by the first worker that wakes. Without a watcher it is never 0.
    watched: AtomicU32,
}

impl Idle {
    /// For `seats`, of which the first `alive` have a worker, all of them awake (or about to start).
    pub(crate) fn new(seats: usize, alive: usize) -> Self {
        let phase = |seat| if seat < alive { Phase::Active } else { Phase::Dead };
        Self {
            counts: CacheLine(AtomicU64::new(ONE_ALIVE * alive as u64)),
            workers: (0..seats).map(|seat| CacheLine(AtomicU32::new(phase(seat) as u32))).collect(),
            sleepers: Mutex::new(Vec::with_capacity(seats)),
            watched: AtomicU32::new(1),
        }
    }

    /// Changes the word of a worker, which is `from` what it was. Returns that.
    fn set_phase(&self, worker: usize, to: Phase) -> Phase {
        // SeqCst read-modify-write, on every path: pairs with those of all wakers and of threads that ask whether it accepts work.
        let from = Phase::from_bits(self.workers[worker].swap(to as u32, Ordering::SeqCst));
        check_edge(worker, from, to);
        from
    }

    /// What this worker is doing.
    pub(crate) fn phase(&self, worker: usize) -> Phase {
        // Relaxed: for sysmon and metrics, which look again later.
        Phase::from_bits(self.workers[worker].load(Ordering::Relaxed))
    }

    /// The same for a decision that must not miss a change: what the caller did before this is seen by a worker that changes its word
    /// later, and what that worker did before its change is seen by the caller.
    pub(crate) fn phase_handshake(&self, worker: usize) -> Phase {
        // SeqCst read-modify-write: see `set_phase`.
        Phase::from_bits(self.workers[worker].fetch_add(0, Ordering::SeqCst))
    }

    /// A worker that has nothing to do begins, or ends, to look around.
    pub(crate) fn show_search(&self, worker: usize, searching: bool) {
        let phase = if searching { Phase::Spin } else { Phase::Active };
        // A worker that was woken to search and found something at once has not looked around. Only the worker itself changes these two.
        if self.phase(worker) != phase {
            self.set_phase(worker, phase);
        }
    }

    /// This worker is to leave, and has to stay no longer than its own fibers do; or it is wanted after all.
    pub(crate) fn set_draining(&self, worker: usize, draining: bool) {
        self.set_phase(worker, if draining { Phase::Draining } else { Phase::Active });
    }

    /// Last step of a worker that leaves: its seat is free. It touches nothing of the seat's after this.
    pub(crate) fn leave(&self, worker: usize) {
        // Before the word changes: the thread that gives the seat away again adds to the count.
        // SeqCst: as all changes of the counts.
        self.counts.fetch_sub(ONE_ALIVE, Ordering::SeqCst);
        self.set_phase(worker, Phase::Dead);
    }

    /// A worker is about to start in a free seat, and does not sleep yet. Seats are given away under a lock of the caller's.
    pub(crate) fn arrive(&self, worker: usize) {
        self.set_phase(worker, Phase::Active);
        // SeqCst: as all changes of the counts. A sleeper that announces itself later sees that there is this worker.
        self.counts.fetch_add(ONE_ALIVE, Ordering::SeqCst);
    }

    /// How many workers there are.
    pub(crate) fn alive(&self) -> usize {
        // Relaxed: for metrics and sysmon.
        Counts(self.counts.load(Ordering::Relaxed)).alive() as usize
    }

    /// Do all workers but so many sleep?
    pub(crate) fn all_sleep_but(&self, others: usize) -> bool {
        // Relaxed: a hint.
        let counts = Counts(self.counts.load(Ordering::Relaxed));
        (counts.sleeping() + counts.draining_asleep()) as usize + others >= counts.alive() as usize
    }

    /// Asks to be the searcher. If the answer is true, the worker calls `stop_search` before it runs what it found, or sleeps.
    pub(crate) fn try_start_search(&self) -> bool {
        let more = |counts| (Counts(counts).searching() < MAX_SEARCHERS).then(|| counts + ONE_SEARCHER);
        // SeqCst, as all changes of the counts: this pairs with the looks of publishers. A publisher whose look comes before this one had
        // pushed before, and this worker sees it. Relaxed on failure: nothing follows from it but another turn.
        self.counts.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }

    /// Leaves the searching state. What the caller does next depends on what it found: see the header.
    pub(crate) fn stop_search(&self) {
        // SeqCst: pairs with the looks of publishers: those that counted on this searcher have pushed before, and its next look sees it.
        let before = Counts(self.counts.fetch_sub(ONE_SEARCHER, Ordering::SeqCst));
        debug_assert!(before.searching() > 0, "a worker that does not search stops searching");
    }

    /// Says that this worker is about to block. Afterwards it looks at everything again, blocks or not, and calls `woke`. `draining`: it
    /// takes no work of others, so that no undirected wake may count on it.
    pub(crate) fn announce_sleep(&self, worker: usize, draining: bool) {
        let mut sleepers = self.sleepers.lock();
        let phase = if draining { Phase::DrainingSleep } else { Phase::Sleep };
        // First half of the handshake with publishers, on the worker's word for directed wakes and on the counts for undirected ones.
        let before = self.set_phase(worker, phase);
        assert!(!before.is_asleep(), "worker {worker} announces its sleep twice");
        // SeqCst: see above; pairs with the looks at the counts in `wake_any_worker` and `has_gate_open`.
        if draining && !seeded_bug("idle_draining_listed") {
            self.counts.fetch_add(ONE_DRAINING_SLEEPER, Ordering::SeqCst);
        } else {
            sleepers.push(worker);
            self.counts.fetch_add(ONE_SLEEPER, Ordering::SeqCst);
        }
    }

    /// Ends what `announce_sleep` began: after the driver returned, for whatever reason, or instead of blocking. `draining`: as there.
    pub(crate) fn woke(&self, worker: usize, draining: bool) -> WokenAs {
        let awake = if draining { Phase::Draining } else { Phase::Active };
        if self.phase(worker).is_asleep() {
            let mut sleepers = self.sleepers.lock();
            // Only this worker begins its sleep, and its sleep ends under the lock only.
            let phase = self.phase(worker);
            if phase.is_asleep() {
                self.leave_list(&mut sleepers, worker, phase);
                self.set_phase(worker, awake);
                return WokenAs::Unprompted;
            }
            if seeded_bug("idle_woke_blindly") {
                self.set_phase(worker, awake);
                return WokenAs::Unprompted;
            }
        }
        // Its read-modify-write pairs with those of all wakers, also of one that found the worker WOKEN already; what they pushed is
        // seen from here on.
        match self.set_phase(worker, awake) {
            Phase::Woken => WokenAs::Directed,
            Phase::WokenSearcher => WokenAs::Searcher,
            _ => {
                debug_assert!(false, "worker {worker} woke without having announced its sleep");
                WokenAs::Unprompted
            }
        }
    }

    /// Wakes this very worker if it sleeps. True: it slept, and the caller must kick it.
    pub(crate) fn wake_worker(&self, worker: usize) -> bool {
        self.try_wake(worker) == Reached::Slept
    }

    /// The same for a seat that may have no worker: says so.
    pub(crate) fn try_wake(&self, worker: usize) -> Reached {
        // A read-modify-write on every path, also if the worker is awake: second half of the handshake with `announce_sleep` and
        // `woke`, which see what was pushed before it.
        let phase = if seeded_bug("idle_wake_load") { self.phase(worker) } else { self.phase_handshake(worker) };
        if phase == Phase::Dead {
            return Reached::Dead;
        }
        if !phase.is_asleep() {
            return Reached::Awake;
        }
        let mut sleepers = self.sleepers.lock();
        // A sleep begins and ends under the lock only. If it has ended since our first look, then that came after our
        // read-modify-write, so that the worker sees our push.
        let phase = self.phase(worker);
        if !phase.is_asleep() {
            return Reached::Awake;
        }
        self.leave_list(&mut sleepers, worker, phase);
        self.set_phase(worker, Phase::Woken);
        Reached::Slept
    }

    /// Wakes one sleeper, unless a worker searches already. `Some(worker)`: it counts as searching, and the caller must kick it.
    pub(crate) fn wake_any_worker(&self) -> Option<usize> {
        // A read-modify-write also if the gate is closed: second half of the handshake with `announce_sleep` and `stop_search`.
        if !Counts(self.counts.fetch_add(0, Ordering::SeqCst)).gate_open() {
            return None;
        }
        let mut sleepers = self.sleepers.lock();
        let searcher = if seeded_bug("idle_wake_uncounted") { 0 } else { ONE_SEARCHER };
        let exchange = |counts| Counts(counts).gate_open().then(|| counts + searcher - ONE_SLEEPER);
        // SeqCst: as above. Relaxed on failure: the gate was closed after our first look, and the searcher or the workers that woke since
        // then see our push.
        self.counts.fetch_update(Ordering::SeqCst, Ordering::Relaxed, exchange).ok()?;
        let worker = sleepers.pop().expect("the sleepers are counted under the lock");
        // Pairs with the change in `woke`.
        self.set_phase(worker, Phase::WokenSearcher);
        Some(worker)
    }

    /// Whether `wake_any_worker` would wake a worker: one load, so that a worker with surplus pays next to nothing while no worker sleeps.
    /// The caller has popped from its `fresh` since its last push to it.
    #[inline]
    pub(crate) fn has_gate_open(&self) -> bool {
        if seeded_bug("idle_gate_load") {
            return Counts(self.counts.load(Ordering::Relaxed)).gate_open();
        }
        // SeqCst: second half of the handshake with `announce_sleep` and `stop_search`; the first is the owner's pop.
        Counts(handshake_load_u64(&self.counts)).gate_open()
    }

    /// Of the workers that sleep and take new work, the one for which `load` is least. It stays asleep, and in the list: what is sent to
    /// it by name wakes it.
    pub(crate) fn least_loaded_sleeper(&self, load: impl Fn(usize) -> u64) -> Option<usize> {
        // Relaxed: a hint, so that the lock is not taken for nothing.
        if Counts(self.counts.load(Ordering::Relaxed)).sleeping() == 0 {
            return None;
        }
        self.sleepers.lock().iter().copied().min_by_key(|worker| load(*worker))
    }

    /// How many workers sleep or are about to.
    pub(crate) fn sleeping(&self) -> usize {
        // Relaxed: for metrics and sysmon; nothing is skipped on the strength of it.
        Counts(self.counts.load(Ordering::Relaxed)).sleeping() as usize
    }

    /// How many workers search, those on their way up included.
    pub(crate) fn searching(&self) -> usize {
        // Relaxed: as above.
        Counts(self.counts.load(Ordering::Relaxed)).searching() as usize
    }

    /// Whether this worker is alive, and neither sleeps nor is on its way out of sleep. For sysmon, which looks again later.
    pub(crate) fn is_awake(&self, worker: usize) -> bool {
        matches!(self.phase(worker), Phase::Active | Phase::Spin | Phase::Draining)
    }

    /// The watcher would like to leave. True: all workers sleep, and the first that wakes calls it. False: it stays.
    pub(crate) fn dismiss_watcher(&self) -> bool {
        let all_sleep = || Counts(handshake_load_u64(&self.counts)).all_sleep();
        if seeded_bug("idle_dismiss_early") {
            let may_leave = all_sleep();
            self.watched.swap(u32::from(!may_leave), Ordering::SeqCst);
            return may_leave;
        }
        // SeqCst: first half of the handshake with workers that wake; the look at the counts is the second.
        self.watched.swap(0, Ordering::SeqCst);
        if all_sleep() {
            return true;
        }
        // Relaxed: taken back; a worker that saw it meanwhile has called, and the watcher looks once more than it had to.
        self.watched.store(1, Ordering::Relaxed);
        false
    }

    /// There is no watcher yet, before any worker runs: the first worker that wakes calls it.
    pub(crate) fn dismiss_watcher_at_first(&self) {
        // Relaxed: the workers' threads start later, or this is one of them.
        self.watched.store(0, Ordering::Relaxed);
    }

    /// The watcher is there, called or not.
    pub(crate) fn watch(&self) {
        // Relaxed: a worker that still calls costs a look.
        self.watched.store(1, Ordering::Relaxed);
    }

    /// For a worker, right after `woke`. True: the watcher has left, and the caller must call it.
    pub(crate) fn must_wake_sysmon(&self) -> bool {
        // SeqCst, both: second half of the handshake with `dismiss_watcher`; leaving the counts was the first. Of several one calls.
        handshake_load_u32(&self.watched) == 0 && self.watched.swap(1, Ordering::SeqCst) == 0
    }

    /// Takes a worker that sleeps out of list and count. The caller holds the lock and changes the worker's word.
    fn leave_list(&self, sleepers: &mut Vec<usize>, worker: usize, phase: Phase) {
        if phase == Phase::DrainingSleep && !seeded_bug("idle_draining_listed") {
            // SeqCst: as all changes of the counts.
            self.counts.fetch_sub(ONE_DRAINING_SLEEPER, Ordering::SeqCst);
            return;
        }
        let place = sleepers.iter().rposition(|&other| other == worker).expect("a sleeping worker is in the list");
        sleepers.remove(place);
        // SeqCst: as all changes of the counts.
        self.counts.fetch_sub(ONE_SLEEPER, Ordering::SeqCst);
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle")
            .field("workers", &self.workers.len())
            .field("sleeping", &self.sleeping())
            .field("searching", &self.searching())
            .finish_non_exhaustive()
    }
}

/// Stands in for a worker's driver in tests and models: a kick is kept until the next block.
#[cfg(test)]
pub(super) mod driver {
    use crate::prim::sync::{Condvar, Mutex};

    #[derive(Default)]
    pub(in crate::sched) struct Driver {
        kicked: Mutex<bool>,
        bell: Condvar,
    }

    impl Driver {
        pub(in crate::sched) fn kick(&self) {
            *self.kicked.lock() = true;
            self.bell.notify_one();
        }

        /// Blocks until kicked. A lost wake is a deadlock for loom and shuttle to report, and a panic after a minute otherwise.
        pub(in crate::sched) fn block(&self) {
            let mut kicked = self.kicked.lock();
            #[cfg(not(any(loom, shuttle)))]
            let start = crate::prim::policy::now();
            while !*kicked {
                #[cfg(any(loom, shuttle))]
                {
                    kicked = self.bell.wait(kicked);
                }
                #[cfg(not(any(loom, shuttle)))]
                {
                    kicked = self.bell.wait_timeout(kicked, std::time::Duration::from_secs(60));
                    assert!(*kicked || crate::prim::policy::now() - start < 60_000_000_000, "a wake was lost");
                }
            }
            *kicked = false;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::driver::Driver;
    use super::*;
    use crate::prim::policy::Rng;

    #[test]
    fn a_directed_wake_wakes_a_sleeper_once() {
        let idle = Idle::new(3, 3);
        assert!(!idle.wake_worker(1), "awake");
        idle.announce_sleep(1, false);
        assert_eq!((idle.sleeping(), idle.searching()), (1, 0));
        assert!(!idle.wake_worker(0), "another one sleeps");
        assert!(idle.wake_worker(1));
        assert!(!idle.wake_worker(1), "on its way already");
        assert_eq!(idle.wake_any_worker(), None, "no worker sleeps any more");
        assert_eq!(idle.sleeping(), 0);
        assert_eq!(idle.woke(1, false), WokenAs::Directed);
        assert!(!idle.wake_worker(1));
    }

    // C-14: exactly one, and only if no worker is searching; the last to sleep first.
    #[test]
    fn an_undirected_wake_is_gated() {
        let idle = Idle::new(100, 100);
        assert!(!idle.has_gate_open() && idle.wake_any_worker().is_none());
        for worker in [3, 70, 99] {
            idle.announce_sleep(worker, false);
        }
        assert!(idle.has_gate_open());
        assert_eq!(idle.wake_any_worker(), Some(99));
        assert_eq!((idle.sleeping(), idle.searching()), (2, 1));
        assert!(
            !idle.has_gate_open() && idle.wake_any_worker().is_none(),
            "the woken one counts as searching before it runs"
        );
        assert!(!idle.wake_worker(99), "it is on its way, and will look at its inbox");
        assert!(!idle.try_start_search(), "one searcher at a time");
        assert_eq!(idle.woke(99, false), WokenAs::Searcher);
        // It found something, leaves the state, and wakes the next while work remains.
        idle.stop_search();
        assert_eq!(idle.wake_any_worker(), Some(70));
        assert_eq!(idle.woke(70, false), WokenAs::Searcher);
        idle.stop_search();
        assert!(idle.try_start_search());
        assert_eq!(idle.wake_any_worker(), None, "a worker that never slept searches");
        idle.stop_search();
        assert_eq!((idle.sleeping(), idle.searching()), (1, 0));
    }

    #[test]
    fn a_worker_that_wakes_by_itself_leaves_the_list() {
        let idle = Idle::new(2, 2);
        idle.announce_sleep(0, false);
        idle.announce_sleep(1, false);
        assert_eq!(idle.woke(1, false), WokenAs::Unprompted);
        assert_eq!(idle.sleeping(), 1);
        assert_eq!(idle.wake_any_worker(), Some(0));
        assert_eq!(idle.woke(0, false), WokenAs::Searcher);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal transition of worker 0")]
    fn waking_without_having_slept_is_found() {
        let _ = Idle::new(1, 1).woke(0, false);
    }

    #[test]
    #[should_panic(expected = "worker 0")]
    fn announcing_twice_is_found() {
        let idle = Idle::new(1, 1);
        idle.announce_sleep(0, false);
        idle.announce_sleep(0, false);
    }

    /// Spins for a few steps, so that the next action lands now before, now within, now after a worker's way to sleep.
    fn dawdle(rng: &mut Rng) {
        for _ in 0..rng.below(400) {
            std::hint::spin_loop();
        }
    }

    // a wake against the way to sleep, 100,000 times.
    #[test]
    fn stress_a_directed_wake_against_sleep_100_000_times() {
        const ROUNDS: u64 = 100_000;
        let idle = Idle::new(1, 1);
        let driver = Driver::default();
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut got = 0;
                while got < ROUNDS {
                    idle.announce_sleep(0, false);
                    if sent.load(Ordering::SeqCst) == got {
                        driver.block();
                    }
                    let _ = idle.woke(0, false);
                    got = sent.load(Ordering::SeqCst);
                    received.store(got, Ordering::Release);
                }
            });
            let mut rng = Rng::from_seed(5);
            for round in 1..=ROUNDS {
                dawdle(&mut rng);
                sent.swap(round, Ordering::SeqCst);
                if idle.wake_worker(0) {
                    driver.kick();
                }
                // Most rounds follow at once, the others only when the worker is on its way to sleep again.
                while round % 8 == 0 && received.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(idle.sleeping(), 0);
    }

    // S2-59, S0-69, S0-72, S4-130 with threads: every item is taken, whichever workers sleep; and the stop flag reaches all workers.
    #[test]
    fn undirected_wakes_and_stop_with_threads() {
        const WORKERS: usize = 3;
        const ITEMS: u64 = 20_000;
        let idle = Idle::new(WORKERS, WORKERS);
        let drivers: Vec<Driver> = (0..WORKERS).map(|_| Driver::default()).collect();
        let (work, taken, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let wake_any = || idle.wake_any_worker().into_iter().for_each(|worker| drivers[worker].kick());
        let take = || work.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        std::thread::scope(|scope| {
            for me in 0..WORKERS {
                let (idle, drivers, work, taken, stop) = (&idle, &drivers, &work, &taken, &stop);
                scope.spawn(move || {
                    let mut searching = false;
                    while stop.load(Ordering::SeqCst) == 0 {
                        let found = take();
                        if std::mem::take(&mut searching) {
                            idle.stop_search();
                            if found && work.load(Ordering::SeqCst) > 0 {
                                wake_any();
                            }
                        }
                        if found {
                            taken.fetch_add(1, Ordering::Release);
                            continue;
                        }
                        idle.announce_sleep(me, false);
                        if work.load(Ordering::SeqCst) == 0 && stop.load(Ordering::SeqCst) == 0 {
                            drivers[me].block();
                        }
                        searching = idle.woke(me, false) == WokenAs::Searcher;
                    }
                });
            }
            let mut rng = Rng::from_seed(9);
            for item in 1..=ITEMS {
                work.fetch_add(1, Ordering::SeqCst);
                wake_any();
                while item % 16 == 0 && taken.load(Ordering::Acquire) < item {
                    std::thread::yield_now();
                }
                dawdle(&mut rng);
            }
            stop.swap(1, Ordering::SeqCst);
            (0..WORKERS).filter(|&worker| idle.wake_worker(worker)).for_each(|worker| drivers[worker].kick());
        });
        assert_eq!(taken.load(Ordering::Relaxed), ITEMS);
        assert_eq!(idle.sleeping(), 0);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
