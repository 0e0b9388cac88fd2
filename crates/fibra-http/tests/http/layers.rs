//! Connections over a layer, and connections that were accepted elsewhere: what TLS needs, without TLS.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::support::watchdog;
use fibra::net::{TcpStream, UnixStream};
use fibra_http::{Layered, Limits, Request, Server, serve_connection};

/// Stands for TLS: a handshake, and bytes that are not readable in between.
struct Veiled {
    below: TcpStream,
    /// The bytes to be sent with the next flush.
    pending: Vec<u8>,
}

const KEY: u8 = 0x55;

impl Read for Veiled {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.below.read(buffer)?;
        buffer[..count].iter_mut().for_each(|byte| *byte ^= KEY);
        Ok(count)
    }
}

impl Write for Veiled {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.pending.extend(buffer.iter().map(|byte| byte ^ KEY));
        Ok(buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.below.write_all(&std::mem::take(&mut self.pending))
    }
}

fn veil(mut stream: TcpStream) -> io::Result<Layered<Veiled>> {
    let mut hello = [0; 5];
    stream.read_exact(&mut hello)?;
    if &hello != b"hello" {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no hello"));
    }
    let veiled = Veiled { below: stream, pending: Vec::new() };
    Ok(Layered::new(veiled, |veiled| &veiled.below).saying_goodbye(|veiled| {
        veiled.write_all(b"goodbye")?;
        veiled.flush()
    }))
}

