//! Describes a deadlock in words: what each fiber waits for, where, and which fiber would have to act.
//!
//! Above: `mod.rs` and `total.rs`. Below: `graph.rs`, which finds the circles, and `text.rs`.

use std::fmt::{self, Write as _};

use super::collect::{Found, collect};
use super::graph::{Graph, Need};
use super::snapshot::{LockHolder, Object, Snapshot};
use super::text::counted;
use crate::fiber::id::FiberId;
use crate::wait::reason::WaitReason;

/// How many holders of an end are named.
const NAMED: usize = 4;

/// Fibers that wait for each other, in a circle. `Display` tells it in words, with names and lines.
#[derive(Debug, Clone)]
pub struct Deadlock {
    certain: bool,
    fibers: Vec<FiberId>,
    text: String,
}

impl Deadlock {
    /// Is it certain, because every fiber of the circle waits for one that is known to hold what it waits for: the owner of a lock, a fiber
    /// that is joined, the children of a scope? Otherwise it is probable: some of them wait for a channel, an event or the like,
    /// and the fibers that seem to have the other end, as far as the stacks of the fibers show, are stuck too.
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// The fibers of the circle, each waiting for the next, and the last for the first.
    pub fn fibers(&self) -> &[FiberId] {
        &self.fibers
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// See [`deadlocks`](super::deadlocks).
#[inline(never)]
pub(super) fn deadlocks(asked_at: usize) -> Vec<Deadlock> {
    let (mut snapshot, found) = collect(None);
    snapshot.asked_at = asked_at;
    of(&snapshot, &found)
}

/// The deadlocks among the fibers of a snapshot that have not moved since it was taken.
pub(super) fn of(snapshot: &Snapshot, found: &[Found]) -> Vec<Deadlock> {
    let graph = Graph::new(snapshot, found);
    let circles = graph.circles();
    let behind = graph.behind(&circles);
    let last = circles.len().saturating_sub(1);
    let stand_still = |circle: &&Vec<usize>| circle.iter().all(|fiber| found[*fiber].watch.is_parked());
    circles
        .iter()
        .filter(stand_still)
        .enumerate()
        .map(|(number, circle)| {
            let certain = circle.iter().all(|fiber| graph.needs[*fiber].is_certain());
            let mut text = format!(
                "{} deadlock: {} for each other\n",
                if certain { "CERTAIN" } else { "PROBABLE" },
                if circle.len() == 1 { "a fiber waits".to_owned() } else { format!("{} fibers wait", circle.len()) },
            );
            for fiber in circle {
                let _ = writeln!(text, "  {}", step(snapshot, &graph, *fiber));
            }
            if number == last && behind > 0 {
                let waits = if behind == 1 { "waits" } else { "wait" };
                let _ = writeln!(text, "  {} {waits} behind them", counted(behind, "more fiber"));
            }
            text.truncate(text.trim_end().len());
            Deadlock { certain, fibers: circle.iter().map(|fiber| snapshot.fibers[*fiber].id).collect(), text }
        })
        .collect()
}

/// One fiber of a circle: what it waits for, and which fiber has to act.
fn step(snapshot: &Snapshot, graph: &Graph, fiber: usize) -> String {
    let info = &snapshot.fibers[fiber];
    let next = snapshot.fiber_words(snapshot.fibers[graph.next(fiber)].id);
    let mut text = snapshot.fiber_words(info.id);
    let Some(wait) = &info.wait else { return text };
    let _ = write!(text, ": {} at {}; ", snapshot.wait_words(wait), wait.at);
    let _ = match (&graph.needs[fiber], &wait.object) {
        (Need::One(_), Object::Fiber(_)) => write!(text, "that one has not ended"),
        (Need::One(_), _) => write!(text, "{next} holds it"),
        (Need::All(all), _) => {
            let ended = if all.len() == 1 {
                "has not ended".to_owned()
            } else {
                format!("and {} others have not ended", all.len() - 1)
            };
            write!(text, "{next} {ended}")
        }
        (Need::Any(_), object) => {
            let any = graph.in_order(fiber);
            let mut names: Vec<_> = any.iter().map(|one| snapshot.fiber_words(snapshot.fibers[*one].id)).collect();
            if names.len() > NAMED {
                let more = names.len() - NAMED;
                names.truncate(NAMED);
                names.push(format!("{more} more"));
            }
            write!(text, "{} seems to be with {}", end_of(snapshot, wait.reason, object), names.join(" or "))
        }
        (Need::Free, _) => write!(text, "it may go on by itself"),
    };
    if let Some(site) = info.spawned_at {
        let _ = write!(text, " (spawned at {site})");
    }
    text
}

/// The end of an object that another fiber would have to use.
fn end_of(snapshot: &Snapshot, reason: WaitReason, object: &Object) -> String {
    match object {
        Object::Channel(id) => {
            let channel = snapshot.channel(*id);
            let (count, end) = match reason {
                WaitReason::ChannelRecv => (channel.map(|channel| channel.senders), "sender"),
                _ => (channel.map(|channel| channel.receivers), "receiver"),
            };
            format!("its {}", count.map_or_else(|| end.to_owned(), |count| counted(count, end)))
        }
        Object::Select(..) => "the other side of these".to_owned(),
        Object::Lock(lock) => {
            let holder = snapshot.locks.iter().find(|known| known.address == *lock).map(|known| known.holder);
            let readers = if let Some(LockHolder::Readers(readers)) = holder { readers } else { 1 };
            format!("its {}", counted(readers, "reader"))
        }
        Object::Semaphore(_) => "what others hold of it".to_owned(),
        _ => "a reference to it".to_owned(),
    }
}
