//! A child as its supervisor sees it, without its type: started and waited for, stopped and waited for, given up.
//!
//! Above: `running`. Below: `cell`. The child tells its [`ChildKeeper`] when a life has begun and when it has ended; the keeper sets the
//! events that the supervisor waits on, and sends it a message, with the number of the life: one that the supervisor has ended itself, and
//! waited for, is no news.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::Actor;
use super::super::addr::{Addr, WeakAddr};
use super::super::call::Waiting;
use super::super::cell::Factory;
use super::super::core::{AnyCell, CallEdge, Keeper, current_actor};
use super::super::error::StopReason;
use super::ChildOptions;
use super::running::{SupervisorActor, SupervisorMessage};
use crate::channel::select;
use crate::prim::FirstPanic;
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::spin::SpinLock;
use crate::prim::sync::Mutex;
use crate::sync::Event;

/// After a kill, so long at least: a handler that never waits cannot be ended, and the supervisor goes on without it.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The children of a supervisor, over all its lives.
pub(in super::super) struct Children {
    list: Mutex<Vec<Arc<dyn Child>>>,
    count: AtomicU64,
    /// The supervisor, while it runs. It has the children, and so they do not keep it: see `SupervisorActor::stay`.
    supervisor: SpinLock<Option<WeakAddr<SupervisorActor>>>,
}

