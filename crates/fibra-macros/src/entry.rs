//! `#[fibra::main]` and `#[fibra::test]`: a function goes in, the same function with another body comes out.
//!
//! Above: the two entries in `lib.rs`. Below: `fibra::__private`, whose `run_main` and `run_test` do all the work, so that the macro writes
//! only one call into the user's program.
//!
//! Attributes, visibility, name and return type are passed through token by token (so every error about them points at what
//! the user wrote); the body becomes a closure. Every misuse is one `compile_error!` at the offending token, together with an
//! empty function of the same name, so that the compiler does not also complain that `main` is missing.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::tokens::{Misuse, Writer, is_group, is_ident};

/// Which of the two macros is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Main,
    Test,
}

impl Flavour {
    /// The macro as the user writes it, for messages.
    fn written(self) -> &'static str {
        match self {
            Flavour::Main => "#[fibra::main]",
            Flavour::Test => "#[fibra::test]",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Flavour::Main => {
                &["workers", "max_workers", "stack_size", "name", "current_thread", "cancellation", "panic_exit"]
            }
            Flavour::Test => &[
                "workers",
                "max_workers",
                "stack_size",
                "name",
                "current_thread",
                "cancellation",
                "timeout",
                "leak_timeout",
            ],
        }
    }
}

pub(crate) fn expand(flavour: Flavour, options: TokenStream, item: TokenStream) -> TokenStream {
    let function = Function::parse(flavour, item);
    let options = parse_options(flavour, options);
    match (function, options) {
        (Ok(function), Ok(options)) => function.expand(flavour, options),
        (Ok(function), Err(misuse)) => complain(misuse, Some(function.name)),
        (Err((misuse, name)), _) => complain(misuse, name),
    }
}

/// `compile_error!(message)` at the offending token, and an empty function to stand in for the one that was asked for.
fn complain(misuse: Misuse, name: Option<Ident>) -> TokenStream {
    let mut out = Writer::new(misuse.span);
    out.trees(&misuse.complaint().into_iter().collect::<Vec<_>>()).punct(';');
    if let Some(name) = name {
        out.ident("fn").tree(name.into()).group(Delimiter::Parenthesis, None.into_iter());
        out.group(Delimiter::Brace, None.into_iter());
    }
    out.finish()
}

// ---- The function -------------------------------------------------------------------------------------------------------

/// The parts of a function item that matter here; everything else has been refused.
struct Function {
    /// Attributes and visibility, as written.
    head: Vec<TokenTree>,
    name: Ident,
    parameters: Group,
    /// What follows the arrow; empty for a function that returns nothing.
    returns: Vec<TokenTree>,
    /// The arrow, kept for its span.
    arrow: Vec<TokenTree>,
    body: Group,
}

