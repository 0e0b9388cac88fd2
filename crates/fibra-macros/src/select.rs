//! The expansion of `select!` and `select_biased!`.
//!
//! Above: the two entries in `lib.rs`. Beside: `parse`, which reads the arms. Below: `fibra::__private::select`, called `p` here.
//!
//! For arms 0, 1, 2, .. the expansion is one block:
//!
//! ```text
//! {
//!     match &(RX) { e0 => {                what each arm is about, evaluated in source order, and only if its guard holds
//!         let a0 = p::recv(e0);            (a guarded arm is an Option: None is switched off)
//!         match &(RX1) { e1 => {
//!             ..
//!             let mut arms = (a0, a1, ..);
//!             let won = p::select(
//!                 &mut arms, BIASED, OTHERWISE,
//!                 |arms, index, completes| match index { 0 => p::ask(&mut arms.0, completes), .. },      the first pass
//!                 |arms| [p::case(&mut arms.0), ..],                                                     the second
//!             );
//!             match won {
//!                 Some(0) => {
//!                     let PATTERN = { let mut arms = arms; p::finish(&mut arms.0) };      all arms end with the inner block, at once
//!                     BODY
//!                 }
//!                 ..
//!             }
//!         } }
//!     } }
//! }
//! ```
//!
//! A `match` around everything that follows, because every temporary of its operand lives until it ends, also one that is the
//! argument of a call (`recv(rx.unwrap_or(&never()))`). With a guard there is a choice between two operands, whose temporaries end
//! with the choice; then only what is borrowed directly is kept: see `ArmSyntax::borrow`. The outer block ends the temporaries with
//! the select, even where that is the last expression of a function: its tokens have this crate's edition, 2024.
//!
//! Bodies are ordinary code of the user's function, each on a path of its own through it. The promise that `send(tx, v)` moves the variable
//! `v` only if it wins rests on this: the library is given the address of `v`, and the receiver takes the value from there; the path of the
//! winning arm then moves `v` away without dropping it, the other paths leave it alone. Three rules of the compiler make this sound, and
//! the expansion is arranged so that they apply:
//!
//! * `v` is borrowed until select has returned (`p::keep(b)`), so no other arm's expression can move or change it.
//! * On the path of the winner, `v` is moved before any code of the user runs (destructors of the other arms, the body): a panic
//!   there does not drop it a second time.
//! * The other arms are used once more after that move (`p::keep(&arms.1)`), so an arm that borrows from `v` itself (`recv(v.reply)`) does
//!   not compile: the receiver of `v` may have destroyed it. The sender is used once more, too (`send(v.tx, v)`): the channel must exist
//!   until select has returned.
//!
//! A name may also be a constant, which is a new value each time it is evaluated; a temporary of it, borrowed, would be dropped
//! after it was sent. No macro can tell the two by their looks, but a closure can: one that borrows a variable has a size, one that
//! names a constant has none. The expansion writes down two closures that are never made, since they stand behind a `break`; only
//! their types are used. `|like| [&v, like]` says which of the two `v` is; `like` has the type of the value, so that nothing is left
//! to infer. `|| v` is called for a constant: without captures it is made from nothing. That one value lies in `c0`, which is
//! forgotten on the path of the winner and dropped with the arms on the others; of a variable `c0` is `None`. Code behind a `break`
//! moves nothing as far as the borrow checker is concerned.
//!
//! The names that the macro makes have `mixed_site` spans, so they neither clash with the user's names nor are seen by them. All paths are
//! absolute; fibra itself is the `$crate` of the `macro_rules!` around this macro, so that it may be renamed and its macros exported again
//! by other crates. The tokens next to a user's expression are located where it is, so that errors about it point there.

use proc_macro::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};

use crate::tokens::{self, is_ident};

mod parse;

/// The part of the library that the expansion calls.
const LIBRARY: &str = "$fibra::__private::select";

const SENDER: &str = "&$fibra::channel::Sender<_>";

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArmKind {
    Recv,
    Send,
    Closed,
    Join,
    Lock,
    On,
    Cancelled,
    Draining,
    After,
    Default,
}

/// An operation, as the grammar knows it.
struct Operation {
    name: &'static str,
    kind: ArmKind,
    /// How many arguments it takes, from and to.
    arguments: (usize, usize),
    /// An arm that is right, for messages.
    example: &'static str,
    /// Does it have a result, for `-> pattern`?
    has_result: bool,
}

