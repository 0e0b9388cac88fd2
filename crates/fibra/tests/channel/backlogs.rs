//! The memory that a backlog needed goes back with its last message, however that is received.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // The sanitizers keep freed memory.

use fibra::channel::{Receiver, unbounded};

use crate::support;

/// Larger than what malloc keeps for itself.
const MESSAGES: usize = 3 << 19;

/// Pages of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_freed(how: &str, drain: impl FnOnce(&Receiver<[u64; 4]>)) {
    let (tx, rx) = unbounded::<[u64; 4]>();
    for n in 0..MESSAGES {
        tx.send([n as u64; 4]).unwrap();
    }
    let before = resident();
    drain(&rx);
    let after = resident();
    assert!(rx.is_empty());
    assert!(after + (36 << 20) / 4096 < before, "{how}: {before} pages before, {after} after");
    drop(tx);
}

#[test]
fn the_buffer_of_a_backlog_is_freed_by_the_receiver_of_its_last_message() {
    const NAME: &str = "the_buffer_of_a_backlog_is_freed_by_the_receiver_of_its_last_message";
    let _watchdog = support::watchdog(120);
    if !support::is_child(NAME) {
        // In a process where nothing else takes and gives memory meanwhile.
        let ended = support::rerun_self(NAME, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    fibra::run(|| {
        is_freed("recv", |rx| (0..MESSAGES).for_each(|_| _ = rx.recv().unwrap()));
        is_freed("try_recv", |rx| while rx.try_recv().is_ok() {});
        is_freed("select", |rx| {
            for _ in 0..MESSAGES {
                fibra::select! { recv(rx) -> n => _ = n.unwrap(), }
            }
        });
        is_freed("Select", |rx| {
            let mut select = fibra::channel::Select::new();
            select.recv(rx);
            (0..MESSAGES).for_each(|_| _ = select.select().recv(rx).unwrap());
        });
        is_freed("await", |rx| {
            fibra::block_on(async {
                for _ in 0..MESSAGES {
                    rx.recv_async().await.unwrap();
                }
            });
        });
    });
}
