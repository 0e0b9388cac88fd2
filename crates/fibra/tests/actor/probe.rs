//! An actor that runs what it is sent: most tests need no other.

use std::sync::Arc;

use fibra::Runtime;
use fibra::actor::{Actor, Context, Failure, StopReason};
use fibra::channel::Sender;
use fibra::sync::Event;

pub(crate) type Job = Box<dyn FnOnce(&mut Probe, &mut Context<Probe>) -> Result<(), Failure> + Send>;

/// See the header. It notes what it is told to, and tells of its hooks.
#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) seen: Vec<u64>,
    pub(crate) hooks: Option<Sender<String>>,
    /// Said before each of its words.
    pub(crate) prefix: String,
}

impl Actor for Probe {
    type Message = Job;

    fn handle(&mut self, job: Job, ctx: &mut Context<Self>) -> Result<(), Failure> {
        job(self, ctx)
    }

    fn started(&mut self, _: &mut Context<Self>) -> Result<(), Failure> {
        self.say("started".to_owned());
        Ok(())
    }

    fn stopping(&mut self, why: &StopReason) {
        self.say(format!("stopping: {why}"));
    }
}

impl Probe {
    pub(crate) fn say(&self, text: String) {
        if let Some(hooks) = &self.hooks {
            let _ = hooks.send(format!("{}{text}", self.prefix));
        }
    }
}

/// A message that runs `f`, which cannot fail.
pub(crate) fn job(f: impl FnOnce(&mut Probe, &mut Context<Probe>) + Send + 'static) -> Job {
    Box::new(move |probe, ctx| {
        f(probe, ctx);
        Ok(())
    })
}

/// A message that is noted.
pub(crate) fn note(number: u64) -> Job {
    job(move |probe, _| probe.seen.push(number))
}

/// A message that fails.
pub(crate) fn failing(text: &'static str) -> Job {
    Box::new(move |_, _| Err(Failure::msg(text)))
}

/// A message whose handler says that it runs, and waits until it may go on.
pub(crate) fn gated() -> (Job, Arc<Event>, Arc<Event>) {
    let (runs, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (said, awaited) = (runs.clone(), goes_on.clone());
    let gate = job(move |_, _| {
        said.set();
        awaited.wait();
    });
    (gate, runs, goes_on)
}

/// A runtime of so many workers.
pub(crate) fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}
