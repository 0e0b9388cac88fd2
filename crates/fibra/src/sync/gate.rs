//! The gate: the one mechanism under all locks and their kin. It consists of rules that say what may be had, and one queue of waiters.
//!
//! Above: `mutex`, `semaphore` and the rest, each of which is a set of [`Rules`] with a fast path of its own. Below: the nodes, claims and
//! parks of `wait`.
//!
//! ```text
//!  fast path     the object's own: a compare-exchange on the word of its rules; the gate is not touched
//!  wait          under the gate's lock: raise the WAITING flag in that word, try once more, link a node; then park
//!  release       the object's own read-modify-write on that word; if it finds WAITING, `settle`
//!  settle        under the lock, from the head on: take it for the head (`Rules::serve`), unlink, claim, note the outcome; then
//!                unlock and set the served waiters going. What they wanted is theirs before they run.
//! ```
//!
//! * **No wake is lost**: the flag and what is to be had lie in *one* word. A waiter raises the flag (a read-modify-write) and tries after
//!   that; so a release either comes before the try, which then succeeds, or finds the flag and settles.
//! * **FIFO**: only the head is served, and newcomers do not overtake (unless the rules are [`Rules::BARGES`]).
//! * **One completion owner**: what was taken for a waiter whose wait was ended meanwhile (time, cancellation, another arm of its select)
//!   is given back ([`Rules::revoke`]) and offered to the next.
//! * **A waiter that leaves settles**: the waiters behind it may be able to have what there is, though the head could not.
//! * **Async waiters are called, never served**: a called one is out of the queue, tries when it is polled, goes back to the head if it
//!   finds nothing, and passes the call on if it is dropped. No waiter behind it is served in the same settling (unless
//!   [`Rules::CALLS_ALL`]): the called one would come too late time and again.
//! * No user code runs under the lock or while PARKING: wakers are called after.

use std::fmt;
use std::panic::Location;
use std::ptr;
use std::task::{Context, Poll, Waker};

use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;
use crate::wait::park::{self, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::task::TaskWait;
use crate::wait::waitable::Published;
use crate::wait::wake::{self, QueueEnd};
use crate::waiter::node::{Node, Outcome, Role, WaitList};
use crate::waiter::record::Claimed;

/// How many waiters are set going between two looks at the queue. (Few under the models, where few wait and all rounds are to be seen.)
const ROUND: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// The kind of a waiter, as far as serving it goes. Read from the node's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// A fiber or a thread that waits for nothing else.
    Waiter,
    /// An arm of a select: it can only be granted, since no code runs there that could try again.
    Arm,
    /// An async waiter: it can only be called.
    Task,
}

impl Who {
    fn of(node: &Node) -> Self {
        match node.role.get() {
            Role::Grant => Self::Arm,
            Role::Call => Self::Task,
            _ => Self::Waiter,
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Waiter => Role::Either,
            Self::Arm => Role::Grant,
            Self::Task => Role::Call,
        }
    }
}

/// What the gate guards. The state is one atomic word (or behaves like one): fast paths work on it without the lock. All methods are called
/// under the gate's lock. What a waiter wants is a number whose meaning the object defines.
pub(crate) trait Rules {
    /// A newcomer may take what is to be had although others wait: [`grant`](Self::grant) alone decides, and needs no lock.
    const BARGES: bool = false;
    /// Calling one async waiter does not keep those behind it from being served.
    const CALLS_ALL: bool = false;
    /// The call itself is all that the waiter wanted: there is nothing to be taken, and no second look.
    const CALL_SUFFICES: bool = false;
    /// No waiter gets ahead of one that wants this, not even one that was called and came too late: it holds what all others wait for.
    const URGENT: Option<usize> = None;