const fn operation(
    name: &'static str,
    kind: ArmKind,
    arguments: (usize, usize),
    has_result: bool,
    example: &'static str,
) -> Operation {
    Operation { name, kind, arguments, example, has_result }
}

/// Every operation. A new one is a line here, a [`ArmKind`] and what `ArmSyntax::setup` writes for it.
const OPERATIONS: &[Operation] = &[
    operation("recv", ArmKind::Recv, (1, 1), true, "recv(rx) -> message => .."),
    operation("send", ArmKind::Send, (2, 2), true, "send(tx, value) -> result => .."),
    operation("closed", ArmKind::Closed, (1, 1), true, "closed(tx) -> reason => .."),
    operation("join", ArmKind::Join, (1, 1), true, "join(handle) -> result => .."),
    operation("lock", ArmKind::Lock, (1, 1), true, "lock(mutex) -> guard => .."),
    operation("on", ArmKind::On, (1, 1), true, "on(operation) -> output => .."),
    operation("cancelled", ArmKind::Cancelled, (0, 1), true, "cancelled() -> reason => .."),
    operation("draining", ArmKind::Draining, (0, 0), true, "draining() => .."),
    operation("after", ArmKind::After, (1, 1), false, "after(duration) => .."),
    operation("default", ArmKind::Default, (0, 1), false, "default => .."),
];

/// One arm, as written.
struct ArmSyntax {
    /// The crate, as `$crate` names it.
    fibra: TokenTree,
    operation: &'static Operation,
    /// The name of the operation, for its span.
    name: Span,
    arguments: Vec<Vec<TokenTree>>,
    pattern: Option<Vec<TokenTree>>,
    guard: Option<Vec<TokenTree>>,
    body: Vec<TokenTree>,
}

/// `select! { arms }`, or `select_biased!`, of which `input` is `$crate { arms }`.
pub(crate) fn expand(biased: bool, input: TokenStream) -> TokenStream {
    let mut input = input.into_iter();
    let (Some(fibra), Some(TokenTree::Group(arms))) = (input.next(), input.next()) else {
        unreachable!("fibra's `macro_rules!` write `$crate` and a group");
    };
    match parse::arms(if biased { "select_biased!" } else { "select!" }, &fibra, arms.stream()) {
        Ok(arms) => write(biased, fibra, &arms),
        Err(misuse) => misuse.complaint(),
    }
}

/// A part of the expansion, in front of everything that follows it.
enum Layer {
    Statements(TokenStream),
    /// `match operand { name => { what follows } }`
    Match {
        operand: TokenStream,
        name: String,
    },
}

impl Layer {
    fn around(self, rest: TokenStream) -> TokenStream {
        match self {
            Layer::Statements(statements) => statements.into_iter().chain(rest).collect(),
            Layer::Match { operand, name } => {
                let (operand, rest): (Vec<_>, Vec<_>) = (operand.into_iter().collect(), rest.into_iter().collect());
                let template = format!("match $operand {{ {name} => {{ $rest }} }}");
                tokens::fill(Span::mixed_site(), &template, &[("operand", &operand), ("rest", &rest)])
            }
        }
    }
}

