//! Reads the arms of a `select!`:
//!
//! ```text
//! arm       :=  operation [ `->` pattern ] [ `,` `if` guard ] `=>` body
//! operation :=  name [ `(` arguments `)` ]
//! body      :=  block [ `,` ]  |  expression `,`              the last comma may be missing
//! ```
//!
//! Above: `select`, which has the table of operations. Everything between the marks (arguments, patterns, guards, bodies) is
//! passed on as it is. Hence all that has to be known about Rust's expressions is where they end: at a comma or `=>` that is
//! not inside brackets, nor between the angle brackets of generics, nor among the parameters of a closure.

use proc_macro::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use super::{ArmKind, ArmSyntax, OPERATIONS, Operation, as_block};
use crate::tokens::{Misuse, is_group, is_ident};

/// The arms, in source order; or the first thing that is wrong with them.
pub(super) fn arms(written: &'static str, fibra: &TokenTree, input: TokenStream) -> Result<Vec<ArmSyntax>, Misuse> {
    let tokens: Vec<TokenTree> = input.into_iter().collect();
    if tokens.is_empty() {
        let message = format!("`{written}` needs at least one arm: with none it would wait for ever");
        return Err(Misuse::at(Span::call_site(), message));
    }
    let mut reader = Reader { fibra, tokens: &tokens, at: 0 };
    let mut arms: Vec<ArmSyntax> = Vec::new();
    while reader.peek().is_some() {
        let arm = reader.arm()?;
        if arm.operation.kind == ArmKind::Default
            && arms.iter().any(|earlier| earlier.operation.kind == ArmKind::Default)
        {
            return Err(Misuse::at(arm.name, format!("`{written}` takes at most one `default` arm")));
        }
        arms.push(arm);
    }
    Ok(arms)
}

