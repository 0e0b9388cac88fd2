//! Holds `docs/spec.md` against the tests: every line of a finished section is named by a test or excused, with a reason, in
//! `docs/spec-exceptions.md`.
//!
//! A test names a line in a comment: its id, a list of ids, or a range with two dots between the first and the last. Only
//! comments in test code count (files below `tests/`, `mod tests`, `mod model`, `#[cfg(test)]`), and not those of this file.
//!
//! `cargo test -p fibra --test house spec_table -- --nocapture` prints how many lines of each section are shown, excepted and not due.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

use std::collections::BTreeMap;

use crate::source::{self, Source};

/// The sections that are done: all their lines count.
const FINISHED_SECTIONS: &[&str] = &[
    "S0.1", "S0.2", "S0.3", "S0.4", "S0.5", "S0.6", "S0.7", "S0.8", "S0.9", "S0.10", "S0.11", //
    "S1.1", "S1.2", "S1.3", "S1.4", "S1.5", "S1.6", "S1.7", "S1.8", "S1.9", "S1.10", "S1.11", "S1.12", //
    "S2.1", "S2.2", "S2.3", "S2.4", "S2.5", "S2.6", "S2.7", //
    "S3.1", "S3.2", "S3.3", "S3.4", "S3.5", "S3.6", "S3.7", "S3.8", //
    "S4.1", "S4.2", "S4.3", "S4.4", "S4.5", "S4.6", "S4.7", "S4.8", "S4.9", "S4.10", "S4.11",
];

/// Single lines that count although the rest of their section does not. X-22, virtual time, comes with the simulation.
const FINISHED_LINES: &[&str] = &[
    "C-15..C-18",
    "C-20..C-26",
    "C-28..C-28",
    "C-30..C-33",
    "C-36..C-36",
    "C-39..C-39",
    "G-01..G-20",
    "X-01..X-21",
    "X-23..X-24",
];

/// A line's id: group (`S4`, `G`) and number, so that ids sort as people count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    group: String,
    number: u32,
    /// As written, with its leading zeros.
    text: String,
}

impl Id {
    /// Reads an id at the start of `text`; gives what follows it.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (group, rest) = text.split_once('-')?;
        let known = matches!(group, "S0" | "S1" | "S2" | "S3" | "S4" | "C" | "G" | "X");
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !known || !(2..=3).contains(&digits) {
            return None;
        }
        let number = rest[..digits].parse().ok()?;
        let written = group.len() + 1 + digits;
        Some((Self { group: group.to_owned(), number, text: text[..written].to_owned() }, &text[written..]))
    }

    fn of(group: &str, number: u32) -> Self {
        Self { group: group.to_owned(), number, text: format!("{group}-{number:02}") }
    }
}

/// All ids in a piece of text, ranges spread out.
fn ids_in(text: &str) -> Vec<Id> {
    let mut ids = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let starts_a_word = !before.is_alphanumeric() && before != '-' && before != '_';
        if let Some((id, after)) = Id::read(rest).filter(|_| starts_a_word) {
            rest = after;
            before = '0';
            if let Some((last, after)) = after.strip_prefix("..").and_then(Id::read)
                && last.group == id.group
            {
                ids.extend((id.number..=last.number).map(|number| Id::of(&id.group, number)));
                rest = after;
            } else {
                ids.push(id);
            }
        } else {
            before = first;
            rest = &rest[first.len_utf8()..];
        }
    }
    ids
}

/// The lines of the specification, each with the section it stands in.
fn specification(text: &str) -> BTreeMap<Id, String> {
    let mut section = String::new();
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            section = heading.split([' ', ':']).next().unwrap_or_default().to_owned();
        } else if let Some((id, after)) = line.strip_prefix("- ").and_then(Id::read) {
            assert!(after.starts_with(": ") && after.len() > 10, "a line without a text: {line}");
            assert!(lines.insert(id, section.clone()).is_none(), "a line given twice: {line}");
        }
    }
    lines
}

/// The excused lines. Every row must give a reason and say what it waits for.
fn exceptions(text: &str) -> Vec<Id> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| id "));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, reason, comes_with] = cells.as_slice() else { panic!("a row needs three cells: {row}") };
        assert!(reason.len() >= 5 && !comes_with.is_empty(), "a row needs a reason and what it waits for: {row}");
        let (id, rest) = Id::read(id).unwrap_or_else(|| panic!("not an id: {row}"));
        assert!(rest.is_empty(), "one id per row: {row}");
        id
    })
    .collect()
}

