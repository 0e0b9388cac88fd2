//! [`retry`]: calling an operation again after an error, with a pause between.
//!
//! Above: users. Below: `sleep`, and the one random source. A policy is plain data; the pause is a sleep, so it can be cancelled like any
//! other. A cancellation or a panic of the operation itself is not retried: it passes through.

use std::fmt;
use std::time::Duration;

use super::Instant;
use super::sleep::sleep_until;
use crate::channel;
use crate::sched::current;

/// The number of attempts, if the policy sets no limit.
const ATTEMPTS: u32 = 5;
/// The steps between no jitter and all of it.
const STEPS: usize = 1 << 20;

/// Retries after every error; see [`RetryPolicy::retry_if`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Always(());

/// Whether an error is worth another attempt: [`Always`], or the function that was given to [`RetryPolicy::retry_if`].
pub trait RetryIf<E> {
    /// True if another attempt should be made after this error.
    fn is_worth_it(&mut self, error: &E) -> bool;
}

impl<E> RetryIf<E> for Always {
    fn is_worth_it(&mut self, _: &E) -> bool {
        true
    }
}

impl<E, F: FnMut(&E) -> bool> RetryIf<E> for F {
    fn is_worth_it(&mut self, error: &E) -> bool {
        self(error)
    }
}

/// When to try again, and when to give up; for [`retry`].
///
/// Without [`max_attempts`](Self::max_attempts) and [`max_elapsed`](Self::max_elapsed) five attempts are made.
///
/// ```
/// use fibra::time::RetryPolicy;
/// use std::time::Duration;
///
/// let policy = RetryPolicy::exponential()
///     .initial_delay(Duration::from_millis(20))
///     .max_delay(Duration::from_secs(1))
///     .max_elapsed(Duration::from_secs(10));
/// # let _ = policy;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing by itself: give it to `retry`"]
pub struct RetryPolicy<F = Always> {
    delay: Duration,
    factor: f64,
    max_delay: Duration,
    jitter: f64,
    max_attempts: Option<u32>,
    max_elapsed: Option<Duration>,
    retry_if: F,
}

impl RetryPolicy {
    /// A pause of 100 ms, doubled each time up to 10 s, and each shortened at random by up to a half, so that many callers that failed
    /// together do not come back together.
    pub fn exponential() -> Self {
        Self {
            delay: Duration::from_millis(100),
            factor: 2.0,
            max_delay: Duration::from_secs(10),
            jitter: 0.5,
            max_attempts: None,
            max_elapsed: None,
            retry_if: Always(()),
        }
    }

    /// The same pause each time, without jitter. `Duration::ZERO` lets other fibers run in between.
    pub fn fixed(delay: Duration) -> Self {
        Self { delay, factor: 1.0, max_delay: Duration::MAX, jitter: 0.0, ..Self::exponential() }
    }
}

impl<F> RetryPolicy<F> {
    /// The first pause.
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How much longer each pause is than the one before.
    ///
    /// # Panics
    /// If `factor` is below 1 or no finite number.
    #[track_caller]
    pub fn factor(mut self, factor: f64) -> Self {
        assert!(
            factor.is_finite() && factor >= 1.0,
            "fibra: a retry policy whose pauses change by a factor of {factor}: it must be a number of at least 1"
        );
        self.factor = factor;
        self
    }

