//! Spans of [`tracing`] follow [`fibra`]'s fibers.
//!
//! A subscriber keeps the spans that are entered in a thread-local, and the fibers of a worker share their thread: without help, an event
//! of one fiber appears inside the span that another one has entered and waits in. After [`install`] the spans of a fiber are exited when
//! it leaves its worker and entered again when it runs, as `Instrument` does for a future; and every event of a fiber carries its id and
//! its name, in a span called `fiber`.
//!
//! ```
//! tracing_subscriber::fmt().with_writer(std::io::sink).init();
//! fibra_tracing::install();
//! fibra::run(|| {
//!     let requests: Vec<_> = (0..3)
//!         .map(|number| {
//!             fibra::spawn(move || {
//!                 let _span = tracing::info_span!("request", number).entered();
//!                 fibra::sleep(std::time::Duration::from_millis(1)); // the others enter their spans meanwhile
//!                 tracing::info!("done"); // fiber{id=2}:request{number=0}: done
//!             })
//!         })
//!         .collect();
//!     requests.into_iter().for_each(|request| request.join().unwrap());
//! });
//! ```
//!
//! What it does not do:
//!
//! * A child does not begin in the span of its parent, as a thread does not: move a `Span` into it and enter that.
//! * A subscriber that is set for a scope of code (`with_default`, `set_default`) inside a fiber is the thread's as long as it is set. Do
//!   not suspend inside, or set it for the process.
//! * A subscriber has to know what span is current (`Subscriber::current_span`), as `tracing_subscriber`'s `Registry` and all that is built
//!   on it do. For one that does not, nothing is changed.
//! * Layers are told of every exit and entry, so that the busy time of a span is the time that its fiber ran; a formatter that prints these
//!   (`FmtSpan::ENTER`) prints one line per suspension.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use fibra::hooks::SwitchHook;
use tracing::span::{EnteredSpan, Id};
use tracing::{Dispatch, Level, dispatcher, span};

/// Spans that are entered one inside the other, at most: against a subscriber whose current span does not change when it is exited.
const DEEPEST: usize = 256;

/// From now on spans follow fibers, and each fiber has a span with its id and name at level `INFO`: [`Follow::new`] with its defaults, for
/// the whole process and for good.
pub fn install() {
    Follow::new().install();
}

/// How spans follow fibers; see [`install`](Follow::install).
#[derive(Debug, Clone)]
#[must_use = "nothing follows until `install`"]
pub struct Follow {
    fiber_spans: Option<Level>,
}

impl Default for Follow {
    fn default() -> Self {
        Self::new()
    }
}

impl Follow {
    /// The defaults: every fiber has a span at level `INFO`.
    pub const fn new() -> Self {
        Self { fiber_spans: Some(Level::INFO) }
    }

    /// The level of the span `fiber { id, name }` that each fiber runs in, whose target is `fibra`; `None`: there is none.
    pub const fn fiber_spans(mut self, level: Option<Level>) -> Self {
        self.fiber_spans = level;
        self
    }

    /// From now on: for all fibers of the process that are spawned after this, and for the one that calls it, for good. A second call adds
    /// nothing but the cost of it.
    pub fn install(self) {
        fibra::hooks::install(Hook { follow: self });
    }
}

#[derive(Debug)]
struct Hook {
    follow: Follow,
}

/// The spans that a fiber was in when it left, the innermost first, each kept from being closed, and the subscriber whose they are.
#[derive(Debug, Default)]
struct Left {
    spans: Vec<Id>,
    dispatch: Option<Dispatch>,
}

impl Left {
    /// Exits every span that is entered on this thread.
    fn take() -> Self {
        dispatcher::get_default(|dispatch| {
            let mut left = Self::default();
            while left.spans.len() < DEEPEST
                && let Some(current) = dispatch.current_span().id()
            {
                // Exiting may close it, if nothing else has it: it is to be entered again.
                left.spans.push(dispatch.clone_span(current));
                dispatch.exit(current);
            }
            if !left.spans.is_empty() {
                left.dispatch = Some(dispatch.clone());
            }
            left
        })
    }

    /// Enters them again.
    fn enter(&self) {
        if let Some(dispatch) = &self.dispatch {
            self.spans.iter().rev().for_each(|span| dispatch.enter(span));
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(dispatch) = &self.dispatch {
            self.spans.drain(..).for_each(|span| _ = dispatch.try_close(span));
        }
    }
}

fibra::fiber_local! {
    /// The span of a fiber, which is exited and closed with the other locals at its end.
    static FIBER: RefCell<Option<EnteredSpan>> = RefCell::new(None);
}

/// A span with the id and the name of the fiber that runs here.
fn fiber_span(level: Level) -> Option<EnteredSpan> {
    let fiber = fibra::current()?;
    let (id, name) = (fiber.id().as_u64(), fiber.name());
    macro_rules! at {
        ($level:ident) => {
            span!(target: "fibra", parent: None, Level::$level, "fiber", id, name)
        };
    }
    let span = match level {
        Level::ERROR => at!(ERROR),
        Level::WARN => at!(WARN),
        Level::INFO => at!(INFO),
        Level::DEBUG => at!(DEBUG),
        Level::TRACE => at!(TRACE),
    };
    // A span that no subscriber wants need not be kept.
    (!span.is_disabled()).then(|| span.entered())
}

impl SwitchHook for Hook {
    type Saved = Left;

    fn started(&self) {
        if let Some(span) = self.follow.fiber_spans.and_then(fiber_span) {
            FIBER.with(|place| *place.borrow_mut() = Some(span));
        }
    }

    fn suspend(&self) -> Left {
        Left::take()
    }

    fn resume(&self, saved: Left) {
        saved.enter();
    }

    fn ended(&self) {
        // A guard that was forgotten: its span is not the next fiber's.
        drop(Left::take());
    }
}
