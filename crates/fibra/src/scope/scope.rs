//! Scopes as users meet them: `scope`, `try_scope` and the values by which their bodies spawn.
//!
//! Above: users, `builder.rs`, `task::combinators`. Below: `body.rs`, which opens a scope, waits for it and closes it; this file makes
//! values and panics of the result, and starts the children. Lifetimes are those of `std::thread::scope`: `'scope` is the time until every
//! child has ended, `'env` is what they may borrow from.

use std::any::Any;
use std::cell::OnceCell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::arena::{Arena, InArena};
use super::body::{self, Finished, Options};
use super::builder::ScopeBuilder;
use super::token::CancelToken;
use crate::cancel::{self, is_cancellation};
use crate::fiber::frame::{Extras, FlagSet, Frame, flag};
use crate::prim::atomic::Ordering;
use crate::prim::instant::Instant;
use crate::prim::sync::Mutex;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::members::scope::{Reach, ScopeRef, Unstarted};
use crate::sched::shared::RuntimeShared;
use crate::sched::timers::timing::ScopeTimer;
use crate::task::futures::spawn_future_in;
use crate::task::join::JoinHandle;
use crate::task::run::drop_quietly;
use crate::task::spawn::{RefusedBecause, spawn_child, spawn_child_or_none, try_spawn_child};
use crate::wait::park;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};

/// Runs `f` with a scope to start fibers in, which may borrow from outside of it, and waits until they have all ended.
///
/// * If a child panics, its siblings and the body are cancelled, and the panic is raised again here, unless a fiber joins that child: the
///   joiner takes the panic.
/// * If the body panics, the children are cancelled; the panic goes on when they have ended.
/// * If a child cannot be started (the runtime's cap of fibers is reached, or no stack can be had), it is the same: unless a fiber joins
///   that child, the scope fails.
/// * If an enclosing scope or the fiber is cancelled, body and children are, too.
///
/// # Panics
/// With the first panic of a child that was not joined. If a child could not be started, and was not joined. On a thread that is neither in
/// a runtime nor has entered one with [`Handle::enter`](crate::Handle::enter).
///
/// ```
/// fibra::run(|| {
///     let words = vec!["plain", "blocking", "code"];
///     let mut lengths = vec![0; words.len()];
///     fibra::scope(|s| {
///         for (word, length) in words.iter().zip(&mut lengths) {
///             s.spawn(move || *length = word.len());
///         }
///     });
///     assert_eq!(lengths, [5, 8, 4]);
/// });
/// ```
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    match run(&Options::default(), "scope", Location::caller(), f) {
        Ok(value) => value,
        Err(cause) => unwind_for(&cause),
    }
}

/// Like [`scope`], for children that may fail: the first error cancels everything in the scope and is returned.
///
/// Children return `Result<U, E>`; a handle gives the `U`, the error goes to the scope.
///
/// # Errors
/// The first error of the body, of a child, or given to [`TryScope::fail`].
///
/// # Panics
/// Like [`scope`].
///
/// ```
/// use std::error::Error;
///
/// fn sum(numbers: &[&str]) -> Result<i64, Box<dyn Error + Send + Sync>> {
///     fibra::try_scope(|s| {
///         let parsed: Vec<_> = numbers.iter().map(|text| s.spawn(move || Ok(text.parse::<i64>()?))).collect();
///         let mut sum = 0;
///         for number in parsed {
///             sum += number.join()?;
///         }
///         Ok(sum)
///     })
/// }
///
/// fibra::run(|| {
///     assert_eq!(sum(&["1", "2", "39"]).unwrap(), 42);
///     assert_eq!(sum(&["1", "two"]).unwrap_err().to_string(), "invalid digit found in string");
/// });
/// ```
#[track_caller]
pub fn try_scope<'env, F, T, E>(f: F) -> Result<T, E>
where
    F: for<'scope> FnOnce(&'scope TryScope<'scope, 'env, E>) -> Result<T, E>,
    E: Send + 'static,
{
    match try_run(&Options::default(), "try_scope", Location::caller(), f) {
        Ok(value) => Ok(value),
        Err(TryEnded::Failed(first, others)) => {
            drop_quietly(others);
            Err(first)
        }
        Err(TryEnded::NoValue(why)) => unwind_for(&why),
    }
}

