//! `fibra dump`, `fibra top`: the snapshot of a running process, read from its inspector (`FIBRA_INSPECT`), once or every second.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A process that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prints the answer of `target`'s inspector at `path`: a process by its number, or an address.
pub(crate) fn print(target: &str, path: &str) -> Result<(), String> {
    let body = read(target, path)?;
    // A reader that has seen enough is no error.
    let _ = io::stdout().write_all(body.as_bytes());
    Ok(())
}

/// The text at `path`.
fn read(target: &str, path: &str) -> Result<String, String> {
    let answer = ask(target, path).map_err(|error| {
        let needed = "The process must have been started with FIBRA_INSPECT=unix, or with an address";
        format!("{target} cannot be asked: {error}. {needed}")
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{target} is no inspector of fibra"))?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{target} refused: {}", body.trim()));
    }
    Ok(body.to_owned())
}

fn ask(target: &str, path: &str) -> io::Result<String> {
    if target.parse::<u32>().is_ok() {
        let stream = UnixStream::connect(socket_of(target)?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        return get(stream, path);
    }
    let stream = TcpStream::connect(target)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    get(stream, path)
}

/// Where a process listens with `FIBRA_INSPECT=unix`.
fn socket_of(process: &str) -> io::Result<PathBuf> {
    let user = std::fs::metadata(format!("/proc/{process}"))?.uid();
    let folders = [std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("fibra"))];
    let folders = folders.into_iter().flatten().chain([PathBuf::from(format!("/tmp/fibra-{user}"))]);
    let mut sockets = folders.map(|folder| folder.join(format!("{process}.sock")));
    sockets.find(|socket| socket.exists()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn get(mut stream: impl Read + Write, path: &str) -> io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Prints the snapshot and the deadlocks of a process, every second, on a screen that is cleared before: so many times, or until the
/// process is gone.
pub(crate) fn watch(target: &str, rounds: Option<u32>) -> Result<(), String> {
    for round in 0..rounds.unwrap_or(u32::MAX) {
        if round > 0 {
            std::thread::sleep(Duration::from_secs(1));
        }
        let (snapshot, deadlocks) = (read(target, "/snapshot")?, read(target, "/deadlocks")?);
        let mut screen = io::stdout().lock();
        // To the upper left corner, and everything from there on is erased.
        let shown = write!(screen, "\x1b[H\x1b[J{snapshot}\n{deadlocks}").and_then(|()| screen.flush());
        if shown.is_err() {
            break;
        }
    }
    Ok(())
}
