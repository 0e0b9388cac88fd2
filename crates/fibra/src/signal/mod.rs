//! Signals of the system as messages of a channel.
//!
//! ```no_run
//! use fibra::{channel, select, signal};
//! use std::time::Duration;
//!
//! fibra::run(|| -> std::io::Result<()> {
//!     let stop = signal::ctrl_c()?;
//!     let second = channel::tick(Duration::from_secs(1));
//!     loop {
//!         select! {
//!             recv(stop) -> _ => return Ok(()),
//!             recv(second) -> _ => println!("working"),
//!         }
//!     }
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! * A receiver hears of the signals that come after [`listen`] has returned. Several receivers may listen to one signal: each hears of it.
//!   (Clones of one receiver share what it hears, as with every channel.)
//! * Signals are no counters: several of a kind that come before the first of them was received are one, as in the system itself. The
//!   receiver hears of each kind at least once after it came, and of different kinds in the order of coming, about.
//! * While somebody listens, the signal does not do what it does by itself: Ctrl-C no longer ends the program. When all receivers have
//!   been dropped, the next one does again. So `drop(stop)` before a long clean-up lets an impatient user end it.
//! * A receiver holds up nothing: it belongs to no runtime. Who waits on it is a fiber like others, which can be cancelled; to let a
//!   [`run`](crate::run) end beside it, make it a [daemon](crate::Builder::daemon). Receivers work on fibers of any runtime, on plain
//!   threads and in async code.
//! * A handler that was installed before, by whatever library, is still called. Programs that the process starts have none of this. A
//!   child that was forked without `exec` has no listeners, until it listens for itself.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::channel::{Receiver, Sender, bounded};
use crate::reactor::signals::{self, Listener};

/// A signal, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

macro_rules! names {
    ($($(#[$doc:meta])+ $name:ident = $number:ident;)+) => {
        impl Signal {
            $($(#[$doc])+ pub const $name: Self = Self(libc::$number);)+

            /// `SIGTERM` and the like; none for one without a name of its own.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$number => Some(stringify!($number)),)+
                    _ => None,
                }
            }
        }
    };
}

names! {
    /// Ctrl-C.
    INT = SIGINT;
    /// Please end: what `kill` and service managers send.
    TERM = SIGTERM;
    /// The terminal is gone; to a daemon: read your configuration again.
    HUP = SIGHUP;
    /// Ctrl-\.
    QUIT = SIGQUIT;
    /// For the program's own use.
    USR1 = SIGUSR1;
    /// For the program's own use.
    USR2 = SIGUSR2;
    /// A child process has exited or was stopped. To wait for one, use [`process`](crate::process).
    CHLD = SIGCHLD;
    /// A timer of the system.
    ALRM = SIGALRM;
    /// A write to a pipe that nobody reads. (Rust programs ignore it, and get an error instead.)
    PIPE = SIGPIPE;
    /// The terminal has another size.
    WINCH = SIGWINCH;
    /// Go on after having been stopped.
    CONT = SIGCONT;
    /// Ctrl-Z.
    TSTP = SIGTSTP;
}

impl Signal {
    /// The signal with this number.
    #[must_use]
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

impl From<i32> for Signal {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One or several signals: a [`Signal`] or its number, or an array, a slice or a `Vec` of them.
pub trait Signals {
    /// All of them.
    fn signals(&self) -> Vec<Signal>;
}

impl Signals for Signal {
    fn signals(&self) -> Vec<Signal> {
        vec![*self]
    }
}

impl Signals for i32 {
    fn signals(&self) -> Vec<Signal> {
        vec![Signal(*self)]
    }
}

impl<S: Into<Signal> + Copy> Signals for [S] {
    fn signals(&self) -> Vec<Signal> {
        self.iter().map(|signal| (*signal).into()).collect()
    }
}

impl<S: Into<Signal> + Copy, const N: usize> Signals for [S; N] {
    fn signals(&self) -> Vec<Signal> {
        self[..].signals()
    }
}

impl<S: Into<Signal> + Copy> Signals for Vec<S> {
    fn signals(&self) -> Vec<Signal> {
        self[..].signals()
    }
}

impl<S: Signals + ?Sized> Signals for &S {
    fn signals(&self) -> Vec<Signal> {
        (**self).signals()
    }
}

/// Listens to Ctrl-C (`SIGINT`); see the [module](self).
///
/// # Errors
/// The system has no descriptor or thread for it.
pub fn ctrl_c() -> io::Result<Receiver<Signal>> {
    listen(Signal::INT)
}

/// Listens to one or several signals; see the [module](self).
///
/// ```no_run
/// use fibra::signal::{self, Signal};
///
/// fibra::run(|| {
///     for signal in signal::listen([Signal::TERM, Signal::HUP]).unwrap() {
///         match signal {
///             Signal::HUP => println!("reading the configuration again"),
///             other => return println!("ending because of {other}"),
///         }
///     }
/// });
/// ```
///
/// # Errors
/// `SIGKILL` and `SIGSTOP`, which nobody can hear; `SIGSEGV`, `SIGBUS`, `SIGFPE` and `SIGILL`, which cannot wait; a number that is no
/// signal; no signal at all. Or the system has no descriptor or thread for it.
pub fn listen(to: impl Signals) -> io::Result<Receiver<Signal>> {
    let mut numbers: Vec<i32> = to.signals().into_iter().map(Signal::as_raw).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no signal to listen to"));
    }
    let (sender, receiver) = bounded(numbers.len());
    signals::listen(Box::new(Ear { numbers: numbers.clone(), sender, queued: VecDeque::new() }), &numbers)?;
    Ok(receiver)
}

/// The other end of a receiver.
struct Ear {
    numbers: Vec<i32>,
    sender: Sender<Signal>,
    /// What was sent last: the end of it, as long as the channel, is what nobody has received yet.
    queued: VecDeque<Signal>,
}

impl Listener for Ear {
    fn hears(&self, signal: i32) -> bool {
        self.numbers.binary_search(&signal).is_ok()
    }

    fn is_gone(&self) -> bool {
        self.sender.has_closed()
    }

    fn tell(&mut self, signal: i32) -> bool {
        let signal = Signal(signal);
        // What is received from now on is received after the signal came: then it counts for this one too.
        let unheard = self.sender.len();
        while self.queued.len() > unheard {
            self.queued.pop_front();
        }
        if self.queued.contains(&signal) {
            return !self.is_gone();
        }
        // Each kind is in there at most once, so there is room.
        let sent = self.sender.try_send(signal).is_ok();
        if sent {
            self.queued.push_back(signal);
        }
        sent
    }
}
