//! The tour: each part shows one thing, says what it did and how long it took.
//!
//! ```text
//! many.rs       a million fibers at once: spawn, park, memory, wake, join
//! speed.rs      spawning and joining, yielding: how many a second
//! select.rs     one loop that waits for every kind of thing at once
//! stream.rs     a pipeline that is torn down from its end
//! actors.rs     a supervised actor that crashes and comes back
//! timers.rs     ten thousand sleepers, none early
//! failure.rs    a panic that stays in its fiber
//! cancel.rs     a fiber that is asked to end, and cleans up
//! deadlock.rs   fibers that wait for each other, explained
//! record.rs     the flight recorder: what two fibers did, in a file
//! scope.rs      fibers that borrow, and a tree of them that a time-out ends
//! net.rs        an echo server and its clients
//! machines.rs   an echo server of machines, without a fiber for each connection
//! blocking.rs   calls that block a thread, moved out of the way
//! ```
//!
//! A part is a function that runs on a fiber, prints through [`Page`] and returns what did not go as it should. To add one, write
//! its file and add it to [`PARTS`]. The first part comes first because it measures memory, for which the process must be young.

mod actors;
mod blocking;
mod cancel;
mod deadlock;
mod failure;
mod machines;
mod many;
mod net;
mod page;
mod record;
mod scope;
mod select;
mod speed;
mod stream;
mod timers;

use fibra::time::Instant;

use crate::host;
use page::Page;

/// The failure of a part: a sentence.
type Outcome = Result<(), String>;

struct Part {
    title: &'static str,
    run: fn(&Page, &Options) -> Outcome,
}

/// The tour, in order.
const PARTS: &[Part] = &[
    Part { title: "Many fibers at once", run: many::run },
    Part { title: "Spawning and yielding", run: speed::run },
    Part { title: "Channels and select", run: select::run },
    Part { title: "A pipeline", run: stream::run },
    Part { title: "A supervised actor", run: actors::run },
    Part { title: "Timers", run: timers::run },
    Part { title: "A panic stays in its fiber", run: failure::run },
    Part { title: "Cancellation", run: cancel::run },
    Part { title: "A deadlock, explained", run: deadlock::run },
    Part { title: "A recording", run: record::run },
    Part { title: "Scopes", run: scope::run },
    Part { title: "Sockets", run: net::run },
    Part { title: "Machines", run: machines::run },
    Part { title: "Blocking work", run: blocking::run },
];

/// What the user asked for.
#[derive(Debug, Clone, Copy)]
struct Options {
    /// How many fibers the first part starts, if that was said.
    fibers: Option<usize>,
}

/// How many fibers the first part starts, if the machine allows it and nothing else was said.
const MILLION: usize = 1_000_000;

/// Runs the tour.
pub(crate) fn run(fibers: Option<usize>) -> Result<(), String> {
    let begin = Instant::now();
    let runtime = fibra::Runtime::builder().name("tour").build().map_err(|error| error.to_string())?;
    let page = Page::new();
    let workers = runtime.metrics().workers.len();
    let noun = if workers == 1 { "worker" } else { "workers" };
    let memory =
        host::memory_available().map_or(String::new(), |free| format!(", {} of memory free", host::bytes(free)));
    page.line(format_args!("fibra {}: a tour ({workers} {noun}{memory})", env!("CARGO_PKG_VERSION")));
    let options = Options { fibers };
    for part in PARTS {
        page.title(part.title);
        runtime.run(|| (part.run)(&page, &options)).map_err(|why| format!("{}: {why}", part.title))?;
    }
    let metrics = runtime.metrics();
    page.title("All in all");
    page.row(
        "fibers",
        format_args!(
            "{} spawned, {} stolen by an idle worker",
            host::count(metrics.spawned),
            host::count(metrics.stolen)
        ),
    );
    page.row("switches", format_args!("{}", host::count(metrics.switches)));
    page.row(
        "stacks",
        format_args!(
            "{} made, {} times taken warm from a pool",
            host::count(metrics.stacks_fresh),
            host::count(metrics.stacks_reused)
        ),
    );
    let rest = Instant::now();
    drop(runtime);
    page.row("shut down", format_args!("in {}", page::time(rest.elapsed())));
    page.row("in all", format_args!("{}", page::time(begin.elapsed())));
    page.line(format_args!("\nRead on: README.md, docs/guide.md, and docs/internals.md for how it works."));
    Ok(())
}
