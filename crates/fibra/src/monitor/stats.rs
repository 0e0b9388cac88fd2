//! Statistics as text: [`Metrics`] for people and as JSON, which `FIBRA_STATS` has printed when a runtime ends or a signal comes.
//!
//! Above: `runtime::builder`, which reads the variables when a runtime is built. Below: `metrics.rs`, which collects, and
//! `reactor::signals`.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::{Arc, Weak};

use super::metrics::{Metrics, WorkerMetrics};
use crate::reactor::signals::{self, Listener};
use crate::sched::shared::RuntimeShared;

/// How statistics are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatsFormat {
    Text,
    Json,
}

impl StatsFormat {
    /// The value of `FIBRA_STATS`: `0` for none.
    pub(crate) fn parse(value: &str) -> Option<Option<Self>> {
        match value.trim() {
            "0" | "" => Some(None),
            "1" => Some(Some(Self::Text)),
            "json" => Some(Some(Self::Json)),
            _ => None,
        }
    }
}

/// Signals that `FIBRA_STATS_SIGNAL` may name, with or without `SIG`.
const SIGNALS: &[(&str, i32)] =
    &[("HUP", libc::SIGHUP), ("QUIT", libc::SIGQUIT), ("USR1", libc::SIGUSR1), ("USR2", libc::SIGUSR2)];

/// The number of a signal that may be asked for.
pub(crate) fn signal_number(name: &str) -> Option<i32> {
    let name = name.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The statistics of a runtime on standard error, in one write.
pub(crate) fn print_text(shared: &RuntimeShared) {
    let (metrics, name) = (Metrics::collect(shared), &shared.config.name);
    crate::prim::say(format_args!("fibra: statistics of \"{name}\"\n{metrics}"));
}

/// The same as a line of JSON.
pub(crate) fn print_json(shared: &RuntimeShared) {
    let json = Metrics::collect(shared).to_json();
    crate::prim::say(format_args!("{{\"runtime\":{},{}", quoted(&shared.config.name), &json[1..]));
}

/// Calls `print` with a runtime whenever this signal comes, as long as the runtime lives.
pub(crate) fn print_on(signal: i32, shared: &Arc<RuntimeShared>, print: fn(&RuntimeShared)) -> io::Result<()> {
    signals::listen(Box::new(OnSignal { signal, print, runtime: Arc::downgrade(shared) }), &[signal])
}

struct OnSignal {
    signal: i32,
    print: fn(&RuntimeShared),
    runtime: Weak<RuntimeShared>,
}

impl Listener for OnSignal {
    fn hears(&self, signal: i32) -> bool {
        signal == self.signal
    }

    fn is_gone(&self) -> bool {
        self.runtime.strong_count() == 0
    }

    fn wakes(&self) -> bool {
        false
    }

    fn tell(&mut self, _: i32) -> bool {
        let runtime = self.runtime.upgrade();
        if let Some(shared) = &runtime {
            (self.print)(shared);
        }
        runtime.is_some()
    }
}

/// A list of names and numbers.
pub(crate) type Figures<'a> = &'a [(&'static str, i128)];

impl Metrics {
    /// The figures in groups, as both forms show them.
    pub(crate) fn groups(&self, each: &mut dyn FnMut(&'static str, Figures<'_>)) {
        let n = |number: u64| i128::from(number);
        let u = |number: usize| number as i128;
        let (pool, blocked) = (&self.pool, &self.pool.blocked);
        each(
            "fibers",
            &[
                ("spawned", n(self.spawned)),
                ("live", n(self.live)),
                ("parked", n(self.parked)),
                ("switches", n(self.switches)),
                ("cancellations", n(self.cancellations)),
                ("detached_panics", n(self.detached_panics)),
            ],
        );
        each(
            "pool",
            &[
                ("workers", u(pool.workers)),
                ("base_workers", u(pool.base_workers)),
                ("max_workers", u(pool.max_workers)),
                ("most_workers", u(pool.most_workers)),
                ("active", u(pool.active)),
                ("promoted", n(pool.promoted)),
                ("retired", n(pool.retired)),
                ("not_started", n(pool.not_started)),
                ("stalls", n(self.stalls)),
                ("rescued_deadlines", n(pool.rescued_deadlines)),
                ("gathered_on", u(pool.gathered_on)),
            ],
        );
        each(
            "pressure",
            &[
                ("current", i128::from(pool.pressure)),
                ("positive_samples", n(pool.positive_samples)),
                ("zero_samples", n(pool.zero_samples)),
                ("negative_samples", n(pool.negative_samples)),
                ("negative_streak_max", n(pool.negative_streak_max)),
            ],
        );
        each(
            "gate",
            &[
                ("passes", n(pool.gate_passes)),
                ("no_work", n(blocked.no_work)),
                ("nonpositive", n(blocked.nonpositive)),
                ("idle_capacity", n(blocked.idle_capacity)),
                ("not_stuck", n(blocked.not_stuck)),
                ("too_soon", n(blocked.too_soon)),
                ("at_ceiling", n(blocked.at_ceiling)),
            ],
        );
        each(
            "queues",
            &[
                ("stolen", n(self.stolen)),
                ("wakes_local", n(self.wakes_local)),
                ("wakes_remote", n(self.wakes_remote)),
                ("wakes_timer", n(self.wakes_timer)),
                ("wakes_surplus", n(self.wakes_surplus)),
                ("injector_overflows", n(self.injector_overflows)),
            ],
        );
        each(
            "memory",
            &[
                ("stacks_reused", n(self.stacks_reused)),
                ("stacks_fresh", n(self.stacks_fresh)),
                ("blocking_threads", u(self.blocking_threads)),
                ("blocking_queued", u(self.blocking_queued)),
                ("blocking_peak", u(self.blocking_peak)),
            ],
        );
    }

    /// All of it as one line of JSON, for tools: an object with a group of figures each for `fibers`, `pool`, `pressure`, `gate`,
    /// `queues` and `memory`, and `workers`, a list. What [`FIBRA_STATS=json`](crate::RuntimeBuilder) prints has the name of the runtime
    /// in it too.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// rt.run(|| ());
    /// let json = rt.metrics().to_json();
    /// assert!(json.starts_with("{\"fibers\":{\"spawned\":1,"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        self.groups(&mut |name, figures| {
            let _ = write!(json, "{}:{},", quoted(name), object(figures));
        });
        json.push_str("\"workers\":[");
        for (place, worker) in self.workers.iter().enumerate() {
            if place > 0 {
                json.push(',');
            }
            json.push_str(&worker.to_json());
        }
        json.push_str("]}");
        json
    }
}

