//! Captures of threads that compute or are blocked, and handlers that come too late.

use super::{Snapshot, blocked, computing, stack_and_pc};
use crate::fiber::testing::passes_in_child;
use crate::monitor::fork;
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::policy;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::prim::thread::os_id;
use std::sync::Arc;
use std::time::Duration;

/// There is one buffer per process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(super) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock()
}

fn mask_signal(how: libc::c_int) {
    // SAFETY: a zeroed set is overwritten, and the mask is this thread's own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, super::SIGNAL);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

/// A thread that spins until it is told to end, at first perhaps with the signal held back.
struct Spinner {
    id: u32,
    /// An address on its stack.
    place: usize,
    open: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Spinner {
    fn start(held_back: bool) -> Self {
        let (open, stop) = (Arc::new(AtomicBool::new(!held_back)), Arc::new(AtomicBool::new(false)));
        let (says, hears) = std::sync::mpsc::channel();
        let thread = {
            let (open, stop) = (open.clone(), stop.clone());
            std::thread::spawn(move || {
                if held_back {
                    mask_signal(libc::SIG_BLOCK);
                }
                let place = 0u8;
                says.send((os_id(), (&raw const place).addr())).unwrap();
                spin_for_the_test(&open);
                mask_signal(libc::SIG_UNBLOCK);
                spin_for_the_test(&stop);
                std::hint::black_box(&place);
            })
        };
        let (id, place) = hears.recv().unwrap();
        Self { id, place, open, stop, thread: Some(thread) }
    }

    fn is_of(&self, snapshot: &Snapshot) -> bool {
        (snapshot.sp as usize).abs_diff(self.place) < 1 << 16
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.open.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[inline(never)]
fn spin_for_the_test(until: &AtomicBool) {
    while !until.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    super::super::name(snapshot).iter().map(|frame| frame.name().to_owned()).collect()
}

/// On a busy machine a thread may get no processor for long.
fn patiently(thread: u32) -> Snapshot {
    loop {
        match computing(thread) {
            Ok(snapshot) => return snapshot,
            Err(why) => assert!(why.contains("did not answer") || why.contains("being looked at"), "{why}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_thread_that_computes_shows_its_functions() {
    let _alone = alone();
    let spinner = Spinner::start(false);
    loop {
        let snapshot = patiently(spinner.id);
        assert!(spinner.is_of(&snapshot), "{:#x} {:#x}", snapshot.sp, spinner.place);
        let names = names(&snapshot);
        assert!(names.iter().any(|name| name.contains("thread_start")), "to the outermost: {names:#?}");
        // It may not have come to spinning yet.
        if names.iter().any(|name| name.ends_with("spin_for_the_test")) {
            break;
        }
    }
}

#[test]
fn a_thread_that_is_blocked_shows_its_functions() {
    let _alone = alone();
    let (read, write) = std::io::pipe().unwrap();
    let id = Arc::new(AtomicU32::new(0));
    let says = id.clone();
    #[inline(never)]
    fn read_for_the_test(mut from: std::io::PipeReader) {
        let _ = std::io::Read::read(&mut from, &mut [0]);
        std::hint::black_box(());
    }
    let thread = std::thread::spawn(move || {
        says.store(os_id(), Ordering::Relaxed);
        read_for_the_test(read);
    });
    let names = loop {
        let id = id.load(Ordering::Relaxed);
        let names = blocked(id).map(|snapshot| names(&snapshot)).unwrap_or_default();
        if names.iter().any(|name| name.ends_with("read_for_the_test")) {
            break names;
        }
        std::thread::yield_now();
    };
    assert!(names.iter().any(|name| name.contains("read")), "{names:#?}");
    drop(write);
    thread.join().unwrap();
}

#[test]
fn a_handler_that_comes_late_answers_no_other_request() {
    let _alone = alone();
    let (first, second) = (Spinner::start(true), Spinner::start(true));
    assert_eq!(computing(first.id).unwrap_err(), "the thread did not answer a signal");
    // The signal is pending there. It is delivered while another thread is asked.
    let asked = second.id;
    let asking = std::thread::spawn(move || patiently(asked));
    first.open.store(true, Ordering::Relaxed);
    // Asked again, and this time it answers: its own request, or none. The other thread is asked at the same time.
    let again = loop {
        match computing(first.id) {
            Ok(snapshot) => break snapshot,
            Err(why) => assert!(why.contains("did not answer") || why.contains("being looked at"), "{why}"),
        }
        second.open.store(true, Ordering::Relaxed);
        std::thread::yield_now();
    };
    assert!(first.is_of(&again), "{:#x} {:#x}", again.sp, first.place);
    second.open.store(true, Ordering::Relaxed);
    let snapshot = asking.join().unwrap();
    assert!(second.is_of(&snapshot), "{:#x} {:#x}", snapshot.sp, second.place);
}

#[test]
fn two_that_ask_get_the_answers_of_those_they_asked() {
    let _alone = alone();
    let spinners: Arc<Vec<Spinner>> = Arc::new((0..3).map(|_| Spinner::start(false)).collect());
    let askers: Vec<_> = (0..2)
        .map(|first| {
            let spinners = spinners.clone();
            std::thread::spawn(move || {
                let mut answers = 0;
                for round in 0.. {
                    let asked = &spinners[(first + round) % spinners.len()];
                    if let Ok(snapshot) = computing(asked.id) {
                        assert!(asked.is_of(&snapshot), "{:#x} {:#x}", snapshot.sp, asked.place);
                        answers += 1;
                    }
                    if answers == 100 {
                        break;
                    }
                }
            })
        })
        .collect();
    askers.into_iter().for_each(|asker| asker.join().unwrap());
}

// The handler of one request publishes its answer, which is read, and rings; by then the next request may be under way.
#[test]
fn a_bell_that_rings_for_another_request_does_not_end_the_wait() {
    let _alone = alone();
    let spinner = Spinner::start(true);
    let rings = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(20));
        super::BUFFER.bell.fetch_add(1, Ordering::Relaxed);
    });
    let before = policy::now();
    assert_eq!(computing(spinner.id).unwrap_err(), "the thread did not answer a signal");
    let waited = Duration::from_nanos(policy::now() - before);
    rings.join().unwrap();
    assert!(waited > Duration::from_millis(150), "{waited:?}");
}

#[test]
fn a_thread_that_has_ended_is_not_waited_for() {
    let _alone = alone();
    let ended = std::thread::spawn(os_id).join().unwrap();
    // Joined, but the kernel may take a moment to forget it.
    loop {
        match computing(ended) {
            Err("the thread has ended") => break,
            Err(_) | Ok(_) => std::thread::yield_now(),
        }
    }
    assert!(blocked(ended).is_err());
}

#[test]
fn errno_is_kept() {
    let _alone = alone();
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: likewise.
    unsafe { *errno = 4321 };
    super::handler(super::SIGNAL, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: likewise.
    assert_eq!(unsafe { *errno }, 4321);
}

#[test]
fn stack_and_instruction_are_the_last_words() {
    let futex = "202 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffd00 0x7f4e00\n";
    assert_eq!(stack_and_pc(futex), Some((0x7ffd00, 0x7f4e00)));
    assert_eq!(stack_and_pc("-1 0x7ffd00 0x7f4e00\n"), Some((0x7ffd00, 0x7f4e00)));
    assert_eq!(stack_and_pc("running\n"), None);
    assert_eq!(stack_and_pc(""), None);
    assert_eq!(stack_and_pc("0 0x0 0x0"), None, "a thread of the kernel's");
}

/// Runs `f` in a child of a fork, which has some seconds for it.
fn in_a_fork(f: impl FnOnce()) {
    // SAFETY: the child does what is under test, which has to work there, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(20);
            f();
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child ended with status {status:#x}");
    }
}

// The stalled fiber forks while it is being asked, or another one does.
#[test]
fn a_forked_child_does_not_wait_for_who_was_asked_in_the_parent() {
    const TEST: &str =
        "monitor::stall::trace::capture::tests::a_forked_child_does_not_wait_for_who_was_asked_in_the_parent";
    passes_in_child(TEST, &[], || {
        fork::set_up(|| ());
        let _alone = alone();
        assert!(super::BUFFER.claim.ask(7));
        in_a_fork(|| assert!(computing(os_id()).is_ok()));
        assert_eq!(computing(os_id()).unwrap_err(), "another thread is being looked at");
    });
}

/// Says that it is over, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// Naming takes long, and the locks that it holds are not fibra's to let go of.
#[test]
fn a_forked_child_does_not_wait_for_a_naming_in_the_parent() {
    const TEST: &str = "monitor::stall::trace::capture::tests::a_forked_child_does_not_wait_for_a_naming_in_the_parent";
    passes_in_child(TEST, &[], || {
        fork::set_up(|| ());
        let snapshot = super::of_this_thread();
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    names(&snapshot);
                }
            });
            let _over = Ends(&over);
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(3));
                in_a_fork(|| {
                    if let Ok(snapshot) = super::super::computing(os_id()) {
                        names(&snapshot);
                    }
                });
            }
        });
    });
}
