//! A small HTTP service that stops gracefully: notes, kept in memory.
//!
//! ```text
//! cargo run --release -p fibra-http --example service -- 127.0.0.1:8080
//! curl -d 'buy milk' http://127.0.0.1:8080/notes
//! curl http://127.0.0.1:8080/notes
//! curl -N http://127.0.0.1:8080/watch        # every new note, as it comes
//! ```
//!
//! Ctrl-C or `kill` stops it gracefully: no new client is accepted, requests that run are answered, and watchers are told goodbye. The
//! second time it stops at once.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use fibra::signal::{self, Signal};
use fibra::sync::{Condvar, Mutex};
use fibra_http::{BodyError, Request, Response, Server, Stopper};

/// How long running requests may still take after the service was asked to stop.
const GRACE: Duration = Duration::from_secs(10);

/// How often a watcher looks whether the service stops.
const GLANCE: Duration = Duration::from_millis(100);

/// All notes, and a sign for the watchers that wait for the next one.
#[derive(Default)]
struct Notes {
    texts: Mutex<Vec<String>>,
    added: Condvar,
}

fn answer(request: &mut Request<'_>, notes: &Arc<Notes>, stopper: &Stopper) -> Result<Response, BodyError> {
    Ok(match (request.method(), request.path()) {
        ("GET" | "HEAD", "/notes") => {
            Response::text(notes.texts.lock().iter().map(|text| format!("{text}\n")).collect::<String>())
        }
        ("POST", "/notes") => {
            let text = request.text()?;
            notes.texts.lock().push(text);
            notes.added.notify_all();
            Response::new(201).header("location", "/notes")
        }
        ("GET", "/watch") => {
            let (notes, stopper) = (notes.clone(), stopper.clone());
            Response::stream(move |out| watch(out, &notes, &stopper))
                .header("content-type", "text/plain; charset=utf-8")
        }
        (_, "/notes" | "/watch") => Response::new(405).header("allow", "GET, HEAD, POST"),
        _ => Response::new(404),
    })
}

/// Sends every note that comes from now on, until the service stops or the client goes away.
fn watch(out: &mut dyn Write, notes: &Notes, stopper: &Stopper) -> io::Result<()> {
    let mut seen = notes.texts.lock().len();
    while !stopper.is_draining() {
        let new: Vec<String> = {
            let mut texts = notes.texts.lock();
            if texts.len() == seen {
                notes.added.wait_for(&mut texts, GLANCE);
            }
            texts[seen..].to_vec()
        };
        seen += new.len();
        for text in &new {
            writeln!(out, "{text}")?;
        }
        if !new.is_empty() {
            out.flush()?;
        }
    }
    writeln!(out, "goodbye")
}

/// Stops the service when a signal asks for it: gracefully the first time, at once the second time.
fn stop_on_signals(stopper: Stopper) -> io::Result<()> {
    let signals = signal::listen([Signal::INT, Signal::TERM])?;
    // A daemon: it does not delay the end of the program.
    fibra::Builder::new().name("signals").daemon(true).spawn(move || {
        if let Ok(signal) = signals.recv() {
            eprintln!("{signal}: stopping; running requests have {GRACE:?}");
            stopper.drain(GRACE);
        }
        if signals.recv().is_ok() {
            stopper.stop();
        }
    })?;
    Ok(())
}

#[fibra::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let server = Server::builder()
        .max_body_bytes(64 << 10)
        .on_error(|error, from| eprintln!("{}: {error}", from.map_or_else(|| "?".to_owned(), |from| from.to_string())))
        .bind(address.as_str())?;

    stop_on_signals(server.stopper())?;
    println!("listening on http://{}", server.local_addr()?);
    let (notes, stopper) = (Arc::new(Notes::default()), server.stopper());
    let drained = server.serve(move |request| answer(request, &notes, &stopper))?;
    println!("stopped; {} connections were cut off", drained.cut_off);
    Ok(())
}