impl WorkerMetrics {
    /// As JSON.
    pub(crate) fn to_json(&self) -> String {
        let figures = self.figures(object);
        format!("{{\"state\":{},{}", quoted(self.state.name()), &figures[1..])
    }

    fn figures<R>(&self, f: impl FnOnce(Figures<'_>) -> R) -> R {
        let n = |number: u64| i128::from(number);
        f(&[
            ("index", self.index as i128),
            ("spawned", n(self.spawned)),
            ("ended", n(self.ended)),
            ("started", n(self.started)),
            ("parked", n(self.parked)),
            ("queued", self.queued as i128),
            ("switches", n(self.switches)),
            ("stolen", n(self.stolen)),
            ("injected", n(self.injected)),
            ("wakes_local", n(self.wakes_local)),
            ("wakes_remote", n(self.wakes_remote)),
            ("wakes_timer", n(self.wakes_timer)),
            ("sleeps", n(self.sleeps)),
            ("departures", n(self.departures)),
            ("searches", n(self.searches)),
            ("stale_entries", n(self.stale_entries)),
            ("blocked_nanos", n(self.blocked_nanos)),
        ])
    }
}

/// For people: a line for each group, and one for each worker.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.groups(&mut |name, figures| {
            let _ = writeln!(text, "  {name:<9} {}", list(figures));
        });
        for worker in &self.workers {
            let figures = worker.figures(|figures| list(&figures[1..]));
            let _ = writeln!(text, "  worker {} {:<9} {figures}", worker.index, worker.state);
        }
        f.write_str(text.trim_end())
    }
}

fn list(figures: Figures<'_>) -> String {
    figures.iter().map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>().join(", ")
}

fn object(figures: Figures<'_>) -> String {
    let pairs: Vec<_> = figures.iter().map(|(name, number)| format!("{}:{number}", quoted(name))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A string of JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if (control as u32) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_variables() {
        assert_eq!(StatsFormat::parse(" 1 "), Some(Some(StatsFormat::Text)));
        assert_eq!(StatsFormat::parse("json"), Some(Some(StatsFormat::Json)));
        assert_eq!(StatsFormat::parse("0"), Some(None));
        assert_eq!(StatsFormat::parse("yes"), None);
        assert_eq!(signal_number("usr1"), Some(libc::SIGUSR1));
        assert_eq!(signal_number("SIGQUIT"), Some(libc::SIGQUIT));
        assert_eq!(signal_number("KILL"), None);
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
