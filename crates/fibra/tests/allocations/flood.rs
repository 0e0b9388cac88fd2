//! What a channel without a bound needed for a flood is freed with the last message, whichever way the receiver takes it.

use fibra::channel::{Receiver, Select, unbounded};

use crate::counting::{ODD, odd_blocks};
use crate::support::watchdog;

type Message = [u8; ODD];
type Way = (&'static str, fn(&Receiver<Message>) -> Message);

#[test]
fn the_buffer_of_a_flood_goes_with_its_last_message() {
    let _alone = crate::alone();
    let _watchdog = watchdog(60);
    let ways: [Way; 6] = [
        ("recv", |rx| rx.recv().unwrap()),
        ("try_recv", |rx| rx.try_recv().unwrap()),
        ("select!", |rx| fibra::select! { recv(rx) -> message => message.unwrap() }),
        (
            "select! with default",
            |rx| fibra::select! { recv(rx) -> message => message.unwrap(), default => unreachable!() },
        ),
        ("Select", |rx| {
            let mut set = Select::new();
            set.recv(rx);
            set.select().recv(rx).unwrap()
        }),
        ("recv_async", |rx| fibra::block_on(rx.recv_async()).unwrap()),
    ];
    for (name, receive) in ways {
        let (tx, rx) = unbounded::<Message>();
        let before = odd_blocks();
        (0..100).for_each(|_| tx.send([0; ODD]).unwrap());
        assert!(odd_blocks() > before, "{name}: a buffer");
        (0..100).for_each(|_| assert_eq!(receive(&rx)[0], 0));
        assert_eq!(odd_blocks(), before, "{name}: no buffer");
        tx.send([1; ODD]).unwrap();
        assert_eq!(rx.recv().unwrap()[0], 1);
    }
}
