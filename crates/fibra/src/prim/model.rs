//! The runner of protocol models: every schedule up to a bound under loom, many random ones under shuttle.
//!
//! A model is a function that starts a few of *this* module's threads, uses the facade's atomics and locks, and asserts. loom also explores
//! the effects of weak memory; shuttle knows only sequential consistency, but copes with models that are too large for loom.
//! Only the protocol code is compiled for either: see `lib.rs`.

#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(not(loom))]
pub(crate) use shuttle::thread;

/// Random schedules per model under shuttle.
#[cfg(not(loom))]
const SCHEDULES: usize = 20_000;

/// Runs the model with at most `preemptions` involuntary switches per schedule, or `LOOM_MAX_PREEMPTIONS` if that is fewer.
pub(crate) fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        // The builder reads the variable.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.map_or(preemptions, |most| most.min(preemptions)));
        builder.check(body);
    }
    #[cfg(not(loom))]
    {
        let _ = preemptions;
        shuttle::check_random(body, SCHEDULES);
    }
}
