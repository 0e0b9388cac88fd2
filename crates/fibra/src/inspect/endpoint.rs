//! The inspector: a small HTTP server inside the process, for people and tools that look into it. Off unless `FIBRA_INSPECT` is set.
//!
//! ```text
//! FIBRA_INSPECT=127.0.0.1:6680    an address of this machine; another one only with FIBRA_INSPECT_OPEN=1
//! FIBRA_INSPECT=unix              a socket that only this user can open: $XDG_RUNTIME_DIR/fibra/<pid>.sock, or /tmp/fibra-<uid>/<pid>.sock
//! FIBRA_INSPECT=unix:/some/path   a socket there
//! ```
//!
//! `/` is a page (`page.html`, which needs nothing from elsewhere), `/snapshot.json`, `/snapshot`, `/graph.json`, `/deadlocks`, `/metrics`
//! (Prometheus) and `/stack?fiber=7` are what it and others read. `POST /cancel?fiber=7` changes the program, and needs the token of
//! `FIBRA_INSPECT_TOKEN` (`token.rs`). A browser on this machine may be lured to any address: so a request must name the host as an address
//! or `localhost`.
//!
//! One plain thread serves one connection after another, each for a short time only: it must work when every worker is stuck. It belongs to
//! the process, not to a runtime, and is started by the first that is built. A child of a fork has none until it builds a runtime.
//!
//! Above: `runtime::builder`. Below: `collect.rs`, `json.rs`, `deadlock.rs`, `monitor::metrics`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use super::collect::collect;
use super::json::{Fields, list};
use super::snapshot::FiberState;
use super::token::Token;
use super::{deadlock, graph, snapshot, stack_of};
use crate::cancel::cancel_numbered;
use crate::fiber::id::FiberId;
use crate::monitor::metrics::Metrics;
use crate::monitor::objects;
use crate::monitor::per_process::PerProcess;
use crate::monitor::stats::quoted;
use crate::prim::sync::Mutex;
use crate::prim::{say, thread};

/// A client gets so much time to ask, and to read.
const TIME: Duration = Duration::from_secs(2);
/// The longest request.
const LONGEST: usize = 8 << 10;
/// Edges of the graph that are sent.
const EDGES: usize = 5000;

const PAGE: &str = include_str!("page.html");

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// From the value of `FIBRA_INSPECT`. `open`: an address that others can reach is allowed.
    pub(crate) fn parse(value: &str, open: bool) -> Result<Option<Self>, String> {
        match value.trim() {
            "" | "0" => Ok(None),
            "unix" => Ok(Some(Self::Unix(PathBuf::new()))),
            path if path.starts_with("unix:/") => Ok(Some(Self::Unix(path["unix:".len()..].into()))),
            address => match address.parse::<SocketAddr>() {
                Ok(address) if open || address.ip().is_loopback() => Ok(Some(Self::Tcp(address))),
                Ok(_) => Err("others could reach that address; FIBRA_INSPECT_OPEN=1 allows it".to_owned()),
                Err(_) => Err("expected an address like 127.0.0.1:6680, unix, or unix:/path".to_owned()),
            },
        }
    }
}

/// Where this process listens, if it does.
#[derive(Default)]
struct Served {
    place: Mutex<Option<ListenAddress>>,
}

static SERVED: PerProcess<Served> = PerProcess::new(Served::default);

