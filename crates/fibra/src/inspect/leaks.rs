//! Leaks: fibers that the end of a run or of a runtime found waiting for something that could never have happened.
//!
//! A fiber that ends with its run is no leak by itself: daemons are for that, and so are fibers that were spawned on a [`Runtime`], which
//! ends them. (Other fibers hold the run up. They are reported while it waits for them, and fail a `#[fibra::test]`.) A leak
//! is one that nothing could have woken even if the run had gone on for ever. There are two kinds of evidence:
//!
//! 1. *A circle over locks, joins and scopes*: certain by itself (`graph.rs`), whatever else goes on.
//! 2. *A channel without another end*: the fiber waits for a channel, and nothing but fibers that wait in this way has the other end. Which
//!    fiber has which end of a channel is not recorded. But all of these fibers are about to be ended, and drop what they have: if the
//!    channel has no handle of the other end any more when they have ended, all of these handles were theirs. Then none of them could have
//!    been the first to go on. This counts only if every fiber that is left waits in this way or for another fiber, and no timer, task,
//!    blocking call or the like is left: any other fiber might have had the end in a place that is not seen.
//!
//! What is not called a leak, since it may be wanted: a fiber that waits for time, the system or a future; an event, a semaphore or
//! a condition variable, whose other users are not known; a channel with an end outside (in a static, in the caller of the run,
//! in a thread); channels and sockets that outlive the run. If a thread outside drops the last other end in the moment between the look
//! and the end of the fibers, the report is wrong.
//!
//! Above: `runtime`, which looks before it cancels the fibers, and has the rest reported when they have ended. Below: `collect.rs`,
//! `deadlock.rs`.
//!
//! [`Runtime`]: crate::Runtime

use std::ops::ControlFlow;
use std::panic::Location;

use super::collect::collect;
use super::graph::inside;
use super::snapshot::{FiberInfo, FiberState, Object, Snapshot};
use super::{deadlock, total};
use crate::fiber::frame::{self, flag};
use crate::fiber::id::FiberId;
use crate::monitor::objects;
use crate::monitor::once_per_site::OncePerSite;
use crate::prim::atomic::Ordering;
use crate::prim::say;
use crate::sched::shared::{RootRef, RuntimeShared};
use crate::wait::reason::WaitReason;
use crate::waiter::word::WaiterState;

/// The places of spawns whose leak was reported.
static REPORTED: OncePerSite = OncePerSite::new();

/// Fibers that are leaks if the channels they wait for have no other end when all fibers of the runtime have ended.
#[derive(Debug, Default)]
#[must_use = "it is to be reported when the fibers have ended"]
pub(crate) struct Suspects {
    fibers: Vec<Suspect>,
    /// The channels, and whether it is a receiver that is missing (otherwise a sender).
    ends: Vec<(u64, bool)>,
}

#[derive(Debug)]
struct Suspect {
    line: String,
    site: Option<&'static Location<'static>>,
}

/// Looks at the fibers that are about to be ended: with their runtime, or with one run of it. In the latter case other fibers go on, and
/// only what is certain is reported.
pub(crate) fn look(shared: &RuntimeShared, run: Option<RootRef>) -> Suspects {
    let run = run.map(RootRef::as_ptr);
    if !shared.config.leaks || shared.is_closing() || !is_anything_left(shared, run) {
        return Suspects::default();
    }
    let (snapshot, found) = collect(Some(shared));
    let is_of_run = |fiber: &FiberId| {
        let at = snapshot.fibers.binary_search_by_key(fiber, |fiber| fiber.id);
        at.is_ok_and(|at| run.is_none_or(|run| found[at].root == run.addr()))
    };
    let mut certain = deadlock::of(&snapshot, &found);
    certain.retain(|deadlock| deadlock.is_certain() && deadlock.fibers().iter().any(is_of_run));
    for deadlock in &certain {
        let sites = deadlock.fibers().iter().filter_map(|fiber| snapshot.fiber(*fiber)?.spawned_at);
        // (Not `any`: all are noted.)
        if sites.filter(|site| REPORTED.is_first(site)).count() > 0 {
            tell(shared, deadlock.fibers().len(), &deadlock.to_string());
        }
    }
    if certain.is_empty() && run.is_none() { suspects(shared, &snapshot) } else { Suspects::default() }
}

