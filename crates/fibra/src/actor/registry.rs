//! Actors found by name, in the whole process; and [`Group`], actors of a kind that are reached together.
//!
//! Above: users. Below: `addr`. A name keeps its actor alive until it is unregistered or the actor ends, which takes its names away.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Actor;
use super::addr::{Addr, WeakAddr};
use super::error::ActorId;
use crate::monitor::names::{self, Name, Names};
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::sync::Mutex;

struct NamedActor {
    id: ActorId,
    /// An `Addr<A>`.
    addr: Box<dyn Any + Send + Sync>,
}

fn entry(names: &Names, name: &str) -> Option<Arc<dyn Any + Send + Sync>> {
    names.get(&Name::Actor(name.to_owned())).cloned()
}

fn id_of(entry: &Arc<dyn Any + Send + Sync>) -> Option<ActorId> {
    entry.downcast_ref::<NamedActor>().map(|entry| entry.id)
}

/// The name is another actor's, or the actor has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// The name is taken by this actor, which is alive.
    Taken(ActorId),
    /// The actor to be registered has ended.
    Ended,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(id) => write!(f, "the name is taken by {id}: unregister it first"),
            Self::Ended => f.write_str("the actor has ended"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// Gives an actor a name by which the whole process finds it.
///
/// ```
/// use fibra::actor::{self, registry};
/// # use fibra::actor::{Actor, Context, Failure};
/// # struct Log;
/// # impl Actor for Log {
/// #     type Message = String;
/// #     fn handle(&mut self, _: String, _: &mut Context<Self>) -> Result<(), Failure> { Ok(()) }
/// # }
/// fibra::run(|| {
///     registry::register("doc.log", &actor::spawn(Log)).unwrap();
///     let log = registry::lookup::<Log>("doc.log").unwrap();
///     log.send("found".into()).unwrap();
///     registry::unregister("doc.log");
///     assert!(registry::lookup::<Log>("doc.log").is_none());
/// });
/// ```
///
/// # Errors
/// If the name is another living actor's, or the actor has ended.
pub fn register<A: Actor>(name: impl Into<String>, addr: &Addr<A>) -> Result<(), RegisterError> {
    let name = name.into();
    let mine = Arc::new(NamedActor { id: addr.id(), addr: Box::new(addr.clone()) });
    let taken = names::with(|names| match entry(names, &name).as_ref().and_then(id_of) {
        Some(other) => Some(other),
        None => {
            addr.cell.core.with_extra(|extra| extra.registered.push(name.clone()));
            names.insert(Name::Actor(name.clone()), mine);
            None
        }
    });
    match taken {
        Some(other) if other != addr.id() => return Err(RegisterError::Taken(other)),
        Some(_) => return Ok(()),
        None => {}
    }
    if addr.is_alive() {
        return Ok(());
    }
    // It ended meanwhile, and may have looked before.
    forget(&[name], addr.id());
    Err(RegisterError::Ended)
}

/// The actor of that name, if there is one and it is of this type.
pub fn lookup<A: Actor>(name: &str) -> Option<Addr<A>> {
    let found = names::with(|names| entry(names, name))?;
    found.downcast_ref::<NamedActor>()?.addr.downcast_ref::<Addr<A>>().cloned()
}

/// Takes a name away. True: there was one.
pub fn unregister(name: &str) -> bool {
    // (Dropped without the lock: it may be the last address.)
    names::with(|names| names.remove(&Name::Actor(name.to_owned()))).is_some()
}

/// The names that are given at the moment.
pub fn names() -> Vec<String> {
    let actor = |name: &Name| if let Name::Actor(name) = name { Some(name.clone()) } else { None };
    names::with(|names| names.keys().filter_map(actor).collect())
}

/// The actor ends: its names go.
pub(super) fn forget(gone: &[String], id: ActorId) {
    for name in gone {
        let mine = names::with(|names| {
            let is_mine = entry(names, name).as_ref().and_then(id_of) == Some(id);
            if is_mine { names.remove(&Name::Actor(name.clone())) } else { None }
        });
        drop(mine);
    }
}

/// Actors of one type that are reached together, or one after the other. A group does not keep its members alive; one that has ended is
/// no member any more.
///
/// ```
/// use fibra::actor::{self, Group};
/// # use fibra::actor::{Actor, Context, Failure};
/// # use fibra::channel::{Sender, unbounded};
/// # struct Worker(Sender<u32>);
/// # impl Actor for Worker {
/// #     type Message = u32;
/// #     fn handle(&mut self, n: u32, _: &mut Context<Self>) -> Result<(), Failure> { Ok(self.0.send(n)?) }
/// # }
/// fibra::run(|| {
///     let (tx, rx) = unbounded();
///     let workers: Vec<_> = (0..3).map(|_| actor::spawn(Worker(tx.clone()))).collect();
///     let group = Group::new();
///     workers.iter().for_each(|worker| group.join(worker));
///     assert_eq!(group.send_all(7), 3);
///     assert_eq!((0..3).map(|_| rx.recv().unwrap()).sum::<u32>(), 21);
///     group.next().unwrap().send(1).unwrap(); // one of them, in turn
/// });
/// ```
pub struct Group<A: Actor> {
    shared: Arc<GroupShared<A>>,
}

struct GroupShared<A: Actor> {
    members: Mutex<Vec<(ActorId, WeakAddr<A>)>>,
    turn: AtomicUsize,
}

impl<A: Actor> Group<A> {
    /// A group without members.
    pub fn new() -> Self {
        Self { shared: Arc::new(GroupShared { members: Mutex::new(Vec::new()), turn: AtomicUsize::new(0) }) }
    }

    /// Makes an actor a member. A second time changes nothing.
    pub fn join(&self, addr: &Addr<A>) {
        let mut members = self.shared.members.lock();
        if members.iter().all(|(id, _)| *id != addr.id()) {
            members.push((addr.id(), addr.downgrade()));
        }
    }

    /// Lets a member go. True: it was one.
    pub fn leave(&self, addr: &Addr<A>) -> bool {
        let mut members = self.shared.members.lock();
        let before = members.len();
        members.retain(|(id, _)| *id != addr.id());
        members.len() < before
    }

    /// The members that are alive.
    pub fn members(&self) -> Vec<Addr<A>> {
        let mut alive = Vec::new();
        let mut members = self.shared.members.lock();
        members.retain(|(_, weak)| match weak.upgrade() {
            Some(addr) if !addr.cell.core.ended.is_set() => {
                alive.push(addr);
                true
            }
            _ => false,
        });
        alive
    }

    /// How many members are alive.
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// Is no member alive?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next member in turn.
    #[allow(clippy::should_implement_trait)] // A group is no iterator: it has no end.
    pub fn next(&self) -> Option<Addr<A>> {
        let members = self.members();
        // Relaxed: a number.
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
        members.get(turn.checked_rem(members.len())?).cloned()
    }

    /// Sends a message to every member, waiting for a place where need be; says how many have got it.
    #[track_caller]
    pub fn send_all(&self, message: A::Message) -> usize
    where
        A::Message: Clone,
    {
        self.members().into_iter().filter(|member| member.send(message.clone()).is_ok()).count()
    }
}

impl<A: Actor> Default for Group<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Actor> Clone for Group<A> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<A: Actor> fmt::Debug for Group<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("members", &self.len()).finish()
    }
}
