//! The table of memory orderings in `docs/internals.md` names every function that uses an ordering stronger than Relaxed, with that
//! ordering: an ordering that changes, or a new one, must be written down there together with what it pairs with. The glossary is in order,
//! has each word once, and names files that exist; so does the list of names with more than one meaning, which also has every type with a
//! bare name.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

use std::path::{Path, PathBuf};

/// The layers that the table covers, and the file above them that takes part in their protocols.
const COVERED: [&str; 15] = [
    "prim", "waiter", "fiber", "sched", "reactor", "blocking", "monitor", "wait", "cancel", "scope", "task", "channel",
    "select", "runtime", "machine",
];
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Tests and models may order as they like.
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.starts_with("test") && name != "model.rs" {
            found.push(path);
        }
    }
}

/// Every (function, ordering) of a file, tests and models left out.
fn strong_orderings(text: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut function = String::new();
    let mut in_seeded_bug = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        // What is for tests and models stands at the end of a file.
        if code.starts_with("#[cfg(") && code.contains("test") {
            break;
        }
        if let Some((_, rest)) = code.split_once("fn ") {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                function = name;
            }
        }
        // The broken way is not what the table describes.
        if code.contains("seeded_bug(") && code.trim_end().ends_with('{') {
            in_seeded_bug = true;
        } else if code.trim_start().starts_with('}') {
            in_seeded_bug = false;
        }
        for ordering in STRONG.into_iter().filter(|_| !in_seeded_bug) {
            if code.contains(&format!("Ordering::{ordering}")) {
                found.push((function.clone(), ordering));
            }
        }
    }
    found
}

#[test]
fn the_table_of_orderings_matches_the_code() {
    let page = std::fs::read_to_string(repository().join("docs/internals.md")).unwrap();
    let table = page.split("## Memory orderings").nth(1).expect("the page has its table");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    let mut files = Vec::new();
    for layer in COVERED {
        sources(&repository().join("crates/fibra/src").join(layer), &mut files);
    }
    let mut missing = Vec::new();
    let mut checked = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (function, ordering) in strong_orderings(&text) {
            checked += 1;
            let named = rows.iter().any(|row| {
                let mut cells = row.split('|').skip(2);
                let (access, with) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
                access.contains(&format!("{function}`")) && with.contains(ordering)
            });
            if !named {
                let name = file.strip_prefix(repository().join("crates/fibra/src")).unwrap().display();
                missing.push(format!("{name}: `{function}` uses {ordering}"));
            }
        }
    }
    assert!(checked > 50, "found only {checked} orderings");
    missing.sort();
    missing.dedup();
    assert!(missing.is_empty(), "docs/internals.md does not list:\n{}", missing.join("\n"));
}

#[test]
fn the_reader_of_orderings_reads() {
    let text = [
        "fn one() {",
        "    // Ordering::SeqCst in a comment",
        "    a.load(Ordering::Acquire);",
        "}",
        "fn two() {",
        "    b.store(1, Ordering::Relaxed);",
        "    c.swap(1, Ordering::AcqRel)",
        "}",
        "fn bad() {",
        "    if seeded_bug(\"x\") {",
        "        e.load(Ordering::Acquire)",
        "    } else {",
        "        e.load(Ordering::SeqCst)",
        "    }",
        "}",
        "#[cfg(all(test, loom))]",
        "mod model {",
        "    fn three() { d.load(Ordering::SeqCst) }",
        "}",
    ];
    let expected = [("one", "Acquire"), ("two", "AcqRel"), ("bad", "SeqCst")];
    let expected = expected.map(|(function, ordering)| (function.to_owned(), ordering));
    assert_eq!(strong_orderings(&text.join("\n")), expected);
}

/// The walks of the page: of each step the file and the function.
fn walks(page: &str) -> Vec<Vec<(&str, &str)>> {
    page.split("```walk\n")
        .skip(1)
        .map(|rest| {
            let lines = rest.split("```").next().unwrap_or_default().lines();
            lines
                .map(|line| {
                    let mut words = line.split_whitespace();
                    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
                })
                .collect()
        })
        .collect()
}

