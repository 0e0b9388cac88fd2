//! The example does what it says: it is run as a user runs it.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // It is a program of its own: built once, in the ordinary way.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, watchdog};

/// Builds the example, which takes a moment only if `cargo test` has built it just before, and returns its path.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let profile = test.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps");
    let target = profile.parent().expect("tests lie in <target>/<profile>/deps");
    let how = if profile.ends_with("release") { "--release" } else { "--profile=test" };
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", how, "--package", "fibra-http", "--example", name, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(built.status.success(), "{name} does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    profile.join("examples").join(name)
}

/// The example's process; it ends with the test, on every path.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_keeps_notes_and_stops_gracefully() {
    let _watchdog = watchdog(300);
    let mut command = Command::new(example("service"));
    let mut service =
        Service(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut output = BufReader::new(service.0.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect("it says where").parse().unwrap();

    let mut client = Client::new(address);
    let post = |client: &mut Client, text: &str| {
        client.ask(format!("POST /notes HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{text}", text.len())).status
    };
    assert_eq!(post(&mut client, "one"), 201);
    let mut watcher = Client::new(address);
    watcher.send("GET /watch HTTP/1.1\r\nHost: t\r\n\r\n");
    // Until the watcher is at work, notes go unseen: so the test adds many notes, one of which the watcher sees.
    let mut seen = Vec::new();
    watcher.stream.get_ref().set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 1000];
    while !String::from_utf8_lossy(&seen).contains("another") {
        assert_eq!(post(&mut client, "another"), 201);
        if let Ok(count) = watcher.stream.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(client.get("/notes").text().starts_with("one\nanother\n"));
    assert_eq!((client.get("/no").status, client.ask("PUT /notes HTTP/1.1\r\nHost: t\r\n\r\n").status), (404, 405));

    // The example listens to signals before it prints its address.
    let asked = Command::new("/bin/sh").args(["-c", "kill -TERM $0"]).arg(service.0.id().to_string()).status();
    assert!(asked.unwrap().success());
    watcher.stream.get_ref().set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    assert!(watcher.rest().contains("goodbye\n"));
    client.expect_end();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "stopped; 0 connections were cut off\n");
    assert!(service.0.wait().unwrap().success());
}
