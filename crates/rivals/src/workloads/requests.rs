//! Periodic requests: the part that `skew` and `noisy` share. A requester is due at fixed times, whatever happened before (so a
//! stall is counted for every request that fell into it, not only for the first), does a little work, and notes how long after its
//! due time it was done. The waiting itself is left to the workload, since that is where peers differ.
//!
//! The latency contains how late the peer's timers are: tokio's tick is a millisecond. The quiet phase shows that part alone.

use std::time::{Duration, Instant};

use crate::measure::{Sample, Work, percentile};

/// The work of one request.
const REQUEST: Duration = Duration::from_micros(5);

/// One task's requests and their latencies.
pub(crate) struct Requests {
    due: Instant,
    period: Duration,
    end: Instant,
    work: Work,
    latencies: Vec<(Instant, Duration)>,
}

impl Requests {
    /// From `start` to `end` every `period`; `phase` (below 1) spreads the tasks over it.
    pub(crate) fn new(start: Instant, end: Instant, period: Duration, phase: f64, work: Work) -> Requests {
        let expected = (end - start).as_secs_f64() / period.as_secs_f64();
        let due = start + period.mul_f64(phase);
        Requests { due, period, end, work, latencies: Vec::with_capacity(expected as usize + 2) }
    }

    /// How long to sleep until the next request is due (zero if it was due before: a backlog is served without waiting); `None` when
    /// there is no further one.
    pub(crate) fn wait(&self) -> Option<Duration> {
        (self.due < self.end).then(|| self.due.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn serve(&mut self) {
        self.work.take(REQUEST);
        self.latencies.push((self.due, self.due.elapsed()));
        self.due += self.period;
    }

    /// Each request's due time and latency.
    pub(crate) fn latencies(self) -> Vec<(Instant, Duration)> {
        self.latencies
    }
}

/// The percentiles of what fell due before and after `turn`.
pub(crate) fn sample(latencies: impl Iterator<Item = (Instant, Duration)>, turn: Instant) -> Sample {
    let (mut quiet, mut loaded) = (Vec::new(), Vec::new());
    for (due, latency) in latencies {
        let phase = if due < turn { &mut quiet } else { &mut loaded };
        phase.push(latency.as_secs_f64() * 1e6);
    }
    quiet.sort_by(f64::total_cmp);
    loaded.sort_by(f64::total_cmp);
    let mut sample = Sample::default();
    sample.set("p99_quiet_us", percentile(&quiet, 0.99));
    sample.set("p50_us", percentile(&loaded, 0.50));
    sample.set("p99_us", percentile(&loaded, 0.99));
    sample.set("max_us", percentile(&loaded, 1.0));
    sample
}
