//! OS threads: starting named ones, giving the time slice away, and what the system calls and charges them.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread::yield_now;

pub(crate) use std::thread::JoinHandle;

/// Starts a named OS thread. Fails (it does not panic) when the system has no thread left to give.
#[cfg(not(loom))]
pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body)
}

/// The system's number of the calling thread; never 0.
#[cfg(not(loom))]
pub(crate) fn os_id() -> u32 {
    // SAFETY: takes nothing, cannot fail. (The function of that name is missing from older C libraries.)
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    id as u32
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{cpu_nanos, os_id};

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