struct Reader<'a> {
    fibra: &'a TokenTree,
    tokens: &'a [TokenTree],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    /// The span of the next token, or of the last one if there is none left.
    fn here(&self) -> Span {
        self.peek().or(self.tokens.last()).map_or_else(Span::call_site, TokenTree::span)
    }

    fn arm(&mut self) -> Result<ArmSyntax, Misuse> {
        let (operation, name) = self.operation()?;
        let arguments = self.arguments(operation, name)?;
        let pattern = self.pattern(operation, name)?;
        let guard = self.guard(operation, name)?;
        if !is_fat_arrow(self.tokens, self.at) {
            let message = match pattern {
                None if operation.has_result => {
                    format!("expected `-> pattern`, `, if guard` or `=>` after `{}(..)`", operation.name)
                }
                _ => format!("expected `=>` and the body of the arm, as in `{}`", operation.example),
            };
            return Err(Misuse::at(self.here(), message));
        }
        self.at += 2;
        let body = self.body()?;
        Ok(ArmSyntax { fibra: self.fibra.clone(), operation, name, arguments, pattern, guard, body })
    }

    /// The name of the operation.
    fn operation(&mut self) -> Result<(&'static Operation, Span), Misuse> {
        let name = match self.peek() {
            Some(TokenTree::Ident(name)) => name.clone(),
            Some(TokenTree::Punct(pound)) if pound.as_char() == '#' => {
                return Err(Misuse::at(
                    pound.span(),
                    "an arm cannot have attributes; a guard can switch it off: `, if cfg!(..)`",
                ));
            }
            Some(TokenTree::Punct(comma)) if comma.as_char() == ',' => {
                return Err(Misuse::at(comma.span(), "expected an arm here, not another comma"));
            }
            _ => return Err(Misuse::at(self.here(), format!("expected an arm, which begins with {}", known()))),
        };
        let text = name.to_string();
        let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == text) else {
            let message = match self.tokens.get(self.at + 1) {
                Some(TokenTree::Group(_)) => format!("unknown operation `{text}`: an arm begins with {}", known()),
                _ => format!("expected an arm, which begins with {}", known()),
            };
            return Err(Misuse::at(name.span(), message));
        };
        self.at += 1;
        Ok((operation, name.span()))
    }

    /// The tokens between the parentheses.
    fn arguments(&mut self, operation: &Operation, name: Span) -> Result<Vec<Vec<TokenTree>>, Misuse> {
        let (least, most) = operation.arguments;
        let Some(TokenTree::Group(group)) = self.peek().filter(|next| is_group(Some(next), Delimiter::Parenthesis))
        else {
            if least == 0 {
                return Ok(Vec::new());
            }
            return Err(Misuse::at(name, format!("`{}` needs its arguments: `{}`", operation.name, operation.example)));
        };
        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
        let mut arguments: Vec<Vec<TokenTree>> = Vec::new();
        let mut from = 0;
        while from < inside.len() {
            let to = end_of_expression(&inside, from, false);
            if to == from {
                return Err(Misuse::at(inside[from].span(), "expected an expression"));
            }
            arguments.push(without_lints(&inside[from..to]));
            from = to + 1;
        }
        if arguments.len() < least || arguments.len() > most {
            return Err(wrong_number(operation, group, &arguments));
        }
        self.at += 1;
        Ok(arguments)
    }

    /// `-> pattern`
    fn pattern(&mut self, operation: &Operation, name: Span) -> Result<Option<Vec<TokenTree>>, Misuse> {
        if !is_pair(self.tokens, self.at, '-', '>') {
            return Ok(None);
        }
        if !operation.has_result {
            let message = format!("`{}` has no result: remove `-> ..`, as in `{}`", operation.name, operation.example);
            return Err(Misuse::at(name, message));
        }
        self.at += 2;
        let from = self.at;
        while let Some(next) = self.peek() {
            if is_comma(next) || is_fat_arrow(self.tokens, self.at) {
                break;
            }
            self.no_guard_without_comma()?;
            self.at += 1;
        }
        if self.at == from {
            return Err(Misuse::at(self.here(), "expected a pattern after `->`"));
        }
        Ok(Some(self.tokens[from..self.at].to_vec()))
    }

    /// `, if guard`
    fn guard(&mut self, operation: &Operation, name: Span) -> Result<Option<Vec<TokenTree>>, Misuse> {
        self.no_guard_without_comma()?;
        if !self.peek().is_some_and(is_comma) {
            return Ok(None);
        }
        let Some(keyword) = self.tokens.get(self.at + 1).filter(|next| is_ident(Some(next), "if")) else {
            let message = format!("expected `=>` and the body of the arm here, as in `{}`", operation.example);
            return Err(Misuse::at(self.here(), message));
        };
        if operation.kind == ArmKind::Default {
            return Err(Misuse::at(name, "`default` takes no guard: put the condition into its body"));
        }
        let keyword = keyword.span();
        self.at += 2;
        if let Some(token) = self.peek().filter(|next| is_ident(Some(next), "let")) {
            let message = "a guard is an expression of type `bool`, not a `let`: say `.is_some()` or `matches!(..)`";
            return Err(Misuse::at(token.span(), message));
        }
        let from = self.at;
        while self.peek().is_some() && !is_fat_arrow(self.tokens, self.at) {
            self.at += 1;
        }
        if self.at == from {
            return Err(Misuse::at(keyword, "expected a condition after `if`"));
        }
        Ok(Some(without_lints(&self.tokens[from..self.at])))
    }

    /// In `match` there is no comma before a guard; here there is one, as `->` makes the pattern optional.
    fn no_guard_without_comma(&self) -> Result<(), Misuse> {
        match self.peek() {
            Some(keyword) if is_ident(Some(keyword), "if") => {
                Err(Misuse::at(keyword.span(), "a guard comes after a comma: write `, if ..`"))
            }
            _ => Ok(()),
        }
    }

    /// The body, and the comma after it.
    fn body(&mut self) -> Result<Vec<TokenTree>, Misuse> {
        let from = self.at;
        let Some(first) = self.peek().filter(|next| !is_comma(next)) else {
            return Err(Misuse::at(self.here(), "expected the body of the arm after `=>`"));
        };
        let block = as_block(first).is_some();
        self.at = if block { from + 1 } else { end_of_expression(self.tokens, from, true) };
        if is_fat_arrow(self.tokens, self.at) {
            let message = "expected `,` before this arm: only a body in braces ends without one";
            return Err(Misuse::at(self.start_of_arm_before(self.at), message));
        }
        let body = self.tokens[from..self.at].to_vec();
        if self.peek().is_some_and(is_comma) {
            self.at += 1;
        }
        Ok(body)
    }

    /// The place where the arm whose `=>` is at `arrow` seems to begin.
    fn start_of_arm_before(&self, arrow: usize) -> Span {
        let start = self.tokens[..arrow]
            .iter()
            .rev()
            .find(|token| OPERATIONS.iter().any(|known| is_ident(Some(token), known.name)));
        start.unwrap_or(&self.tokens[arrow]).span()
    }
}

/// Every operation, for messages.
fn known() -> String {
    let names: Vec<String> = OPERATIONS.iter().map(|operation| format!("`{}`", operation.name)).collect();
    let (last, others) = names.split_last().expect("there are operations");
    format!("{} or {last}", others.join(", "))
}

fn wrong_number(operation: &Operation, group: &Group, arguments: &[Vec<TokenTree>]) -> Misuse {
    let name = operation.name;
    let takes = match operation.arguments {
        (0, 0) => "takes no argument",
        (0, _) if operation.kind == ArmKind::Default => "stands alone, or takes one argument, how long to wait",
        (0, _) => "takes one argument at most, a token",
        (1, _) => "takes one argument",
        _ => "takes two arguments",
    };
    // Point at the first that is too many, or at the parentheses in which one is missing.
    let surplus = arguments.get(operation.arguments.1).and_then(|argument| argument.first());
    let span = surplus.map_or_else(|| group.span(), TokenTree::span);
    Misuse::at(span, format!("`{name}` {takes}: `{}`", operation.example))
}

