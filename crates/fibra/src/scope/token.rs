//! Cancel tokens: cancellation as a value, to be passed around, waited for, and tied to scopes. Above: users, `builder.rs`. Below:
//! `cancel::scopes`, `wait`.
//!
//! A token is cancelled once, with a reason that is published before any thread can see that it is cancelled. Tokens form a tree: a child
//! is cancelled with its parent, not the other way round. Waiters, children and scopes that are tied to a token are taken out under its
//! lock and told afterwards, so no user code runs under the lock.
//!
//! **Ownership.** A child keeps its parent alive, so that the way from an ancestor down to a descendant exists as long as the descendant
//! does, whatever clones were dropped in between. A parent knows its children weakly, by their address; the last clone of a child takes the
//! child out of the parent's list. Invariants: no two tokens are locked at once; a child that can be upgraded while its parent is cancelled
//! is cancelled with it, and a child that is added later finds the parent cancelled. Chains may be long: neither cancelling nor dropping
//! one is recursive.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::cancel::cancel_all;
use crate::prim::instant::Instant;
use crate::prim::spin::SpinLock;
use crate::sched::members::scope::{InLife, Listener, Reach, ScopeRef};
use crate::wait::park::{self, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::task::TaskWait;
use crate::wait::waitable::{Published, linked_or};
use crate::wait::wake::{self, QueueEnd};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::{Node, Outcome, WaitList};
use crate::waiter::record::Claimed;

/// Says that something should end: cancelled once, seen through every clone.
///
/// Give it to [`Scope::builder().token(..)`](crate::ScopeBuilder::token) to cancel that scope with it, wait for it with
/// [`wait`](Self::wait), as an arm of [`select!`](crate::select) (`on(token.cancelled())` or `cancelled(token)`), or with `.await`.
///
/// ```
/// use fibra::{CancelReason, CancelToken, Scope, ScopeError};
///
/// fibra::run(|| {
///     let token = CancelToken::new();
///     let button = token.clone();
///     fibra::spawn(move || button.cancel_with("the user pressed the button"));
///
///     let outcome = Scope::builder().token(token.clone()).run(|s| {
///         s.spawn(|| fibra::sleep(std::time::Duration::from_secs(3600)));
///     });
///     assert_eq!(outcome, Err(ScopeError::Cancelled));
///     assert_eq!(token.reason(), Some(CancelReason::from("the user pressed the button")));
/// });
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Token>);

pub(crate) struct Token {
    state: SpinLock<TokenState>,
}

struct TokenState {
    reason: Option<CancelReason>,
    waiters: WaitList,
    /// Set once, when the child is made.
    parent: Option<Arc<Token>>,
    // Trees and not vectors, both: leaving does not go through the others, and their memory goes with what was in them.
    /// By address. The last clone of a child takes it out.
    children: BTreeMap<usize, Weak<Token>>,
    /// By address of the record.
    scopes: BTreeMap<usize, InLife>,
}

