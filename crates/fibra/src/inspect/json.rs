//! A snapshot as JSON, for tools. Strings are quoted by `monitor::stats`, the one writer of JSON. Below: `snapshot.rs`.

use std::fmt::{Display, Write as _};
use std::panic::Location;
use std::time::Duration;

use super::snapshot::{FiberInfo, LockHolder, LockKind, Object, Snapshot, WaitInfo};
use crate::fiber::id::FiberId;
use crate::monitor::stats::quoted;

/// An object that is being written: `{"a":1,..}`.
pub(crate) struct Fields {
    text: String,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self { text: String::from("{") }
    }

    /// A number, `true`, `null`, or what is JSON already.
    pub(crate) fn raw(mut self, name: &str, value: impl Display) -> Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(self.text, "\"{name}\":{value}");
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.raw(name, quoted(value))
    }

    /// Left out if there is none.
    pub(crate) fn text_if(self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        match value {
            Some(value) => self.text(name, value.as_ref()),
            None => self,
        }
    }

    fn raw_if(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self,
        }
    }

    /// Left out if it is not so.
    fn flag(self, name: &str, value: bool) -> Self {
        if value { self.raw(name, true) } else { self }
    }

    fn site(self, name: &str, site: Option<&Location<'_>>) -> Self {
        self.text_if(name, site.map(ToString::to_string))
    }

    fn span(self, name: &str, span: Duration) -> Self {
        self.raw(name, span.as_nanos())
    }

    fn fibers(self, name: &str, fibers: &[FiberId]) -> Self {
        self.raw(name, list(fibers.iter().map(|id| id.as_u64().to_string())))
    }

    pub(crate) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    let mut text = String::from("[");
    for (place, item) in items.enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    text
}

impl Snapshot {
    /// All of it as one line of JSON: an object with the lists `fibers`, `workers`, `channels`, `locks`, `semaphores`, `scopes`,
    /// `sockets` and `stacks`, and the numbers `timers` and `took_ns`. What is not known or does not apply is left out. Times are in
    /// nanoseconds.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (_tx, _rx) = fibra::channel::builder::<u8>().bounded(4).name("say \"hi\"").build();
    ///     let json = fibra::inspect::snapshot().to_json();
    ///     assert!(json.contains(r#""name":"say \"hi\"""#));
    /// });
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        Fields::new()
            .raw("fibers", list(self.fibers.iter().map(fiber)))
            .raw(
                "workers",
                list(self.workers.iter().map(|worker| {
                    Fields::new()
                        .text("runtime", &worker.runtime)
                        .raw("thread", worker.thread)
                        .raw_if("running", worker.running.map(FiberId::as_u64))
                        .raw("metrics", worker.metrics.to_json())
                        .end()
                })),
            )
            .raw(
                "channels",
                list(self.channels.iter().map(|channel| {
                    Fields::new()
                        .raw("id", channel.id)
                        .text_if("name", channel.name.as_deref())
                        .site("made_at", Some(channel.made_at))
                        .raw("len", channel.len)
                        .raw_if("capacity", channel.capacity)
                        .raw("senders", channel.senders)
                        .raw("receivers", channel.receivers)
                        .raw("waiting_senders", channel.waiting_senders)
                        .raw("waiting_receivers", channel.waiting_receivers)
                        .flag("closed", channel.closed)
                        .end()
                })),
            )
            .raw(
                "locks",
                list(self.locks.iter().map(|lock| {
                    let kind = match lock.kind {
                        LockKind::Mutex => "mutex",
                        LockKind::Reentrant => "reentrant",
                        LockKind::RwLock => "rwlock",
                    };
                    let fields = Fields::new().raw("address", lock.address).text("kind", kind);
                    let fields = match lock.holder {
                        LockHolder::Nobody => fields.text("holder", "nobody"),
                        LockHolder::Fiber(fiber) => fields.text("holder", "fiber").raw("fiber", fiber.as_u64()),
                        LockHolder::Thread => fields.text("holder", "thread"),
                        LockHolder::Readers(readers) => fields.text("holder", "readers").raw("readers", readers),
                        LockHolder::Unknown => fields.text("holder", "unknown"),
                    };
                    fields.fibers("waiting", &lock.waiting).end()
                })),
            )
            .raw(
                "semaphores",
                list(self.semaphores.iter().map(|semaphore| {
                    Fields::new()
                        .raw("address", semaphore.address)
                        .raw_if("available", semaphore.available)
                        .raw_if("total", semaphore.total)
                        .fibers("waiting", &semaphore.waiting)
                        .end()
                })),
            )
            .raw(
                "scopes",
                list(self.scopes.iter().map(|scope| {
                    Fields::new()
                        .raw("id", scope.id)
                        .text_if("name", scope.name.as_deref())
                        .site("opened_at", scope.opened_at)
                        .raw_if("owner", scope.owner.map(FiberId::as_u64))
                        .raw_if("parent", scope.parent)
                        .raw("children", scope.children)
                        .raw_if("deadline_in_ns", scope.deadline_in.map(|left| left.as_nanos()))
                        .flag("ending", scope.is_ending)
                        .flag("cancelled", scope.is_cancelled)
                        .flag("draining", scope.is_draining)
                        .end()
                })),
            )
            .raw(
                "sockets",
                list(self.sockets.iter().map(|socket| {
                    let waiting: Vec<_> = socket.waiting.iter().map(|(fiber, _)| *fiber).collect();
                    Fields::new().raw("descriptor", socket.descriptor).fibers("waiting", &waiting).end()
                })),
            )
            .raw(
                "stacks",
                list(self.stacks.iter().map(|stack| {
                    Fields::new()
                        .site("spawned_at", Some(stack.spawned_at))
                        .raw("fibers", stack.fibers)
                        .raw("deepest", stack.deepest)
                        .raw("size", stack.size)
                        .end()
                })),
            )
            .raw("timers", self.timers)
            .span("took_ns", self.took)
            .end()
    }
}

