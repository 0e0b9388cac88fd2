//! Several closures at once, and one answer: all results, the first one, the first good one, or a few at a time.
//!
//! Each opens a scope of its own, so closures may borrow, nothing outlives the call, and cancellation from outside reaches everything in
//! it. They differ in the wait. Where all results are wanted, only the scope waits, and its own rules say what a panic does; where the
//! first one decides, the body waits for it (`gather.rs`) and cancels the rest. Such scopes are isolated: how the losers end has no effect.
//!
//! Above: user code. Below: `scope::scope`, `gather.rs`.

use std::panic::Location;

use super::gather::Gather;
use super::join::{JoinError, JoinHandle};
use crate::cancel;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::scope::body::Options;
use crate::scope::scope::{self, Scope, unwind_for};

/// Runs the closures at once, each on a fiber of its own, and returns what they returned, in the order of the iterator.
///
/// They may borrow from outside. Closures of different types have to be boxed (see [`race`] for how that looks). Start a limited number
/// at a time with [`par_map`].
///
/// # Panics
/// With the first panic of one of them; the others are cancelled, and waited for. If one cannot be started because the runtime is full.
/// Like [`scope`](crate::scope()) outside of a runtime.
///
/// ```
/// fibra::run(|| {
///     let words = ["plain", "blocking", "code"];
///     let lengths = fibra::join_all(words.iter().map(|word| move || word.len()));
///     assert_eq!(lengths, [5, 8, 4]);
/// });
/// ```
#[track_caller]
pub fn join_all<I, F, T>(closures: I) -> Vec<T>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> T + Send,
    T: Send,
{
    let site = Location::caller();
    let all: Vec<JoinHandle<T>> =
        in_scope("join_all", site, false, |s| closures.into_iter().map(|f| s.spawn_at(f, site)).collect());
    all.into_iter().map(value_of).collect()
}