/// Starts the server of this process, if there is none yet. `token`: what a request must name that acts; without one none may.
pub(crate) fn serve(place: ListenAddress, token: Option<Token>) -> io::Result<()> {
    let mut served = SERVED.get().place.lock();
    if served.is_some() {
        return Ok(());
    }
    let name = "fibra-inspect".to_owned();
    match &place {
        ListenAddress::Tcp(address) => {
            let open = !address.ip().is_loopback();
            let listener = TcpListener::bind(address)?;
            say(format_args!("fibra: the inspector listens at http://{}/", listener.local_addr()?));
            thread::start_quiet(name, move || {
                for client in listener.incoming().flatten() {
                    let _ = client.set_read_timeout(Some(TIME)).and(client.set_write_timeout(Some(TIME)));
                    let _ = answer(client, open, token.as_ref());
                }
            })?;
        }
        ListenAddress::Unix(path) => {
            let path = if path.as_os_str().is_empty() { own_path()? } else { path.clone() };
            // What a process with this number left behind.
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path)?;
            say(format_args!("fibra: the inspector listens at {}", path.display()));
            thread::start_quiet(name, move || {
                for client in listener.incoming().flatten() {
                    let _ = client.set_read_timeout(Some(TIME)).and(client.set_write_timeout(Some(TIME)));
                    let _ = answer(client, true, token.as_ref());
                }
            })?;
        }
    }
    *served = Some(place);
    Ok(())
}

/// A path in a folder that is this user's alone.
fn own_path() -> io::Result<PathBuf> {
    let user = fs::metadata("/proc/self")?.uid();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("fibra"),
        None => PathBuf::from(format!("/tmp/fibra-{user}")),
    };
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&folder) {
        let found = fs::symlink_metadata(&folder);
        if !found.is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0) {
            return Err(io::Error::new(error.kind(), format!("{} is not this user's alone", folder.display())));
        }
    }
    Ok(folder.join(format!("{}.sock", std::process::id())))
}

