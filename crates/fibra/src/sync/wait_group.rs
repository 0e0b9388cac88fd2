//! [`WaitGroup`]: waiting until all of a number of things are done. Above: users. Below: `turns`. The first count of `turns` is the number
//! of handles that stand for something unfinished, the second the number of things that were added by number. The group is open while both
//! are zero.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::turns::{MOST, TurnArm, TurnFuture, Turns, TurnsWord, wait_forms};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::wait::park;
use crate::wait::reason::WaitReason;

/// Waits until all are done: by handles, or by numbers.
///
/// *By handles*: every clone stands for something unfinished until it is dropped, or waits itself.
///
/// ```
/// use fibra::sync::WaitGroup;
///
/// fibra::run(|| {
///     let group = WaitGroup::new();
///     for _ in 0..3 {
///         let unfinished = group.clone();
///         drop(fibra::spawn(move || {
///             fibra::yield_now();
///             drop(unfinished); // done
///         }));
///     }
///     group.wait();
/// });
/// ```
///
/// *By numbers*: [`add`](Self::add) what is to be done, and call [`done`](Self::done) for each.
///
/// ```
/// use fibra::sync::WaitGroup;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let group = Arc::new(WaitGroup::new());
///     group.add(3);
///     for _ in 0..3 {
///         let group = group.clone();
///         drop(fibra::spawn(move || group.done()));
///     }
///     group.wait();
///     group.add(1); // and again
///     group.done();
///     group.wait();
/// });
/// ```
///
/// Waiting through a handle ends what that handle stands for: no waiter waits for it any more. So several handles of one group can wait for
/// each other.
pub struct WaitGroup {
    turns: Arc<Turns>,
    /// Does this handle stand for something unfinished?
    counts: AtomicBool,
}

fn settled(state: TurnsWord) -> TurnsWord {
    let open = state.first == 0 && state.second == 0;
    if open && !state.open { TurnsWord { open, ..state.next_turn() } } else { TurnsWord { open, ..state } }
}

impl WaitGroup {
    /// A group with one handle, this one.
    #[must_use]
    pub fn new() -> Self {
        let state = TurnsWord { open: false, first: 1, second: 0, turn: 0 };
        Self { turns: Arc::new(Turns::new(state)), counts: AtomicBool::new(true) }
    }

    /// `count` more things are to be done.
    ///
    /// # Panics
    /// If more than 16,777,215 are.
    #[track_caller]
    pub fn add(&self, count: usize) {
        let added = self.turns.change(|state| {
            let second = u32::try_from(count).ok()?.checked_add(state.second).filter(|second| *second <= MOST)?;
            Some(settled(TurnsWord { second, ..state }))
        });
        assert!(added.is_ok(), "fibra: more than 16,777,215 things to be done in a WaitGroup");
    }

    /// One of those that were [added](Self::add) is done.
    ///
    /// # Panics
    /// If all of them are done already.
    #[track_caller]
    pub fn done(&self) {
        let done =
            self.turns.change(|state| state.second.checked_sub(1).map(|second| settled(TurnsWord { second, ..state })));
        assert!(done.is_ok(), "fibra: WaitGroup::done was called more often than things were added");
    }

    /// This handle does not stand for anything any more.
    fn resign(&self) {
        // Relaxed: of several callers, the first one to swap it does what follows, which is ordered by itself.
        if self.counts.swap(false, Ordering::Relaxed) {
            let _ = self.turns.change(|state| Some(settled(TurnsWord { first: state.first - 1, ..state })));
        }
    }

    fn wait_until(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        self.resign();
        self.turns.wait_open(WaitReason::WaitGroupWait, deadline, site)
    }

    /// Like [`wait`](Self::wait), as a future.
    ///
    /// ```
    /// let group = fibra::sync::WaitGroup::new();
    /// let other = group.clone();
    /// drop(std::thread::spawn(move || drop(other)));
    /// fibra::block_on(group.wait_async());
    /// ```
    pub fn wait_async(&self) -> TurnFuture<'_> {
        self.resign();
        TurnFuture::new(&self.turns)
    }

    /// Like [`wait`](Self::wait), as an arm of [`select!`](crate::select): `on(group.waiting()) => ..`
    pub fn waiting(&self) -> TurnArm<'_> {
        self.resign();
        self.turns.arm()
    }

    /// Is everything done? This handle, if it stands for something, counts.
    #[must_use]
    pub fn is_done(&self) -> bool {
        park::count_call();
        self.turns.state().open
    }
}

wait_forms! {
    WaitGroup,
    /// Waits until everything is done and no other handle stands for something unfinished.
    wait,
    /// Like [`wait`](Self::wait), for at most `timeout`. True if everything was done.
    wait_timeout,
    /// Like [`wait`](Self::wait), until `deadline` at most. True if everything was done.
    wait_deadline
}

/// A handle that stands for one more unfinished thing.
impl Clone for WaitGroup {
    #[track_caller]
    fn clone(&self) -> Self {
        let cloned = self.turns.change(|state| {
            let first = Some(state.first + 1).filter(|first| *first <= MOST)?;
            Some(settled(TurnsWord { first, ..state }))
        });
        assert!(cloned.is_ok(), "fibra: more than 16,777,215 handles of a WaitGroup");
        Self { turns: self.turns.clone(), counts: AtomicBool::new(true) }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        self.resign();
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TurnsWord { first, second, .. } = self.turns.state();
        f.debug_struct("WaitGroup").field("handles", &first).field("added", &second).finish()
    }
}
