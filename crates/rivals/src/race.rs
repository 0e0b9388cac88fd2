//! The parent's part: starts one child process for each measurement and collects the samples. Below: `plan`; above: `main`, `report`.
//!
//! Invariants: never two children at once; within a case the peers take turns, and each round begins with another one, so that
//! a slow minute of a shared machine meets all of them.

use std::process::Command;

use crate::measure::{Noise, Sample};
use crate::peers::{Peer, go};
use crate::plan::{Case, Params, Size, Workload};

/// A child that is still running after this ends itself; the longest measurement takes a few tens of seconds.
pub(crate) const CHILD_LIMIT_SECONDS: u32 = 120;

/// All measurements of one workload.
pub(crate) struct Race {
    pub(crate) workload: &'static Workload,
    pub(crate) heats: Vec<Heat>,
}

/// One case, with what each peer reached.
pub(crate) struct Heat {
    pub(crate) case: Case,
    pub(crate) lanes: Vec<Lane>,
}

/// One peer in one case.
pub(crate) struct Lane {
    pub(crate) peer: Peer,
    pub(crate) params: Params,
    pub(crate) is_rival: bool,
    pub(crate) samples: Vec<Sample>,
    pub(crate) failures: Vec<String>,
}

impl Race {
    /// A child failed, or a timer of fibra fired early. A rival that hung until its alarm is reported, but is no failure of fibra: may
    /// hangs now and then where many tasks share one of its channels, bounded by its semaphore.
    pub(crate) fn has_failed(&self) -> bool {
        let early = |lane: &Lane| lane.samples.iter().any(|sample| sample.get("early").unwrap_or(0.0) > 0.0);
        let ours = |lane: &Lane, why: &str| lane.peer == Peer::Fibra || !why.contains("SIGALRM");
        let broken = |lane: &Lane| lane.failures.iter().any(|why| ours(lane, why));
        let failed = |lane: &Lane| broken(lane) || (lane.peer == Peer::Fibra && early(lane));
        self.heats.iter().flat_map(|heat| &heat.lanes).any(failed)
    }
}

impl Lane {
    /// The median of a figure over the rounds.
    pub(crate) fn median(&self, key: &str) -> Option<f64> {
        self.quantile(key, 2, 4)
    }

    /// Its 75th percentile: what a user gets in a bad round.
    pub(crate) fn upper(&self, key: &str) -> Option<f64> {
        self.quantile(key, 3, 4)
    }

    /// The figure that `part` of `whole` rounds do not exceed, without the rounds in which other processes used half a core or more, if
    /// three quiet ones remain.
    fn quantile(&self, key: &str, part: usize, whole: usize) -> Option<f64> {
        const QUIET: f64 = 0.5;
        const ENOUGH: usize = 3;
        let quiet: Vec<&Sample> =
            self.samples.iter().filter(|sample| sample.get("noise").is_some_and(|noise| noise < QUIET)).collect();
        let used = if quiet.len() >= ENOUGH { quiet } else { self.samples.iter().collect() };
        let mut values: Vec<f64> = used.into_iter().filter_map(|sample| sample.get(key)).collect();
        values.sort_by(f64::total_cmp);
        values.get((values.len() * part / whole).min(values.len().saturating_sub(1))).copied()
    }
}

/// Which cases run: all, or those with these parameters.
pub(crate) fn run(workload: &'static Workload, size: Size, rounds: usize, only: &[(String, u64)]) -> Race {
    let has_go = workload.sides.iter().any(|(peer, _)| *peer == Peer::Go) && go::prepare(size).is_ok();
    let run_case = |case| run_case(workload, case, rounds, has_go);
    let is_wanted = |case: &Case| only.iter().all(|(key, value)| case.params.find(key) == Some(*value));
    let heats = (workload.cases)(size).into_iter().filter(is_wanted).map(run_case).collect();
    Race { workload, heats }
}

fn run_case(workload: &Workload, case: Case, rounds: usize, has_go: bool) -> Heat {
    let is_built = |peer| workload.sides.iter().any(|(side, _)| *side == peer) && (peer != Peer::Go || has_go);
    let mut lanes: Vec<Lane> = case
        .entrants
        .iter()
        .filter(|entrant| is_built(entrant.peer))
        .map(|entrant| Lane {
            peer: entrant.peer,
            params: entrant.params.clone(),
            is_rival: entrant.is_rival,
            samples: Vec::new(),
            failures: Vec::new(),
        })
        .collect();
    for round in 0..rounds {
        eprintln!("{} {} (round {} of {rounds})", workload.name, case.params.text(), round + 1);
        for turn in 0..lanes.len() {
            let count = lanes.len();
            let lane = &mut lanes[(round + turn) % count];
            match measure(workload, lane.peer, &lane.params) {
                Ok(sample) => lane.samples.push(sample),
                Err(why) => {
                    eprintln!("  {} failed: {why}", lane.peer.name());
                    lane.failures.push(why);
                }
            }
        }
    }
    Heat { case, lanes }
}

/// Runs the measurement in a child. A child that prints no figures has failed.
fn measure(workload: &Workload, peer: Peer, params: &Params) -> Result<Sample, String> {
    let program = std::env::current_exe().map_err(|error| format!("where is this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg("--one").arg(workload.name).arg(format!("peer={}", peer.name())).args(params.text().split(' '));
    // A failure is told in one line.
    command.env("RUST_BACKTRACE", "0");
    let noise = Noise::start();
    let output = command.output().map_err(|error| format!("cannot start a child: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = errors.lines().filter(|line| !line.is_empty() && !line.starts_with("note:")).collect();
        return Err(format!("{}: {}", output.status, lines.join(" / ")));
    }
    let mut sample = Sample::parse(&String::from_utf8_lossy(&output.stdout));
    if sample.iter().next().is_none() {
        return Err("the child printed no figures".into());
    }
    if let Some(noise) = noise.stop() {
        sample.set("noise", noise);
    }
    Ok(sample)
}
