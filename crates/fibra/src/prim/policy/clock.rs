//! The system's clocks: nanoseconds of the monotonic clock since the process first asked, the cheap cycle counter that decides when to look
//! at that clock again, and the processor time of threads.
//!
//! Above: the seam (`policy`), and no other module. Below: the system.

use std::sync::OnceLock;

/// The moment that counts as 1 ns on fibra's clock. One nanosecond and not zero, so that 0 can mean "never".
#[allow(clippy::disallowed_types)] // This is the facade the lint points to.
fn anchor() -> std::time::Instant {
    static ANCHOR: OnceLock<std::time::Instant> = OnceLock::new();
    *ANCHOR.get_or_init(std::time::Instant::now)
}

/// Nanoseconds since the anchor; never 0, never backwards.
pub(super) fn now() -> u64 {
    // 2^64 ns are 584 years: the cast cannot lose anything in the life of a process.
    anchor().elapsed().as_nanos() as u64 + 1
}

/// The position of `instant` on fibra's clock; moments before the anchor are 0, which is always in the past.
#[allow(clippy::disallowed_types)]
pub(crate) fn from_std(instant: std::time::Instant) -> u64 {
    match instant.checked_duration_since(anchor()) {
        Some(since) => u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).saturating_add(1),
        None => 0,
    }
}

/// Like [`from_std`], but moments before the anchor keep their distance from it: they are negative, or 0.
#[allow(clippy::disallowed_types)]
pub(crate) fn position_of_std(instant: std::time::Instant) -> i128 {
    match anchor().checked_duration_since(instant) {
        // A `Duration` has less than 2^94 nanoseconds.
        Some(before) => 1 - before.as_nanos() as i128,
        None => from_std(instant).into(),
    }
}

/// The std instant that corresponds to `nanos` on fibra's clock, if std can represent it.
#[allow(clippy::disallowed_types)]
pub(crate) fn to_std(nanos: u64) -> Option<std::time::Instant> {
    anchor().checked_add(std::time::Duration::from_nanos(nanos.saturating_sub(1)))
}

/// See [`cycles`](super::cycles).
#[inline(always)]
pub(super) fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `rdtsc` reads a counter and has no other effect; every x86_64 has it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    now()
}

/// Blocks this thread by the system's clock.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn sleep(time: std::time::Duration) {
    std::thread::sleep(time);
}

/// Nanoseconds of processor time that a thread of this process has used. None if it is gone.
#[cfg(not(loom))]
pub(crate) fn cpu_nanos(os_id: u32) -> Option<u64> {
    /// Linux makes the clock of a thread from its number: inverted, above three bits that say "per thread, as the scheduler counts".
    const PER_THREAD_SCHEDULER: libc::clockid_t = 4 | 2;
    let clock = !(os_id as libc::clockid_t) << 3 | PER_THREAD_SCHEDULER;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local `timespec`, which the call fills.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How long a thread has waited for a processor while it could have run, as the kernel counts it.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct RunQueueClock(std::fs::File);

#[cfg(not(any(loom, shuttle)))]
impl RunQueueClock {
    /// That of the calling thread. None where the kernel does not tell (there is no `/proc`, or it does not count).
    pub(crate) fn of_this_thread() -> Option<Self> {
        let clock = Self(std::fs::File::open("/proc/thread-self/schedstat").ok()?);
        clock.nanos().is_some().then_some(clock)
    }

    /// A system call (about 1 µs). Three numbers are in the file: nanoseconds on a processor, nanoseconds waiting, and turns.
    pub(crate) fn nanos(&self) -> Option<u64> {
        let mut text = [0; 96];
        let len = std::os::unix::fs::FileExt::read_at(&self.0, &mut text, 0).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{RunQueueClock, cpu_nanos};
    use crate::prim::thread::os_id;

    #[test]
    fn the_time_for_which_a_thread_waits_for_a_processor_does_not_shrink() {
        let Some(clock) = RunQueueClock::of_this_thread() else { return };
        let before = clock.nanos().unwrap();
        std::thread::yield_now();
        assert!(clock.nanos().unwrap() >= before);
    }

    #[test]
    fn a_thread_that_computes_uses_processor_time() {
        let (id, other) = (os_id(), std::thread::spawn(os_id).join().unwrap());
        assert!(id != 0 && id != other);
        let before = cpu_nanos(id).unwrap();
        while cpu_nanos(id).unwrap() - before < 1_000_000 {
            std::hint::spin_loop();
        }
        assert_eq!(cpu_nanos(u32::MAX >> 4), None, "the kernel's numbers end at 2^22");
    }
}
