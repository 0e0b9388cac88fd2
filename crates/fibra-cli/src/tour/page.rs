//! The output of the tour: titles and aligned rows, each printed as soon as it is known.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::time::Duration;

/// Standard output, a line at a time.
#[derive(Debug)]
pub(crate) struct Page(());

impl Page {
    pub(crate) fn new() -> Self {
        Self(())
    }

    /// One line. A reader that has seen enough (`fibra | head -3`) is no error: the program ends there.
    pub(crate) fn line(&self, text: fmt::Arguments<'_>) {
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{text}").and_then(|()| out.flush());
        if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            std::process::exit(0);
        }
    }

    /// The title of a part.
    pub(crate) fn title(&self, title: &str) {
        self.line(format_args!("\n{title}"));
    }

    /// A row: what was done, and the result.
    pub(crate) fn row(&self, what: &str, result: fmt::Arguments<'_>) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{result}");
        self.line(format_args!("  {what:<14}{text}"));
    }

    /// A row with a time for the whole and for each.
    pub(crate) fn timed(&self, what: &str, took: Duration, operations: usize, note: &str) {
        let each = time(took / operations.max(1) as u32);
        self.row(what, format_args!("{:>8}  {each:>8} each{note}", time(took)));
    }
}

/// A time in the unit that suits it: 48 ns, 3.1 µs, 12 ms, 4.2 s.
pub(crate) fn time(took: Duration) -> String {
    let nanos = took.as_nanos() as f64;
    let (amount, unit) = match took.as_nanos() {
        0..1_000 => (nanos, "ns"),
        1_000..1_000_000 => (nanos / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if amount < 10.0 && unit != "ns" { 1 } else { 0 };
    format!("{amount:.digits$} {unit}")
}

/// How many a second, to three digits: 12.3 million.
pub(crate) fn rate(operations: usize, took: Duration) -> String {
    let each_second = operations as f64 / took.as_secs_f64().max(1e-9);
    match each_second {
        rate if rate >= 1e6 => format!("{:.1} million", rate / 1e6),
        rate => crate::host::count(rate as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_for_people() {
        assert_eq!(time(Duration::from_nanos(48)), "48 ns");
        assert_eq!(time(Duration::from_nanos(3_149)), "3.1 µs");
        assert_eq!(time(Duration::from_micros(12_345)), "12 ms");
        assert_eq!(time(Duration::from_millis(4_200)), "4.2 s");
        assert_eq!(rate(1_000_000, Duration::from_millis(50)), "20.0 million");
        assert_eq!(rate(100, Duration::from_millis(50)), "2,000");
    }
}
