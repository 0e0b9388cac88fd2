//! The select itself: exactly one case is completed, and the others leave no trace. Above: `private.rs`, `dynamic.rs`. Below: `case.rs`,
//! `channel::any`, `wait::park`.
//!
//! First pass: arms that look ready (by their hints, without a lock) are tried in random order, one lock at a time; a select that must not
//! wait makes another pass with the lock of each. This pass needs no cases, and no nodes: `select!` asks its arms,
//! [`Select`](super::Select) its entries. Cases and their nodes are made for the second pass, if nothing is ready: lock all channels in the
//! order of their ids, look again, link a node in each, unlock all, park (C-20). From then on the completion owner of any case claims the
//! wait, and the others find it claimed. After waking, the nodes of the losers are taken out before the caller goes on (S0-57).
//!
//! Two selects that meet hold all their locks while they look and link, so one of them finds the other parked. Cases that are no
//! channels ([`CaseKind::Object`]) are linked last, while the locks are held: if one of them turns out to be ready,
//! everything is taken back and tried again, unless another one has completed the wait meanwhile.
//!
//! A single operation is a select with one case: its type is known, it has one lock and one node, and needs none of this (`wait::park`).

use std::cell::Cell;
use std::panic::Location;
use std::task::Waker;
use std::time::Duration;

use super::case::{Case, CaseKind};
use super::sheet::Sheet;
use crate::channel::any::AnyChan;
use crate::channel::spot::Spot;
use crate::channel::state::{Peer, Try};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::wait::park::{self, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Published;
use crate::wait::wake;
use crate::waiter::node::{Node, Outcome, WaiterRef};
use crate::waiter::word::{CompletedBy, Ticket};

/// Channels up to this many are locked without allocating.
const FEW: usize = 8;
/// Cases from this one on share an arm number; the winner among them is found by its outcome.
const ARM_MANY: CompletedBy = 253;

/// The patience of a select: what it does if nothing is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// Wait.
    Wait,
    /// Do not wait.
    Now,
    /// Wait for so long.
    After(Duration),
}

/// When to stop waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    Endless,
    None,
    Until(u64),
}

