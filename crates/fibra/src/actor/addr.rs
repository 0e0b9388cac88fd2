//! Addresses: [`Addr`], which knows the type of its actor, and [`WeakAddr`], which does not keep it alive.
//!
//! Above: users, `recipient`. Below: `cell`, `desk`, `call`. An address never touches the actor's value; it appends to the mailbox, and
//! asks.

use std::cell::Cell as StdCell;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::Actor;
use super::call::{Reply, Waiting};
use super::cell::{Cell, LifeKey};
use super::core::{AnyCell, Detail, current_actor, current_id, drop_refused, note};
use super::error::{ActorId, CallError, SendError, SendTimeoutError, StopReason, TrySendError};
use super::mail::{Lane, Letter, Make, NoPlace};
use super::places::{MailboxRoom, Room};
use super::state::ActorState;
use crate::channel::{Overflow, answer};
use crate::prim::atomic::Ordering;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::TurnArm;
use crate::sync::gate::GateWait;
use crate::time::Instant;
use crate::wait::park::{self, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Published;
use crate::waiter::node::{Node, Outcome};

/// The address of an actor: what one sends to, calls, and stops it by. Fibers, threads and async code may share it.
///
/// An actor whose last address is dropped handles what is in its mailbox and ends. (Its timers and attached receivers, its supervisor and
/// the registry count as addresses.)
pub struct Addr<A: Actor> {
    pub(super) cell: Arc<Cell<A>>,
}

impl<A: Actor> Addr<A> {
    /// Of an actor that counts one address already.
    pub(super) fn counted(cell: Arc<Cell<A>>) -> Self {
        Self { cell }
    }

    /// One more, made by an address or by the running actor.
    pub(super) fn another(cell: &Arc<Cell<A>>) -> Self {
        // Relaxed: a number; the one that takes it to 0 orders what came before.
        let before = cell.core.addresses.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            // Only by forgetting addresses again and again: as `Arc` does.
            std::process::abort();
        }
        Self { cell: cell.clone() }
    }

    fn is_own(&self) -> bool {
        current_id() == Some(self.cell.core.id)
    }

    // ---- sending ------------------------------------------------------------------------------------------------------------

    /// Appends the message of a newcomer. Err: there is no place for it.
    fn append(&self, letter: Letter<A::Message>) -> Result<(), (NoPlace, Letter<A::Message>)> {
        let next = self.cell.desk.post(letter)?;
        self.cell.then(next);
        Ok(())
    }

    /// The same for a message that has its place, or needs none; Err: the mailbox is closed.
    fn append_by(&self, letter: Letter<A::Message>, lane: Lane) -> Result<(), Letter<A::Message>> {
        let next = self.cell.desk.post_by(letter, lane)?;
        self.cell.then(next);
        Ok(())
    }

    /// Appends without waiting; Err: there is no place, and the policy is to wait for one.
    pub(super) fn append_now(&self, letter: Letter<A::Message>) -> Result<(), (NoPlace, Letter<A::Message>)> {
        match self.append(letter) {
            Err((NoPlace::Full, letter)) => self.append_to_full(letter),
            appended => appended,
        }
    }

    /// There is no place for a newcomer.
    #[cold]
    fn append_to_full(&self, letter: Letter<A::Message>) -> Result<(), (NoPlace, Letter<A::Message>)> {
        let desk = &self.cell.desk;
        match self.cell.core.overflow {
            Overflow::DropNewest => {
                desk.count_dropped();
                drop_refused(letter);
                Ok(())
            }
            Overflow::DropOldest => {
                let (oldest, next) = desk.replace_oldest(letter).map_err(|letter| (NoPlace::Closed, letter))?;
                self.cell.then(next);
                drop_refused(oldest);
                Ok(())
            }
            _ => Err((NoPlace::Full, letter)),
        }
    }

    /// Appends, waiting for a place if need be. (In line, with one way out of line: see `ActorDesk::post_plainly`. Not where nothing is
    /// optimised: each call would have its own copies of the message in its caller's frame.)
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn append_until(
        &self,
        letter: Letter<A::Message>,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<Letter<A::Message>>> {
        let is_counted = park::passes();
        let refused = if is_counted {
            match self.cell.desk.post_plainly(letter) {
                Ok(next) => {
                    self.cell.then(next);
                    return Ok(());
                }
                Err(letter) => letter,
            }
        } else {
            letter
        };
        self.append_closely(refused, is_counted, deadline, site)
    }

    /// The same in all other cases.
    #[cold]
    #[inline(never)]
    fn append_closely(
        &self,
        letter: Letter<A::Message>,
        is_counted: bool,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<Letter<A::Message>>> {
        // (A call that passed has been counted, and was not cancelled then.)
        if !is_counted {
            park::entry();
        }
        match self.append_now(letter) {
            Ok(()) => Ok(()),
            Err((NoPlace::Full, letter)) => self.append_later(letter, deadline, site),
            Err((_, letter)) => Err(SendTimeoutError::Stopped(letter)),
        }
    }

    /// Waits for a place.
    fn append_later(
        &self,
        letter: Letter<A::Message>,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<Letter<A::Message>>> {
        if self.is_own() {
            return Err(SendTimeoutError::WouldDeadlock(letter));
        }
        let _noted = note(|| Detail::Actor(self.cell.clone()));
        match self.cell.desk.places.take(deadline, site) {
            Ok(()) => self.append_by(letter, Lane::Reserved).map_err(SendTimeoutError::Stopped),
            Err(NoPlace::TimedOut) => Err(SendTimeoutError::Timeout(letter)),
            Err(_) => Err(SendTimeoutError::Stopped(letter)),
        }
    }

    /// Sends a message, waiting while the mailbox is full. Messages of one sender are handled in the order in which they were sent.
    ///
    /// # Errors
    /// With the message: the actor has ended or was asked to stop; or it sends to itself, and its mailbox is full.
    #[track_caller]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn send(&self, message: A::Message) -> Result<(), SendError<A::Message>> {
        let sent = self.append_until(Letter::Message(message), None, Location::caller());
        sent.map_err(|error| without_timeout(error.map(opened)))
    }

    /// Sends a message if there is a place for it now.
    ///
    /// # Errors
    /// With the message: the mailbox is full, or the actor has ended or was asked to stop.
    pub fn try_send(&self, message: A::Message) -> Result<(), TrySendError<A::Message>> {
        park::count_call();
        self.append_now(Letter::Message(message)).map_err(|(no_place, letter)| match no_place {
            NoPlace::Full => TrySendError::Full(opened(letter)),
            _ => TrySendError::Stopped(opened(letter)),
        })
    }

    /// Like [`send`](Self::send), for at most `timeout`.
    ///
    /// # Errors
    /// As there, and if there was no place in time.
    #[track_caller]
    pub fn send_timeout(&self, message: A::Message, timeout: Duration) -> Result<(), SendTimeoutError<A::Message>> {
        self.send_deadline(message, Instant::after(timeout))
    }

    /// Like [`send`](Self::send), until `deadline` at most.
    ///
    /// # Errors
    /// As there, and if there was no place in time.
    #[track_caller]
    pub fn send_deadline(
        &self,
        message: A::Message,
        deadline: impl Into<Instant>,
    ) -> Result<(), SendTimeoutError<A::Message>> {
        let deadline = Some(deadline.into().as_nanos());
        let sent = self.append_until(Letter::Message(message), deadline, Location::caller());
        sent.map_err(|error| error.map(opened))
    }

    /// Like [`send`](Self::send), as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn send_async(&self, message: A::Message) -> Result<(), SendError<A::Message>> {
        let letter = Letter::Message(message);
        self.append_async(letter).await.map_err(|letter| SendError::Stopped(opened(letter)))
    }

    pub(super) async fn append_async(&self, letter: Letter<A::Message>) -> Result<(), Letter<A::Message>> {
        match self.append_now(letter) {
            Ok(()) => Ok(()),
            Err((NoPlace::Full, letter)) => {
                if self.cell.desk.places.take_async().await {
                    self.append_by(letter, Lane::Reserved)
                } else {
                    Err(letter)
                }
            }
            Err((_, letter)) => Err(letter),
        }
    }

    /// Sends a control message: it is handled before all ordinary ones, needs no place in the mailbox and never waits. There is no bound
    /// to these, so they are for what is rare: stop this, pause that.
    ///
    /// # Errors
    /// With the message: the actor has ended or was asked to stop.
    pub fn send_urgent(&self, message: A::Message) -> Result<(), SendError<A::Message>> {
        park::count_call();
        self.append_by(Letter::Message(message), Lane::Urgent).map_err(|letter| SendError::Stopped(opened(letter)))
    }

    /// Something that becomes a message on the actor's own turn, before all ordinary ones.
    pub(super) fn make_urgent(&self, make: Box<dyn Make<A::Message>>) -> bool {
        self.append_by(Letter::Make(make), Lane::Urgent).is_ok()
    }

    /// Sending a message, as an arm of [`select!`](crate::select): it yields what [`send`](Self::send) returns.
    ///
    /// ```
    /// # use fibra::actor::{self, Actor, Context, Failure};
    /// # struct Sink;
    /// # impl Actor for Sink {
    /// #     type Message = u32;
    /// #     fn handle(&mut self, _: u32, _: &mut Context<Self>) -> Result<(), Failure> { Ok(()) }
    /// # }
    /// fibra::run(|| {
    ///     let sink = actor::spawn(Sink);
    ///     fibra::select! {
    ///         on(sink.sending(7)) -> sent => assert!(sent.is_ok()),
    ///     }
    /// });
    /// ```
    pub fn sending(&self, message: A::Message) -> SendArm<'_, A> {
        let letter = Some(Letter::Message(message));
        let places = &self.cell.desk.places;
        let wants = Wants { places, wait: places.arm() };
        SendArm { addr: self, letter, wants, told: StdCell::new(Outcome::Pending) }
    }

    // ---- calling ------------------------------------------------------------------------------------------------------------

    fn call_until<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> A::Message,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<R, CallError> {
        answer::ask(|asked, answerer| {
            let waiting = match current_actor() {
                Some(caller) => Some(Waiting::begin(caller, self.cell.clone())?),
                None => None,
            };
            let reply = Reply::to_stack(answerer, waiting.as_ref());
            match self.append_until(Letter::Message(message(reply)), deadline, site) {
                Ok(()) => {}
                // Its reply is dropped here, not by the actor.
                Err(SendTimeoutError::Timeout(_)) => return Err(CallError::TimedOut),
                Err(SendTimeoutError::Stopped(_)) => return Err(CallError::Stopped),
                Err(SendTimeoutError::WouldDeadlock(_)) => {
                    return Err(CallError::Cycle(vec![self.cell.core.label(); 2]));
                }
            }
            let _noted = waiting.is_some().then(|| note(|| Detail::Actor(self.cell.clone())));
            if !asked.wait(WaitReason::ActorCall, deadline, site) {
                return Err(CallError::TimedOut);
            }
            match asked.take() {
                Some(answer) => answer,
                // A message without a handler: what it was to be made of is gone with it.
                None => Err(CallError::Dropped),
            }
        })
    }

    /// Sends the message that `message` makes of a [`Reply`], and waits for the answer.
    ///
    /// ```
    /// # use fibra::actor::{self, Actor, Context, Failure, Reply};
    /// # struct Account { cents: i64 }
    /// # enum Op { Balance(Reply<i64>) }
    /// # impl Actor for Account {
    /// #     type Message = Op;
    /// #     fn handle(&mut self, Op::Balance(reply): Op, _: &mut Context<Self>) -> Result<(), Failure> {
    /// #         reply.send(self.cents);
    /// #         Ok(())
    /// #     }
    /// # }
    /// fibra::run(|| {
    ///     let account = actor::spawn(Account { cents: 5 });
    ///     assert_eq!(account.call(|reply| Op::Balance(reply)), Ok(5));
    ///     assert_eq!(account.call(Op::Balance), Ok(5));
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`CallError`]. Actors that call each other in a circle are told so at once.
    #[track_caller]
    pub fn call<R: Send + 'static>(&self, message: impl FnOnce(Reply<R>) -> A::Message) -> Result<R, CallError> {
        self.call_until(message, None, Location::caller())
    }

    /// Like [`call`](Self::call), for at most `timeout`.
    ///
    /// # Errors
    /// See [`CallError`].
    #[track_caller]
    pub fn call_timeout<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> A::Message,
        timeout: Duration,
    ) -> Result<R, CallError> {
        self.call_deadline(message, Instant::after(timeout))
    }

    /// Like [`call`](Self::call), until `deadline` at most.
    ///
    /// # Errors
    /// See [`CallError`].
    #[track_caller]
    pub fn call_deadline<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> A::Message,
        deadline: impl Into<Instant>,
    ) -> Result<R, CallError> {
        self.call_until(message, Some(deadline.into().as_nanos()), Location::caller())
    }

    /// Like [`call`](Self::call), as a future. (A circle of calls that wait in async code is not found.)
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_async<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> A::Message + Send,
    ) -> Result<R, CallError> {
        let (reply, answer) = Reply::to_future();
        let letter = Letter::Message(message(reply));
        self.append_async(letter).await.map_err(|_| CallError::Stopped)?;
        answer.await.unwrap_or(Err(CallError::Dropped))
    }

    // ---- the actor ----------------------------------------------------------------------------------------------------------

    /// Asks it to stop after what is in its mailbox now. Later messages are refused; those to a supervised actor wait for its next life,
    /// if it has one. Returns at once.
    pub fn stop(&self) {
        self.cell.stop();
    }

    /// Ends it now: no further message is handled, and a handler that runs is cancelled at its next blocking call, or where it waits.
    /// Returns at once.
    pub fn kill(&self) {
        self.cell.kill(StopReason::Killed);
    }

    /// Waits until it has ended for good, and says why. (A supervised actor has not while it may be restarted.)
    #[track_caller]
    pub fn stopped(&self) -> StopReason {
        self.cell.core.ended.event().wait_as(WaitReason::ActorStopped, None, Location::caller());
        self.cell.core.reason()
    }

    /// Like [`stopped`](Self::stopped), for at most `timeout`.
    #[track_caller]
    pub fn stopped_timeout(&self, timeout: Duration) -> Option<StopReason> {
        let deadline = Some(Instant::after(timeout).as_nanos());
        let ended = self.cell.core.ended.event().wait_as(WaitReason::ActorStopped, deadline, Location::caller());
        ended.then(|| self.cell.core.reason())
    }

    /// Like [`stopped`](Self::stopped), as a future.
    pub async fn stopped_async(&self) -> StopReason {
        self.cell.core.ended.event().wait_async().await;
        self.cell.core.reason()
    }

    /// Waiting for its end, as an arm of [`select!`](crate::select): `on(account.stopped_arm()) -> why => ..`.
    pub fn stopped_arm(&self) -> StoppedArm<'_, A> {
        StoppedArm { addr: self, wait: self.cell.core.ended.event().waiting() }
    }

    /// Has it not ended?
    #[must_use]
    pub fn is_alive(&self) -> bool {
        park::count_call();
        !self.cell.core.ended.is_set()
    }

    /// Its id, which no other actor ever has.
    pub fn id(&self) -> ActorId {
        self.cell.core.id
    }

    /// Its name, if it was given one.
    pub fn name(&self) -> Option<Arc<str>> {
        self.cell.core.name()
    }

    /// What it is doing at the moment.
    pub fn state(&self) -> ActorState {
        park::count_call();
        self.cell.state()
    }

    /// How many messages wait in its mailbox.
    pub fn len(&self) -> usize {
        self.cell.desk.counts().0
    }

    /// Does no message wait in its mailbox?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages its overflow policy has dropped.
    pub fn dropped(&self) -> u64 {
        self.cell.desk.counts().1
    }

    /// An address that does not keep it alive.
    pub fn downgrade(&self) -> WeakAddr<A> {
        WeakAddr { cell: Arc::downgrade(&self.cell) }
    }
}

