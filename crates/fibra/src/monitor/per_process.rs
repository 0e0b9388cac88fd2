//! A process-wide value that a child of a fork makes anew, because the parent's value (threads, locks, lists of waiters) belongs to
//! threads that do not exist in the child.
//!
//! Above: `strays`, `signals`, and other layers with such a value. Below: `fork`, which counts.
//!
//! There is no lock, so none can be held by a thread that the child does not have. Values are never freed: the child does not touch the
//! parent's value, and there are as many values as there were forks.

use super::fork;
use crate::prim::atomic::{AtomicPtr, Ordering};

/// See the header.
pub(crate) struct PerProcess<T: 'static> {
    entry: AtomicPtr<ProcessValue<T>>,
    make: fn() -> T,
}

struct ProcessValue<T> {
    /// The fork generation it was made in.
    epoch: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { entry: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// The value of this process. Several threads may make one at once; one of them stays, and the others are dropped.
    pub(crate) fn get(&'static self) -> &'static T {
        // Acquire, here and below: pairs with the release of the thread that made the value.
        let mut seen = self.entry.load(Ordering::Acquire);
        // SAFETY: what was stored came from a box that is never freed.
        if let Some(entry) = unsafe { seen.as_ref() }
            && entry.epoch == fork::epoch()
        {
            return &entry.value;
        }
        // From the first value on, forks are counted.
        fork::set_up(|| {});
        let new = Box::into_raw(Box::new(ProcessValue { epoch: fork::epoch(), value: (self.make)() }));
        loop {
            // AcqRel: as above, and a thread that finds the new value finds it initialised. Acquire on failure.
            match self.entry.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it stays for ever, and is only shared from now on.
                Ok(_) => return unsafe { &(*new).value },
                Err(current) => {
                    // SAFETY: as above.
                    let other = unsafe { &*current };
                    if other.epoch == fork::epoch() {
                        // SAFETY: made here, and no other thread has seen it.
                        drop(unsafe { Box::from_raw(new) });
                        return &other.value;
                    }
                    seen = current;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PerProcess;
    use crate::prim::atomic::{AtomicU64, Ordering};

    #[test]
    fn one_value_for_all_threads() {
        static VALUE: PerProcess<AtomicU64> = PerProcess::new(|| AtomicU64::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    VALUE.get().fetch_add(1, Ordering::SeqCst);
                    std::ptr::from_ref(VALUE.get()).addr()
                })
            })
            .collect();
        let addresses: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(addresses.iter().all(|address| *address == addresses[0]));
        assert_eq!(VALUE.get().load(Ordering::SeqCst), 8);
    }
}
