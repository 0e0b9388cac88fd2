//! The command line: small enough to be parsed by hand. Above: `main.rs`. Below: nothing.

use std::ffi::OsString;

/// The text of `--help`, which is also the answer to a mistake.
pub(crate) const USAGE: &str = "\
usage: fibra [tour] [--fibers N]    a tour of the runtime, in under a minute
       fibra dump PID [--json]      what every fiber of a process waits for that has FIBRA_INSPECT=unix in its
                                    environment; or of one at an address, which is given instead of PID
       fibra top PID [--rounds N]   the same, and its deadlocks, every second
       fibra bench                  where the benchmarks are
       fibra --help | --version

  --fibers N   how many fibers the first part starts; without it a million, or as many as this machine allows

The tour's runtime takes its options from the environment: FIBRA_WORKERS, FIBRA_STACK_SIZE, FIBRA_GUARD, FIBRA_SYSMON.";

/// The commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The tour, with so many fibers if the user has said so.
    Tour { fibers: Option<usize> },
    /// Prints the snapshot of a process.
    Dump { target: String, json: bool },
    /// Prints it every second, so many times if the user has said so.
    Top { target: String, rounds: Option<u32> },
    /// Says where the benchmarks are.
    Bench,
    /// Prints [`USAGE`].
    Help,
    /// Prints the version.
    Version,
}

/// Reads the arguments (without the program's name). An error is a sentence for the user.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).peekable();
    let command = match arguments.peek().map(String::as_str) {
        // Options without a command are the tour's.
        Some("--fibers") | None => "tour".to_owned(),
        Some(option) if option.starts_with("--fibers=") => "tour".to_owned(),
        Some(_) => arguments.next().unwrap_or_default(),
    };
    let command = match command.as_str() {
        "tour" => return tour(arguments),
        "dump" => return dump(arguments),
        "top" => return top(arguments),
        "bench" => Command::Bench,
        "help" | "-h" | "--help" => Command::Help,
        "-V" | "--version" => Command::Version,
        other => return Err(format!("unknown command or option `{other}`")),
    };
    match arguments.next() {
        None => Ok(command),
        Some(extra) => Err(format!("unexpected argument `{extra}`")),
    }
}

fn dump(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut target, mut json) = (None, false);
    for argument in arguments {
        match argument.as_str() {
            "--json" => json = true,
            "-h" | "--help" => return Ok(Command::Help),
            option if option.starts_with('-') || target.is_some() => {
                return Err(format!("unexpected argument `{argument}`"));
            }
            _ => target = Some(argument),
        }
    }
    let target = target.ok_or("dump needs the number of a process, or an address")?;
    Ok(Command::Dump { target, json })
}

fn top(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut target, mut rounds) = (None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                let number = arguments.next().ok_or("--rounds needs a number")?;
                rounds = Some(number.parse().map_err(|_| format!("--rounds {number}: expected a whole number"))?);
            }
            "-h" | "--help" => return Ok(Command::Help),
            option if option.starts_with('-') || target.is_some() => {
                return Err(format!("unexpected argument `{argument}`"));
            }
            _ => target = Some(argument),
        }
    }
    let target = target.ok_or("top needs the number of a process, or an address")?;
    Ok(Command::Top { target, rounds })
}

fn tour(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut fibers = None;
    while let Some(argument) = arguments.next() {
        let number = match argument.strip_prefix("--fibers") {
            Some("") => arguments.next().ok_or("--fibers needs a number")?,
            Some(rest) if rest.starts_with('=') => rest[1..].to_owned(),
            _ if matches!(argument.as_str(), "-h" | "--help") => return Ok(Command::Help),
            _ => return Err(format!("unexpected argument `{argument}`")),
        };
        match number.replace('_', "").parse() {
            Ok(0) => return Err("--fibers 0: at least one fiber is needed to show anything".to_owned()),
            Ok(_) if fibers.is_some() => return Err("--fibers is given twice".to_owned()),
            Ok(number) => fibers = Some(number),
            Err(_) => return Err(format!("--fibers {number}: expected a whole number")),
        }
    }
    Ok(Command::Tour { fibers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn commands_and_options() {
        let tour = |fibers| Ok(Command::Tour { fibers });
        assert_eq!(parsed(""), tour(None));
        assert_eq!(parsed("tour"), tour(None));
        assert_eq!(parsed("tour --fibers 1000"), tour(Some(1000)));
        assert_eq!(parsed("--fibers 1_000_000"), tour(Some(1_000_000)));
        assert_eq!(parsed("--fibers=7"), tour(Some(7)));
        assert_eq!(parsed("bench"), Ok(Command::Bench));
        let dump = |target: &str, json| Ok(Command::Dump { target: target.to_owned(), json });
        assert_eq!(parsed("dump 77"), dump("77", false));
        let top = |rounds| Ok(Command::Top { target: "77".to_owned(), rounds });
        assert_eq!((parsed("top 77"), parsed("top --rounds 3 77")), (top(None), top(Some(3))));
        assert_eq!(parsed("dump --json 127.0.0.1:6680"), dump("127.0.0.1:6680", true));
        assert_eq!(parsed("--help"), Ok(Command::Help));
        assert_eq!(parsed("tour --help"), Ok(Command::Help));
        assert_eq!(parsed("--version"), Ok(Command::Version));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("tuor", "`tuor`"),
            ("--fibre 3", "`--fibre`"),
            ("tour 1000", "`1000`"),
            ("tour --fiberss 3", "`--fiberss`"),
            ("tour --fibers", "needs a number"),
            ("tour --fibers ten", "ten"),
            ("tour --fibers -1", "-1"),
            ("tour --fibers 0", "at least one"),
            ("tour --fibers 1 --fibers 2", "twice"),
            ("bench fast", "`fast`"),
            ("dump", "number of a process"),
            ("dump 1 2", "`2`"),
            ("top", "number of a process"),
            ("top 7 --rounds x", "whole number"),
            ("--version now", "`now`"),
        ] {
            let why = parsed(line).expect_err(line);
            assert!(why.contains(named), "{line}: {why}");
        }
    }
}
