//! Receivers of special channels as arms of a select, beside plain ones: themselves, through references and through pointers.

use std::sync::Arc;

use crate::support::watchdog;
use fibra::channel::{self, RecvError};

#[test]
fn recv_takes_every_receiver_whose_receive_gives_a_value() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (plain_tx, plain) = channel::bounded::<u8>(1);
        let (ordered_tx, ordered) = channel::ordered::<u16>(1);
        let (broadcast_tx, broadcast) = channel::broadcast::<u32>(4);
        let (oneshot_tx, oneshot) = channel::oneshot::<u64>();
        let (ordered, broadcast) = (Arc::new(ordered), Box::new(broadcast));
        let select = |guard: bool| {
            let (nested, plain) = (&&plain, &plain);
            fibra::select! {
                recv(nested) -> got => format!("plain {got:?}"),
                on(ordered.receiving()), if guard => "ordered, a guard and no pattern".to_owned(),
                on(ordered.receiving()) -> got => format!("ordered {:?}", got.map(Result::unwrap)),
                on(broadcast.receiving()) -> got => format!("broadcast {got:?}"),
                on(oneshot.receiving()) -> got => format!("oneshot {got:?}"),
                recv(plain) -> got, if false => format!("never {got:?}"),
                default => "nothing".to_owned(),
            }
        };
        assert_eq!(select(true), "nothing");
        plain_tx.send(1).unwrap();
        assert_eq!(select(true), "plain Ok(1)");
        broadcast_tx.send(3).unwrap();
        assert_eq!(select(true), "broadcast Ok(3)");
        oneshot_tx.send(4).unwrap();
        assert_eq!(select(true), "oneshot Ok(4)");
        // Received once, it is closed: ready for ever, and nothing else here is.
        assert_eq!(select(true), "oneshot Err(RecvError)");
        ordered_tx.spawn(|| 2).unwrap();
        let got = fibra::select_biased! {
            on(ordered.receiving()) -> got => got.unwrap().unwrap(),
        };
        assert_eq!(got, 2);
    });
}

// A select that parks is woken by each of them, and each says in its own words that it is over.
#[test]
fn a_select_waits_for_them() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, broadcast) = channel::broadcast::<u32>(4);
        let (ordered_tx, ordered) = channel::ordered::<u32>(1);
        let (_never, silent) = channel::rendezvous::<u32>();
        let (asked, reply) = channel::oneshot::<u32>();
        let waiting = fibra::spawn(move || {
            let mut got = Vec::new();
            for _ in 0..5 {
                fibra::select! {
                    on(broadcast.receiving()) -> message => got.push(message.map_err(|error| error.to_string())),
                    on(reply.receiving()) -> answer, if got.len() == 1 => {
                        got.push(answer.map_err(|error| error.to_string()));
                    }
                    on(ordered.receiving()) -> result, if got.len() >= 2 => {
                        got.push(result.map(Result::unwrap).map_err(|error| error.to_string()));
                    }
                    recv(silent) -> _ => unreachable!("nothing is sent there"),
                }
                fibra::yield_now();
            }
            got
        });
        tx.send(1).unwrap();
        fibra::yield_now();
        asked.send(2).unwrap();
        fibra::yield_now();
        ordered_tx.spawn(|| 3).unwrap();
        drop(ordered_tx);
        let got = waiting.join().unwrap();
        let over = RecvError.to_string();
        assert_eq!(got, [Ok(1), Ok(2), Ok(3), Err(over.clone()), Err(over)]);
    });
}