/// The channels of the cases, each once, in the order of their ids.
enum Locks<'a> {
    Few([Option<&'a dyn AnyChan>; FEW], usize),
    Many(Vec<&'a dyn AnyChan>),
}

impl<'a> Locks<'a> {
    fn of(cases: &[Case<'a>]) -> Self {
        let chans = || {
            cases.iter().filter_map(|case| match &case.kind {
                CaseKind::Channel { operation, .. } => Some(operation.chan()),
                _ => None,
            })
        };
        let (mut few, mut count) = ([None; FEW], 0);
        for chan in chans() {
            let id = chan.order();
            let at =
                few[..count].partition_point(|held: &Option<&dyn AnyChan>| held.is_some_and(|held| held.order() < id));
            if at < count && few[at].is_some_and(|held| held.order() == id) {
                continue;
            }
            if count == FEW {
                let mut many: Vec<_> = chans().collect();
                many.sort_unstable_by_key(|chan| chan.order());
                many.dedup_by_key(|chan| chan.order());
                return Self::Many(many);
            }
            few[at..=count].rotate_right(1);
            few[at] = Some(chan);
            count += 1;
        }
        Self::Few(few, count)
    }

    fn each(&self, mut f: impl FnMut(&'a dyn AnyChan)) {
        match self {
            Self::Few(few, count) => few[..*count].iter().flatten().for_each(|chan| f(*chan)),
            Self::Many(many) => many.iter().for_each(|chan| f(*chan)),
        }
    }
}

/// The second pass.
struct Parking<'c, 'a> {
    cases: &'c [Case<'a>],
    locks: &'c Locks<'a>,
    biased: bool,
    start: usize,
    /// Completed in `publish`: which case, and with which outcome.
    won: Cell<Option<(usize, Outcome)>>,
}

fn arm_of(index: usize) -> CompletedBy {
    if index < ARM_MANY as usize { index as CompletedBy } else { ARM_MANY }
}

impl Waitable for Parking<'_, '_> {
    /// The cases have nodes of their own; `node` names the wait. `Retry`: an object looks ready.
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        self.locks.each(|chan| chan.lock_it());
        let mut owed = Vec::new();
        let (published, peer) = match self.complete_held(waiter) {
            (Outcome::Pending, _) if self.link_held(waiter, ticket, &mut owed) => (Outcome::Pending, None),
            (Outcome::Pending, _) => (Outcome::Retry, None),
            completed => completed,
        };
        // SAFETY: all of them were locked above.
        self.locks.each(|chan| owed.append(&mut unsafe { chan.unlock_held() }));
        let waker = peer.filter(|_| !seeded_bug("select_peer_left")).and_then(Peer::make_runnable);
        // On a plain thread this calls user code: only now that all locks are free.
        if !owed.is_empty() {
            wake::call_wakers_soon(owed);
        }
        (published, waker)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.cases.iter().for_each(Case::unlink);
    }

    fn is_settled(&self) -> bool {
        self.cases.iter().any(Case::is_settled)
    }
}

impl Parking<'_, '_> {
    /// Looks again, with everything locked.
    fn complete_held(&self, me: WaiterRef) -> Try {
        let count = self.cases.len();
        for turn in 0..count {
            let index = (self.start + turn) % count;
            if let CaseKind::Channel { operation, .. } = &self.cases[index].kind
                // SAFETY: the lock is held.
                && let (outcome, peer) = unsafe { operation.try_held(me) }
                && outcome != Outcome::Pending
            {
                self.won.set(Some((index, outcome)));
                return (outcome, peer);
            }
        }
        (Outcome::Pending, None)
    }

    /// Links a node for every case. False: an object is ready, and nothing stays linked.
    fn link_held(&self, waiter: WaiterRef, ticket: Ticket, owed: &mut Vec<Waker>) -> bool {
        // A peer that comes to a channel meets the first of its nodes: of several arms on one channel, each is the first with the same
        // chance.
        let spot = if self.biased { Spot::Back } else { Spot::Shuffled(choose) };
        for (index, case) in self.cases.iter().enumerate() {
            case.node().set(waiter, ticket, arm_of(index));
            case.node().several.set(true);
            case.node().outcome.set(Outcome::Pending);
            if let CaseKind::Channel { operation, .. } = &case.kind {
                // SAFETY: the lock is held; the cases stay where they are until the select is over, which unlinks them.
                unsafe { operation.link_held(case.node(), spot) };
            }
        }
        for (index, case) in self.cases.iter().enumerate() {
            if let CaseKind::Object(object) = &case.kind
                && object.publish(case.node()).0 != Outcome::Pending
            {
                for linked in &self.cases[..index] {
                    if let CaseKind::Object(object) = &linked.kind {
                        object.unpublish(linked.node(), owed);
                    }
                }
                for linked in self.cases {
                    if let CaseKind::Channel { operation, .. } = &linked.kind {
                        // SAFETY: the lock is held.
                        unsafe { operation.unlink_held(linked.node()) };
                    }
                }
                return false;
            }
        }
        true
    }

    /// Which case an owner completed.
    fn winner(&self, arm: CompletedBy) -> usize {
        if arm < ARM_MANY {
            return arm as usize;
        }
        // Only the completion owner that claimed the wait has written an outcome; some objects write none.
        let many = || self.cases.iter().enumerate().skip(ARM_MANY as usize);
        let by_outcome = many().find(|(_, case)| case.node().outcome.get() != Outcome::Pending);
        let is_done =
            |case: &Case<'_>| matches!(case.kind, CaseKind::Object(_)) && case.try_now(None) != Outcome::Pending;
        let by_trying = || many().find(|(_, case)| is_done(case));
        by_outcome.or_else(by_trying).expect("a claimed wait has a completed arm").0
    }
}

/// A random number below `bound`.
fn choose(bound: usize) -> usize {
    #[cfg(not(any(loom, shuttle)))]
    if bound > 1 {
        return crate::sched::current::choose(bound);
    }
    let _ = bound;
    0
}

/// The candidates of the first pass: the arms of `select!`, or the operations of a dynamic set, before they are cases; or cases.
pub(super) trait Candidates {
    fn count(&self) -> usize;
    /// Is a try worth a lock?
    fn may_be_ready(&mut self, index: usize) -> bool;
    /// Completes it if it is ready.
    fn complete(&mut self, index: usize) -> bool;
}

/// Candidates of a select that does not wait, in its last pass.
pub(super) trait LastCandidates: Candidates {
    /// Completes it if it is ready; see [`AnyChan::try_last`].
    fn complete_last(&mut self, index: usize) -> bool;
}

/// Cases, and the time if a deadline may be over.
struct Cases<'c, 'a>(&'c [Case<'a>], Option<u64>);

impl Candidates for Cases<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn may_be_ready(&mut self, index: usize) -> bool {
        self.0[index].may_be_ready(self.1)
    }

    fn complete(&mut self, index: usize) -> bool {
        self.0[index].complete(self.1)
    }
}

