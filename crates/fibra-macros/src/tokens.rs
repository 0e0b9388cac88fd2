//! The common base of both kinds of macro: reading tokens, writing tokens, and reporting errors.
//!
//! Above: `entry` (the attributes) and `select`. Below: `proc_macro`.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// An error: what is wrong and where.
pub(crate) struct Misuse {
    pub(crate) span: Span,
    message: String,
}

impl Misuse {
    pub(crate) fn at(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// `::core::compile_error!(message)`, at the offending token.
    pub(crate) fn complaint(&self) -> TokenStream {
        let mut text = Literal::string(&self.message);
        text.set_span(self.span);
        let mut out = Writer::new(self.span);
        out.path(&["core", "compile_error"]).punct('!');
        out.group(Delimiter::Parenthesis, [TokenTree::from(text)].into_iter());
        out.finish()
    }
}

pub(crate) fn is_ident(token: Option<&TokenTree>, text: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident.to_string() == text)
}

pub(crate) fn is_group(token: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}

// ---- Writing tokens -----------------------------------------------------------------------------------------------------

/// A token stream under construction; tokens that the macro makes get `span`, tokens of the user keep theirs.
pub(crate) struct Writer {
    span: Span,
    tokens: Vec<TokenTree>,
}

impl Writer {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, tokens: Vec::new() }
    }

    pub(crate) fn finish(self) -> TokenStream {
        self.tokens.into_iter().collect()
    }

    pub(crate) fn tree(&mut self, tree: TokenTree) -> &mut Self {
        self.tokens.push(tree);
        self
    }

    pub(crate) fn trees(&mut self, trees: &[TokenTree]) -> &mut Self {
        self.tokens.extend_from_slice(trees);
        self
    }

    pub(crate) fn ident(&mut self, text: &str) -> &mut Self {
        let ident = Ident::new(text, self.span);
        self.tree(ident.into())
    }

    pub(crate) fn punct(&mut self, character: char) -> &mut Self {
        self.spaced_punct(character, Spacing::Alone)
    }

    fn spaced_punct(&mut self, character: char, spacing: Spacing) -> &mut Self {
        let mut punct = Punct::new(character, spacing);
        punct.set_span(self.span);
        self.tree(punct.into())
    }

    pub(crate) fn arrow(&mut self) -> &mut Self {
        self.spaced_punct('-', Spacing::Joint).punct('>')
    }

    pub(crate) fn group(&mut self, delimiter: Delimiter, tokens: impl Iterator<Item = TokenTree>) -> &mut Self {
        let mut group = Group::new(delimiter, tokens.collect());
        group.set_span(self.span);
        self.tree(group.into())
    }

    /// `::a::b::c`
    pub(crate) fn path(&mut self, segments: &[&str]) -> &mut Self {
        for segment in segments {
            self.spaced_punct(':', Spacing::Joint).punct(':').ident(segment);
        }
        self
    }
}

/// Writes what `template` says: each `$name` becomes the tokens of that hole, as they are; everything else gets `span`.
///
/// Templates are constants of this crate, so one that does not lex or names no hole is a bug here, not a user's error.
pub(crate) fn fill(span: Span, template: &str, holes: &[(&str, &[TokenTree])]) -> TokenStream {
    let template: TokenStream = template.parse().expect("a template is made of tokens");
    fill_tokens(span, template, holes)
}

fn fill_tokens(span: Span, template: TokenStream, holes: &[(&str, &[TokenTree])]) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut tokens = template.into_iter();
    while let Some(token) = tokens.next() {
        let mut own = match token {
            TokenTree::Punct(dollar) if dollar.as_char() == '$' => {
                let name = tokens.next().expect("a hole has a name").to_string();
                let (_, filling) = holes.iter().find(|(hole, _)| *hole == name).expect("a hole is filled");
                out.extend_from_slice(filling);
                continue;
            }
            TokenTree::Group(group) => Group::new(group.delimiter(), fill_tokens(span, group.stream(), holes)).into(),
            other => other,
        };
        own.set_span(span);
        out.push(own);
    }
    out.into_iter().collect()
}
