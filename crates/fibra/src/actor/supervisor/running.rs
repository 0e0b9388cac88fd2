//! [`SupervisorActor`]: a supervisor that runs, and what it does when a child ends. The tables of `mod.rs`, as code.
//!
//! Above: users, who have its address. Below: `child`. It starts and stops children one at a time, in its own handlers, which wait for
//! each; ends that happen meanwhile are told by urgent messages, which it handles afterwards.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::super::Actor;
use super::super::addr::Addr;
use super::super::call::Reply;
use super::super::context::Context;
use super::super::error::{Failure, StopReason};
use super::super::quiescence::uncounted;
use super::child::{Child, Children};
use super::{Restart, Settings, Strategy, SupervisorError};
use crate::prim::{FirstPanic, policy};
use crate::task::spawn_keeping_future;
use crate::time::Instant;

/// What a supervisor is sent.
pub struct SupervisorMessage(Command);

enum Command {
    Down {
        index: usize,
        life: u64,
    },
    /// The pause before a restart is over. (The numbers of the children.)
    Start(Vec<usize>),
    Children(Reply<Vec<(String, bool)>>),
    Do(Box<dyn FnOnce(&mut SupervisorActor) + Send>),
}

impl SupervisorMessage {
    /// Something to be done on its own turn.
    pub(super) fn act(f: impl FnOnce(&mut SupervisorActor) + Send + 'static) -> Self {
        Self(Command::Do(Box::new(f)))
    }

    pub(super) fn down(index: usize, life: u64) -> Self {
        Self(Command::Down { index, life })
    }

    /// Asks for the names of the children, and whether each is running: `sup.call(SupervisorMessage::children)`.
    pub fn children(reply: Reply<Vec<(String, bool)>>) -> Self {
        Self(Command::Children(reply))
    }
}

impl std::fmt::Debug for SupervisorMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SupervisorMessage")
    }
}

/// How a child stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// In this life.
    Up(u64),
    /// It will be started.
    Down,
    /// For good.
    Removed,
}

struct SupervisedChild {
    child: Arc<dyn Child>,
    status: Status,
    /// Failures that followed each other soon, and when it was last started: for the pause.
    failures: u32,
    since: Instant,
}

impl SupervisedChild {
    fn new(child: Arc<dyn Child>) -> Self {
        Self { child, status: Status::Down, failures: 0, since: Instant::now() }
    }
}

/// The address that keeps a supervisor. Dropped, it ends the supervisor, which has ended by then unless its runtime has: its children may
/// have its address, and would keep it for ever.
struct Stays(Addr<SupervisorActor>);

impl Drop for Stays {
    fn drop(&mut self) {
        self.0.cell.shut_down();
    }
}

/// A supervisor that runs; its address comes from [`Supervisor::spawn`](super::Supervisor::spawn).
pub struct SupervisorActor {
    settings: Settings,
    pub(super) children: Arc<Children>,
    entries: Vec<SupervisedChild>,
    restarts: VecDeque<Instant>,
    /// No other supervisor decides about it: when it ends, its children do for good.
    is_root: bool,
}

impl SupervisorActor {
    pub(super) fn new(settings: Settings, children: Arc<Children>, is_root: bool) -> Self {
        Self { settings, children, entries: Vec::new(), restarts: VecDeque::new(), is_root }
    }

    /// Keeps a supervisor alive that no address is left of, until it has ended or its runtime does: a task that holds an address. Its
    /// children do not, so that nothing keeps itself.
    fn stay(ctx: &Context<Self>) {
        let stays = Stays(ctx.address());
        let stays = async move { drop(stays.0.stopped_async().await) };
        uncounted(|| drop(spawn_keeping_future(ctx.home().shared(), stays, Location::caller())));
    }