    /// Takes it, if it can be had now; does not look at the WAITING flag.
    fn grant(&self, want: usize) -> bool;
    /// Undoes a [`grant`](Self::grant) that no waiter received.
    fn revoke(&self, want: usize);
    /// Would [`grant`](Self::grant) succeed?
    fn is_grantable(&self, want: usize) -> bool;
    /// Raises or lowers the flag that sends releases to [`Gate::settle`]. Raising it is a read-modify-write.
    fn set_waiting(&self, waiting: bool);

    /// Is it in vain to wait for this? Then the waiter is let go without it, and nothing is taken for it.
    fn refuses(&self, _want: usize) -> bool {
        false
    }

    /// A waiter that wants this is about to be linked. Gives what it wants from now on.
    fn enlist(&self, want: usize) -> usize {
        want
    }

    /// Serves the head of the queue: `Done`, it has what it wants; `Retry`, it is called and may try for itself; `Pending`, it waits on.
    #[inline(always)]
    fn serve(&self, want: usize, who: Who) -> Outcome {
        match who {
            Who::Task if self.is_grantable(want) => Outcome::Retry,
            Who::Waiter | Who::Arm if self.grant(want) => Outcome::Done,
            _ => Outcome::Pending,
        }
    }
    /// What an async waiter wants when it comes because it was called.
    #[inline(always)]
    fn called(want: usize) -> usize {
        want
    }

    /// The head was called and is gone: it will not try.
    fn uncall(&self, _want: usize) {}
}

/// The description of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) want: usize,
    /// Before all others: for a waiter that holds what others wait for (an upgrade), or that was called and came too late.
    pub(crate) first: bool,
    pub(crate) reason: WaitReason,
    /// Names the object in reports.
    pub(crate) object: u64,
    pub(crate) site: &'static Location<'static>,
    /// On fibra's clock; `u64::MAX` never comes.
    pub(crate) deadline: Option<u64>,
}

/// See the header.
pub(crate) struct Gate<R> {
    rules: R,
    queue: SpinLock<WaitList>,
}

impl<R> Gate<R> {
    /// Where the rules lie in it, for reports: see `seen.rs`.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const RULES: usize = std::mem::offset_of!(Self, rules);
}

/// The waiters that were served in one round.
#[derive(Default)]
struct Round {
    claimed: [Option<Claimed>; ROUND],
    count: usize,
    /// There may be more to do.
    more: bool,
}

impl Round {
    /// Sets them going, all of them before the first waker is called, which is user code. No lock of the gate is held.
    #[inline(always)]
    fn make_runnable(self, mut call: impl FnMut(Waker)) {
        let mut wakers: [Option<Waker>; ROUND] = Default::default();
        let mut count = 0;
        // (Most rounds have one, and that a fiber.)
        for claimed in self.claimed.into_iter().take(self.count).flatten() {
            // Behind what is ready: the one that releases something goes on, and the waiter has its turn like all others.
            if let Some(waker) = wake::make_runnable(claimed, QueueEnd::Tail) {
                wakers[count] = Some(waker);
                count += 1;
            }
        }
        if count > 0 {
            wakers.into_iter().flatten().for_each(&mut call);
        }
    }
}

impl<R> Gate<R> {
    #[cfg(not(loom))]
    pub(crate) const fn new(rules: R) -> Self {
        Self { rules, queue: SpinLock::new(WaitList::new()) }
    }
    #[cfg(loom)]
    pub(crate) fn new(rules: R) -> Self {
        Self { rules, queue: SpinLock::new(WaitList::new()) }
    }

    #[inline(always)]
    pub(crate) fn rules(&self) -> &R {
        &self.rules
    }
}

impl<R: Rules> Gate<R> {
    /// Takes it for a newcomer if it can be had now: for objects without a fast path, and for the arms of a select.
    pub(crate) fn try_now(&self, want: usize) -> bool {
        if R::BARGES {
            return self.rules.grant(want);
        }
        self.queue.with(|queue| queue.is_empty() && self.rules.grant(want))
    }