/// Makes an expression in braces or parentheses an argument or an initial value, where the compiler would report them as unnecessary; here
/// they are not, as `{ v }` moves the variable in any case. The lint goes by the span of the brackets.
fn without_lints(expression: &[TokenTree]) -> Vec<TokenTree> {
    match expression {
        [TokenTree::Group(group)] if group.delimiter() != Delimiter::None => {
            let mut ours = group.clone();
            ours.set_span(Span::mixed_site().located_at(group.span()));
            vec![ours.into()]
        }
        other => other.to_vec(),
    }
}

// ---- Where things end ---------------------------------------------------------------------------------------------------

fn is_comma(token: &TokenTree) -> bool {
    is_punct(Some(token), ',')
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_pair(tokens: &[TokenTree], at: usize, first: char, second: char) -> bool {
    let joint = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.spacing() == Spacing::Joint);
    joint && is_punct(tokens.get(at), first) && is_punct(tokens.get(at + 1), second)
}

fn is_fat_arrow(tokens: &[TokenTree], at: usize) -> bool {
    is_pair(tokens, at, '=', '>')
}

/// Words after which an operand begins.
const BEFORE_AN_OPERAND: &[&str] =
    &["return", "break", "in", "move", "else", "match", "if", "while", "static", "async", "let"];

/// Words that begin an expression which ends with a block, and hence an arm's body that needs no comma.
const ENDS_WITH_A_BLOCK: &[&str] = &["match", "if", "loop", "while", "for", "unsafe"];

/// The index of the comma or `=>` that ends the expression which begins at `from`; the length if nothing does. A body may also
/// end without a comma, if it ends with a block and another arm follows.
fn end_of_expression(tokens: &[TokenTree], from: usize, is_body: bool) -> usize {
    let mut angles = 0_usize;
    // Among the parameters of a closure.
    let mut parameters = false;
    // After `as` comes a type, whose `<` opens generics.
    let mut in_type = false;
    let labelled = is_punct(tokens.get(from), '\'');
    let first = if labelled { from + 3 } else { from };
    let ends_with_block = is_body && ENDS_WITH_A_BLOCK.iter().any(|word| is_ident(tokens.get(first), word));

    for at in from..tokens.len() {
        let token = &tokens[at];
        if angles == 0 && !parameters && (is_comma(token) || is_fat_arrow(tokens, at)) {
            return at;
        }
        let before = tokens[from..at].last();
        match token {
            TokenTree::Punct(punct) => match punct.as_char() {
                '<' if angles > 0 || in_type || begins_operand(before, '<') => angles += 1,
                '>' if angles > 0 && !is_punct(before, '-') => {
                    angles -= 1;
                    in_type = in_type && angles > 0;
                }
                '|' if angles == 0 && (parameters || begins_operand(before, '|')) => parameters = !parameters,
                // What a type may begin with.
                ':' | '&' | '*' | '\'' => {}
                _ => in_type = in_type && angles > 0,
            },
            TokenTree::Ident(word) if word.to_string() == "as" => in_type = true,
            TokenTree::Group(_) => in_type = in_type && angles > 0,
            _ => {}
        }
        if ends_with_block && at > first && as_block(token).is_some() && begins_arm(&tokens[at + 1..]) {
            return at + 1;
        }
    }
    tokens.len()
}

/// Does an operand begin after `before`? Then `<` opens a path and `|` a closure; after an operand both are operators. The second
/// half of `<<` and `||` is an operator too, since its first half was one.
fn begins_operand(before: Option<&TokenTree>, sign: char) -> bool {
    match before {
        None => true,
        Some(TokenTree::Punct(punct)) if punct.as_char() == sign => punct.spacing() == Spacing::Alone,
        Some(TokenTree::Punct(punct)) => !matches!(punct.as_char(), '?' | '>' | '\'' | '.'),
        Some(TokenTree::Ident(word)) => BEFORE_AN_OPERAND.contains(&word.to_string().as_str()),
        Some(_) => false,
    }
}

/// Do these tokens look like the beginning of an arm?
fn begins_arm(tokens: &[TokenTree]) -> bool {
    let known = OPERATIONS.iter().find(|operation| is_ident(tokens.first(), operation.name));
    let Some(operation) = known else { return false };
    let after = match tokens.get(1) {
        Some(arguments) if is_group(Some(arguments), Delimiter::Parenthesis) => 2,
        _ if operation.arguments.0 == 0 => 1,
        _ => return false,
    };
    is_fat_arrow(tokens, after)
        || is_pair(tokens, after, '-', '>')
        || tokens.get(after).is_some_and(is_comma) && is_ident(tokens.get(after + 1), "if")
}
