//! A Rust file as the house rules see it: lines split into code and comment, tokens with their lines, and which lines are tests.
//!
//! Above: the rules, and `spec_coverage`, which reads comments the same way. This is no parser: a lexer that knows comments,
//! strings, character literals and lifetimes, so that a word inside a string or a comment is never mistaken for code.

use std::path::{Path, PathBuf};

/// One line, taken apart.
#[derive(Debug, Default, Clone)]
pub(crate) struct Line {
    /// The whole line as written.
    pub(crate) raw: String,
    /// The code on it; the insides of strings are blanked.
    pub(crate) code: String,
    /// The comments on it, without their marks.
    pub(crate) comment: String,
    /// Inside a `#[cfg(test)]` item (or a `mod tests`/`mod model`), or in a file that is only built for tests.
    pub(crate) test: bool,
    /// Never part of the product: as `test`, or inside an item that is built for models only (`#[cfg(any(loom, shuttle))]`), or in a file
    /// that is (`park_model.rs`).
    pub(crate) unshipped: bool,
}

impl Line {
    pub(crate) fn is_blank(&self) -> bool {
        self.raw.trim().is_empty()
    }

    pub(crate) fn is_comment_only(&self) -> bool {
        self.code.trim().is_empty() && !self.is_blank()
    }

    pub(crate) fn is_attribute_only(&self) -> bool {
        let code = self.code.trim();
        (code.starts_with("#[") || code.starts_with("#![")) && code.ends_with(']')
    }
}

/// An identifier, a number, `::`, or a single other character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Index into `lines`.
    pub(crate) line: usize,
    /// The inline modules (`mod tests {`) that are open here, outermost first.
    pub(crate) inline: Vec<String>,
}

/// A file, read once and then looked at by every rule.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) tokens: Vec<Token>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut lines = split(text);
        let mut tokens = tokenize(&lines);
        mark_modules_and_tests(path, &mut lines, &mut tokens);
        Self { path: path.to_owned(), lines, tokens }
    }

    /// The path below `crates/fibra/src/`, if the file lies there.
    pub(crate) fn in_library(&self) -> Option<&str> {
        self.path.strip_prefix("crates/fibra/src/")
    }

    pub(crate) fn text(&self, token: usize) -> &str {
        self.tokens.get(token).map_or("", |token| token.text.as_str())
    }

    /// The first line of the statement that `line` belongs to, as far as line ends tell.
    pub(crate) fn statement_start(&self, line: usize) -> usize {
        let mut start = line;
        while start > 0 {
            let above = &self.lines[start - 1];
            let code = above.code.trim_end();
            if above.is_blank()
                || above.is_comment_only()
                || above.is_attribute_only()
                || code.ends_with([';', '{', '}'])
            {
                break;
            }
            start -= 1;
        }
        start
    }

    /// Every path in the file, `use` trees spread out: `use a::{b, c::d}` gives `a::b` and `a::c::d`. With each comes the
    /// token it starts at; a path that goes on after a group or a generic argument is cut there.
    pub(crate) fn paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let starts = is_name(self.text(at)) && self.text(at + 1) == "::" && (at == 0 || self.text(at - 1) != "::");
            at = if starts { self.path_from(at, Vec::new(), &mut found) } else { at + 1 };
        }
        found
    }

    fn path_from(&self, start: usize, mut prefix: Vec<String>, found: &mut Vec<(usize, Vec<String>)>) -> usize {
        let mut at = start;
        while is_name(self.text(at)) {
            prefix.push(self.text(at).to_owned());
            if self.text(at + 1) != "::" {
                at += 1;
                break;
            }
            if self.text(at + 2) == "{" {
                return self.group_from(at + 3, prefix, found);
            }
            at += 2;
        }
        if self.text(at) == "*" && self.text(at.wrapping_sub(1)) == "::" {
            prefix.push("*".to_owned());
            at += 1;
        }
        found.push((start, prefix));
        at.max(start + 1)
    }

    fn group_from(&self, mut at: usize, prefix: Vec<String>, found: &mut Vec<(usize, Vec<String>)>) -> usize {
        while at < self.tokens.len() && self.text(at) != "}" {
            if is_name(self.text(at)) {
                at = self.path_from(at, prefix.clone(), found);
                if self.text(at) == "as" {
                    at += 2;
                }
            } else {
                if self.text(at) == "*" {
                    let mut path = prefix.clone();
                    path.push("*".to_owned());
                    found.push((at, path));
                }
                at += 1;
            }
        }
        at + 1
    }
}

pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Splits text into lines of code and comment.
fn split(text: &str) -> Vec<Line> {
    enum In {
        Code,
        LineComment,
        BlockComment(u32),
        /// The number of hashes that close it; `None` for an ordinary string with escapes.
        Text(Option<usize>),
    }
    let mut lines = Vec::new();
    let mut state = In::Code;
    for raw in text.lines() {
        let mut line = Line { raw: raw.to_owned(), ..Line::default() };
        let chars: Vec<char> = raw.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let here = chars[at];
            let next = chars.get(at + 1).copied().unwrap_or(' ');
            match state {
                In::LineComment => {
                    line.comment.push(here);
                    at += 1;
                }
                In::BlockComment(depth) => {
                    if here == '*' && next == '/' {
                        state = if depth == 1 { In::Code } else { In::BlockComment(depth - 1) };
                        at += 2;
                    } else if here == '/' && next == '*' {
                        state = In::BlockComment(depth + 1);
                        at += 2;
                    } else {
                        line.comment.push(here);
                        at += 1;
                    }
                }
                In::Text(None) => {
                    if here == '\\' {
                        at += 2;
                    } else {
                        if here == '"' {
                            line.code.push('"');
                            state = In::Code;
                        }
                        at += 1;
                    }
                }
                In::Text(Some(hashes)) => {
                    if here == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
                        line.code.push('"');
                        state = In::Code;
                        at += 1 + hashes;
                    } else {
                        at += 1;
                    }
                }
                In::Code => {
                    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
                    if here == '/' && next == '/' {
                        state = In::LineComment;
                        at += 2;
                        while matches!(chars.get(at), Some('/' | '!')) {
                            at += 1;
                        }
                    } else if here == '/' && next == '*' {
                        state = In::BlockComment(1);
                        at += 2;
                    } else if here == '"' {
                        line.code.push('"');
                        state = In::Text(None);
                        at += 1;
                    } else if let Some((hashes, skip)) = raw_string(&chars[at..]).filter(|_| !in_word) {
                        line.code.push('"');
                        state = In::Text(Some(hashes));
                        at += skip;
                    } else if here == '\'' && (next == '\\' || chars.get(at + 2) == Some(&'\'')) {
                        // A character literal; everything else that starts with a quote is a lifetime.
                        let from = if next == '\\' { at + 3 } else { at + 2 };
                        line.code.push_str("' '");
                        at = chars[from..].iter().position(|c| *c == '\'').map_or(chars.len(), |n| from + n + 1);
                    } else {
                        line.code.push(here);
                        at += 1;
                    }
                }
            }
        }
        if matches!(state, In::LineComment) {
            state = In::Code;
        }
        lines.push(line);
    }
    lines
}

/// If a raw string starts here: how many hashes close it, and the length of its opening.
fn raw_string(chars: &[char]) -> Option<(usize, usize)> {
    let prefix = match chars {
        ['r', ..] => 1,
        ['b' | 'c', 'r', ..] => 2,
        _ => return None,
    };
    let hashes = chars[prefix..].iter().take_while(|c| **c == '#').count();
    (chars.get(prefix + hashes) == Some(&'"')).then_some((hashes, prefix + hashes + 1))
}

fn tokenize(lines: &[Line]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let mut rest = line.code.as_str();
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: rest[..length].to_owned(), line: number, inline: Vec::new() });
            }
            rest = &rest[length..];
        }
    }
    tokens
}