    /// Runs `f` under the lock, and then settles: for changes that have to be atomic together with the queue. Also gives how many were
    /// served.
    pub(crate) fn update<T>(&self, f: impl FnOnce(&R) -> T) -> (T, usize) {
        let (answer, round) = self.queue.with(|queue| (f(&self.rules), self.serve(queue)));
        (answer, self.finish(round, wake::call_waker))
    }

    /// Serves the waiters that can be served: after a release that found the WAITING flag.
    pub(crate) fn settle(&self) {
        let round = self.queue.with(|queue| self.serve(queue));
        self.finish(round, wake::call_waker);
    }

    /// [`settle`](Self::settle) where no user code may run: the wakers are left to the caller.
    pub(crate) fn settle_owing(&self, owed: &mut Vec<Waker>) {
        let round = self.queue.with(|queue| self.serve(queue));
        self.finish(round, |waker| owed.push(waker));
    }

    /// Sets the waiters of a round going, has their wakers called, and goes on while there is more to do.
    fn finish(&self, mut round: Round, mut call: impl FnMut(Waker)) -> usize {
        let mut served = 0;
        loop {
            let more = round.more;
            served += round.count;
            round.make_runnable(&mut call);
            if !more {
                return served;
            }
            round = self.queue.with(|queue| self.serve(queue));
        }
    }

    /// May the wait of this node, which is not linked yet, try before it queues? Arms of one select do not stand in each other's way.
    fn may_try(queue: &WaitList, node: &Node, first: bool) -> bool {
        // SAFETY: under the lock, which the caller holds.
        let mut other: Option<&Node> = unsafe { queue.front() };
        if R::BARGES || first {
            return other.is_none_or(|head| R::URGENT != Some(head.slot.get().addr()));
        }
        let waiter = Some(node.target().0);
        while let Some(node) = other {
            if !node.is_of(waiter) {
                return false;
            }
            // SAFETY: as above.
            other = unsafe { queue.after(node) };
        }
        true
    }

