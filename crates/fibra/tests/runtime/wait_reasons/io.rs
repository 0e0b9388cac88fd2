//! The reasons to wait of sockets, files, processes and the terminal: what is played for each in `every_reason_to_wait_can_be_cancelled`.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use super::{Counted, Victim, begun_before_it_is_cancelled, cancelled_in, runtime};
use crate::support;
use fibra::net::{TcpListener, TcpStream, UnixStream};
use fibra::sync::Mutex;

// A read that was cancelled has taken nothing: what comes after it is read by the next one.
pub(super) fn net_read() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let waiting = here.clone();
    cancelled_in(move || drop((&*waiting).read(&mut [0; 8])));
    there.write_all(b"later").unwrap();
    let mut buffer = [0; 8];
    assert_eq!((&*here).read(&mut buffer).unwrap(), 5);
}

pub(super) fn net_write() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let (waiting, written) = (here.clone(), Arc::new(AtomicUsize::new(0)));
    let count = written.clone();
    cancelled_in(move || {
        loop {
            count.fetch_add((&*waiting).write(&[1; 4096]).unwrap(), SeqCst);
        }
    });
    // What was counted as written arrives, and nothing else; then there is room again.
    let mut all = vec![0; written.load(SeqCst)];
    there.read_exact(&mut all).unwrap();
    (&*here).write_all(&[2]).unwrap();
    let mut next = [0];
    there.read_exact(&mut next).unwrap();
    assert_eq!(next, [2]);
}

pub(super) fn net_accept() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let waiting = listener.clone();
    cancelled_in(move || drop(waiting.accept()));
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
}

// No fiber accepts and the queue is full: the kernel lets connections wait.
pub(super) fn net_connect() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: the descriptor is open, and the call takes no pointers. Shortens the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
        queued.push(stream);
    }
    cancelled_in(move || drop(TcpStream::connect(address)));
    // The others are not concerned.
    for stream in &queued {
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
    }
}

// The answer is dropped when it comes, and no caller waits for it.
pub(super) fn net_lookup() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (answer, server) = std::sync::mpsc::channel::<()>();
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let _ = fibra::__private::look_up_with(move || {
            let _ = server.recv();
            drop(counted);
            Ok(Vec::new())
        });
    });
    assert_eq!(drops.load(SeqCst), 0, "it hangs still, and the runtime is gone");
    answer.send(()).unwrap();
    support::eventually(|| drops.load(SeqCst) == 1, || "the answer does not come".to_owned());
}

// Opening a named pipe waits for the other end, on the pool: binding.
pub(super) fn file_call() {
    begun_before_it_is_cancelled(file_call_once);
}

pub(super) fn file_call_once() -> bool {
    let path = std::env::temp_dir().join(format!("fibra-fifo-{}", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero and lives through the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let runtime = runtime();
    let (begun, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let victim = Victim::start(&runtime, {
        let (path, begun, opened) = (path.clone(), begun.clone(), opened.clone());
        move || {
            begun.store(true, SeqCst);
            let file = fibra::fs::File::open(path);
            opened.store(file.is_ok(), SeqCst);
            fibra::checkpoint();
            opened.store(false, SeqCst);
        }
    });
    assert!(victim.has_begun(|| begun.load(SeqCst)), "its body runs, however short the deadline is");
    // A call that is only queued would be taken back.
    victim.has_begun(|| (runtime.metrics().blocking_threads, runtime.metrics().blocking_queued) == (1, 0));
    victim.cancel();
    victim.until_cancelled();
    std::thread::sleep(Duration::from_millis(3));
    // This opens it if another one is waiting for that, and does not wait itself.
    let called =
        victim.has_begun(|| std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).is_ok());
    victim.unwound();
    assert_eq!(opened.load(SeqCst), called, "the file was opened, and cancellation came after it");
    std::fs::remove_file(&path).unwrap();
    called
}

pub(super) fn cat() -> fibra::process::Child {
    fibra::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

pub(super) fn pipe_read() {
    let mut child = cat();
    let output = Arc::new(child.stdout.take().unwrap());
    let waiting = output.clone();
    cancelled_in(move || drop((&*waiting).read(&mut [0; 8])));
    child.stdin.as_mut().unwrap().write_all(b"later").unwrap();
    let mut buffer = [0; 5];
    (&*output).read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"later");
    assert!(child.wait().unwrap().success());
}

// No fiber reads what `cat` writes, so it stops reading.
pub(super) fn pipe_write() {
    let mut child = cat();
    let input = Arc::new(child.stdin.take().unwrap());
    let (waiting, written) = (input.clone(), Arc::new(AtomicUsize::new(0)));
    let count = written.clone();
    cancelled_in(move || {
        loop {
            count.fetch_add((&*waiting).write(&[1; 4096]).unwrap(), SeqCst);
        }
    });
    let mut output = child.stdout.take().unwrap();
    let mut all = vec![0; written.load(SeqCst)];
    output.read_exact(&mut all).unwrap();
    (&*input).write_all(&[2]).unwrap();
    drop(input);
    all.clear();
    output.read_to_end(&mut all).unwrap();
    assert_eq!(all, [2]);
    assert!(child.wait().unwrap().success());
}

// The child is as it was, and can be waited for.
pub(super) fn child_exit() {
    let child = Arc::new(cat());
    let waiting = child.clone();
    cancelled_in(move || {
        fibra::select! {
            on(waiting.exiting()) -> status => panic!("it has exited: {status:?}"),
        }
    });
    let mut child = Arc::into_inner(child).unwrap();
    let input = child.stdin.take();
    let waiting = Arc::new(Mutex::new(child));
    let shared = waiting.clone();
    cancelled_in(move || drop(waiting.lock().wait()));
    let mut child = Arc::into_inner(shared).unwrap().into_inner();
    assert_eq!(child.try_wait().unwrap(), None);
    drop(input);
    assert!(child.wait().unwrap().success());
}

// What is typed later is there for the next one.
pub(super) fn stdin_read() {
    static INPUT: std::sync::OnceLock<std::io::PipeWriter> = std::sync::OnceLock::new();
    let mut input = INPUT.get_or_init(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: both descriptors are open. Nothing else in this test reads standard input.
        assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), 0) }, 0);
        writer
    });
    cancelled_in(|| drop(fibra::io::stdin().read_line(&mut String::new())));
    // Half a line is not lost either.
    input.write_all(b"to be ").unwrap();
    cancelled_in(|| drop(fibra::io::stdin().read_line(&mut String::new())));
    input.write_all(b"continued\n").unwrap();
    let mut line = String::new();
    assert_eq!(fibra::io::stdin().read_line(&mut line).unwrap(), 16);
    assert_eq!(line, "to be continued\n");
}
