//! Standard input, and copying. What needs an input of its own runs in a process of its own.

use std::io::{self, BufRead, Cursor, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UnixStream};

/// Starts this test again, in a process with a pipe as its standard input.
fn again(test: &str) -> (std::process::Child, std::process::ChildStdin) {
    let mut child =
        support::myself(test).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

/// Ends it well, in time.
#[track_caller]
fn ends(child: std::process::Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

fn stdin_lines() -> Vec<String> {
    fibra::io::stdin().lines().collect::<Result<_, _>>().unwrap()
}

#[test]
fn lines_are_read_by_fibers_and_threads() {
    let test = "lines_are_read_by_fibers_and_threads";
    if support::is_child(test) {
        let _watchdog = support::watchdog(40);
        let mut line = String::new();
        // On a plain thread, in two runtimes, on another thread.
        assert_eq!(fibra::io::stdin().read_line(&mut line).unwrap(), 4);
        fibra::run(|| assert_eq!(fibra::io::stdin().read_line(&mut line).unwrap(), 5));
        let other = std::thread::spawn(|| fibra::io::stdin().lines().next().unwrap().unwrap());
        assert_eq!((line, other.join().unwrap()), ("one\ntwo\r\n".to_owned(), "three".to_owned()));
        fibra::run(|| {
            let mut lock = fibra::io::stdin().lock();
            assert_eq!(lock.fill_buf().unwrap().first(), Some(&b'f'));
            lock.consume(1);
            let mut three = [0; 3];
            lock.read_exact(&mut three).unwrap();
            assert_eq!((&three, lock.read(&mut []).unwrap()), (b"our", 0));
            let mut rest = Vec::new();
            assert_eq!(lock.read_until(b' ', &mut rest).unwrap(), 4);
            assert_eq!(rest, b"ths ");
            drop(lock);
            assert!(!fibra::io::stdin().is_terminal());
            assert_eq!(stdin_lines(), ["five", "", "six\r7", "no end"]);
            // The end stays the end.
            assert_eq!(fibra::io::stdin().read(&mut [0; 8]).unwrap(), 0);
            assert_eq!(stdin_lines(), [""; 0]);
        });
        return;
    }
    let (child, mut input) = again(test);
    input.write_all(b"one\ntwo\r\nthree\nfourths five\r\n\nsix\r7\nno end").unwrap();
    drop(input);
    ends(child);
}

#[test]
fn what_is_no_text_is_an_error_once() {
    let test = "what_is_no_text_is_an_error_once";
    if support::is_child(test) {
        fibra::run(|| {
            let mut line = "kept".to_owned();
            assert_eq!(fibra::io::stdin().read_line(&mut line).unwrap_err().kind(), ErrorKind::InvalidData);
            assert_eq!(line, "kept");
            assert_eq!(stdin_lines(), ["text"]);
        });
        return;
    }
    let (child, mut input) = again(test);
    input.write_all(b"\xff\xfe\ntext\n").unwrap();
    drop(input);
    ends(child);
}

// The process ends although a fiber waits for a line that never comes, and although it was abandoned.
#[test]
fn a_program_that_waits_for_input_ends() {
    let test = "a_program_that_waits_for_input_ends";
    if support::is_child(test) {
        let _watchdog = support::watchdog(40);
        for _ in 0..3 {
            let runtime = Runtime::builder().workers(1).build().unwrap();
            let reader = runtime.spawn(stdin_lines);
            let daemon = fibra::Builder::new().daemon(true);
            runtime.run(move || drop(daemon.spawn(stdin_lines).unwrap()));
            support::eventually(|| runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
            drop(runtime);
            assert!(reader.join().unwrap_err().is_cancelled());
        }
        let late = fibra::run(|| fibra::timeout(Duration::from_millis(5), stdin_lines));
        assert!(late.is_err());
        // One thread waits for all of them.
        let waiting = support::thread_names().iter().filter(|name| name.starts_with("fibra-stray")).count();
        assert_eq!(waiting, 1, "{:?}", support::thread_names());
        return;
    }
    let (child, input) = again(test);
    ends(child);
    drop(input);
}

// A reader that gives up loses nothing of what comes later, nor half a line.
#[test]
fn nothing_that_was_typed_is_lost() {
    let test = "nothing_that_was_typed_is_lost";
    if support::is_child(test) {
        let _watchdog = support::watchdog(60);
        fibra::run(|| {
            let mut lines = Vec::new();
            let mut timeouts = 0;
            while lines.len() < 100 {
                let line = fibra::timeout(Duration::from_millis(1), || {
                    let mut line = String::new();
                    fibra::io::stdin().read_line(&mut line).unwrap();
                    line
                });
                match line {
                    Ok(line) => lines.push(line),
                    Err(_) => {
                        if timeouts == 0 {
                            println!("gave up");
                        }
                        timeouts += 1;
                    }
                }
            }
            let expected: Vec<_> = (0..100).map(|n| format!("line {n}\n")).collect();
            assert_eq!(lines, expected);
            println!("{timeouts} timeouts");
        });
        return;
    }
    let (mut child, mut input) = again(test);
    // It begins when it begins, and gives up at least once while nothing is typed.
    let mut said = Vec::new();
    while !said.ends_with(b"gave up\n") {
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    for n in 0..100 {
        input.write_all(b"line ").unwrap();
        std::thread::sleep(Duration::from_millis(2));
        input.write_all(format!("{n}\n").as_bytes()).unwrap();
    }
    let text = ends(child);
    assert!(text.contains("timeouts") && !text.contains("\n0 timeouts"), "no reader gave up: {text}");
    drop(input);
}

// A reader does not keep its worker from others, and readers take turns by whole lines.
#[test]
fn several_readers_share_by_lines() {
    let test = "several_readers_share_by_lines";
    if support::is_child(test) {
        let _watchdog = support::watchdog(60);
        Runtime::builder().workers(2).build().unwrap().run(|| {
            let readers: Vec<_> = (0..4).map(|_| fibra::spawn(stdin_lines)).collect();
            let mut all: Vec<u32> = readers
                .into_iter()
                .flat_map(|reader| reader.join().unwrap())
                .map(|line| line.parse().unwrap())
                .collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(10_000..30_000));
        });
        return;
    }
    let (child, mut input) = again(test);
    for n in 10_000..30_000 {
        writeln!(input, "{n}").unwrap();
    }
    drop(input);
    ends(child);
}

// Without an input at all, and from a file.
#[test]
fn any_kind_of_input_will_do() {
    let test = "any_kind_of_input_will_do";
    if support::is_child(test) {
        let _watchdog = support::watchdog(40);
        let mut text = String::new();
        fibra::run(|| fibra::io::stdin().read_to_string(&mut text)).unwrap();
        writeln!(fibra::io::stdout(), "read {} bytes", text.len()).unwrap();
        fibra::run(|| {
            let mut out = fibra::io::stdout();
            out.write_all(b"and said so\n").and_then(|()| out.flush()).unwrap();
            fibra::io::stderr().write_all(b"").unwrap();
        });
        return;
    }
    let path = std::env::temp_dir().join(format!("fibra-stdin-{}", std::process::id()));
    std::fs::write(&path, "x".repeat(100_000)).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    for (input, bytes) in [(Stdio::null(), 0), (file.into(), 100_000)] {
        let output = support::myself(test).stdin(input).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(&format!("read {bytes} bytes\nand said so\n")), "{text}");
    }
    std::fs::remove_file(path).unwrap();
}

// A terminal: an end (Ctrl-D) is one, and what is typed after it is read.
#[test]
fn a_terminal_goes_on_after_its_end() {
    let test = "a_terminal_goes_on_after_its_end";
    if support::is_child(test) {
        let _watchdog = support::watchdog(40);
        fibra::run(|| {
            assert!(fibra::io::stdin().is_terminal());
            println!("first");
            let lines = stdin_lines();
            println!("{lines:?}");
            let mut line = String::new();
            fibra::io::stdin().read_line(&mut line).unwrap();
            println!("{line:?}");
        });
        return;
    }
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both are filled; nothing else is asked for.
    let opened =
        unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), std::ptr::null()) };
    assert_eq!(opened, 0);
    // SAFETY: just opened, and of this test alone.
    let (mut ours, theirs) = unsafe { (std::fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = support::myself(test);
    command.stdin(theirs).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut output = io::BufReader::new(child.stdout.take().unwrap());
    let mut said = |what: &str| {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "it does not say {what:?}");
        }
    };
    said("first");
    ours.write_all(b"one\ntwo\n\x04").unwrap();
    said(r#"["one", "two"]"#);
    ours.write_all(b"after\n").unwrap();
    said(r#""after\n""#);
    assert!(child.wait().unwrap().success());
}

// ---- Copying ------------------------------------------------------------------------------------------------------------

/// Reads in odd pieces, with interruptions.
struct Odd(Cursor<Vec<u8>>, usize);

impl Read for Odd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = (self.1 * 7 + 3) % 1009;
        if self.1.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        let most = buffer.len().min(self.1 + 1);
        self.0.read(&mut buffer[..most])
    }
}

