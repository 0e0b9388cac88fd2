//! Writes `docs/benchmarks.md` from one run: when and on which machine it was measured, with which versions, how often fibra
//! won, and every table, losses included. Above: `main`. Below: `report`.
//!
//! Invariant: nothing in the document comes from another run, and nothing is written by hand.

use std::fmt::Write as _;
use std::process::Command;

use crate::curves;
use crate::plan::Size;
use crate::race::Race;
use crate::report::{self, Style};

/// The versions of everything that the tables compare.
const LOCK: &str = include_str!("../../../Cargo.lock");
/// Crates whose version a reader wants to know.
const NAMED: [&str; 12] = [
    "tokio",
    "may",
    "kanal",
    "flume",
    "crossbeam-channel",
    "rayon",
    "hyper",
    "may_minihttp",
    "actix",
    "ractor",
    "kameo",
    "futures",
];

/// The whole document, and the pictures in it: path beside the document, and contents. `arguments` is the command line that made it.
pub(crate) fn render(
    races: &[Race],
    size: Size,
    rounds: usize,
    arguments: &[String],
) -> (String, Vec<(String, String)>) {
    let mut text = String::from(
        "# Benchmarks\n\nEvery workload on fibra and on the runtimes it competes with, measured in one run. \
         This file is written by the command below; do not edit it.\n\n",
    );
    let _ = writeln!(text, "| | |\n|---|---|");
    let _ = writeln!(text, "| command | `cargo run --release -p rivals -- {}` |", arguments.join(" "));
    let _ = writeln!(text, "| date | {} |", said("date", &["-u", "+%Y-%m-%d"]));
    let _ = writeln!(text, "| machine | {}, {} cores, shared with others |", processor(), cores());
    let _ = writeln!(text, "| system | Linux {}, {} |", said("uname", &["-r"]), said("rustc", &["--version"]));
    let _ = writeln!(text, "| rivals | {} |", versions());
    let _ = writeln!(text, "| rounds | {rounds}, interleaved between the peers |\n");
    let _ = writeln!(
        text,
        "*Ratio* is fibra to the best rival of the same case; less is better. *Goal* is our own, and *met* says \
         whether it was reached. `w` is the number of workers; with `w=1` the process is pinned to one core. *Noise* \
         is the most CPU, in cores, that other processes used meanwhile: treat rows with noise above 0.3, and \
         differences below 20 %, as undecided.\n"
    );
    text.push_str(&summary(races, size));
    let (curves, pictures) = curves::render(races);
    text.push_str(&curves);
    text.push_str(report::render(races, Style::Markdown, size).trim_start());
    (text, pictures)
}

/// How often fibra was ahead and behind, and the rows in which it was behind.
fn summary(races: &[Race], size: Size) -> String {
    let ratios = report::ratios(races, size);
    let ahead = ratios.iter().filter(|(_, _, ratio)| *ratio < 0.95).count();
    let behind: Vec<_> = ratios.iter().filter(|(_, _, ratio)| *ratio > 1.05).collect();
    let level = ratios.len() - ahead - behind.len();
    let mut text = format!(
        "## Summary\n\nIn {} comparisons with the best rival fibra was ahead in {ahead}, level (within 5 %) in \
         {level} and behind in {}. Where it was behind:\n\n| workload | case | ratio |\n|---|---|---|\n",
        ratios.len(),
        behind.len()
    );
    for (workload, case, ratio) in behind {
        let _ = writeln!(text, "| {workload} | {case} | {ratio:.2} |");
    }
    text.push('\n');
    text
}

/// What a program prints, on one line; "unknown" where it cannot be run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown processor".into(), |(_, name)| name.trim().to_owned())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Name and version of every rival, by the lock file of this build.
fn versions() -> String {
    let mut found = Vec::new();
    for package in LOCK.split("[[package]]") {
        let field = |key: &str| package.split_once(&format!("{key} = \""))?.1.split('"').next();
        if let (Some(name), Some(version)) = (field("\nname"), field("\nversion"))
            && NAMED.contains(&name)
        {
            found.push(format!("{name} {version}"));
        }
    }
    if let Some(version) = crate::peers::go::version() {
        found.push(version);
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_come_from_the_lock_file() {
        let versions = super::versions();
        assert!(versions.contains("tokio 1.") && versions.contains("rayon 1."), "{versions}");
    }
}
