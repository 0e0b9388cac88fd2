//! [`Context`]: what a handler has at hand. Its own address, messages for later, receivers that feed its mailbox, monitors and links.
//!
//! Above: users' handlers. Below: `cell`, `addr`, `task::spawn_daemon_future`. Timers and attached receivers are tasks without a stack;
//! they belong to the life in which they were made, end with it, and do not hold up `run`.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::Actor;
use super::addr::Addr;
use super::cell::Cell;
use super::core::{AnyCell, Bond};
use super::error::{ActorId, Down};
use super::mail::{Letter, Make};
use crate::channel::{Receiver, after, tick};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::runtime::Handle;
use crate::stream::{Pipe, Root};
use crate::sync::Mutex;
use crate::task::{JoinHandle, spawn_daemon_future};

/// What an actor has at hand in its handlers and hooks.
pub struct Context<A: Actor> {
    cell: Arc<Cell<A>>,
}

/// A message for later, or a receiver that is attached: [`cancel`](Self::cancel) ends it. Dropping this does not.
#[derive(Clone)]
pub struct Plug {
    is_off: Arc<AtomicBool>,
}

impl Plug {
    /// No further message comes from it. (One that lies in the mailbox already is handled.)
    pub fn cancel(&self) {
        // Relaxed: looked at before each message; what was sent before stays sent.
        self.is_off.store(true, Ordering::Relaxed);
    }

    fn is_off(&self) -> bool {
        // Relaxed: as above.
        self.is_off.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Plug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plug").field("is_off", &self.is_off()).finish()
    }
}

/// What can be attached to an actor with [`Context::attach`]: a [`Receiver`], or a [`Pipe`](crate::stream::Pipe).
pub trait IntoReceiver<T> {
    /// The receiver.
    #[doc(hidden)]
    fn into_receiver(self) -> Receiver<T>;
}

impl<T> IntoReceiver<T> for Receiver<T> {
    fn into_receiver(self) -> Receiver<T> {
        self
    }
}

impl<T: Send + 'static> IntoReceiver<T> for Pipe<T, Root> {
    fn into_receiver(self) -> Receiver<T> {
        Pipe::into_receiver(self)
    }
}

/// An item, and what makes a message of it: on the actor's turn.
struct Mapped<T, F>(T, Arc<Mutex<F>>);

