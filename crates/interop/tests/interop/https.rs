//! fibra-http with libraries of other projects: HTTPS by rustls, asked by a client of std and by curl; a WebSocket by tungstenite that
//! begins as an HTTP request, plain and over TLS.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use crate::support;
use fibra::net::TcpStream;
use fibra::{JoinHandle, Runtime};
use fibra_http::{Layered, Request, Response, Server, Stopper};
use interop::tls::Trust;
use rustls::{ServerConnection, StreamOwned};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

type Tls = StreamOwned<ServerConnection, TcpStream>;

/// Echoes what is posted, and what comes over WebSockets.
fn answer(request: &mut Request<'_>) -> Response {
    match (request.method(), request.path()) {
        ("POST", "/echo") => match request.bytes() {
            Ok(bytes) => Response::bytes(bytes),
            Err(_) => Response::new(400),
        },
        ("GET", "/chat") if request.header_has("upgrade", "websocket") => {
            let Some(key) = request.header("sec-websocket-key") else { return Response::new(400) };
            let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
            Response::upgrade("websocket", |stream| echo(WebSocket::from_raw_socket(stream, Role::Server, None)))
                .header("sec-websocket-accept", accept)
        }
        _ => Response::text("good day"),
    }
}

fn echo<S: Read + Write>(mut socket: WebSocket<S>) {
    while let Ok(message) = socket.read() {
        if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
            return;
        }
    }
}

struct Serving {
    address: SocketAddr,
    stopper: Stopper,
    server: JoinHandle<io::Result<fibra_http::Drained>>,
    runtime: Runtime,
}

impl Serving {
    fn start(trust: Option<&Trust>) -> Self {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap();
        let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
        let server = match trust.cloned() {
            None => runtime.spawn(move || server.serve(answer)),
            Some(trust) => runtime.spawn(move || {
                let handshake = move |stream: TcpStream| {
                    let mut tls = Tls::new(trust.accept(), stream);
                    tls.conn.complete_io(&mut tls.sock)?;
                    Ok(Layered::new(tls, |tls| &tls.sock).saying_goodbye(|tls| {
                        tls.conn.send_close_notify();
                        tls.flush()
                    }))
                };
                server.serve_over(handshake, answer)
            }),
        };
        Self { address, stopper, server, runtime }
    }

    fn end(self) {
        self.stopper.drain(std::time::Duration::from_secs(30));
        assert_eq!(self.server.join().unwrap().unwrap().cut_off, 0);
        drop(self.runtime);
    }
}

/// Asks twice over one connection, and reads to its orderly end.
fn ask<S: Read + Write>(mut stream: S) {
    let body: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    let head = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    // rustls says so if the end was not announced.
    stream.read_to_end(&mut heard).unwrap();
    let at = heard.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(heard.starts_with(b"HTTP/1.1 200 ") && heard[at..].starts_with(&body));
    assert!(heard.ends_with(b"good day"));
}

#[test]
fn https_for_clients_of_std() {
    let _watchdog = support::watchdog(60);
    let trust = Trust::new();
    let serving = Serving::start(Some(&trust));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let stream = std::net::TcpStream::connect(serving.address).unwrap();
                ask(StreamOwned::new(trust.connect(), stream));
            });
        }
    });
    // A client that does not speak TLS is turned away, and harms no other client.
    let mut stranger = std::net::TcpStream::connect(serving.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let _ = stranger.read_to_end(&mut Vec::new());
    ask(StreamOwned::new(trust.connect(), std::net::TcpStream::connect(serving.address).unwrap()));
    serving.end();
}

#[test]
fn https_for_curl() {
    let _watchdog = support::watchdog(60);
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("SKIPPED: curl is not installed");
        return;
    }
    let trust = Trust::new();
    let serving = Serving::start(Some(&trust));
    let url = format!("https://localhost:{}", serving.address.port());
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", "--http1.1", "--noproxy", "*", "--max-time", "30"])
        .args(["--resolve", &format!("localhost:{}:127.0.0.1", serving.address.port())])
        .args(["--data-binary", "over the wire", &format!("{url}/echo"), "--next"])
        .args(["--silent", "--insecure", "--http1.1", "--noproxy", "*", &url])
        .args(["--resolve", &format!("localhost:{}:127.0.0.1", serving.address.port())])
        .output()
        .unwrap();
    let heard = String::from_utf8_lossy(&output.stdout);
    assert_eq!(heard, "over the wiregood day", "{}", String::from_utf8_lossy(&output.stderr));
    serving.end();
}

fn chat<S: Read + Write>(stream: S) {
    let (mut socket, response) =
        tungstenite::client("ws://localhost/chat", stream).map_err(|error| error.to_string()).unwrap();
    assert_eq!(response.status().as_u16(), 101);
    for len in [0, 1, 125, 126, 65_536, 1 << 20] {
        let message = Message::binary((0..len).map(|at| at as u8).collect::<Vec<_>>());
        socket.send(message.clone()).unwrap();
        assert!(socket.read().unwrap() == message);
    }
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
}

#[test]
fn a_websocket_begins_as_a_request() {
    let _watchdog = support::watchdog(60);
    let plain = Serving::start(None);
    chat(std::net::TcpStream::connect(plain.address).unwrap());
    plain.end();
    let trust = Trust::new();
    let secret = Serving::start(Some(&trust));
    chat(StreamOwned::new(trust.connect(), std::net::TcpStream::connect(secret.address).unwrap()));
    secret.end();
}