pub(super) fn without_timeout<M>(error: SendTimeoutError<M>) -> SendError<M> {
    match error {
        SendTimeoutError::WouldDeadlock(message) => SendError::WouldDeadlock(message),
        SendTimeoutError::Stopped(message) | SendTimeoutError::Timeout(message) => SendError::Stopped(message),
    }
}

/// A message that comes back was never to be made of anything: that is for urgent ones and for recipients.
fn opened<M>(letter: Letter<M>) -> M {
    letter.open()
}

impl<A: Actor> Clone for Addr<A> {
    fn clone(&self) -> Self {
        Self::another(&self.cell)
    }
}

impl<A: Actor> Drop for Addr<A> {
    fn drop(&mut self) {
        // AcqRel: what was done through this address is seen by the actor that finds that none is left.
        if self.cell.core.addresses.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.cell.look();
        }
    }
}

impl<A: Actor> PartialEq for Addr<A> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<A: Actor> Eq for Addr<A> {}

impl<A: Actor> std::hash::Hash for Addr<A> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<A: Actor> fmt::Debug for Addr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.cell.core;
        let state = self.cell.state();
        f.debug_struct("Addr").field("id", &core.id.0).field("name", &core.name()).field("state", &state).finish()
    }
}

/// An address that does not keep its actor alive; see [`Addr::downgrade`].
pub struct WeakAddr<A: Actor> {
    cell: Weak<Cell<A>>,
}

