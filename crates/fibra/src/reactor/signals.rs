//! The listeners to signals of the system, and the one thread that tells them.
//!
//! Above: `signal`, whose listeners are the sending ends of channels. Below: `driver::signal`, whose handler notes the signal and rings a
//! bell.
//!
//! The process has one such thread. The first call of [`listen`] starts it; it sleeps in the kernel until a signal comes. The thread never
//! ends, belongs to no runtime and delays no shutdown. A child of a fork has no listeners; its first listener starts a thread of its own.
//!
//! * The thread tells a listener outside of the lock: telling may call wakers, which are user code.
//! * A signal that comes after its last listener has gone has the effect that it would have had without this runtime, and so has every
//!   later one.

use std::io;

use crate::driver::signal::{self, Bell, SIGNALS};
use crate::monitor::per_process::PerProcess;
use crate::prim::sync::Mutex;
use crate::prim::{say, thread};

/// A receiver of signals: in practice the sending end of a channel.
pub(crate) trait Listener: Send {
    fn hears(&self, signal: i32) -> bool;
    /// The listener's channel has no receiver any more: telling it has no effect.
    fn is_gone(&self) -> bool;
    /// False: it is gone.
    fn tell(&mut self, signal: i32) -> bool;
    /// May it wake fibers?
    fn wakes(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct SignalDesk {
    state: Mutex<SignalListeners>,
}

#[derive(Default)]
struct SignalListeners {
    started: bool,
    listeners: Vec<Box<dyn Listener>>,
}

static DESK: PerProcess<SignalDesk> = PerProcess::new(SignalDesk::default);

impl SignalListeners {
    fn has_listener(&self, signal: i32) -> bool {
        self.listeners.iter().any(|listener| listener.hears(signal) && !listener.is_gone())
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.started {
            let bell = Bell::open()?;
            thread::start_quiet("fibra-signal".to_owned(), move || serve(&bell))?;
            self.started = true;
        }
        Ok(())
    }
}

/// May a signal wake a fiber?
pub(crate) fn may_wake() -> bool {
    DESK.get().state.lock().listeners.iter().any(|listener| listener.wakes() && !listener.is_gone())
}

/// From now on the listener is told of these signals.
///
/// # Errors
/// One of the signals cannot be listened to, or the system has no descriptor or thread for the bell. Nothing has changed then.
pub(crate) fn listen(listener: Box<dyn Listener>, signals: &[i32]) -> io::Result<()> {
    for signal in signals {
        signal::check(*signal)?;
    }
    let mut state = DESK.get().state.lock();
    state.start()?;
    state.listeners.retain(|listener| !listener.is_gone());
    state.listeners.push(listener);
    // Installed after the listener is in the list: it hears every signal from now on.
    let mut new = Vec::new();
    let installed = signals.iter().try_for_each(|signal| {
        if signal::install(*signal)? {
            new.push(*signal);
        }
        Ok(())
    });
    if installed.is_err() {
        state.listeners.pop();
        // Restores only the signals that this call installed. Other listeners may be missing from the list at this moment, because
        // `tell` has taken them out to tell them of a signal; so the list does not show which signals still have listeners.
        for signal in new {
            signal::restore(signal);
        }
    }
    installed
}

fn serve(bell: &Bell) {
    loop {
        if let Err(error) = bell.wait() {
            return say(format_args!("fibra: signals are not heard any more: {error}"));
        }
        for signal in 1..SIGNALS as i32 {
            if signal::take_pending(signal) {
                tell(signal);
            }
        }
    }
}

fn tell(signal: i32) {
    let desk = DESK.get();
    let mut listeners = std::mem::take(&mut desk.state.lock().listeners);
    let mut heard = false;
    for listener in listeners.iter_mut().filter(|listener| listener.hears(signal)) {
        heard |= listener.tell(signal);
    }
    let mut state = desk.state.lock();
    // Listeners that were added meanwhile came too late for this signal.
    listeners.append(&mut state.listeners);
    listeners.retain(|listener| !listener.is_gone());
    state.listeners = listeners;
    // Under the lock: the next listener installs the handler again, after this. (The listener that was told of the signal may be gone by
    // now. Then the signal has had its effect.)
    if !state.has_listener(signal) && signal::restore(signal) && !heard {
        signal::send_to_self(signal);
    }
}