fn write(biased: bool, fibra: TokenTree, arms: &[ArmSyntax]) -> TokenStream {
    let span = Span::mixed_site();
    let fill = |span, template: &str, holes: &[(&str, &[TokenTree])]| fill(&fibra, span, template, holes);
    let (default, cases): (Vec<&ArmSyntax>, Vec<&ArmSyntax>) =
        arms.iter().partition(|arm| arm.operation.kind == ArmKind::Default);
    let default = default.first();

    // Default's expression is evaluated at its place among the others.
    let mut layers = Vec::new();
    let mut index = 0;
    for arm in arms {
        if arm.operation.kind == ArmKind::Default {
            layers.push(Layer::Statements(arm.limit()));
        } else {
            arm.setup(index, &mut layers);
            index += 1;
        }
    }

    let list = |item: &dyn Fn(usize) -> String| (0..cases.len()).map(item).collect::<String>();
    let asks = list(&|index| format!("{index}usize => {LIBRARY}::ask(&mut arms.{index}, completes),"));
    let places = list(&|index| format!("{LIBRARY}::case(&mut arms.{index}),"));
    let arms_in_order = list(&|index| format!("a{index},"));
    let otherwise = match default {
        None => format!("{LIBRARY}::Otherwise::Wait"),
        Some(default) if default.arguments.is_empty() => format!("{LIBRARY}::Otherwise::Now"),
        Some(_) => format!("{LIBRARY}::Otherwise::After(limit)"),
    };
    // Variables of the expansion that the arms borrow from end after the arms and before the body.
    let held: Vec<(usize, String)> =
        cases.iter().enumerate().filter_map(|(index, arm)| Some((index, arm.holds(index)?))).collect();

    let mut paths = TokenStream::new();
    for (index, arm) in cases.iter().enumerate() {
        paths.extend(arm.path(index, &cases, &held));
    }
    paths.extend(match default {
        Some(default) => {
            let drops: String = held.iter().map(|(_, held)| ends(held)).collect();
            let statements = fill(span, &format!("{} {drops}", ends("arms")), &[]);
            let mut path = fill(span, "_ =>", &[]);
            path.extend([default.path_body(statements)]);
            path
        }
        None => fill(span, "_ => ::core::unreachable!(\"select returns an arm that it was given\"),", &[]),
    });

    let borrowed = (0..cases.len()).filter(|index| cases[*index].borrows_its_value());
    let keep: String = borrowed.map(|index| format!("{LIBRARY}::keep(&b{index});")).collect();
    let paths: Vec<TokenTree> = paths.into_iter().collect();
    // (Without arms, nothing is asked.)
    let (each, all) = if cases.is_empty() { ("_, _, _", "_") } else { ("arms, index, completes", "arms") };
    let ask = if cases.is_empty() { "false".to_owned() } else { format!("match index {{ {asks} _ => false }}") };
    let template = format!(
        "let mut arms = ({arms_in_order});
         let won = {LIBRARY}::select(&mut arms, {biased}, {otherwise}, |{each}| {ask}, |{all}| [{places}]);
         {keep}
         match won {{ $paths }}"
    );
    let innermost = fill(span, &template, &[("paths", &paths)]);
    let all = layers.into_iter().rev().fold(innermost, |rest, layer| layer.around(rest));
    let all: Vec<TokenTree> = all.into_iter().collect();
    fill(span, "{ $all }", &[("all", &all)])
}

/// [`tokens::fill`], with the crate's name in `$fibra`: located like the rest, and meaning what it meant.
fn fill(fibra: &TokenTree, span: Span, template: &str, holes: &[(&str, &[TokenTree])]) -> TokenStream {
    let mut fibra = fibra.clone();
    fibra.set_span(fibra.span().located_at(span));
    let fibra = [("fibra", std::slice::from_ref(&fibra))];
    let holes: Vec<(&str, &[TokenTree])> = holes.iter().copied().chain(fibra).collect();
    tokens::fill(span, template, &holes)
}

impl ArmSyntax {
    /// The subject of the arm: its first argument, if it has one.
    fn subject(&self) -> &[TokenTree] {
        self.arguments.first().map_or(&[], Vec::as_slice)
    }

    /// A `send` whose value is a place that stays the user's unless this arm wins.
    fn borrows_its_value(&self) -> bool {
        self.operation.kind == ArmKind::Send && is_place(&self.arguments[1])
    }

    /// A `join` whose handle is not a place of the user's: the expansion keeps it, and drops it if another arm wins.
    fn holds_its_handle(&self) -> bool {
        self.operation.kind == ArmKind::Join && !is_place(&self.arguments[0])
    }

    /// The variable of the expansion that this arm may borrow from.
    fn holds(&self, index: usize) -> Option<String> {
        if self.holds_its_handle() {
            Some(format!("h{index}"))
        } else {
            self.borrows_its_value().then(|| format!("c{index}"))
        }
    }

    fn fill(&self, span: Span, template: &str, holes: &[(&str, &[TokenTree])]) -> TokenStream {
        fill(&self.fibra, span, template, holes)
    }

    /// `let limit = ..` of `default(limit)`; nothing for `default`.
    fn limit(&self) -> TokenStream {
        let Some(limit) = self.arguments.first() else { return TokenStream::new() };
        self.fill(beside(limit), "let limit: ::core::time::Duration = $limit;", &[("limit", limit)])
    }

