//! The reader's test of `CONTRIBUTING.md`: each of its ten questions names a file of the library and the functions that answer it, and all
//! of them exist.
//!
//! Below: `source`, which tells code from comments and tests.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

use crate::source::{self, Source};

/// A row of the table: the question, the file below `crates/fibra/src`, the functions in it.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    question: &'a str,
    file: &'a str,
    functions: Vec<&'a str>,
}

/// The rows of the table in the section of this name. A row that cannot be read is an error that says which.
fn rows(page: &str) -> Result<Vec<Row<'_>>, String> {
    let section = page.split("\n## The reader's test\n").nth(1).ok_or("there is no section \"The reader's test\"")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let table = section.lines().filter(|line| line.starts_with('|')).skip(2); // Heads and their rule.
    table
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [question, file, functions, answer] = cells[..] else {
                return Err(format!("a row has four cells, not {}: {line}", cells.len()));
            };
            let functions: Vec<&str> = functions.split(", ").map(|name| name.trim_matches('`')).collect();
            let is_whole = question.ends_with('?') && !answer.is_empty() && !functions.contains(&"");
            let row = Row { question, file: file.trim_matches('`'), functions };
            if is_whole { Ok(row) } else { Err(format!("question, file, functions and answer are needed: {line}")) }
        })
        .collect()
}

/// Is there such a function, not in a test and not in a comment?
fn has_function(source: &Source, name: &str) -> bool {
    source.lines.iter().filter(|line| !line.test).any(|line| {
        ["(", "<"].iter().any(|after| {
            let declared = format!("fn {name}{after}");
            line.code.contains(&declared)
        })
    })
}

#[test]
fn every_question_has_its_answer_in_the_code() {
    let page = std::fs::read_to_string(source::repository().join("CONTRIBUTING.md")).unwrap();
    let rows = rows(&page).unwrap_or_else(|error| panic!("CONTRIBUTING.md: {error}"));
    assert!(rows.len() >= 10, "the reader's test has {} questions, and needs ten", rows.len());
    let sources = source::all_sources();
    let mut problems = Vec::new();
    for Row { question, file, functions } in rows {
        let path = format!("crates/fibra/src/{file}");
        let Some(source) = sources.iter().find(|source| source.path == path) else {
            problems.push(format!("\"{question}\": there is no {path}: where is {functions:?} now?"));
            continue;
        };
        for function in functions.iter().filter(|function| !has_function(source, function)) {
            problems.push(format!("\"{question}\": {path} has no function `{function}`"));
        }
    }
    assert!(problems.is_empty(), "correct the table in CONTRIBUTING.md:\n{}", problems.join("\n"));
}

#[test]
fn the_reader_of_the_table_reads() {
    let page = "# x\n## The reader's test\ntext\n| question | file | functions | in short |\n|---|---|---|---|\n\
                | Where? | `a/b.rs` | `one`, `two` | there |\n\n## Next\n| no | `c.rs` | `x` | y |\n";
    let row = Row { question: "Where?", file: "a/b.rs", functions: vec!["one", "two"] };
    assert_eq!(rows(page), Ok(vec![row]));
    assert!(rows(&page.replace("| there |", "|  |")).is_err(), "a row without an answer");
    assert!(rows(&page.replace("`one`, `two`", "")).is_err(), "a row without functions");
    assert!(rows("# x\n").is_err(), "no such section");

    let text = "// fn in_comment(\nfn real<T>() {}\n#[cfg(test)]\nmod tests {\n    fn in_test() {}\n}\n";
    let source = Source::parse("x.rs", text);
    let found = ["real", "in_comment", "in_test", "rea"].map(|name| has_function(&source, name));
    assert_eq!(found, [true, false, false, false]);
}
