//! Connections that go on on another worker between two requests: nothing is lost, nothing is answered twice, and the server's end finds
//! them wherever they are.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Running, eventually, serve_on, watchdog};
use fibra::time::Instant;
use fibra_http::{IntoResponse, Request, Server};

/// A grace that no test reaches.
const LONG: Duration = Duration::from_secs(3600);

/// Three workers; every connection goes to the next one after each request.
fn serve_moving<F, R>(builder: fibra_http::Builder, handler: F) -> Running
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    serve_on(fibra::Runtime::builder().workers(3).force_moves(), builder, handler)
}

/// The thread that this runs on, as text.
fn here() -> String {
    format!("{:?}", std::thread::current().id())
}

#[test]
fn each_request_is_answered_once_and_in_order() {
    let _watchdog = watchdog(120);
    let server = serve_moving(Server::builder(), |request: &mut Request<'_>| format!("{} {}", request.path(), here()));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                let mut places = HashSet::new();
                for round in 0..200 {
                    // The second one is in the buffer when the first has its answer, and then half of a third.
                    let paths = [format!("/{number}/{round}/a"), format!("/{number}/{round}/b")];
                    for path in &paths {
                        client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
                    }
                    for path in &paths {
                        let answer = client.answer();
                        let (asked, place) = answer.text().split_once(' ').unwrap();
                        assert_eq!(asked, path);
                        places.insert(place.to_owned());
                    }
                }
                places.len()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 3, "a connection comes to every worker");
    }
    assert_eq!(server.connect().get("/").status, 200);
}

#[test]
fn a_connection_stays_if_that_is_wanted() {
    let _watchdog = watchdog(60);
    let server = serve_moving(Server::builder().moving(false), |_: &mut Request<'_>| here());
    let mut client = server.connect();
    let first = client.get("/").text().to_owned();
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), first);
    }
}

#[test]
fn a_server_that_drains_finds_connections_that_move() {
    let _watchdog = watchdog(120);
    for round in 0..20 {
        let server = serve_moving(Server::builder(), |_: &mut Request<'_>| "here");
        let answered = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let (mut client, answered) = (server.connect(), answered.clone());
                std::thread::spawn(move || {
                    // Each answer comes whole, also the last.
                    while let Some(answer) = {
                        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                        client.answer_to("GET")
                    } {
                        assert_eq!((answer.status, answer.text()), (200, "here"));
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        eventually(|| answered.load(Ordering::Relaxed) > 10 * round, "requests are answered");
        server.stopper.drain(LONG);
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(server.wait().cut_off, 0);
    }
}

#[test]
fn a_server_that_stops_cancels_connections_on_their_way() {
    let _watchdog = watchdog(120);
    for round in 0..20 {
        let stopped = Arc::new(AtomicBool::new(false));
        let server = serve_moving(Server::builder(), |_: &mut Request<'_>| "here");
        let answered = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let (mut client, answered, stopped) = (server.connect(), answered.clone(), stopped.clone());
                std::thread::spawn(move || {
                    while !stopped.load(Ordering::Relaxed) {
                        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                        let mut byte = [0; 512];
                        match std::io::Read::read(client.stream.get_mut(), &mut byte) {
                            Ok(1..) => answered.fetch_add(1, Ordering::Relaxed),
                            Ok(0) | Err(_) => return,
                        };
                    }
                })
            })
            .collect();
        eventually(|| answered.load(Ordering::Relaxed) > 10 * round, "requests are answered");
        server.stopper.stop();
        server.wait();
        stopped.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

// Connections that are all on one worker, and keep it busy, come to the other one.
#[test]
fn connections_leave_a_worker_that_is_saturated() {
    let _watchdog = watchdog(120);
    let builder = fibra::Runtime::builder().workers(2).max_workers(2);
    let server = serve_on(builder, Server::builder(), |request: &mut Request<'_>| {
        let began = Instant::now();
        while request.path() == "/busy" && began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        here()
    });
    // They are dealt by number; only those of one worker are used from here on.
    let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
    let first = clients[0].get("/").text().to_owned();
    clients.retain_mut(|client| client.get("/").text() == first);
    assert!(clients.len() >= 4, "{} on the first worker", clients.len());
    let over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let (first, over) = (first.clone(), over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if client.get("/busy").text() != first {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A transport that takes its time when it is dropped.
struct Lingers(Arc<AtomicBool>, fibra::net::TcpStream);

impl Drop for Lingers {
    fn drop(&mut self) {
        fibra::sleep(Duration::from_millis(200));
        self.0.store(true, Ordering::SeqCst);
    }
}

impl std::io::Read for Lingers {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1.read(buffer)
    }
}

impl std::io::Write for Lingers {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.1.write(buffer)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// It is dropped on its fiber, which unwinds, and that may take long.
#[test]
fn a_server_waits_for_a_transport_that_is_dropped_by_a_cancellation() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let dropped = Arc::new(AtomicBool::new(false));
        let (begun, begins) = fibra::channel::unbounded();
        let server = Server::bind("127.0.0.1:0").unwrap();
        let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
        let serving = fibra::spawn({
            let dropped = dropped.clone();
            let wrap = move |stream| Ok(fibra_http::Layered::new(Lingers(dropped.clone(), stream), |all| &all.1));
            move || {
                server.serve_over(wrap, move |_: &mut Request<'_>| {
                    begun.send(()).unwrap();
                    fibra::sleep(LONG);
                    "never"
                })
            }
        });
        let mut client = fibra::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
        begins.recv().unwrap();
        stopper.stop();
        assert_eq!(serving.join().unwrap().unwrap().cut_off, 1);
        assert!(dropped.load(Ordering::SeqCst));
    });
}
