//! A worker without work: it looks for news, searches, sleeps. The steps are generic over the worker that takes them.
//!
//! Above: `search.rs`, where the worker that ships says how it steals, how long it looks around and what it blocks in; models bring a
//! worker with a deque and a bell. Both run these lines, so that what the models show holds for what ships. Below: `idle.rs`, which has
//! the protocol and the proof, and `reach.rs`, the other side of it.
//!
//! Invariants
//! * A worker that counts as searching leaves that state before it runs what it found, and before it looks for the last time.
//! * One that found something and sees more of it wakes the next.
//! * One that blocks has announced its sleep, and has looked at everything since: own queues, mail, the injector, the deques of others.
//!
//! A worker that sees, in that last look, unstarted fibers of another (too young for it a moment ago) does not sleep for long: the
//! publisher that pushed them may have counted on it as a searcher, or have seen it neither search nor sleep, and may not look again soon.

use super::idle::{Idle, WokenAs};
use super::queue::fresh::{Fresh, Steal};
use super::reach::{Reach, has_mail, has_mail_handshake, others_have_fresh_handshake, others_have_surplus};
use crate::prim::bug::seeded_bug;

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SearchEnd {
    /// With work of others: searching pays.
    Found,
    /// By mail of its own.
    Interrupted,
    /// By a timer or a socket of its own, which a sleeper would have served as well.
    Timer,
    /// With nothing.
    InVain,
}

/// One search: how many looks it took so far, when it began, and until when it may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) looks: u32,
    pub(super) began: u64,
    pub(super) now: u64,
    pub(super) until: u64,
}

/// Whether a worker without work is to stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Staying {
    Stays,
    /// It is to leave, and has fibers that have started here.
    Draining,
    /// Its loop ends.
    Gone,
}

/// A worker, as far as being idle goes.
pub(super) trait Idler {
    type Runtime: Reach;

    fn runtime(&self) -> &Self::Runtime;
    fn index(&self) -> usize;

    /// Is there something to run here, or was it there a moment ago: timers that are due, fibers that waited for a stack?
    fn has_own_news(&self) -> bool;
    /// Is there something in its queues?
    fn has_own_work(&self) -> bool;
    /// It took so many from the injector.
    fn note_injected(&self, count: u64);
    /// Wakes another worker for what it leaves, if one sleeps and none searches.
    fn wake_for_surplus(&self);

    /// It begins to look around; `woken`: for something that it was woken for.
    fn begin_search(&self, woken: bool) -> Round;
    /// One round over the others: takes what is old enough to be taken.
    fn steal(&self, round: &Round) -> bool;
    /// Between two rounds. `Some`: the search is over.
    fn pause(&self, round: &mut Round) -> Option<SearchEnd>;
    fn note_search(&self, end: SearchEnd);

    /// It is about to sleep: when it has to wake up by itself to tidy up.
    fn rest_at(&self) -> Option<u64>;
    /// Blocks until kicked, or until something of its own is due. `surplus`: not for long, others have what it may have to take.
    fn block(&self, rest_at: Option<u64>, surplus: bool);
    /// Looks whether it is to leave. `Draining`: it takes no work of others, and stays for its own fibers only. `Gone`: it has none.
    fn see_to_seat(&self) -> Staying;

    /// Called by a worker that has announced its sleep, as `draining` or not: is something else wanted of it by now? The thread that
    /// changes the wish wakes the worker afterwards.
    fn has_seat_news(&self, draining: bool) -> bool;

    /// It is awake again, and not in the list of sleepers. `unwatched`: the first of all, and has to say so.
    fn after_sleep(&self, unwatched: bool);
}

/// Nothing to run here: looks elsewhere, and sleeps if there is nothing anywhere. Returns when it is worth looking at the own queues again.
pub(super) fn find_work<W: Idler>(worker: &W) {
    // Woken by a thread that counted it as searching.
    let mut searching = false;
    loop {
        // Not if it was woken for work of others: it looks for that first.
        let staying = if searching { Staying::Stays } else { worker.see_to_seat() };
        let draining = match staying {
            Staying::Stays => false,
            Staying::Draining => true,
            Staying::Gone => return,
        };
        if has_mail(worker.runtime(), worker.index()) || !draining && take_share(worker) || worker.has_own_news() {
            if searching {
                end_search(worker, SearchEnd::Interrupted);
            }
            return;
        }
        // A worker that was woken to search counts as searching and has to leave that state. So has a single worker, which has no victim
        // to search: it was woken for something that it found by itself before it slept.
        let may_search = || worker.runtime().workers() > 1 && worker.runtime().idle().try_start_search();
        if searching || !draining && may_search() {
            let end = search(worker, searching);
            searching = true;
            if end != SearchEnd::InVain {
                return end_search(worker, end);
            }
            worker.note_search(end);
        }
        searching = sleep(worker, searching, draining) == WokenAs::Searcher;
        if !searching {
            return;
        }
    }
}

