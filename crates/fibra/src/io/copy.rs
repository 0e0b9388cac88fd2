//! Copying a stream to its end.

use std::io::{ErrorKind, Read, Result, Write};

use crate::task::yield_now;

/// How much is copied at once: larger pieces take no fewer system calls in practice, and this one is held by every copy under way.
const CHUNK: usize = 16 * 1024;
/// Pieces after which others get a turn, if neither side ever waits.
const TURN: u32 = 16;

/// Copies everything from `reader` to `writer`, until the reader has come to its end, and says how many bytes that was: [`std::io::copy`],
/// which lets other fibers run now and then, also if neither side ever waits.
///
/// ```
/// use fibra::net::{TcpListener, TcpStream};
/// use std::net::Shutdown;
///
/// fibra::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let server = fibra::spawn(move || -> std::io::Result<u64> {
///         let (stream, _) = listener.accept()?;
///         fibra::io::copy(&mut &stream, &mut &stream) // echo
///     });
///     let mut client = TcpStream::connect(address)?;
///     fibra::io::copy(&mut &b"to and fro"[..], &mut client)?;
///     client.shutdown(Shutdown::Write)?;
///     let mut back = Vec::new();
///     fibra::io::copy(&mut client, &mut back)?;
///     assert_eq!(back, b"to and fro");
///     assert_eq!(server.join().unwrap()?, 10);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The first of either side, other than `Interrupted`. What was read by then and could not be written is lost.
#[track_caller]
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let mut buffer = vec![0; CHUNK];
    let (mut copied, mut pieces) = (0, 0_u32);
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&buffer[..read])?;
        copied += read as u64;
        pieces = pieces.wrapping_add(1);
        if pieces.is_multiple_of(TURN) {
            yield_now();
        }
    }
    writer.flush()?;
    Ok(copied)
}
