//! What feeds an actor by itself: delayed and periodic messages, receivers, pipes, sockets; names and groups.

use std::io::Write;
use std::time::Duration;

use crate::probe::{Job, Probe, job, note};
use crate::sending::seen;
use crate::support;
use fibra::actor::{self, Actor, Addr, Builder, Context, Failure, Group, StopReason, registry};
use fibra::channel::{Sender, bounded, unbounded};
use fibra::net::{TcpListener, TcpStream};
use fibra::stream;

/// Runs `f` in a handler, and waits for it.
fn inside<R: Send + 'static>(probe: &Addr<Probe>, f: impl FnOnce(&mut Context<Probe>) -> R + Send + 'static) -> R {
    probe.call(|reply| job(move |_, ctx| reply.send(f(ctx)))).unwrap()
}

#[test]
fn delayed_messages_come_later_and_can_be_cancelled() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (tx, rx) = bounded::<u64>(4);
        let say = move |n: u64| -> Job {
            let tx = tx.clone();
            job(move |_, _| tx.send(n).unwrap())
        };
        let begin = fibra::time::Instant::now();
        let in_time = inside(&probe, move |ctx| {
            let begin = fibra::time::Instant::now();
            let never = ctx.send_after(Duration::from_millis(1), say(9));
            never.cancel();
            ctx.send_after(Duration::from_millis(20), say(2));
            ctx.send_after(Duration::from_millis(5), say(1));
            begin.elapsed() < Duration::from_millis(1)
        });
        let mut got = Vec::new();
        while got.len() < 2 {
            // (Without a processor meanwhile, it may have been cancelled, and the others set, too late.)
            got.extend(rx.recv().into_iter().filter(|n| in_time || *n != 9));
        }
        if !in_time {
            got.sort_unstable();
        }
        assert_eq!(got, [1, 2]);
        assert!(begin.elapsed() >= Duration::from_millis(20));
    });
}

#[test]
fn periodic_messages_come_until_they_are_cancelled() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (tx, rx) = bounded::<()>(1);
        let ticks = inside(&probe, move |ctx| {
            let tx = tx.clone();
            ctx.send_every(Duration::from_millis(1), move || {
                let tx = tx.clone();
                job(move |_, _| _ = tx.send(()))
            })
        });
        (0..3).for_each(|_| rx.recv().unwrap());
        ticks.cancel();
        while rx.recv_timeout(Duration::from_millis(200)).is_ok() {}
        assert!(probe.is_alive());
    });
}

// Timers belong to a life: those of an actor that has ended fire no more, and hold nothing.
#[test]
fn timers_end_with_their_actor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (tx, rx) = bounded::<()>(1);
        inside(&probe, move |ctx| {
            ctx.send_every(Duration::from_secs(3600), move || {
                let tx = tx.clone();
                job(move |_, _| tx.send(()).unwrap())
            });
        });
        probe.stop();
        probe.stopped();
        assert!(rx.recv().is_err(), "what the timer had was dropped");
    });
}

// A receiver becomes messages, under back-pressure: the source is never further ahead than mailbox and channel.
#[test]
fn an_attached_receiver_is_held_back_by_a_slow_actor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(2).spawn(Probe::default()).unwrap();
        let (tx, rx) = bounded::<u64>(1);
        inside(&probe, move |ctx| drop(ctx.attach(rx, note)));
        let (gate, runs, goes_on) = crate::probe::gated();
        probe.send(gate).unwrap();
        runs.wait();
        // Two in the mailbox, one in the hands of the task that waits for a place, one in the channel.
        (1..=4).for_each(|n| tx.send(n).unwrap());
        while probe.len() < 2 {
            fibra::yield_now();
        }
        assert!(tx.send_timeout(5, Duration::from_millis(20)).is_err(), "the source is ahead without a bound");
        goes_on.set();
        tx.send(5).unwrap();
        drop(tx);
        while seen(&probe).len() < 5 {
            fibra::yield_now();
        }
        assert_eq!(seen(&probe), [1, 2, 3, 4, 5]);
    });
}

// A pipe, and the lines of a socket, feed an actor.
#[test]
fn pipes_and_sockets_feed_an_actor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        inside(&probe, move |ctx| {
            let numbers =
                stream::lines(std::io::BufReader::new(server)).map(|line| line.unwrap().parse::<u64>().unwrap());
            ctx.attach(numbers, note);
        });
        client.write_all(b"1\n2\n3\n").unwrap();
        drop(client);
        while seen(&probe).len() < 3 {
            fibra::yield_now();
        }
        assert_eq!(seen(&probe), [1, 2, 3]);
    });
}

struct Log(Sender<String>);

impl Actor for Log {
    type Message = String;
    fn handle(&mut self, text: String, _: &mut Context<Self>) -> Result<(), Failure> {
        Ok(self.0.send(text)?)
    }
}

#[test]
fn names_are_found_and_go_with_their_actor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = unbounded();
        let log = actor::spawn(Log(tx.clone()));
        registry::register("test.log", &log).unwrap();
        registry::register("test.log", &log).unwrap();
        let other = actor::spawn(Log(tx));
        assert_eq!(registry::register("test.log", &other), Err(registry::RegisterError::Taken(log.id())));
        assert!(registry::lookup::<Probe>("test.log").is_none(), "of another type");
        let found = registry::lookup::<Log>("test.log").unwrap();
        assert_eq!(found, log);
        drop((found, log));
        registry::lookup::<Log>("test.log").unwrap().send("kept by its name".to_owned()).unwrap();
        assert_eq!(rx.recv().as_deref(), Ok("kept by its name"));
        let log = registry::lookup::<Log>("test.log").unwrap();
        log.stop();
        log.stopped();
        assert!(registry::lookup::<Log>("test.log").is_none());
        assert_eq!(registry::register("test.log", &log), Err(registry::RegisterError::Ended));
        registry::register("test.log", &other).unwrap();
        assert!(registry::names().contains(&"test.log".to_owned()));
        assert!(registry::unregister("test.log") && !registry::unregister("test.log"));
    });
}

#[test]
fn groups_reach_their_members() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = unbounded();
        let logs: Vec<_> = (0..3).map(|_| actor::spawn(Log(tx.clone()))).collect();
        let group = Group::new();
        logs.iter().chain(&logs).for_each(|log| group.join(log));
        assert_eq!((group.len(), group.send_all("all".to_owned())), (3, 3));
        (0..3).for_each(|_| assert_eq!(rx.recv().as_deref(), Ok("all")));
        let turns: Vec<_> = (0..4).map(|_| group.next().unwrap().id()).collect();
        assert!(turns[0] != turns[1] && turns[1] != turns[2] && turns[3] == turns[0]);
        assert!(group.leave(&logs[0]) && !group.leave(&logs[0]));
        logs[1].kill();
        assert!(matches!(logs[1].stopped(), StopReason::Killed));
        assert_eq!(group.members(), [logs[2].clone()]);
        assert!(!group.is_empty());
    });
}
