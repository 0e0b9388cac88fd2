//! The page of the inspector, in headless Chromium: one start, driven over the DevTools protocol through a pipe.
//!
//! Skipped, with a message, where there is no `chromium`.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // The browser's requests would wait for checked memory; the page is the same.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fibra::sync::{Barrier, Mutex};

use crate::support::{is_child, rerun_self, watchdog};

const TEST: &str = "the_page_shows_fibers_and_cancels_one";
const TOKEN: &str = "a-token-for-this-test-0123456789";

/// A browser with one page. Messages are JSON that ends with a zero byte; answers are found by their numbers.
struct Browser {
    process: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: String,
    number: u32,
    /// The addresses that the page asked for.
    requests: Vec<String>,
    folder: std::path::PathBuf,
}

impl Browser {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("fibra-chromium-{}", std::process::id()));
        // Chromium reads what it is asked from descriptor 3 and answers at 4.
        let start = "exec chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
            --disable-dev-shm-usage --disable-background-networking --disable-component-update --disable-sync \
            --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", start]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The inspector is this process's.
        let mut process = command.env_remove("FIBRA_INSPECT").spawn().expect("sh can be started");
        let (asks, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let (session, requests) = (String::new(), Vec::new());
        Self { process, asks, answers, session, number: 0, requests, folder }
    }

    /// Asks, and gives the answer.
    fn ask(&mut self, method: &str, params: &str) -> String {
        self.number += 1;
        let session =
            if self.session.is_empty() { String::new() } else { format!(",\"sessionId\":\"{}\"", self.session) };
        let message = format!("{{\"id\":{},\"method\":\"{method}\",\"params\":{params}{session}}}\0", self.number);
        self.asks.write_all(message.as_bytes()).expect("the browser listens");
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).expect("the browser answers");
            assert!(!answer.is_empty(), "the browser ended while it was asked {method} {params}");
            let answer = String::from_utf8_lossy(&answer).trim_end_matches('\0').to_owned();
            if answer.contains("\"method\":\"Network.requestWillBeSent\"") {
                self.requests.push(after(&answer, "\"request\":{\"url\":\"").to_owned());
            }
            if answer.starts_with(&format!("{{\"id\":{},", self.number)) {
                assert!(!answer.contains("\"error\":"), "{method}: {answer}");
                return answer;
            }
        }
    }

    fn open(&mut self, address: &str) {
        let target = self.ask("Target.createTarget", "{\"url\":\"about:blank\"}");
        let target = after(&target, "\"targetId\":\"").to_owned();
        let attached = self.ask("Target.attachToTarget", &format!("{{\"targetId\":\"{target}\",\"flatten\":true}}"));
        self.session = after(&attached, "\"sessionId\":\"").to_owned();
        self.ask("Network.enable", "{}");
        self.ask("Page.navigate", &format!("{{\"url\":\"{address}\"}}"));
    }

    /// Waits until this expression gives a string that is not empty, and gives it. It must contain no quotes of its own but `'`.
    fn until(&mut self, expression: &str) -> String {
        let wait = format!(
            "new Promise(found => {{ const look = () => {{ let value; try {{ value = {expression}; }} catch {{}} \
             value ? found(String(value)) : setTimeout(look, 50); }}; look(); }})"
        );
        let params = format!("{{\"expression\":\"{wait}\",\"awaitPromise\":true,\"returnByValue\":true}}");
        loop {
            // A navigation that is under way ends a promise without a value.
            let answer = self.ask("Runtime.evaluate", &params);
            if let Some((_, value)) = answer.split_once("\"value\":\"") {
                return value.split('"').next().unwrap_or("").to_owned();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    let (_, rest) = text.split_once(mark).unwrap_or_else(|| panic!("{mark:?} is not in {text}"));
    rest.split('"').next().unwrap_or("")
}

#[test]
fn the_page_shows_fibers_and_cancels_one() {
    if !is_child(TEST) {
        if Command::new("chromium").arg("--version").output().is_err() {
            return eprintln!("skipped: chromium is not installed (.ci/packages installs it)");
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = format!("127.0.0.1:{port}");
        let ended = rerun_self(TEST, &[("FIBRA_INSPECT", &place), ("FIBRA_INSPECT_TOKEN", TOKEN)]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(110);
    let place = std::env::var("FIBRA_INSPECT").unwrap();
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    let (tx, rx) = fibra::channel::builder::<u8>().bounded(4).name("errands").build();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            rt.spawn(move || while rx.recv().is_ok() {})
        })
        .collect();
    let (left, right) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let both = Arc::new(Barrier::new(2));
    let [one, other] = [("first", &left, &right), ("second", &right, &left)].map(|(name, has, wants)| {
        let (has, wants, both) = (has.clone(), wants.clone(), both.clone());
        let cross = move || {
            let _has = has.lock();
            both.wait();
            drop(wants.lock());
        };
        rt.handle().spawn_with(fibra::Builder::new().name(name), cross).unwrap()
    });

    let mut browser = Browser::start();
    browser.open(&format!("http://{place}/"));
    let row = |words: &str| format!("[...document.querySelectorAll('#groups tr')].find(row => {words})?.innerText");
    // The three fibers of one line share a row, with its number, their wait and where they were spawned.
    let group = browser.until(&row("row.cells[0].innerText === '3' && row.innerText.includes('errands')"));
    assert!(group.contains("receiving from a channel errands") && group.contains("in_a_browser.rs"), "{group}");
    browser.until(&row("row.className === 'stuck' && row.innerText.includes('first')"));
    browser.until("document.querySelector('#deadlocks pre').innerText.includes('CERTAIN')");
    // Two circles with their names, and an arrow each way.
    browser.until("document.querySelectorAll('#graph circle').length === 2");
    browser.until("document.querySelectorAll('#graph line').length === 2");
    let names = browser.until("[...document.querySelectorAll('#graph text')].map(text => text.textContent).join()");
    assert!(names.contains("first") && names.contains("second"), "{names}");
    // The search leaves what matches.
    browser.until("(document.getElementById('search').value = 'SECOND')");
    browser.until(
        "document.querySelectorAll('#groups tr').length === 2 && \
         document.querySelector('#groups').innerText.includes('second')",
    );
    browser.until("(document.getElementById('search').value = '', true)");
    // A click shows the stack and a button, which needs the token.
    let click = "document.getElementById('cancel').click() === undefined";
    let link =
        "[...document.querySelectorAll('#groups a')].find(a => a.innerText.includes('first')).click() === undefined";
    browser.until(link);
    browser.until("document.getElementById('cancel')");
    browser.until(click);
    browser.until("document.getElementById('stack').innerText.includes('that is not the token')");
    assert!(!one.is_finished(), "it was cancelled without the token");
    browser.until(&format!("(document.getElementById('token').value = '{TOKEN}')"));
    browser.until(click);
    browser.until("document.getElementById('stack').innerText.includes('is asked to end')");
    assert!(one.join().unwrap_err().is_cancelled());
    other.join().unwrap();
    browser.until("document.querySelectorAll('#deadlocks pre').length === 0");

    assert!(browser.requests.len() > 2, "the page has asked: {:?}", browser.requests);
    let own = format!("http://{place}/");
    let outside: Vec<_> = browser.requests.iter().filter(|address| !address.starts_with(&own)).collect();
    assert!(outside.is_empty(), "the page asks elsewhere: {outside:?}");
    drop(tx);
    waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
}