    /// The steps that evaluate the arm's expressions and end in a variable `a..`, which is an `Option` if there is a guard.
    fn setup(&self, index: usize, out: &mut Vec<Layer>) {
        let guarded = self.guard.is_some();
        if let Some(guard) = &self.guard {
            let statement = self.fill(beside(guard), &format!("let g{index}: bool = $guard;"), &[("guard", guard)]);
            out.push(Layer::Statements(statement));
        }
        let subject = self.subject();
        match self.operation.kind {
            ArmKind::Recv => {
                out.push(self.borrow(index));
                out.push(self.arm(index, "&$fibra::channel::Receiver<_>", "recv(e)"));
            }
            ArmKind::Closed => {
                out.push(self.borrow(index));
                out.push(self.arm(index, "&_", "closed(e)"));
            }
            ArmKind::Lock => {
                out.push(self.borrow(index));
                out.push(self.arm(index, "&$fibra::sync::Mutex<_>", "lock(e)"));
            }
            ArmKind::Join if self.holds_its_handle() => {
                // Not through `borrow`: it is a value, and moves into a variable of the expansion.
                let template = if guarded {
                    format!(
                        "let h{index}: ::core::option::Option<$fibra::JoinHandle<_>> =
                            if g{index} {{ ::core::option::Option::Some($handle) }}
                            else {{ ::core::option::Option::None }};
                         let a{index} = match &h{index} {{
                            ::core::option::Option::Some(e) => ::core::option::Option::Some({LIBRARY}::join(e)),
                            ::core::option::Option::None => ::core::option::Option::None,
                         }};"
                    )
                } else {
                    format!(
                        "let h{index}: $fibra::JoinHandle<_> = $handle;
                         let a{index} = {LIBRARY}::join(&h{index});"
                    )
                };
                out.push(Layer::Statements(self.fill(beside(subject), &template, &[("handle", subject)])));
            }
            ArmKind::Join => {
                out.push(self.borrow(index));
                out.push(self.arm(index, "&$fibra::JoinHandle<_>", "join(e)"));
            }
            ArmKind::Send => {
                out.push(self.borrow(index));
                let value = &self.arguments[1];
                if self.borrows_its_value() {
                    out.push(self.borrow_value(index, value));
                    // Sound by the three rules at the top of this file.
                    let call = format!("send_from(e, p{index})");
                    out.push(self.arm_of(index, SENDER, beside(value), &call, true, &[]));
                } else {
                    // In a statement, which ends the value's temporaries: a lock that was taken to get at it is not held while
                    // select waits.
                    let holes = [("value", value.as_slice())];
                    out.push(self.arm_of(index, SENDER, beside(value), "send(e, $value)", false, &holes));
                }
            }
            ArmKind::Cancelled if !subject.is_empty() => {
                out.push(self.borrow(index));
                out.push(self.arm(index, "&$fibra::CancelToken", "token(e)"));
            }
            ArmKind::On | ArmKind::After | ArmKind::Cancelled | ArmKind::Draining => {
                let call = format!("{LIBRARY}::{}($subject)", self.operation.name);
                let span = beside(subject);
                let holes = [("subject", subject)];
                out.push(if guarded {
                    let template = format!(
                        "let a{index} = if g{index} {{ ::core::option::Option::Some({call}) }}
                            else {{ ::core::option::Option::None }};"
                    );
                    Layer::Statements(self.fill(span, &template, &holes))
                } else {
                    Layer::Match { operand: self.fill(span, &call, &holes), name: format!("a{index}") }
                });
            }
            ArmKind::Default => unreachable!("default is not a case"),
        }
    }

