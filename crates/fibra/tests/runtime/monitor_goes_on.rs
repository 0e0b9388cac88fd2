//! Sysmon goes on with its work although standard error takes nothing, and although a waker that it has called blocks.
#![allow(clippy::disallowed_types)] // What blocks the thread must not be fibra's.
#![cfg(not(any(fibra_asan, fibra_tsan)))]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::elastic::{MOMENT, elastic, pool};
use crate::support::{eventually, is_child, rerun_self, watchdog};
use fibra::Runtime;

/// Puts a pipe in the place of standard error that is full and that no process reads. Returns its other end.
fn fill_standard_error() -> std::io::PipeReader {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let fd = writer.as_raw_fd();
    // SAFETY: system calls on descriptors of our own, without pointers.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        while writer.write(&[b'.'; 4096]).is_ok() {}
        while writer.write(b".").is_ok() {}
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags), 0);
        assert_eq!(libc::dup2(fd, 2), 2);
    }
    reader
}

/// The limit that leaves room for one more descriptor: enough to read `/proc`, too few for a driver.
fn room_for_one() -> u64 {
    // SAFETY: a system call without pointers; a number that is not open is an error.
    let is_free = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1;
    (0..).filter(is_free).nth(1).unwrap() as u64
}

/// Sets the limit and returns the one before.
fn limit_descriptors(to: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to a local.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, to);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        before
    }
}

// S1-108, X-08: sysmon has something to say (it cannot start a worker: there is no descriptor for its driver), and standard error is
// full. It tries again all the same, and when there is a descriptor the fibers behind the stuck worker run on a new one.
#[test]
fn a_full_pipe_does_not_hold_up_rescue() {
    const TEST: &str = "a_full_pipe_does_not_hold_up_rescue";
    if is_child(TEST) {
        let watchdog = watchdog(100);
        let rt = elastic(1, 2).build().unwrap();
        let reader = fill_standard_error();
        let before = limit_descriptors(room_for_one());
        let ran = Arc::new(AtomicBool::new(false));
        let waiting = rt.run({
            let (ran, handle) = (ran.clone(), rt.handle());
            move || {
                let waiting = fibra::spawn({
                    let ran = ran.clone();
                    move || ran.store(true, SeqCst)
                });
                // Blocks the only worker until another one has run the fiber.
                while handle.metrics().pool.not_started == 0 {
                    std::thread::sleep(MOMENT);
                }
                limit_descriptors(before);
                while !ran.load(SeqCst) {
                    std::thread::sleep(MOMENT);
                }
                waiting
            }
        });
        waiting.join().unwrap();
        assert_eq!(pool(&rt).promoted, 1);
        // What it had to say comes out as soon as the pipe is read.
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            use std::io::Read;
            let (mut reader, mut said) = (reader, Vec::new());
            let mut piece = [0; 4096];
            while !String::from_utf8_lossy(&said).contains("no other can be started") {
                let length = reader.read(&mut piece).unwrap();
                said.extend_from_slice(&piece[..length]);
            }
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        drop((rt, watchdog));
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "0")]);
    assert!(ended.status.success(), "{ended:?}");
}

/// Blocks the thread that calls it until `go` says so.
struct Blocks {
    called: AtomicBool,
    go: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.called.store(true, SeqCst);
        self.go.lock().unwrap().recv().unwrap();
    }
}

struct Tells(AtomicBool);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

// Two futures wait for time on a worker that gets stuck, so that sysmon must call their wakers. The first waker blocks; the second is
// called.
#[test]
fn a_waker_that_blocks_does_not_hold_up_the_next() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(1).max_workers(1).build().unwrap();
    let (go, wait) = mpsc::channel();
    let blocks = Arc::new(Blocks { called: AtomicBool::new(false), go: std::sync::Mutex::new(wait) });
    rt.run({
        let blocks = blocks.clone();
        move || {
            // Time may be up before the futures are polled, if this thread has no processor meanwhile. Then it is later.
            for soon in [5, 50, 500, 5000].map(Duration::from_millis) {
                let (first, second) = (fibra::channel::after(soon), fibra::channel::after(2 * soon));
                let (mut first, mut second) = (pin!(first.recv_async()), pin!(second.recv_async()));
                let waits = |future: std::pin::Pin<&mut dyn Future<Output = _>>, waker: Waker| {
                    matches!(future.poll(&mut Context::from_waker(&waker)), Poll::Pending)
                };
                let tells = Arc::new(Tells(AtomicBool::new(false)));
                // The waker that blocks is the last to be left with a future: it is called once.
                if !waits(second.as_mut(), Waker::from(tells.clone()))
                    || !waits(first.as_mut(), Waker::from(blocks.clone()))
                {
                    continue;
                }
                // This worker does not get to its timers. Both are called, and the first still is.
                while !tells.0.load(SeqCst) || !blocks.called.load(SeqCst) {
                    std::thread::sleep(MOMENT);
                }
                return;
            }
            panic!("time was up before the futures were polled");
        }
    });
    go.send(()).unwrap();
    drop(rt);
    eventually(|| Arc::strong_count(&blocks) == 1, || "the first waker is still being called".to_owned());
}
