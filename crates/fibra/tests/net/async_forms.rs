//! The async forms of sockets: in tasks of fibra, in `block_on`, under a foreign executor; dropped, forgotten, and moved between them.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use crate::support::{self, workers};
use fibra::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};

/// The waker of an executor that is none of ours: counts, and unparks its thread.
struct Foreign {
    calls: AtomicUsize,
    thread: std::thread::Thread,
}

impl Foreign {
    fn new() -> Arc<Self> {
        Arc::new(Self { calls: AtomicUsize::new(0), thread: std::thread::current() })
    }

    /// Polls once; the future is expected to wait.
    fn poll_in_vain<T: std::fmt::Debug>(self: &Arc<Self>, future: Pin<&mut impl Future<Output = T>>) {
        let polled = future.poll(&mut Context::from_waker(&Waker::from(self.clone())));
        assert!(polled.is_pending(), "{polled:?}");
    }

    fn wait_for_call(&self) {
        while self.calls.load(SeqCst) == 0 {
            std::thread::park();
        }
    }
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, SeqCst);
        self.thread.unpark();
    }
}

/// An executor of one future on this thread, with nothing of fibra in it.
fn foreign_block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let foreign = Foreign::new();
    let waker = Waker::from(foreign.clone());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while foreign.calls.swap(0, SeqCst) == 0 {
            std::thread::park();
        }
    }
}

async fn serve(listener: TcpListener) {
    let (stream, _) = listener.accept_async().await.unwrap();
    let mut buffer = vec![0; 10_000];
    loop {
        match stream.read_async(&mut buffer).await.unwrap() {
            0 => return,
            len => stream.write_all_async(&buffer[..len]).await.unwrap(),
        }
    }
}

