//! A look of sysmon does bounded work (S1-109): shown on a runtime whose sysmon is stopped, so that the test looks in its place.

use std::sync::mpsc;
use std::task::Waker;

use super::runtime::Runtime;
use crate::monitor::sysmon::MOST_DEADLINES;
use crate::prim::policy;
use crate::sched::timers::alarms::Alarm;

// S1-109: however many deadlines of a stuck worker are overdue, one look fires a bounded number of them; the next looks fire the rest.
#[test]
fn a_look_fires_a_bounded_number_of_deadlines() {
    const ALARMS: u64 = 1_000;
    let rt = Runtime::builder().workers(1).max_workers(1).build().unwrap();
    let shared = rt.shared();
    shared.sysmon.stop();
    shared.sysmon.join();
    let ((set, is_set), (go, wait)) = (mpsc::channel(), mpsc::channel());
    let stuck = rt.spawn(move || {
        let now = policy::now();
        let alarms: Vec<_> = (0..ALARMS).map(|_| Alarm::set(now, Waker::noop()).unwrap()).collect();
        set.send(()).unwrap();
        wait.recv().unwrap(); // blocks the worker, with its timers
        drop(alarms);
    });
    is_set.recv().unwrap();
    let mut counts = Vec::new();
    while counts.iter().sum::<u64>() < ALARMS {
        let before = shared.sysmon.pool.rescued_deadlines.get();
        shared.sysmon.rescue_deadlines(shared);
        match shared.sysmon.pool.rescued_deadlines.get() - before {
            0 => std::thread::yield_now(), // not late enough to be a stuck worker's
            fired => counts.push(fired),
        }
    }
    assert!(counts.iter().all(|fired| *fired <= MOST_DEADLINES), "{counts:?}");
    assert_eq!(counts.len() as u64, ALARMS.div_ceil(MOST_DEADLINES));
    go.send(()).unwrap();
    stuck.join().unwrap();
}
