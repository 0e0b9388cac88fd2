//! A loop that accepts, reads and writes is cancelled at its first wait, at its second, and so on, until it has none left.
//!
//! The worker runs two fibers: the server, and one that watches it. Both are on one worker, so the watcher sees the server whenever that
//! has suspended: it counts waits by the switches that are not its own. The client is a thread of std, which talks as long as it can.
//!
//! In one play the server's fiber is cancelled, and whatever it held must be closed. In the other only the operation is, and the server
//! tries again: then every byte must arrive, once, and in order. Each is played for both moments: while it waits, and when its wait is over
//! but it has not run yet, so that what it waited for and the cancellation meet.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;

use crate::ends::raised_limit;
use crate::support::{self, alone};
use fibra::net::{TcpListener, UnixListener};
use fibra::{CancelToken, Handle, Runtime, Scope, ScopeError};

/// Connections that the client makes, one after the other.
const CONNECTIONS: usize = 2;
/// Requests on each.
const REQUESTS: usize = 2;
const REQUEST: usize = 60;
/// An answer fits into no buffer: writing it takes several waits.
const ANSWER: usize = 4 << 20;
/// The server waits at least so often, if it is let be: for the first connection and the first piece of its request, because the client
/// says nothing until then; and for the other pieces of each request.
const LEAST_WAITS: usize = 2 + 2 * CONNECTIONS * REQUESTS;

fn answer(seed: u8) -> Vec<u8> {
    (0..ANSWER).map(|at| ((at * 13) >> 4) as u8 ^ seed).collect()
}