/// The body was unwound because its own scope was cancelled, and there is nothing to return: unwinding goes on.
#[track_caller]
pub(crate) fn unwind_for(why: &NoValue) -> ! {
    match why {
        NoValue::Cancelled(CancelReason::Panicked) => panic_was_taken(),
        NoValue::Cancelled(CancelReason::NotStarted) => panic!("fibra: a fiber of this scope could not be started"),
        NoValue::NotStarted(text) => panic!("fibra: {text}"),
        NoValue::Cancelled(_) => {}
    }
    if let Some(here) = Here::new() {
        here.state.deliveries.set(here.state.deliveries.get() + 1);
        here.begin_unwinding();
    }
    cancel::unwind_quietly()
}

/// A child's panic has cancelled the body, and then a joiner took it: a panic is due, but not that one any more.
#[track_caller]
pub(crate) fn panic_was_taken() -> ! {
    panic!("fibra: a fiber of this scope panicked, and its panic was taken by another one that joined it");
}

/// Children that never ran, and that were not joined, fail their scope. The text says how many and why.
fn failed_to_start(unstarted: Unstarted) -> NoValue {
    let Unstarted { untaken, refused, .. } = unstarted;
    let who = if untaken == 1 { "a fiber".to_owned() } else { format!("{untaken} fibers") };
    let why = match refused {
        Some(ReasonKind::Full) => {
            "as many were alive as Runtime::builder().max_fibers() allows. Raise it, start fewer at once, or join the \
             handles, which say so"
        }
        Some(ReasonKind::Shutdown) => "the runtime cannot start any in a process that was forked from its own",
        _ => "no stack could be had: raise vm.max_map_count, or run fewer fibers at once",
    };
    NoValue::NotStarted(format!("{who} of this scope could not be started: {why}"))
}

/// Why a body that was run to its end, or unwound, gave no value.
#[derive(Debug)]
pub(crate) enum NoValue {
    /// It was unwound because its own scope was cancelled.
    Cancelled(CancelReason),
    /// Children could not be started: how many, and why.
    NotStarted(String),
}

/// Runs a body that cannot fail. Err: it was unwound because its own scope was cancelled.
pub(crate) fn run<'env, F, T>(
    options: &Options,
    what: &str,
    site: &'static Location<'static>,
    f: F,
) -> Result<T, NoValue>
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    // Out here, because it outlives the children, which may refer to it.
    let scope = OnceCell::new();
    let body = |record| f(scope.get_or_init(|| Scope::new(record, options)));
    conclude(body::run(options, what, site, |_| false, body), options)
}

/// Why a body that can fail gave no value.
pub(crate) enum TryEnded<E> {
    /// The first error, and the others.
    Failed(E, Vec<E>),
    /// No error: see there.
    NoValue(NoValue),
}

pub(crate) fn try_run<'env, F, T, E>(
    options: &Options,
    what: &str,
    site: &'static Location<'static>,
    f: F,
) -> Result<T, TryEnded<E>>
where
    F: for<'scope> FnOnce(&'scope TryScope<'scope, 'env, E>) -> Result<T, E>,
    E: Send + 'static,
{
    let scope = OnceCell::new();
    let body = |record| {
        let new = || TryScope { scope: Scope::new(record, options), errors: Mutex::new(Vec::new()) };
        let scope: &TryScope<'_, 'env, E> = scope.get_or_init(new);
        match f(scope) {
            Ok(value) => Some(value),
            Err(error) => {
                scope.errors.lock().push(error);
                None
            }
        }
    };
    let concluded = conclude(body::run(options, what, site, Option::is_none, body), options);
    let errors = scope.get().map(|scope| std::mem::take(&mut *scope.errors.lock())).unwrap_or_default();
    let mut errors = errors.into_iter();
    if let Some(first) = errors.next() {
        drop_quietly(concluded);
        return Err(TryEnded::Failed(first, errors.collect()));
    }
    match concluded {
        Ok(value) => Ok(value.expect("without an error there is a value")),
        Err(why) => Err(TryEnded::NoValue(why)),
    }
}

