//! Prints a snapshot for people: a line for each fiber, worker, channel, lock and scope. Many fibers that do the same share one line.
//!
//! Above: `Display` of `Snapshot`, `deadlock.rs`. Below: `snapshot.rs`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::panic::Location;

use super::snapshot::{
    ChannelInfo, FiberInfo, FiberState, LockHolder, LockInfo, LockKind, Object, ScopeInfo, Snapshot, StackInfo,
    WaitInfo,
};
use crate::fiber::id::FiberId;

/// Up to so many fibers each have a line of their own.
const EACH: usize = 60;
/// Of a group of fibers that do the same, so many are shown.
const EXAMPLES: usize = 2;
/// Lines of groups, channels, locks and scopes, at most.
const MOST: usize = 60;

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parked = self.fibers.iter().filter(|fiber| fiber.state == FiberState::Parked).count();
        writeln!(
            f,
            "{}, of which {parked} wait ({} with a deadline); {}, {}, {}",
            counted(self.fibers.len(), "fiber"),
            self.timers,
            counted(self.workers.len(), "worker"),
            counted(self.channels.len(), "channel"),
            counted(self.scopes.len(), "open scope"),
        )?;
        for worker in &self.workers {
            let metrics = &worker.metrics;
            write!(f, "  worker {} of \"{}\": {}", metrics.index, worker.runtime, metrics.state)?;
            if let Some(running) = worker.running {
                write!(f, ", runs {}", self.fiber_words(running))?;
            }
            writeln!(f, "; {} started fibers, {} parked, {} queued", metrics.started, metrics.parked, metrics.queued)?;
        }
        if self.fibers.len() <= EACH {
            for fiber in &self.fibers {
                writeln!(f, "  {}", self.fiber_line(fiber))?;
            }
        } else {
            self.groups(f)?;
        }
        few(f, &self.channels, |channel| format!("{}", ChannelWords(channel)))?;
        few(f, &self.locks, |lock| self.lock_line(lock))?;
        few(f, &self.semaphores, |semaphore| {
            let known = match (semaphore.available, semaphore.total) {
                (Some(left), Some(total)) => format!("{left} of {total} permits left; "),
                _ => String::new(),
            };
            let waiting = self.names(&semaphore.waiting);
            format!("semaphore at {:#x}: {known}waiting: {waiting}", semaphore.address)
        })?;
        few(f, &self.sockets, |socket| {
            let waiting: Vec<_> = socket.waiting.iter().map(|(fiber, _)| *fiber).collect();
            format!("descriptor {}: waiting: {}", socket.descriptor, self.names(&waiting))
        })?;
        few(f, &self.stacks, |stack| stack.to_string())?;
        self.tree(f)
    }
}

impl fmt::Display for StackInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StackInfo { spawned_at, fibers, deepest, size } = self;
        let (deepest, size) = (deepest.div_ceil(1024), size / 1024);
        let fibers = counted(*fibers as usize, "fiber");
        write!(f, "stack: {deepest} KiB of {size} KiB at most, {fibers} spawned at {spawned_at}")
    }
}

/// A line each, and how many more there are.
fn few<T>(f: &mut fmt::Formatter<'_>, all: &[T], line: impl Fn(&T) -> String) -> fmt::Result {
    all.iter().take(MOST).try_for_each(|one| writeln!(f, "  {}", line(one)))?;
    if all.len() > MOST { writeln!(f, "  and {} more of these", all.len() - MOST) } else { Ok(()) }
}

pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl Snapshot {
    /// A fiber by number and name.
    pub(super) fn fiber_words(&self, id: FiberId) -> String {
        match self.fiber(id).and_then(|fiber| fiber.name.as_deref()) {
            Some(name) => format!("fiber {id} \"{name}\""),
            None => format!("fiber {id}"),
        }
    }

    fn names(&self, fibers: &[FiberId]) -> String {
        let mut names: Vec<_> = fibers.iter().take(EXAMPLES * 2).map(|id| self.fiber_words(*id)).collect();
        if fibers.len() > names.len() {
            names.push(format!("{} more", fibers.len() - names.len()));
        }
        names.join(", ")
    }

    /// Everything that the snapshot knows about a fiber.
    pub(super) fn fiber_line(&self, fiber: &FiberInfo) -> String {
        let mut text = format!("{}: {}", self.fiber_words(fiber.id), self.doing(fiber));
        if let Some(wait) = &fiber.wait {
            let _ = write!(text, " for {:.1?}", wait.since);
        }
        if !fiber.status.is_empty() {
            let _ = write!(text, " [{}]", fiber.status);
        }
        let path = self.scope_path(fiber);
        if !path.is_empty() {
            let path: Vec<_> = path.into_iter().map(|scope| ScopeWords(scope).to_string()).collect();
            let _ = write!(text, ", in {}", path.join(" > "));
        }
        if let Some(site) = fiber.spawned_at {
            let _ = write!(text, ", spawned at {site}");
        }
        if fiber.is_daemon {
            text.push_str(", a daemon");
        }
        text
    }

    /// What the fiber does or waits for, and where.
    fn doing(&self, fiber: &FiberInfo) -> String {
        match &fiber.wait {
            Some(wait) => format!("{} at {}", self.wait_words(wait), wait.at),
            None if fiber.is_task && fiber.state == FiberState::Parked => "a future that is not ready".to_owned(),
            None => fiber.state.name().to_owned(),
        }
    }

    /// Why the fiber waits, and for what.
    pub(super) fn wait_words(&self, wait: &WaitInfo) -> String {
        let reason = wait.reason;
        match &wait.object {
            Object::None => format!("{reason}"),
            Object::Fiber(fiber) => format!("{reason}, {}", self.fiber_words(*fiber)),
            Object::Channel(id) => match self.channel(*id) {
                Some(channel) => format!("{reason}, {}", ChannelWords(channel).short()),
                None => format!("{reason} (#{id})"),
            },
            Object::Select(arms, others) => {
                let mut words: Vec<_> = arms
                    .iter()
                    .map(|arm| {
                        let verb = if arm.sends { "send to" } else { "receive from" };
                        match self.channel(arm.channel) {
                            Some(channel) => format!("{verb} {}", ChannelWords(channel).short()),
                            None => format!("{verb} channel #{}", arm.channel),
                        }
                    })
                    .collect();
                if *others {
                    words.push("others".to_owned());
                }
                format!("{reason} ({})", words.join("; "))
            }
            Object::Scope(id) => match self.scope(*id) {
                Some(scope) => format!("{reason}, {}", ScopeWords(scope)),
                None => format!("{reason}"),
            },
            Object::Socket(descriptor) => format!("{reason} (descriptor {descriptor})"),
            Object::Lock(at) | Object::Semaphore(at) | Object::At(at) => format!("{reason} ({at:#x})"),
        }
    }

    pub(super) fn lock_line(&self, lock: &LockInfo) -> String {
        let kind = match lock.kind {
            LockKind::Mutex => "mutex",
            LockKind::Reentrant => "reentrant mutex",
            LockKind::RwLock => "read-write lock",
        };
        let holder = match lock.holder {
            LockHolder::Nobody => "free".to_owned(),
            LockHolder::Fiber(fiber) => format!("held by {}", self.fiber_words(fiber)),
            LockHolder::Thread => "held by a thread".to_owned(),
            LockHolder::Readers(readers) => format!("held by {}", counted(readers, "reader")),
            LockHolder::Unknown => "it is not known who holds it".to_owned(),
        };
        format!("{kind} at {:#x}: {holder}; waiting: {}", lock.address, self.names(&lock.waiting))
    }

    /// Fibers by where they were spawned and what they do.
    fn groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: Option<&Location<'_>>| at.map(|at| (at.file().to_owned(), at.line(), at.column()));
        let mut groups: BTreeMap<_, Vec<&FiberInfo>> = BTreeMap::new();
        for fiber in &self.fibers {
            let wait = fiber.wait.as_ref();
            let key = (
                place(fiber.spawned_at),
                fiber.state.name(),
                wait.map(|wait| wait.reason as u8),
                place(wait.map(|w| w.at)),
            );
            groups.entry(key).or_default().push(fiber);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        for group in groups.iter().take(MOST) {
            let first = group[0];
            let doing = match &first.wait {
                Some(wait) => format!("{} at {}", wait.reason, wait.at),
                None => self.doing(first),
            };
            let site = first.spawned_at.map_or_else(String::new, |site| format!(", spawned at {site}"));
            writeln!(f, "  {}: {doing}{site}", counted(group.len(), "fiber"))?;
            for fiber in group.iter().take(EXAMPLES).filter(|_| group.len() > 1) {
                writeln!(f, "    {}", self.fiber_line(fiber))?;
            }
        }
        let rest: usize = groups.iter().skip(MOST).map(Vec::len).sum();
        if rest > 0 { writeln!(f, "  and {} in smaller groups", counted(rest, "fiber")) } else { Ok(()) }
    }

    /// The scopes, each below the one around it.
    fn tree(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_outermost = |scope: &&ScopeInfo| scope.parent.is_none_or(|parent| self.scope(parent).is_none());
        let mut open: Vec<(&ScopeInfo, usize)> =
            self.scopes.iter().filter(is_outermost).map(|scope| (scope, 0)).collect();
        open.reverse();
        let mut lines = 0;
        while let Some((scope, depth)) = open.pop() {
            if lines == MOST {
                return writeln!(f, "  and more scopes");
            }
            lines += 1;
            let owner = scope.owner.map_or_else(|| "a thread".to_owned(), |owner| self.fiber_words(owner));
            let mut text = format!(
                "{} of {owner}: {}",
                ScopeWords(scope),
                counted(scope.children, "child").replace("childs", "children")
            );
            if scope.is_ending {
                text.push_str(", waits for them");
            }
            if let Some(left) = scope.deadline_in {
                let _ = write!(text, ", deadline in {left:.1?}");
            }
            if scope.is_cancelled {
                text.push_str(", cancelled");
            } else if scope.is_draining {
                text.push_str(", asked to end");
            }
            writeln!(f, "  {:indent$}{text}", "", indent = depth * 2)?;
            open.extend(
                self.scopes.iter().filter(|inner| inner.parent == Some(scope.id)).map(|inner| (inner, depth + 1)),
            );
        }
        Ok(())
    }
}

