//! `rivals`: the same workloads on fibra and on the runtimes it competes with, measured in one run and printed as ratios.
//!
//! ```text
//! main.rs        arguments; the parent's and the child's way through the program
//! race.rs        the parent: which child processes run, in which order; collects their samples
//! report.rs      medians, ratios, goals; text, markdown and JSON
//! document.rs    `docs/benchmarks.md`: date, machine, versions, a summary and every table
//! curves.rs      its pictures: a figure over the number of workers, of tasks, of bytes
//! plan.rs        what a workload is made of: cases, parameters, metrics, goals
//! workloads/     one file per workload, with its semantics, its sizes and one body per kind of peer
//! peers/         one file per peer: how to start it, spawn, join, yield, sleep
//! ../go/         Go's sides of the workloads: a program of its own, built where there is a Go (`peers/go.rs`)
//! measure.rs     clocks, CPU time, noise, memory, pinning
//! ```
//!
//! Every measurement runs in a process of its own (`rivals --one spawn_join peer=tokio w=1 ...`), so that neither a peer's threads
//! nor its heap disturb another's. A new workload is one file in `workloads/` and one line in its list; a new peer that blocks
//! is one implementation of `peers::Blocking`, one that awaits is one function in each workload it takes part in.

#![allow(
    clippy::disallowed_types,
    reason = "a program beside the runtime: its peers' threads are not fibra's to model"
)]

mod curves;
mod document;
mod load;
mod measure;
mod peers;
mod plan;
mod race;
mod report;
mod workloads;

use std::process::ExitCode;

use crate::plan::{Params, Size};
use crate::workloads::ALL;

const USAGE: &str = "\
usage: rivals [workloads...] [--quick] [--rounds N] [--only KEY=N] [--json FILE] [--markdown] [--document FILE]
       rivals --one <workload> peer=<peer> [key=value...]    one measurement in this process (what the parent starts)
       rivals --serve http peer=<peer> w=<n> port=<n>        only the server, until it is killed (see crates/rivals/wrk)

  --quick      tiny sizes, one round: shows that everything works, says nothing of speed
  --rounds N   rounds per case, interleaved between the peers (default 5)
  --only KEY=N only the cases with this parameter (w=2: those at two workers); may be given several times
  --json FILE  also write every sample and every row to FILE
  --markdown   print the tables as markdown
  --document FILE  also write FILE: date, machine, versions, a summary and every table (docs/benchmarks.md)

Go takes part where there is one: on the PATH, named by RIVALS_GO, or from PyPI (not in a quick run).
RIVALS_GO=0 leaves it out.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "--one") {
        return one(&arguments[1..]);
    }
    if arguments.first().is_some_and(|a| a == "--serve") {
        return serve(&arguments[1..]);
    }
    if arguments.first().is_some_and(|a| a == "--clients") {
        return workloads::conn_mem::clients(&arguments[1..]);
    }
    match Options::parse(&arguments) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{USAGE}\n\nworkloads:");
            for workload in ALL {
                println!("  {:<12} {}", workload.name, workload.operation);
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("rivals: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What the command line asks of the parent.
struct Options {
    workloads: Vec<String>,
    size: Size,
    rounds: usize,
    only: Vec<(String, u64)>,
    json: Option<String>,
    document: Option<String>,
    style: report::Style,
}

impl Options {
    /// `Ok(None)`: help was asked for.
    fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
        let mut options = Options {
            workloads: Vec::new(),
            size: Size::Full,
            rounds: 5,
            only: Vec::new(),
            json: None,
            document: None,
            style: report::Style::Text,
        };
        let mut rounds = None;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => options.size = Size::Quick,
                "--markdown" => options.style = report::Style::Markdown,
                "--json" => options.json = Some(rest.next().ok_or("--json needs a file name")?.clone()),
                "--document" => options.document = Some(rest.next().ok_or("--document needs a file name")?.clone()),
                "--rounds" => {
                    let text = rest.next().ok_or("--rounds needs a number")?;
                    let number: usize = text.parse().map_err(|_| format!("--rounds {text}: not a number"))?;
                    if number == 0 {
                        return Err("--rounds 0: at least one round is needed".into());
                    }
                    rounds = Some(number);
                }
                "--only" => {
                    let text = rest.next().ok_or("--only needs a parameter, such as w=2")?;
                    let pair =
                        text.split_once('=').and_then(|(key, value)| Some((key.to_owned(), value.parse().ok()?)));
                    options.only.push(pair.ok_or(format!("--only {text}: not a parameter and a number, such as w=2"))?);
                }
                "-h" | "--help" => return Ok(None),
                name if ALL.iter().any(|w| w.name == name) => options.workloads.push(name.to_owned()),
                other => return Err(format!("unknown workload or option {other}")),
            }
        }
        options.rounds = rounds.unwrap_or(if options.size == Size::Quick { 1 } else { 5 });
        Ok(Some(options))
    }
}

