//! A picture as a file: the JSON of Chrome's trace events, which Perfetto, chrome://tracing and speedscope open.
//!
//! Above: `mod.rs`. Below: `tracks.rs`, which has put everything in order.
//!
//! | of the picture | in the file |
//! |---|---|
//! | workers, and fibers | threads (`tid`) of two processes (`pid`), with names (`"ph":"M"`) |
//! | a slice | a complete event (`"X"`: begin and duration in one) |
//! | a mark | an instant event (`"i"`) of its thread |
//! | an arrow | a flow: `"s"` inside the turn it comes from, `"f"` at the beginning of the turn it leads to, with one id |
//!
//! Times are microseconds with three digits behind the point: nanoseconds.

use std::io::{self, Write};

use super::tracks::{Line, Picture};
use crate::inspect::json::Fields;

/// The processes that threads of the file belong to.
const WORKERS: u32 = 1;
const FIBERS: u32 = 2;

/// Writes the picture.
pub(super) fn write(picture: &Picture, out: impl Write) -> io::Result<()> {
    let mut file = File { out, is_first: true };
    file.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    file.process(WORKERS, "workers")?;
    file.process(FIBERS, "fibers")?;
    // From 1 on: 0 is the idle thread of a kernel to some readers.
    for (number, line) in (1..).zip(&picture.workers) {
        file.line(WORKERS, number, line)?;
    }
    for (fiber, line) in &picture.fibers {
        file.line(FIBERS, *fiber, line)?;
    }
    for (id, arrow) in (1_u64..).zip(&picture.arrows) {
        let end = |phase: &str, (fiber, at): (u64, u64)| {
            event(phase, FIBERS, fiber, at).text("name", arrow.what).text("cat", "wake").raw("id", id)
        };
        file.event(end("s", arrow.from))?;
        // "bp": it binds to the slice that it lies in, not to the one that follows.
        file.event(end("f", arrow.to).text("bp", "e"))?;
    }
    let other = Fields::new().text("recorder", "fibra").raw("entries_overwritten", picture.lost).end();
    writeln!(file.out, "\n],\"otherData\":{other}}}")?;
    file.out.flush()
}

fn event(phase: &str, process: u32, thread: u64, at: u64) -> Fields {
    let ts = micros(at);
    Fields::new().text("ph", phase).raw("pid", process).raw("tid", thread).raw("ts", ts)
}

fn micros(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}

struct File<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> File<W> {
    fn event(&mut self, fields: Fields) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.write_all(b",\n")?;
        }
        self.out.write_all(fields.end().as_bytes())
    }

    fn process(&mut self, process: u32, name: &str) -> io::Result<()> {
        let args = Fields::new().text("name", name).end();
        self.event(Fields::new().text("ph", "M").raw("pid", process).text("name", "process_name").raw("args", args))
    }

    /// A thread with its name, and what happened on it.
    fn line(&mut self, process: u32, thread: u64, line: &Line) -> io::Result<()> {
        let of = |what: &str, args: Fields| {
            let fields = Fields::new().text("ph", "M").raw("pid", process).raw("tid", thread).text("name", what);
            fields.raw("args", args.end())
        };
        self.event(of("thread_name", Fields::new().text("name", &line.name)))?;
        self.event(of("thread_sort_index", Fields::new().raw("sort_index", thread)))?;
        for slice in &line.slices {
            let args = slice.details.iter().fold(Fields::new(), |args, (name, value)| args.text(name, value));
            let fields = event("X", process, thread, slice.start).raw("dur", micros(slice.end - slice.start));
            self.event(fields.text("name", &slice.name).raw("args", args.end()))?;
        }
        for mark in &line.marks {
            self.event(event("i", process, thread, mark.at).text("name", &mark.name).text("s", "t"))?;
        }
        Ok(())
    }
}
