//! UDP on fibers.

use std::io::ErrorKind;
use std::time::Duration;

use crate::support;
use fibra::net::UdpSocket;

fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

#[test]
fn datagrams_keep_their_bounds_and_senders() {
    let _watchdog = support::watchdog(60);
    let test = || {
        let (here, there) = (bound(), bound());
        let to = there.local_addr().unwrap();
        assert_eq!(here.send_to(b"one", to).unwrap(), 3);
        assert_eq!(here.send_to(b"", to).unwrap(), 0);
        assert_eq!(here.send_to(b"three", to).unwrap(), 5);
        let mut buffer = [0; 4];
        assert_eq!(there.peek_from(&mut buffer).unwrap(), (3, here.local_addr().unwrap()));
        assert_eq!(there.recv_from(&mut buffer).unwrap().0, 3);
        assert_eq!(there.recv_from(&mut buffer).unwrap().0, 0, "an empty datagram is one");
        assert_eq!(there.recv_from(&mut buffer).unwrap().0, 4, "what does not fit is lost");
        // Connected.
        here.connect(to).unwrap();
        there.connect(here.local_addr().unwrap()).unwrap();
        assert_eq!((here.peer_addr().unwrap(), here.send(b"x").unwrap()), (to, 1));
        assert_eq!((there.peek(&mut buffer).unwrap(), there.recv(&mut buffer).unwrap()), (1, 1));
        there.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        assert_eq!(there.recv(&mut buffer).unwrap_err().kind(), ErrorKind::TimedOut);
        here.send(b"y").unwrap();
        assert_eq!(there.recv(&mut buffer).unwrap(), 1);
        here.set_ttl(9).unwrap();
        here.set_broadcast(true).unwrap();
        assert!(here.ttl().unwrap() == 9 && here.broadcast().unwrap());
        let clone = there.try_clone().unwrap();
        here.send(b"z").unwrap();
        assert_eq!(clone.recv(&mut buffer).unwrap(), 1);
        // No socket is there any more.
        drop((there, clone));
        here.send(b"?").unwrap();
        assert_eq!(here.recv(&mut buffer).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    };
    test();
    fibra::run(test);
}

#[test]
fn fibers_and_std_exchange_datagrams() {
    let _watchdog = support::watchdog(60);
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = other.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 8];
        for _ in 0..200 {
            let (len, from) = other.recv_from(&mut buffer).unwrap();
            buffer[..len].reverse();
            other.send_to(&buffer[..len], from).unwrap();
        }
    });
    fibra::run(|| {
        let asking: Vec<_> = (0..4_u8)
            .map(|n| {
                fibra::spawn(move || {
                    let socket = bound();
                    for round in 0..50_u8 {
                        socket.send_to(&[n, round], to).unwrap();
                        let mut answer = [0; 8];
                        assert_eq!(socket.recv_from(&mut answer).unwrap(), (2, to));
                        assert_eq!(answer[..2], [round, n]);
                    }
                })
            })
            .collect();
        asking.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    answering.join().unwrap();
}

#[test]
fn ports_are_shared_if_asked_for() {
    let first = UdpSocket::bind_reuse_port("127.0.0.1:0").unwrap();
    let address = first.local_addr().unwrap();
    assert!(UdpSocket::bind(address).is_err());
    let second: std::net::UdpSocket = UdpSocket::bind_reuse_port(address).unwrap().into();
    assert_eq!(UdpSocket::from(second).local_addr().unwrap(), address);
}

#[test]
fn readiness_is_an_arm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (here, there) = (bound(), bound());
        fibra::select! {
            on(there.readable()) -> _ready => panic!("nothing was sent"),
            after(Duration::from_millis(2)) => {}
        }
        let to = there.local_addr().unwrap();
        let sending = fibra::spawn(move || here.send_to(b"x", to).unwrap());
        fibra::select! {
            on(there.readable()) -> ready => ready.unwrap(),
        }
        assert_eq!(there.recv(&mut [0; 2]).unwrap(), 1);
        sending.join().unwrap();
    });
}
