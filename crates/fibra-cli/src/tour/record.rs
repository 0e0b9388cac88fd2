//! Two fibers hand messages to and fro while the flight recorder runs: what its file holds, and what a recording costs them.

use std::time::Duration;

use fibra::channel::rendezvous;
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};

/// Messages that are answered.
const ROUNDS: u32 = 2000;

/// A client asks, a server answers: how long that took.
fn ping_pong() -> Duration {
    let ((ask, asked), (answer, answered)) = (rendezvous::<u32>(), rendezvous::<u32>());
    let serve = move || asked.iter().all(|number| answer.send(number + 1).is_ok());
    let server = fibra::Builder::new().name("server").spawn_local(serve).expect("one more fiber");
    let begin = Instant::now();
    for number in 0..ROUNDS {
        ask.send(number).expect("the server is there");
        assert_eq!(answered.recv(), Ok(number + 1));
    }
    let took = begin.elapsed();
    drop(ask);
    server.join().expect("it has answered all");
    took
}

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let file = std::env::temp_dir().join(format!("fibra-tour-{}.json", std::process::id()));
    let plain = ping_pong();
    let recording = fibra::trace::record(&file).map_err(|error| error.to_string())?;
    let recorded = ping_pong();
    let begin = Instant::now();
    recording.finish().map_err(|error| error.to_string())?;
    let written = begin.elapsed();
    let trace = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let _ = std::fs::remove_file(&file);
    let (turns, arrows) = (trace.matches("\"name\":\"running\"").count(), trace.matches("\"ph\":\"s\"").count());
    let (each, each_recorded) = (time(plain / ROUNDS), time(recorded / ROUNDS));
    page.row("a round trip", format_args!("{each}, and {each_recorded} while it is recorded"));
    page.row("the file", format_args!("{turns} turns, {arrows} arrows from wakes; written in {}", time(written)));
    page.row("to see one", format_args!("FIBRA_TRACE=trace.json program, and open it at https://ui.perfetto.dev"));
    let is_told = trace.contains(" server\"") && trace.contains("receiving from a channel");
    // Two turns and two wakes for each round; what came before the worker noticed the recorder is not in the file.
    if is_told && turns > ROUNDS as usize && arrows > ROUNDS as usize {
        return Ok(());
    }
    Err(format!("the recording has {turns} turns and {arrows} arrows of {ROUNDS} rounds, and was to name the server"))
}