fn fiber(fiber: &FiberInfo) -> String {
    Fields::new()
        .raw("id", fiber.id.as_u64())
        .text_if("name", fiber.name.as_deref())
        .text_if("status", Some(&fiber.status).filter(|status| !status.is_empty()))
        .text("state", fiber.state.name())
        .raw_if("wait", fiber.wait.as_ref().map(wait))
        .raw_if("worker", fiber.worker)
        .raw_if("scope", fiber.scope)
        .site("spawned_at", fiber.spawned_at)
        .flag("task", fiber.is_task)
        .flag("daemon", fiber.is_daemon)
        .flag("root", fiber.is_root)
        .end()
}

fn wait(wait: &WaitInfo) -> String {
    let fields = Fields::new()
        .text("reason", &format!("{:?}", wait.reason))
        .text("words", &wait.reason.to_string())
        .site("at", Some(wait.at))
        .span("for_ns", wait.since)
        .flag("deadline", wait.has_deadline);
    match &wait.object {
        Object::None => fields,
        Object::Fiber(id) => fields.raw("fiber", id.as_u64()),
        Object::Channel(id) => fields.raw("channel", id),
        Object::Select(arms, others) => {
            let arm = |arm: &super::snapshot::SelectArm| {
                Fields::new().raw("channel", arm.channel).flag("sends", arm.sends).end()
            };
            fields.raw("arms", list(arms.iter().map(arm))).flag("other_arms", *others)
        }
        Object::Lock(address) => fields.raw("lock", address),
        Object::Semaphore(address) => fields.raw("semaphore", address),
        Object::Scope(id) => fields.raw("scope", id),
        Object::Socket(descriptor) => fields.raw("descriptor", descriptor),
        Object::At(address) => fields.raw("address", address),
    }
    .end()
}