    /// No pause is longer than this.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// How much of each pause is random: 0.0 is none, 1.0 all of it.
    ///
    /// # Panics
    /// If `part` is not between 0 and 1.
    #[track_caller]
    pub fn jitter(mut self, part: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&part),
            "fibra: a retry policy with a jitter of {part}: it is a part, from 0 to 1"
        );
        self.jitter = part;
        self
    }

    /// Gives up after so many attempts, the first one counted.
    ///
    /// # Panics
    /// If `attempts` is zero.
    #[track_caller]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        assert!(attempts > 0, "fibra: a retry policy of zero attempts: the first one counts");
        self.max_attempts = Some(attempts);
        self
    }

    /// Gives up when the next attempt would begin more than `elapsed` after the first one did. An attempt that runs is not interrupted.
    pub fn max_elapsed(mut self, elapsed: Duration) -> Self {
        self.max_elapsed = Some(elapsed);
        self
    }

    /// Only errors for which `retry_if` gives true are worth another attempt.
    ///
    /// ```
    /// use fibra::time::{RetryPolicy, retry};
    /// use std::time::Duration;
    ///
    /// let policy = RetryPolicy::fixed(Duration::ZERO).retry_if(|error: &&str| *error == "busy");
    /// let mut answers = ["busy", "gone"].into_iter();
    /// let error = retry(policy, || Err::<(), _>(answers.next().unwrap())).unwrap_err();
    /// assert_eq!((error.attempts(), error.into_inner()), (2, "gone"));
    /// ```
    pub fn retry_if<E, G: FnMut(&E) -> bool>(self, retry_if: G) -> RetryPolicy<G> {
        let Self { delay, factor, max_delay, jitter, max_attempts, max_elapsed, retry_if: _ } = self;
        RetryPolicy { delay, factor, max_delay, jitter, max_attempts, max_elapsed, retry_if }
    }
}

/// The error of [`retry`] when it gives up: the last error, and how often it was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryError<E> {
    error: E,
    attempts: u32,
}

impl<E> RetryError<E> {
    /// The error of the last attempt.
    pub fn error(&self) -> &E {
        &self.error
    }