#[test]
fn over_a_layer() {
    let _watchdog = watchdog(60);
    let (errors, told) = fibra::channel::unbounded();
    // The one is patient, and the other is not.
    let [patient, hasty] = [Duration::from_secs(60), Duration::from_millis(200)].map(|head_timeout| {
        let errors = errors.clone();
        Server::builder()
            .head_timeout(head_timeout)
            .on_error(move |error, _| errors.send(error.to_string()).unwrap())
            .bind("127.0.0.1:0")
            .unwrap()
    });
    let stoppers = [patient.stopper(), hasty.stopper()];
    let (address, hastily) = (patient.local_addr().unwrap(), hasty.local_addr().unwrap());
    let serve = |server: Server| {
        std::thread::spawn(move || {
            fibra::run(|| server.serve_over(veil, |request: &mut Request<'_>| request.path().to_owned()))
        })
    };
    let mut serving = vec![serve(patient)];
    let veiled = |text: &str| text.bytes().map(|byte| byte ^ KEY).collect::<Vec<u8>>();
    let connect = |address: std::net::SocketAddr| {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    let rest = |mut stream: std::net::TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.iter_mut().for_each(|byte| *byte ^= KEY);
        String::from_utf8(all).unwrap()
    };

    let mut client = connect(address);
    client.write_all(b"hello").unwrap();
    client.write_all(&veiled("GET /one HTTP/1.1\r\nHost: t\r\n\r\nGET /two HTTP/1.0\r\n\r\n")).unwrap();
    let said = rest(client);
    assert!(said.contains("\r\n\r\n/one") && said.ends_with("\r\n\r\n/twogoodbye"), "{said}");

    // The layer writes its farewell before it is closed.
    let mut client = connect(address);
    client.write_all(b"hello").unwrap();
    client.write_all(&veiled("rubbish\r\n\r\n")).unwrap();
    let said = rest(client);
    assert!(said.starts_with("HTTP/1.1 400 ") && said.ends_with("goodbye"), "{said}");
    assert_eq!(told.recv().unwrap(), "the head of the request is malformed");

    // Time-outs reach through the layer. (What the client says is there before the server listens: it comes in time.)
    let mut client = connect(hastily);
    client.write_all(b"hello").unwrap();
    client.write_all(&veiled("GET / HTTP/1.1\r\n")).unwrap();
    serving.push(serve(hasty));
    assert!(rest(client).starts_with("HTTP/1.1 408 "));
    assert_eq!(told.recv().unwrap(), "the head of the request took too long");

    // A handshake that fails, and a handshake that never comes.
    let mut client = connect(address);
    client.write_all(b"hullo").unwrap();
    assert_eq!(rest(client), "");
    assert_eq!(told.recv().unwrap(), "no hello");
    assert_eq!(rest(connect(hastily)), "");
    assert_eq!(told.recv().unwrap(), "time was up");

    stoppers.iter().for_each(|stopper| stopper.drain(Duration::from_secs(60)));
    serving.into_iter().for_each(|serving| assert_eq!(serving.join().unwrap().unwrap().cut_off, 0));
}

/// A transport that records the calls on it.
struct Witness {
    input: io::Cursor<Vec<u8>>,
    deeds: std::sync::Arc<fibra::sync::Mutex<Vec<&'static str>>>,
}

impl Witness {
    fn note(&self, deed: &'static str) {
        let mut deeds = self.deeds.lock();
        if deeds.last() != Some(&deed) {
            deeds.push(deed);
        }
    }
}

impl Read for Witness {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.note(if count == 0 { "end" } else { "read" });
        Ok(count)
    }
}

impl Write for Witness {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.note("write");
        Ok(buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fibra_http::Transport for Witness {
    fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn set_write_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> io::Result<()> {
        self.note("finish");
        Ok(())
    }
}

/// A client that is still sending when it is refused gets the answer, then the end of it, and is read from until it stops: closing at once
/// would make the system reset the connection, and the answer might be lost.
#[test]
fn a_refused_connection_is_closed_in_order() {
    let _watchdog = watchdog(60);
    let deeds_for = |request: &str, more: usize| {
        let mut bytes = request.as_bytes().to_vec();
        bytes.resize(bytes.len() + more, b'x');
        let deeds = std::sync::Arc::default();
        let witness = Witness { input: io::Cursor::new(bytes), deeds: std::sync::Arc::clone(&deeds) };
        let limits = Limits { max_drain_bytes: 1000, ..Limits::default() };
        let _ = serve_connection(witness, &limits, |_: &mut Request<'_>| "fine");
        std::mem::take(&mut *deeds.lock())
    };
    let in_order = ["read", "write", "finish", "read", "end"];
    assert_eq!(deeds_for("rubbish\n", 100_000), in_order);
    assert_eq!(deeds_for("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n", 100_000), in_order);
    assert_eq!(deeds_for("GET / HTTP/1.0\r\n\r\n", 0), ["read", "write", "finish"]);
}

#[test]
fn on_a_plain_thread() {
    let _watchdog = watchdog(60);
    let (mut client, server) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        serve_connection(server, &Limits::default(), |request: &mut Request<'_>| request.text())
    });
    client.write_all(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("\r\n\r\nhello"), "{said}");
    assert_eq!(serving.join().unwrap().unwrap(), 1);
}

/// A layer like TLS: what it reads comes in records, and it reads below until it has a whole one.
struct Records {
    below: TcpStream,
    record: Vec<u8>,
}

/// The length of a record.
const RECORD: usize = 16 << 10;

impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.record.len() < RECORD {
            let mut byte = [0];
            match self.below.read(&mut byte)? {
                0 => return Ok(0),
                _ => self.record.push(byte[0]),
            }
        }
        let count = (&self.record[..]).read(buffer)?;
        self.record.drain(..count);
        Ok(count)
    }
}

impl Write for Records {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.below.write(buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Slow loris, below a layer: always a byte just in time, but a record would take minutes.
#[test]
fn a_record_that_comes_byte_by_byte() {
    let _watchdog = watchdog(60);
    let server = Server::builder().head_timeout(Duration::from_millis(200)).bind("127.0.0.1:0").unwrap();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let serving = std::thread::spawn(move || {
        let wrap = |below| Ok(Layered::new(Records { below, record: Vec::new() }, |records| &records.below));
        fibra::run(|| server.serve_over(wrap, |_: &mut Request<'_>| "fine"))
    });
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    loop {
        let sent = client.write_all(b"G");
        match client.read(&mut [0; 1000]) {
            Ok(1..) => {}
            Err(error) if sent.is_ok() && error.kind() == io::ErrorKind::WouldBlock => {}
            // The server has closed.
            _ => break,
        }
    }
    stopper.stop();
    serving.join().unwrap().unwrap();
}

/// A layer that never comes to an end, whatever happens below it.
struct Endless(TcpStream);

impl Read for Endless {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        fibra::sleep(Duration::from_secs(3600));
        Ok(0)
    }
}

impl Write for Endless {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        fibra::sleep(Duration::from_secs(3600));
        Ok(0)
    }
    fn flush(&mut self) -> io::Result<()> {
        fibra::sleep(Duration::from_secs(3600));
        Ok(())
    }
}

#[test]
fn what_a_layer_does_has_an_end() {
    use fibra_http::Transport;

    let _watchdog = watchdog(60);
    fibra::run(|| {
        let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut layered = Layered::new(Endless(stream), |endless| &endless.0);
        layered.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        layered.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let timed_out = |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut);
        timed_out(layered.read(&mut [0; 10]).map(drop));
        timed_out(layered.write(&[0; 10]).map(drop));
        timed_out(layered.write_vectored(&[io::IoSlice::new(&[0; 10])]).map(drop));
        timed_out(layered.flush());
        timed_out(layered.finish());
    });
}
