//! The driver on Linux: an epoll instance, and an eventfd in it for kicks.
//!
//! Above: `driver::Driver`. Below: the kernel.
//!
//! * The eventfd is registered edge-triggered: every write queues one event in the epoll instance, whatever the counter says, and
//!   delivering the event takes it out of the queue. So a kick before the wait is kept, and the counter need not be read back.
//! * Descriptors are registered edge-triggered, one entry for both directions. The kernel reports what is possible when an entry is added
//!   or changed, and from then on every change: so a waiter that got `EAGAIN` *before* the entry was made misses nothing.
//! * An entry is removed before its descriptor is closed, by the descriptor that made it: a duplicate would keep it alive.
//! * Waiting for a certain time uses `epoll_pwait2` (Linux 5.11), whose time-out counts nanoseconds. Where it is missing, `epoll_wait` and
//!   its milliseconds serve, rounded up: late by less than a millisecond, never early.
//! * A key given to [`Registrar::tell`] lies in a list beside the kernel's queue; the kick that follows it ends the wait after which it is
//!   reported. It counts as an entry until then, so that a busy loop looks here.
//! * A kernel time-out is not believed but compared with the clock that timers use, and the wait goes on if that says so.

use super::{Completion, Interest, Key, Kicker, Platform, Timeout};
use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::prim::policy;
use crate::prim::spin::SpinLock;
use crate::prim::sync::Arc;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Weak;
use std::{fmt, io, ptr};

/// The event data of the eventfd. Keys are never all ones.
const KICK: u64 = u64::MAX;
/// Events fetched per call: enough to share one call among many, and few enough that fibers run in between. Events that are left stay in
/// the kernel's queue, before later ones.
const MAX_EVENTS: usize = 256;
const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

/// Whether `epoll_pwait2` exists here. The first wait of the process finds out.
static NANOSECOND_WAIT: AtomicBool = AtomicBool::new(true);

pub(super) struct Epoll {
    instance: Arc<Instance>,
    /// What the last call fetched: `events[taken..fetched]` is still to be reported.
    events: Box<[libc::epoll_event; MAX_EVENTS]>,
    taken: usize,
    fetched: usize,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// What the owner and the registrars share.
#[derive(Debug)]
struct Instance {
    epoll: OwnedFd,
    kicker: Kicker,
    /// The number of entries, without the eventfd, and of keys in `told`.
    entries: AtomicUsize,
    /// Keys to be reported although the kernel reports nothing for them.
    told: SpinLock<Vec<Key>>,
    /// How many are in `told`.
    told_count: AtomicUsize,
    /// The process it was made in. A child of a fork shares it, and must leave the parent's entries alone.
    process: u32,
}

/// Begins and ends standing operations, from any thread. See the header.
#[derive(Debug, Clone)]
pub(crate) struct Registrar(Arc<Instance>);

/// A registrar that does not keep its driver's descriptor open.
#[derive(Debug, Clone)]
pub(crate) struct WeakRegistrar(Weak<Instance>);

impl WeakRegistrar {
    /// None: the driver is gone, and with it everything that was registered there; or it belongs to the process that forked this one.
    pub(crate) fn upgrade(&self) -> Option<Registrar> {
        self.0.upgrade().filter(|instance| instance.process == std::process::id()).map(Registrar)
    }

    /// The identity of the driver: no other driver has this for as long as this one exists.
    #[inline]
    pub(crate) fn id(&self) -> *const () {
        self.0.as_ptr().cast()
    }
}

impl Registrar {
    pub(crate) fn downgrade(&self) -> WeakRegistrar {
        WeakRegistrar(Arc::downgrade(&self.0))
    }

