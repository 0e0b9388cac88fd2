//! What is told at the very beginning and at the very end of a life: to children that start, to callers that come too late, to those who
//! drop the error that an actor failed with.

use crate::probe::{Probe, job};
use crate::review::{Bomb, Grudge, temporary};
use crate::support;
use fibra::actor::{self, Actor, Addr, CallError, Context, Failure, Reply, StopReason, Supervisor, SupervisorActor};
use fibra::channel::unbounded;

// A call whose message a plain thread drops, since the runtime of the actor has ended, is told that the actor stopped.
#[test]
fn calls_after_the_runtime_has_ended_are_told_that_it_stopped() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    let (probe, other) = runtime.run(|| (actor::spawn(Probe::default()), actor::spawn(Probe::default())));
    drop(runtime);
    assert_eq!(probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))), Err(CallError::Stopped));
    let asks = other.call_async(|reply: Reply<()>| job(move |_, _| reply.send(())));
    assert_eq!(fibra::block_on(asks), Err(CallError::Stopped));
    // What is dropped otherwise on that thread is told as before.
    let mut kept = None;
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (sent, replies) = unbounded();
        let caller = fibra::spawn(move || {
            probe.call(|reply: Reply<()>| {
                job(move |_, _| {
                    let _ = sent.send(reply);
                })
            })
        });
        let reply = replies.recv().unwrap();
        std::thread::spawn(move || drop(reply)).join().unwrap();
        kept = Some(caller.join().unwrap());
    });
    assert_eq!(kept, Some(Err(CallError::Dropped)));
}

// An error that panics when it is dropped does not do so where the last clone of a failure happens to be dropped.
#[test]
fn errors_that_panic_in_their_destructors_stay_where_they_are() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::one_for_one();
        let probe = sup.child_with("probe", temporary(), || Ok::<_, Failure>(Probe::default()));
        let sup = sup.spawn();
        probe.send(Box::new(|_, _| Err(Grudge { _dropped: Bomb }.into()))).unwrap();
        let reason = probe.stopped();
        assert!(matches!(&reason, StopReason::Failed(failure) if failure.downcast_ref::<Grudge>().is_some()));
        sup.stop();
        sup.stopped();
        // The keeper, the actor and its supervisor are gone: this clone is the last one.
        drop((probe, sup));
        drop(reason);
    });
}

/// Asks its supervisor for a brother, or for the list of its children, where that waits for it to start.
struct Eager {
    supervisor: Addr<SupervisorActor>,
    said: fibra::channel::Sender<Vec<String>>,
}

impl Actor for Eager {
    type Message = ();
    fn started(&mut self, _: &mut Context<Self>) -> Result<(), Failure> {
        let probe = || Ok::<_, Failure>(Probe::default());
        let started = self.supervisor.start_child("brother", temporary(), probe).map(drop);
        let listed = self.supervisor.children().map(drop);
        let stopped = self.supervisor.stop_child("eager");
        self.said.send([started, listed, stopped].map(|asked| asked.unwrap_err().to_string()).to_vec())?;
        Ok(())
    }
    fn handle(&mut self, (): (), _: &mut Context<Self>) -> Result<(), Failure> {
        self.said.send(self.supervisor.children()?.into_iter().map(|(name, _)| name).collect())?;
        Ok(())
    }
}

// A child that waits for its supervisor while that waits for it to start gets an error that says what to do; later it may ask.
#[test]
fn a_child_that_starts_cannot_wait_for_its_supervisor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::one_for_one().name("sup").spawn();
        let (said, hears) = unbounded();
        let supervisor = sup.clone();
        let make = move || Ok::<_, Failure>(Eager { supervisor: supervisor.clone(), said: said.clone() });
        let eager = sup.start_child("eager", temporary(), make).unwrap();
        for error in hears.recv().unwrap() {
            assert!(error.contains("eager waits for sup waits for eager; a child that starts"), "{error}");
        }
        // At once, while the supervisor may not have gone on yet.
        eager.send(()).unwrap();
        assert_eq!(hears.recv().unwrap(), ["eager"]);
        sup.stop();
        sup.stopped();
    });
}
