//! Donors that were started ahead, so that a fiber need not wait for a thread to start: a few for each runtime, once a fiber wanted one.
//!
//! A thread of its own, the *keeper*, starts them as they are taken. When none was taken for [`IDLE`] it lets all of them end, and ends;
//! the next fiber that asks starts a keeper again. They also end when any thread of fibra, in any runtime, cannot be started, which is then
//! tried once more. Thread-locals are new for every fiber, so a donor that was given back is never lent
//! again.
//!
//! Above: `task::own_locals`, which takes them, and `runtime::launch`, which closes this at the end. Below: `donor.rs`.
//!
//! Invariants
//! * One lock decides: at most one keeper keeps, at most [`AHEAD`] donors are ready or being started, and none is added once it is closed.
//! * The keeper knows only this, not the runtime. [`Donors::close`] joins it, and it joins the threads of the donors that were not
//!   taken: none of them outlives the runtime.
//! * After a fork the runtime is dead, and this with it: no code of the child comes here (`runtime` looks before it calls).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::donor::{Donor, Tell};
use crate::prim::instant::Instant;
use crate::prim::sync::{Condvar, Mutex, MutexGuard};
use crate::prim::thread::{self, JoinHandle, Ready};

/// So many are kept ready. A start takes some ten microseconds of the keeper's time: enough for a burst, few in memory (20 KiB each).
const AHEAD: usize = 8;
/// If none was taken for so long, none is kept ready.
const IDLE: Duration = Duration::from_secs(2);

/// The name of the threads of fibers without a name.
pub(crate) const NAME: &str = "fibra-locals";

/// The donors that are ready in a runtime; see the header.
#[derive(Debug)]
pub(crate) struct Donors(Arc<Ahead>);

#[derive(Debug)]
struct Ahead {
    state: Mutex<DonorsState>,
    changed: Condvar,
    tell: Tell,
    idle: Duration,
}

#[derive(Debug, Default)]
struct DonorsState {
    ready: Vec<Donor>,
    /// How many have been asked for.
    asked: u64,
    /// Does a keeper keep?
    is_kept: bool,
    /// The threads of the keeper and of those before it.
    keepers: Vec<JoinHandle<()>>,
    is_closed: bool,
    /// Do threads that cannot be started end those that are ready?
    is_known: bool,
}

impl Ready for Ahead {
    /// Those that are ready. The keeper starts others when the next is asked for, if there is room then.
    fn end(&self) -> bool {
        let unused = std::mem::take(&mut self.state.lock().ready);
        let are_some = !unused.is_empty();
        unused.into_iter().for_each(Donor::give_back_and_join);
        are_some
    }
}

impl Donors {
    /// None is started yet.
    pub(crate) fn new(tell: Tell) -> Self {
        Self::with_idle(tell, IDLE)
    }

    /// The same with another time for which those that are ready stay.
    fn with_idle(tell: Tell, idle: Duration) -> Self {
        Self(Arc::new(Ahead { state: Mutex::new(DonorsState::default()), changed: Condvar::new(), tell, idle }))
    }

    /// One that is ready, or nearly so. None: there is none, and the caller starts one for itself.
    pub(crate) fn take(&self) -> Option<Donor> {
        let mut state = self.0.state.lock();
        state.asked += 1;
        // The oldest: it stands still by now.
        let taken = if state.ready.is_empty() { None } else { Some(state.ready.remove(0)) };
        if !state.is_kept && !state.is_closed {
            self.start_keeper(&mut state);
        }
        drop(state);
        self.0.changed.notify_one();
        taken
    }

    /// Starts one for the caller.
    pub(crate) fn start(&self, name: &str) -> io::Result<Donor> {
        Donor::start(name, self.0.tell, false)
    }

    /// How many fibers have asked for one.
    #[cfg(fibra_force_moves)]
    pub(crate) fn asked(&self) -> u64 {
        self.0.state.lock().asked
    }

    fn start_keeper(&self, state: &mut DonorsState) {
        state.keepers.retain(|thread| !thread.is_finished());
        let ahead = self.0.clone();
        if !std::mem::replace(&mut state.is_known, true) {
            let ahead: Arc<dyn Ready> = ahead.clone();
            thread::keep_ready(Arc::downgrade(&ahead));
        }
        // Without a thread for it there are none ahead, and the next fiber asks again.
        if let Ok(keeper) = thread::start_ready("fibra-donors".to_owned(), move || ahead.keep()) {
            state.keepers.push(keeper);
            state.is_kept = true;
        }
    }

    /// Ends all that are ready, and waits for that.
    pub(crate) fn close(&self) {
        for keeper in self.0.close() {
            // It does not panic.
            let _ = keeper.join();
        }
    }

    /// Has all that are ready end, without waiting for it.
    pub(crate) fn abandon(&self) {
        drop(self.0.close());
    }
}