/// Looks around for a bounded time. Unless it was in vain, there is something to look at now.
fn search<W: Idler>(worker: &W, woken: bool) -> SearchEnd {
    worker.runtime().idle().show_search(worker.index(), true);
    let mut round = worker.begin_search(woken);
    loop {
        if worker.steal(&round) || take_share(worker) {
            return SearchEnd::Found;
        }
        if has_mail(worker.runtime(), worker.index()) {
            return SearchEnd::Interrupted;
        }
        if let Some(end) = worker.pause(&mut round) {
            return end;
        }
    }
}

/// Leaves the searching state with something in hand, before that is run. While work remains, another worker should look for it.
fn end_search<W: Idler>(worker: &W, end: SearchEnd) {
    let runtime = worker.runtime();
    runtime.idle().show_search(worker.index(), false);
    runtime.idle().stop_search();
    worker.note_search(end);
    if others_have_surplus(runtime, worker.index()) && !seeded_bug("idle_no_chain") && runtime.idle().has_gate_open() {
        worker.wake_for_surplus();
    }
}

/// A fair share of the injector into the own deque. True if there was anything.
fn take_share<W: Idler>(worker: &W) -> bool {
    let runtime = worker.runtime();
    let injector = runtime.injector();
    if injector.is_empty_handshake() {
        return false;
    }
    let fresh = runtime.fresh(worker.index());
    // SAFETY: the worker calls this, and it is the owner of its deque.
    let Some((first, taken)) = (unsafe { injector.pop_share(fresh, runtime.workers()) }) else { return false };
    worker.note_injected(taken);
    // SAFETY: as above.
    unsafe { fresh.push(first) };
    // What is left is for others.
    if !injector.is_empty() {
        worker.wake_for_surplus();
    }
    true
}

/// A worker judges its surplus, after it took its own from its deque: is there more, and a sleeper that should come for it? The pop was
/// the first half of the handshake with sleepers.
#[inline(always)]
pub(super) fn has_taker(fresh: &Fresh, idle: &Idle) -> bool {
    !fresh.is_empty() && idle.has_gate_open()
}

/// Takes up to `most` of what another worker has, into the own deque: how many it were.
///
/// # Safety
/// The caller is the owner of `own`.
pub(super) unsafe fn steal_from(victim: &Fresh, own: &Fresh, most: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    match unsafe { victim.steal_half_into(own, most) } {
        Steal::Stolen { first, more } => {
            // SAFETY: as above.
            unsafe { own.push(first) };
            Some(1 + more)
        }
        Steal::Empty | Steal::Retry => None,
    }
}

/// Leaves the searching state, announces its sleep, looks at everything once more, blocks. The steps of `idle.rs`, in their order.
/// A worker that is `draining` looks neither at the injector nor at the deques of others, and counts on no wake for them.
fn sleep<W: Idler>(worker: &W, searching: bool, draining: bool) -> WokenAs {
    let (runtime, me) = (worker.runtime(), worker.index());
    let idle = runtime.idle();
    let rest_at = worker.rest_at();
    let late = seeded_bug("idle_leave_late");
    if searching && !late {
        idle.stop_search();
    }
    idle.announce_sleep(me, draining);
    let found = has_mail_handshake(runtime, me)
        || worker.has_own_work()
        || worker.has_seat_news(draining) && !seeded_bug("seat_wish_unseen")
        || !draining && !runtime.injector().is_empty_handshake();
    let surplus = !draining && others_have_fresh_handshake(runtime, me);
    if searching && late {
        idle.stop_search();
    }
    if seeded_bug("idle_no_second_look") {
        worker.block(rest_at, false);
    } else if !found {
        worker.block(rest_at, surplus);
    }
    let woken = idle.woke(me, draining);
    worker.after_sleep(idle.must_wake_sysmon());
    woken
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