impl Function {
    /// Reads the item. With the misuse comes the function's name, if one was found before things went wrong.
    fn parse(flavour: Flavour, item: TokenStream) -> Result<Self, (Misuse, Option<Ident>)> {
        let written = flavour.written();
        let tokens: Vec<TokenTree> = item.into_iter().collect();
        let name_after_fn = tokens.windows(2).find_map(|pair| match pair {
            [TokenTree::Ident(keyword), TokenTree::Ident(name)] if keyword.to_string() == "fn" => Some(name.clone()),
            _ => None,
        });
        let misuse = |span: Span, message: String| -> (Misuse, Option<Ident>) {
            (Misuse::at(span, message), name_after_fn.clone())
        };

        let mut at = 0;
        // Attributes: a pound sign and a bracketed group each.
        while let (Some(TokenTree::Punct(pound)), Some(TokenTree::Group(attribute))) =
            (tokens.get(at), tokens.get(at + 1))
        {
            if pound.as_char() != '#' {
                break;
            }
            let inside: Vec<TokenTree> = attribute.stream().into_iter().collect();
            if let [TokenTree::Ident(path)] = inside.as_slice()
                && path.to_string() == "test"
            {
                let message = match flavour {
                    Flavour::Test => "remove `#[test]`: `#[fibra::test]` already makes the function a test",
                    Flavour::Main => {
                        "use `#[fibra::test]` alone for a test: `#[fibra::main]` is for the program's entry"
                    }
                };
                return Err(misuse(path.span(), message.to_owned()));
            }
            at += 2;
        }
        // Visibility: `pub`, perhaps followed by `(crate)` and the like.
        if is_ident(tokens.get(at), "pub") {
            at += 1;
            if is_group(tokens.get(at), Delimiter::Parenthesis) {
                at += 1;
            }
        }
        let head = tokens[..at].to_vec();

        let keyword = match tokens.get(at) {
            Some(TokenTree::Ident(keyword)) => keyword,
            other => {
                let span = other.map_or_else(Span::call_site, TokenTree::span);
                return Err(misuse(span, format!("`{written}` can only be put on a function")));
            }
        };
        match keyword.to_string().as_str() {
            "fn" => {}
            "async" => {
                return Err(misuse(
                    keyword.span(),
                    format!(
                        "`{written}` takes a plain `fn`: remove `async`, since fibers block instead of awaiting \
                         (`fibra::block_on` runs a future)"
                    ),
                ));
            }
            qualifier @ ("const" | "unsafe" | "extern") if name_after_fn.is_some() => {
                return Err(misuse(keyword.span(), format!("`{written}` takes a plain `fn`: remove `{qualifier}`")));
            }
            _ => return Err(misuse(keyword.span(), format!("`{written}` can only be put on a function"))),
        }
        at += 1;

        let Some(TokenTree::Ident(name)) = tokens.get(at) else {
            return Err(misuse(keyword.span(), format!("`{written}` can only be put on a function with a name")));
        };
        at += 1;
        if let Some(TokenTree::Punct(punct)) = tokens.get(at)
            && punct.as_char() == '<'
        {
            return Err(misuse(
                punct.span(),
                format!(
                    "`{written}` cannot be put on a generic function: the runtime calls `{name}` without type arguments"
                ),
            ));
        }
        let parameters = match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => group,
            _ => return Err(misuse(name.span(), format!("`{written}` expected `()` after the name of the function"))),
        };
        if let Some(first) = parameters.stream().into_iter().next() {
            return Err(misuse(
                first.span(),
                format!(
                    "a function under `{written}` takes no parameters: the runtime calls `{name}` without arguments"
                ),
            ));
        }
        at += 1;

        // The body is the last token: a return type may hold braces too (`Matrix<{ 2 + 2 }>`).
        let body = match tokens.last() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && at < tokens.len() => group,
            _ => return Err(misuse(name.span(), format!("a function under `{written}` needs a body"))),
        };
        let between = &tokens[at..tokens.len() - 1];
        if let Some(clause) = between.iter().find(|token| is_ident(Some(token), "where")) {
            return Err(misuse(
                clause.span(),
                format!("`{written}` takes a function without a `where` clause: remove it"),
            ));
        }
        let (arrow, returns) = match between {
            [] => (Vec::new(), Vec::new()),
            [TokenTree::Punct(minus), TokenTree::Punct(greater), returns @ ..]
                if minus.as_char() == '-' && greater.as_char() == '>' && !returns.is_empty() =>
            {
                (between[..2].to_vec(), returns.to_vec())
            }
            [other, ..] => {
                return Err(misuse(other.span(), format!("`{written}` expected a return type or the body here")));
            }
        };
        Ok(Self { head, name: name.clone(), parameters: parameters.clone(), returns, arrow, body: body.clone() })
    }

    /// Writes the function with its new body.
    fn expand(self, flavour: Flavour, options: Vec<ConfigOption>) -> TokenStream {
        let mut config = Writer::new(Span::call_site());
        for field in Flavour::Main.options() {
            config.ident(field).punct(':');
            config.option(options.iter().find(|option| option.name == *field)).punct(',');
        }

        let mut arguments = Writer::new(Span::call_site());
        arguments
            .path(&["fibra", "__private", "Config"])
            .group(Delimiter::Brace, config.finish().into_iter())
            .punct(',');
        if flavour == Flavour::Test {
            for limit in ["timeout", "leak_timeout"] {
                arguments.option(options.iter().find(|option| option.name == limit)).punct(',');
            }
        }
        if flavour == Flavour::Main {
            arguments.ident("move");
        }
        arguments.punct('|').punct('|');
        // `impl Trait` may not be written as the return type of a closure; there the compiler infers it from the body.
        if self.returns.is_empty() {
            arguments.arrow().group(Delimiter::Parenthesis, None.into_iter());
        } else if !is_ident(self.returns.first(), "impl") {
            arguments.trees(&self.arrow).trees(&self.returns);
        }
        arguments.tree(self.body.clone().into()).punct(',');
        // An `Err` cancels the fibers that are still running; a function that does not return a `Result` never does.
        let judge = if returns_result(&self.returns) { "is_err" } else { "never_fails" };
        arguments.path(&["fibra", "__private", judge]);

        let mut call = Writer::new(Span::call_site());
        let runner = if flavour == Flavour::Main { "run_main" } else { "run_test" };
        call.path(&["fibra", "__private", runner]).group(Delimiter::Parenthesis, arguments.finish().into_iter());

        let mut out = Writer::new(Span::call_site());
        if flavour == Flavour::Test {
            let mut path = Writer::new(Span::call_site());
            path.path(&["core", "prelude", "v1", "test"]);
            out.punct('#').group(Delimiter::Bracket, path.finish().into_iter());
        }
        out.trees(&self.head).ident("fn").tree(self.name.into()).tree(self.parameters.into());
        out.trees(&self.arrow).trees(&self.returns);
        let mut body = Group::new(Delimiter::Brace, call.finish());
        // Errors about the type of the whole body (a missing return value) point at the braces the user wrote.
        body.set_span(self.body.span());
        out.tree(body.into());
        out.finish()
    }
}