/// The ids that tests name, each with the first place that does.
fn named_in_tests(sources: &[Source]) -> BTreeMap<Id, String> {
    let mut named = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.path.ends_with("/spec_coverage.rs")) {
        for (number, line) in source.lines.iter().enumerate().filter(|(_, line)| line.test) {
            for id in ids_in(&line.comment) {
                named.entry(id).or_insert_with(|| format!("{}:{}", source.path, number + 1));
            }
        }
    }
    named
}

/// The lines of which `docs/spec-exceptions.md` says that their promise differs from that of the older design: the ids at the beginning of
/// the points of its list.
fn changed(text: &str) -> Vec<Id> {
    let points = text.lines().filter_map(|line| line.strip_prefix("* "));
    points.flat_map(|point| ids_in(point.split(": ").next().unwrap_or_default())).collect()
}

/// Where a line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A test names it.
    Shown,
    /// It is in the table of exceptions.
    Excepted,
    /// Its section is not finished, and no test names it.
    NotDue,
    /// None of these: `disagreements` says so.
    Open,
}

fn standing(id: &Id, section: &str, excused: &[Id], named: &BTreeMap<Id, String>) -> Standing {
    let finished = || {
        let single = FINISHED_LINES.iter().flat_map(|range| ids_in(range)).any(|line| line == *id);
        single || FINISHED_SECTIONS.contains(&section)
    };
    if named.contains_key(id) {
        Standing::Shown
    } else if excused.contains(id) {
        Standing::Excepted
    } else if finished() {
        Standing::Open
    } else {
        Standing::NotDue
    }
}

/// Lines per section and standing, the sections in the order of the specification.
fn table(spec: &BTreeMap<Id, String>, excused: &[Id], named: &BTreeMap<Id, String>) -> String {
    let mut rows: Vec<(&str, [usize; 4])> = Vec::new();
    for (id, section) in spec {
        if rows.last().is_none_or(|(last, _)| last != section) {
            rows.push((section, [0; 4]));
        }
        let (_, counts) = rows.last_mut().expect("just pushed");
        counts[standing(id, section, excused, named) as usize] += 1;
    }
    let total = rows.iter().fold([0; 4], |sum: [usize; 4], (_, row)| std::array::from_fn(|i| sum[i] + row[i]));
    rows.push(("all", total));
    let mut text =
        format!("{:<8}{:>7}{:>7}{:>10}{:>9}{:>6}\n", "section", "lines", "shown", "excepted", "not due", "open");
    for (section, counts) in rows {
        let [shown, excepted, not_due, open] = counts;
        let lines: usize = counts.iter().sum();
        text += &format!("{section:<8}{lines:>7}{shown:>7}{excepted:>10}{not_due:>9}{open:>6}\n");
    }
    text
}

/// Everything that does not fit together, in words.
fn disagreements(spec: &BTreeMap<Id, String>, excused: &[Id], named: &BTreeMap<Id, String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<(&str, Vec<&str>)> = Vec::new();
    for (id, section) in spec {
        if standing(id, section, excused, named) != Standing::Open {
            continue;
        }
        match open.last_mut() {
            Some((last, ids)) if last == section => ids.push(&id.text),
            _ => open.push((section, vec![&id.text])),
        }
    }
    let count: usize = open.iter().map(|(_, ids)| ids.len()).sum();
    if count > 0 {
        found.push(format!("{count} lines of finished sections are neither named by a test nor excused:"));
        found.extend(open.iter().map(|(section, ids)| format!("  {section}: {}", ids.join(" "))));
    }
    for (id, place) in named.iter().filter(|(id, _)| !spec.contains_key(id)) {
        found.push(format!("{place}: names {}, which is not in docs/spec.md", id.text));
    }
    for (index, id) in excused.iter().enumerate() {
        if !spec.contains_key(id) {
            found.push(format!("docs/spec-exceptions.md: {} is not in docs/spec.md", id.text));
        }
        if let Some(place) = named.get(id) {
            found.push(format!("docs/spec-exceptions.md: {} is tested at {place}: take it from the table", id.text));
        }
        if excused[..index].contains(id) {
            found.push(format!("docs/spec-exceptions.md: {} stands there twice", id.text));
        }
    }
    found
}