/// The result of a scope that is over: its value, the cause for which its body was cancelled, or a panic or cancellation that goes on.
fn conclude<T>(finished: Finished<T>, options: &Options) -> Result<T, NoValue> {
    let Finished { result, reason, panics, unstarted, child_panicked_first, cut_short_by_panic, outer_cancelled } =
        finished;
    let mut untaken: Vec<Box<dyn Any + Send>> = panics.iter().filter_map(|panic| panic.take()).collect();
    drop(panics);
    let first = if options.isolate || untaken.is_empty() { None } else { Some(untaken.remove(0)) };
    count_untold(untaken);
    let lost = unstarted.untaken > 0 && !options.isolate;
    match (result, first) {
        (Ok(value), None) if lost => {
            drop_quietly(value);
            Err(failed_to_start(unstarted))
        }
        (Ok(value), None) if cut_short_by_panic && !options.isolate => {
            drop_quietly(value);
            panic_was_taken()
        }
        (Ok(value), None) => Ok(value),
        (Ok(value), Some(first)) => {
            drop_quietly(value);
            cancel::pass_on(first)
        }
        (Err(payload), first) if is_cancellation(&*payload) => match first {
            Some(first) => cancel::pass_on(first),
            None if lost && !outer_cancelled => Err(failed_to_start(unstarted)),
            None => match reason {
                Some(reason) if !outer_cancelled => Err(NoValue::Cancelled(reason)),
                _ => cancel::pass_on(payload),
            },
        },
        (Err(payload), Some(first)) if child_panicked_first => {
            count_untold(vec![payload]);
            cancel::pass_on(first)
        }
        (Err(payload), first) => {
            count_untold(first.into_iter().collect());
            cancel::pass_on(payload)
        }
    }
}

/// Panics that no caller receives: they were reported when they happened, and are counted.
fn count_untold(payloads: Vec<Box<dyn Any + Send>>) {
    if payloads.is_empty() {
        return;
    }
    if let Some(shared) = current::runtime() {
        // Relaxed: a number for people.
        shared.detached_panics.fetch_add(payloads.len() as u64, Ordering::Relaxed);
    }
    payloads.into_iter().for_each(drop_quietly);
}

