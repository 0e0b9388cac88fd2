//! Every threshold has a number, a name and a reason: a look at the source.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

use crate::source;

// G-20: each constant number of the runtime stands under its own name, with a comment that says what it is for.
#[test]
fn every_threshold_has_a_reason() {
    let mut bare = Vec::new();
    let mut count = 0;
    for source in source::all_sources().iter().filter(|source| source.path.starts_with("crates/fibra/src/")) {
        let path = source::repository().join(&source.path);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(number, _)| !source.lines[*number].test) {
            let item = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
            let Some((name, rest)) = item.strip_prefix("const ").and_then(|item| item.split_once(": ")) else {
                continue;
            };
            let (kind, value) = rest.split_once(" = ").unwrap_or((rest, ""));
            let is_number = matches!(kind, "usize" | "u32" | "u64" | "i64" | "u8" | "Duration");
            if !is_number || !value.contains(|c: char| c.is_ascii_digit()) {
                continue;
            }
            count += 1;
            // Above it, or above the group it stands in, or behind it.
            let above = lines[..number].iter().rev().find(|line| {
                let line = line.trim_start();
                !line.starts_with("#[") && !line.starts_with("const ") && !line.starts_with("pub(")
            });
            let said = above.is_some_and(|line| line.trim_start().starts_with("//")) || line.contains(" // ");
            let is_bit =
                value.starts_with("1 << ") || value.starts_with("0x") || value == "1;" || name.ends_with("_SHIFT");
            if !said && !is_bit {
                bare.push(format!("{}:{}: {name}", source.path, number + 1));
            }
        }
    }
    assert!(count > 20, "only {count} constants found: does this test still look where they are?");
    assert!(bare.is_empty(), "constants without a word on why:\n{}", bare.join("\n"));
}
