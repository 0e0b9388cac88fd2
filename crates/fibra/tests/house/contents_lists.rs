//! The lists of contents in the documentation are complete and lead somewhere: every heading of a file is in its list, in order, and
//! every link within a file has its heading. The list of decisions has every decision, by its title and in order, and every decision has
//! its four parts.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that have to have a list, because they are too long to be looked through.
const LONG: [&str; 2] = ["docs/guide.md", "docs/internals.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents, by their path from the root.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/decisions"] {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(found.len() > 30, "the documents are there");
    found
}

/// The lines that are prose, with their numbers: no code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((number + 1, line))
    })
}

/// A heading: how deep it is, and its words.
fn heading(line: &str) -> Option<(usize, &str)> {
    let depth = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line[depth..].strip_prefix(' ')?;
    (depth > 0).then_some((depth, words.trim()))
}

/// What GitHub makes of a heading for links.
fn anchor(words: &str) -> String {
    let kept = words.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// An entry of a list of contents, `* [words](#anchor)`: how deep it is, its words, and where it leads.
fn entry(line: &str) -> Option<(usize, &str, &str)> {
    let indentation = line.len() - line.trim_start().len();
    let (words, target) = line.trim_start().strip_prefix("* [")?.strip_suffix(')')?.split_once("](#")?;
    Some((indentation / 2 + 2, words, target))
}

#[test]
fn every_heading_is_in_the_list_of_contents() {
    let mut problems = Vec::new();
    for (name, text) in documents() {
        let headings: Vec<(usize, usize, &str)> = prose(&text)
            .filter_map(|(number, line)| heading(line).map(|(depth, words)| (number, depth, words)))
            .filter(|(_, depth, _)| *depth > 1)
            .collect();
        let first = headings.first().map_or(usize::MAX, |heading| heading.0);
        let list: Vec<(usize, (usize, &str, &str))> = prose(&text)
            .take_while(|(number, _)| *number < first)
            .filter_map(|(number, line)| entry(line).map(|entry| (number, entry)))
            .collect();
        if list.is_empty() && !LONG.contains(&name.as_str()) {
            continue;
        }
        let written: Vec<(usize, &str)> = list.iter().map(|(_, (depth, words, _))| (*depth, *words)).collect();
        for (number, depth, words) in &headings {
            if !written.contains(&(*depth, *words)) {
                let indentation = "  ".repeat(depth - 2);
                let line = format!("{indentation}* [{words}](#{})", anchor(words));
                problems.push(format!("{name}:{number}: not in the list of contents: {line}"));
            }
        }
        let order: Vec<(usize, &str)> = headings.iter().map(|(_, depth, words)| (*depth, *words)).collect();
        if problems.is_empty() && order != written {
            problems
                .push(format!("{name}: the list of contents has another order, or more, than the headings: {order:?}"));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn links_within_a_file_lead_to_a_heading() {
    let mut problems = Vec::new();
    for (name, text) in documents() {
        let anchors: Vec<String> =
            prose(&text).filter_map(|(_, line)| heading(line)).map(|(_, words)| anchor(words)).collect();
        for (number, line) in prose(&text) {
            for link in line.split("](#").skip(1) {
                let target = link.split(')').next().unwrap_or_default();
                match anchors.iter().filter(|anchor| *anchor == target).count() {
                    1 => {}
                    0 => problems.push(format!("{name}:{number}: #{target} leads nowhere")),
                    _ => {
                        problems.push(format!("{name}:{number}: #{target} may be one of several headings: rename one"))
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn every_decision_is_in_the_list_of_decisions() {
    let documents = documents();
    let list = &documents.iter().find(|(name, _)| name == "docs/decisions/README.md").expect("it is there").1;
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    for (name, text) in &documents {
        let Some(file) = name.strip_prefix("docs/decisions/").filter(|file| *file != "README.md") else { continue };
        let number: u32 = file[..4].parse().expect("a decision's file begins with its number");
        let title = heading(text.lines().next().unwrap_or_default()).map_or("", |(_, words)| words);
        let Some(decided) = title.strip_prefix(&format!("{number}. ")) else {
            problems.push(format!("{name}: begins with `# {number}. ` and the decision, not with {title:?}"));
            continue;
        };
        rows.push(format!("| [{number}]({file}) | {decided} |"));
        for part in ["Context", "Decision", "Measured", "Consequences"] {
            if !prose(text).any(|(_, line)| heading(line) == Some((2, part))) {
                problems.push(format!("{name}: has no part \"## {part}\""));
            }
        }
    }
    let listed: Vec<&str> = prose(list).map(|(_, line)| line).filter(|line| line.starts_with("| [")).collect();
    for row in rows.iter().filter(|row| !listed.contains(&row.as_str())) {
        problems.push(format!("not in docs/decisions/README.md, or with another title: {row}"));
    }
    if problems.is_empty() && rows != listed {
        problems
            .push(format!("docs/decisions/README.md has another order, or more, than the files:\n{}", rows.join("\n")));
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
