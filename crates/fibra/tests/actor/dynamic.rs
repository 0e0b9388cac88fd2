//! Children that come and go while their supervisor runs; locks in async code.

use std::sync::Arc;
use std::time::Duration;

use crate::probe::{Probe, failing, note};
use crate::sending::seen;
use crate::support;
use fibra::actor::{self, ChildOptions, Failure, Lock, Restart, Supervisor, SupervisorError};

const LONG: Duration = Duration::from_secs(3600);

fn probe() -> Result<Probe, Failure> {
    Ok(Probe::default())
}

#[test]
fn children_are_started_listed_and_stopped() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::one_for_one().max_restarts(100, LONG);
        sup.child("first", probe);
        let sup = sup.spawn();
        let second = sup.start_child("second", ChildOptions::default(), probe).unwrap();
        assert_eq!(sup.children().unwrap(), [("first".to_owned(), true), ("second".to_owned(), true)]);
        // It is started anew like any other.
        second.send(failing("as asked")).unwrap();
        second.send(note(1)).unwrap();
        assert_eq!(seen(&second), [1]);
        let taken = sup.start_child("second", ChildOptions::default(), probe);
        assert_eq!(taken.unwrap_err(), SupervisorError::NameTaken("second".to_owned()));
        let fails = || Err::<Probe, _>(Failure::msg("cannot be made"));
        let failed = sup.start_child("third", ChildOptions::default(), fails).unwrap_err();
        assert!(matches!(&failed, SupervisorError::StartFailed { child, .. } if child == "third"), "{failed}");
        sup.stop_child("first").unwrap();
        assert_eq!(sup.stop_child("first"), Err(SupervisorError::NoSuchChild("first".to_owned())));
        assert_eq!(sup.children().unwrap(), [("second".to_owned(), true)]);
        // Messages that tell of the end of one find it by its number, however many have gone before it.
        second.send(failing("as asked")).unwrap();
        second.send(note(2)).unwrap();
        assert_eq!(seen(&second), [2]);
        sup.stop_child("second").unwrap();
        assert!(!second.is_alive());
        sup.stop();
        sup.stopped();
        assert!(matches!(sup.stop_child("second"), Err(SupervisorError::Ended(_))));
    });
}

// Temporary children that have ended are forgotten: their names are free, and the supervisor does not grow.
#[test]
fn temporary_children_leave_nothing_behind() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::rest_for_one().spawn();
        let options = ChildOptions { restart: Restart::Temporary, ..ChildOptions::default() };
        for round in 0..100 {
            let child = sup.start_child("session", options.clone(), probe).unwrap();
            child.send(note(round)).unwrap();
            child.stop();
            child.stopped();
            while !sup.children().unwrap().is_empty() {
                fibra::yield_now();
            }
        }
        sup.stop();
        sup.stopped();
    });
}

#[test]
fn a_lock_is_handed_to_futures_in_order() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let lock = Arc::new(Lock::new(Vec::new()));
        let held = lock.lock();
        let tasks: Vec<_> = (0..3)
            .map(|number| {
                let lock = lock.clone();
                let task = fibra::spawn_future(async move { lock.lock_async().await.push(number) });
                fibra::yield_now();
                task
            })
            .collect();
        // One that is dropped leaves the queue.
        let mut dropped = Box::pin(lock.lock_async());
        fibra::block_on(std::future::poll_fn(|cx| {
            assert!(dropped.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        }));
        drop(dropped);
        assert!(lock.try_lock().is_none());
        drop(held);
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(*lock.lock(), [0, 1, 2]);
        let guard = fibra::block_on(lock.lock_async());
        assert_eq!((lock.is_locked(), lock.owner()), (true, None::<actor::ActorId>));
        drop(guard);
        assert!(!lock.is_locked());
    });
}
