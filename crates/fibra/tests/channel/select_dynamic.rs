//! Attacks on the dynamic form of select: payloads of every shape, operations that are never completed, more arms than there are numbers.

use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::watchdog;
use fibra::channel::{Select, TryRecvError, bounded, rendezvous};

/// Counts how often it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Values of every shape go through the room of a selected operation.
#[test]
fn payloads_of_every_shape() {
    let _watchdog = watchdog(20);
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Aligned(u8);
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(64))]
    struct Empty;
    fn through<T: Clone + PartialEq + std::fmt::Debug + Send + 'static>(value: T) {
        let (tx, rx) = rendezvous::<T>();
        let (small_tx, small_rx) = bounded::<u8>(1);
        let sent = value.clone();
        let sender = std::thread::spawn(move || {
            let mut select = Select::new();
            select.send(&tx);
            let operation = select.select();
            operation.send(&tx, sent).unwrap();
        });
        let mut select = Select::new();
        select.recv(&small_rx);
        select.recv(&rx);
        let operation = select.select();
        assert_eq!(operation.index(), 1);
        assert_eq!(operation.recv(&rx).unwrap(), value);
        sender.join().unwrap();
        drop(small_tx);
    }
    through(());
    through(Empty);
    through(Aligned(7));
    through([3_u8; 65]);
    through([5_u64; 100]);
    through(Box::new(9));
    through(vec![Aligned(1), Aligned(2)]);
}

/// Operations completed with the wrong channel, dropped, or forgotten: nothing is lost, no fiber is stuck, nothing is dropped twice.
#[test]
#[cfg_attr(fibra_asan, ignore = "leaks on purpose: what a forgotten operation owns")]
fn selected_operations_gone_wrong() {
    let _watchdog = watchdog(20);
    let drops = Arc::new(AtomicU32::new(0));
    let (tx, rx) = bounded::<Counted>(1);
    let (_other_tx, other_rx) = bounded::<Counted>(1);
    let (zst_tx, zst_rx) = bounded::<()>(1);
    let caught = |call: &mut dyn FnMut()| {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    };
    tx.send(Counted(drops.clone())).unwrap();
    caught(&mut || {
        let mut select = Select::new();
        select.recv(&rx);
        drop(select.select().recv(&other_rx));
    });
    caught(&mut || {
        let mut select = Select::new();
        select.recv(&rx);
        let _ = select.select().recv(&zst_rx);
    });
    caught(&mut || {
        let mut select = Select::new();
        select.recv(&rx);
        drop(select.select().send(&tx, Counted(drops.clone())));
    });
    assert_eq!(drops.swap(0, Ordering::SeqCst), 1, "the one that could not be sent");
    caught(&mut || {
        let mut select = Select::new();
        select.recv(&rx);
        drop(select.select());
    });
    assert_eq!((rx.len(), drops.load(Ordering::SeqCst)), (1, 0), "it is back each time");
    drop(rx.recv());
    assert_eq!(drops.swap(0, Ordering::SeqCst), 1);
    // A send that never comes: the place is back.
    caught(&mut || {
        let mut select = Select::new();
        select.send(&tx);
        drop(select.select());
    });
    tx.try_send(Counted(drops.clone())).unwrap();
    // Forgotten: leaked, and that is all.
    let mut select = Select::new();
    select.recv(&rx);
    mem::forget(select.select());
    assert_eq!((rx.len(), drops.load(Ordering::SeqCst)), (0, 0));
    let mut select = Select::new();
    select.send(&zst_tx);
    mem::forget(select.select());
    assert!(zst_tx.try_send(()).is_err(), "its place is taken");
    zst_tx.close();
    assert_eq!(zst_rx.try_recv(), Err(TryRecvError::Empty), "one was admitted");
    drop(zst_tx);
    assert_eq!(zst_rx.try_recv(), Err(TryRecvError::Disconnected));
}

/// More arms than there are numbers for them, from both sides, and a fiber against each.
#[test]
fn more_arms_than_numbers() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let channels: Vec<_> = (0..300).map(|_| rendezvous::<usize>()).collect();
        for index in (0..300).step_by(13).chain([251, 252, 253, 254, 255, 256, 299]) {
            let tx = channels[index].0.clone();
            let sender = fibra::spawn(move || {
                fibra::yield_now();
                tx.send(index).unwrap();
            });
            let mut select = Select::new();
            for (_, rx) in &channels {
                select.recv(rx);
            }
            let operation = select.select();
            let got = operation.index();
            assert_eq!(operation.recv(&channels[got].1), Ok(index));
            sender.join().unwrap();
            // And sending.
            let rx = channels[index].1.clone();
            let receiver = fibra::spawn(move || {
                fibra::yield_now();
                rx.recv().unwrap()
            });
            let mut select = Select::new();
            for (tx, _) in &channels {
                select.send(tx);
            }
            let operation = select.select();
            assert_eq!(operation.index(), index);
            operation.send(&channels[index].0, index).unwrap();
            assert_eq!(receiver.join().unwrap(), index);
            // And asking.
            let tx = channels[index].0.clone();
            let sender = fibra::spawn(move || {
                fibra::yield_now();
                tx.send(index).unwrap();
            });
            let mut select = Select::new();
            for (_, rx) in &channels {
                select.recv(rx);
            }
            assert_eq!(select.ready(), index);
            assert_eq!(channels[index].1.recv(), Ok(index));
            sender.join().unwrap();
        }
    });
}

// `ready` says no more than `try_send` can do: a value is left for an async receiver of a rendezvous that waits, but not two; and asking in
// a loop must park.
#[test]
fn ready_promises_what_try_send_can_do() {
    let _watchdog = watchdog(60);
    let (tx, rx) = rendezvous::<u32>();
    let mut receive = Box::pin(rx.recv_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(receive.as_mut().poll(&mut context).is_pending());
    let mut select = Select::new();
    select.send(&tx);
    assert_eq!((select.try_ready(), select.ready(), tx.try_send(1)), (Ok(0), 0, Ok(())));
    assert!(select.try_ready().is_err() && tx.try_send(1).is_err());
    assert!(select.ready_timeout(std::time::Duration::from_millis(5)).is_err());
    assert_eq!(receive.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(1)));
    // A fiber or thread that waits is one who can be sent to.
    let other = rx.clone();
    let receiver = std::thread::spawn(move || other.recv());
    assert_eq!(select.ready(), 0);
    tx.send(2).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(2));
}
