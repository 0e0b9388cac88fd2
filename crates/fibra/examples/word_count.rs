//! Counts words in all files below a folder, in parallel: one fiber per file, reading on the blocking pool, counting on the workers.
//!
//! ```text
//! cargo run --release -p fibra --example word_count -- [folder] [how many to show]
//! ```
//!
//! What it shows: `spawn` and `join` for a few thousand pieces of work, `blocking` around calls that block an OS thread, `Builder` for
//! named fibers, `yield_now` in a loop that computes, errors that travel through `join`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

/// Words and how often they occur.
type Counts = HashMap<String, u64>;

/// After so many lines a counting fiber lets others run.
const LINES_PER_TURN: usize = 1000;
/// Larger files are left out: they are seldom text.
const LARGEST: u64 = 16 << 20;

#[fibra::main]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let show = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10);

    // Walking the tree is all system calls: one blocking call for the whole walk.
    let files = match fibra::blocking(|| files_below(&folder)) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("word_count: {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let fibers: Vec<_> = files.into_iter().map(|file| (file.clone(), start(file))).collect();

    let (mut total, mut counted, mut skipped) = (Counts::new(), 0, 0);
    for (file, fiber) in fibers {
        // Outer: did the fiber end well? Inner: could the file be read as text?
        match fiber.join() {
            Ok(Ok(counts)) => {
                counted += 1;
                for (word, count) in counts {
                    *total.entry(word).or_default() += count;
                }
            }
            Ok(Err(_)) => skipped += 1,
            Err(error) => eprintln!("word_count: {}: {error}", file.display()),
        }
    }

    let words: u64 = total.values().sum();
    println!("{words} words, {} different ones, in {counted} files ({skipped} are no text)", total.len());
    let mut ranking: Vec<_> = total.into_iter().collect();
    ranking.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    for (word, count) in ranking.into_iter().take(show) {
        println!("{count:>8}  {word}");
    }
    ExitCode::SUCCESS
}

/// A fiber that reads and counts one file.
fn start(file: PathBuf) -> fibra::JoinHandle<io::Result<Counts>> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let builder = fibra::Builder::new().name(name);
    builder.spawn(move || Ok(count(&read(&file)?))).expect("a fiber with an ordinary stack can be started")
}

/// Reads a file without holding up the other fibers of this worker. The closure borrows from this fiber's stack.
fn read(file: &Path) -> io::Result<String> {
    fibra::blocking(|| fs::read_to_string(file))
}

/// Counting is computation: it yields now and then, so that the worker's other fibers get their turn.
fn count(text: &str) -> Counts {
    let mut counts = Counts::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
        if number % LINES_PER_TURN == LINES_PER_TURN - 1 {
            fibra::yield_now();
        }
    }
    counts
}

/// All files below `folder` that may be text; hidden ones and what `cargo` builds are left out.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') || name == "target" {
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.metadata()?.len() <= LARGEST {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
