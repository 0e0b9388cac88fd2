//! In steady state a simple request costs no allocation: counted on the server's thread.
//!
//! A program of its own, because a program has one allocator.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // They have allocators of their own.

#[path = "../../fibra/tests/support/counting.rs"]
mod counting;
mod support;

use std::cell::Cell;
use std::io::{Read, Write};

use fibra_http::{Limits, Request, Response, serve_connection};
use support::watchdog;

/// Requests until all buffers have grown to their size, and requests that are counted.
const WARM: usize = 200;
const COUNTED: usize = 1000;

/// How often the connection's thread allocates for `COUNTED` requests that come in groups of `group`.
fn allocations(request: &str, group: usize, handler: fn(&mut Request<'_>) -> Response) -> usize {
    fibra::run(|| {
        let (mut client, server) = fibra::net::UnixStream::pair().unwrap();
        // The handler answers how often its thread has allocated so far; a fiber stays on its thread.
        let serving = fibra::spawn(move || {
            let (calls, first, last) = (Cell::new(0), Cell::new(0), Cell::new(0));
            let served = serve_connection(server, &Limits::default(), |request: &mut Request<'_>| {
                calls.set(calls.get() + 1);
                if calls.get() == WARM {
                    first.set(counting::so_far());
                } else if calls.get() == WARM + COUNTED {
                    last.set(counting::so_far());
                }
                handler(request)
            });
            assert_eq!(served.unwrap(), (WARM + COUNTED) as u64);
            last.get() - first.get()
        });
        // The client runs on a thread of its own, so that it is not counted.
        let request = request.repeat(group);
        let length = fibra::blocking(|| std::thread::spawn(move || talk(&mut client, &request, group)).join().unwrap());
        assert!(length > 0);
        serving.join().unwrap()
    })
}

fn talk(client: &mut fibra::net::UnixStream, request: &str, group: usize) -> usize {
    let mut answer = vec![0; 64 << 10];
    let mut length = 0;
    for turn in 0..(WARM + COUNTED) / group {
        client.write_all(request.as_bytes()).unwrap();
        if turn == 0 {
            // The first answer shows how long they are.
            while length == 0 || !answer[..length].ends_with(b"body") {
                length += client.read(&mut answer[length..]).unwrap();
            }
            continue;
        }
        client.read_exact(&mut answer[..length]).unwrap();
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    length
}

#[test]
fn simple_requests_allocate_nothing() {
    let _watchdog = watchdog(60);
    let get = "GET /path?query HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: a test\r\n\r\n";
    let text: fn(&mut Request<'_>) -> Response = |request| {
        assert_eq!((request.path(), request.header("accept")), ("/path", Some("*/*")));
        Response::text("body")
    };
    assert_eq!(allocations(get, 1, text), 0);
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    let read: fn(&mut Request<'_>) -> Response = |request| {
        let mut body = [0; 5];
        request.body().read_exact(&mut body).unwrap();
        assert_eq!(&body, b"hello");
        Response::text("body")
    };
    assert_eq!(allocations(post, 1, read), 0);
    // One allocation for its header fields: this shows that the test sees an allocation.
    let one: fn(&mut Request<'_>) -> Response = |_| Response::text("body").header("x", "y");
    assert!(allocations(get, 1, one) >= COUNTED);
}
