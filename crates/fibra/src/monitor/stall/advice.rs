//! What to use instead of a call that blocks a worker: by the system call, what it is made on, and the functions on the stack.

use super::doing::Doing;
use super::frames::{self, Awaited, Frame};

/// What is the cause, as far as it is known, and what to do. `others`: other fibers live on the worker.
pub(super) fn advice(doing: &Doing, descriptor: Option<&str>, frames: &[Frame], others: bool) -> String {
    let fixed = match doing {
        Doing::Computing => COMPUTING,
        Doing::Blocked => OTHER,
        Doing::Call(..) if frames::has(frames, &["getaddrinfo"]) => LOOKUP,
        Doing::Call(..) => match doing.call() {
            "futex" => return waiting(frames::awaited(frames), others),
            "nanosleep" | "clock_nanosleep" => SLEEP,
            "accept" | "accept4" | "connect" | "recvfrom" | "recvmsg" | "recvmmsg" | "sendto" | "sendmsg"
            | "sendmmsg" => NET,
            "wait4" | "waitid" => PROCESS,
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" => match frames {
                // That is how std connects with a time-out.
                _ if frames::has(frames, &["std::net", "TcpStream"]) => NET,
                _ if frames::has(frames, &["std::process", "sys::process"]) => PROCESS,
                _ => POLL,
            },
            "flock" | "fcntl" => FILE_LOCK,
            "open" | "openat" | "fsync" | "fdatasync" | "pread64" | "pwrite64" => FILE,
            "read" | "readv" | "write" | "writev" => on_descriptor(descriptor, frames),
            _ => OTHER,
        },
    };
    fixed.to_owned()
}

const COMPUTING: &str = "Fibers are not preempted: move the work into fibra::compute(), call fibra::yield_now() now \
                         and then, or use fibra::blocking() for what also blocks.";
const OTHER: &str = "Such a call blocks the worker, not the fiber: make it in fibra::blocking().";
const SLEEP: &str = "That puts the worker to sleep, not the fiber: use fibra::sleep().";
const LOOKUP: &str = "getaddrinfo() blocks the worker, not the fiber: use fibra::net::lookup_host(), or connect by \
                      fibra::net, which looks names up itself.";
const NET: &str = "A socket of std or of a C library blocks the worker, not the fiber: use fibra::net, or make the \
                   call in fibra::blocking().";
const PROCESS: &str = "Waiting so for a child process blocks the worker, not the fiber: use fibra::process.";
const FILE: &str =
    "Files of std block the worker, not the fiber: use fibra::fs, or make the call in fibra::blocking().";
const FILE_LOCK: &str = "Locking a file blocks the worker, not the fiber: do it in fibra::blocking().";
const PIPE: &str = "Reading or writing a pipe or a terminal blocks the worker, not the fiber: use fibra::process and \
                    fibra::io, or make the call in fibra::blocking().";
const POLL: &str = "Waiting so for descriptors blocks the worker, not the fiber: use fibra::net, or make the call in \
                    fibra::blocking().";

fn on_descriptor(descriptor: Option<&str>, frames: &[Frame]) -> &'static str {
    match descriptor {
        Some(socket) if socket.starts_with("socket:") => NET,
        _ if frames::has(frames, &["std::net::"]) => NET,
        Some(pipe) if pipe.starts_with("pipe:") || pipe.starts_with("/dev/") => PIPE,
        _ if frames::has(frames, &["std::process", "std::io::stdio", "std::io::pipe"]) => PIPE,
        Some(file) if file.starts_with('/') => FILE,
        _ if frames::has(frames, &["std::fs::"]) => FILE,
        _ => OTHER,
    }
}

