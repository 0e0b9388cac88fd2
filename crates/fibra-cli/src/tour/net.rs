//! An echo server on fibers and clients that talk to it, all in plain blocking code; then a connection on which no answer comes.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use fibra::net::{TcpListener, TcpStream};
use fibra::time::Instant;

use super::page::{Page, rate, time};
use super::{Options, Outcome};
use crate::host;

/// Connections at once, and requests on each.
const CLIENTS: usize = 64;
const REQUESTS: usize = 500;
const MESSAGE: &[u8; 16] = b"plain and simple";
/// How long the last client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(20);

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    talk(page).map_err(|error| error.to_string())
}

fn talk(page: &Page) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    fibra::try_scope(|s| {
        // Stopped by the scope when the body is done: `accept` is cancelled like everything that waits.
        let server = s.spawn(move || serve(&listener));
        let begin = Instant::now();
        fibra::try_scope(|clients| {
            for _ in 0..CLIENTS {
                clients.spawn(|| ask(address));
            }
            Ok::<_, io::Error>(())
        })?;
        let (took, requests) = (begin.elapsed(), CLIENTS * REQUESTS);
        page.timed("echo", took, requests, &format!("  ({CLIENTS} connections, 16 bytes)"));
        page.row("", format_args!("{} requests a second, with clients and server here", rate(requests, took)));
        wait_in_vain(page, address)?;
        server.cancel();
        Ok(())
    })
}

/// A fiber for each connection.
fn serve(listener: &TcpListener) -> io::Result<()> {
    fibra::scope(|s| {
        for stream in listener.incoming() {
            let mut stream = stream?;
            s.spawn(move || {
                let mut buffer = [0; 1024];
                // Ends with the connection, however that ends.
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..len]).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(())
    })
}

fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answer = [0; MESSAGE.len()];
    for _ in 0..REQUESTS {
        stream.write_all(MESSAGE)?;
        stream.read_exact(&mut answer)?;
        if answer != *MESSAGE {
            return Err(io::Error::other(format!("an echo of {MESSAGE:?} is {answer:?}")));
        }
    }
    Ok(())
}

/// A read with a short time-out: the connection is as good as before.
fn wait_in_vain(page: &Page, address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let begin = Instant::now();
    let mut answer = [0; MESSAGE.len()];
    if fibra::timeout(PATIENCE, || stream.read(&mut answer)).is_ok() {
        return Err(io::Error::other("an answer without a question"));
    }
    let took = begin.elapsed();
    stream.write_all(MESSAGE)?;
    stream.read_exact(&mut answer)?;
    page.row(
        "timeout",
        format_args!(
            "a read was given up after {}; {} bytes came over the same connection then",
            time(took),
            host::count(answer.len() as u64)
        ),
    );
    Ok(())
}
