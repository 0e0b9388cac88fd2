//! For any input, the server does not panic, does not hang, and answers with a status or not at all.
//!
//! Valid requests are changed at random (bytes flipped, dropped, doubled, pieces exchanged) and fed in pieces of every size over a
//! transport in memory. The seed is printed if a test fails, and can be given back in `FIBRA_HTTP_SEED`.

use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{SLOWDOWN, watchdog};
use fibra::sync::Mutex;
use fibra_http::{ConnectionError, Limits, Request, Response, Transport, serve_connection};

/// The number of random rounds.
const ROUNDS: u64 = 20_000 / SLOWDOWN;

const SEEDS: &[&str] = &[
    "GET /path?query HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 11\r\n\r\nhello world",
    "POST / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n\
     5;x=\"y\"\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\n",
    "HEAD http://a.example/x HTTP/1.1\r\nHost: t\r\nConnection: keep-alive, foo\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "OPTIONS * HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
];

struct Chance(u64);

impl Chance {
    /// A number below `limit`. (xorshift)
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Some requests in a row, changed at random.
fn spoiled(chance: &mut Chance) -> Vec<u8> {
    let count = 1 + chance.below(3);
    let mut bytes: Vec<u8> = (0..count).flat_map(|_| SEEDS[chance.below(SEEDS.len())].bytes()).collect();
    const AWKWARD: &[u8] = b"\r\n\0 :;,\t0fF-+/\xff";
    for _ in 0..chance.below(6) {
        let (at, other) = (chance.below(bytes.len()), chance.below(bytes.len()));
        match chance.below(6) {
            0 => bytes[at] = AWKWARD[chance.below(AWKWARD.len())],
            1 => bytes[at] ^= 1 << chance.below(8),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, AWKWARD[chance.below(AWKWARD.len())]),
            4 => bytes.swap(at, other),
            _ => {
                let piece = bytes[at.min(other)..at.max(other)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            bytes.push(b'G');
        }
    }
    bytes
}

struct Memory {
    input: Cursor<Vec<u8>>,
    size: usize,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = buffer.len().min(self.size);
        self.input.read(&mut buffer[..size])
    }
}

impl Write for Memory {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.output.lock().extend_from_slice(buffer);
        Ok(buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Memory {
    fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn set_write_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

/// What the handler saw, and what the client sees except for the date, if the bytes come in pieces of this size.
fn outcome(bytes: &[u8], size: usize) -> (Vec<String>, String, String) {
    let (seen, output) = (Mutex::new(Vec::new()), Arc::default());
    let memory = Memory { input: Cursor::new(bytes.to_vec()), size, output: Arc::clone(&output) };
    let limits = Limits { max_head_bytes: 300, max_body_bytes: 100, ..Limits::default() };
    let ended = serve_connection(memory, &limits, |request: &mut Request<'_>| {
        let head = format!("{request:?}");
        let body = request.bytes();
        seen.lock().push(format!("{head} {body:?}"));
        body.map(|body| Response::bytes(body).header("date", "now"))
    });
    let ended = match ended {
        Err(ConnectionError::Panicked) => panic!("{:?}", String::from_utf8_lossy(bytes)),
        ended => format!("{ended:?}"),
    };
    let output = String::from_utf8_lossy(&output.lock()).into_owned();
    let without_date: Vec<&str> = output.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
    (seen.into_inner(), without_date.join("\r\n"), ended)
}

#[test]
fn whatever_comes() {
    let _watchdog = watchdog(120);
    let seed = std::env::var("FIBRA_HTTP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761 + 1);
    println!("FIBRA_HTTP_SEED={seed}");
    let mut chance = Chance(seed);
    for _ in 0..ROUNDS {
        let bytes = spoiled(&mut chance);
        let (seen, output, _) = outcome(&bytes, usize::MAX);
        // The answers are valid, as many as handlers were called, and perhaps one that refuses.
        let status = |at: usize| output.get(at + 9..at + 12).and_then(|status| status.parse::<u16>().ok());
        let statuses = output.match_indices("HTTP/1.1 ").filter_map(|(at, _)| status(at));
        let answers = statuses.filter(|status| *status >= 200).count();
        assert!(output.is_empty() || output.starts_with("HTTP/1.1 "), "{output:?}");
        assert!(
            answers == seen.len() || answers == seen.len() + 1,
            "{:?}: {output:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

/// However the same bytes are cut, handlers see the same.
#[test]
fn cuts_make_no_difference() {
    let _watchdog = watchdog(120);
    let mut chance = Chance(0x5EED_0BAD_CAFE);
    let plain = (0..SEEDS.len()).map(|number| SEEDS[number].as_bytes().to_vec());
    let spoilt: Vec<Vec<u8>> = (0..300 / SLOWDOWN).map(|_| spoiled(&mut chance)).collect();
    for bytes in plain.chain(spoilt) {
        let (seen, ..) = outcome(&bytes, usize::MAX);
        for size in [1, 2, 3, 4, 5, 7, 11, 64] {
            let (cut, output, ended) = outcome(&bytes, size);
            assert_eq!(cut, seen, "{:?} in pieces of {size}: {output:?} {ended}", String::from_utf8_lossy(&bytes));
        }
    }
}
