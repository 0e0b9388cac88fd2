//! Looking into a process from outside: by a signal, and through the inspector.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::{is_child, rerun_self, watchdog};

fn waiting_fiber() -> (fibra::channel::Sender<u8>, fibra::JoinHandle<()>) {
    let (tx, rx) = fibra::channel::builder::<u8>().bounded(1).name("errands").build();
    let waiting = fibra::Builder::new().name("waiting").spawn(move || _ = rx.recv()).unwrap();
    while !fibra::inspect::snapshot().fibers().iter().any(|fiber| fiber.id == waiting.id() && fiber.wait.is_some()) {
        fibra::yield_now();
    }
    (tx, waiting)
}

#[test]
fn a_signal_prints_the_snapshot() {
    const TEST: &str = "a_signal_prints_the_snapshot";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[("FIBRA_DUMP_SIGNAL", "QUIT")]);
        assert!(ended.status.success(), "{ended:?}");
        for part in
            ["fibra: snapshot of runtime \"fibra\"", "\"waiting\": receiving from a channel, channel \"errands\""]
        {
            assert!(ended.stderr.contains(part), "{part:?} is not in\n{}", ended.stderr);
        }
        let ended = rerun_self(TEST, &[]);
        assert_eq!(ended.signal(), Some(libc::SIGQUIT), "without the variable the signal does what it did: {ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, waiting) = waiting_fiber();
        // Listeners are told one after the other, the runtime's before this one: when this one has heard it, all is printed.
        let is_asked_for = std::env::var_os("FIBRA_DUMP_SIGNAL").is_some();
        let heard = is_asked_for.then(|| fibra::signal::listen(fibra::signal::Signal::QUIT).unwrap());
        // SAFETY: a signal to this very process: listened to, or meant to end it.
        assert_eq!(unsafe { libc::raise(libc::SIGQUIT) }, 0);
        heard.unwrap().recv().unwrap();
        drop(tx);
        waiting.join().unwrap();
    });
}

#[test]
fn a_dump_goes_to_standard_error() {
    const TEST: &str = "a_dump_goes_to_standard_error";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[]);
        assert!(
            ended.stderr.contains("fibra: snapshot of all runtimes") && ended.stderr.contains("\"errands\""),
            "{ended:?}"
        );
        return;
    }
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, waiting) = waiting_fiber();
        fibra::dump();
        drop(tx);
        waiting.join().unwrap();
    });
}

fn get(mut stream: impl Read + Write, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_inspector_answers() {
    const TEST: &str = "the_inspector_answers";
    if !is_child(TEST) {
        // A port of the system's choice would not be known to the child: so it is chosen here, and given back.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ended = rerun_self(TEST, &[("FIBRA_INSPECT", &format!("127.0.0.1:{port}"))]);
        assert!(ended.status.success(), "{ended:?}");
        let path = format!("{}/fibra-test-{}.sock", std::env::temp_dir().display(), std::process::id());
        let ended = rerun_self(TEST, &[("FIBRA_INSPECT", &format!("unix:{path}"))]);
        assert!(ended.status.success(), "{ended:?}");
        let _ = std::fs::remove_file(path);
        return;
    }
    let _watchdog = watchdog(60);
    let place = std::env::var("FIBRA_INSPECT").unwrap();
    let get = |path: &str| match place.strip_prefix("unix:") {
        Some(socket) => get(UnixStream::connect(socket).unwrap(), path),
        None => get(TcpStream::connect(&place).unwrap(), path),
    };
    fibra::run(|| {
        let (tx, waiting) = waiting_fiber();
        let id = waiting.id().as_u64();
        for (path, part) in [
            ("/", "<!doctype html>".to_owned()),
            ("/snapshot.json", "\"name\":\"waiting\"".to_owned()),
            ("/snapshot", format!("fiber #{id} \"waiting\": receiving")),
            ("/graph.json", "\"deadlocks\":[]".to_owned()),
            ("/deadlocks", "no deadlock".to_owned()),
            ("/metrics", "fibra_fibers_spawned{runtime=\"fibra\"} ".to_owned()),
            ("/metrics", "fibra_fibers{state=\"ChannelRecv\"} 1".to_owned()),
        ] {
            let answer = get(path);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&part), "{path}: {part} is not in\n{answer}");
        }
        let page = get("/");
        let outside = page.split(['"', '(', ' ']).find(|part| part.starts_with("http") && !part.contains("www.w3.org"));
        assert_eq!(outside, None, "the page needs nothing from elsewhere");
        drop(tx);
        waiting.join().unwrap();
    });
}

#[test]
fn a_fiber_is_cancelled_only_with_the_token() {
    const TEST: &str = "a_fiber_is_cancelled_only_with_the_token";
    const TOKEN: &str = "0123456789abcdef";
    if !is_child(TEST) {
        for (number, token) in [TOKEN, "", "too-short"].into_iter().enumerate() {
            let path = format!("{}/fibra-test-{}-{number}.sock", std::env::temp_dir().display(), std::process::id());
            let ended = rerun_self(TEST, &[("FIBRA_INSPECT", &format!("unix:{path}")), ("FIBRA_INSPECT_TOKEN", token)]);
            assert!(ended.status.success(), "{token:?}: {ended:?}");
            assert!(!ended.stderr.contains(TOKEN), "the token is printed nowhere: {ended:?}");
            let _ = std::fs::remove_file(path);
        }
        return;
    }
    let _watchdog = watchdog(60);
    let given = std::env::var("FIBRA_INSPECT_TOKEN").unwrap();
    let rt = match fibra::Runtime::builder().workers(2).build() {
        Err(error) => {
            assert_eq!(given, "too-short", "{error}");
            let text = error.to_string();
            return assert!(text.contains("FIBRA_INSPECT_TOKEN has 9 characters") && !text.contains(&given), "{text}");
        }
        Ok(rt) => rt,
    };
    let place = std::env::var("FIBRA_INSPECT").unwrap();
    let cancel = |fiber: u64, header: &str| {
        let mut stream = UnixStream::connect(place.strip_prefix("unix:").unwrap()).unwrap();
        let request = format!("POST /cancel?fiber={fiber} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    let (tx, waiting) = rt.run(|| {
        let (tx, waiting) = waiting_fiber();
        let id = waiting.id().as_u64();
        let refused = cancel(id, "");
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        let refused = cancel(id, "Authorization: Bearer 0123456789abcdeg\r\n");
        assert!(refused.starts_with("HTTP/1.1 403") && !waiting.is_finished(), "{refused}");
        if given.is_empty() {
            let refused = cancel(id, &good);
            assert!(refused.contains("started without FIBRA_INSPECT_TOKEN"), "{refused}");
            waiting.cancel();
        } else {
            let done = cancel(id, &good);
            assert!(done.starts_with("HTTP/1.1 202"), "{done}");
        }
        (tx, waiting)
    });
    assert!(waiting.join().unwrap_err().is_cancelled());
    // A task is found too: it lives on no worker.
    let task = rt.run(|| {
        let task = fibra::spawn_future(std::future::pending::<()>());
        if given.is_empty() {
            task.cancel();
        } else {
            assert!(cancel(task.id().as_u64(), &good).starts_with("HTTP/1.1 202"));
        }
        task
    });
    assert!(task.join().unwrap_err().is_cancelled());
    assert!(!given.is_empty() || cancel(1, &good).starts_with("HTTP/1.1 403"));
    drop(tx);
}