// SAFETY: nodes are linked and unlinked under the lock only.
unsafe impl Sync for Token {}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self(Token::new())
    }

    /// A token that is cancelled when this one is, and can be cancelled by itself. It is cancelled with the ancestors of this one, too,
    /// whether or not a clone of this one is kept.
    ///
    /// ```
    /// use fibra::CancelToken;
    ///
    /// let all = CancelToken::new();
    /// let (one, other) = (all.child(), all.child().child());
    /// one.cancel();
    /// assert!(!all.is_cancelled() && !other.is_cancelled());
    /// all.cancel();
    /// assert!(other.is_cancelled() && all.child().is_cancelled());
    /// ```
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Token::new();
        let reason = self.0.state.with(|state| {
            if state.reason.is_none() {
                state.children.insert(Arc::as_ptr(&child).addr(), Arc::downgrade(&child));
            }
            state.reason.clone()
        });
        child.state.with(|state| match reason {
            // The child is cancelled from the start, and needs no parent to tell it.
            Some(reason) => state.reason = Some(reason),
            // Perhaps it was cancelled since, through the parent; then this does no harm.
            None => state.parent = Some(self.0.clone()),
        });
        Self(child)
    }

    /// Cancels it, its children, and the scopes that are tied to them. Does nothing the second time.
    pub fn cancel(&self) {
        self.cancel_with(CancelReason::Token);
    }

    /// The same, and says why: in words, or with one of the reasons there are.
    ///
    /// ```
    /// let token = fibra::CancelToken::new();
    /// token.cancel_with("the client has gone");
    /// assert_eq!(token.reason().unwrap().to_string(), "the client has gone");
    /// ```
    pub fn cancel_with(&self, reason: impl Into<CancelReason>) {
        let reason = reason.into();
        let mut scopes = Vec::new();
        let wakers = self.cancel_for(&reason, None, &mut scopes);
        cancel_all(&scopes, &reason);
        wake::call_wakers_where_fit(wakers);
    }

    /// Cancels it and its children. The scopes that are to be cancelled with them, except the scope from which the cancellation comes, are
    /// added to `scopes`; wakers to be called are returned.
    #[must_use]
    fn cancel_for(&self, reason: &CancelReason, by: Option<InLife>, scopes: &mut Vec<InLife>) -> Vec<Waker> {
        let is_by = |scope: ScopeRef, life| by.is_some_and(|(by, its)| std::ptr::eq(by, scope) && its == life);
        let mut tokens = vec![self.0.clone()];
        let mut all_wakers = Vec::new();
        while let Some(token) = tokens.pop() {
            let Some((tied, children, mut wakers)) = token.cancel(reason) else { continue };
            all_wakers.append(&mut wakers);
            scopes.extend(tied.into_values().filter(|(scope, life)| !is_by(scope, *life)));
            tokens.extend(children.values().filter_map(Weak::upgrade));
        }
        all_wakers
    }

    /// Has it been cancelled?
    pub fn is_cancelled(&self) -> bool {
        park::count_call();
        self.0.is_cancelled()
    }

    /// Why it was cancelled, if it was.
    pub fn reason(&self) -> Option<CancelReason> {
        park::count_call();
        self.why()
    }

    fn why(&self) -> Option<CancelReason> {
        self.0.state.with(|state| state.reason.clone())
    }

    /// Waits until it is cancelled, and says why.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let token = fibra::CancelToken::new();
    ///     let waiter = fibra::spawn({ let token = token.clone(); move || token.wait() });
    ///     token.cancel();
    ///     assert_eq!(waiter.join().unwrap(), fibra::CancelReason::Token);
    /// });
    /// ```
    #[track_caller]
    pub fn wait(&self) -> CancelReason {
        self.wait_until(None, Location::caller()).expect("without a deadline it waits for ever")
    }

    /// Waits until it is cancelled, at most for `timeout`.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<CancelReason> {
        self.wait_until(Some(Instant::after(timeout)), Location::caller())
    }

    /// Waits until it is cancelled, at most until `deadline`.
    #[track_caller]
    pub fn wait_deadline(&self, deadline: impl Into<Instant>) -> Option<CancelReason> {
        self.wait_until(Some(deadline.into()), Location::caller())
    }

    fn wait_until(&self, deadline: Option<Instant>, site: &'static Location<'static>) -> Option<CancelReason> {
        park::entry();
        let object = Arc::as_ptr(&self.0).addr() as u64;
        let deadline = deadline.filter(|deadline| *deadline != Instant::FAR_FUTURE).map(Instant::as_nanos);
        let how = Wait { reason: WaitReason::TokenCancelled, object, site, deadline };
        let _ended = park::complete(&*self.0, how);
        self.why()
    }

    /// Its cancellation, as an arm of [`select!`](crate::select), or to be awaited.
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled { token: &self.0, told: std::cell::Cell::new(Outcome::Pending), wait: TaskWait::default() }
    }

    /// Cancels this scope, in this life, with the token.
    pub(crate) fn subscribe(&self, scope: ScopeRef, life: u32) {
        let reason = self.0.state.with(|state| {
            if state.reason.is_none() {
                state.scopes.insert(scope.as_ptr().addr(), (scope, life));
            }
            state.reason.clone()
        });
        if let Some(reason) = reason {
            scope.cancel(life, &reason, Reach::All);
        }
    }

    pub(crate) fn unsubscribe(&self, scope: ScopeRef) {
        self.0.state.with(|state| state.scopes.remove(&scope.as_ptr().addr()));
    }

    /// The token of an open scope: each is cancelled with the other.
    pub(crate) fn of_scope(scope: ScopeRef) -> Self {
        let token = Self::new();
        let by = (scope, scope.life());
        token.subscribe(scope, by.1);
        let listener = Arc::new(ScopesToken { token: Arc::downgrade(&token.0), by });
        if let Err(reason) = scope.set_listener(listener) {
            let wakers = token.cancel_for(&reason, Some(by), &mut Vec::new());
            debug_assert!(wakers.is_empty(), "no other clone of the token exists yet");
        }
        token
    }
}

