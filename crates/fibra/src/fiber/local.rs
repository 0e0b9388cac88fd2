//! The store behind fiber-locals: a small map from key to boxed value, one per fiber (or per plain thread).
//!
//! The key is the address of the `static` that declares the local. Values are boxed, so a reference to one survives the map
//! growing. The map of a fiber hangs off the top of its stack and is dropped at its end, on its own stack; that of a thread hangs off a
//! thread-local (`task::locals`) and is dropped with the thread's other ones.

use std::any::Any;
use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::frame::{Frame, flag};
use super::top::FiberTop;
use crate::prim::discard_payload;

/// Clones a value for a child fiber.
pub(crate) type CloneValue = fn(&dyn Any) -> Box<dyn Any + Send>;

#[derive(Debug)]
struct LocalSlot {
    key: usize,
    value: Box<dyn Any>,
    inherit: Option<CloneValue>,
}

/// One fiber's locals.
#[derive(Debug, Default)]
pub(crate) struct LocalMap {
    slots: Vec<LocalSlot>,
}

impl LocalMap {
    /// The value of `key`, if it has been set or used.
    pub(crate) fn get(&self, key: usize) -> Option<*const dyn Any> {
        self.slots.iter().find(|slot| slot.key == key).map(|slot| &*slot.value as *const dyn Any)
    }

    /// Sets the value of `key`; the old one comes back.
    pub(crate) fn set(&mut self, key: usize, value: Box<dyn Any>, inherit: Option<CloneValue>) -> Option<Box<dyn Any>> {
        match self.slots.iter_mut().find(|slot| slot.key == key) {
            Some(slot) => Some(mem::replace(&mut slot.value, value)),
            None => {
                self.slots.push(LocalSlot { key, value, inherit });
                None
            }
        }
    }

    /// Is there a value that must not go to another thread? Values that children inherit are `Send`; of the others that is not known.
    pub(crate) fn must_stay(&self) -> bool {
        self.slots.iter().any(|slot| slot.inherit.is_none())
    }

    /// Takes the value of `key` out.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Box<dyn Any>> {
        let at = self.slots.iter().position(|slot| slot.key == key)?;
        Some(self.slots.remove(at).value)
    }

    /// The locals that a child starts with.
    pub(crate) fn inherited(&self) -> Inherited {
        let slots = self.slots.iter().filter_map(|slot| Some((slot.key, slot.inherit?, slot.inherit?(&*slot.value))));
        Inherited(slots.collect())
    }

    pub(crate) fn from_inherited(inherited: Inherited) -> Self {
        let slots = inherited.0.into_iter();
        Self { slots: slots.map(|(key, inherit, value)| LocalSlot { key, value, inherit: Some(inherit) }).collect() }
    }

    /// The value set last, to be dropped; destructors may set new ones, so the caller repeats this until nothing is left.
    pub(crate) fn pop(&mut self) -> Option<Box<dyn Any>> {
        self.slots.pop().map(|slot| slot.value)
    }
}

/// Values on their way from a parent to a child: `Send`, unlike the map they come from.
#[derive(Default)]
pub(crate) struct Inherited(Vec<(usize, CloneValue, Box<dyn Any + Send>)>);

impl Inherited {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Inherited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inherited").field("len", &self.0.len()).finish()
    }
}

/// As for thread-locals: after so many drops, a destructor that makes a new value each time is not run again.
const MOST_DROPS: usize = 1000;

/// At the end of a fiber, on its own stack: drops every local, shielded, panics caught. Destructors may set new locals; those are dropped
/// too. Nothing is left for the next fiber on this stack, which may be on another thread.
#[inline(always)]
pub(crate) fn drop_all(frame: &Frame, top: &FiberTop) {
    if !top.locals.get().is_null() {
        drop_all_slow(frame, top);
    }
}

#[cold]
#[inline(never)]
fn drop_all_slow(frame: &Frame, top: &FiberTop) {
    top.cancel.shields.set(top.cancel.shields.get() + 1);
    frame.raise(flag::HOLD_OFF);
    drop_values(&top.locals);
    top.cancel.shields.set(top.cancel.shields.get() - 1);
}

/// Drops the values of the map that `locals` points to, the one that was set last first, and then the map. Destructors find the
/// others through `locals` as before, and may set new ones.
pub(crate) fn drop_values(locals: &Cell<*mut ()>) {
    for _ in 0..MOST_DROPS {
        // SAFETY: a map of this fiber's or thread's own, made by `task::locals`; borrowed for `pop`, which calls no user code.
        let Some(value) = unsafe { locals.get().cast::<LocalMap>().as_mut() }.and_then(LocalMap::pop) else {
            break;
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
            discard_payload(payload);
        }
    }
    let map = locals.replace(ptr::null_mut()).cast::<LocalMap>();
    if !map.is_null() {
        // SAFETY: made with `Box::into_raw`, and off the fiber or thread now.
        let map = unsafe { Box::from_raw(map) };
        if !map.slots.is_empty() {
            // Dropping the rest would only make new values: they are leaked.
            mem::forget(map);
        }
    }
}
