//! What a worker does when its own queues are empty: injector, timers, steal, spin briefly, sleep.
//!
//! Stealing is gated by age, on the thief's side: a thief takes an unstarted fiber only if it has seen it in that queue 20 µs ago. Pairs
//! that talk to one another are spawned together and start within that time on their spawner's worker (a pair split over two cores costs
//! 20 times as much per message, for ever), while real surplus waits longer. The price of a spawn stays a push: nothing is stamped.
//!
//! One worker searches at a time, for a bounded time, and less after searches that found nothing. What a searcher that gives up may have
//! overlooked (it was too young) is its owner's: that worker is awake, judges its surplus at each switch, and if it
//! computes on without switching, sysmon wakes a searcher after a millisecond.

use std::cell::{Cell, RefCell};

use super::idle::Woken;
use super::queue::fresh::Steal;
use super::worker::{POLL_CYCLES, Worker};
use crate::driver::Timeout;
use crate::fiber::frame::FrameRef;
use crate::prim::atomic::Ordering;
use crate::prim::clock;

/// How long an unstarted fiber belongs to its spawner's worker alone.
const STEAL_AGE_NANOS: u64 = 20_000;
/// How long a searcher looks around before it sleeps; at most this, halved after each search in vain.
const SEARCH_NANOS: u64 = 80_000;
/// The least it looks around when it was woken to search: longer than the age gate, so that what it was woken for ripens.
const MIN_SEARCH_NANOS: u64 = 25_000;
/// At most so many fibers are taken at a time.
const STEAL_MOST: usize = 32;
/// Cycles after which a searcher looks at its driver (4 to 20 µs): a system call, where it would otherwise spin.
const SEARCH_POLL_CYCLES: u64 = POLL_CYCLES / 5;
/// Looks at the queues between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// What a thief remembers of a queue: which entries it saw there, by their positions, and when. Only the older half: the owner takes the
/// newest, and puts new ones where they were, so that only their positions are old.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: u64,
    until: u64,
    at: u64,
}

impl Seen {
    /// How many entries of a queue whose oldest is `oldest`, of `len`, are old enough to be taken. If none is remembered, these are from
    /// now on. A queue that is longer than a thief can carry away at once stays old until he has had what he saw: he need not wait again
    /// each time.
    fn old_enough(seen: &mut Option<Seen>, oldest: u64, len: usize, now: u64) -> usize {
        match seen {
            Some(before) if (before.from..before.until).contains(&oldest) => {
                let ripe = now.saturating_sub(before.at) >= STEAL_AGE_NANOS;
                if ripe { (before.until - oldest) as usize } else { 0 }
            }
            _ => {
                *seen = Some(Seen { from: oldest, until: oldest + len.div_ceil(2) as u64, at: now });
                0
            }
        }
    }
}

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SearchEnd {
    /// With work of others: searching pays.
    Found,
    /// By mail of its own.
    Interrupted,
    /// By a timer or a socket of its own, which a sleeper would have served as well.
    Timer,
    /// With nothing.
    InVain,
}

/// A worker's memory of its searches.
#[derive(Debug)]
pub(crate) struct SearchState {
    seen: RefCell<Vec<Option<Seen>>>,
    budget: Cell<u64>,
    /// Tries in a row to get a stack for somebody while nothing else in the runtime ran.
    pub(super) starved_tries: Cell<u32>,
}

impl SearchState {
    pub(crate) fn new(workers: usize) -> Self {
        Self { seen: RefCell::new(vec![None; workers]), budget: Cell::new(SEARCH_NANOS), starved_tries: Cell::new(0) }
    }
}