    /// The same as [`id`](WeakRegistrar::id) of its weak ones.
    #[inline]
    pub(crate) fn id(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    /// Is anything watched? A hint, unless the calling thread registered it.
    #[inline(always)]
    pub(crate) fn is_in_use(&self) -> bool {
        // Relaxed: the worker that sleeps looks at the kernel, not at this; a busy one looks sooner or later.
        self.0.entries.load(Ordering::Relaxed) != 0
    }

    /// Watches `to` of a descriptor from now on, where `from` was watched before with the same key.
    pub(crate) fn watch(&self, descriptor: RawFd, key: Key, from: Interest, to: Interest) -> io::Result<()> {
        let operation = match (from, to) {
            (Interest::NONE, Interest::NONE) => return Ok(()),
            (Interest::NONE, _) => libc::EPOLL_CTL_ADD,
            (_, Interest::NONE) => libc::EPOLL_CTL_DEL,
            _ => libc::EPOLL_CTL_MOD,
        };
        let mut events = libc::EPOLLET;
        if to.contains(Interest::READ) {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI;
        }
        if to.contains(Interest::WRITE) {
            events |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event { events: events as u32, u64: key.to_bits() };
        // SAFETY: `event` lives through the call; descriptors are numbers, and one that is not open is an error.
        let done = unsafe { libc::epoll_ctl(self.0.epoll.as_raw_fd(), operation, descriptor, &raw mut event) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // Relaxed, both: a hint.
        match operation {
            libc::EPOLL_CTL_ADD => _ = self.0.entries.fetch_add(1, Ordering::Relaxed),
            libc::EPOLL_CTL_DEL => _ = self.0.entries.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        Ok(())
    }

    /// Has the driver report this key once, as ready in both directions and at its end: its descriptor is not watched any more, and the
    /// driver's owner has to find out.
    pub(crate) fn tell(&self, key: Key) {
        self.0.told.with(|told| {
            told.push(key);
            // Relaxed, both: hints; the lock orders the list, and the kick comes after it.
            self.0.told_count.store(told.len(), Ordering::Relaxed);
            self.0.entries.fetch_add(1, Ordering::Relaxed);
        });
        self.0.kicker.kick();
    }
}

impl Instance {
    #[cold]
    fn take_told(&self) -> Option<Completion> {
        let key = self.told.with(|told| {
            let key = told.pop()?;
            // Relaxed, both: as in `tell`.
            self.told_count.store(told.len(), Ordering::Relaxed);
            self.entries.fetch_sub(1, Ordering::Relaxed);
            Some(key)
        })?;
        Some(Completion { key, ready: Interest::READ | Interest::WRITE, ends: true })
    }
}

impl Platform for Epoll {
    type Registrar = Registrar;

    fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let epoll = own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }, "an epoll instance")?;
        // SAFETY: the call takes no pointers.
        let event = own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }, "an eventfd")?;
        let mut interest = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: KICK };
        // SAFETY: both descriptors are open, and `interest` lives through the call.
        let registered =
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event.as_raw_fd(), &raw mut interest) };
        if registered < 0 {
            return Err(failure("a place for the eventfd in the epoll instance"));
        }
        Ok(Self {
            instance: Arc::new(Instance {
                epoll,
                kicker: Kicker { event: Arc::new(event) },
                entries: AtomicUsize::new(0),
                told: SpinLock::new(Vec::new()),
                told_count: AtomicUsize::new(0),
                process: std::process::id(),
            }),
            events: Box::new([NO_EVENT; MAX_EVENTS]),
            taken: 0,
            fetched: 0,
        })
    }

    fn wait(&mut self, timeout: Timeout) -> io::Result<u64> {
        while self.taken < self.fetched && self.events[self.taken].u64 == KICK {
            // A kick has had its effect by ending the wait.
            self.taken += 1;
        }
        if self.taken < self.fetched {
            // Completions are left to be reported.
            return Ok(policy::now());
        }
        (self.taken, self.fetched) = (0, 0);
        wait_on(timeout, &NANOSECOND_WAIT, |precision, left| match (precision, left) {
            (Precision::Nanoseconds, Some(1..)) => self.wait_nanoseconds(left),
            // No time, and unlimited time, are exact in milliseconds, and the older call is cheaper.
            _ => self.wait_milliseconds(left),
        })
    }

    fn has_fetched(&self) -> bool {
        self.taken < self.fetched
    }

    fn next_completion(&mut self) -> Option<Completion> {
        while self.taken < self.fetched {
            let event = self.events[self.taken];
            self.taken += 1;
            // A kick has had its effect by ending the wait.
            if event.u64 != KICK {
                let ends = event.events & ENDS != 0;
                return Some(Completion { key: Key::from_bits(event.u64), ready: possible(event.events), ends });
            }
        }
        // Relaxed: what was told before the kick that ended the wait is seen, since the kernel orders a write to an eventfd before the
        // wait that it ends; what is told later ends the next wait.
        if self.instance.told_count.load(Ordering::Relaxed) != 0 { self.instance.take_told() } else { None }
    }

    fn kicker(&self) -> Kicker {
        self.instance.kicker.clone()
    }

    fn registrar(&self) -> Registrar {
        Registrar(self.instance.clone())
    }
}

/// More than data: the end of the stream, an error, or urgent data, before which a read stops although there is more.
const ENDS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;

/// What these events make possible.
fn possible(events: u32) -> Interest {
    const READ: u32 = libc::EPOLLIN as u32 | ENDS; // Readable, or its end.
    const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32; // Writable, or broken.
    let read = if events & READ != 0 { Interest::READ } else { Interest::NONE };
    let write = if events & WRITE != 0 { Interest::WRITE } else { Interest::NONE };
    read | write
}