    /// The error of the last attempt.
    pub fn into_inner(self) -> E {
        self.error
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl<E: fmt::Display> fmt::Display for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.attempts == 1 { "" } else { "s" };
        write!(f, "gave up after {} attempt{s}: {}", self.attempts, self.error)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RetryError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A policy at work.
struct Attempts<F> {
    policy: RetryPolicy<F>,
    begin: Instant,
    made: u32,
}

impl<F> Attempts<F> {
    fn new(policy: RetryPolicy<F>) -> Self {
        Self { policy, begin: Instant::now(), made: 0 }
    }

    /// The number of the attempt that begins, from 1.
    fn next(&mut self) -> u32 {
        self.made = self.made.saturating_add(1);
        self.made
    }

    /// After a failure: when to try again, or the final error if this was the last attempt.
    fn pause<E>(&mut self, error: E) -> Result<Instant, RetryError<E>>
    where
        F: RetryIf<E>,
    {
        let (attempts, policy) = (self.made, &mut self.policy);
        let most = match (policy.max_attempts, policy.max_elapsed) {
            (None, None) => ATTEMPTS,
            (most, _) => most.unwrap_or(u32::MAX),
        };
        if attempts >= most || !policy.retry_if.is_worth_it(&error) {
            return Err(RetryError { error, attempts });
        }
        let delay = policy.delay.min(policy.max_delay);
        policy.delay = Duration::try_from_secs_f64(delay.as_secs_f64() * policy.factor).unwrap_or(Duration::MAX);
        let part = if policy.jitter > 0.0 { current::choose(STEPS) as f64 / (STEPS - 1) as f64 } else { 0.0 };
        let next = Instant::after(if part > 0.0 {
            // (The longest of all times is not a float: it would be rounded up, beyond the end.)
            Duration::try_from_secs_f64(delay.as_secs_f64() * (1.0 - policy.jitter * part)).unwrap_or(delay)
        } else {
            delay
        });
        match policy.max_elapsed {
            Some(elapsed) if next > self.begin + elapsed => Err(RetryError { error, attempts }),
            _ => Ok(next),
        }
    }
}

/// Calls `operation` until it succeeds or `policy` gives up, pausing in between.
///
/// The pause is a [`sleep`](crate::sleep): it parks the fiber, and cancellation ends it. A panic of the operation is not caught.
///
/// ```
/// use fibra::time::RetryPolicy;
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let mut failures = 2;
///     let connected = fibra::retry(RetryPolicy::exponential().initial_delay(Duration::from_millis(1)), || {
///         if failures == 0 {
///             return Ok("connected");
///         }
///         failures -= 1;
///         Err("refused")
///     });
///     assert_eq!(connected, Ok("connected"));
/// });
/// ```
///
/// # Errors
/// The error of the last attempt, with their number.
#[track_caller]
pub fn retry<T, E, F: RetryIf<E>>(
    policy: RetryPolicy<F>,
    mut operation: impl FnMut() -> Result<T, E>,
) -> Result<T, RetryError<E>> {
    retry_with(policy, |_| operation())
}

/// Like [`retry`], and tells the operation which attempt this is, from 1.
///
/// ```
/// use fibra::time::{RetryPolicy, retry_with};
/// use std::time::Duration;
///
/// let third = retry_with(RetryPolicy::fixed(Duration::ZERO), |attempt| if attempt < 3 { Err(attempt) } else { Ok(attempt) });
/// assert_eq!(third, Ok(3));
/// ```
///
/// # Errors
/// As [`retry`].
#[track_caller]
pub fn retry_with<T, E, F: RetryIf<E>>(
    policy: RetryPolicy<F>,
    mut operation: impl FnMut(u32) -> Result<T, E>,
) -> Result<T, RetryError<E>> {
    let mut attempts = Attempts::new(policy);
    loop {
        match operation(attempts.next()) {
            Ok(value) => return Ok(value),
            Err(error) => sleep_until(attempts.pause(error)?),
        }
    }
}

/// Like [`retry_with`], for async operations.
///
/// ```
/// use fibra::time::{RetryPolicy, retry_async};
/// use std::time::Duration;
///
/// let policy = RetryPolicy::fixed(Duration::from_millis(1));
/// let second = retry_async(policy, |attempt| async move { if attempt < 2 { Err("busy") } else { Ok(attempt) } });
/// assert_eq!(fibra::block_on(second), Ok(2));
/// ```
///
/// # Errors
/// As [`retry`].
pub async fn retry_async<T, E, F: RetryIf<E>, A: Future<Output = Result<T, E>>>(
    policy: RetryPolicy<F>,
    mut operation: impl FnMut(u32) -> A,
) -> Result<T, RetryError<E>> {
    let mut attempts = Attempts::new(policy);
    loop {
        match operation(attempts.next()).await {
            Ok(value) => return Ok(value),
            Err(error) => {
                let again = channel::at(attempts.pause(error)?);
                let _ = again.recv_async().await;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The pauses of a policy, without sleeping.
    fn pauses(policy: RetryPolicy, count: usize) -> Vec<Duration> {
        let mut attempts = Attempts::new(policy.max_attempts(u32::MAX));
        (0..count)
            .map(|_| {
                attempts.next();
                let before = Instant::now();
                attempts.pause(()).unwrap() - before
            })
            .collect()
    }

    #[test]
    fn exponential_pauses_double_up_to_the_longest() {
        let policy = || RetryPolicy::exponential().jitter(0.0).max_delay(Duration::from_secs(1));
        for (pause, expected) in pauses(policy(), 8).into_iter().zip([100, 200, 400, 800, 1000, 1000, 1000, 1000]) {
            assert_eq!(pause.as_millis(), expected);
        }
        let jittered = pauses(policy().jitter(1.0), 200);
        assert!(jittered.iter().skip(4).any(|pause| *pause < Duration::from_millis(900)));
        assert!(jittered.iter().all(|pause| *pause <= Duration::from_millis(1005)));
        let half = pauses(policy().jitter(0.5), 200);
        assert!(half.iter().skip(4).all(|pause| *pause >= Duration::from_millis(500)));
    }

    #[test]
    fn pauses_without_bounds_do_not_overflow() {
        let policy = RetryPolicy::fixed(Duration::MAX).factor(f64::MAX).jitter(1.0);
        assert_eq!(pauses(policy, 5).len(), 5);
    }
}
