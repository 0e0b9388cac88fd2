//! Workers that come and go, at the moments in which something else happens to them.
#![allow(clippy::disallowed_types)] // What blocks the thread must not be fibra's.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::support::{eventually, watchdog};
use crate::tools::Rng;
use fibra::channel::bounded;
use fibra::{Builder, JoinHandle, Runtime, RuntimeBuilder, WorkerState};

fn elastic(workers: usize, max_workers: usize) -> RuntimeBuilder {
    Runtime::builder()
        .workers(workers)
        .max_workers(max_workers)
        .stall_after(Duration::from_millis(20))
        .scale_interval(Duration::from_millis(1))
        .temp_idle_timeout(Duration::from_secs(3600))
}

fn states(rt: &Runtime) -> Vec<WorkerState> {
    rt.metrics().workers.iter().map(|worker| worker.state).collect()
}

fn is_dead(rt: &Runtime, worker: usize) -> bool {
    states(rt).get(worker).is_none_or(|state| *state == WorkerState::Dead)
}

/// A fiber that is parked on the first worker, so that what is spread goes to another; it ends when the sender is dropped.
fn park_on_the_first(rt: &Runtime) -> (fibra::channel::Sender<()>, JoinHandle<()>) {
    let ((go, wait), (tell, told)) = (bounded::<()>(0), mpsc::channel());
    let fiber = rt.spawn(move || {
        tell.send(()).unwrap();
        let _ = wait.recv();
    });
    told.recv().unwrap();
    (go, fiber)
}

// The driver of a seat is used again: a socket that was registered there by a worker that has left can be waited for by the next one.
#[test]
fn a_socket_is_waited_for_on_a_seat_that_was_left() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 2).build().unwrap();
    let _parked = park_on_the_first(&rt);
    let (here, mut there) = fibra::net::UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let _entered = rt.handle().enter();
    for round in 0..3u8 {
        rt.set_workers(2).unwrap();
        let (reader, (tell, told)) = (here.clone(), mpsc::channel());
        let fiber = Builder::new()
            .spread()
            .spawn(move || {
                tell.send(()).unwrap();
                let mut byte = [0];
                (&*reader).read_exact(&mut byte).map(|()| byte[0])
            })
            .unwrap();
        told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        there.write_all(&[round]).unwrap();
        assert_eq!(fiber.join().unwrap().map_err(|error| error.to_string()), Ok(round));
        rt.set_workers(1).unwrap();
        eventually(|| is_dead(&rt, 1), || format!("{:?}", states(&rt)));
    }
}

// A worker is made superfluous at any moment between its look at its seat and its sleep: it leaves.
#[test]
fn stress_a_worker_that_is_about_to_sleep_is_told_to_leave() {
    let _watchdog = watchdog(240);
    let rt = elastic(1, 2).build().unwrap();
    let mut rng = Rng::new();
    for round in 0..500 {
        rt.set_workers(2).unwrap();
        let begun = Instant::now();
        let pause = Duration::from_micros(rng.below(400) as u64);
        while begun.elapsed() < pause {
            std::hint::spin_loop();
        }
        rt.set_workers(1).unwrap();
        eventually(|| is_dead(&rt, 1), || format!("round {round}: {:?}", states(&rt)));
    }
}

// A worker that is leaving, and has nothing to do but to wait for its fiber, is kept at any moment: it takes work again.
#[test]
fn stress_a_worker_that_is_about_to_sleep_is_kept() {
    let _watchdog = watchdog(240);
    let rt = elastic(2, 2).build().unwrap();
    let _parked = park_on_the_first(&rt);
    let _entered = rt.handle().enter();
    let ((go, wait), (tell, told)) = (bounded::<()>(0), mpsc::channel());
    let fiber = Builder::new()
        .spread()
        .spawn(move || {
            tell.send(()).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
    told.recv().unwrap();
    let mut rng = Rng::new();
    for round in 0..5000 {
        rt.set_workers(1).unwrap();
        let begun = Instant::now();
        let pause = Duration::from_nanos(rng.below(60_000) as u64);
        while begun.elapsed() < pause {
            std::hint::spin_loop();
        }
        rt.set_workers(2).unwrap();
        eventually(|| states(&rt)[1] != WorkerState::Draining, || format!("round {round}: {:?}", states(&rt)));
    }
    drop(go);
    fiber.join().unwrap();
}

// A worker that comes while all others sleep is watched: what it leaves lying while it is stuck is done by another.
#[test]
fn a_worker_that_comes_while_sysmon_rests_is_watched() {
    let _watchdog = watchdog(120);
    let rt = elastic(1, 2).build().unwrap();
    let _parked = park_on_the_first(&rt);
    let _entered = rt.handle().enter();
    for _ in 0..3 {
        // No worker is awake, so that the watcher leaves.
        std::thread::sleep(Duration::from_millis(1500));
        rt.set_workers(2).unwrap();
        let stuck = Builder::new()
            .spread()
            .spawn(|| {
                let (tell, told) = mpsc::channel();
                let child = fibra::spawn(move || tell.send(()).unwrap());
                told.recv().unwrap(); // blocks its worker until another one has run the child
                child.join().unwrap();
            })
            .unwrap();
        stuck.join().unwrap();
        rt.set_workers(1).unwrap();
        eventually(|| is_dead(&rt, 1), || format!("{:?}", states(&rt)));
    }
}

// A superfluous worker takes no more work, also if there is always some: it leaves when the fibers that have started on it have ended.
#[test]
fn a_busy_worker_leaves_too() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 2).build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    fn chain(over: Arc<AtomicBool>) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
        if !over.load(SeqCst) {
            drop(fibra::spawn(move || chain(over)));
        }
    }
    for _ in 0..64 {
        let over = over.clone();
        drop(rt.spawn(move || chain(over)));
    }
    let runs = |worker: usize| rt.metrics().workers.get(worker).map_or(0, |worker| worker.switches);
    eventually(|| runs(1) > 1000, || "the second worker has nothing to do".to_owned());
    rt.set_workers(1).unwrap();
    eventually(|| is_dead(&rt, 1), || format!("{:?}", states(&rt)));
    over.store(true, SeqCst);
}
