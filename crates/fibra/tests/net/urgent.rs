//! Urgent data on a TCP stream: a read stops at its mark although there is more behind it, and is no sign that nothing is left.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream};

#[test]
fn what_is_behind_urgent_data_is_read() {
    let _watchdog = support::watchdog(30);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    here.set_nodelay(true).unwrap();
    let mut there: TcpStream = listener.accept().unwrap().0;
    let runtime = Runtime::builder().workers(1).build().unwrap();
    for round in 0..20 {
        here.write_all(b"before").unwrap();
        // SAFETY: the descriptor is open, and the byte lives through the call.
        let sent = unsafe { libc::send(here.as_raw_fd(), c"!".as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        here.write_all(b"behind").unwrap();
        // All of it is there before the reader reads.
        std::thread::sleep(std::time::Duration::from_millis(5));
        runtime.run(|| {
            let mut buffer = [0; 100];
            let mut heard = Vec::new();
            while heard.len() < 12 {
                let len = there.read(&mut buffer).unwrap();
                heard.extend_from_slice(&buffer[..len]);
            }
            assert_eq!(heard, b"beforebehind", "round {round}");
        });
    }
}