/// Finds inline modules and test items by matching braces.
fn mark_modules_and_tests(path: &str, lines: &mut [Line], tokens: &mut [Token]) {
    let only_for_tests = ["/tests/", "/benches/", "/model/"].iter().any(|part| path.contains(part))
        || path.ends_with("/tests.rs")
        || path.ends_with("/model.rs");
    if only_for_tests {
        lines.iter_mut().for_each(|line| line.test = true);
    }
    if only_for_tests || path.ends_with("_model.rs") {
        lines.iter_mut().for_each(|line| line.unshipped = true);
    }
    /// What an open brace belongs to.
    struct Open {
        module: Option<String>,
        test_from: Option<usize>,
        model_from: Option<usize>,
    }
    let mut open: Vec<Open> = Vec::new();
    let (mut test_attribute, mut model_attribute): (Option<usize>, Option<usize>) = (None, None);
    let mut module_ahead: Option<String> = None;
    let mut tests: Vec<(usize, usize)> = Vec::new();
    let mut models: Vec<(usize, usize)> = Vec::new();
    for at in 0..tokens.len() {
        tokens[at].inline = open.iter().filter_map(|open| open.module.clone()).collect();
        let line = tokens[at].line;
        match tokens[at].text.as_str() {
            // `#[cfg(test)]`, `#[cfg(all(test, loom))]`, `#[test]`; not `#[cfg(not(test))]`.
            "#" if tokens.get(at + 1).is_some_and(|token| token.text == "[") => {
                let inside: Vec<&str> = tokens[at + 2..]
                    .iter()
                    .take_while(|token| token.text != "]")
                    .map(|token| token.text.as_str())
                    .collect();
                let names_test =
                    inside.iter().enumerate().any(|(i, text)| *text == "test" && (i < 2 || inside[i - 2] != "not"));
                if names_test && matches!(inside.first(), Some(&("cfg" | "test"))) {
                    test_attribute.get_or_insert(line);
                }
                // `#[cfg(loom)]`, `#[cfg(any(loom, shuttle))]`; not what names `fibra_bugs` too, which the whole runtime is built with.
                let has = |name: &str| inside.contains(&name);
                if inside.first() == Some(&"cfg")
                    && (has("loom") || has("shuttle"))
                    && !has("not")
                    && !has("fibra_bugs")
                {
                    model_attribute.get_or_insert(line);
                }
            }
            "mod" => {
                module_ahead = tokens.get(at + 1).map(|token| token.text.clone());
                if matches!(tokens.get(at + 1).map(|token| token.text.as_str()), Some("tests" | "model")) {
                    test_attribute.get_or_insert(line);
                }
            }
            ";" => {
                tests.extend(test_attribute.take().map(|from| (from, line)));
                models.extend(model_attribute.take().map(|from| (from, line)));
                module_ahead = None;
            }
            "{" => {
                open.push(Open {
                    module: module_ahead.take(),
                    test_from: test_attribute.take(),
                    model_from: model_attribute.take(),
                });
            }
            "}" => {
                if let Some(closed) = open.pop() {
                    tests.extend(closed.test_from.map(|from| (from, line)));
                    models.extend(closed.model_from.map(|from| (from, line)));
                }
            }
            _ => {}
        }
    }
    for (from, to) in tests {
        lines[from..=to].iter_mut().for_each(|line| (line.test, line.unshipped) = (true, true));
    }
    for (from, to) in models {
        lines[from..=to].iter_mut().for_each(|line| line.unshipped = true);
    }
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in <root>/crates/fibra").to_owned()
}

/// Every page of documentation, with its text: what lies in `docs/` and at the root.
pub(crate) fn pages() -> Vec<(String, String)> {
    let root = repository();
    let folders = ["", "docs", "docs/decisions"];
    let mut pages = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).expect("the folders of documentation") {
            let path = entry.expect("a readable folder").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(&root).expect("found below the root").to_string_lossy().into_owned();
                pages.push((name, std::fs::read_to_string(&path).expect("a readable page")));
            }
        }
    }
    pages
}

/// Every Rust file of every crate, in a fixed order.
pub(crate) fn all_sources() -> Vec<Source> {
    let root = repository();
    let mut files = Vec::new();
    collect(&root.join("crates"), &mut files);
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let path = file.strip_prefix(&root).expect("found below the root").to_string_lossy().replace('\\', "/");
            Source::parse(&path, &text)
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a directory entry can be read").path();
        let name = path.file_name().expect("entries have names").to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "wip" && !name.starts_with('.') {
                collect(&path, files);
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}
