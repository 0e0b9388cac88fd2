//! The end of a server: no request that was begun is lost, no idle connection is waited for, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, Running, descriptors, eventually, serve, serve_with, watchdog};
use fibra::channel::{Receiver, Sender, unbounded};
use fibra::sync::Event;
use fibra_http::{Request, Response, Server};

/// A grace that no test reaches.
const LONG: Duration = Duration::from_secs(3600);

/// A server whose handler reports that it has begun, and waits until the test lets it go.
fn held() -> (Running, Receiver<()>, Sender<()>) {
    let (begun, begins) = unbounded();
    let (go, wait) = unbounded();
    let server = serve(move |request: &mut Request<'_>| {
        if request.path() == "/held" {
            begun.send(()).unwrap();
            wait.recv().unwrap();
        }
        "answered"
    });
    (server, begins, go)
}

#[test]
fn idle_connections_are_closed_at_once_and_running_requests_are_answered() {
    let _watchdog = watchdog(60);
    let (server, begins, go) = held();
    let (mut fresh, mut idle, mut running) = (server.connect(), server.connect(), server.connect());
    assert_eq!(idle.get("/").status, 200);
    running.send("GET /held HTTP/1.1\r\nHost: t\r\n\r\n");
    begins.recv().unwrap();
    let address = server.address;
    server.stopper.drain(LONG);
    // The running request still runs: these do not wait for it.
    fresh.expect_end();
    idle.expect_end();
    eventually(|| std::net::TcpStream::connect(address).is_err(), "no client is accepted any more");
    go.send(()).unwrap();
    let answer = running.answer();
    assert_eq!((answer.status, answer.text(), answer.header("connection")), (200, "answered", Some("close")));
    running.expect_end();
    assert_eq!(server.wait().cut_off, 0);
}

#[test]
fn what_was_pipelined_behind_a_running_request_is_answered_too() {
    let _watchdog = watchdog(60);
    let (server, begins, go) = held();
    let (mut client, mut idle) = (server.connect(), server.connect());
    assert_eq!(idle.get("/").status, 200);
    let next = "GET /next HTTP/1.1\r\nHost: t\r\n\r\n";
    client.send(format!("GET /held HTTP/1.1\r\nHost: t\r\n\r\n{next}{next}"));
    begins.recv().unwrap();
    server.stopper.drain(LONG);
    idle.expect_end(); // All have been told.
    go.send(()).unwrap();
    let closes: Vec<bool> = (0..3).map(|_| client.answer().header("connection") == Some("close")).collect();
    assert_eq!(closes, [false, false, true]);
    client.expect_end();
    assert_eq!(server.wait().cut_off, 0);
}

#[test]
fn a_request_whose_head_has_begun_is_answered() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| request.text());
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    client.send("POST / HTTP/1.1\r\nHo");
    // The test cannot see whether these bytes were read; wherever they are when draining begins, they are answered.
    server.stopper.drain(LONG);
    client.send("st: t\r\nContent-Length: 5\r\n\r\nhe");
    client.send("llo");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    client.expect_end();
    assert_eq!(server.wait().cut_off, 0);
}

#[test]
fn after_the_grace_what_is_left_is_cancelled() {
    let _watchdog = watchdog(60);
    let unwound = Arc::new(AtomicUsize::new(0));
    let counted = unwound.clone();
    let (begun, begins) = unbounded();
    let server = serve(move |_: &mut Request<'_>| {
        struct Unwinds(Arc<AtomicUsize>);
        impl Drop for Unwinds {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed); // Relaxed: read after the server has ended.
            }
        }
        let _unwinds = Unwinds(counted.clone());
        begun.send(()).unwrap();
        fibra::sleep(LONG);
    });
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        begins.recv().unwrap();
    }
    server.stopper.drain(LONG);
    // A second call grants less time: of several calls the one that grants the least counts.
    server.stopper.drain(Duration::from_millis(20));
    assert_eq!(server.wait().cut_off, 3);
    assert_eq!(unwound.load(Ordering::Relaxed), 3); // Relaxed: the server has ended.
    for client in &mut clients {
        client.expect_end();
    }
}

