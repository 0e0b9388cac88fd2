//! `RateLimiter` and `retry`: never too fast, in order, cancelled at once; errors keep what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{eventually, panic_of, watchdog};
use fibra::time::{Instant, RateError, RateLimiter, RetryPolicy};
use fibra::{retry, retry_async, retry_with};

const LONG: Duration = Duration::from_secs(3600);

// ---- Rates ----------------------------------------------------------------------------------------------------------------

#[test]
fn fibers_threads_and_futures_share_one_rate() {
    let _watchdog = watchdog(60);
    let limiter = Arc::new(RateLimiter::per(1, Duration::from_millis(2)).with_burst(3));
    let begin = Instant::now();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let limiter = limiter.clone();
            std::thread::spawn(move || (0..5).for_each(|_| limiter.acquire()))
        })
        .collect();
    fibra::run(|| {
        let fibers: Vec<_> = (0..2)
            .map(|_| {
                let limiter = limiter.clone();
                fibra::spawn(move || (0..5).for_each(|_| limiter.acquire()))
            })
            .collect();
        let task = fibra::spawn_future({
            let limiter = limiter.clone();
            async move {
                for _ in 0..5 {
                    limiter.acquire_async().await;
                }
            }
        });
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        task.join().unwrap();
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // 25 in all, three of them for nothing.
    assert!(begin.elapsed() >= Duration::from_millis(44), "{:?}", begin.elapsed());
}

#[test]
fn turns_come_in_the_order_of_asking() {
    let _watchdog = watchdog(60);
    let order = fibra::run(|| {
        let limiter = Arc::new(RateLimiter::new(500));
        assert!(limiter.try_acquire());
        let (tx, rx) = fibra::channel::unbounded();
        for index in 0..10 {
            let (limiter, tx) = (limiter.clone(), tx.clone());
            drop(fibra::spawn_local(move || {
                limiter.acquire();
                tx.send((index, Instant::now())).unwrap();
            }));
            // A local fiber has begun after this, and booked its turn.
            fibra::yield_now();
        }
        drop(tx);
        rx.iter().collect::<Vec<_>>()
    });
    let mut by_index = order.clone();
    by_index.sort_unstable();
    // Each has its own moment, at least 2 ms after the one before, however late it is told of it.
    assert!(by_index.is_sorted_by_key(|(_, at)| *at), "{order:?}");
}

#[test]
fn more_than_the_burst_is_an_error_and_none_is_free() {
    let limiter = RateLimiter::new(0.001).with_burst(4);
    assert_eq!(limiter.acquire_many(5), Err(RateError::TooMany { wanted: 5, burst: 4 }));
    assert_eq!(limiter.try_acquire_many(u32::MAX), Err(RateError::TooMany { wanted: u32::MAX, burst: 4 }));
    assert_eq!(fibra::block_on(limiter.acquire_many_async(5)), Err(RateError::TooMany { wanted: 5, burst: 4 }));
    assert_eq!(limiter.acquire_many(4), Ok(()));
    assert_eq!(limiter.acquire_many(0), Ok(()));
    assert_eq!(limiter.try_acquire_many(1), Err(RateError::TimedOut));
}

#[test]
fn timeouts_of_zero_and_without_end() {
    let _watchdog = watchdog(60);
    let limiter = RateLimiter::new(0.001);
    assert_eq!(limiter.acquire_timeout(Duration::ZERO), Ok(()));
    assert_eq!(limiter.acquire_timeout(Duration::ZERO), Err(RateError::TimedOut));
    // Known at once, and nothing is booked: the hour is not waited for.
    assert_eq!(limiter.acquire_timeout(Duration::from_secs(900)), Err(RateError::TimedOut));
    assert_eq!(limiter.acquire_deadline(Instant::now()), Err(RateError::TimedOut));
    assert_eq!(limiter.acquire_many_timeout(1, Duration::from_secs(10)), Err(RateError::TimedOut));
    let limiter = RateLimiter::new(1000);
    assert_eq!(limiter.acquire_timeout(Duration::MAX), Ok(()));
    assert_eq!(limiter.acquire_timeout(Duration::MAX), Ok(()));
    assert_eq!(limiter.acquire_deadline(Instant::FAR_FUTURE), Ok(()));
}

#[test]
fn a_cancelled_wait_gives_its_token_back() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    let limiter = Arc::new(RateLimiter::per(1, LONG));
    assert!(limiter.try_acquire());
    for _ in 0..3 {
        let waiting = limiter.clone();
        let fiber = rt.spawn(move || waiting.acquire());
        eventually(|| rt.metrics().parked == 1, || format!("{:?}", rt.metrics()));
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        // The same for a future that is dropped.
        let mut future = Box::pin(limiter.acquire_async());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    // Its turn is the first after the one that was used: none of the six is still booked.
    assert_eq!(limiter.acquire_timeout(LONG - Duration::from_secs(120)), Err(RateError::TimedOut));
    let waiting = limiter.clone();
    let fiber = rt.spawn(move || waiting.acquire_timeout(LONG));
    eventually(|| rt.metrics().parked == 1 || fiber.is_finished(), || format!("{:?}", rt.metrics()));
    assert!(!fiber.is_finished(), "it waits, so it was booked within the hour");
    fiber.cancel();
    fiber.wait();
}

#[test]
fn rates_that_make_no_sense_are_refused_in_words() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(panic_of(|| drop(RateLimiter::new(rate))).contains("above zero"), "{rate}");
    }
    assert!(panic_of(|| drop(RateLimiter::new(1).with_burst(0))).contains("burst of zero"));
    assert!(panic_of(|| drop(RateLimiter::per(0, LONG))).contains("above zero"));
    assert!(panic_of(|| drop(RateLimiter::per(1, Duration::ZERO))).contains("period of zero"));
    // The extremes that do: as fast as it gets, and once in a lifetime.
    let fast = RateLimiter::new(f64::MAX);
    (0..1000).for_each(|_| fast.acquire());
    let slow = RateLimiter::per(1, Duration::MAX).with_burst(u32::MAX);
    assert!(slow.try_acquire());
    println!("{slow:?} {}", RateError::TimedOut);
}

