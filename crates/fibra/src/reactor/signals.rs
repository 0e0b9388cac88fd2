//! Who listens to which signal of the system, and the thread that tells them.
//!
//! Above: `signal`, whose listeners are the ends of channels. Below: `driver::signal`, whose handler rings a bell.
//!
//! One thread for the whole process, started by the first who listens, asleep in the kernel until a signal comes. It never ends, belongs to
//! no runtime and holds up none. A child of a fork has no listeners and starts its own thread with its first.
//!
//! * A listener is told outside of the lock: telling may call wakers, which are user code.
//! * A signal that comes when nobody listens to it any more does what it would have done without us, and so does every later one.

use std::io;

use crate::driver::signal::{self, Bell, SIGNALS};
use crate::monitor::per_process::PerProcess;
use crate::prim::sync::Mutex;
use crate::prim::{say, thread};

/// Somebody who listens.
pub(crate) trait Listener: Send {
    fn hears(&self, signal: i32) -> bool;
    /// Nobody would hear of it any more.
    fn is_gone(&self) -> bool;
    /// False: it is gone.
    fn tell(&mut self, signal: i32) -> bool;
    /// May it wake fibers?
    fn wakes(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    listeners: Vec<Box<dyn Listener>>,
}

static DESK: PerProcess<Desk> = PerProcess::new(Desk::default);

impl State {
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
/// One of them can be listened to by nobody, or the system has no descriptor or thread for it. Nothing has changed then.
pub(crate) fn listen(listener: Box<dyn Listener>, signals: &[i32]) -> io::Result<()> {
    for signal in signals {
        signal::check(*signal)?;
    }
    let mut state = DESK.get().state.lock();
    state.start()?;
    state.listeners.retain(|listener| !listener.is_gone());
    state.listeners.push(listener);
    // After it is in the list: what comes from now on is heard.
    let mut new = Vec::new();
    let installed = signals.iter().try_for_each(|signal| {
        if signal::install(*signal)? {
            new.push(*signal);
        }
        Ok(())
    });
    if installed.is_err() {
        state.listeners.pop();
        // Only these: who else listens may not be in the list, because they are being told of something.
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
    // Those who came meanwhile were too late for this one.
    listeners.append(&mut state.listeners);
    listeners.retain(|listener| !listener.is_gone());
    state.listeners = listeners;
    // Under the lock: who listens next installs it again, after this. (Whoever has heard of it may be gone by now. Then it has had its
    // effect.)
    if !state.has_listener(signal) && signal::restore(signal) && !heard {
        signal::send_to_self(signal);
    }
}