/// Is the return type a `Result`, of any crate (`io::Result<()>`, `anyhow::Result<()>`)? The last name before the generics decides.
fn returns_result(returns: &[TokenTree]) -> bool {
    let path = returns.iter().take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == '<'));
    is_ident(path.last(), "Result")
}

// ---- The options --------------------------------------------------------------------------------------------------------

/// One `name = expression`, with the expression brought to the type that is wanted.
struct ConfigOption {
    name: String,
    value: Vec<TokenTree>,
}

fn parse_options(flavour: Flavour, options: TokenStream) -> Result<Vec<ConfigOption>, Misuse> {
    let tokens: Vec<TokenTree> = options.into_iter().collect();
    let mut parsed: Vec<ConfigOption> = Vec::new();
    // Commas inside an expression are inside its brackets and hence not among these tokens; the one exception, generic
    // arguments outside brackets, cannot be told from two comparisons and is left to the user to put into parentheses.
    for option in tokens.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')) {
        let Some(first) = option.first() else {
            if let Some(comma) = tokens.first().filter(|_| parsed.is_empty()) {
                return Err(Misuse::at(comma.span(), "expected an option before the comma"));
            }
            continue; // A trailing comma.
        };
        let TokenTree::Ident(name) = first else {
            return Err(Misuse::at(first.span(), format!("expected an option: {}", listed(flavour))));
        };
        let text = name.to_string();
        if flavour == Flavour::Test && (text == "sim" || text == "seeds") {
            let message = format!(
                "`{text}` is not there yet: deterministic simulation comes with a later release of fibra; \
                 without it the test runs on a real runtime"
            );
            return Err(Misuse::at(name.span(), message));
        }
        if flavour == Flavour::Main && (text == "leak_timeout" || text == "timeout") {
            let message = format!("`{text}` belongs to `#[fibra::test]`: a program waits for its fibers");
            return Err(Misuse::at(name.span(), message));
        }
        if !flavour.options().contains(&text.as_str()) {
            let message = format!("unknown option `{text}`: `{}` knows {}", flavour.written(), listed(flavour));
            return Err(Misuse::at(name.span(), message));
        }
        if parsed.iter().any(|earlier| earlier.name == text) {
            return Err(Misuse::at(name.span(), format!("option `{text}` is given twice")));
        }
        if text == "current_thread" {
            if let [_, other, ..] = option {
                return Err(Misuse::at(other.span(), "`current_thread` takes no value: write it alone"));
            }
            let yes = Ident::new("true", name.span());
            parsed.push(ConfigOption { name: text, value: vec![yes.into()] });
            continue;
        }
        let value = match option {
            [_, TokenTree::Punct(equals), value @ ..] if equals.as_char() == '=' && !value.is_empty() => value,
            [_] | [_, TokenTree::Punct(_)] => {
                return Err(Misuse::at(name.span(), format!("option `{text}` needs a value: `{}`", example(&text))));
            }
            [_, other, ..] => {
                let message = format!("expected `=` after `{text}`, as in `{}`", example(&text));
                return Err(Misuse::at(other.span(), message));
            }
            [] => unreachable!("an option has a first token"),
        };
        let value = match text.as_str() {
            "name" => {
                let mut into = Writer::new(Span::call_site());
                into.path(&["core", "convert", "Into", "into"]);
                into.group(Delimiter::Parenthesis, value.iter().cloned());
                into.finish().into_iter().collect()
            }
            "timeout" | "leak_timeout" => duration(&text, value)?,
            "cancellation" => cancellation(value)?,
            _ => value.to_vec(),
        };
        parsed.push(ConfigOption { name: text, value });
    }
    if parsed.iter().any(|option| option.name == "current_thread") {
        let of_workers = tokens.iter().find(|token| {
            is_ident(Some(token), "workers") && parsed.iter().any(|option| option.name == "workers")
                || is_ident(Some(token), "max_workers") && parsed.iter().any(|option| option.name == "max_workers")
        });
        if let Some(option) = of_workers {
            let message = format!("`current_thread` means one worker, on the calling thread: remove `{option}`");
            return Err(Misuse::at(option.span(), message));
        }
    }
    Ok(parsed)
}