/// Like [`join_all`], for closures that may fail: the first error cancels the others, and is returned when they have ended.
///
/// # Errors
/// The first one to come.
///
/// # Panics
/// Like [`join_all`].
///
/// ```
/// fn sum(numbers: &[&str]) -> Result<i32, std::num::ParseIntError> {
///     let parsed = fibra::try_join_all(numbers.iter().map(|text| || text.parse::<i32>()))?;
///     Ok(parsed.into_iter().sum())
/// }
///
/// fibra::run(|| {
///     assert_eq!(sum(&["1", "2", "39"]), Ok(42));
///     assert!(sum(&["1", "two", "39"]).is_err());
/// });
/// ```
#[track_caller]
pub fn try_join_all<I, F, T, E>(closures: I) -> Result<Vec<T>, E>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> Result<T, E> + Send,
    T: Send,
    E: Send,
{
    const NONE: usize = usize::MAX;
    let site = Location::caller();
    let failed = AtomicUsize::new(NONE);
    let mut all: Vec<JoinHandle<Result<T, E>>> = in_scope("try_join_all", site, false, |s| {
        let mut all = Vec::new();
        for f in closures {
            if s.is_cancelled() {
                break;
            }
            let (index, failed) = (all.len(), &failed);
            let child = move || {
                let result = f();
                // Relaxed: only the order of the errors matters here; the first error itself comes with the end of its fiber.
                if result.is_err() && failed.compare_exchange(NONE, index, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                {
                    s.cancel();
                }
                result
            };
            all.push(s.spawn_at(child, site));
        }
        all
    });
    match failed.into_inner() {
        NONE => all.into_iter().map(value_of).collect(),
        first => Err(value_of(all.swap_remove(first)).err().expect("the one that has failed")),
    }
}

/// Runs the closures at once and returns what the first one to end returned; the others are cancelled, and waited for.
///
/// A loser that neither blocks nor asks [`is_cancelled`](crate::is_cancelled) goes on to its end, and holds up the race so long. The first
/// to end decides, also with a panic; how the losers end has no effect. Once there is a winner, the iterator is not asked for more.
///
/// # Panics
/// If the iterator is empty: there would be no winner. With the panic of the first one to end. If it cannot be started because the runtime
/// is full. Like [`scope`](crate::scope()) outside of a runtime.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let mirrors = [("far", 3600), ("near", 0)];
///     let fastest = fibra::race(mirrors.iter().map(|(name, seconds)| move || {
///         fibra::sleep(Duration::from_secs(*seconds));
///         *name
///     }));
///     assert_eq!(fastest, "near");
///
///     // Closures of different types are boxed.
///     let slow = || {
///         fibra::sleep(Duration::from_secs(3600));
///         "late"
///     };
///     let answer = fibra::race([Box::new(slow) as Box<dyn FnOnce() -> &'static str + Send>, Box::new(|| "at once")]);
///     assert_eq!(answer, "at once");
/// });
/// ```
#[track_caller]
pub fn race<I, F, T>(closures: I) -> T
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> T + Send,
    T: Send,
{
    let site = Location::caller();
    let mut closures = closures.into_iter().peekable();
    assert!(closures.peek().is_some(), "fibra: a race without closures has no winner: the iterator is empty");
    let winner = in_scope("race", site, true, |s| {
        let mut runners = Gather::new();
        for f in closures {
            runners.insert(s.spawn_at(f, site), 0);
            if runners.has_ended() {
                break;
            }
        }
        let (winner, _) = next(&mut runners, site).expect("a race has at least one closure");
        s.cancel();
        winner
    });
    winner.unwrap_or_else(|error| error.resume_unwind())
}

/// Runs the closures at once and returns the first success; the others are cancelled, and waited for.
///
/// Once one has succeeded, the iterator is not asked for more.
///
/// # Errors
/// If all have failed: every error, in the order of the iterator. None if the iterator is empty.
///
/// # Panics
/// With the panic of one that ends before there is a success; the others are cancelled. If one cannot be started because the runtime is
/// full. Like [`scope`](crate::scope()) outside of a runtime.
///
/// ```
/// fibra::run(|| {
///     let numbers = ["one", "2", "three"];
///     let first = fibra::any(numbers.iter().map(|text| || text.parse::<i32>()));
///     assert_eq!(first, Ok(2));
///     let none = fibra::any(["one", "three"].iter().map(|text| || text.parse::<i32>()));
///     assert_eq!(none.unwrap_err().len(), 2);
/// });
/// ```
#[track_caller]
pub fn any<I, F, T, E>(closures: I) -> Result<T, Vec<E>>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> Result<T, E> + Send,
    T: Send,
    E: Send,
{
    let site = Location::caller();
    in_scope("any", site, true, |s| {
        let (mut tries, mut errors) = (Gather::new(), Vec::new());
        let mut closures = closures.into_iter().fuse();
        let success = loop {
            if !tries.has_ended()
                && let Some(f) = closures.next()
            {
                tries.insert(s.spawn_at(f, site), errors.len());
                errors.push(None);
                continue;
            }
            match next(&mut tries, site) {
                None => break None,
                Some((Ok(Ok(value)), _)) => break Some(value),
                Some((Ok(Err(error)), index)) => errors[index] = Some(error),
                // The body fails, so the others are cancelled.
                Some((Err(error), _)) => error.resume_unwind(),
            }
        };
        s.cancel();
        success.ok_or_else(|| errors.into_iter().map(|error| error.expect("all have failed")).collect())
    })
}

/// Maps the items with `f`, at most `n` at a time, each on a fiber of its own; the results are in the order of the items.
///
/// The next item is taken from the iterator when there is a place for it, so an endless iterator is as good as any, until the call is
/// cancelled from outside. Iterator and results stay on the caller's side; `f` may borrow.
///
/// # Panics
/// If `n` is 0. With the first panic of `f`; the others are cancelled. If an item's fiber cannot be started because the runtime is full.
/// Like [`scope`](crate::scope()) outside of a runtime.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let squares = fibra::par_map(1..=100_u32, 8, |n| {
///     fibra::sleep(Duration::from_millis(1)); // asks a server, say
///         n * n
///     });
///     assert_eq!(squares.len(), 100);
///     assert_eq!(squares[..4], [1, 4, 9, 16]);
/// });
/// ```
#[track_caller]
pub fn par_map<I, F, U>(items: I, n: usize, f: F) -> Vec<U>
where
    I: IntoIterator,
    I::Item: Send,
    F: Fn(I::Item) -> U + Sync,
    U: Send,
{
    assert!(n > 0, "fibra: par_map with n = 0: no item could ever be mapped");
    let site = Location::caller();
    let f = &f;
    let results = in_scope("par_map", site, false, |s| {
        let (mut running, mut results) = (Gather::new(), Vec::new());
        let mut items = items.into_iter().fuse();
        loop {
            // Neither the iterator nor a result that is there need wait, and cancellation must be able to end an endless loop.
            cancel::checkpoint();
            if running.len() < n
                && let Some(item) = items.next()
            {
                running.insert(s.spawn_at(move || f(item), site), results.len());
                results.push(None);
                continue;
            }
            if !running.wait(None, site) {
                return results;
            }
            let (handle, index) = running.take().expect("one has ended");
            if handle.has_panicked() {
                // No joiner takes the panic, so the scope cancels the others and raises the first one that came.
                return Vec::new();
            }
            results[index] = Some(value_of(handle));
        }
    });
    results.into_iter().map(|result| result.expect("all have ended")).collect()
}

/// Runs the body of a combinator. Its scope is isolated if the body takes the results, panics among them, as they come.
#[track_caller]
fn in_scope<'env, T>(
    what: &str,
    site: &'static Location<'static>,
    isolate: bool,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
) -> T {
    let options = Options { isolate, ..Options::default() };
    match scope::run(&options, what, site, body) {
        Ok(value) => value,
        Err(cause) => unwind_for(&cause),
    }
}

/// The next one to end, and its tag. `None` if all have been taken.
fn next<T>(members: &mut Gather<T>, site: &'static Location<'static>) -> Option<(Result<T, JoinError>, usize)> {
    members.wait(None, site);
    let (handle, tag) = members.take()?;
    let result = result_of(handle);
    if result.as_ref().is_err_and(JoinError::is_cancelled) {
        // The fiber was cancelled from outside; if this one was cancelled together with it, it unwinds here.
        cancel::checkpoint();
    }
    Some((result, tag))
}

/// The result of a fiber that has ended.
fn result_of<T>(handle: JoinHandle<T>) -> Result<T, JoinError> {
    handle.try_join().unwrap_or_else(|_| unreachable!("it has ended"))
}

/// The value of a fiber that has ended; panics if it has none (it was never started, because the runtime is full).
fn value_of<T>(handle: JoinHandle<T>) -> T {
    result_of(handle).unwrap_or_else(|error| {
        if error.is_cancelled() {
            cancel::checkpoint();
        }
        error.resume_unwind()
    })
}
