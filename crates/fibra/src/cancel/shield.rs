//! Shields: cancellation is held off while one is open. `levels.rs` counts how much is held off, and for which scopes; `grace.rs` says when
//! shields end before they are closed. Above: `task::fiber::shield`. Below: `fiber::top::CancelState`.

use crate::fiber::frame::flag;
use crate::fiber::top::CancelState;
use crate::sched::here::Here;

/// An open shield of the current fiber or thread; dropping it closes it.
pub(crate) struct Shield<'a>(&'a CancelState);

impl Shield<'_> {
    /// `None` where nothing can be cancelled.
    pub(crate) fn open() -> Option<Self> {
        let here = Here::new()?;
        here.state.shields.set(here.state.shields.get() + 1);
        if let Some((_, frame)) = here.fiber {
            frame.raise(flag::HOLD_OFF);
        }
        Some(Shield(here.state))
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        self.0.shields.set(self.0.shields.get() - 1);
    }
}