/// How an operation of the server is done: once, or until it succeeds.
trait Manner: Sync {
    fn operate<T>(&self, operation: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T>;
}

struct Once;

impl Manner for Once {
    fn operate<T>(&self, mut operation: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
        operation()
    }
}

/// In a scope of its own, that the watcher cancels; then again.
struct UntilDone {
    token: fibra::sync::Mutex<CancelToken>,
}

impl Manner for UntilDone {
    fn operate<T>(&self, mut operation: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
        loop {
            let token = CancelToken::new();
            *self.token.lock() = token.clone();
            match Scope::builder().token(token).run(|_| operation()) {
                Ok(done) => return done,
                Err(ScopeError::Cancelled) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Serves the connections, reading and writing piece by piece.
fn serve(listener: &TcpListener, manner: &impl Manner) {
    for _ in 0..CONNECTIONS {
        let (stream, _) = manner.operate(|| listener.accept()).unwrap();
        for _ in 0..REQUESTS {
            let mut request = [0; REQUEST];
            let mut len = 0;
            while len < REQUEST {
                match manner.operate(|| (&stream).read(&mut request[len..])).unwrap() {
                    0 => return,
                    more => len += more,
                }
            }
            assert!(request.iter().all(|byte| *byte == request[0]));
            let answer = answer(request[0]);
            let mut written = 0;
            while written < ANSWER {
                match manner.operate(|| (&stream).write(&answer[written..])) {
                    Ok(more) => written += more,
                    Err(_) => return,
                }
            }
        }
    }
}

/// What the watcher knows of the server.
#[derive(Default)]
struct Seen {
    waits: AtomicUsize,
    has_ended: AtomicBool,
}

impl Seen {
    /// Until the server has waited more often than that, or has ended. Says how often it has.
    fn more_waits_than(&self, before: usize) -> usize {
        loop {
            let waits = self.waits.load(SeqCst);
            if waits > before || self.has_ended.load(SeqCst) {
                return waits;
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    }
}

/// Asks, in pieces, as long as it is answered; says how many answers were right. Before each piece the server must have waited again.
fn client(address: SocketAddr, seen: Arc<Seen>) -> JoinHandle<usize> {
    let talk = move |right: &mut usize| -> std::io::Result<()> {
        let mut waits = 0;
        for connection in 0..CONNECTIONS {
            waits = seen.more_waits_than(waits);
            let mut stream = std::net::TcpStream::connect(address)?;
            for request in 0..REQUESTS {
                let seed = (connection * 16 + request) as u8;
                for piece in [seed; REQUEST].chunks(REQUEST / 3) {
                    waits = seen.more_waits_than(waits);
                    stream.write_all(piece)?;
                }
                let mut heard = vec![0; ANSWER];
                for piece in heard.chunks_mut(ANSWER / 4) {
                    stream.read_exact(piece)?;
                    // The server may come to its next wait; nothing depends on it.
                    std::thread::yield_now();
                }
                assert!(heard == answer(seed), "an answer is mangled");
                *right += 1;
            }
        }
        Ok(())
    };
    std::thread::spawn(move || {
        let mut right = 0;
        // An error is the end of the server.
        let _ = talk(&mut right);
        right
    })
}

/// When the server is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// At its wait with this number, from 0.
    Waiting(usize),
    /// When that wait is over, and it has not run yet.
    Woken(usize),
}

impl Moment {
    const KINDS: [fn(usize) -> Self; 2] = [Self::Waiting, Self::Woken];
}

/// Watches until the other fiber of this worker has ended. At its moment, does what is to be done; says whether it came.
fn watch(moment: Moment, mut own_switches: u64, seen: &Seen, has_ended: impl Fn() -> bool, act: impl Fn()) -> bool {
    let handle = Handle::current();
    let (mut waits, mut switches, mut has_come) = (0, 0, false);
    while !has_ended() {
        let metrics = handle.metrics();
        let others = metrics.switches - own_switches;
        let is_now = if metrics.parked == 1 && others != switches {
            switches = others;
            waits += 1;
            moment == Moment::Waiting(waits - 1)
        } else {
            metrics.parked == 0 && others == switches && waits > 0 && moment == Moment::Woken(waits - 1)
        };
        if is_now && !has_come {
            has_come = true;
            act();
        }
        seen.waits.store(waits, SeqCst);
        fibra::yield_now();
        own_switches += 1;
    }
    seen.has_ended.store(true, SeqCst);
    has_come
}

/// Tells the watcher that the server has ended, however that was: it drops its copy. (To ask its handle may let others run, and the watcher
/// counts its own switches.)
#[derive(Clone, Default)]
struct Ended(Rc<()>);

impl Ended {
    fn has_come(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

/// How many switches this worker has made, all of them into the fiber that asks.
fn switches() -> u64 {
    Handle::current().metrics().switches
}

#[test]
fn a_server_is_cancelled_at_every_wait() {
    if !alone("a_server_is_cancelled_at_every_wait") {
        return;
    }
    let _watchdog = support::watchdog(120);
    let mut before = None;
    for kind in Moment::KINDS {
        let mut wanted = 0;
        while cancel_the_server(kind(wanted), &mut before) {
            wanted += 1;
        }
        assert!(wanted >= LEAST_WAITS, "it waited {wanted} times only");
    }
}

/// Says whether the moment came: then it was cancelled.
fn cancel_the_server(moment: Moment, before: &mut Option<usize>) -> bool {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let seen = Arc::new(Seen::default());
    let client = client(listener.local_addr().unwrap(), seen.clone());
    let serving = listener.clone();
    let was_cancelled = runtime.run(move || {
        let own = switches();
        let ended = Ended::default();
        let server = fibra::spawn_local({
            let ended = ended.clone();
            move || {
                let _ended = ended;
                serve(&serving, &Once);
            }
        });
        watch(moment, own, &seen, || ended.has_come(), || server.cancel());
        match server.join() {
            Ok(()) => false,
            Err(error) => {
                assert!(error.is_cancelled(), "{error}");
                true
            }
        }
    });
    // A connection in the queue is refused; one that was accepted is closed.
    drop((runtime, listener));
    let right = client.join().unwrap();
    assert!(was_cancelled || right == CONNECTIONS * REQUESTS, "{right} were answered, and no fiber was cancelled");
    let fds = support::fds();
    assert!(fds <= *before.get_or_insert(fds), "{fds} descriptors are open after {moment:?}");
    was_cancelled
}

#[test]
fn an_operation_is_cancelled_at_every_wait() {
    if !alone("an_operation_is_cancelled_at_every_wait") {
        return;
    }
    let _watchdog = support::watchdog(120);
    let mut before = None;
    for kind in Moment::KINDS {
        let mut wanted = 0;
        while cancel_an_operation(kind(wanted), &mut before) {
            wanted += 1;
        }
        assert!(wanted >= LEAST_WAITS, "it waited {wanted} times only");
    }
}

/// Says whether the moment came.
fn cancel_an_operation(moment: Moment, before: &mut Option<usize>) -> bool {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let seen = Arc::new(Seen::default());
    let client = client(listener.local_addr().unwrap(), seen.clone());
    let was_cancelled = runtime.run(move || {
        let manner = Arc::new(UntilDone { token: fibra::sync::Mutex::new(CancelToken::new()) });
        let (own, serving) = (switches(), manner.clone());
        let ended = Ended::default();
        let server = fibra::spawn_local({
            let ended = ended.clone();
            move || {
                let _ended = ended;
                serve(&listener, &*serving);
            }
        });
        let come = watch(moment, own, &seen, || ended.has_come(), || manner.token.lock().cancel());
        server.join().unwrap();
        come
    });
    assert_eq!(client.join().unwrap(), CONNECTIONS * REQUESTS, "cancelled at {moment:?}");
    drop(runtime);
    let fds = support::fds();
    assert!(fds <= *before.get_or_insert(fds), "{fds} descriptors are open after {moment:?}");
    was_cancelled
}

// Everything is parked when the runtime goes: accepts, reads, writes, of several workers and several kinds of socket.
#[test]
fn a_runtime_ends_with_thousands_of_sockets_parked() {
    if !alone("a_runtime_ends_with_thousands_of_sockets_parked") {
        return;
    }
    let _watchdog = support::watchdog(120);
    let before = support::fds();
    let count = raised_limit(5_000).saturating_sub(200).min(4_000) / 2;
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let mut peers = Vec::new();
    for n in 0..count {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        peers.push(there);
        let stream = fibra::net::UnixStream::from(here);
        let spawned = runtime.handle().spawn_with(fibra::Builder::new().spread(), move || match n % 3 {
            0 => loop {
                (&stream).write_all(&[0; 64 * 1024]).unwrap();
            },
            1 => _ = (&stream).read(&mut [0; 8]).unwrap(),
            // Both directions at once, by two fibers.
            _ => fibra::scope(|s| {
                s.spawn(|| (&stream).read(&mut [0; 8]).unwrap());
                loop {
                    (&stream).write_all(&[0; 64 * 1024]).unwrap();
                }
            }),
        });
        drop(spawned.unwrap());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(runtime.spawn(move || listener.accept().map(|_| ())));
    let path = std::env::temp_dir().join(format!("fibra-ends-{}", std::process::id()));
    let unix = UnixListener::bind(&path).unwrap();
    drop(runtime.spawn(move || unix.accept().map(|_| ())));
    let parked = (count + count / 3 + 2) as u64;
    support::eventually(|| runtime.metrics().parked >= parked, || format!("{:?}", runtime.metrics()));
    drop(runtime);
    // All ends here are closed: those there see it.
    for mut peer in peers {
        let mut rest = Vec::new();
        assert!(peer.read_to_end(&mut rest).is_ok());
        assert!(peer.write_all(b"x").is_err());
    }
    let _ = std::fs::remove_file(path);
    assert!(support::fds() <= before, "{before} descriptors before, {} after", support::fds());
}
