//! The wait graph of a snapshot: which fiber waits for which, and which fibers are stuck.
//!
//! Every parked fiber has a *need*: what has to happen before it can go on.
//!
//! ```text
//!  One     one fiber has to act: the holder of a lock, the fiber that is joined                     certain
//!  All     all of these have to end: the children of a scope, the fibers of a run                    certain
//!  Any     one of these has to act: the fibers that seem to have the other end of a channel          probable (`holders.rs`)
//!  Free    it may go on by itself: it runs, or waits for time, the system, a thread, or something unknown
//! ```
//!
//! The stuck fibers are those that are left when every fiber that may go on has been set free: first the Free ones, then every fiber that
//! needs a free one (for All: only if all that it needs are free). From each fiber that is left, the walk to a fiber that it needs, and so
//! on, must lead into a circle: that is a deadlock. It is certain if every step of the circle is.
//!
//! The program runs on while this is computed. A circle counts only if each of its fibers is parked in the same wait at the end as it
//! was at the beginning: then all of them were parked there together, and what each of them holds has not changed.
//!
//! Above: `deadlock.rs`, `mod.rs`. Below: `collect.rs`, `holders.rs`.

use std::collections::HashMap;

use super::collect::Found;
use super::holders;
use super::snapshot::{FiberInfo, LockHolder, Object, Snapshot, WaitInfo};
use crate::fiber::id::FiberId;
use crate::wait::reason::WaitReason;

/// What a fiber needs; see the header. Fibers by their place in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    Free,
    One(usize),
    All(Vec<usize>),
    Any(Vec<usize>),
}

impl Need {
    fn of(&self) -> &[usize] {
        match self {
            Need::Free => &[],
            Need::One(one) => std::slice::from_ref(one),
            Need::All(all) | Need::Any(all) => all,
        }
    }

    pub(super) fn is_certain(&self) -> bool {
        !matches!(self, Need::Any(_))
    }
}

/// The graph, with the fibers in it that are stuck.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) needs: Vec<Need>,
    pub(super) stuck: Vec<bool>,
    /// The fiber waits for the end of other fibers: a join, a scope, a run.
    awaits_end: Vec<bool>,
}

impl Graph {
    pub(super) fn new(snapshot: &Snapshot, found: &[Found]) -> Self {
        let needs = needs(snapshot, found);
        let stuck = stuck(&needs);
        let awaits_end = |fiber: &FiberInfo| {
            use WaitReason::{Join, JoinHalf, JoinNext, RunEnd, ScopeEnd};
            fiber
                .wait
                .as_ref()
                .is_some_and(|wait| matches!(wait.reason, Join | JoinHalf | JoinNext | RunEnd | ScopeEnd))
        };
        let awaits_end = snapshot.fibers.iter().map(awaits_end).collect();
        Self { needs, stuck, awaits_end }
    }

    /// The circles, each once; every fiber is in one at most.
    pub(super) fn circles(&self) -> Vec<Vec<usize>> {
        let mut circles = Vec::new();
        // The walk on which a fiber was met, counted from 1.
        let mut met = vec![0_usize; self.needs.len()];
        for start in (0..self.needs.len()).filter(|start| self.stuck[*start]) {
            let (mut at, mut path) = (start, Vec::new());
            while met[at] == 0 {
                met[at] = start + 1;
                path.push(at);
                at = self.next(at);
            }
            if met[at] == start + 1 {
                let begin = path.iter().position(|fiber| *fiber == at).unwrap_or(0);
                circles.push(path.split_off(begin));
            }
        }
        circles
    }

    /// A stuck fiber that this stuck fiber needs; preferably one that needs this fiber in turn.
    pub(super) fn next(&self, fiber: usize) -> usize {
        let needed = || self.in_order(fiber).into_iter().filter(|other| self.stuck[*other]);
        let back = needed().find(|other| self.needs[*other].of().contains(&fiber));
        back.or_else(|| needed().next()).unwrap_or(fiber)
    }

    /// The fibers that a fiber needs, the likely ones first. A fiber that has made a channel and given its ends away still has the
    /// channel's address on its stack, and then usually waits for the end of other fibers: such fibers come last.
    pub(super) fn in_order(&self, fiber: usize) -> Vec<usize> {
        let mut needed = self.needs[fiber].of().to_vec();
        needed.sort_unstable();
        needed.dedup();
        if !self.needs[fiber].is_certain() {
            needed.sort_by_key(|other| self.awaits_end[*other]);
        }
        needed
    }