fn read(path: &str) -> String {
    let path = source::repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_finished_line_is_tested_or_excused() {
    let spec = specification(&read("docs/spec.md"));
    assert_eq!(spec.len(), 617, "lines are neither added nor lost by accident");
    for section in FINISHED_SECTIONS {
        assert!(spec.values().any(|other| other == section), "no section {section} in docs/spec.md");
    }
    let named = named_in_tests(&source::all_sources());
    let explained = read("docs/spec-exceptions.md");
    let found = disagreements(&spec, &exceptions(&explained), &named);
    assert!(found.is_empty(), "{}\n", found.join("\n"));
    let changed = changed(&explained);
    assert!(!changed.is_empty(), "docs/spec-exceptions.md lists the promises that were changed");
    for id in changed {
        assert!(spec.contains_key(&id), "docs/spec-exceptions.md: {} is not in docs/spec.md", id.text);
    }
}

/// Prints the table (with `--nocapture`), and checks that it has every line once.
#[test]
fn spec_table() {
    let spec = specification(&read("docs/spec.md"));
    let named = named_in_tests(&source::all_sources());
    let table = table(&spec, &exceptions(&read("docs/spec-exceptions.md")), &named);
    println!("\n{table}");
    let last: Vec<usize> =
        table.lines().last().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    assert_eq!(last[0], spec.len());
    assert_eq!(last[1..].iter().sum::<usize>(), spec.len());
    assert_eq!(last[4], 0, "open lines: every_finished_line_is_tested_or_excused names them");
}

#[test]
fn ids_are_read_from_comments() {
    let texts = |text: &str| -> Vec<String> { ids_in(text).into_iter().map(|id| id.text).collect() };
    assert_eq!(texts("S4-43: commit; also (X-01), G-13."), ["S4-43", "X-01", "G-13"]);
    assert_eq!(texts("S1-52..S1-55, S0-99..S0-101"), ["S1-52", "S1-53", "S1-54", "S1-55", "S0-99", "S0-100", "S0-101"]);
    assert_eq!(texts("MAX-01 x86-64 S9-01 S4-4 AS0-11 S0-1234 utf-08"), [""; 0]);
    assert!(Id::of("S0", 9) < Id::of("S0", 100));
}

#[test]
fn only_comments_of_test_code_count() {
    let library =
        "//! S0-01\nfn f() {} // S0-02\n#[cfg(test)]\nmod tests {\n    // S0-03\n    const A: &str = \"S0-04\";\n}\n";
    let sources = [
        Source::parse("crates/fibra/src/wait/park.rs", library),
        Source::parse("crates/fibra/src/wait/model.rs", "//! S0-06\n"),
        Source::parse("crates/fibra/tests/scope/join.rs", "// S0-05\n"),
        Source::parse("crates/fibra/tests/house/spec_coverage.rs", "// S0-07\n"),
    ];
    let named: Vec<String> = named_in_tests(&sources).into_keys().map(|id| id.text).collect();
    assert_eq!(named, ["S0-03", "S0-05", "S0-06"]);
}

#[test]
fn disagreements_are_found() {
    let spec = specification(
        "## S0: a\n### S0.1 b\n- S0-01: one line here\n- S0-02: another one\n### S2.9 c\n- S2-99: not finished\n",
    );
    let place = |id: &str| (ids_in(id)[0].clone(), "t.rs:1".to_owned());
    let check = |excused: &str, named: &[&str]| {
        disagreements(&spec, &exceptions(excused), &named.iter().map(|id| place(id)).collect()).join("\n")
    };
    assert!(check("", &[]).contains("S0.1: S0-01 S0-02"), "{}", check("", &[]));
    assert!(!check("", &[]).contains("S2-99"));
    assert_eq!(check("| S0-02 | a reason | later |", &["S0-01"]), "");
    assert!(check("| S0-02 | a reason | later |", &["S0-01", "S0-02"]).contains("is tested at t.rs:1"));
    assert!(check("", &["S0-01", "S0-02", "S0-77"]).contains("names S0-77"));
    assert!(check("| S0-66 | a reason | later |", &["S0-01", "S0-02"]).contains("S0-66 is not in"));
    let table = table(&spec, &exceptions("| S0-02 | a reason | later |"), &[place("S0-01")].into());
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [["S0.1", "2", "1", "1", "0", "0"], ["S2.9", "1", "0", "0", "1", "0"], ["all", "3", "1", "1", "1", "0"]]
    );
    assert_eq!(changed("* S0-01, S0-02: less, see S0-03\n- S0-04: no\n"), [Id::of("S0", 1), Id::of("S0", 2)]);
}

#[test]
#[should_panic(expected = "a row needs a reason")]
fn an_exception_without_a_reason_is_refused() {
    exceptions("| S0-02 | | later |");
}
