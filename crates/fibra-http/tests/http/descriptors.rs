//! A server that runs out of descriptors goes on when there are some again. In a process of its own, which may open few.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Tools that open files of their own.

use std::net::TcpStream;
use std::process::Command;

use crate::support::{descriptors, eventually, serve, watchdog};
use fibra_http::Request;

/// The variable that tells the child what it is for.
const CHILD: &str = "FIBRA_HTTP_TEST_CHILD";

#[test]
fn without_descriptors_connections_wait() {
    if std::env::var_os(CHILD).is_some() {
        return with_few_descriptors();
    }
    let _watchdog = watchdog(120);
    let test = std::env::current_exe().unwrap();
    let output = Command::new("/bin/sh")
        .args([
            "-c",
            "ulimit -n 60 && exec \"$0\" --exact descriptors::without_descriptors_connections_wait --nocapture",
        ])
        .arg(test)
        .env(CHILD, "1")
        .output()
        .expect("there is a shell");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{text}");
}

fn with_few_descriptors() {
    let _watchdog = watchdog(60);
    let server = serve(|_: &mut Request<'_>| "fine");
    assert_eq!(server.connect().get("/").status, 200);
    eventually(|| descriptors() < 40, "that one is closed again");
    let before = descriptors();
    // Each connection takes two, one at each end; connections for which the server has none wait in the queue.
    let mut clients = Vec::new();
    while let Ok(client) = TcpStream::connect(server.address) {
        clients.push(client);
    }
    assert!(clients.len() > 5, "only {} clients", clients.len());
    eventually(|| std::fs::File::open("/dev/null").is_err(), "there is nothing left");
    drop(clients);
    eventually(|| descriptors() <= before, "all are closed, also those that waited");
    assert_eq!(server.connect().get("/").status, 200);
}