impl Ahead {
    fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.changed.notify_one();
        std::mem::take(&mut state.keepers)
    }

    /// The body of the keeper.
    fn keep(&self) {
        let mut state = self.state.lock();
        loop {
            let asked = state.asked;
            let refused;
            (state, refused) = self.fill(state);
            if refused {
                // Threads are scarce: none is kept that is not used.
                break;
            }
            let until = Instant::after(self.idle);
            while !state.is_closed && state.asked == asked {
                let Some(left) = Some(until.remaining()).filter(|left| !left.is_zero()) else { break };
                state = self.changed.wait_timeout(state, left);
            }
            if state.is_closed || state.asked == asked {
                break;
            }
        }
        state.is_kept = false;
        let unused = std::mem::take(&mut state.ready);
        drop(state);
        unused.into_iter().for_each(Donor::give_back_and_join);
    }

    /// Starts donors until there are enough. True: the system has refused one.
    fn fill<'a>(&'a self, mut state: MutexGuard<'a, DonorsState>) -> (MutexGuard<'a, DonorsState>, bool) {
        while !state.is_closed && state.ready.len() < AHEAD {
            drop(state);
            let started = Donor::start(NAME, self.tell, true);
            state = self.state.lock();
            match started {
                Ok(started) => state.ready.push(started),
                Err(_) => return (state, true),
            }
        }
        (state, false)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::fiber::donor::{Loan, Stage};
    use crate::prim::thread_pointer;

    fn until(holds: impl Fn() -> bool) {
        while !holds() {
            thread::yield_now();
        }
    }

    fn loans(donors: &Donors) -> Vec<Arc<Loan>> {
        donors.0.state.lock().ready.iter().map(|donor| donor.loan().clone()).collect()
    }

    fn are_full(donors: &Donors) -> bool {
        donors.0.state.lock().ready.len() == AHEAD
    }

    /// These tests count what is ready, and one of them ends what is ready in the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    // A thread that the system refuses gets the place of one that is kept ready: it is tried again when these have ended.
    #[test]
    fn those_that_are_ready_end_for_a_thread_that_is_refused() {
        if thread_pointer::is_writable().is_err() {
            return;
        }
        let _alone = ALONE.lock();
        let donors = Donors::with_idle(|_, _| (), Duration::from_secs(3600));
        assert!(donors.take().is_none());
        until(|| are_full(&donors));
        let unused = loans(&donors);
        thread::refuse_next();
        thread::start("refused".to_owned(), || ()).unwrap().join().unwrap();
        assert!(unused.iter().all(|loan| loan.has_reached(Stage::Ended)));
        assert!(loans(&donors).is_empty());
        // One that is started ahead ends no other.
        drop(donors.take());
        until(|| are_full(&donors));
        thread::refuse_next();
        assert!(Donor::start(NAME, |_, _| (), true).is_err() && are_full(&donors));
        donors.close();
    }

    // The first fiber that asks has some started; each is lent once; the end waits for those that were not taken, and for no other.
    #[test]
    fn they_are_lent_once_and_end_with_their_runtime() {
        if thread_pointer::is_writable().is_err() {
            return;
        }
        let _alone = ALONE.lock();
        let donors = Donors::with_idle(|_, _| (), Duration::from_secs(3600));
        assert!(!donors.0.state.lock().is_kept, "none before one is asked for");
        assert!(donors.take().is_none());
        until(|| are_full(&donors));
        let taken: Vec<_> = (0..AHEAD).map_while(|_| donors.take()).collect();
        assert_eq!(taken.len(), AHEAD);
        until(|| taken.iter().all(|donor| donor.thread_pointer().is_some()));
        let mut pointers: Vec<_> = taken.iter().filter_map(Donor::thread_pointer).collect();
        until(|| are_full(&donors));
        pointers.extend(donors.take().and_then(|donor| {
            until(|| donor.thread_pointer().is_some());
            donor.thread_pointer()
        }));
        pointers.sort_unstable();
        pointers.dedup();
        assert_eq!(pointers.len(), AHEAD + 1);
        let unused = loans(&donors);
        donors.close();
        assert!(unused.iter().all(|loan| loan.has_reached(Stage::Ended)));
        assert!(taken.iter().all(|donor| !donor.loan().has_reached(Stage::Ended)));
        assert!(donors.take().is_none() && !donors.0.state.lock().is_kept, "closed");
        let taken: Vec<_> = taken.into_iter().map(Donor::give_back).collect();
        until(|| taken.iter().all(|loan| loan.has_reached(Stage::Ended)));
    }

    // Those that are not taken for a while end, and their keeper; the next fiber that asks has others started.
    #[test]
    fn unused_ones_end_after_a_while() {
        if thread_pointer::is_writable().is_err() {
            return;
        }
        let _alone = ALONE.lock();
        let donors = Donors::with_idle(|_, _| (), Duration::from_millis(1));
        for _ in 0..3 {
            drop(donors.take());
            until(|| !loans(&donors).is_empty() || !donors.0.state.lock().is_kept);
            let unused = loans(&donors);
            until(|| !donors.0.state.lock().is_kept);
            assert!(loans(&donors).is_empty());
            until(|| unused.iter().all(|loan| loan.has_reached(Stage::Ended)));
        }
        donors.close();
        assert_eq!(Arc::strong_count(&donors.0), 1, "no keeper is left");
    }
}