    /// Serves the head of the queue; if it has to wait on, another arm of the same select right behind it.
    #[inline(always)]
    fn serve_head<'q>(&self, queue: &'q WaitList) -> Option<(&'q Node, Outcome)> {
        // SAFETY: under the lock, which the caller holds.
        let head: &Node = unsafe { queue.front() }?;
        let mut node = head;
        loop {
            let (want, who) = (node.slot.get().addr(), Who::of(node));
            let served = match self.rules.refuses(want) {
                true if who == Who::Task => Outcome::Retry,
                true => Outcome::Closed,
                false => self.rules.serve(want, who),
            };
            if served != Outcome::Pending {
                return Some((node, served));
            }
            // SAFETY: as above.
            node = unsafe { queue.after(node) }.filter(|next| next.is_of(Some(head.target().0)))?;
        }
    }

    /// Serves from the head on, as far as possible.
    fn serve(&self, queue: &WaitList) -> Round {
        let mut round = Round::default();
        // (A node that is unlinked here is alive until its claimed wait is set going, after unlocking.)
        loop {
            if round.count == ROUND && !queue.is_empty() {
                round.more = true;
                return round;
            }
            let Some((node, served)) = self.serve_head(queue) else { break };
            let (want, who) = (node.slot.get().addr(), Who::of(node));
            // SAFETY: under the lock, and it is in this list.
            unsafe { queue.remove(node) };
            let (waiter, ticket, arm) = node.target();
            let Some(claimed) = Claimed::of(waiter, ticket, arm) else {
                // Its wait was ended by another completion owner. What was taken for it goes to the next.
                match served {
                    Outcome::Retry => self.rules.uncall(want),
                    Outcome::Done if !seeded_bug("gate_grant_lost") => self.rules.revoke(want),
                    _ => {}
                }
                continue;
            };
            let refused_as_granted = seeded_bug("gate_refused_as_granted") && served == Outcome::Closed;
            node.outcome.set(if refused_as_granted { Outcome::Done } else { served });
            round.claimed[round.count] = Some(claimed);
            round.count += 1;
            if who == Who::Task && !R::CALLS_ALL {
                break;
            }
        }
        if queue.is_empty() {
            self.rules.set_waiting(false);
        }
        round
    }

    /// Under the lock: takes it, or links the node (`Pending`). An arm of a select takes nothing: it may try (`Retry`).
    fn enter(&self, queue: &WaitList, node: &Node, first: bool) -> Outcome {
        let want = node.slot.get().addr();
        let takes = Who::of(node) != Who::Arm;
        if !seeded_bug("gate_flag_after_try") {
            self.rules.set_waiting(true);
        }
        let refused = self.rules.refuses(want);
        let had = !refused
            && Self::may_try(queue, node, first)
            && if takes { self.rules.grant(want) } else { self.rules.is_grantable(want) };
        if had || refused {
            if queue.is_empty() {
                self.rules.set_waiting(false);
            }
            return match had {
                _ if !takes => Outcome::Retry,
                true => Outcome::Done,
                false => Outcome::Closed,
            };
        }
        if seeded_bug("gate_flag_after_try") {
            self.rules.set_waiting(true);
        }
        node.slot.set(ptr::without_provenance_mut(self.rules.enlist(want)));
        // SAFETY: under the lock; the waiter leaves the node where it is until it is unlinked.
        unsafe {
            match queue.front() {
                _ if !first => queue.push_back(node),
                Some(head) if R::URGENT == Some(head.slot.get().addr()) && !seeded_bug("gate_overtakes_urgent") => {
                    queue.remove(head);
                    queue.push_front(node);
                    queue.push_front(head);
                }
                _ => queue.push_front(node),
            }
        }
        Outcome::Pending
    }

    /// Takes the node of a wait that another completion owner has ended out of the queue, if it is still there; then the waiters behind it
    /// may have what it was waiting for.
    fn depart(&self, node: &Node) -> Round {
        self.queue.with(|queue| {
            // SAFETY: under the lock; it was linked in this list, if it is.
            if unsafe { queue.remove(node) } && !seeded_bug("gate_departs_silently") {
                self.serve(queue)
            } else {
                Round::default()
            }
        })
    }

    // ---- Fibers and threads ---------------------------------------------------------------------------------------------

    /// Waits, trying once more under the lock before it parks: `Done`, it has what it wanted; `Closed`, the rules [refuse](Rules::refuses);
    /// `Retry`, it was called (only by rules with a [`Rules::serve`] of their own); or `TimedOut`. Cancellation unwinds.
    pub(crate) fn wait(&self, ask: Ask) -> Outcome {
        match self.wait_or_cancelled(ask) {
            Outcome::Cancelled => deliver(),
            ended => ended,
        }
    }

    /// Like `wait`, for callers that have something to give back before they unwind.
    pub(crate) fn wait_or_cancelled(&self, ask: Ask) -> Outcome {
        self.wait_with(ask, None)
    }

    /// Like `wait_or_cancelled`; `then` is called when the wait is visible, before it parks: no user code and no waiting is allowed in it.
    /// It is not called if the wait was over before it began.
    pub(crate) fn wait_after(&self, ask: Ask, then: impl Fn()) -> Outcome {
        self.wait_with(ask, Some(&then))
    }

    fn wait_with(&self, ask: Ask, then: Option<&dyn Fn()>) -> Outcome {
        let wait = GateWait { gate: self, want: ask.want, first: ask.first, who: Who::Waiter, then };
        let deadline = ask.deadline.filter(|deadline| *deadline != u64::MAX);
        let how = Wait { reason: ask.reason, object: ask.object, site: ask.site, deadline };
        park::wait_or_cancelled(&wait, how)
    }

    /// A wait as an arm of a select. If the arm wins, what it wanted was taken for it.
    pub(crate) fn arm(&self, want: usize) -> GateWait<'_, R> {
        GateWait { gate: self, want, first: false, who: Who::Arm, then: None }
    }
}

