//! The matrix of supervision: strategy, kind of child, way to end, place, limit. The outcomes are written down here as the tables in
//! `src/actor/supervisor/mod.rs` and in the guide state them, and compared with what happens.

use std::time::Duration;

use crate::probe::{Job, Probe, job, runtime};
use crate::support;
use fibra::actor::{Addr, ChildOptions, Failure, Reply, Restart, Supervisor, SupervisorActor, SupervisorMessage};
use fibra::channel::{Receiver, unbounded};

const LONG: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
}

/// How a child ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Normal,
    Error,
    Panic,
    Kill,
}

struct Tree {
    sup: Addr<SupervisorActor>,
    children: Vec<Addr<Probe>>,
    said: Receiver<String>,
}

/// A supervisor of three children, "0" to "2", all of one kind, which say when they start and stop.
fn tree(strategy: Strategy, restart: Restart, significant: bool, limit: u32) -> Tree {
    let sup = match strategy {
        Strategy::OneForOne => Supervisor::one_for_one(),
        Strategy::OneForAll => Supervisor::one_for_all(),
        Strategy::RestForOne => Supervisor::rest_for_one(),
    };
    let sup = sup.max_restarts(limit, LONG);
    let (tx, said) = unbounded();
    let options = ChildOptions { restart, significant, shutdown: LONG };
    let children = (0..3)
        .map(|n| {
            let tx = tx.clone();
            sup.child_with(format!("{n}"), options.clone(), move || {
                let (hooks, prefix) = (Some(tx.clone()), format!("{n} "));
                Ok::<_, Failure>(Probe { hooks, prefix, ..Probe::default() })
            })
        })
        .collect();
    Tree { sup: sup.spawn(), children, said }
}

impl Tree {
    fn end(&self, child: usize, how: End) {
        let message: Job = match how {
            End::Normal => job(|_, ctx| ctx.stop()),
            End::Error => crate::probe::failing("as asked"),
            End::Panic => job(|_, _| std::panic::resume_unwind(Box::new("as asked"))),
            End::Kill => job(|_, ctx| {
                ctx.address().kill();
                fibra::sleep(LONG);
            }),
        };
        let _ = self.children[child].send(message);
    }

    /// Waits until the supervisor has dealt with it, and gives what runs.
    fn running(&self) -> Vec<String> {
        loop {
            // Its handlers are in order: an answer comes after what was before.
            let children = self.sup.call(SupervisorMessage::children).unwrap_or_default();
            if children.iter().all(|(_, up)| *up) {
                return children.into_iter().map(|(name, _)| name).collect();
            }
        }
    }

    /// What was said since, by whom, sorted by child (the words of one child are in order).
    fn words(&self, expected: usize) -> Vec<String> {
        let mut words: Vec<String> = (0..expected).map(|_| self.said.recv().unwrap()).collect();
        words.sort_by_key(|word| word.split(' ').next().map(str::to_owned));
        words
    }
}

/// The table: is such a child started anew?
fn is_restarted(restart: Restart, how: End) -> bool {
    match restart {
        Restart::Permanent => true,
        Restart::Transient => how != End::Normal,
        Restart::Temporary => false,
    }
}

/// The table: which of three are started when child `child` is.
fn concerned(strategy: Strategy, child: usize) -> Vec<usize> {
    match strategy {
        Strategy::OneForOne => vec![child],
        Strategy::OneForAll => vec![0, 1, 2],
        Strategy::RestForOne => (child..3).collect(),
    }
}

fn stops_with(how: End) -> &'static str {
    match how {
        End::Normal => "stopping: stopped",
        End::Error => "stopping: failed: as asked",
        End::Panic => "stopping: failed: panicked: as asked",
        End::Kill => "stopping: killed",
    }
}

// Strategy x kind x way to end x place: who is stopped, why, who is started, who is removed.
#[test]
fn outcomes_are_those_of_the_table() {
    let _watchdog = support::watchdog(120);
    runtime(2).run(|| {
        for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
            for restart in [Restart::Permanent, Restart::Transient, Restart::Temporary] {
                for how in [End::Normal, End::Error, End::Panic, End::Kill] {
                    for child in 0..3 {
                        play(strategy, restart, how, child);
                    }
                }
            }
        }
    });
}

fn play(strategy: Strategy, restart: Restart, how: End, child: usize) {
    let what = format!("{strategy:?} {restart:?} {how:?} {child}");
    let tree = tree(strategy, restart, false, 10);
    assert_eq!(tree.words(3), ["0 started", "1 started", "2 started"], "{what}");
    tree.end(child, how);
    let mut expected = Vec::new();
    let restarted = is_restarted(restart, how);
    for n in 0..3 {
        let is_concerned = restarted && concerned(strategy, child).contains(&n);
        if n == child {
            expected.push(format!("{n} {}", stops_with(how)));
        } else if is_concerned {
            expected.push(format!("{n} stopping: shut down"));
        }
        if is_concerned {
            expected.push(format!("{n} started"));
        }
    }
    assert_eq!(tree.words(expected.len()), expected, "{what}");
    let left: Vec<String> = (0..3).filter(|n| restarted || *n != child).map(|n| n.to_string()).collect();
    // (One that is removed has ended for good: only then the supervisor has dealt with it.)
    if !restarted {
        tree.children[child].stopped();
    }
    assert_eq!(tree.running(), left, "{what}");
    assert_eq!(tree.children[child].is_alive(), restarted, "{what}");
    // Ordered shutdown: last first.
    tree.sup.stop();
    tree.sup.stopped();
    assert!(tree.children.iter().all(|child| !child.is_alive()), "{what}");
    let alive = left.len();
    assert_eq!(
        tree.words(alive),
        left.iter().map(|n| format!("{n} stopping: shut down")).collect::<Vec<_>>(),
        "{what}"
    );
}