impl LastCandidates for Cases<'_, '_> {
    fn complete_last(&mut self, index: usize) -> bool {
        let case = &self.0[index];
        case.tell(case.try_last())
    }
}

/// Guesses before all candidates are looked at.
const GUESSES: usize = 3;

/// The first pass: tries candidates that look ready, each with the same chance, or in the given order.
#[inline(always)]
pub(super) fn try_ready(set: &mut impl Candidates, biased: bool) -> Option<usize> {
    let count = set.count();
    if biased {
        return (0..count).find(|index| set.may_be_ready(*index) && set.complete(*index));
    }
    // If many are ready, one of the first guesses is; whichever is guessed first, all that are ready are equally likely.
    if count > GUESSES {
        for _ in 0..GUESSES {
            let index = choose(count);
            if set.may_be_ready(index) && set.complete(index) {
                return Some(index);
            }
        }
    }
    if count > 64 { try_ready_of_many(set) } else { try_ready_of_few(set) }
}

#[inline(never)]
fn try_ready_of_few(set: &mut impl Candidates) -> Option<usize> {
    let mut ready = 0_u64;
    for index in 0..set.count() {
        ready |= u64::from(set.may_be_ready(index)) << index;
    }
    while ready != 0 {
        let mut left = ready;
        for _ in 0..choose(ready.count_ones() as usize) {
            left &= left - 1;
        }
        let index = left.trailing_zeros() as usize;
        if set.complete(index) {
            return Some(index);
        }
        ready &= !(1 << index);
    }
    None
}

#[inline(never)]
fn try_ready_of_many(set: &mut impl Candidates) -> Option<usize> {
    // One of the candidates that look ready, each with the same chance, found in one pass; if it turns out not to be ready, the next ones
    // from there on.
    let (mut chosen, mut seen) = (0, 0);
    for index in 0..set.count() {
        if set.may_be_ready(index) {
            seen += 1;
            if choose(seen) == 0 {
                chosen = index;
            }
        }
    }
    if seen == 0 {
        None
    } else {
        from(chosen, set.count()).find(|index| set.may_be_ready(*index) && set.complete(*index))
    }
}

/// All indices below `count`, from `start` on and round.
fn from(start: usize, count: usize) -> impl Iterator<Item = usize> {
    (start..count).chain(0..start)
}

/// The answer of a select that does not wait any more. A "no" is only good under the lock: a hint may be older than what this thread itself
/// has just done elsewhere.
fn try_all(set: &mut impl Candidates, biased: bool) -> Option<usize> {
    from(if biased { 0 } else { choose(set.count()) }, set.count()).find(|index| set.complete(*index))
}

/// The answer of a select that does not wait at all: the same, and peers that could not be met learn of it.
pub(super) fn try_all_at_last(set: &mut impl LastCandidates, biased: bool) -> Option<usize> {
    from(if biased { 0 } else { choose(set.count()) }, set.count()).find(|index| set.complete_last(*index))
}