    /// How many fibers are stuck without being in a circle.
    pub(super) fn behind(&self, circles: &[Vec<usize>]) -> usize {
        self.stuck.iter().filter(|stuck| **stuck).count() - circles.iter().map(Vec::len).sum::<usize>()
    }
}

fn needs(snapshot: &Snapshot, found: &[Found]) -> Vec<Need> {
    let at: HashMap<FiberId, usize> = snapshot.fibers.iter().enumerate().map(|(at, fiber)| (fiber.id, at)).collect();
    let holders: HashMap<u64, LockHolder> = snapshot.locks.iter().map(|lock| (lock.address, lock.holder)).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, (fiber, found)) in snapshot.fibers.iter().zip(found).enumerate() {
        if !fiber.is_daemon && !fiber.is_root {
            children.entry(found.root).or_default().push(at);
        }
    }
    let referring = holders::referring(snapshot, found, &places(snapshot));
    let one = |id: &FiberId| at.get(id).map_or(Need::Free, |at| Need::One(*at));
    let all = |root: usize| children.get(&root).map_or(Need::Free, |all| Need::All(all.clone()));
    // The fibers with a pointer to the place, but not those that wait for the same.
    let any = |fiber: usize, place: usize| -> Option<Vec<usize>> {
        let others: Vec<_> = referring.get(&place)?.iter().copied().filter(|other| *other != fiber).collect();
        let own = snapshot.fibers[fiber].wait.as_ref()?;
        let is_same = |wait: &WaitInfo| wait.object == own.object && wait.reason == own.reason;
        let waits_so = |other: usize| snapshot.fibers[other].wait.as_ref().is_some_and(is_same);
        let others: Vec<_> = others.into_iter().filter(|other| !waits_so(*other)).collect();
        (!others.is_empty()).then_some(others)
    };
    let fibers = snapshot.fibers.iter().zip(found).enumerate();
    fibers
        .map(|(number, (fiber, found))| {
            let Some(wait) = inside(fiber) else { return Need::Free };
            match &wait.object {
                Object::Fiber(other) => one(other),
                Object::Scope(scope) => all(*scope as usize),
                Object::Lock(lock) => match holders.get(lock) {
                    Some(LockHolder::Fiber(holder)) => one(holder),
                    Some(LockHolder::Readers(_)) => any(number, *lock as usize).map_or(Need::Free, Need::Any),
                    _ => Need::Free,
                },
                Object::None if wait.reason == WaitReason::RunEnd => all(found.root),
                Object::Channel(_) | Object::Select(..) | Object::Semaphore(_) | Object::At(_) => {
                    let mut all = Vec::new();
                    for place in places_of(snapshot, wait) {
                        match any(number, place) {
                            Some(others) => all.extend(others),
                            // It is not known which fiber could act.
                            None => return Need::Free,
                        }
                    }
                    if all.is_empty() { Need::Free } else { Need::Any(all) }
                }
                Object::None | Object::Socket(_) => Need::Free,
            }
        })
        .collect()
}

/// The wait of a fiber, if only other fibers can end it.
pub(super) fn inside(fiber: &FiberInfo) -> Option<&WaitInfo> {
    let wait = fiber.wait.as_ref()?;
    // The wait for the end of a run has a deadline only to report that it waits, and goes on afterwards.
    let ends_by_itself = wait.has_deadline && wait.reason != WaitReason::RunEnd;
    let has_other_arms = matches!(wait.object, Object::Select(_, true));
    (!ends_by_itself && is_inside(wait.reason) && !has_other_arms).then_some(wait)
}

