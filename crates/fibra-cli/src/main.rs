//! The `fibra` command: a tour of the runtime for a person at a terminal. `cargo run --release` starts it.
//!
//! ```text
//! args.rs      reads the command line
//! look.rs      shows the snapshot of another process
//! host.rs      the limits of this machine: memory, control groups, address space, guards
//! tour/        the tour: one file per part
//! ```
//!
//! It uses the public interface of the library and nothing else, and it has no `unsafe`.
#![forbid(unsafe_code)]

mod args;
mod host;
mod look;
mod tour;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Tour { fibers }) => told(tour::run(fibers)),
        Ok(Command::Dump { target, json }) => {
            told(look::print(&target, if json { "/snapshot.json" } else { "/snapshot" }))
        }
        Ok(Command::Top { target, rounds }) => told(look::watch(&target, rounds)),
        Ok(Command::Bench) => {
            println!("The benchmarks live in a crate of their own, beside the runtimes they compare with:");
            println!("    cargo run --release -p rivals");
            ExitCode::SUCCESS
        }
        Ok(Command::Help) => {
            println!("{}", args::USAGE);
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            println!("fibra {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("fibra: {why}\n\n{}", args::USAGE);
            ExitCode::from(2)
        }
    }
}

/// An error is told, and the command fails.
fn told(result: Result<(), impl std::fmt::Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fibra: {error}");
            ExitCode::FAILURE
        }
    }
}