    /// Makes `e..` a reference to the subject, or a `Guarded` of one, with temporaries that live as long as the select. Without a guard
    /// these are all temporaries; with one, those that the compiler extends for the operand of a `&` in a `let`, which it also does
    /// inside a braced variant and the branches of an `if`.
    fn borrow(&self, index: usize) -> Layer {
        let subject = self.subject();
        let (span, holes) = (beside(subject), [("subject", subject)]);
        if self.guard.is_none() {
            return Layer::Match { operand: self.fill(span, "&($subject)", &holes), name: format!("e{index}") };
        }
        let template = format!(
            "let e{index} = if g{index} {{
                {LIBRARY}::Guarded::On {{ value: &($subject) }}
             }} else {{
                {LIBRARY}::Guarded::Off
             }};"
        );
        Layer::Statements(self.fill(span, &template, &holes))
    }

    /// Makes `p..` the address of what a name stands for: `b..` borrows a variable, `c..` holds a constant. See the header.
    fn borrow_value(&self, index: usize, value: &[TokenTree]) -> Layer {
        let on = if self.guard.is_some() { format!("g{index}") } else { "true".to_owned() };
        let template = format!(
            "let (v{index}, c{index}) = {{
                #[allow(unreachable_code)]
                let types = 'types: {{
                    break 'types (::core::option::Option::None, ::core::option::Option::None);
                    (
                        ::core::option::Option::Some(|like: &_| {{ let _alike = [&($value), like]; }}),
                        ::core::option::Option::Some(|| {{ let value = $value; value }}),
                    )
                }};
                unsafe {{ {LIBRARY}::variable_or_constant(&types, {on}) }}
             }};
             let b{index} = if v{index} {{
                {LIBRARY}::Guarded::On {{ value: &($value) }}
             }} else {{
                {LIBRARY}::Guarded::Off
             }};
             let p{index}: *const _ = match &b{index} {{
                {LIBRARY}::Guarded::On {{ value }} => ::core::ptr::from_ref(*value),
                {LIBRARY}::Guarded::Off => {LIBRARY}::address(&c{index}),
             }};"
        );
        Layer::Statements(self.fill(beside(value), &template, &[("value", value)]))
    }

    /// `let a.. = p::call`, where `call` speaks of what was borrowed as `e`. Its type brings about deref coercion: the user may
    /// name the thing itself, a reference to it, an `Arc` of it. (In the borrowing `let` it would be in the way of an `if`
    /// between two references.)
    fn arm(&self, index: usize, of: &str, call: &str) -> Layer {
        self.arm_of(index, of, beside(self.subject()), call, false, &[])
    }

    fn arm_of(
        &self,
        index: usize,
        of: &str,
        span: Span,
        call: &str,
        promised: bool,
        holes: &[(&str, &[TokenTree])],
    ) -> Layer {
        let subject = self.fill(beside(self.subject()), &format!("let e: {of} = e;"), &[]);
        let subject: Vec<TokenTree> = subject.into_iter().collect();
        let mut call = format!("{LIBRARY}::{call}");
        if promised {
            call = format!("unsafe {{ {call} }}");
        }
        let template = if self.guard.is_some() {
            format!(
                "let a{index} = match e{index} {{
                    {LIBRARY}::Guarded::On {{ value: e }} => {{ $subject ::core::option::Option::Some({call}) }}
                    {LIBRARY}::Guarded::Off => ::core::option::Option::None,
                 }};"
            )
        } else {
            format!("let a{index} = {{ let e = e{index}; $subject {call} }};")
        };
        let holes: Vec<(&str, &[TokenTree])> = holes.iter().copied().chain([("subject", subject.as_slice())]).collect();
        Layer::Statements(self.fill(span, &template, &holes))
    }

    /// The path taken if this arm wins: `Some(index) => { .. }`.
    fn path(&self, index: usize, cases: &[&ArmSyntax], held: &[(usize, String)]) -> TokenStream {
        let moved: Vec<TokenTree> = self.moves_its_value(index, cases).into_iter().collect();
        let mut result =
            format!("{{ let mut arms = arms; let result = {LIBRARY}::finish(&mut arms.{index}); $moved result }}");
        let handle = self.subject();
        let others: String = held.iter().filter(|(other, _)| *other != index).map(|(_, held)| ends(held)).collect();
        let mut joined = Vec::new();
        if self.operation.kind == ArmKind::Join {
            let own = if !self.holds_its_handle() {
                "$handle".to_owned()
            } else if self.guard.is_some() {
                format!("::core::option::Option::expect(h{index}, \"the arm that won was switched on\")")
            } else {
                format!("h{index}")
            };
            let join = self.fill(beside(handle), &format!("$fibra::JoinHandle::join({own})"), &[("handle", handle)]);
            joined.extend(join);
            result = format!("{{ {result}; {others} $joined }}");
        } else if !others.is_empty() {
            result = format!("{{ let result = {result}; {others} result }}");
        }
        let ignored = [TokenTree::from(Ident::new("_", Span::mixed_site()))];
        let pattern = self.pattern.as_deref().unwrap_or(&ignored);
        // Not `beside` the pattern: if it can fail, the compiler would propose an `else` there.
        let statements = self.fill(
            Span::mixed_site(),
            &format!("let $pattern = {result};"),
            &[("pattern", pattern), ("moved", &moved), ("joined", &joined)],
        );
        let number = [TokenTree::from(Literal::usize_unsuffixed(index))];
        let mut path =
            self.fill(Span::mixed_site(), "::core::option::Option::Some($number) =>", &[("number", &number)]);
        path.extend([self.path_body(statements)]);
        path
    }

    /// On the path of the winner: moves the variable that was sent away, for the compiler too. The value is not dropped: the receiver has
    /// it, or it is in the result.
    fn moves_its_value(&self, index: usize, cases: &[&ArmSyntax]) -> TokenStream {
        if !self.borrows_its_value() {
            return TokenStream::new();
        }
        // `let` without a type moves, whatever the value is: a call could reborrow a `&mut`, and leave it usable.
        let template = format!(
            "if v{index} {{
                let moved = $value;
                let moved = ::core::mem::ManuallyDrop::new(moved);
                {LIBRARY}::keep(&[p{index}, ::core::ptr::from_ref(&*moved)]);
             }}
             let _sent = ::core::mem::ManuallyDrop::new(c{index});"
        );
        let value = &self.arguments[1];
        let mut out = self.fill(beside(value), &template, &[("value", value)]);
        out.extend(self.fill(beside(self.subject()), &format!("{LIBRARY}::keep(&e{index});"), &[]));
        for (other, arm) in cases.iter().enumerate().filter(|(other, _)| *other != index) {
            out.extend(self.fill(beside(arm.subject()), &format!("{LIBRARY}::keep(&arms.{other});"), &[]));
        }
        out
    }

    /// `{ statements body }`. Of a body in braces only what is inside goes in: a block at the end of a block would be reported as
    /// having unnecessary braces.
    fn path_body(&self, statements: TokenStream) -> TokenTree {
        let mut span = Span::mixed_site();
        let mut body: TokenStream = self.body.iter().cloned().collect();
        if let [only] = self.body.as_slice()
            && let Some(block) = as_block(only)
            && !block.stream().to_string().starts_with("#!")
        {
            span = block.span();
            body = block.stream();
        }
        let mut group = Group::new(Delimiter::Brace, statements.into_iter().chain(body).collect());
        group.set_span(span);
        group.into()
    }
}