/// Reads one request and answers it. `open`: whatever host is named.
fn answer(mut client: impl Read + Write, open: bool, token: Option<&Token>) -> io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = client.read(&mut piece)?;
        request.extend_from_slice(&piece[..read]);
        if read == 0 || request.len() > LONGEST {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request);
    let mut lines = request.lines();
    let mut words = lines.next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, text)| *text);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, kind, body) = if !open && !header("host").is_none_or(|host| is_this_machine(host.trim())) {
        ("403 Forbidden", "text/plain", "the request must name this host as an address or as localhost\n".to_owned())
    } else {
        match (method, path) {
            ("GET", "/cancel") => ("405 Method Not Allowed", "text/plain", "cancelling is a POST\n".to_owned()),
            ("GET", _) => page(path, query),
            ("POST", "/cancel") => match may_act(token, header("authorization")) {
                Ok(()) => cancel(query),
                Err(why) => ("403 Forbidden", "text/plain", format!("{why}\n")),
            },
            _ => ("405 Method Not Allowed", "text/plain", "only GET is answered, and POST /cancel\n".to_owned()),
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'self'; \
         script-src 'unsafe-inline'; style-src 'unsafe-inline'\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

fn is_this_machine(host: &str) -> bool {
    let name = if host.parse::<IpAddr>().is_ok() { host } else { host.rsplit_once(':').map_or(host, |(name, _)| name) };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Does the request name the token?
fn may_act(token: Option<&Token>, header: Option<&str>) -> Result<(), &'static str> {
    match (token, header) {
        (None, _) => Err("this process lets nothing act on it: it was started without FIBRA_INSPECT_TOKEN"),
        (_, None) => Err("the token is missing: send the header Authorization: Bearer <FIBRA_INSPECT_TOKEN>"),
        (Some(token), Some(given)) if token.is_named_by(given) => Ok(()),
        _ => Err("that is not the token of this process (FIBRA_INSPECT_TOKEN)"),
    }
}

/// Asks a fiber to end, as `JoinHandle::cancel` does.
fn cancel(query: &str) -> (&'static str, &'static str, String) {
    let Some(id) = fiber_of(query) else {
        return ("400 Bad Request", "text/plain", "expected /cancel?fiber=7\n".to_owned());
    };
    let (status, text) = match snapshot().fiber(id) {
        None => ("404 Not Found", format!("there is no fiber {id}\n")),
        Some(fiber) if fiber.state == FiberState::NotStarted => {
            ("409 Conflict", format!("fiber {id} has not started yet; cancel it when it has\n"))
        }
        Some(_) => {
            // The fiber has a runtime among these, or has ended since.
            objects::runtimes().iter().for_each(|runtime| cancel_numbered(runtime, id.as_u64()));
            ("202 Accepted", format!("fiber {id} is asked to end: it unwinds from its wait, or at its next one\n"))
        }
    };
    (status, "text/plain", text)
}

/// The number in `fiber=7`.
fn fiber_of(query: &str) -> Option<FiberId> {
    query.strip_prefix("fiber=").and_then(|number| number.parse().ok()).map(FiberId::from_u64)
}

/// What is at a path: status, type and content.
fn page(path: &str, query: &str) -> (&'static str, &'static str, String) {
    const FOUND: &str = "200 OK";
    match path {
        "/" => (FOUND, "text/html", PAGE.to_owned()),
        "/snapshot.json" => (FOUND, "application/json", snapshot().to_json()),
        "/snapshot" => (FOUND, "text/plain", snapshot().to_string()),
        "/graph.json" => (FOUND, "application/json", graph_json()),
        "/deadlocks" => {
            let all: Vec<_> = super::deadlocks().iter().map(|deadlock| format!("{deadlock}\n")).collect();
            (FOUND, "text/plain", if all.is_empty() { "no deadlock\n".to_owned() } else { all.concat() })
        }
        "/metrics" => (FOUND, "text/plain", prometheus()),
        "/stack" => match fiber_of(query) {
            Some(fiber) => match stack_of(fiber) {
                Ok(stack) => (FOUND, "text/plain", stack),
                Err(why) => ("404 Not Found", "text/plain", format!("{why}\n")),
            },
            None => ("400 Bad Request", "text/plain", "expected /stack?fiber=7\n".to_owned()),
        },
        _ => ("404 Not Found", "text/plain", "there is no such page\n".to_owned()),
    }
}

/// Which fiber waits for which, and the deadlocks.
fn graph_json() -> String {
    let (snapshot, found) = collect(None);
    let graph = graph::Graph::new(&snapshot, &found);
    let id = |at: usize| snapshot.fibers()[at].id.as_u64();
    let edges = graph.needs.iter().enumerate().flat_map(|(from, need)| {
        let kind = if need.is_certain() { "certain" } else { "probable" };
        graph.in_order(from).into_iter().map(move |to| (from, to, kind))
    });
    let edge = |(from, to, kind)| Fields::new().raw("from", id(from)).raw("to", id(to)).text("kind", kind).end();
    let stuck = (0..graph.stuck.len()).filter(|at| graph.stuck[*at]).map(|at| id(at).to_string());
    let deadlocks = deadlock::of(&snapshot, &found).into_iter().map(|deadlock| {
        let fibers = list(deadlock.fibers().iter().map(|fiber| fiber.as_u64().to_string()));
        let fields = Fields::new().raw("certain", deadlock.is_certain()).raw("fibers", fibers);
        fields.text("text", &deadlock.to_string()).end()
    });
    Fields::new()
        .raw("edges", list(edges.take(EDGES).map(edge)))
        .raw("stuck", list(stuck))
        .raw("deadlocks", list(deadlocks))
        .end()
}

/// The counters of every runtime, and the fibers by what they wait for, as Prometheus reads it.
fn prometheus() -> String {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    let mut text = String::new();
    for runtime in objects::runtimes() {
        let label = format!("{{runtime={}}}", quoted(&runtime.config.name));
        Metrics::collect(&runtime).groups(&mut |group, figures| {
            for (name, figure) in figures {
                // Writing to a string does not fail.
                let _ = writeln!(text, "fibra_{group}_{name}{label} {figure}");
            }
        });
    }
    let snapshot = snapshot();
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    for fiber in snapshot.fibers() {
        let reason =
            fiber.wait.as_ref().map_or_else(|| fiber.state.name().to_owned(), |wait| format!("{:?}", wait.reason));
        *waiting.entry(reason).or_default() += 1;
    }
    for (reason, count) in waiting {
        let _ = writeln!(text, "fibra_fibers{{state={}}} {count}", quoted(&reason));
    }
    for channel in snapshot.channels().iter().filter(|channel| channel.name.is_some()) {
        let label = format!("{{name={},id=\"{}\"}}", quoted(channel.name.as_deref().unwrap_or("")), channel.id);
        let _ = writeln!(text, "fibra_channel_len{label} {}", channel.len);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_unless_told_otherwise() {
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        assert_eq!(ListenAddress::parse("127.0.0.1:6680", false), Ok(Some(tcp("127.0.0.1:6680"))));
        assert_eq!(ListenAddress::parse(" [::1]:80 ", false), Ok(Some(tcp("[::1]:80"))));
        assert!(ListenAddress::parse("0.0.0.0:6680", false).is_err());
        assert_eq!(ListenAddress::parse("0.0.0.0:6680", true), Ok(Some(tcp("0.0.0.0:6680"))));
        assert_eq!(ListenAddress::parse("unix:/tmp/a", false), Ok(Some(ListenAddress::Unix("/tmp/a".into()))));
        assert_eq!(ListenAddress::parse("0", false), Ok(None));
        assert!(ListenAddress::parse("6680", false).is_err());
    }

    #[test]
    fn a_host_is_an_address_or_this_machine() {
        for good in ["127.0.0.1:6680", "localhost", "LOCALHOST:80", "[::1]:80", "::1", "10.0.0.1"] {
            assert!(is_this_machine(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:6680", "127.0.0.1.evil.example:80", ""] {
            assert!(!is_this_machine(bad), "{bad}");
        }
    }

    /// A client that asks this, and what it is told.
    struct Client(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Client {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Client {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ask(request: &str) -> String {
        let mut client = Client(io::Cursor::new(request.as_bytes().to_vec()), Vec::new());
        let token = Token::parse("abcdefghijklmnop").unwrap();
        answer(&mut client, false, token.as_ref()).unwrap();
        String::from_utf8(client.1).unwrap()
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let get = |path: &str, host: &str| ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(get("/", "localhost").contains("<!doctype html>"));
        assert!(get("/snapshot.json", "127.0.0.1:1").contains("\r\n\r\n{\"fibers\":["));
        assert!(get("/graph.json", "127.0.0.1:1").contains("\"deadlocks\":["));
        assert!(get("/stack?fiber=x", "localhost").starts_with("HTTP/1.1 400"));
        assert!(get("/nothing", "localhost").starts_with("HTTP/1.1 404"));
        assert!(get("/", "evil.example").starts_with("HTTP/1.1 403"));
        assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(get("/cancel?fiber=1", "localhost").starts_with("HTTP/1.1 405"));
        assert!(ask("OPTIONS /cancel HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"), "no page of another site may");
        let act = |host: &str, header: &str, query: &str| {
            ask(&format!("POST /cancel?{query} HTTP/1.1\r\nHost: {host}\r\n{header}\r\n"))
        };
        let good = "Authorization: Bearer abcdefghijklmnop\r\n";
        assert!(act("localhost", "", "fiber=1").contains("the token is missing"));
        let wrong = act("localhost", "Authorization: Bearer abcdefghijklmnox\r\n", "fiber=1");
        assert!(wrong.starts_with("HTTP/1.1 403") && wrong.contains("that is not the token"), "{wrong}");
        assert!(act("evil.example", good, "fiber=1").starts_with("HTTP/1.1 403"));
        assert!(act("localhost", good, "fiber=x").starts_with("HTTP/1.1 400"));
        assert!(act("localhost", good, "fiber=18446744073709551615").starts_with("HTTP/1.1 404"));
        assert_eq!(ask("GET / HTTP/1.1\r\n"), "", "it went away");
        assert_eq!(ask(&"x".repeat(LONGEST * 2)), "", "too long");
    }
}