/// Tells the token of a scope that the scope was cancelled.
struct ScopesToken {
    token: Weak<Token>,
    by: InLife,
}

impl Listener for ScopesToken {
    fn cancelled(&self, reason: &CancelReason, more: &mut Vec<InLife>) {
        if let Some(token) = self.token.upgrade() {
            wake::call_wakers_where_fit(CancelToken(token).cancel_for(reason, Some(self.by), more));
        }
    }
}

type Tied = (BTreeMap<usize, InLife>, BTreeMap<usize, Weak<Token>>, Vec<Waker>);

impl Token {
    fn new() -> Arc<Self> {
        let (waiters, children, scopes) = (WaitList::new(), BTreeMap::new(), BTreeMap::new());
        Arc::new(Self { state: SpinLock::new(TokenState { reason: None, waiters, parent: None, children, scopes }) })
    }

    fn is_cancelled(&self) -> bool {
        self.state.with(|state| state.reason.is_some())
    }

    /// `None` if it was cancelled before.
    fn cancel(&self, reason: &CancelReason) -> Option<Tied> {
        self.state.with(|state| {
            if state.reason.is_some() {
                return None;
            }
            // X-23: the reason and the fact of the cancellation are one field.
            state.reason = Some(reason.clone());
            let mut wakers = Vec::new();
            // SAFETY: under the lock of the list.
            while let Some((waiter, ticket, arm)) = unsafe { state.waiters.pop_front() } {
                if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                    wakers.extend(wake::make_runnable(claimed, QueueEnd::Tail));
                }
            }
            Some((std::mem::take(&mut state.scopes), std::mem::take(&mut state.children), wakers))
        })
    }
}

/// The last clone of a token leaves its parent, and may have been the last reference to the parent: handled one after the other up the
/// chain, since the chain may be long.
impl Drop for Token {
    fn drop(&mut self) {
        let mut child = std::ptr::from_ref(self).addr();
        let mut parent = self.state.with(|state| state.parent.take());
        while let Some(token) = parent {
            // The memory of a child is not used again while its parent has this entry, so the address is still its own.
            let entry = token.state.with(|state| state.children.remove(&child));
            drop(entry);
            child = Arc::as_ptr(&token).addr();
            // If this was the last one, the token is dropped here, without a parent: this function is not called inside itself for more.
            parent = Arc::into_inner(token).and_then(|token| token.state.with(|state| state.parent.take()));
        }
    }
}

impl Waitable for Token {
    fn try_now(&self) -> Outcome {
        if self.is_cancelled() { Outcome::Done } else { Outcome::Pending }
    }

    fn publish(&self, node: &Node) -> Published {
        let is_linked = self.state.with(|state| {
            let waits = state.reason.is_none();
            if waits {
                // SAFETY: under the lock of the list; the node stays where it is until it is unlinked.
                unsafe { state.waiters.push_back(node) };
            }
            waits
        });
        linked_or(is_linked, Outcome::Retry)
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        // SAFETY: under the lock of the list.
        self.state.with(|state| unsafe { state.waiters.remove(node) });
    }
}

/// The cancellation of a token, as an arm of [`select!`](crate::select) and as a future; see [`CancelToken::cancelled`].
#[must_use = "it does nothing unless it is selected or awaited"]
pub struct Cancelled<'a> {
    pub(crate) token: &'a Arc<Token>,
    pub(crate) told: std::cell::Cell<Outcome>,
    wait: TaskWait,
}

impl Cancelled<'_> {
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        CancelToken(self.token.clone()).reason()
    }

    fn withdraw(&mut self) {
        let _ended = self.wait.withdraw(&**self.token);
    }
}

impl Future for Cancelled<'_> {
    type Output = CancelReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CancelReason> {
        loop {
            if let Some(reason) = self.reason() {
                self.withdraw();
                return Poll::Ready(reason);
            }
            if self.wait.goes_on(cx.waker()) {
                return Poll::Pending;
            }
            self.withdraw();
            let token = self.token;
            if self.wait.publish(cx.waker(), &**token) == Outcome::Pending {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<'a> IntoFuture for &'a CancelToken {
    type Output = CancelReason;
    type IntoFuture = Cancelled<'a>;
    fn into_future(self) -> Cancelled<'a> {
        self.cancelled()
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("reason", &self.reason()).finish()
    }
}

impl fmt::Debug for Cancelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").field("reason", &self.reason()).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