    /// Where the child with this number is, if it was not removed.
    fn find(&self, number: usize) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.child.keeper().index()).ok()
    }

    /// Where the child of this name is.
    pub(super) fn find_named(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.status != Status::Removed && entry.child.name() == name)
    }

    /// Those that were removed while a message was handled go. (Not before: places of others would change meanwhile.)
    fn forget_removed(&mut self) {
        if self.entries.iter().any(|entry| entry.status == Status::Removed) {
            self.entries.retain(|entry| entry.status != Status::Removed);
            self.children.forget_removed();
        }
    }

    /// A child was added while it runs: it is the last one.
    pub(super) fn start_added(&mut self) -> Result<(), StopReason> {
        let Some(child) = self.children.all().pop() else { return Ok(()) };
        self.entries.push(SupervisedChild::new(child));
        let last = self.entries.len() - 1;
        self.start(last).inspect_err(|reason| self.remove(last, reason.clone()))
    }

    /// Stops a child for good.
    pub(super) fn stop_for_good(&mut self, index: usize) {
        self.stop(index);
        self.remove(index, StopReason::Shutdown);
    }

    /// Starts a child; says why if that failed.
    fn start(&mut self, index: usize) -> Result<(), StopReason> {
        let entry = &mut self.entries[index];
        entry.since = Instant::now();
        let Some((life, _waiting)) = entry.child.start() else {
            entry.status = Status::Down;
            return Err(StopReason::Shutdown);
        };
        // Before the wait: a supervisor that is killed in it has to stop this child as well.
        entry.status = Status::Up(life);
        let started = entry.child.wait_started();
        if started.is_err() {
            entry.status = Status::Down;
        }
        started
    }

    /// Ends a child's life and waits for it.
    fn stop(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if let Status::Up(_) = entry.status {
            entry.child.stop();
            entry.status = Status::Down;
        }
    }

    fn remove(&mut self, index: usize, reason: StopReason) {
        let entry = &mut self.entries[index];
        entry.status = Status::Removed;
        entry.child.give_up(reason);
    }

    /// A child has ended by itself, or could not be started.
    fn has_ended(&mut self, index: usize, reason: StopReason, ctx: &Context<Self>) -> Result<(), Failure> {
        let decided = self.decide(index, &reason, ctx);
        // (An error of the user, and perhaps the last copy: its destructor may panic.)
        FirstPanic::ignore(|| drop(reason));
        decided
    }

    fn decide(&mut self, index: usize, reason: &StopReason, ctx: &Context<Self>) -> Result<(), Failure> {
        self.entries[index].status = Status::Down;
        let options = self.entries[index].child.options();
        let restarts = match options.restart {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_normal(),
            Restart::Temporary => false,
        };
        if !restarts {
            let significant = options.significant;
            self.remove(index, reason.clone());
            if significant {
                ctx.shut_down();
            }
            return Ok(());
        }
        self.count_restart(index, reason)?;
        let concerned = self.make_room(index);
        let pause = self.pause(index);
        if pause.is_zero() {
            return self.start_all(&concerned, ctx);
        }
        let numbers = concerned.iter().map(|index| self.entries[*index].child.keeper().index()).collect();
        ctx.send_after(pause, SupervisorMessage(Command::Start(numbers)));
        Ok(())
    }

    /// One more restart: too many?
    fn count_restart(&mut self, index: usize, reason: &StopReason) -> Result<(), Failure> {
        let now = Instant::now();
        let Settings { max_restarts, within, .. } = self.settings;
        self.restarts.push_back(now);
        while self.restarts.front().is_some_and(|first| now.duration_since(*first) > within) {
            self.restarts.pop_front();
        }
        if self.restarts.len() <= max_restarts as usize {
            return Ok(());
        }
        let child = self.entries[index].child.name().to_owned();
        let reason = reason.to_string();
        Err(SupervisorError::TooManyRestarts { child, allowed: max_restarts, within, reason }.into())
    }

    /// Stops those whom the strategy concerns, last first; gives those that are to be started, first first.
    fn make_room(&mut self, index: usize) -> Vec<usize> {
        let concerned = match self.settings.strategy {
            Strategy::OneForOne => index..index + 1,
            Strategy::OneForAll => 0..self.entries.len(),
            Strategy::RestForOne => index..self.entries.len(),
        };
        for other in concerned.clone().rev().filter(|other| *other != index) {
            let was_there = self.entries[other].status != Status::Removed;
            self.stop(other);
            if was_there && self.entries[other].child.options().restart == Restart::Temporary {
                self.remove(other, StopReason::Shutdown);
            }
        }
        concerned.filter(|index| self.entries[*index].status == Status::Down).collect()
    }

    /// How long to wait before the next start of this child.
    fn pause(&mut self, index: usize) -> Duration {
        let (min, max) = self.settings.backoff;
        let entry = &mut self.entries[index];
        let lived = Instant::now().duration_since(entry.since);
        entry.failures = if lived > self.settings.within { 1 } else { entry.failures.saturating_add(1) };
        if min.is_zero() && max.is_zero() {
            return Duration::ZERO;
        }
        let doubled = min.saturating_mul(1 << entry.failures.saturating_sub(1).min(20)).min(max);
        // Between one half and the whole, so that many that failed together do not come back together.
        let half = doubled / 2;
        let nanos = usize::try_from(half.as_nanos()).unwrap_or(usize::MAX - 1);
        half + Duration::from_nanos(policy::chance().below(nanos + 1) as u64)
    }

    fn start_all(&mut self, concerned: &[usize], ctx: &Context<Self>) -> Result<(), Failure> {
        for index in concerned {
            if self.entries[*index].status != Status::Down {
                continue;
            }
            if let Err(reason) = self.start(*index) {
                // (It starts those behind it as well, if the strategy says so; those that are up by then are passed over.)
                self.has_ended(*index, reason, ctx)?;
            }
        }
        Ok(())
    }

    fn stop_all(&mut self) {
        for index in (0..self.entries.len()).rev() {
            self.stop(index);
        }
    }
}

