//! What a workload consists of. Above: `workloads/` (each file fills one `Workload`), `race` and `report` (which read them).
//!
//! Invariant: whatever decides the meaning of an operation is a parameter that travels on the child's command line, so that a line
//! of `ps` or of a log is enough to repeat a measurement.

use std::fmt::Write as _;

use crate::measure::Sample;
use crate::peers::Peer;

/// One measurement of a workload on one peer, run in the child.
pub(crate) type Side = fn(&Params) -> Sample;

/// A workload: its cases, and its implementation for each peer that can take part.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What is done, and what counts as one operation.
    pub(crate) operation: &'static str,
    pub(crate) cases: fn(Size) -> Vec<Case>,
    pub(crate) sides: &'static [(Peer, Side)],
}

/// Whether the figures are to be used, or the run only tests the workloads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    /// Just large enough to go through every line once.
    Quick,
}

impl Size {
    /// `full`, or `quick` in a quick run.
    pub(crate) fn pick(self, full: u64, quick: u64) -> u64 {
        match self {
            Size::Full => full,
            Size::Quick => quick,
        }
    }
}

/// Named numbers: the sizes of a case, in the order they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(String, u64)>);

impl Params {
    pub(crate) fn set(&mut self, key: &str, value: u64) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// The value of a parameter that the case must have given.
    pub(crate) fn get(&self, key: &str) -> u64 {
        self.find(key).unwrap_or_else(|| panic!("parameter {key}=<number> is missing"))
    }

    /// The value of a parameter, if it has one of that name.
    pub(crate) fn find(&self, key: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    pub(crate) fn size(&self, key: &str) -> usize {
        usize::try_from(self.get(key)).expect("parameters are small")
    }

    pub(crate) fn workers(&self) -> usize {
        self.size("w")
    }

    /// The parameters that differ from those of `other`.
    pub(crate) fn changed_from(&self, other: &Params) -> Params {
        Params(self.0.iter().filter(|pair| !other.0.contains(pair)).cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As on the command line: `n=1000000 batch=10000 w=1`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}{key}={value}");
        }
        text
    }
}

/// One line of comparison: sizes, the peers that take part, the metrics that are compared.
pub(crate) struct Case {
    pub(crate) params: Params,
    pub(crate) entrants: Vec<Entrant>,
    pub(crate) metrics: Vec<Metric>,
}

/// A peer in a case, with the sizes it runs at (the case's own, unless it cannot carry them).
pub(crate) struct Entrant {
    pub(crate) peer: Peer,
    pub(crate) params: Params,
    /// Whether it may be the best rival, or is only there to be seen.
    pub(crate) is_rival: bool,
}

impl Case {
    pub(crate) fn new(params: &[(&str, u64)], peers: &[Peer]) -> Case {
        let mut all = Params::default();
        for (key, value) in params {
            all.set(key, *value);
        }
        let entrants = peers.iter().map(|&peer| Entrant { peer, params: all.clone(), is_rival: true }).collect();
        Case { params: all, entrants, metrics: Vec::new() }
    }

    /// Adds a peer that runs with other sizes; the report says so.
    pub(crate) fn with(mut self, peer: Peer, changed: &[(&str, u64)]) -> Case {
        let mut params = self.params.clone();
        for (key, value) in changed {
            params.set(key, *value);
        }
        self.entrants.push(Entrant { peer, params, is_rival: true });
        self
    }

    /// Adds a peer that is only shown: no ratio is formed with it.
    pub(crate) fn beside(mut self, peer: Peer) -> Case {
        self.entrants.push(Entrant { peer, params: self.params.clone(), is_rival: false });
        self
    }

    /// Adds something to compare.
    pub(crate) fn metric(mut self, key: &'static str, label: &'static str, goal: Goal) -> Case {
        self.metrics.push(Metric { key, label, goal });
        self
    }

    /// The usual comparison: wall time per operation, CPU time beside it in brackets.
    pub(crate) fn time(self, goal: Goal) -> Case {
        self.metric("ns", "ns/op (CPU)", goal)
    }
}

/// A figure of the sample that is compared between peers; less is better.
pub(crate) struct Metric {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) goal: Goal,
}

/// What `performance.md` (or the issue) asks of fibra.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Nothing is asked: the figure is there to be seen.
    Shown,
    /// At most this many times the best rival of the same run.
    Ratio(f64),
    /// At most this many times what one rival reached in the same case, whatever the others reach.
    To { most: f64, rival: Peer },
    /// At most this, whatever the rivals reach.
    AtMost(f64),
    /// At most this many times what fibra itself reached in the case that differs only in this parameter.
    Own { most: f64, key: &'static str, value: u64 },
}
