//! The macros of fibra: `#[fibra::main]`, `#[fibra::test]`, `select!` and `select_biased!`.
//!
//! Above: user code, which meets them as `fibra::main` and so on. Below: `fibra::__private`, which what they write calls.
//!
//! The grammars are small enough to be read by hand on `proc_macro` tokens, which saves every user of fibra the compile time of
//! a parser for the whole language. `entry` has the attributes, `select` the other two, `tokens` what they share.

use proc_macro::TokenStream;

mod entry;
mod select;
mod tokens;

use entry::Flavour;

/// Makes a plain function the root fiber of a fresh runtime.
///
/// ```ignore
/// #[fibra::main]
/// fn main() -> std::io::Result<()> {
///     fibra::spawn(|| println!("hello"));
///     Ok(())
/// }
/// ```
///
/// The calling thread becomes worker 0, as with `fibra::run`. Returning `Err` or panicking cancels the root scope; the
/// function returns when every fiber of it has ended.
///
/// Options: `workers = 4`, `max_workers = 8`, `stack_size = 64 * 1024`, `name = "api"`; each takes an expression.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    entry::expand(Flavour::Main, options, item)
}

/// Runs a test as the root fiber of a fresh runtime.
///
/// ```ignore
/// #[fibra::test(workers = 2, leak_timeout = 10)]
/// fn pairs_meet() { .. }
/// ```
///
/// Fibers that have not ended `leak_timeout` (5 seconds unless given) after the body returned are listed and fail the test.
///
/// Options: those of `#[fibra::main]` and `leak_timeout`, a whole number of seconds or an expression of type `Duration`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    entry::expand(Flavour::Test, options, item)
}

/// Waits for several things at once and does the one that comes first: see `fibra::select!`, which writes
/// `select!($crate { arms })`.
#[proc_macro]
pub fn select(arms: TokenStream) -> TokenStream {
    select::expand(false, arms)
}

/// Like `select!`, but of several arms that are ready the first in source order wins: see `fibra::select_biased!`.
#[proc_macro]
pub fn select_biased(arms: TokenStream) -> TokenStream {
    select::expand(true, arms)
}
