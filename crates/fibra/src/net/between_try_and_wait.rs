//! Tests of the moment between a try that was in vain and the wait that follows it: here the test puts itself into that moment, which a
//! peer and a driver hit by chance only.
//!
//! They use the operations of `wait::io` as `net` does, with attempts of their own, and so they stand on this floor.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::Location;
use std::time::Duration;

use crate::prim::thread;
use crate::runtime::Runtime;
use crate::task::block_on;
use crate::wait::io::{Ask, Direction, Io, Limit};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// An attempt that, the first time, is in vain, and lets what it waits for come and be reported before it says so.
fn overtaken<'a>(io: &'a Io<UnixStream>, mut there: &'a UnixStream) -> impl FnMut(&UnixStream) -> io::Result<u8> {
    let mut is_first = true;
    move |mut here| {
        let mut byte = [0];
        let done = here.read(&mut byte);
        if std::mem::take(&mut is_first) {
            assert_eq!(done.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let seen = io.reports(Direction::Read);
            there.write_all(b"x").unwrap();
            while io.reports(Direction::Read) == seen {
                thread::yield_now();
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        done.map(|_| byte[0])
    }
}

/// Runs `waits` on a thread of its own: if it hangs, this fails.
fn returns(waits: impl FnOnce() -> u8 + Send + 'static) {
    let (tx, rx) = std::sync::mpsc::channel();
    thread::start("waits".to_owned(), move || tx.send(waits()).unwrap()).unwrap();
    let byte = rx.recv_timeout(Duration::from_secs(30));
    assert_eq!(byte.expect("what was reported between the try and the wait was slept through"), b'x');
}

/// A socket that does not block and is registered with the driver of plain threads, which is another thread's.
fn registered() -> (Io<UnixStream>, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let io = Io::new(here);
    let readiness = io.readiness(Direction::Read, io.reports(Direction::Read));
    assert_eq!(readiness.end_try(), Outcome::Pending, "registered");
    (io, there)
}

// Planted: `io_notes_after_the_try`. The body of a scope on a plain thread waits with the driver of another thread, which may report
// at any time.
#[test]
fn what_is_reported_between_a_try_and_the_wait_is_not_lost() {
    returns(|| {
        let (io, there) = registered();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let ask = Ask {
            direction: Direction::Read,
            reason: WaitReason::NetRead,
            site: Location::caller(),
            limit: Limit::Never,
        };
        runtime.handle().scope(|_| io.operate(ask, overtaken(&io, &there)).unwrap())
    });
}

// The same for the async form.
#[test]
fn what_is_reported_between_a_try_and_the_wait_of_a_future_is_not_lost() {
    returns(|| {
        let (io, there) = registered();
        block_on(io.operate_async(Direction::Read, overtaken(&io, &there))).unwrap()
    });
}
