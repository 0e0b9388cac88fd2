//! Follows log files and says every second which words come most often at the beginning of their lines: a pipeline.
//!
//! ```text
//! cargo run --release -p fibra --example logstat -- [--once] <files...>       --once: to their present ends, and then the result
//!
//!   file ─ lines ─┐
//!   file ─ lines ─┼─ merge ─ parse ─ chunks, or what came within a second ─ top ten
//!   file ─ lines ─┘
//! ```
//!
//! What it shows: a pipeline in a scope, sources that follow files, `merge`, `skip_errors`, `chunks_timeout`, and that ctrl-c tears all of
//! it down from its end.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;
use std::time::Duration;

use fibra::channel::Sender;
use fibra::stream::{self, Pipe};

const SECOND: Duration = Duration::from_secs(1);
/// How long a file that has no more lines is left alone.
const PAUSE: Duration = Duration::from_millis(100);
const SHOWN: usize = 10;

#[fibra::main]
fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let once = files.first().is_some_and(|first| first == "--once");
    if once {
        files.remove(0);
    }
    if files.is_empty() {
        eprintln!("usage: logstat [--once] <files...>");
        return ExitCode::FAILURE;
    }
    let lines = files.into_iter().map(|path| follow(path, once)).reduce(Pipe::merge).expect("there is one");
    let keys = lines.skip_errors(|error| eprintln!("logstat: {error}")).filter_map(|line: String| key(&line));
    let batches = match fibra::signal::ctrl_c() {
        Ok(stop) if !once => keys.killswitch(stop),
        _ => keys,
    };
    let mut counts = HashMap::<String, u64>::new();
    for batch in batches.chunks_timeout(100_000, SECOND) {
        for key in batch {
            *counts.entry(key).or_default() += 1;
        }
        if !once {
            show(&counts);
        }
    }
    show(&counts);
    ExitCode::SUCCESS
}

/// The lines of a file; those that are written to it later too, unless it is read once.
fn follow(path: String, once: bool) -> Pipe<io::Result<String>> {
    stream::producer(move |lines| {
        if let Err(error) = send_lines(&path, once, &lines) {
            let _ = lines.send(Err(io::Error::new(error.kind(), format!("{path}: {error}"))));
        }
    })
}

fn send_lines(path: &str, once: bool, lines: &Sender<io::Result<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(fibra::fs::File::open(path)?);
    let mut line = String::new();
    loop {
        let at_end = reader.read_line(&mut line)? == 0;
        if line.ends_with('\n') || at_end && once && !line.is_empty() {
            if lines.send(Ok(std::mem::take(&mut line))).is_err() {
                return Ok(());
            }
        } else if at_end && once {
            return Ok(());
        } else if at_end {
            // Whichever comes first: the pause is over, or the pipeline is gone.
            fibra::select! {
                closed(lines) => return Ok(()),
                after(PAUSE) => {}
            }
        }
    }
}

/// What a line is counted under: its first word.
fn key(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

fn show(counts: &HashMap<String, u64>) {
    let mut top: Vec<_> = counts.iter().collect();
    top.sort_unstable_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    for (key, count) in top.into_iter().take(SHOWN) {
        println!("{count:>8}  {key}");
    }
    println!();
}