#[test]
fn the_walks_are_in_the_code() {
    let page = std::fs::read_to_string(repository().join("docs/internals.md")).unwrap();
    let walks = walks(&page);
    assert_eq!(walks.len(), 5, "the page has its walks");
    for walk in walks {
        assert!((3..=12).contains(&walk.len()), "a walk of {} functions: {walk:?}", walk.len());
        for (file, function) in walk {
            let text = std::fs::read_to_string(repository().join("crates/fibra/src").join(file)).unwrap_or_default();
            let is_there = ["(", "<"].iter().any(|after| text.contains(&format!("fn {function}{after}")));
            assert!(is_there, "{file} has no `{function}`");
        }
    }
}

/// The rows of the table under `### heading` (or `## heading`), each as its cells.
fn table_under<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = page.split(&format!("# {heading}\n")).nth(1).unwrap_or_default();
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2); // Heads and their rule.
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The files of the library, or of its macros, that a cell names.
fn files_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').filter(|word| word.ends_with(".rs"))
}

#[test]
fn the_glossary_is_in_order_and_names_files_that_exist() {
    let page = std::fs::read_to_string(repository().join("docs/internals.md")).unwrap();
    let words = table_under(&page, "Glossary");
    let names = table_under(&page, "Names with more than one meaning");
    assert!(words.len() > 50 && names.len() > 5, "{} words, {} names", words.len(), names.len());
    let key = |row: &Vec<&str>| row[0].trim_start_matches("the ").to_lowercase();
    let mut problems: Vec<String> =
        words.windows(2).filter(|pair| key(&pair[0]) >= key(&pair[1])).map(|pair| format!("order: {pair:?}")).collect();
    let cells = words.iter().filter_map(|row| row.get(2)).chain(names.iter().filter_map(|row| row.get(1)));
    for file in cells.flat_map(|cell| files_in(cell)) {
        let crates = repository().join("crates");
        if !crates.join("fibra/src").join(file).is_file() && !crates.join(file).is_file() {
            problems.push(format!("there is no {file}"));
        }
    }
    assert!(problems.is_empty(), "docs/internals.md, glossary:\n{}", problems.join("\n"));
}

/// Words that say nothing by themselves: fourteen types were called `State`, and ten `Entry`.
const BARE: [&str; 18] = [
    "Arm", "Claim", "Desk", "Entry", "Home", "Kind", "Mail", "Node", "Notice", "Notify", "Op", "Place", "Places",
    "Root", "Shared", "Slot", "State", "Watch",
];

#[test]
fn bare_names_of_types_are_in_the_table_of_names() {
    let page = std::fs::read_to_string(repository().join("docs/internals.md")).unwrap();
    let mut allowed = Vec::new();
    let mut last = "";
    for row in table_under(&page, "Names with more than one meaning") {
        last = if row[0].trim_matches('|').trim().is_empty() { last } else { row[0] };
        let names = last.split('`').filter(|word| BARE.contains(word));
        allowed.extend(names.flat_map(|name| files_in(row[1]).map(move |file| (name, file))));
    }
    let (mut files, mut found, mut problems) = (Vec::new(), 0, Vec::new());
    let root = repository().join("crates/fibra/src");
    sources(&root, &mut files);
    for file in files {
        let path = file.strip_prefix(&root).unwrap().to_string_lossy();
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
            if !words.any(|word| ["struct", "enum", "union", "trait", "type"].contains(&word)) {
                continue;
            }
            if let Some(name) = words.next().filter(|name| BARE.contains(name)) {
                found += 1;
                if !allowed.contains(&(name, &*path)) {
                    problems.push(format!("{path}:{}: `{name}` says little: give it a first word", number + 1));
                }
            }
        }
    }
    assert!(found >= 10, "{found} types only: does this test still read the sources?");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