/// The block that a token is, perhaps as a fragment of a `macro_rules!` of the user's.
fn as_block(token: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => {
            let mut inside = group.stream().into_iter();
            inside.next().filter(|_| inside.next().is_none()).as_ref().and_then(as_block)
        }
        _ => None,
    }
}

/// Does it look like a variable or a field of one (`v`, `self`, `job.reply`)? Such a value stays where it is unless its arm wins.
/// (A constant looks the same: see the header.)
fn is_place(expression: &[TokenTree]) -> bool {
    if let [TokenTree::Group(fragment)] = expression
        && fragment.delimiter() == Delimiter::None
    {
        return is_place(&fragment.stream().into_iter().collect::<Vec<_>>());
    }
    let [TokenTree::Ident(base), fields @ ..] = expression else { return false };
    if ["return", "break", "continue", "loop", "unsafe", "async", "move", "_"].contains(&base.to_string().as_str()) {
        return false;
    }
    let fields = fields.chunks_exact(2);
    fields.remainder().is_empty()
        && fields.clone().all(|field| match field {
            [TokenTree::Punct(dot), TokenTree::Ident(_)] => dot.as_char() == '.' && !is_ident(field.last(), "await"),
            [TokenTree::Punct(dot), TokenTree::Literal(_)] => dot.as_char() == '.',
            _ => false,
        })
}

/// Drops a variable of the expansion. (The compiler reports a call of `drop` for a value without a destructor, also in expanded code.)
fn ends(variable: &str) -> String {
    format!("{{ let _ended = {variable}; }}")
}

/// The location of tokens that the macro adds beside the user's; their names stay the macro's own.
fn beside(tokens: &[TokenTree]) -> Span {
    let own = Span::mixed_site();
    tokens.first().map_or(own, |first| own.located_at(first.span()))
}
