//! Foreign programs: curl as a client, nginx and haproxy in between. A test is skipped, with a message, where its program is missing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Client, Running, eventually, serve_with, watchdog};
use fibra_http::{Request, Response, Server};

/// The program, if it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {name} is not installed");
    }
    found
}

fn service() -> Running {
    serve_with(Server::builder().max_body_bytes(1 << 30), |request: &mut Request<'_>| {
        Ok::<_, fibra_http::BodyError>(match (request.method(), request.path()) {
            ("GET" | "HEAD", "/") => Response::text("good day"),
            ("GET", "/stream") => Response::stream(|out| {
                for number in 0..10_000 {
                    writeln!(out, "{number}")?;
                }
                Ok(())
            }),
            ("POST", "/echo") => Response::bytes(request.bytes()?),
            ("POST", "/refuse") => Response::new(403),
            ("GET", "/connection") => Response::text(request.peer_addr().map_or(0, |from| from.port()).to_string()),
            _ => Response::new(404),
        })
    })
}

/// A file that is removed when this is dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("fibra-http-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn curl() {
    let _watchdog = watchdog(120);
    let Some(curl) = program("curl") else { return };
    let server = service();
    let ask = |arguments: &[&str], path: &str| {
        let output = Command::new(&curl)
            .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"])
            .args(arguments)
            .arg(format!("http://{}{path}", server.address))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(ask(&[], "/"), b"good day");
    let head = text(ask(&["--head"], "/"));
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 8\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(ask(&["--http1.0"], "/"), b"good day");
    let numbers: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(text(ask(&[], "/stream")), numbers);
    assert_eq!(text(ask(&["--http1.0"], "/stream")), numbers);
    let large: Vec<u8> = (0..2_000_000u32).map(|number| ((number * 31) >> 3) as u8).collect();
    let file = File::new("upload", &large);
    let at = format!("@{}", file.text());
    // With a length, in chunks, and after waiting for `100 Continue`.
    assert!(ask(&["--data-binary", &at], "/echo") == large);
    assert!(ask(&["--header", "Transfer-Encoding: chunked", "--data-binary", &at], "/echo") == large);
    let expecting = ["--header", "Expect: 100-continue", "--expect100-timeout", "60", "--data-binary", &at];
    assert!(ask(&expecting, "/echo") == large);
    let refused =
        ["--header", "Expect: 100-continue", "--expect100-timeout", "60", "--write-out", "%{http_code} %{size_upload}"];
    let said = text(ask(&[&refused[..], &["--data-binary", &at]].concat(), "/refuse"));
    assert_eq!(said, "403 0", "curl did not have to send anything");
    // Two requests on one connection.
    let root = format!("http://{}/connection", server.address);
    let ports = text(ask(&["--write-out", "\\n", &root], "/connection"));
    let ports: Vec<&str> = ports.lines().collect();
    assert!(ports.len() == 2 && ports[0] == ports[1], "{ports:?}");
}

/// A proxy process that ends with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Proxy {
    Proxy(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends many requests, some with bodies, through a proxy that keeps connections to the server; returns how many connections it made.
fn through(proxy: std::net::SocketAddr) -> usize {
    eventually(|| std::net::TcpStream::connect(proxy).is_ok(), "the proxy listens");
    let body = "0123456789".repeat(20_000);
    let mut ports = std::collections::HashSet::new();
    let mut client = Client::new(proxy);
    for round in 0..50 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text()), (200, "good day"));
        ports.insert(client.get("/connection").text().to_owned());
        if round % 10 == 0 {
            let length = body.len();
            let answer =
                client.ask(format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}"));
            assert!(answer.text() == body);
            let head = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
            let answer = client.ask(format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n"));
            assert!(answer.text() == body);
            assert_eq!(client.get("/stream").text().lines().count(), 10_000);
            client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
            assert_eq!(client.answer_to("HEAD").unwrap().header("content-length"), Some("8"));
            assert_eq!(client.get("/no").status, 404);
        }
    }
    ports.len()
}

#[test]
fn behind_nginx() {
    let _watchdog = watchdog(120);
    let Some(nginx) = program("nginx") else { return };
    let server = service();
    let port = free_port();
    let folder = std::env::temp_dir().join(format!("fibra-http-nginx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
         events {{ worker_connections 128; }}
         http {{
             access_log off;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
             uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
             client_max_body_size 10m;
             upstream fibra {{ server {address}; keepalive 4; }}
             server {{
                 listen 127.0.0.1:{port};
                 location / {{
                     proxy_pass http://fibra; proxy_http_version 1.1; proxy_set_header Connection \"\";
                     proxy_request_buffering off;
                 }}
             }}
         }}",
        folder = folder.display(),
        address = server.address,
    );
    let file = File::new("nginx.conf", configuration.as_bytes());
    let proxy = start(Command::new(nginx).args(["-p", folder.to_str().unwrap(), "-c", file.text()]));
    let connections = through(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
    assert!(connections <= 2, "nginx keeps its connections to us: {connections}");
    drop(proxy);
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn behind_haproxy() {
    let _watchdog = watchdog(120);
    let Some(haproxy) = program("haproxy") else { return };
    let server = service();
    let port = free_port();
    let configuration = format!(
        "defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n http-reuse always\n\
         frontend in\n bind 127.0.0.1:{port}\n default_backend fibra\n\
         backend fibra\n server one {}\n",
        server.address
    );
    let file = File::new("haproxy.cfg", configuration.as_bytes());
    let proxy = start(Command::new(haproxy).args(["-f", file.text(), "-db"]));
    let connections = through(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
    assert!(connections <= 4, "haproxy keeps its connections to us: {connections}");
    // The proxy's idle connections do not delay the end of the server.
    server.stopper.drain(Duration::from_secs(3600));
    assert_eq!(server.wait().cut_off, 0);
    drop(proxy);
}