/// All fibers of the runtime have ended: reports those that were leaks.
pub(crate) fn report(shared: &RuntimeShared, suspects: Suspects) {
    if suspects.fibers.is_empty() {
        return;
    }
    let channels = objects::channels(objects::Asked::All);
    let is_gone = |(id, receives): &(u64, bool)| {
        let channel = channels.iter().find(|channel| channel.id == *id);
        channel.is_none_or(|channel| if *receives { channel.receivers == 0 } else { channel.senders == 0 })
    };
    if !suspects.ends.iter().all(is_gone) {
        return;
    }
    let new = |suspect: &&Suspect| suspect.site.is_none_or(|site| REPORTED.is_first(site));
    let lines: Vec<_> = suspects.fibers.iter().filter(new).map(|suspect| format!("  {}", suspect.line)).collect();
    if !lines.is_empty() {
        tell(shared, lines.len(), &lines.join("\n"));
    }
}

fn tell(shared: &RuntimeShared, count: usize, lines: &str) {
    let (fibers, it, them) =
        if count == 1 { ("a fiber", "it", "it") } else { (&*format!("{count} fibers"), "they", "one of them") };
    let verb = if count == 1 { "was" } else { "were" };
    say(format_args!(
        "fibra: leak: {fibers} of \"{}\" {verb} still waiting at its end, and nothing was left that could ever have \
         woken {them}, so that {it} had to be cancelled. (FIBRA_LEAKS=0 turns this report off.)\n{lines}",
        shared.config.name,
    ));
}

/// Is there a fiber but that of the run? Or a daemon, if only this run ends?
fn is_anything_left(shared: &RuntimeShared, run: Option<*const ()>) -> bool {
    let runtime = std::ptr::from_ref(shared).cast::<()>();
    frame::census_until(|frame| {
        // Relaxed: compared only.
        let is_ours = std::ptr::eq(frame.runtime.load(Ordering::Relaxed), runtime);
        let state = frame.waiter.word.snapshot().state();
        let is_there = !matches!(state, WaiterState::Init | WaiterState::Done | WaiterState::Cancelled);
        let ends = match run {
            Some(run) => frame.has(flag::DAEMON) && std::ptr::eq(frame.root.get(), run),
            None => !frame.has(flag::ROOT),
        };
        if is_ours && is_there && ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// The second kind of evidence.
fn suspects(shared: &RuntimeShared, snapshot: &Snapshot) -> Suspects {
    let mut suspects = Suspects::default();
    if total::is_awaiting(shared) || snapshot.scopes.iter().any(|scope| scope.deadline_in.is_some()) {
        return suspects;
    }
    let is_run = |fiber: &FiberInfo| fiber.is_root && fiber.state == FiberState::Running;
    for fiber in snapshot.fibers.iter().filter(|fiber| !is_run(fiber)) {
        let Some(wait) = inside(fiber) else { return Suspects::default() };
        match &wait.object {
            Object::Channel(id) => match wait.reason {
                WaitReason::ChannelRecv => suspects.ends.push((*id, false)),
                WaitReason::ChannelSend | WaitReason::ChannelReserve => suspects.ends.push((*id, true)),
                _ => return Suspects::default(),
            },
            Object::Select(arms, false) if !arms.is_empty() => {
                suspects.ends.extend(arms.iter().map(|arm| (arm.channel, arm.sends)));
            }
            // It goes on when another fiber of the list does.
            Object::Fiber(other) if snapshot.fiber(*other).is_some() => {}
            Object::Scope(_) => {}
            _ => return Suspects::default(),
        }
        suspects.fibers.push(Suspect { line: snapshot.fiber_line(fiber), site: fiber.spawned_at });
    }
    suspects
}