impl Worker {
    /// Nothing to run here: look elsewhere, and sleep if there is nothing anywhere. Returns when it is worth looking at the own queues
    /// again.
    #[inline(never)]
    pub(super) fn find_work(&self) {
        self.publish_stack_counts();
        crate::fiber::trim::see_to_it();
        // Woken by somebody who counted us as searching already.
        let mut searching = false;
        loop {
            if self.has_news() {
                if searching {
                    self.end_search(SearchEnd::Interrupted);
                }
                return;
            }
            // One who was woken to search counts as searching and has to leave that state, also a single worker, which has nobody to
            // search: it was woken for something that it found by itself before it slept.
            if searching || self.shared.remotes.len() > 1 && self.shared.idle.try_start_search() {
                self.stats().searches.add(1);
                let end = self.search(searching);
                self.end_search(end);
                // In vain: publishers that saw us searching woke nobody, so look once more after leaving the state.
                if end != SearchEnd::InVain || self.has_news() || self.steal(clock::now()) {
                    return;
                }
            }
            searching = self.sleep() == Woken::AsSearcher;
            if !searching {
                return;
            }
        }
    }

    /// Leaves the searching state, before running what was found or before sleeping. While work remains, somebody else should look for it.
    fn end_search(&self, end: SearchEnd) {
        self.shared.idle.stop_search();
        match end {
            SearchEnd::Found => self.search.budget.set(SEARCH_NANOS),
            // Neither for nor against searching.
            SearchEnd::Interrupted => {}
            SearchEnd::Timer | SearchEnd::InVain => self.search.budget.set(self.search.budget.get() / 2),
        }
        if end != SearchEnd::InVain && self.others_have_surplus() && self.shared.idle.has_gate_open() {
            self.wake_for_surplus();
        }
    }

    /// Is there anything for this worker that needs no stealing: mail, its share of the injector, timers, fibers that wait for a stack?
    fn has_news(&self) -> bool {
        if self.has_mail() || self.take_share_of_injector() {
            return true;
        }
        // (The driver is what it sleeps in.)
        if self.wake_for_timers_at().is_some_and(|at| at <= clock::now()) {
            self.poll();
        }
        if !self.stackless.with(|waiting| waiting.is_empty()) {
            self.retry_stackless();
        }
        !self.is_ready_empty()
    }

    fn has_mail(&self) -> bool {
        let mail = &self.remote().mail;
        // Relaxed, both: hints; the sleeper's re-check is the one that must not miss anything.
        let stop = self.shared.stop.load(Ordering::Relaxed);
        !mail.inbox.is_empty() || mail.has_commands.load(Ordering::Relaxed) || stop
    }

    /// Every 61st turn: one from the injector before anything else.
    pub(super) fn take_injected_one(&self) -> Option<FrameRef> {
        while let Some(entry) = self.shared.injector.pop() {
            self.stats().injected.add(1);
            if let Some(frame) = self.start_entry(entry) {
                return Some(frame);
            }
        }
        None
    }

    /// A fair share of the injector into the own deque. True if there was anything.
    fn take_share_of_injector(&self) -> bool {
        if self.shared.injector.is_empty_handshake() {
            return false;
        }
        let fresh = &self.remote().fresh;
        // SAFETY: this thread is the owner of its worker's deque.
        match unsafe { self.shared.injector.pop_share(fresh, self.shared.remotes.len()) } {
            None => false,
            Some((first, taken)) => {
                self.stats().injected.add(taken);
                // SAFETY: as above.
                unsafe { fresh.push(first) };
                // What is left is for others.
                if !self.shared.injector.is_empty() {
                    self.wake_for_surplus();
                }
                true
            }
        }
    }

    /// Looks around for a bounded time. Unless it was in vain, there is something to look at now.
    fn search(&self, woken: bool) -> SearchEnd {
        let begin = clock::now();
        let least = if woken { MIN_SEARCH_NANOS } else { 0 };
        let until = begin + self.search.budget.get().max(least);
        let mut now = begin;
        let mut looks = 0;
        loop {
            if self.steal(now) || self.take_share_of_injector() {
                return SearchEnd::Found;
            }
            if self.has_mail() {
                return SearchEnd::Interrupted;
            }
            looks += 1;
            if looks % LOOKS_PER_CLOCK == 0 {
                now = clock::now();
                if self.wake_for_timers_at().is_some_and(|at| at <= now) {
                    self.poll();
                    return SearchEnd::Timer;
                }
                if self.is_driver_due(SEARCH_POLL_CYCLES) {
                    self.look_at_driver();
                    if !self.is_ready_empty() {
                        return SearchEnd::Timer;
                    }
                }
                if now >= until {
                    return SearchEnd::InVain;
                }
            }
            std::hint::spin_loop();
        }
    }