/// Blocked in futex.
fn waiting(awaited: Option<Awaited>, others: bool) -> String {
    const INSTEAD: &str = "Give the lock back before blocking, or use fibra::sync::Mutex (or RwLock).";
    const NEVER: &str = "that fiber can never give it back, since this worker does not get to run it";
    match awaited {
        Some(Awaited::Lock(lock)) if others => format!(
            "It waits for {lock}. If one of the fibers below holds it across a blocking call of fibra, \
             {NEVER}. {INSTEAD} What has to wait for other threads belongs in fibra::blocking()."
        ),
        Some(Awaited::Lock(lock)) => format!(
            "It waits for {lock} that another thread or a fiber of another worker holds, or itself already. \
             {INSTEAD} What has to wait for other threads belongs in fibra::blocking()."
        ),
        Some(Awaited::Condvar) => {
            "It waits on a condition variable of std or of a C library: use fibra::sync::Condvar, or wait in \
             fibra::blocking()."
                .to_owned()
        }
        Some(Awaited::Once) => {
            "It waits for a Once, OnceLock or LazyLock that another thread or fiber is initialising: if one \
             of the fibers of this worker does, for ever. Use fibra::sync::OnceLock (or LazyLock)."
                .to_owned()
        }
        Some(Awaited::Channel) => {
            "It waits on a channel for threads, which blocks the worker, not the fiber: use fibra::channel.".to_owned()
        }
        Some(Awaited::Thread) => {
            "It waits for the end of a thread, which blocks the worker, not the fiber: join it in \
             fibra::blocking()."
                .to_owned()
        }
        Some(Awaited::Park) => {
            "std::thread::park() parks the worker, not the fiber: use fibra::sync::Event or fibra::channel.".to_owned()
        }
        None if others => format!(
            "Most likely it waits for a lock of std or parking_lot that one of the fibers below holds across \
             a blocking call of fibra: {NEVER}. {INSTEAD} What has to wait for other threads belongs in \
             fibra::blocking()."
        ),
        None => "It waits for another thread, or for a lock of std or parking_lot that another thread or a fiber \
             holds. Use fibra::sync and fibra::channel, or wait in fibra::blocking()."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::advice;
    use crate::monitor::stall::doing::Doing;
    use crate::monitor::stall::frames::Frame;

    fn on(call: i64, descriptor: Option<&str>, names: &[&str]) -> String {
        let frame = |name: &&str| Frame { function: Some((*name).to_owned()), ..Frame::default() };
        let frames: Vec<Frame> = names.iter().map(frame).collect();
        advice(&Doing::Call(call, "0x5".to_owned()), descriptor, &frames, true)
    }

    #[test]
    fn every_call_is_told_what_to_use() {
        let cases: &[(i64, Option<&str>, &[&str], &str)] = &[
            (libc::SYS_clock_nanosleep, None, &[], "fibra::sleep()"),
            (libc::SYS_recvfrom, Some("socket:[1]"), &["recv"], "fibra::net"),
            (libc::SYS_read, Some("socket:[1]"), &[], "fibra::net"),
            (libc::SYS_read, Some("/tmp/a"), &[], "fibra::fs"),
            (libc::SYS_read, Some("pipe:[2]"), &[], "fibra::process"),
            (libc::SYS_read, Some("/dev/pts/0"), &[], "fibra::io"),
            (libc::SYS_openat, None, &[], "fibra::fs"),
            (libc::SYS_fsync, None, &[], "fibra::fs"),
            (libc::SYS_wait4, None, &[], "fibra::process"),
            (libc::SYS_flock, None, &[], "fibra::blocking()"),
            (libc::SYS_ppoll, None, &["poll", "getaddrinfo", "app::f"], "fibra::net::lookup_host()"),
            (libc::SYS_ppoll, None, &["std::net::tcp::TcpStream::connect_timeout"], "fibra::net"),
            (libc::SYS_futex, None, &["std::sys::sync::rwlock::futex::RwLock::read_contended"], "a std::sync::RwLock"),
            (libc::SYS_futex, None, &["std::sync::mpsc::Receiver<T>::recv"], "fibra::channel"),
            (libc::SYS_futex, None, &["std::sys::thread::join", "pthread_join"], "join it in fibra::blocking()"),
            (libc::SYS_futex, None, &[], "Most likely"),
            (9999, None, &[], "fibra::blocking()"),
        ];
        for (call, descriptor, names, expected) in cases {
            let said = on(*call, *descriptor, names);
            assert!(said.contains(expected), "{call} {names:?}: {said}");
        }
        assert!(advice(&Doing::Computing, None, &[], false).contains("fibra::compute()"));
    }
}