impl<A: Actor> WeakAddr<A> {
    /// The address, if there is another one still.
    pub fn upgrade(&self) -> Option<Addr<A>> {
        let cell = self.cell.upgrade()?;
        // Relaxed, both: as in `another`; from 0 it does not come back.
        let add = |count: u32| if count == 0 { None } else { Some(count + 1) };
        cell.core.addresses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Addr { cell })
    }
}

impl<A: Actor> Clone for WeakAddr<A> {
    fn clone(&self) -> Self {
        Self { cell: self.cell.clone() }
    }
}

impl<A: Actor> fmt::Debug for WeakAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakAddr").finish_non_exhaustive()
    }
}

// ---- arms ---------------------------------------------------------------------------------------------------------------------

/// Sending, as an arm; see [`Addr::sending`].
pub struct SendArm<'a, A: Actor> {
    addr: &'a Addr<A>,
    letter: Option<Letter<A::Message>>,
    wants: Wants<'a, A>,
    told: StdCell<Outcome>,
}

/// What the engine sees of it: the gate's, but for one that is refused at once.
struct Wants<'a, A: Actor> {
    places: &'a MailboxRoom<A::Message, LifeKey<A>>,
    wait: GateWait<'a, Room<A::Message, LifeKey<A>>>,
}

impl<A: Actor> Waitable for Wants<'_, A> {
    fn try_now(&self) -> Outcome {
        if self.places.is_closed() { Outcome::Closed } else { self.wait.try_now() }
    }

    fn publish(&self, node: &Node) -> Published {
        self.wait.publish(node)
    }

    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        self.wait.unpublish(node, owed);
    }
}

