//! Where work goes on that could as well begin anew: `better_place`, `BetterPlace`. Above: users, `fibra-http`. Below: `sched/breadth.rs`.

use crate::sched::current;

/// A worker on which work should rather go on; see [`better_place`] and [`Builder::place`](crate::Builder::place).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BetterPlace {
    worker: usize,
}

impl BetterPlace {
    /// The worker's number, as in [`Metrics`](crate::Metrics).
    pub fn worker(self) -> usize {
        self.worker
    }
}

/// Asks whether work that could as well begin anew should do so on another worker. Nearly always not: `None`.
///
/// A started fiber stays on its worker. But work that comes to rest now and then, as a connection does between two requests, can go on in a
/// new fiber, if all that it needs then can be sent. It should if its worker leaves, or is saturated while another one is not; if
/// there are more busy threads than processors, so that the runtime does better with fewer workers; and when there is little to do again:
/// work that was gathered for that reason spreads from a worker that sleeps most of the time. In a program that asks for each request
/// connections follow the load, which those that stay where they were accepted cannot. The servers of `fibra-http` do.
///
/// It costs a few nanoseconds, and nothing where no fiber asks. On a thread that is no worker, and in a runtime with one
/// worker, it is `None`.
///
/// ```
/// use std::io::{Read, Write};
/// use fibra::net::{TcpListener, TcpStream};
///
/// /// Sends back what comes. Between two messages there is nothing but the stream.
/// fn echo(mut stream: TcpStream) {
///     let mut buffer = [0; 1024];
///     while let Ok(len @ 1..) = stream.read(&mut buffer) {
///         if stream.write_all(&buffer[..len]).is_err() {
///             return;
///         }
///         if let Some(place) = fibra::better_place() {
///             // If it fails, the runtime is ending, and so may the connection.
///             let _ = fibra::Builder::new().place(place).spawn(move || echo(stream));
///             return;
///         }
///     }
/// }
///
/// fibra::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (server, _) = listener.accept()?;
///     let server = fibra::Builder::new().spread().spawn(move || echo(server))?;
///     client.write_all(b"hello")?;
///     let mut answer = [0; 5];
///     client.read_exact(&mut answer)?;
///     assert_eq!(&answer, b"hello");
///     drop(client);
///     server.join().unwrap();
///     Ok(())
/// }).unwrap();
/// ```
pub fn better_place() -> Option<BetterPlace> {
    let worker = current::worker()?;
    worker.better_place().map(|worker| BetterPlace { worker })
}