/// A scope: the value by which its body and its children start fibers. See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    record: ScopeRef,
    arena: Arena,
    name: Option<Arc<str>>,
    token: Mutex<Option<CancelToken>>,
    // As in `std::thread::scope`: invariant, so that neither can be shortened.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// A scope with a name, a deadline, a token, a limit: see [`ScopeBuilder`].
    pub fn builder() -> ScopeBuilder {
        ScopeBuilder::new()
    }

    fn new(record: ScopeRef, options: &Options) -> Self {
        Self {
            record,
            arena: Arena::new(),
            name: options.name.clone(),
            token: Mutex::new(None),
            _scope: PhantomData,
            _env: PhantomData,
        }
    }

    /// Starts a child. It may borrow anything that outlives the scope, and start further children itself.
    ///
    /// If the scope is cancelled, nothing is started, and the handle says so when it is joined. A scope with
    /// [`max_concurrency`](ScopeBuilder::max_concurrency) starts it when it is its turn.
    ///
    /// If it cannot be started because the runtime's [cap of fibers](crate::RuntimeBuilder::max_fibers) is reached, the handle says so;
    /// unless it is joined, the scope fails, as with a child that panics. [`Builder::spawn_scoped`](crate::Builder::spawn_scoped) gives an
    /// error instead.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let sum = fibra::scope(|s| {
    ///         let children: Vec<_> = (0..10u64).map(|i| s.spawn(move || i * i)).collect();
    ///         children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
    ///     });
    ///     assert_eq!(sum, 285);
    /// });
    /// ```
    #[track_caller]
    #[inline]
    pub fn spawn<F, T>(&'scope self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_at(f, Location::caller())
    }

    /// The same for a function that starts a child on behalf of its caller's line.
    #[inline]
    pub(crate) fn spawn_at<F, T>(&'scope self, f: F, site: &'static Location<'static>) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // SAFETY: `Send`, and `'scope` does not end before the child has: `body::run` waits for it. The caller has a `&'scope self`, so the
        // scope is open.
        unsafe { self.start(f, site, flag::NONE) }
    }

    /// Starts a child that stays on this worker, so that the closure need not be `Send`.
    ///
    /// # Panics
    /// On a thread that is no worker of the scope's runtime.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// fibra::run(|| {
    ///     let seen = Rc::new(Cell::new(0));
    ///     fibra::scope(|s| {
    ///         for _ in 0..3 {
    ///             s.spawn_local(|| seen.set(seen.get() + 1));
    ///         }
    ///     });
    ///     assert_eq!(seen.get(), 3);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        self.assert_on_worker();
        // SAFETY: PINNED to this worker, so it need not be `Send`; for the rest as in `spawn`.
        unsafe { self.start(f, Location::caller(), flag::PINNED) }
    }

    /// Starts a future as a child: a task that owns no stack between polls and may move to another worker.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let text = String::from("borrowed");
    ///     let len = fibra::scope(|s| s.spawn_future(async { text.len() }).join().unwrap());
    ///     assert_eq!(len, 8);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_future<F>(&'scope self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        // SAFETY: as in `spawn`.
        unsafe { spawn_future_in(self.record, future, Location::caller()) }
    }

    #[track_caller]
    fn assert_on_worker(&self) {
        // SAFETY: the scope is open, since the caller has a `&'scope self`.
        let shared = unsafe { self.record.shared() };
        assert!(
            current::worker().is_some_and(|worker| std::ptr::eq(&*worker.shared, shared)),
            "fibra: spawn_local on a thread that runs no fibers of this scope's runtime: a fiber that must not move \
             needs a worker to stay on"
        );
    }

    /// # Safety
    /// `F` and `T` live for `'scope`; they are `Send`, or `flags` says PINNED and this is a worker of the runtime.
    #[inline(always)]
    unsafe fn start<F: FnOnce() -> T, T>(
        &'scope self,
        f: F,
        site: &'static Location<'static>,
        flags: FlagSet,
    ) -> JoinHandle<T> {
        if const { Frame::fits::<F>() } {
            // SAFETY: the caller's promise; the scope is open.
            unsafe { spawn_child(self.record, f, site, flags) }
        } else {
            let f = InArena::new(&self.arena, f);
            // SAFETY: as above.
            unsafe { spawn_child(self.record, move || f.into_inner()(), site, flags) }
        }
    }

    /// The implementation of [`Builder::spawn_scoped`](crate::Builder::spawn_scoped).
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub(crate) unsafe fn start_with<F: FnOnce() -> T, T>(
        &'scope self,
        f: F,
        site: &'static Location<'static>,
        flags: FlagSet,
        extras: Extras,
        spread_to: Option<usize>,
    ) -> Result<JoinHandle<T>, RefusedBecause> {
        if const { Frame::fits::<F>() } {
            // SAFETY: the caller's promise; the scope is open.
            unsafe { try_spawn_child(self.record, f, site, flags, extras, spread_to) }
        } else {
            let f = InArena::new(&self.arena, f);
            // SAFETY: as above.
            unsafe { try_spawn_child(self.record, move || f.into_inner()(), site, flags, extras, spread_to) }
        }
    }

    /// The runtime that its children run on.
    pub(crate) fn runtime(&self) -> &RuntimeShared {
        // SAFETY: the scope is open, since the caller has a `&self`.
        unsafe { self.record.shared() }
    }

    /// Cancels the children, not the body. Nothing can be started any more.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     fibra::scope(|s| {
    ///         let sleeper = s.spawn(|| fibra::sleep(Duration::from_secs(3600)));
    ///         s.cancel();
    ///         assert!(sleeper.join().unwrap_err().is_cancelled());
    ///         assert!(s.spawn(|| 1).join().unwrap_err().is_cancelled());
    ///     });
    /// });
    /// ```
    pub fn cancel(&self) {
        self.record.cancel(self.record.life(), &CancelReason::Scope, Reach::Children);
    }

    /// Have the children been cancelled, by any canceller?
    pub fn is_cancelled(&self) -> bool {
        park::count_call();
        self.has_cancelled()
    }

    fn has_cancelled(&self) -> bool {
        self.record.root.is_cancelled()
    }

    /// A token that is cancelled with the scope, and cancels it, body and children, when it is cancelled itself.
    ///
    /// ```
    /// fibra::run(|| {
    ///     fibra::scope(|s| {
    ///         let token = s.token();
    ///         let watcher = fibra::spawn(move || token.wait());
    ///         s.cancel();
    ///         assert_eq!(watcher.join().unwrap(), fibra::CancelReason::Scope);
    ///     });
    /// });
    /// ```
    pub fn token(&self) -> CancelToken {
        self.token.lock().get_or_insert_with(|| CancelToken::of_scope(self.record)).clone()
    }

    /// Asks the children to come to an end: their `draining()` arms fire, and those of all scopes inside. After `grace` they are
    /// cancelled. Does not wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fibra::channel::unbounded;
    ///
    /// fibra::run(|| {
    ///     let (tx, rx) = unbounded::<u32>();
    ///     fibra::scope(|s| {
    ///         let worker = s.spawn(|| {
    ///             let mut done = 0;
    ///             loop {
    ///                 fibra::select_biased! {
    ///                     recv(rx) -> _job => done += 1,
    ///                     draining() => return done,
    ///                 }
    ///             }
    ///         });
    ///         (0..10).for_each(|n| tx.send(n).unwrap());
    ///         s.drain(Duration::from_secs(10));
    ///         assert_eq!(worker.join().unwrap(), 10);
    ///     });
    /// });
    /// ```
    pub fn drain(&self, grace: Duration) {
        let life = self.record.life();
        self.record.drain(life);
        let at = Instant::after(grace);
        if at != Instant::FAR_FUTURE {
            // SAFETY: the caller has a `&self`, so the scope is open.
            let shared = unsafe { self.record.shared() };
            self.record.set_timer(shared, life, ScopeTimer::Drained, at.as_nanos());
        }
    }

    /// Has the scope, or an enclosing one, been asked to come to an end?
    pub fn is_draining(&self) -> bool {
        park::count_call();
        self.record.is_draining()
    }

    /// How many children have panicked so far, or could not be started, joined or not.
    pub fn panics(&self) -> usize {
        self.record.panics()
    }

    /// The name it was given.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("name", &self.name)
            .field("cancelled", &self.has_cancelled())
            .field("draining", &self.is_draining())
            .field("panics", &self.panics())
            .finish_non_exhaustive()
    }
}

