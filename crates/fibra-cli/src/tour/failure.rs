//! A panic stays in its fiber and comes out of `join`.

use super::page::Page;
use super::{Options, Outcome};

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    // `resume_unwind` instead of `panic!`: the hook's report would frighten the reader of the tour without need.
    let failing = fibra::Builder::new()
        .name("unlucky")
        .spawn(|| -> u32 { std::panic::resume_unwind(Box::new("the disk is on fire")) });
    let neighbour = fibra::spawn(|| 6 * 7);
    match failing.map_err(|error| error.to_string())?.join() {
        Err(error) if error.is_panic() => page.row("joined", format_args!("{error}")),
        other => return Err(format!("expected a panic, got {other:?}")),
    }
    let answer = neighbour.join().map_err(|error| error.to_string())?;
    page.row("its neighbour", format_args!("returned {answer}, and the tour goes on"));
    Ok(())
}