impl Epoll {
    fn wait_nanoseconds(&mut self, left: Option<u64>) -> io::Result<usize> {
        /// The time structure of the system call, which has 64 bits on every platform.
        #[repr(C)]
        struct KernelTime {
            seconds: i64,
            nanoseconds: i64,
        }
        let time = left.map(|left| KernelTime {
            seconds: (left / 1_000_000_000) as i64,
            nanoseconds: (left % 1_000_000_000) as i64,
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: `events` has room for the number that is passed, `time` is null or lives through the call, and there is no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.instance.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                MAX_EVENTS,
                time,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        self.fetched_or_error(usize::try_from(count))
    }

    fn wait_milliseconds(&mut self, left: Option<u64>) -> io::Result<usize> {
        // Rounded up; a time that does not fit (24 days) is waited for in several calls.
        let time = left.map_or(-1, |left| i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: `events` has room for the number that is passed.
        let count = unsafe {
            libc::epoll_wait(self.instance.epoll.as_raw_fd(), self.events.as_mut_ptr(), MAX_EVENTS as i32, time)
        };
        self.fetched_or_error(usize::try_from(count))
    }
}

impl Epoll {
    fn fetched_or_error<E>(&mut self, count: Result<usize, E>) -> io::Result<usize> {
        self.fetched = count.map_err(|_| io::Error::last_os_error())?;
        Ok(self.fetched)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Nanoseconds,
    Milliseconds,
}

/// Waits by asking `kernel`, which is told how many nanoseconds are left (`None`: for ever) and answers with the number of events, until
/// there is something to report. `nanoseconds` says whether the kernel is known to lack the precise call, and learns it.
fn wait_on(
    timeout: Timeout,
    nanoseconds: &AtomicBool,
    mut kernel: impl FnMut(Precision, Option<u64>) -> io::Result<usize>,
) -> io::Result<u64> {
    // Relaxed: the flag orders nothing; a thread that reads an old value makes one call that fails and falls back.
    let mut precision =
        if nanoseconds.load(Ordering::Relaxed) { Precision::Nanoseconds } else { Precision::Milliseconds };
    // A caller that does not wait, or waits for ever, does not need the time.
    let mut now = if let Timeout::Until(1..) = timeout { policy::now() } else { 0 };
    loop {
        let left = match timeout {
            Timeout::Until(deadline) => Some(policy::patience(deadline.saturating_sub(now))),
            Timeout::Forever => None,
        };
        let outcome = kernel(precision, left);
        now = policy::now();
        match outcome {
            Ok(0) => match timeout {
                Timeout::Until(deadline) if now >= deadline => return Ok(now),
                // The kernel's clock, or the longest time-out that it takes, ran out before the deadline.
                Timeout::Until(_) | Timeout::Forever => {}
            },
            Ok(_) => return Ok(now),
            Err(error) => match error.raw_os_error() {
                // A signal may have changed what the loop wants to do, so the loop decides.
                Some(libc::EINTR) => return Ok(now),
                // Old system call filters of containers answer EPERM instead of ENOSYS; the call itself never does.
                Some(libc::ENOSYS | libc::EPERM) if precision == Precision::Nanoseconds => {
                    precision = Precision::Milliseconds;
                    // Relaxed: as above.
                    nanoseconds.store(false, Ordering::Relaxed);
                }
                _ => return Err(error),
            },
        }
    }
}

/// Takes ownership of a new descriptor, or says what could not be had.
fn own(descriptor: RawFd, what: &'static str) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(failure(what));
    }
    // SAFETY: a system call just returned it, so it is open and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The last system error as one that says what was being made and what to do.
#[cold]
fn failure(what: &'static str) -> io::Error {
    let cause = io::Error::last_os_error();
    io::Error::new(cause.kind(), DriverError { what, cause })
}

#[derive(Debug)]
struct DriverError {
    what: &'static str,
    cause: io::Error,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot create {} for a worker: {}", self.what, self.cause)?;
        match self.cause.raw_os_error() {
            Some(libc::EMFILE) => f.write_str(
                "; each worker takes two file descriptors: raise the limit of this process (ulimit -n) or use \
                 fewer workers",
            ),
            Some(libc::ENFILE) => {
                f.write_str("; the whole system is out of file descriptors: raise fs.file-max or close some elsewhere")
            }
            Some(libc::ENOMEM) => f.write_str("; the kernel is out of memory"),
            Some(libc::ENOSPC) => {
                f.write_str("; this user watches too many descriptors: raise fs.epoll.max_user_watches")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for DriverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn milliseconds_serve_when_nanoseconds_are_missing() {
        let mut driver = Epoll::new().unwrap();
        let start = policy::now();
        assert_eq!(driver.wait_milliseconds(Some(1_000_001)).unwrap(), 0);
        assert!(policy::now() - start >= 1_500_000, "rounded up to two milliseconds");
        driver.kicker().kick();
        assert_eq!(driver.wait_milliseconds(None).unwrap(), 1);
        assert_eq!(driver.wait_milliseconds(Some(0)).unwrap(), 0);
        driver.kicker().kick();
        assert_eq!(driver.wait_milliseconds(Some(u64::MAX)).unwrap(), 1);
    }

    #[test]
    fn a_kernel_that_returns_early_is_asked_again() {
        let deadline = policy::now() + 3_000_000;
        let mut asked = Vec::new();
        let now = wait_on(Timeout::Until(deadline), &AtomicBool::new(true), |_, left| {
            asked.push(left.unwrap());
            Ok(0)
        });
        assert!(now.unwrap() >= deadline);
        assert!(asked.len() > 1 && asked.is_sorted_by(|a, b| a >= b) && asked[0] <= 3_000_000);
    }

    #[test]
    fn a_kernel_without_the_precise_call_is_asked_once_for_it() {
        for missing in [libc::ENOSYS, libc::EPERM] {
            let flag = AtomicBool::new(true);
            let mut precise = 0;
            for _ in 0..3 {
                let outcome = wait_on(Timeout::Forever, &flag, |precision, left| {
                    assert_eq!(left, None);
                    if precision == Precision::Milliseconds {
                        return Ok(1);
                    }
                    precise += 1;
                    Err(io::Error::from_raw_os_error(missing))
                });
                outcome.unwrap();
            }
            assert_eq!(precise, 1);
        }
    }

    #[test]
    fn a_signal_returns_and_an_error_is_reported() {
        let answer = |code| {
            let mut answers = [Err(io::Error::from_raw_os_error(code)), Ok(1)].into_iter();
            // A second call of the closure means that its first answer was swallowed.
            wait_on(Timeout::Forever, &AtomicBool::new(true), |_, _| {
                assert_eq!(answers.len(), 2);
                answers.next().unwrap()
            })
        };
        assert!(answer(libc::EINTR).is_ok());
        assert_eq!(answer(libc::EBADF).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn descriptors_close_on_exec() {
        let driver = Epoll::new().unwrap();
        for descriptor in [driver.instance.epoll.as_raw_fd(), driver.instance.kicker.event.as_raw_fd()] {
            // SAFETY: the descriptor is open, and the call takes no pointers.
            assert_ne!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } & libc::FD_CLOEXEC, 0);
        }
    }

    /// Whether this is the process that was started for `test` alone, where no other test opens descriptors or changes their limit.
    /// Elsewhere, starts that process, asserts that the test passed there, and returns false.
    fn alone(test: &str) -> bool {
        if std::env::var_os("FIBRA_TEST_ALONE").is_some() {
            return true;
        }
        let name = format!("driver::epoll::tests::{test}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env("FIBRA_TEST_ALONE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        false
    }

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn drivers_leak_no_descriptor() {
        if !alone("drivers_leak_no_descriptor") {
            return;
        }
        let before = open_descriptors();
        for _ in 0..1000 {
            let mut driver = Epoll::new().unwrap();
            let kicker = driver.kicker();
            assert_eq!(open_descriptors(), before + 2);
            kicker.kick();
            driver.wait(Timeout::Forever).unwrap();
        }
        assert_eq!(open_descriptors(), before);
    }

    #[test]
    fn the_error_names_the_limit() {
        if !alone("the_error_names_the_limit") {
            return;
        }
        let used = open_descriptors();
        let limit = libc::rlimit { rlim_cur: used as u64 + 3, rlim_max: used as u64 + 3 };
        // SAFETY: `limit` lives through the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut drivers = Vec::new();
        let error = loop {
            match Epoll::new() {
                Ok(driver) => drivers.push(driver),
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(text.contains("ulimit -n") && (text.contains("epoll") || text.contains("eventfd")), "{text}");
        // A creation that failed half-way gave back what it had.
        drivers.clear();
        assert!(Epoll::new().is_ok());
    }

    #[test]
    fn a_signal_ends_a_wait() {
        if !alone("a_signal_ends_a_wait") {
            return;
        }
        extern "C" fn nothing(_: libc::c_int) {}
        let mut driver = Epoll::new().unwrap();
        // SAFETY: the handler does nothing; without SA_RESTART nothing is restarted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
        }
        // SAFETY: the call takes no pointers.
        let me = unsafe { libc::pthread_self() };
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let signalling = crate::prim::thread::start("signalling".into(), move || {
            // Repeated, since the first one may come before the wait. Relaxed: the join below orders.
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the waiting thread joins this one, so it exists.
                unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        driver.wait(Timeout::Forever).unwrap();
        done.store(true, Ordering::Relaxed);
        signalling.unwrap().join().unwrap();
    }
}
