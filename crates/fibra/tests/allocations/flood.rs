//! What a channel without a bound needed for a flood is freed with the last message, whichever way the receiver takes it.

use fibra::channel::{Receiver, Select, unbounded};

use crate::counting::{ODD, odd_blocks};
use crate::support::watchdog;

type Message = [u8; ODD];

#[test]
fn the_buffer_of_a_flood_goes_with_its_last_message() {
    let _alone = crate::alone();
    let _watchdog = watchdog(60);
    let ways: [(&str, fn(&Receiver<Message>)); 6] = [
        ("recv", |rx| drop(rx.recv().unwrap())),
        ("try_recv", |rx| drop(rx.try_recv().unwrap())),
        ("select!", |rx| drop(fibra::select! { recv(rx) -> message => message.unwrap() })),
        ("select! with default", |rx| fibra::select! { recv(rx) -> _ => {}, default => unreachable!() }),
        ("Select", |rx| {
            let mut set = Select::new();
            set.recv(rx);
            drop(set.select().recv(rx).unwrap());
        }),
        ("recv_async", |rx| drop(fibra::block_on(rx.recv_async()).unwrap())),
    ];
    for (name, receive) in ways {
        let (tx, rx) = unbounded::<Message>();
        let before = odd_blocks();
        (0..100).for_each(|_| tx.send([0; ODD]).unwrap());
        assert!(odd_blocks() > before, "{name}: a buffer");
        (0..100).for_each(|_| receive(&rx));
        assert_eq!(odd_blocks(), before, "{name}: no buffer");
        tx.send([1; ODD]).unwrap();
        assert_eq!(rx.recv().unwrap()[0], 1);
    }
}