impl<A: Actor> SendArm<'_, A> {
    /// Gives back a place that was won and not used.
    fn clear(&self) {
        if self.told.replace(Outcome::Pending) == Outcome::Done {
            self.wants.places.give_back();
        }
    }
}

impl<A: Actor> sealed::Sealed for SendArm<'_, A> {
    fn case(&mut self) -> Case<'_> {
        self.clear();
        Case::object(&self.wants, &self.told)
    }
}

impl<A: Actor> Drop for SendArm<'_, A> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<A: Actor> Arm for SendArm<'_, A> {
    type Output = Result<(), SendError<A::Message>>;

    fn finish(&mut self) -> Self::Output {
        let letter = self.letter.take().expect("an arm yields its result once");
        // It has a place, or was refused.
        let has_place = self.told.replace(Outcome::Pending) == Outcome::Done;
        let sent = if has_place { self.addr.append_by(letter, Lane::Reserved) } else { Err(letter) };
        sent.map_err(|letter| SendError::Stopped(opened(letter)))
    }
}

impl<A: Actor> fmt::Debug for SendArm<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendArm").finish_non_exhaustive()
    }
}

/// Waiting for the end of an actor, as an arm; see [`Addr::stopped_arm`].
pub struct StoppedArm<'a, A: Actor> {
    addr: &'a Addr<A>,
    wait: TurnArm<'a>,
}

impl<A: Actor> sealed::Sealed for StoppedArm<'_, A> {
    fn case(&mut self) -> Case<'_> {
        self.wait.case()
    }
}

impl<A: Actor> Arm for StoppedArm<'_, A> {
    type Output = StopReason;

    fn finish(&mut self) -> StopReason {
        self.addr.cell.core.reason()
    }
}

impl<A: Actor> fmt::Debug for StoppedArm<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppedArm").finish_non_exhaustive()
    }
}
