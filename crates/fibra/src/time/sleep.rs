//! Sleeping: a wait that only its deadline (or cancellation) ends. Above: users, `retry`, `rate`. Below: `wait::park`.

use std::panic::Location;
use std::time::Duration;

use super::Instant;
use crate::wait::park::{self, Wait};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Nothing;

/// Sleeps for at least `duration`: the fiber, not its worker. A plain thread sleeps as a whole. `Duration::ZERO` is a yield.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let begin = fibra::time::Instant::now();
///     fibra::sleep(Duration::from_millis(2));
///     assert!(begin.elapsed() >= Duration::from_millis(2));
/// });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) {
    if duration.is_zero() {
        return park::yield_now();
    }
    sleep_to(Instant::after(duration), Location::caller());
}

/// Sleeps until `deadline`, never less. A deadline in the past is a yield.
///
/// ```
/// use fibra::time::Instant;
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let deadline = Instant::now() + Duration::from_millis(2);
///     fibra::sleep_until(deadline);
///     assert!(Instant::now() >= deadline);
/// });
/// ```
#[track_caller]
pub fn sleep_until(deadline: impl Into<Instant>) {
    let deadline = deadline.into();
    if deadline <= Instant::now() {
        return park::yield_now();
    }
    sleep_to(deadline, Location::caller());
}

fn sleep_to(deadline: Instant, site: &'static Location<'static>) {
    let how = Wait { reason: WaitReason::Sleep, object: 0, site, deadline: Some(deadline.as_nanos()) };
    let _ = park::wait(&Nothing, how);
}
