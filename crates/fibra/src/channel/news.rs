//! [`News`]: a number that grows, and an end; a waiter can wait for both. The common part of `oneshot`, `watch` and `broadcast`.
//!
//! Above: those three. Below: the gate of `sync`, which holds the queue; nothing here parks by itself. The number, the end and the flag
//! that a waiter is queued lie in one word, so no wake is lost: a waiter raises the flag (a read-modify-write) and then looks at the
//! number; a change is a read-modify-write of the same word, and settles if it finds the flag.
//!
//! Nothing is taken here: a change lets every waiter go that has seen an older number. The message or value belongs to the object, and the
//! waiter looks for it again.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::select::case::Case;
use crate::sync::gate::{Ask, Gate, GateTask, GateWait, Rules};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// A waiter is queued: changes have to settle.
const WAITING: u64 = 1;
/// No further change will come.
const OVER: u64 = 2;
/// One change. The number of changes is the rest of the word.
const ONE: u64 = 4;

/// What a look at [`News`] shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// How many changes there were.
    pub(super) number: u64,
    /// No further one will come.
    pub(super) over: bool,
}

/// A change that was counted and is not announced yet: the word as it was before.
#[must_use = "waiters are not told before it is announced"]
pub(super) struct Counted(u64);

impl Look {
    fn of(word: u64) -> Self {
        Self { number: word / ONE, over: word & OVER != 0 }
    }
}

pub(super) struct NewsRules {
    word: AtomicU64,
}

impl NewsRules {
    #[inline(always)]
    fn look(&self) -> Look {
        // Acquire: pairs with the release in `tell` and `end`; what was done before a change is seen with it.
        Look::of(self.word.load(Ordering::Acquire))
    }
}

impl Rules for NewsRules {
    const BARGES: bool = true;
    const CALLS_ALL: bool = true;
    // The number only grows: a waiter that was woken need not look again.
    const CALL_SUFFICES: bool = true;

    fn grant(&self, seen: usize) -> bool {
        self.is_grantable(seen)
    }

    fn revoke(&self, _: usize) {}

    fn is_grantable(&self, seen: usize) -> bool {
        let look = self.look();
        look.over || look.number as usize != seen
    }

    fn set_waiting(&self, waiting: bool) {
        // AcqRel: the look that follows must not be older; it reads this very word.
        if waiting {
            self.word.fetch_or(WAITING, Ordering::AcqRel);
        } else {
            // Relaxed: nothing depends on it.
            self.word.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// How a blocking call waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) reason: WaitReason,
    /// On fibra's clock.
    pub(super) deadline: Option<u64>,
    pub(super) site: &'static Location<'static>,
}

/// See the header.
pub(super) struct News {
    gate: Gate<NewsRules>,
}

impl News {
    pub(super) fn new() -> Self {
        Self { gate: Gate::new(NewsRules { word: AtomicU64::new(0) }) }
    }

    /// The present number, and whether the end has come.
    #[inline(always)]
    pub(super) fn look(&self) -> Look {
        self.gate.rules().look()
    }

    /// One more change. Lets go every waiter that has not seen it.
    #[inline]
    pub(super) fn tell(&self) {
        self.announce(self.count());
    }

    /// One more change. The caller [announces](Self::announce) it as soon as it holds no lock, since that calls wakers.
    #[inline]
    pub(super) fn count(&self) -> Counted {
        // Release: pairs with the acquire in `look`.
        Counted(self.gate.rules().word.fetch_add(ONE, Ordering::Release))
    }

    /// Lets go every waiter that has not seen the change. (A waiter that came after the change has looked at the number itself.)
    #[inline]
    pub(super) fn announce(&self, Counted(word): Counted) {
        if word & WAITING != 0 && !seeded_bug("news_told_silently") {
            self.gate.settle();
        }
    }

    /// No further change will come. Lets every waiter go.
    #[inline]
    pub(super) fn end(&self) {
        // Release: pairs with the acquire in `look`.
        let word = self.gate.rules().word.fetch_or(OVER, Ordering::Release);
        if word & WAITING != 0 && !seeded_bug("news_ended_silently") {
            self.gate.settle();
        }
    }

    /// Waits until there is news since `seen`, or the end. False: the deadline came first. Cancellation unwinds.
    #[cold]
    pub(super) fn wait(&self, seen: u64, how: How) -> bool {
        let object = std::ptr::from_ref(self).addr() as u64;
        let How { reason, deadline, site } = how;
        let ask = Ask { want: seen as usize, first: false, reason, object, site, deadline };
        self.gate.wait(ask) == Outcome::Done
    }

    /// The same as a future.
    pub(super) fn wait_async(&self, seen: u64) -> NewsFuture<'_> {
        NewsFuture { news: self, seen, task: GateTask::new() }
    }

    /// The same as a part of an arm of a select.
    pub(super) fn arm(&self, seen: u64) -> NewsWait<'_> {
        NewsWait { wait: self.gate.arm(seen as usize), told: Cell::new(Outcome::Pending) }
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { number, over } = self.look();
        f.debug_struct("News").field("number", &number).field("over", &over).finish()
    }
}

/// See [`News::wait_async`].
pub(super) struct NewsFuture<'a> {
    news: &'a News,
    seen: u64,
    task: GateTask,
}

impl Future for NewsFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.task.poll(&this.news.gate, this.seen as usize, cx).map(drop)
    }
}

impl Drop for NewsFuture<'_> {
    fn drop(&mut self) {
        self.task.leave(&self.news.gate);
    }
}

/// The wait of a future that owns the object: the future calls [`leave`](Self::leave) when it is dropped.
#[derive(Debug, Default)]
pub(super) struct NewsTask(GateTask);

impl NewsTask {
    pub(super) fn poll(&mut self, news: &News, seen: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(&news.gate, seen as usize, cx).map(drop)
    }

    pub(super) fn leave(&mut self, news: &News) {
        self.0.leave(&news.gate);
    }
}

/// See [`News::arm`].
pub(super) struct NewsWait<'a> {
    wait: GateWait<'a, NewsRules>,
    told: Cell<Outcome>,
}

impl NewsWait<'_> {
    pub(super) fn case(&mut self) -> Case<'_> {
        Case::object(&self.wait, &self.told)
    }
}

/// The blocking forms of the wait of a sender for the end of its receivers, which its `closed_at` does: for ever, for some time, until a
/// moment.
macro_rules! closed_forms {
    (
        $ours:ident $(of $bound:path)?,
        $(#[$on_closed:meta])* closed,
        $(#[$on_timeout:meta])* closed_timeout,
        $(#[$on_deadline:meta])* closed_deadline
    ) => {
        impl<T $(: $bound)?> $ours<T> {
            $(#[$on_closed])*
            #[track_caller]
            pub fn closed(&self) {
                self.closed_at(None, std::panic::Location::caller());
            }

            $(#[$on_timeout])*
            #[track_caller]
            pub fn closed_timeout(&self, timeout: std::time::Duration) -> bool {
                self.closed_deadline(crate::time::Instant::after(timeout))
            }

            $(#[$on_deadline])*
            #[track_caller]
            pub fn closed_deadline(&self, deadline: impl Into<crate::time::Instant>) -> bool {
                self.closed_at(Some(deadline.into().as_nanos()), std::panic::Location::caller())
            }
        }
    };
}
pub(super) use closed_forms;

#[cfg(all(test, any(loom, shuttle)))]
mod model;