/// A length of time: a literal is a number of seconds, anything else is a `Duration` already.
fn duration(option: &str, value: &[TokenTree]) -> Result<Vec<TokenTree>, Misuse> {
    let advice = format!("`{option}` is a number of seconds, as in `{}`, or a `Duration`", example(option));
    let literal = match value {
        [TokenTree::Literal(literal)] => literal,
        [TokenTree::Punct(minus), ..] if minus.as_char() == '-' => return Err(Misuse::at(minus.span(), advice)),
        _ => return Ok(value.to_vec()),
    };
    let text = literal.to_string().replace('_', "");
    let from = match (text.parse::<u64>(), text.parse::<f64>()) {
        (Ok(_), _) => "from_secs",
        // More than an age would be more than a `Duration` holds.
        (_, Ok(seconds)) if seconds.is_finite() && seconds < 1e15 => "from_secs_f64",
        _ => return Err(Misuse::at(literal.span(), advice)),
    };
    if option == "timeout" && text.parse::<f64>() == Ok(0.0) {
        let message = format!("a test that may take no time always fails: {advice}");
        return Err(Misuse::at(literal.span(), message));
    }
    let mut out = Writer::new(Span::call_site());
    out.path(&["core", "time", "Duration", from]).group(Delimiter::Parenthesis, value.iter().cloned());
    Ok(out.finish().into_iter().collect())
}

/// How cancellation reaches fibers, by name.
fn cancellation(value: &[TokenTree]) -> Result<Vec<TokenTree>, Misuse> {
    const ADVICE: &str = "write `cancellation = \"cooperative\"` or `cancellation = \"unwind\"`";
    let [TokenTree::Literal(literal)] = value else {
        let span = value.first().map_or_else(Span::call_site, TokenTree::span);
        return Err(Misuse::at(span, ADVICE));
    };
    let variant = match literal.to_string().as_str() {
        "\"cooperative\"" => "Cooperative",
        "\"unwind\"" => "Unwind",
        other => {
            let message = format!("there is no cancellation {other}: {ADVICE}");
            return Err(Misuse::at(literal.span(), message));
        }
    };
    let mut out = Writer::new(Span::call_site());
    out.path(&["fibra", "Cancellation", variant]);
    Ok(out.finish().into_iter().collect())
}

fn listed(flavour: Flavour) -> String {
    let quoted: Vec<String> = flavour.options().iter().map(|option| format!("`{option}`")).collect();
    quoted.join(", ")
}

fn example(option: &str) -> &'static str {
    match option {
        "workers" => "workers = 4",
        "max_workers" => "max_workers = 8",
        "stack_size" => "stack_size = 64 * 1024",
        "name" => "name = \"api\"",
        "current_thread" => "current_thread",
        "cancellation" => "cancellation = \"cooperative\"",
        "panic_exit" => "panic_exit = 101",
        "timeout" => "timeout = 30",
        _ => "leak_timeout = 10",
    }
}

impl Writer {
    /// `None`, or `Some(..)` of the option's value.
    fn option(&mut self, option: Option<&ConfigOption>) -> &mut Self {
        match option {
            None => self.path(&["core", "option", "Option", "None"]),
            Some(option) => self
                .path(&["core", "option", "Option", "Some"])
                .group(Delimiter::Parenthesis, option.value.iter().cloned()),
        }
    }
}