/// A scope whose children may fail. See [`try_scope`]; everything a [`Scope`] has, it has too.
//
// `E: 'static` here and not only where it is used: otherwise closures that borrow do not compile if `E` has a trait object in it.
pub struct TryScope<'scope, 'env: 'scope, E: 'static> {
    scope: Scope<'scope, 'env>,
    /// In the order in which they came.
    errors: Mutex<Vec<E>>,
}

impl<'scope, 'env, E: Send + 'static> TryScope<'scope, 'env, E> {
    /// Starts a child that may fail. Its error fails the scope; then joining the handle gives an error that
    /// [says so](crate::CancelReason::Failed).
    #[track_caller]
    pub fn spawn<F, U>(&'scope self, f: F) -> JoinHandle<U>
    where
        F: FnOnce() -> Result<U, E> + Send + 'scope,
        U: Send + 'scope,
    {
        // SAFETY: as in `Scope::spawn`.
        unsafe { self.start(f, Location::caller(), flag::NONE) }
    }

    /// Starts a child that may fail and stays on this worker; see [`Scope::spawn_local`].
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn spawn_local<F, U>(&'scope self, f: F) -> JoinHandle<U>
    where
        F: FnOnce() -> Result<U, E> + 'scope,
        U: 'scope,
    {
        self.scope.assert_on_worker();
        // SAFETY: as in `Scope::spawn_local`.
        unsafe { self.start(f, Location::caller(), flag::PINNED) }
    }

    /// # Safety
    /// As [`Scope::start`].
    unsafe fn start<F: FnOnce() -> Result<U, E>, U>(
        &'scope self,
        f: F,
        site: &'static Location<'static>,
        flags: FlagSet,
    ) -> JoinHandle<U> {
        /// Closures have no name to ask by.
        const fn fits<F>(_: &F) -> bool {
            Frame::fits::<F>()
        }
        let record = self.scope.record;
        let or_fail = move || f().map_err(|error| self.fail(error)).ok();
        if fits(&or_fail) {
            // SAFETY: the caller's promise; the scope is open.
            unsafe { spawn_child_or_none(record, or_fail, site, flags) }
        } else {
            let or_fail = InArena::new(&self.scope.arena, or_fail);
            // SAFETY: as above.
            unsafe { spawn_child_or_none(record, move || or_fail.into_inner()(), site, flags) }
        }
    }

    /// Fails the scope: body and children are cancelled, and the first error is what it returns.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let outcome: Result<(), &str> = fibra::try_scope(|s| {
    ///         s.fail("no");
    ///         s.fail("and no again");
    ///         Ok(())
    ///     });
    ///     assert_eq!(outcome, Err("no"));
    /// });
    /// ```
    pub fn fail(&self, error: E) {
        self.errors.lock().push(error);
        let record = self.scope.record;
        record.cancel(record.life(), &CancelReason::Failed, Reach::All);
    }
}

impl<'scope, 'env, E: 'static> std::ops::Deref for TryScope<'scope, 'env, E> {
    type Target = Scope<'scope, 'env>;
    fn deref(&self) -> &Scope<'scope, 'env> {
        &self.scope
    }
}

impl<E: 'static> std::fmt::Debug for TryScope<'_, '_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.scope.fmt(f)
    }
}