    fn others_have_surplus(&self) -> bool {
        let remotes = &self.shared.remotes;
        !self.shared.injector.is_empty()
            || remotes.iter().enumerate().any(|(index, remote)| index != self.index && !remote.fresh.is_empty())
    }

    /// One round over the others, from a random one on; never waits for a contended one. Young ones are only noted.
    fn steal(&self, now: u64) -> bool {
        let remotes = &self.shared.remotes;
        let mut seen = self.search.seen.borrow_mut();
        let first = self.policy.with(|policy| policy.first_victim(remotes.len()));
        for offset in 0..remotes.len() {
            let victim = (first + offset) % remotes.len();
            if victim == self.index {
                continue;
            }
            let fresh = &remotes[victim].fresh;
            let Some(oldest) = fresh.oldest() else {
                seen[victim] = None;
                continue;
            };
            let most = Seen::old_enough(&mut seen[victim], oldest, fresh.len(), now).min(STEAL_MOST);
            if most == 0 {
                continue;
            }
            // SAFETY: this thread is the owner of its worker's deque.
            match unsafe { fresh.steal_half_into(&self.remote().fresh, most) } {
                Steal::Stolen { first, more } => {
                    self.stats().stolen.add(1 + more as u64);
                    // SAFETY: as above.
                    unsafe { self.remote().fresh.push(first) };
                    return true;
                }
                Steal::Empty | Steal::Retry => {}
            }
        }
        false
    }

    /// Announce, look at everything once more, block in the driver.
    fn sleep(&self) -> Woken {
        let shared = &self.shared;
        let rest_at = self.rest_at();
        shared.idle.announce_sleep(self.index);
        let mail = &self.remote().mail;
        // SeqCst, both: second half of the handshakes with `post` and with shutdown; the announcement was the first.
        let called = mail.has_commands.load(Ordering::SeqCst) || shared.stop.load(Ordering::SeqCst);
        if !called && mail.inbox.is_empty_handshake() && shared.injector.is_empty_handshake() && !self.has_local_work()
        {
            self.stats().sleeps.add(1);
            let until = [self.wake_for_timers_at(), self.stackless_retry_at(), rest_at].into_iter().flatten().min();
            self.platform_wait(until.map_or(Timeout::Forever, Timeout::Until));
        }
        let woken = shared.idle.woke(self.index);
        self.deliver_completions();
        if shared.idle.call_watcher() {
            shared.sysmon.call(shared);
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::{STEAL_AGE_NANOS, Seen};

    // Young fibers stay with their spawner; of a long queue a thief takes what he saw an age ago, without waiting anew each time.
    #[test]
    fn a_thief_takes_what_it_has_seen_an_age_ago() {
        const LATER: u64 = 5 + STEAL_AGE_NANOS;
        let mut seen = None;
        assert_eq!(Seen::old_enough(&mut seen, 10, 100, 5), 0, "seen for the first time");
        assert_eq!(Seen::old_enough(&mut seen, 10, 100, LATER - 1), 0, "too young");
        assert_eq!(Seen::old_enough(&mut seen, 10, 100, LATER), 50, "the older half");
        assert_eq!(Seen::old_enough(&mut seen, 42, 1000, LATER), 18, "32 were taken, more were put there");
        assert_eq!(Seen::old_enough(&mut seen, 60, 1000, LATER), 0, "those were not there then");
        assert_eq!(Seen::old_enough(&mut seen, 60, 1000, LATER + STEAL_AGE_NANOS), 500);
        let mut seen = None;
        assert_eq!(Seen::old_enough(&mut seen, 7, 1, 5), 0);
        assert_eq!(Seen::old_enough(&mut seen, 7, 1, LATER), 1, "a single one too");
    }
}