/// Completes one of the cases and says which; `None` if patience was at its end.
#[inline(never)]
pub(crate) fn run(
    cases: &mut [Case<'_>],
    biased: bool,
    patience: Patience,
    site: &'static Location<'static>,
) -> Option<usize> {
    if patience == Patience::None {
        park::count_call();
    } else {
        // Asked only if there is a cancellation: with an arm for it, the select ends with that arm.
        let is_cancelled_arm = |case: &Case<'_>| matches!(case.kind, CaseKind::Cancelled);
        park::entry_if(|| !cases.iter().any(is_cancelled_arm), || cases.iter().any(Case::is_settled));
    }
    if let Some(index) = try_ready(&mut Cases(cases, None), biased) {
        return Some(index);
    }
    run_on(cases, biased, patience, site)
}

/// [`run`] after the first pass.
#[inline(never)]
pub(super) fn run_on(
    cases: &mut [Case<'_>],
    biased: bool,
    patience: Patience,
    site: &'static Location<'static>,
) -> Option<usize> {
    if patience == Patience::None {
        return try_all_at_last(&mut Cases(cases, None), biased);
    }
    wait_for(cases, biased, patience, site)
}

/// The second pass, repeated as often as necessary.
#[inline(never)]
pub(super) fn wait_for(
    cases: &mut [Case<'_>],
    biased: bool,
    patience: Patience,
    site: &'static Location<'static>,
) -> Option<usize> {
    for case in cases.iter_mut() {
        case.make_node();
        if let CaseKind::After(duration) = case.kind {
            let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            case.kind = CaseKind::At(policy::now().saturating_add(nanos));
        }
    }
    let cases = &*cases;
    let locks = Locks::of(cases);
    // With such an arm, cancellation is a result like any other.
    let watching = cases.iter().position(|case| matches!(case.kind, CaseKind::Cancelled));
    let last = if let Patience::Until(last) = patience { Some(last) } else { None };
    loop {
        let due = cases.iter().filter_map(|case| match &case.kind {
            CaseKind::At(due) => Some(*due),
            CaseKind::Channel { operation, .. } => operation.chan().due(),
            _ => None,
        });
        // The end of time never comes.
        let deadline = due.chain(last).min().filter(|due| *due != u64::MAX);
        assert!(
            deadline.is_some() || last.is_some() || cases.iter().any(|case| !matches!(case.kind, CaseKind::Off)),
            "fibra: a select without anything to wait for: every guard is false, and there is no default"
        );
        let start = if biased { 0 } else { choose(cases.len()) };
        let parking = Parking { cases, locks: &locks, biased, start, won: Cell::new(None) };
        let sheet = Sheet::of(cases);
        let how = Wait { reason: WaitReason::Select, object: sheet.address(), site, deadline };
        let ended = park::wait_for_any(&parking, how, watching.is_some());
        let (index, outcome) = match (ended, parking.won.get()) {
            // If it was completed here, that stands; an owner that came before can only have been a canceller, and cancellation comes
            // later.
            (_, Some(won)) => won,
            ((Outcome::Cancelled, _), None) => (watching.expect("asked to watch"), Outcome::Done),
            ((ended, Some(arm)), None) if arm <= ARM_MANY => {
                let index = parking.winner(arm);
                // (If it did not park, nothing is linked. A case among many that was found by trying may still be linked.)
                let is_loser = |other| ended != Outcome::Retry && (other != index || arm == ARM_MANY);
                cases.iter().enumerate().filter(|(other, _)| is_loser(*other)).for_each(|(_, case)| case.unlink());
                (index, cases[index].outcome())
            }
            // An object looks ready, or time is up.
            (_, None) => (cases.len(), Outcome::Retry),
        };
        if let Some(case) = cases.get(index)
            && (outcome != Outcome::Retry || is_only_asking(case))
        {
            case.tell(outcome);
            return Some(index);
        }
        let now = policy::now();
        let mut set = Cases(cases, Some(now));
        if let Some(index) = try_ready(&mut set, biased) {
            return Some(index);
        }
        if last.is_some_and(|last| last <= now) {
            return try_all(&mut set, biased);
        }
    }
}

/// For a caller that only wants to know whether an arm is ready, a call is an answer.
fn is_only_asking(case: &Case<'_>) -> bool {
    use crate::channel::op::ChanOpKind::{ReadyRecv, ReadySend};
    matches!(&case.kind, CaseKind::Channel { operation, .. } if matches!(operation.op(), ReadyRecv | ReadySend))
}