async fn talk(address: SocketAddr) {
    let stream = TcpStream::connect_async(address).await.unwrap();
    for round in 0..50_u8 {
        stream.write_all_async(&[round; 3]).await.unwrap();
        let mut answer = [0; 3];
        stream.read_exact_async(&mut answer).await.unwrap();
        assert_eq!(answer, [round; 3]);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read_async(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(stream.read_async(&mut []).await.unwrap(), 0);
}

#[test]
fn every_executor_serves_every_other() {
    let _watchdog = support::watchdog(120);
    type Run = fn(Pin<Box<dyn Future<Output = ()> + Send>>);
    let runs: [Run; 4] = [
        |future| workers(2).run(|| fibra::spawn_future(future).join().unwrap()),
        |future| workers(1).run(|| fibra::block_on(future)),
        |future| fibra::block_on(future),
        |future| foreign_block_on(future),
    ];
    for serving in runs {
        for talking in runs {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || serving(Box::pin(serve(listener))));
            talking(Box::pin(talk(address)));
            server.join().unwrap();
        }
    }
}

// More than the buffers hold, both ways at once, in tasks that are stolen between polls.
#[test]
fn much_goes_both_ways() {
    let _watchdog = support::watchdog(120);
    const BYTES: usize = 2 << 20;
    workers(3).run(|| {
        fibra::block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let here = TcpStream::connect_async(listener.local_addr().unwrap()).await.unwrap();
            let (there, _) = listener.accept_async().await.unwrap();
            let mut tasks = Vec::new();
            for stream in [Arc::new(here), Arc::new(there)] {
                let writing = stream.clone();
                tasks.push(fibra::spawn_future(async move {
                    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
                    writing.write_all_async(&bytes).await.unwrap();
                }));
                tasks.push(fibra::spawn_future(async move {
                    let mut all = vec![0; BYTES];
                    stream.read_exact_async(&mut all).await.unwrap();
                    assert!(all.iter().enumerate().all(|(at, byte)| *byte == (at / 7) as u8));
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

// Dropping is cancelling: what had come for it is still there.
#[test]
fn a_dropped_future_has_done_nothing() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    let foreign = Foreign::new();
    let mut buffer = [0; 8];
    {
        let mut reading = pin!(here.read_async(&mut buffer));
        foreign.poll_in_vain(reading.as_mut());
        there.write_all(b"kept").unwrap();
        foreign.wait_for_call();
    }
    assert_eq!(buffer, [0; 8]);
    assert_eq!((&here).read(&mut buffer).unwrap(), 4);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let foreign = Foreign::new();
    let client = {
        let mut accepting = pin!(listener.accept_async());
        foreign.poll_in_vain(accepting.as_mut());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        foreign.wait_for_call();
        client
    };
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
}

// One byte calls two; the one that is dropped takes nothing from the other, wherever they wait.
#[test]
fn a_call_that_is_dropped_is_not_missed() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    for round in 0..50_u8 {
        let stream = here.clone();
        let task = runtime.handle().spawn(move || {
            let mut byte = [0];
            fibra::block_on(stream.read_exact_async(&mut byte)).map(|()| byte[0])
        });
        let foreign = Foreign::new();
        let mut reading = Box::pin(here.readable_async());
        foreign.poll_in_vain(reading.as_mut());
        there.write_all(&[round]).unwrap();
        drop(reading);
        assert_eq!(task.join().unwrap().unwrap(), round);
        assert!(foreign_block_on(here.writable_async()).is_ok());
    }
}

// A forgotten future leaves a wait behind; the socket is used on, and closed.
#[test]
fn a_future_may_be_forgotten() {
    let _watchdog = support::watchdog(60);
    for uses in [false, true] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let foreign = Foreign::new();
        let mut buffer = Box::new([0; 8]);
        let mut reading = Box::pin(here.read_async(&mut *buffer));
        foreign.poll_in_vain(reading.as_mut());
        // Kept reachable, as a leak checker wants it, and never dropped.
        static FORGOTTEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
        let forgotten = Box::into_raw(Box::new(std::mem::ManuallyDrop::new(reading)));
        FORGOTTEN[usize::from(uses)].store(forgotten.addr(), SeqCst);
        if uses {
            there.write_all(b"x").unwrap();
            foreign.wait_for_call();
            let mut byte = [0];
            assert_eq!((&here).read(&mut byte).unwrap(), 1);
        }
        drop(here);
        // Closing has called it, or the byte before.
        foreign.wait_for_call();
    }
}

// A future that was last polled on a worker that is gone: its waker is called, and it goes on elsewhere.
#[test]
fn the_end_of_a_runtime_sets_futures_going() {
    let _watchdog = support::watchdog(60);
    for drops in [true, false] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let foreign = Foreign::new();
        let mut buffer = [0; 8];
        let mut reading = pin!(here.read_async(&mut buffer));
        let runtime = workers(1);
        runtime.run(|| foreign.poll_in_vain(reading.as_mut()));
        let kept = if drops {
            drop(runtime);
            foreign.wait_for_call();
            None
        } else {
            // Here it is polled elsewhere before its waker is called.
            Some(runtime)
        };
        let writing = std::thread::spawn(move || there.write_all(b"late").map(|()| there));
        assert_eq!(foreign_block_on(reading).unwrap(), 4);
        writing.join().unwrap().unwrap();
        drop(kept);
    }
}

#[test]
fn datagrams_and_unix_sockets() {
    let _watchdog = support::watchdog(60);
    foreign_block_on(async {
        let (one, two) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (from, to) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        let mut buffer = [0; 16];
        assert_eq!(one.send_to_async(b"one", to).await.unwrap(), 3);
        assert_eq!(two.peek_from_async(&mut buffer).await.unwrap(), (3, from));
        assert_eq!(two.recv_from_async(&mut buffer).await.unwrap(), (3, from));
        two.connect(from).unwrap();
        assert_eq!(two.send_async(b"two!").await.unwrap(), 4);
        one.connect(to).unwrap();
        assert_eq!(one.peek_async(&mut buffer).await.unwrap(), 4);
        assert_eq!(one.recv_async(&mut buffer).await.unwrap(), 4);

        let folder = std::env::temp_dir().join(format!("fibra-net-async-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("stream")).unwrap();
        let here = UnixStream::connect_async(folder.join("stream")).await.unwrap();
        let (there, _) = listener.accept_async().await.unwrap();
        here.write_all_async(b"abc").await.unwrap();
        there.readable_async().await.unwrap();
        drop(here);
        let mut all = [0; 4];
        assert_eq!(there.read_exact_async(&mut all).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);

        // A receiver whose queue is full, and that is emptied by another thread.
        let receiver = UnixDatagram::bind(folder.join("datagram")).unwrap();
        let (one, two) = (UnixDatagram::unbound().unwrap(), UnixDatagram::unbound().unwrap());
        let path = folder.join("datagram");
        let receiving = std::thread::spawn(move || {
            let mut buffer = [0; 8];
            (0..200).filter(|_| receiver.recv(&mut buffer).is_ok()).count()
        });
        for _ in 0..100 {
            one.send_to_async(b"x", &path).await.unwrap();
            two.send_to_async(b"y", &path).await.unwrap();
        }
        assert_eq!(receiving.join().unwrap(), 200);
        std::fs::remove_dir_all(&folder).unwrap();

        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(TcpStream::connect_async(closed).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let (here, there) = UnixDatagram::pair().unwrap();
        here.send_async(b"z").await.unwrap();
        assert_eq!(there.recv_async(&mut buffer).await.unwrap(), 1);
        assert_eq!(here.send_async(b"zz").await.unwrap(), 2);
        assert_eq!(there.recv_from_async(&mut buffer).await.unwrap().0, 2);
    });
}

// A task whose operations never have to wait lets its neighbours run.
#[test]
fn a_task_that_never_waits_lets_others_run() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let enough = Arc::new(AtomicBool::new(false));
        let seen = enough.clone();
        let task = fibra::spawn_future(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = socket.local_addr().unwrap();
            while !seen.load(SeqCst) {
                socket.send_to_async(b"x", to).await.unwrap();
                socket.recv_async(&mut [0; 4]).await.unwrap();
            }
        });
        // The task first, if it is to hold the fiber up.
        fibra::yield_now();
        fibra::spawn_local(move || enough.store(true, SeqCst)).join().unwrap();
        task.join().unwrap();
    });
}

// As the compiler sees them: they go to any executor.
#[test]
fn they_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let (here, _there) = UnixStream::pair().unwrap();
    let mut buffer = [0; 1];
    is_send(&here.read_async(&mut buffer));
    is_send(&here.write_all_async(b"x"));
    is_send(&here.readable_async());
    is_send(&TcpStream::connect_async("127.0.0.1:1".parse().unwrap()));
    is_send(&UnixStream::connect_async("/nowhere"));
}
