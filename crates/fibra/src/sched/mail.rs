//! A worker's mail: fibers that other threads woke or sent, and commands.
//!
//! Above: `worker.rs`, which reads it when there is some. Below: the inbox, and `shared.rs`, where others post.

use super::shared::Command;
use super::worker::Worker;
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::Ordering;

impl Worker {
    /// Reads what arrived from outside: bounded by what is there now.
    #[cold]
    #[inline(never)]
    pub(super) fn read_mail(&self) {
        let mail = &self.remote().mail;
        for frame in mail.inbox.take_all() {
            // SAFETY: frames live for ever.
            let frame: FrameRef = unsafe { frame.as_ref() };
            // Relaxed: this worker wrote it.
            if frame.stack.load(Ordering::Relaxed).is_null() {
                self.stats().injected.add(1);
            } else if frame.is_adrift() || frame.has(flag::MOVES) && self.arrives(frame) {
                self.stats().wakes_remote.add(1);
            } else {
                self.stats().parked.sub(1);
                self.stats().wakes_remote.add(1);
            }
            self.push_ready(frame);
        }
        for command in mail.take_commands() {
            self.obey(command);
        }
    }

    fn obey(&self, command: Command) {
        match command {
            Command::Flush(root) => {
                self.wake_root_owner(self.residents.tally.flush(root));
            }
            Command::Cancel { root: Some((root, life)), .. } if root.life() != life => {}
            Command::Cancel { root, daemons_only, reason } => {
                self.rules().cancel_started(self, root.map(|(root, _)| root), daemons_only, reason);
            }
            Command::CancelFiber(id) => self.rules().cancel_numbered(self, id),
            Command::TakeReturns(_) => self.take_returns(),
            Command::Scope { scope, life, order } => self.rules().tell_children(self, scope, life, order),
        }
    }
}