/// Clients that ask again and again, on new connections and old ones, while the server stops: a client whose request reached a handler
/// gets its answer.
#[test]
fn drain_under_load_loses_nothing_that_was_begun() {
    let _watchdog = watchdog(120);
    for round in 0..10 {
        let handled = Arc::new(AtomicUsize::new(0));
        let counted = handled.clone();
        let server = serve(move |request: &mut Request<'_>| {
            if request.path() == "/slow" {
                fibra::sleep(Duration::from_millis(1));
            }
            let body = request.text()?;
            // Relaxed: a number, read after the server has ended.
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, fibra_http::BodyError>(body)
        });
        let stopped = Arc::new(AtomicBool::new(false));
        let address = server.address;
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let stopped = stopped.clone();
                std::thread::spawn(move || {
                    let mut answered = 0;
                    // Relaxed: it only says when to end.
                    while !stopped.load(Ordering::Relaxed) {
                        let Ok(stream) = std::net::TcpStream::connect(address) else { break };
                        stream.set_nodelay(true).unwrap();
                        let mut client = Client { stream: std::io::BufReader::new(stream) };
                        for _ in 0..20 {
                            let path = if number % 2 == 0 { "/slow" } else { "/" };
                            let head = format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n");
                            client.send(format!("{head}01234"));
                            client.send("56789");
                            let mut first = [0];
                            match client.stream.get_ref().peek(&mut first) {
                                Ok(1..) => {}
                                // Closed while it was idle, or still in the listener's queue: no handler has seen the request.
                                _ => break,
                            }
                            let answer = client.answer();
                            assert_eq!((answer.status, answer.text()), (200, "0123456789"));
                            answered += 1;
                            if answer.header("connection") == Some("close") {
                                break;
                            }
                        }
                    }
                    answered
                })
            })
            .collect();
        // Relaxed: a number that grows.
        eventually(|| handled.load(Ordering::Relaxed) > 50 * (round + 1), "requests are answered");
        server.stopper.drain(LONG);
        assert_eq!(server.wait().cut_off, 0);
        stopped.store(true, Ordering::Relaxed); // Relaxed: see above.
        let answered: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        // Relaxed: the server has ended.
        assert_eq!(answered, handled.load(Ordering::Relaxed), "each request that was handled was answered");
    }
}

/// Starts `serve` in a runtime of its own, inside the scopes that `around` opens.
fn in_scope(around: impl FnOnce(Server) + Send + 'static) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    (address, std::thread::spawn(move || fibra::Runtime::builder().workers(2).build().unwrap().run(|| around(server))))
}

#[test]
fn cancelling_the_scope_around_ends_the_connections_with_it() {
    let _watchdog = watchdog(60);
    let before = descriptors();
    let token = fibra::CancelToken::new();
    let cancels = token.clone();
    let begun = Arc::new(Event::new());
    let begins = begun.clone();
    let (address, thread) = in_scope(move |server| {
        let outcome = fibra::Scope::builder().token(cancels).run(|_| {
            server.serve(move |request: &mut Request<'_>| {
                if request.path() == "/held" {
                    begun.set();
                    fibra::sleep(LONG);
                }
                "fine"
            })
        });
        assert_eq!(outcome.unwrap_err(), fibra::ScopeError::Cancelled);
    });
    let (mut idle, mut held) = (Client::new(address), Client::new(address));
    assert_eq!(idle.get("/").status, 200);
    held.send("GET /held HTTP/1.1\r\nHost: t\r\n\r\n");
    begins.wait();
    token.cancel();
    idle.expect_end();
    held.expect_end();
    thread.join().unwrap();
    drop((idle, held));
    eventually(|| descriptors() <= before + SOME_DESCRIPTORS, "no connection is left open");
}

/// Descriptors of other tests that run at the same time come and go; a leak would be many more. Under `nextest` the number is exact.
const SOME_DESCRIPTORS: usize = 200;

#[test]
fn the_drain_of_a_scope_is_a_drain_of_the_server() {
    let _watchdog = watchdog(60);
    let (drain, drains) = unbounded::<()>();
    let (begun, begins) = unbounded();
    let (go, wait) = unbounded::<()>();
    let (address, thread) = in_scope(move |server| {
        fibra::scope(|s| {
            let served = s.spawn(move || {
                server.serve(move |_: &mut Request<'_>| {
                    begun.send(()).unwrap();
                    wait.recv().unwrap();
                    "fine"
                })
            });
            drains.recv().unwrap();
            s.drain(LONG);
            assert_eq!(served.join().unwrap().unwrap().cut_off, 0);
        });
    });
    let (mut idle, mut running) = (Client::new(address), Client::new(address));
    running.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    begins.recv().unwrap();
    drain.send(()).unwrap();
    idle.expect_end();
    go.send(()).unwrap();
    assert_eq!(running.answer().header("connection"), Some("close"));
    running.expect_end();
    thread.join().unwrap();
}

