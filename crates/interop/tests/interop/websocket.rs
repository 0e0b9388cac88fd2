//! WebSockets by tungstenite over fiber sockets: a fiber serves a client of std, asks a server of std, and both over TLS.

use std::io::{Read, Write};

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UnixStream};
use interop::tls::Trust;
use rustls::StreamOwned;
use tungstenite::{Message, WebSocket};

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

/// Sends back every message, until the peer closes.
fn echo<S: Read + Write>(socket: S) {
    let mut socket = tungstenite::accept(socket).map_err(|error| error.to_string()).unwrap();
    loop {
        match socket.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => socket.send(message).unwrap(),
            Ok(_) => {}
            Err(tungstenite::Error::ConnectionClosed) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends messages of all sizes and receives them again; then closes, which the peer answers.
fn talk<S: Read + Write>(socket: S) {
    let (mut socket, response) =
        tungstenite::client("ws://localhost/chat", socket).map_err(|error| error.to_string()).unwrap();
    assert_eq!(response.status().as_u16(), 101);
    for len in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
        say(&mut socket, Message::text("ü".repeat(len / 2)));
        say(&mut socket, Message::binary((0..len).map(|at| at as u8).collect::<Vec<_>>()));
    }
    socket.send(Message::Ping("here?".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("here?".into()));
    socket.close(None).unwrap();
    loop {
        match socket.read() {
            Ok(Message::Close(_)) => {}
            Err(tungstenite::Error::ConnectionClosed) => return,
            other => panic!("{other:?}"),
        }
    }
}

fn say<S: Read + Write>(socket: &mut WebSocket<S>, message: Message) {
    socket.send(message.clone()).unwrap();
    assert!(socket.read().unwrap() == message);
}

#[test]
fn a_fiber_serves_clients_of_std() {
    let _watchdog = support::watchdog(60);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = workers(2);
    let server = runtime.spawn(move || {
        fibra::scope(|s| {
            for stream in listener.incoming().take(4) {
                let stream = stream.unwrap();
                s.spawn(move || echo(stream));
            }
        });
    });
    let client = move || talk(std::net::TcpStream::connect(address).unwrap());
    let clients: Vec<_> = (0..4).map(|_| std::thread::spawn(client)).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}

#[test]
fn a_fiber_asks_servers_of_std() {
    let _watchdog = support::watchdog(60);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        std::thread::scope(|s| {
            for _ in 0..4 {
                let stream = listener.accept().unwrap().0;
                s.spawn(move || echo(stream));
            }
        });
    });
    workers(2).run(|| {
        fibra::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| talk(TcpStream::connect(address).unwrap()));
            }
        });
    });
    server.join().unwrap();
}

#[test]
fn over_tls_with_fibers_on_both_sides() {
    let _watchdog = support::watchdog(60);
    let trust = Trust::new();
    workers(1).run(|| {
        fibra::scope(|s| {
            let (here, there) = UnixStream::pair().unwrap();
            let trust = &trust;
            s.spawn(move || {
                let mut stream = StreamOwned::new(trust.accept(), there);
                echo(&mut stream);
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            });
            s.spawn(move || talk(StreamOwned::new(trust.connect(), here)));
        });
    });
}
