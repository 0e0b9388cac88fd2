//! The macros of fibra: `#[fibra::main]`, `#[fibra::test]`, `select!` and `select_biased!`.
//!
//! Above: user code, which uses them as `fibra::main` and so on. Below: `fibra::__private`, which the expanded code calls.
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
/// Options: `workers = 4`, `max_workers = 8`, `stack_size = 64 * 1024`, `name = "api"`, each of which takes an expression;
/// `current_thread`, for one worker and no other thread; and `cancellation = "cooperative"`, which programs that are built with
/// `panic = "abort"` have to say (`"unwind"` is what there is without it). `panic_exit = 101` ends the process with that exit code, from 1
/// to 255, if a fiber has panicked whose panic no joiner was told of, and the function itself did not fail; 0, which is also the default,
/// leaves the exit code as it is. Where a program does not say it, `FIBRA_PANIC_EXIT` does.
///
/// ```ignore
/// #[fibra::main(current_thread, cancellation = "cooperative")]
/// fn main() {
///     let ended = fibra::spawn(|| fibra::is_cancelled()).join();
///     assert!(matches!(ended, Ok(false)));
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    entry::expand(Flavour::Main, options, item)
}

/// Runs a test as the root fiber of a fresh runtime.
///
/// ```ignore
/// #[fibra::test(workers = 2, timeout = 30, leak_timeout = 10)]
/// fn pairs_meet() { .. }
/// ```
///
/// Fibers that have not ended `leak_timeout` (5 seconds unless given) after the body returned are listed and fail the test.
///
/// With `timeout = 30`, a test that has not ended after so many seconds fails: all fibers are listed, with what they wait for, and then
/// its body is cancelled. If it does not end then either (it computes, blocks its thread, or is behind a `shield`), the process is
/// aborted 5 seconds and `leak_timeout` later, since nothing else could end the test.
///
/// Options: those of `#[fibra::main]`, and the two times: a number of seconds (`0.5` too), or an expression of type `Duration`.
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