/// Do only other fibers end such a wait? (A select: if all its arms are operations on channels.)
pub(super) fn is_inside(reason: WaitReason) -> bool {
    use WaitReason as R;
    match reason {
        R::Join | R::JoinHalf | R::JoinNext | R::RunEnd | R::ScopeEnd | R::TokenCancelled => true,
        R::ChannelSend | R::ChannelRecv | R::ChannelReserve | R::ChannelClosed | R::Select => true,
        R::MutexLock | R::CondvarWait | R::CondvarRelock | R::ReentrantLock | R::SemaphoreAcquire => true,
        R::RwLockRead | R::RwLockWrite | R::RwLockUpgrade | R::BarrierWait | R::WaitGroupWait => true,
        R::OnceWait | R::EventWait | R::OneshotRecv | R::OneshotClosed | R::WatchChanged | R::WatchClosed => true,
        R::BroadcastRecv | R::BroadcastClosed | R::OrderedSpawn | R::OrderedRecv | R::PoolGet => true,
        R::Sleep | R::BlockingQueued | R::BlockingRunning | R::BlockOn | R::RuntimeEnd => false,
        R::NetRead | R::NetWrite | R::NetAccept | R::NetConnect | R::NetLookup => false,
        R::FileCall | R::PipeRead | R::PipeWrite | R::ChildExit | R::StdinRead => false,
        R::MachineCall | R::MachineIdle => false,
        // An actor that has no turn has no fiber, and may be set going by a timer of its own.
        R::ActorSend | R::ActorCall | R::ActorStopped | R::ActorLock | R::ActorsQuiescent => false,
    }
}

/// The addresses of the objects without an owner that fibers wait for.
fn places(snapshot: &Snapshot) -> Vec<usize> {
    let waits = snapshot.fibers.iter().filter_map(inside);
    let mut places: Vec<_> = waits.flat_map(|wait| places_of(snapshot, wait)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn places_of(snapshot: &Snapshot, wait: &WaitInfo) -> Vec<usize> {
    let channel = |id: u64| snapshot.channel(id).map(|channel| channel.address);
    match &wait.object {
        Object::Channel(id) => channel(*id).into_iter().collect(),
        Object::Select(arms, _) => arms.iter().filter_map(|arm| channel(arm.channel)).collect(),
        Object::Lock(address) | Object::Semaphore(address) | Object::At(address) => vec![*address as usize],
        _ => Vec::new(),
    }
}

/// See the header.
fn stuck(needs: &[Need]) -> Vec<bool> {
    let mut stuck: Vec<bool> = needs.iter().map(|need| *need != Need::Free).collect();
    let mut needed_by = vec![Vec::new(); needs.len()];
    // For each fiber that needs all of several: how many of these are stuck.
    let mut left: Vec<usize> = needs.iter().map(|need| need.of().len()).collect();
    for (fiber, need) in needs.iter().enumerate() {
        need.of().iter().for_each(|other| needed_by[*other].push(fiber));
    }
    let mut free: Vec<usize> = (0..needs.len()).filter(|fiber| !stuck[*fiber]).collect();
    while let Some(fiber) = free.pop() {
        for &other in &needed_by[fiber] {
            left[other] -= 1;
            let goes_on = !matches!(needs[other], Need::All(_)) || left[other] == 0;
            if goes_on && std::mem::replace(&mut stuck[other], false) {
                free.push(other);
            }
        }
    }
    stuck
}

#[cfg(test)]
mod tests {
    use super::Need::{All, Any, Free, One};
    use super::*;

    fn circles(needs: Vec<Need>) -> Vec<Vec<usize>> {
        graph(needs).circles()
    }

    fn graph(needs: Vec<Need>) -> Graph {
        Graph { stuck: stuck(&needs), awaits_end: vec![false; needs.len()], needs }
    }

    #[test]
    fn a_circle_is_stuck_and_so_is_who_waits_for_it() {
        let needs = vec![One(1), One(2), One(0), One(0), Free, One(4)];
        assert_eq!(stuck(&needs), [true, true, true, true, false, false]);
        let graph = graph(needs);
        let circles = graph.circles();
        assert_eq!((circles.len(), graph.behind(&circles)), (1, 1));
        assert_eq!(circles[0], [0, 1, 2]);
    }

    #[test]
    fn one_who_can_act_sets_all_free_who_need_any() {
        assert!(circles(vec![Any(vec![1, 2]), One(0), Free]).is_empty());
        assert_eq!(circles(vec![Any(vec![1, 2]), One(0), One(0)]), [[0, 1]]);
    }

    #[test]
    fn one_who_cannot_act_holds_up_all_who_need_all() {
        assert_eq!(circles(vec![All(vec![1, 2]), One(0), Free]), [[0, 1]]);
        assert!(circles(vec![All(vec![1, 2]), Free, Free]).is_empty());
        assert!(circles(vec![All(vec![1, 2]), One(2), Free]).is_empty());
    }

    #[test]
    fn two_circles_are_two_deadlocks() {
        assert_eq!(circles(vec![One(1), One(0), One(3), One(2)]), [[0, 1], [2, 3]]);
        assert_eq!(circles(vec![One(0)]), [[0]]);
    }
}