fn run(options: &Options) -> ExitCode {
    let mut races = Vec::new();
    for workload in ALL {
        if options.workloads.is_empty() || options.workloads.iter().any(|name| name == workload.name) {
            races.push(race::run(workload, options.size, options.rounds, &options.only));
        }
    }
    races.retain(|race| !race.heats.is_empty());
    print!("{}", report::render(&races, options.style, options.size));
    if let Some(path) = &options.json
        && let Err(error) = std::fs::write(path, report::json(&races, options.size))
    {
        eprintln!("rivals: cannot write {path}: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(path) = &options.document {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let (document, pictures) = document::render(&races, options.size, options.rounds, &arguments);
        if let Err(why) = write_document(std::path::Path::new(path), &document, &pictures) {
            eprintln!("rivals: {why}");
            return ExitCode::FAILURE;
        }
    }
    if races.iter().any(race::Race::has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn write_document(path: &std::path::Path, document: &str, pictures: &[(String, String)]) -> Result<(), String> {
    let beside = path.parent().unwrap_or(std::path::Path::new(""));
    let files = pictures.iter().map(|(name, picture)| (beside.join(name), picture.as_str()));
    for (path, contents) in std::iter::once((path.to_owned(), document)).chain(files) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let made = folder.map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, contents))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// The child: one workload on one peer, printed as `key value` lines.
fn one(arguments: &[String]) -> ExitCode {
    let Some((workload, peer, params)) = parse_one(arguments) else {
        eprintln!("rivals: --one takes a workload, peer=<name> and numbers\n{USAGE}");
        return ExitCode::from(2);
    };
    let Some((_, side)) = workload.sides.iter().find(|(p, _)| *p == peer) else {
        eprintln!("rivals: {} has no {} side in this build", workload.name, peer.name());
        return ExitCode::from(2);
    };
    measure::die_after_seconds(race::CHILD_LIMIT_SECONDS);
    if params.get("w") == 1 {
        measure::pin_to_one_core();
    }
    if peer == peers::Peer::Go {
        eprintln!("rivals: {}", peers::go::become_it(workload.name, &params));
        return ExitCode::FAILURE;
    }
    side(&params).print();
    ExitCode::SUCCESS
}

/// A server of the `http` workload, for a client in another process.
fn serve(arguments: &[String]) -> ExitCode {
    let Some(("http", peer, params)) =
        parse_one(arguments).map(|(workload, peer, params)| (workload.name, peer, params))
    else {
        eprintln!("rivals: --serve takes http, peer=<name>, w=<number> and port=<number>\n{USAGE}");
        return ExitCode::from(2);
    };
    workloads::serve_http(peer, &params);
    ExitCode::SUCCESS
}

fn parse_one(arguments: &[String]) -> Option<(&'static plan::Workload, peers::Peer, Params)> {
    let workload = ALL.iter().find(|w| Some(w.name) == arguments.first().map(String::as_str))?;
    let mut peer = None;
    let mut params = Params::default();
    for argument in &arguments[1..] {
        let (key, value) = argument.split_once('=')?;
        match key {
            "peer" => peer = peers::Peer::parse(value),
            key => params.set(key, value.parse().ok()?),
        }
    }
    Some((workload, peer?, params))
}