impl Actor for SupervisorActor {
    type Message = SupervisorMessage;

    fn started(&mut self, ctx: &mut Context<Self>) -> Result<(), Failure> {
        self.children.set_supervisor(Some(ctx.address().downgrade()));
        if self.is_root {
            Self::stay(ctx);
        }
        self.entries = self.children.all().into_iter().map(SupervisedChild::new).collect();
        for index in 0..self.entries.len() {
            if let Err(reason) = self.start(index) {
                let child = self.entries[index].child.name().to_owned();
                return Err(SupervisorError::StartFailed { child, reason: reason.to_string() }.into());
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        SupervisorMessage(command): SupervisorMessage,
        ctx: &mut Context<Self>,
    ) -> Result<(), Failure> {
        let handled = match command {
            Command::Down { index, life } => match self.find(index) {
                // One that it has ended itself is no news.
                Some(index) if self.entries[index].status == Status::Up(life) => {
                    let reason = self.entries[index].child.last_reason();
                    self.has_ended(index, reason, ctx)
                }
                _ => Ok(()),
            },
            Command::Start(numbers) => {
                let concerned: Vec<_> = numbers.into_iter().filter_map(|number| self.find(number)).collect();
                self.start_all(&concerned, ctx)
            }
            Command::Children(reply) => {
                let up =
                    |entry: &SupervisedChild| (entry.child.name().to_owned(), matches!(entry.status, Status::Up(_)));
                reply.send(self.entries.iter().map(up).collect());
                Ok(())
            }
            Command::Do(act) => {
                act(self);
                Ok(())
            }
        };
        self.forget_removed();
        handled
    }

    fn stopping(&mut self, why: &StopReason) {
        self.stop_all();
        self.children.set_supervisor(None);
        if self.is_root {
            let reason = if why.is_normal() { StopReason::Shutdown } else { why.clone() };
            self.children.release(&reason);
        }
    }
}

impl std::fmt::Debug for SupervisorActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SupervisorActor").field("settings", &self.settings).finish_non_exhaustive()
    }
}