struct Failing;

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::StorageFull.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn everything_is_copied() {
    let data: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let mut copied = Vec::new();
    let count = fibra::run(|| fibra::io::copy(&mut Odd(Cursor::new(data.clone()), 1), &mut copied)).unwrap();
    assert_eq!(count, 200_000);
    assert!(copied == data);
    assert_eq!(fibra::io::copy(&mut io::empty(), &mut io::sink()).unwrap(), 0);
    let error = fibra::io::copy(&mut &data[..], &mut Failing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

// Neither side ever waits; the others of the worker go on all the same, and cancellation arrives.
#[test]
fn a_copy_without_end_lets_others_run() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let turns = Arc::new(AtomicU64::new(0));
    let copying = runtime.spawn(|| fibra::io::copy(&mut io::repeat(1), &mut io::sink()));
    let seen = turns.clone();
    let other = runtime.spawn(move || {
        for _ in 0..1000 {
            seen.fetch_add(1, SeqCst);
            fibra::yield_now();
        }
    });
    other.join().unwrap();
    assert_eq!(turns.load(SeqCst), 1000);
    copying.cancel();
    assert!(copying.join().unwrap_err().is_cancelled());
}

#[test]
fn a_proxy_passes_on_both_ways_and_half_closes() {
    let _watchdog = support::watchdog(60);
    let big = vec![7; 3_000_000];
    Runtime::builder().workers(2).build().unwrap().run(|| {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = echo.local_addr().unwrap();
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        fibra::scope(|s| {
            s.spawn(|| {
                let (stream, _) = echo.accept().unwrap();
                let mut all = Vec::new();
                (&stream).read_to_end(&mut all).unwrap();
                (&stream).write_all(&all).unwrap();
            });
            let proxy = s.spawn(|| {
                let (client, _) = front.accept().unwrap();
                let server = TcpStream::connect(to).unwrap();
                fibra::io::copy_bidirectional(&client, &server)
            });
            let client = TcpStream::connect(address).unwrap();
            (&client).write_all(&big).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            (&client).read_to_end(&mut back).unwrap();
            assert!(back == big);
            let count = big.len() as u64;
            assert_eq!(proxy.join().unwrap().unwrap(), (count, count));
        });
    });
}

// If one direction fails, the other one ends too, although its sides are silent.
#[test]
fn a_proxy_ends_with_the_first_error() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (mut client, front) = UnixStream::pair().unwrap();
        let (back, server) = UnixStream::pair().unwrap();
        let proxy = fibra::spawn(move || fibra::io::copy_bidirectional(&front, &back));
        fibra::sleep(Duration::from_millis(5));
        // No process reads there any more; the client stays connected.
        server.shutdown(Shutdown::Read).unwrap();
        client.write_all(b"into the void").unwrap();
        let error = proxy.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
    // Cancelled as a whole.
    fibra::run(|| {
        let ((_client, front), (back, _server)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let late = fibra::timeout(Duration::from_millis(5), || fibra::io::copy_bidirectional(&front, &back));
        assert!(late.is_err());
    });
}