// The order in which children are stopped and started, seen by one that all of them tell.
#[test]
fn children_are_stopped_last_first_and_started_first_first() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        for strategy in [Strategy::OneForAll, Strategy::RestForOne] {
            let sup = match strategy {
                Strategy::OneForAll => Supervisor::one_for_all(),
                _ => Supervisor::rest_for_one(),
            };
            let (tx, order) = unbounded();
            let children: Vec<_> = (0..4)
                .map(|n| {
                    let tx = tx.clone();
                    sup.child(format!("{n}"), move || Ok::<_, Failure>(Ordered { number: n, order: tx.clone() }))
                })
                .collect();
            let sup = sup.spawn();
            let take = |count: usize| (0..count).map(|_| order.recv().unwrap()).collect::<Vec<i32>>();
            assert_eq!(take(4), [1, 2, 3, 4], "started, first first");
            children[1].send(()).unwrap();
            match strategy {
                Strategy::OneForAll => assert_eq!(take(8), [-2, -4, -3, -1, 1, 2, 3, 4]),
                _ => assert_eq!(take(6), [-2, -4, -3, 2, 3, 4]),
            }
            sup.stop();
            sup.stopped();
            assert_eq!(take(4), [-4, -3, -2, -1], "stopped, last first");
        }
    });
}

/// Tells its number plus 1 when it starts, and minus that when it stops. Fails when it is sent something.
struct Ordered {
    number: i32,
    order: fibra::channel::Sender<i32>,
}

impl fibra::actor::Actor for Ordered {
    type Message = ();
    fn started(&mut self, _: &mut fibra::actor::Context<Self>) -> Result<(), Failure> {
        Ok(self.order.send(self.number + 1)?)
    }
    fn handle(&mut self, (): (), _: &mut fibra::actor::Context<Self>) -> Result<(), Failure> {
        Err(Failure::msg("as asked"))
    }
    fn stopping(&mut self, _: &fibra::actor::StopReason) {
        let _ = self.order.send(-(self.number + 1));
    }
}

// Intensity: as many restarts as allowed, and one more ends the supervisor and all children, with an error that says so.
#[test]
fn one_restart_too_many_ends_the_supervisor() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
            for limit in [0, 1, 3] {
                let tree = tree(strategy, Restart::Permanent, false, limit);
                for _ in 0..limit {
                    tree.end(1, End::Error);
                    // It is there again.
                    tree.children[1].call(|reply: Reply<()>| job(move |_, _| reply.send(()))).unwrap();
                }
                assert!(tree.sup.is_alive());
                tree.end(1, End::Error);
                let why = tree.sup.stopped();
                let text = why.to_string();
                assert!(text.contains(&format!("more than {limit} restarts")) && text.contains("\"1\""), "{text}");
                assert!(tree.children.iter().all(|child| !child.is_alive()));
            }
        }
    });
}

// Restarts that lie further back than the time do not count.
#[test]
fn restarts_are_forgotten_after_their_time() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one().max_restarts(1, Duration::from_millis(10));
        let probe = sup.child("probe", || Ok::<_, Failure>(Probe::default()));
        let sup = sup.spawn();
        for _ in 0..4 {
            probe.send(crate::probe::failing("as asked")).unwrap();
            probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))).unwrap();
            fibra::sleep(Duration::from_millis(20));
        }
        assert!(sup.is_alive());
        // A tree that outlives its run is not freed.
        sup.stop();
        sup.stopped();
    });
}

// Temporary children that are stopped for the sake of another are removed.
#[test]
fn temporary_siblings_are_not_started_again() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_all();
        let make = || Ok::<_, Failure>(Probe::default());
        let permanent = sup.child("permanent", make);
        let options = ChildOptions { restart: Restart::Temporary, ..ChildOptions::default() };
        let temporary = sup.child_with("temporary", options, make);
        let sup = sup.spawn();
        permanent.send(crate::probe::failing("as asked")).unwrap();
        temporary.stopped();
        permanent.call(|reply: Reply<()>| job(move |_, _| reply.send(()))).unwrap();
        assert_eq!(sup.call(SupervisorMessage::children), Ok(vec![("permanent".to_owned(), true)]));
        sup.stop();
        sup.stopped();
    });
}

// Significant: the supervisor shuts down when such a child is removed, and not when it is restarted.
#[test]
fn significant_children_end_the_supervisor_when_they_are_removed() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        for restart in [Restart::Transient, Restart::Temporary] {
            for how in [End::Normal, End::Error, End::Kill] {
                let tree = tree(Strategy::OneForOne, restart, true, 10);
                tree.end(0, how);
                if is_restarted(restart, how) {
                    tree.children[0].call(|reply: Reply<()>| job(move |_, _| reply.send(()))).unwrap();
                    assert!(tree.sup.is_alive());
                    tree.sup.stop();
                }
                assert!(tree.sup.stopped().is_normal(), "{restart:?} {how:?}");
                assert!(tree.children.iter().all(|child| !child.is_alive()));
            }
        }
    });
}