impl<T: Send + 'static, M, F: FnMut(T) -> M + Send + 'static> Make<M> for Mapped<T, F> {
    fn make(self: Box<Self>) -> M {
        // (Never contended: all of them are made on the turns of one actor.)
        (self.1.lock())(self.0)
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// The same for what happens once.
struct Once<T, F>(T, F);

impl<T: Send + 'static, M, F: FnOnce(T) -> M + Send + 'static> Make<M> for Once<T, F> {
    fn make(self: Box<Self>) -> M {
        (self.1)(self.0)
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl<A: Actor> Context<A> {
    pub(super) fn new(cell: Arc<Cell<A>>) -> Self {
        Self { cell }
    }

    /// Its own address.
    pub fn address(&self) -> Addr<A> {
        Addr::another(&self.cell)
    }

    /// Its id.
    pub fn id(&self) -> ActorId {
        self.cell.core.id
    }

    /// Its name, if it was given one.
    pub fn name(&self) -> Option<Arc<str>> {
        self.cell.core.name()
    }

    /// Stops after what is in the mailbox now; see [`Addr::stop`].
    pub fn stop(&self) {
        self.cell.stop();
    }

    /// Its runtime.
    pub(super) fn home(&self) -> &Handle {
        &self.cell.core.home
    }

    /// Ends after the message at hand.
    pub(super) fn shut_down(&self) {
        self.cell.shut_down();
    }

    /// Keeps a task until the life ends.
    fn keep(&self, task: JoinHandle<()>) {
        let gone = self.cell.core.with_extra(|extra| {
            let (over, running): (Vec<_>, Vec<_>) = extra.plugs.drain(..).partition(JoinHandle::has_ended);
            extra.plugs = running;
            extra.plugs.push(task);
            over
        });
        drop(gone);
    }

    fn plug<F>(&self, site: &'static Location<'static>, task: impl FnOnce(Plug, Addr<A>) -> F) -> Plug
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let plug = Plug { is_off: Arc::default() };
        let task = task(plug.clone(), self.address());
        // (It inherits the domain of the turn, and counts there.)
        self.keep(spawn_daemon_future(self.cell.core.home.shared(), task, site));
        plug
    }

    /// Sends itself a message after a while.
    #[track_caller]
    pub fn send_after(&self, delay: Duration, message: A::Message) -> Plug {
        let timer = after(delay);
        self.plug(Location::caller(), |plug, me| async move {
            let _ = timer.recv_async().await;
            if !plug.is_off() {
                let _ = me.append_async(Letter::Message(message)).await;
            }
        })
    }

    /// Sends itself a message again and again, each made by `message` on its own turn. What it cannot handle in time is skipped.
    #[track_caller]
    pub fn send_every<F>(&self, period: Duration, mut message: F) -> Plug
    where
        F: FnMut() -> A::Message + Send + 'static,
    {
        let ticks = tick(period);
        let message = Arc::new(Mutex::new(move |()| message()));
        self.plug(Location::caller(), |plug, me| async move {
            while ticks.recv_async().await.is_ok() && !plug.is_off() {
                if me.append_async(Letter::Make(Box::new(Mapped((), message.clone())))).await.is_err() {
                    return;
                }
            }
        })
    }

    /// Turns what comes out of a receiver or pipe into messages, until it is closed. The next item is taken when the message before it has
    /// a place in the mailbox, so an actor that is slow slows down the source.
    ///
    /// ```
    /// use fibra::actor::{self, Actor, Context, Failure};
    /// use fibra::channel::{Receiver, Sender, bounded};
    ///
    /// struct Sum { input: Option<Receiver<u32>>, total: u32, done: Sender<u32> }
    /// enum Msg { Item(u32) }
    /// impl Actor for Sum {
    ///     type Message = Msg;
    ///     fn started(&mut self, ctx: &mut Context<Self>) -> Result<(), Failure> {
    ///         if let Some(input) = self.input.take() {
    ///             ctx.attach(input, Msg::Item);
    ///         }
    ///         Ok(())
    ///     }
    ///     fn handle(&mut self, Msg::Item(n): Msg, _: &mut Context<Self>) -> Result<(), Failure> {
    ///         self.total += n;
    ///         Ok(self.done.send(self.total)?)
    ///     }
    /// }
    /// fibra::run(|| {
    ///     let (tx, input) = bounded(4);
    ///     let (done, sums) = bounded(4);
    ///     let _sum = actor::spawn(Sum { input: Some(input), total: 0, done });
    ///     tx.send(3).unwrap();
    ///     tx.send(4).unwrap();
    ///     assert_eq!((sums.recv(), sums.recv()), (Ok(3), Ok(7)));
    /// });
    /// ```
    #[track_caller]
    pub fn attach<T, F>(&self, source: impl IntoReceiver<T>, message: F) -> Plug
    where
        T: Send + 'static,
        F: FnMut(T) -> A::Message + Send + 'static,
    {
        let (items, message) = (source.into_receiver(), Arc::new(Mutex::new(message)));
        self.plug(Location::caller(), |plug, me| async move {
            while let Ok(item) = items.recv_async().await {
                if plug.is_off()
                    || me.append_async(Letter::Make(Box::new(Mapped(item, message.clone())))).await.is_err()
                {
                    return;
                }
            }
        })
    }

    /// Sends itself the message that `message` makes when the other actor ends, or has ended; of a supervised one, when its present life
    /// ends. The message is urgent.
    pub fn monitor<B: Actor, F>(&self, other: &Addr<B>, message: F)
    where
        F: FnOnce(Down) -> A::Message + Send + 'static,
    {
        let me = self.address().downgrade();
        let bond = Bond::Monitor(Box::new(move |down| {
            if let Some(me) = me.upgrade() {
                me.make_urgent(Box::new(Once(down, message)));
            }
        }));
        let core = &other.cell.core;
        core.with_extra(|extra| extra.bonds.push(bond));
        if core.ended.is_set() {
            // It told the others before.
            core.tell_bonds(&core.reason());
        }
    }

    /// Links the two: if one ends with a failure, or is killed, so is the other, with
    /// [`StopReason::Linked`](super::StopReason::Linked). Of supervised actors it holds for their present lives.
    pub fn link<B: Actor>(&self, other: &Addr<B>) {
        let (mine, theirs): (Arc<dyn AnyCell>, Arc<dyn AnyCell>) = (self.cell.clone(), other.cell.clone());
        mine.core().with_extra(|extra| extra.bonds.push(Bond::Link(theirs.clone())));
        theirs.core().with_extra(|extra| extra.bonds.push(Bond::Link(mine)));
        let core = theirs.core();
        if core.ended.is_set() {
            core.tell_bonds(&core.reason());
        }
    }
}

impl<A: Actor> fmt::Debug for Context<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("actor", &self.cell.core.id.0).finish_non_exhaustive()
    }
}