/// A channel in words.
pub(super) struct ChannelWords<'a>(pub(super) &'a ChannelInfo);

impl ChannelWords<'_> {
    /// Its name, or where it was made.
    pub(super) fn short(&self) -> String {
        let ChannelInfo { id, name, made_at, .. } = self.0;
        match name {
            Some(name) => format!("channel \"{name}\" (#{id})"),
            None => format!("channel #{id} made at {made_at}"),
        }
    }
}

impl fmt::Display for ChannelWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = self.0;
        write!(f, "{}: ", self.short())?;
        match channel.capacity {
            Some(0) => f.write_str("rendezvous")?,
            Some(capacity) => write!(f, "{} of {capacity} values", channel.len)?,
            None => write!(f, "{} values, no bound", channel.len)?,
        }
        write!(f, "; {}", counted(channel.senders, "sender"))?;
        if channel.waiting_senders > 0 {
            write!(f, " ({} waiting)", channel.waiting_senders)?;
        }
        write!(f, ", {}", counted(channel.receivers, "receiver"))?;
        if channel.waiting_receivers > 0 {
            write!(f, " ({} waiting)", channel.waiting_receivers)?;
        }
        f.write_str(if channel.closed { "; closed" } else { "" })
    }
}

/// A scope by its name, or by where it was opened.
pub(super) struct ScopeWords<'a>(pub(super) &'a ScopeInfo);

impl fmt::Display for ScopeWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.name, self.0.opened_at) {
            (Some(name), _) => write!(f, "scope \"{name}\""),
            (None, Some(site)) => write!(f, "scope opened at {site}"),
            (None, None) => write!(f, "scope {:#x}", self.0.id),
        }
    }
}