#[test]
fn long_answers_can_hear_of_the_end() {
    let _watchdog = watchdog(60);
    let server = Server::bind("127.0.0.1:0").unwrap();
    let (address, stopper, token) = (server.local_addr().unwrap(), server.stopper(), server.stopper().token());
    let thread = std::thread::spawn(move || {
        fibra::run(|| {
            server.serve(move |_: &mut Request<'_>| {
                let token = token.clone();
                Response::stream(move |out| {
                    std::io::Write::write_all(out, b"first")?;
                    std::io::Write::flush(out)?;
                    token.wait();
                    std::io::Write::write_all(out, b"last")
                })
            })
        })
    });
    let mut client = Client::new(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut byte = [0];
    std::io::Read::read_exact(&mut client.stream, &mut byte).unwrap();
    assert!(!stopper.is_draining());
    stopper.drain(LONG);
    let rest = client.rest();
    assert!(rest.ends_with("last\r\n0\r\n\r\n"), "{rest:?}");
    assert_eq!(thread.join().unwrap().unwrap().cut_off, 0);
}

#[test]
fn more_connections_than_allowed_wait_for_their_turn() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_connections(2), |_: &mut Request<'_>| "fine");
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    third.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    third.stream.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(third.stream.get_ref().peek(&mut [0]).is_err(), "there are two already");
    drop(first);
    third.stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(third.answer().status, 200);
    // The server is full again, and stops all the same.
    server.stopper.drain(LONG);
    second.expect_end();
    third.expect_end();
    assert_eq!(server.wait().cut_off, 0);
}

#[test]
fn a_stop_before_the_start_is_heard() {
    let _watchdog = watchdog(60);
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.stopper().stop();
    let drained = fibra::run(|| server.serve(|_: &mut Request<'_>| ()));
    assert_eq!(drained.unwrap().cut_off, 0);
}

#[test]
fn a_child_of_the_stoppers_token_is_cancelled_with_the_server() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let (stopper, token) = (server.stopper(), server.stopper().token().child());
        stopper.stop();
        token.wait();
    });
}

/// Of 60 connections some come to each of the three listeners (the chance that one gets none is below 10^-9), all are answered, on more
/// than one worker, and all listeners are closed at the end.
#[test]
fn several_listeners_share_the_port_and_stop_together() {
    let _watchdog = watchdog(60);
    let threads = Arc::new(fibra::sync::Mutex::new(std::collections::HashSet::new()));
    let seen = threads.clone();
    let server = serve_with(Server::builder().listeners(3), move |_: &mut Request<'_>| {
        seen.lock().insert(std::thread::current().id());
        "fine"
    });
    let mut clients: Vec<Client> = (0..60).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(threads.lock().len() > 1, "all on one worker");
    let address = server.address;
    server.stopper.drain(LONG);
    clients.iter_mut().for_each(Client::expect_end);
    eventually(|| std::net::TcpStream::connect(address).is_err(), "no client is accepted any more");
    assert_eq!(server.wait().cut_off, 0);
}

/// The fibers of the further listeners hear of a drain by the scope around the server.
#[test]
fn the_drain_of_a_scope_ends_all_listeners() {
    let _watchdog = watchdog(60);
    let server = Server::builder().listeners(3).bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(move || {
        fibra::scope(|s| {
            let served = s.spawn(move || server.serve(|_: &mut Request<'_>| "fine"));
            let mut client = fibra::net::TcpStream::connect(address).unwrap();
            std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert_ne!(std::io::Read::read(&mut client, &mut [0; 100]).unwrap(), 0);
            s.drain(LONG);
            assert_eq!(served.join().unwrap().unwrap().cut_off, 0);
        });
    });
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
#[should_panic(expected = "listeners(0)")]
fn a_server_has_a_listener() {
    let _ = Server::builder().listeners(0);
}