impl Children {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { list: Mutex::new(Vec::new()), count: AtomicU64::new(0), supervisor: SpinLock::new(None) })
    }

    pub(super) fn next_keeper(self: &Arc<Self>) -> Arc<ChildKeeper> {
        // Relaxed: a number.
        let index = self.count.fetch_add(1, Ordering::Relaxed) as usize;
        let keeper = ChildKeeper {
            children: Arc::downgrade(self),
            index,
            life: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
            up: Event::new(),
            down: Event::new(),
            last: SpinLock::new(None),
            awaited: SpinLock::new(None),
        };
        Arc::new(keeper)
    }

    pub(super) fn add(&self, child: Arc<dyn Child>) {
        let mut list = self.list.lock();
        let at = list.partition_point(|other| other.keeper().index < child.keeper().index);
        list.insert(at, child);
    }

    /// Forgets those that were given up: a supervisor that is started anew does not start them.
    pub(super) fn forget_removed(&self) {
        let gone: Vec<_> = self.list.lock().extract_if(.., |child| child.keeper().has_given_up()).collect();
        drop(gone);
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Child>> {
        self.list.lock().clone()
    }

    pub(super) fn set_supervisor(&self, supervisor: Option<WeakAddr<SupervisorActor>>) {
        let before = self.supervisor.with(|slot| std::mem::replace(slot, supervisor));
        drop(before);
    }

    /// Gives all of them up.
    pub(super) fn release(&self, reason: &StopReason) {
        for child in self.all() {
            child.give_up(reason.clone());
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.release(&StopReason::Shutdown);
        // One that has a life still (the runtime has ended) may have the addresses of others: it goes, or they would keep each other.
        for child in self.all() {
            child.shut_down();
        }
    }
}

/// See the header.
pub(in super::super) struct ChildKeeper {
    children: Weak<Children>,
    index: usize,
    life: AtomicU64,
    is_given_up: AtomicBool,
    up: Event,
    down: Event,
    last: SpinLock<Option<StopReason>>,
    /// The edge of the supervisor that waits for it to start: a call to that supervisor from here closes a circle.
    awaited: SpinLock<Option<Arc<CallEdge>>>,
}

impl ChildKeeper {
    /// By which its supervisor knows it: a number that grows with each child.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// The supervisor does not wait for this life to start any more.
    fn is_not_awaited(&self) {
        if let Some(edge) = self.awaited.with(Option::take) {
            edge.has_ended();
        }
    }

    fn has_given_up(&self) -> bool {
        // Acquire: pairs with the release in `give_up`.
        self.is_given_up.load(Ordering::Acquire)
    }
}

impl Keeper for ChildKeeper {
    fn ended(&self, reason: StopReason) -> bool {
        let before = self.last.with(|last| last.replace(reason));
        // (An error of the user: its destructor may panic, and the supervisor is told all the same.)
        FirstPanic::ignore(|| drop(before));
        // Relaxed: written by the supervisor before it started this life.
        let life = self.life.load(Ordering::Relaxed);
        self.is_not_awaited();
        self.down.set();
        let supervisor = self.children.upgrade().and_then(|children| children.supervisor.with(|slot| slot.clone()));
        if let Some(supervisor) = supervisor.and_then(|supervisor| supervisor.upgrade()) {
            let _ = supervisor.send_urgent(SupervisorMessage::down(self.index, life));
        }
        // One that was given up while it ran is released by itself.
        !self.has_given_up()
    }

    fn has_started(&self) {
        self.is_not_awaited();
        self.up.set();
    }
}

/// A child, whatever its type.
pub(in super::super) trait Child: Send + Sync {
    fn name(&self) -> &str;
    fn options(&self) -> &ChildOptions;
    fn keeper(&self) -> &ChildKeeper;
    /// Puts the next life into its place and launches it. False: it is not held.
    fn launch(&self) -> bool;
    fn cell(&self) -> Arc<dyn AnyCell>;
    fn shut_down(&self);
    fn kill(&self);
    fn release(&self, reason: StopReason);
    fn has_ended(&self) -> bool;
}

impl dyn Child {
    /// Launches a life and gives its number; the caller notes it, and then [waits](Self::wait_started), with the edge of that wait, which
    /// is there before the life is. None: it has ended for good.
    pub(super) fn start(&self) -> Option<(u64, Option<Waiting>)> {
        let keeper = self.keeper();
        // (An edge that closes a circle would be the fault of others: then there is none.)
        let waiting = current_actor().and_then(|supervisor| Waiting::begin(supervisor, self.cell()).ok());
        let _before = keeper.awaited.with(|edge| std::mem::replace(edge, waiting.as_ref().map(Waiting::edge)));
        keeper.up.reset();
        keeper.down.reset();
        // Relaxed: read by the life that is launched below.
        let life = keeper.life.fetch_add(1, Ordering::Relaxed) + 1;
        self.launch().then_some((life, waiting))
    }

    /// Waits until the life that was launched has started or ended. Cancellation unwinds.
    pub(super) fn wait_started(&self) -> Result<(), StopReason> {
        let keeper = self.keeper();
        select! {
            on(keeper.up.waiting()) => Ok(()),
            on(keeper.down.waiting()) => {
                // It may have started and ended again meanwhile: that is for the message of its end.
                if keeper.up.is_set() { Ok(()) } else { Err(self.last_reason()) }
            }
        }
    }

    /// Why its last life has ended.
    pub(super) fn last_reason(&self) -> StopReason {
        self.keeper().last.with(|last| last.clone()).unwrap_or(StopReason::Shutdown)
    }

    /// Ends the present life, and waits for it; kills it when its time is over.
    pub(super) fn stop(&self) {
        let keeper = self.keeper();
        if keeper.down.is_set() || self.has_ended() {
            return;
        }
        self.shut_down();
        if !keeper.down.wait_timeout(self.options().shutdown) {
            self.kill();
            keeper.down.wait_timeout(self.options().shutdown.max(AFTER_KILL));
        }
    }

    /// No further life.
    pub(super) fn give_up(&self, reason: StopReason) {
        // Release: pairs with the acquire in `ended`.
        self.keeper().is_given_up.store(true, Ordering::Release);
        self.release(reason);
    }
}

/// A child of one type.
pub(super) struct ChildOf<A: Actor> {
    name: String,
    options: ChildOptions,
    addr: Addr<A>,
    make: Factory<A>,
    keeper: Arc<ChildKeeper>,
    nested: Option<Arc<Children>>,
}

impl<A: Actor> ChildOf<A> {
    pub(super) fn new(
        name: String,
        options: ChildOptions,
        addr: Addr<A>,
        make: Factory<A>,
        keeper: Arc<ChildKeeper>,
        nested: Option<Arc<Children>>,
    ) -> Self {
        // Before its first life it is down.
        keeper.down.set();
        Self { name, options, addr, make, keeper, nested }
    }
}

impl<A: Actor> Child for ChildOf<A> {
    fn name(&self) -> &str {
        &self.name
    }
    fn options(&self) -> &ChildOptions {
        &self.options
    }
    fn keeper(&self) -> &ChildKeeper {
        &self.keeper
    }
    fn cell(&self) -> Arc<dyn AnyCell> {
        self.addr.cell.clone()
    }
    fn launch(&self) -> bool {
        self.addr.cell.start_life(self.make.clone())
    }
    fn shut_down(&self) {
        self.addr.cell.shut_down();
    }
    fn kill(&self) {
        self.addr.cell.kill(StopReason::Shutdown);
    }
    fn release(&self, reason: StopReason) {
        if let Some(nested) = &self.nested {
            nested.release(&reason);
        }
        self.addr.cell.release(reason);
    }
    fn has_ended(&self) -> bool {
        self.addr.cell.core.ended.is_set()
    }
}
