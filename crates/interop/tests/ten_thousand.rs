//! Ten thousand connections, held open at once by one process, each by a fiber; at the end all answer one request.
//!
//! The clients are another process, of std's sockets alone. Where the limit of descriptors cannot be raised so far, there are as many as
//! allowed; the test says how many there were. A program of its own, because it counts the descriptors of the process.

#[path = "../../fibra/tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fibra::Runtime;
use fibra::net::TcpListener;
use fibra::time::Instant;

const WANTED: usize = 10_000;
const TEST: &str = "ten_thousand_connections";
/// The length of each request, and of its answer, in bytes.
const REQUEST: usize = 32;
/// Environment variables for the clients: the address of the server, and how many clients there shall be.
const ADDRESS: &str = "FIBRA_TEST_ADDRESS";
const COUNT: &str = "FIBRA_TEST_COUNT";
/// Descriptors of the process that are no connections, at most.
const OTHERS: usize = 200;

/// Raises the limit of descriptors as far as allowed, and says what it is then.
fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min((WANTED + OTHERS) as u64));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    limit.rlim_cur as usize
}

#[test]
fn ten_thousand_connections() {
    if support::is_child(TEST) {
        return clients();
    }
    let _watchdog = support::watchdog(120);
    let count = raise_limit().saturating_sub(OTHERS).min(WANTED);
    let before = support::fds();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let begin = Instant::now();
    let clients =
        std::thread::spawn(move || support::rerun_self(TEST, &[(ADDRESS, &address), (COUNT, &count.to_string())]));
    let (resident, served) = (support::rss(), AtomicUsize::new(0));
    runtime.run(|| {
        fibra::scope(|s| {
            // The first connection tells when all are connected, and tells the clients when to ask.
            let mut control = listener.accept().unwrap().0;
            for stream in listener.incoming().take(count) {
                let (mut stream, served) = (stream.unwrap(), &served);
                let answer = move || {
                    let mut request = [0; REQUEST];
                    stream.read_exact(&mut request).unwrap();
                    request.reverse();
                    stream.write_all(&request).unwrap();
                    served.fetch_add(1, SeqCst);
                    // Held open until the client closes it.
                    assert_eq!(stream.read(&mut request).unwrap(), 0);
                };
                s.spawn(answer);
            }
            control.read_exact(&mut [0]).unwrap();
            let connected = begin.elapsed();
            assert!(support::fds() >= before + count && served.load(SeqCst) == 0);
            let bytes = support::rss().saturating_sub(resident) / count as u64;
            println!("{count} connections open at once, after {connected:?}; {bytes} bytes each, of this process");
            control.write_all(&[1]).unwrap();
        });
    });
    assert_eq!(served.load(SeqCst), count);
    let ended = clients.join().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    println!("all asked and were answered: {:?} in all", begin.elapsed());
    drop((runtime, listener));
    assert!(support::fds() <= before, "{before} descriptors before, {} after", support::fds());
}

fn clients() {
    let variable = |name| std::env::var(name).expect("the parent says so");
    let (address, count) = (variable(ADDRESS), variable(COUNT).parse().unwrap());
    raise_limit();
    let connect = || std::net::TcpStream::connect(&address).unwrap();
    let mut control = connect();
    let mut streams: Vec<_> = (0..count).map(|_| connect()).collect();
    control.write_all(&[1]).unwrap();
    control.read_exact(&mut [0]).unwrap();
    let request = |at: usize| -> Vec<u8> { (at..at + REQUEST).map(|byte| ((byte * 7) >> 2) as u8).collect() };
    for (at, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&request(at)).unwrap();
    }
    for (at, stream) in streams.iter_mut().enumerate() {
        let mut answer = [0; REQUEST];
        stream.read_exact(&mut answer).unwrap();
        answer.reverse();
        assert!(answer[..] == request(at));
    }
}