/// Unwinds after [`Outcome::Cancelled`].
pub(crate) fn deliver() -> ! {
    #[cfg(not(any(loom, shuttle)))]
    crate::cancel::deliver();
    #[cfg(any(loom, shuttle))]
    std::panic::resume_unwind(Box::new(park::CancelledInModel));
}

/// A wait for something of a gate: by a fiber or thread, a future, or an arm of a select.
pub(crate) struct GateWait<'a, R> {
    gate: &'a Gate<R>,
    want: usize,
    first: bool,
    who: Who,
    /// See [`Gate::wait_after`].
    then: Option<&'a dyn Fn()>,
}

impl<R> GateWait<'_, R> {
    pub(crate) fn want(&self) -> usize {
        self.want
    }
}

impl<R: Rules> Waitable for GateWait<'_, R> {
    fn try_now(&self) -> Outcome {
        if self.gate.try_now(self.want) { Outcome::Done } else { Outcome::Pending }
    }

    fn publish(&self, node: &Node) -> Published {
        node.role.set(self.who.role());
        node.slot.set(ptr::without_provenance_mut(self.want));
        let entered = self.gate.queue.with(|queue| self.gate.enter(queue, node, self.first));
        if let Some(then) = self.then {
            then();
        }
        (entered, None)
    }

    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        let round = self.gate.depart(node);
        self.gate.finish(round, |waker| owed.push(waker));
    }
}

// ---- Async waiters ----------------------------------------------------------------------------------------------------------

/// A call that was answered. The waiters behind it were not looked at then: they are when this is dropped, also if the waker panics when it
/// is cloned (it is user code).
struct Call<'a, R: Rules>(&'a Gate<R>);

impl<R: Rules> Drop for Call<'_, R> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// The wait of a future. Its owner calls [`leave`](Self::leave) when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct GateTask(TaskWait);

impl GateTask {
    pub(crate) const fn new() -> Self {
        Self(TaskWait::new())
    }

    /// Ready: the caller has what it wanted; or it was in vain (false), if the rules [refuse](Rules::refuses).
    pub(crate) fn poll<R: Rules>(&mut self, gate: &Gate<R>, want: usize, cx: &mut Context<'_>) -> Poll<bool> {
        if self.0.goes_on(cx.waker()) {
            return Poll::Pending;
        }
        if !self.0.is_published() && park::lets_others_run(cx) {
            return Poll::Pending;
        }
        loop {
            let called = self.withdraw(gate);
            if called && R::CALL_SUFFICES {
                return Poll::Ready(true);
            }
            // (Not `then_some`: that would make one, and drop it.)
            let call = called.then(|| Call(gate));
            let want = if called { R::called(want) } else { want };
            let published = self.0.publish(cx.waker(), &wanted(gate, want, called));
            if matches!(published, Outcome::Pending | Outcome::Retry) {
                // It is the head again, and the waiters behind it wait for it.
                std::mem::forget(call);
            }
            match published {
                Outcome::Pending => return Poll::Pending,
                Outcome::Retry => {}
                had => return Poll::Ready(had == Outcome::Done),
            }
        }
    }

    /// The future is dropped: its place is free, and a call is passed on. True: it had been called.
    pub(crate) fn leave<R: Rules>(&mut self, gate: &Gate<R>) -> bool {
        let called = self.withdraw(gate);
        if called && !seeded_bug("gate_call_not_passed_on") {
            gate.settle();
        }
        called
    }

    /// Ends the wait that the last poll published. True: it was called.
    fn withdraw<R: Rules>(&mut self, gate: &Gate<R>) -> bool {
        self.0.withdraw(&wanted(gate, 0, false)) != Outcome::Pending
    }
}

/// The wait of a future; what the future wants plays no part in taking the wait back.
fn wanted<R>(gate: &Gate<R>, want: usize, first: bool) -> GateWait<'_, R> {
    GateWait { gate, want, first, who: Who::Task, then: None }
}

impl<R: fmt::Debug> fmt::Debug for Gate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("rules", &self.rules).finish_non_exhaustive()
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