// ---- Trying again ---------------------------------------------------------------------------------------------------------

#[test]
fn gives_up_after_so_many_attempts_and_keeps_the_last_error() {
    let policy = || RetryPolicy::fixed(Duration::ZERO);
    let mut calls = 0;
    let error = retry(policy().max_attempts(3), || {
        calls += 1;
        Err::<(), _>(format!("failure {calls}"))
    })
    .unwrap_err();
    assert_eq!((error.attempts(), error.error().as_str(), calls), (3, "failure 3", 3));
    assert_eq!(error.to_string(), "gave up after 3 attempts: failure 3");
    assert_eq!(error.into_inner(), "failure 3");
    // Five if nothing is said.
    assert_eq!(retry_with(policy(), Err::<(), _>).unwrap_err().attempts(), 5);
    assert_eq!(retry_with(RetryPolicy::fixed(LONG).max_attempts(1), Err::<(), _>).unwrap_err().into_inner(), 1);
    assert_eq!(
        fibra::block_on(retry_async(policy(), async |attempt| Err::<(), _>(attempt))).unwrap_err().attempts(),
        5
    );
}

#[test]
fn time_ends_it_before_the_pause_that_would_be_too_long() {
    let _watchdog = watchdog(60);
    let begin = Instant::now();
    let error = retry_with(RetryPolicy::fixed(LONG).max_elapsed(Duration::from_secs(60)), Err::<(), _>).unwrap_err();
    assert_eq!(error.attempts(), 1);
    // With a limit of time there is none of attempts.
    let policy = RetryPolicy::fixed(Duration::ZERO).max_elapsed(LONG);
    assert_eq!(retry_with(policy, |attempt| if attempt < 8 { Err(()) } else { Ok(attempt) }), Ok(8));
    assert!(begin.elapsed() < Duration::from_secs(50));
    let none = RetryPolicy::fixed(Duration::ZERO).max_elapsed(Duration::ZERO);
    assert_eq!(retry_with(none, Err::<(), _>).unwrap_err().attempts(), 1);
}

#[test]
fn an_error_that_is_not_worth_it_ends_it() {
    let policy = RetryPolicy::exponential().initial_delay(Duration::ZERO).retry_if(|attempt: &u32| *attempt < 3);
    assert_eq!(retry_with(policy, Err::<(), _>).unwrap_err().attempts(), 3);
}

#[test]
fn cancellation_ends_the_pause_and_panics_pass_through() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let fiber = rt.spawn(move || {
        let _ = retry(RetryPolicy::fixed(LONG), || {
            counted.fetch_add(1, SeqCst);
            Err::<(), _>(())
        });
    });
    eventually(|| rt.metrics().parked == 1, || format!("{:?}", rt.metrics()));
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(calls.load(SeqCst), 1);
    let said = panic_of(|| {
        let _ = retry(RetryPolicy::fixed(Duration::ZERO), || -> Result<(), ()> { panic!("not to be tried again") });
    });
    assert_eq!(said, "not to be tried again");
}

#[test]
fn policies_that_make_no_sense_are_refused_in_words() {
    let policy = || RetryPolicy::exponential();
    assert!(panic_of(|| drop(policy().max_attempts(0))).contains("zero attempts"));
    for factor in [0.5, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(panic_of(|| drop(policy().factor(factor))).contains("at least 1"), "{factor}");
    }
    for jitter in [-0.1, 1.1, f64::NAN] {
        assert!(panic_of(|| drop(policy().jitter(jitter))).contains("from 0 to 1"), "{jitter}");
    }
}
