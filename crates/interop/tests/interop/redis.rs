//! Debian's redis-server, driven by a small client on fiber sockets; and redis-benchmark, driving a small server on fibers.
//!
//! Each test starts a server of its own, on a Unix socket and a TCP port, in a folder of its own, and ends it. Where the programs are not
//! installed (`apt-get install redis-server`), the tests say so and pass.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Result, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UnixStream};
use fibra::sync::Mutex;

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

// ---- A server of redis ----------------------------------------------------------------------------------------------------

struct Redis {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    /// None: it is not installed.
    fn start(test: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("fibra-redis-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Another process may take the port in between; then redis ends at once, and another port is tried.
        for _ in 0..20 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
            command.arg("--dir").arg(&folder).arg("--unixsocket").arg(folder.join("socket"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let process = match command.spawn() {
                Ok(process) => process,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    println!("SKIPPED: redis-server is not installed");
                    let _ = std::fs::remove_dir_all(&folder);
                    return None;
                }
                Err(error) => panic!("redis-server cannot be started: {error}"),
            };
            let mut redis = Self { process, folder: folder.clone(), port };
            loop {
                if redis.answers() {
                    return Some(redis);
                }
                if redis.process.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            std::mem::forget(redis);
        }
        panic!("redis-server found no port");
    }

    fn answers(&self) -> bool {
        let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let Ok(path) = std::os::unix::net::UnixStream::connect(self.folder.join("socket")) else { return false };
        drop(path);
        Client::new(stream).call(&["PING"]).is_ok_and(|reply| reply == Reply::Simple("PONG".into()))
    }

    fn tcp(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    fn unix(&self) -> Client<UnixStream> {
        Client::new(UnixStream::connect(self.folder.join("socket")).unwrap())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

// ---- The protocol ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Simple(String),
    Error(String),
    Number(i64),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
}

impl Reply {
    fn text(text: &str) -> Self {
        Self::Bulk(Some(text.as_bytes().to_vec()))
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// A command, as it is sent.
fn encode<B: AsRef<[u8]>>(words: &[B]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn reply(from: &mut impl BufRead) -> Result<Reply> {
    let line = line(from)?;
    let (kind, rest) = line.split_at(1);
    let number = || rest.parse::<i64>().map_err(|_| std::io::Error::from(ErrorKind::InvalidData));
    Ok(match kind {
        "+" => Reply::Simple(rest.into()),
        "-" => Reply::Error(rest.into()),
        ":" => Reply::Number(number()?),
        "$" => Reply::Bulk(match usize::try_from(number()?) {
            Err(_) => None,
            Ok(len) => {
                let mut bytes = vec![0; len + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(len);
                Some(bytes)
            }
        }),
        "*" => Reply::Array(match usize::try_from(number()?) {
            Err(_) => None,
            Ok(len) => Some((0..len).map(|_| reply(from)).collect::<Result<_>>()?),
        }),
        _ => return Err(ErrorKind::InvalidData.into()),
    })
}

struct Client<S: Read> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    fn send<B: AsRef<[u8]>>(&mut self, words: &[B]) -> Result<()> {
        self.stream.get_mut().write_all(&encode(words))
    }

    fn receive(&mut self) -> Result<Reply> {
        reply(&mut self.stream)
    }

    fn call<B: AsRef<[u8]>>(&mut self, words: &[B]) -> Result<Reply> {
        self.send(words)?;
        self.receive()
    }
}

// ---- The tests ------------------------------------------------------------------------------------------------------------

#[test]
fn commands_in_a_pipeline() {
    let _watchdog = support::watchdog(60);
    let Some(redis) = Redis::start("pipeline") else { return };
    fn test<S: Read + Write>(mut client: Client<S>) {
        const COUNT: usize = 2000;
        let value = |at: usize| -> Vec<u8> { (0..at % 700).map(|byte| (byte ^ at) as u8).collect() };
        let sets = (0..COUNT).flat_map(|at| encode(&[&b"SET"[..], format!("key {at}").as_bytes(), &value(at)]));
        client.stream.get_mut().write_all(&sets.collect::<Vec<u8>>()).unwrap();
        assert!((0..COUNT).all(|_| client.receive().unwrap() == ok()));
        let gets = (0..COUNT).flat_map(|at| encode(&["GET", &format!("key {at}")]));
        client.stream.get_mut().write_all(&gets.collect::<Vec<u8>>()).unwrap();
        for at in 0..COUNT {
            assert_eq!(client.receive().unwrap(), Reply::Bulk(Some(value(at))));
        }
        assert_eq!(client.call(&["GET", "nothing"]).unwrap(), Reply::Bulk(None));
        assert!(matches!(client.call(&["NONSENSE"]).unwrap(), Reply::Error(_)));
        // One value that fits into no buffer of the kernel.
        let large: Vec<u8> = (0..9 << 20).map(|at: usize| ((at * 11) >> 5) as u8).collect();
        assert_eq!(client.call(&[b"SET", &b"large"[..], &large]).unwrap(), ok());
        assert!(client.call(&["GET", "large"]).unwrap() == Reply::Bulk(Some(large)));
    }
    workers(1).run(|| {
        test(redis.tcp());
        test(redis.unix());
    });
}

#[test]
fn many_fibers() {
    let _watchdog = support::watchdog(60);
    let Some(redis) = Redis::start("many") else { return };
    const FIBERS: usize = 120;
    const EACH: usize = 40;
    fn count<S: Read + Write>(mut client: Client<S>, n: usize) {
        for at in 1..=EACH {
            assert!(matches!(client.call(&["INCR", "all"]).unwrap(), Reply::Number(1..)));
            let own = format!("of {n}");
            assert_eq!(client.call(&["INCR", &own]).unwrap(), Reply::Number(at as i64));
        }
    }
    workers(2).run(|| {
        fibra::scope(|s| {
            for n in 0..FIBERS {
                let redis = &redis;
                s.spawn(move || if n % 2 == 0 { count(redis.tcp(), n) } else { count(redis.unix(), n) });
            }
        });
        assert_eq!(redis.tcp().call(&["GET", "all"]).unwrap(), Reply::text(&(FIBERS * EACH).to_string()));
    });
}

// One connection, two fibers: one sends for as long as it can, the other reads the answers.
#[test]
fn one_sends_while_another_receives() {
    let _watchdog = support::watchdog(60);
    let Some(redis) = Redis::start("duplex") else { return };
    const COUNT: usize = 20_000;
    for count in [1, 2] {
        workers(count).run(|| {
            let stream = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
            let text = "echo ".repeat(40);
            fibra::scope(|s| {
                s.spawn(|| {
                    let mut writing = &stream;
                    for _ in 0..COUNT / 10 {
                        writing.write_all(&encode(&["ECHO", &text]).repeat(10)).unwrap();
                    }
                });
                let mut reading = BufReader::new(&stream);
                for _ in 0..COUNT {
                    assert_eq!(reply(&mut reading).unwrap(), Reply::text(&text));
                }
            });
        });
    }
}

fn subscribers<S: Read + Write>(client: &mut Client<S>, channel: &str) -> i64 {
    match client.call(&["PUBSUB", "NUMSUB", channel]).unwrap() {
        Reply::Array(Some(answer)) => match answer[1] {
            Reply::Number(count) => count,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

// Subscribers wait in a read for the next message, and are cancelled there: the server sees them go.
#[test]
fn subscribers_are_cancelled() {
    let _watchdog = support::watchdog(60);
    let Some(redis) = Redis::start("subscribe") else { return };
    const SUBSCRIBERS: usize = 8;
    workers(2).run(|| {
        let mut publisher = redis.unix();
        let heard = AtomicUsize::new(0);
        fibra::scope(|s| {
            for _ in 0..SUBSCRIBERS {
                let (redis, heard) = (&redis, &heard);
                s.spawn(move || {
                    let mut client = redis.tcp();
                    client.call(&["SUBSCRIBE", "news"]).unwrap();
                    loop {
                        let Reply::Array(Some(message)) = client.receive().unwrap() else { panic!("no message") };
                        assert_eq!(message[..2], [Reply::text("message"), Reply::text("news")]);
                        heard.fetch_add(1, SeqCst);
                    }
                });
            }
            while subscribers(&mut publisher, "news") < SUBSCRIBERS as i64 {
                fibra::sleep(Duration::from_millis(2));
            }
            for at in 0..50 {
                let sent = publisher.call(&["PUBLISH", "news", &at.to_string()]).unwrap();
                assert_eq!(sent, Reply::Number(SUBSCRIBERS as i64));
            }
            while heard.load(SeqCst) < 50 * SUBSCRIBERS {
                fibra::sleep(Duration::from_millis(2));
            }
            s.cancel();
        });
        assert_eq!(heard.load(SeqCst), 50 * SUBSCRIBERS);
        while subscribers(&mut publisher, "news") > 0 {
            fibra::sleep(Duration::from_millis(2));
        }
    });
}

#[test]
fn blocking_commands_and_time_outs() {
    let _watchdog = support::watchdog(60);
    let Some(redis) = Redis::start("block") else { return };
    workers(2).run(|| {
        let (mut waiting, mut other) = (redis.tcp(), redis.unix());
        // The server's time-out.
        assert_eq!(waiting.call(&["BLPOP", "list", "0.05"]).unwrap(), Reply::Array(None));
        // Another connection brings it.
        fibra::scope(|s| {
            let asked = s.spawn(|| waiting.call(&["BLPOP", "list", "0"]).unwrap());
            assert_eq!(other.call(&["RPUSH", "list", "a"]).unwrap(), Reply::Number(1));
            let popped = Reply::Array(Some(vec![Reply::text("list"), Reply::text("a")]));
            assert_eq!(asked.join().unwrap(), popped);
        });
        // The client's time-out: nothing is lost, and the answer can be read when it comes.
        waiting.stream.get_ref().set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        waiting.send(&["BLPOP", "list", "0"]).unwrap();
        for _ in 0..3 {
            assert_eq!(waiting.receive().unwrap_err().kind(), ErrorKind::TimedOut);
        }
        waiting.stream.get_ref().set_read_timeout(None).unwrap();
        other.call(&["RPUSH", "list", "b"]).unwrap();
        let popped = Reply::Array(Some(vec![Reply::text("list"), Reply::text("b")]));
        assert_eq!(waiting.receive().unwrap(), popped);
        // The time-out of a scope, which unwinds: the same.
        waiting.send(&["BLPOP", "list", "0"]).unwrap();
        assert!(fibra::timeout(Duration::from_millis(10), || waiting.receive()).is_err());
        other.call(&["RPUSH", "list", "c"]).unwrap();
        let popped = Reply::Array(Some(vec![Reply::text("list"), Reply::text("c")]));
        assert_eq!(waiting.receive().unwrap(), popped);
        // As an arm.
        waiting.send(&["BLPOP", "list", "0"]).unwrap();
        fibra::select! {
            on(waiting.stream.get_ref().readable()) -> _ready => panic!("no connection pushes"),
            after(Duration::from_millis(5)) => {}
        }
        other.call(&["RPUSH", "list", "d"]).unwrap();
        fibra::select! {
            on(waiting.stream.get_ref().readable()) -> ready => ready.unwrap(),
        }
        let popped = Reply::Array(Some(vec![Reply::text("list"), Reply::text("d")]));
        assert_eq!(waiting.receive().unwrap(), popped);
        // The server goes while a client waits.
        waiting.send(&["BLPOP", "list", "0"]).unwrap();
        fibra::scope(|s| {
            let asked = s.spawn(|| waiting.receive());
            let _ = other.send(&["SHUTDOWN", "NOSAVE"]);
            assert!(asked.join().unwrap().is_err());
        });
    });
}

// ---- The other way round --------------------------------------------------------------------------------------------------

/// A small part of redis.
fn serve(stream: &TcpStream, values: &Mutex<HashMap<Vec<u8>, Vec<u8>>>) {
    let mut reading = BufReader::new(stream);
    while let Ok(Reply::Array(Some(command))) = reply(&mut reading) {
        let words = command.into_iter().map(|word| match word {
            Reply::Bulk(Some(word)) => word,
            other => panic!("{other:?}"),
        });
        let words: Vec<Vec<u8>> = words.collect();
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let answer = match (name.as_str(), &words[1..]) {
            ("PING", _) => b"+PONG\r\n".to_vec(),
            ("SET", [key, value]) => {
                values.lock().insert(key.clone(), value.clone());
                b"+OK\r\n".to_vec()
            }
            ("GET", [key]) => match values.lock().get(key) {
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                None => b"$-1\r\n".to_vec(),
            },
            ("CONFIG", _) => b"*0\r\n".to_vec(),
            _ => b"-ERR unknown command\r\n".to_vec(),
        };
        let mut writing = stream;
        if writing.write_all(&answer).is_err() {
            return;
        }
    }
}

#[test]
fn redis_benchmark_is_served_by_fibers() {
    let _watchdog = support::watchdog(120);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let runtime = workers(2);
    let server = runtime.spawn(move || {
        let values = Mutex::new(HashMap::new());
        fibra::scope(|s| {
            for stream in listener.incoming() {
                let (stream, values) = (stream.unwrap(), &values);
                // Answers are written one by one.
                stream.set_nodelay(true).unwrap();
                s.spawn(move || serve(&stream, values));
            }
        });
    });
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &port, "-n", "10000", "-c", "50", "-P", pipeline, "-t", "ping_mbulk,set,get", "--csv"]);
        match command.output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("SKIPPED: redis-benchmark is not installed");
                break;
            }
            ended => {
                let ended = ended.unwrap();
                let said = String::from_utf8_lossy(&ended.stdout);
                assert!(ended.status.success() && said.contains("\"GET\""), "{ended:?}");
                println!("pipelines of {pipeline}:\n{said}");
            }
        }
    }
    server.cancel();
    assert!(server.join().unwrap_err().is_cancelled());
}
