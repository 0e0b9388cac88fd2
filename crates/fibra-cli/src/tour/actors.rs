//! Actors: many that cost almost nothing, and one that crashes, is started anew by its supervisor, and is found under the same address.

use std::time::Duration;

use fibra::actor::{self, Actor, CallError, Context, Failure, Reply, Supervisor};
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

/// Actors that wait for messages.
const IDLE: usize = 10_000;

struct Counter(u64);

enum Msg {
    Add(u64),
    Crash(Reply<()>),
    Get(Reply<u64>),
}

impl Actor for Counter {
    type Message = Msg;

    fn handle(&mut self, message: Msg, _: &mut Context<Self>) -> Result<(), Failure> {
        match message {
            Msg::Add(n) => self.0 += n,
            Msg::Crash(_reply) => return Err(Failure::msg("the counter has lost count")),
            Msg::Get(reply) => reply.send(self.0),
        }
        Ok(())
    }
}

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let begin = Instant::now();
    let idle: Vec<_> = (0..IDLE).map(|_| actor::spawn(Counter(0))).collect();
    idle.iter().try_for_each(|counter| counter.send(Msg::Add(1))).map_err(|error| error.to_string())?;
    let total: u64 = idle.iter().filter_map(|counter| counter.call(Msg::Get).ok()).sum();
    if total != IDLE as u64 {
        return Err(format!("{total} messages of {IDLE} were handled"));
    }
    page.row(
        "actors",
        format_args!("{} of them, without a stack; two messages each in {}", host::count(total), time(begin.elapsed())),
    );
    drop(idle);

    let sup = Supervisor::one_for_one().max_restarts(5, Duration::from_secs(10));
    let counter = sup.child("counter", || Ok::<_, Failure>(Counter(0)));
    let sup = sup.spawn();
    counter.send(Msg::Add(41)).map_err(|error| error.to_string())?;
    let crash = Instant::now();
    match counter.call(Msg::Crash) {
        Err(CallError::Crashed) => {}
        other => return Err(format!("the caller of a crash was told {other:?}")),
    }
    let count = counter.call(Msg::Get).map_err(|error| error.to_string())?;
    if count != 0 {
        return Err(format!("a new counter begins at {count}"));
    }
    page.row(
        "crashed",
        format_args!("its caller was told so; it is back under the same address after {}", time(crash.elapsed())),
    );
    sup.stop();
    let why = sup.stopped();
    page.row(
        "the end",
        format_args!("the supervisor and its child: {why}; is the child there? {}", counter.is_alive()),
    );
    Ok(())
}
