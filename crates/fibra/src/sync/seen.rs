//! The state of a lock that a fiber waits for, as a report reads it: its holder, or how much of it is left.
//!
//! The lock may be freed as soon as no fiber waits for it, so its methods are not called: the kernel reads its word (`prim::peek`), at the
//! address that the wait record of the fiber names. The result counts only if the fiber is still in the same wait afterwards, which the
//! caller checks. Above: `inspect`. Below: `owner`, `prim::peek`.

use super::mutex::raw::RawMutex;
use super::owner;
pub(crate) use super::owner::Holder;
use super::rwlock::raw::RawRwLock;
use super::semaphore::Semaphore;
use crate::prim::peek::peek_words;

/// The holder of the mutex at this address.
pub(crate) fn mutex(address: usize) -> Option<Holder> {
    let (place, holder) = RawMutex::SEEN;
    let [word] = peek_words(address.checked_add(place)?)?;
    Some(owner::holder(word & holder))
}

/// The writer of the read-write lock at this address, and the number of its readers.
pub(crate) fn rwlock(address: usize) -> Option<(Holder, usize)> {
    let (word, writer) = RawRwLock::SEEN;
    let [word] = peek_words(address.checked_add(word)?)?;
    let [writer] = peek_words(address.checked_add(writer)?)?;
    let (is_written, readers) = RawRwLock::read_word(word);
    Some((if is_written { owner::holder_by_number(writer as u64) } else { Holder::None }, readers))
}

/// How many permits the semaphore at this address has left, and how many there are in all.
pub(crate) fn semaphore(address: usize) -> Option<(usize, usize)> {
    let (left, total) = Semaphore::SEEN;
    let [left] = peek_words(address.checked_add(left)?)?;
    let [total] = peek_words(address.checked_add(total)?)?;
    Some((Semaphore::read_word(left), total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::rwlock::raw::want;
    use std::ptr::from_ref;

    #[test]
    fn what_is_read_is_what_is_so() {
        let raw = RawMutex::new();
        let address = from_ref(&raw).addr();
        assert_eq!(mutex(address), Some(Holder::None));
        assert!(raw.try_lock(owner::me()));
        assert_eq!(mutex(address), Some(Holder::Thread));
        raw.unlock();
        assert_eq!(mutex(address), Some(Holder::None));
        let permits = Semaphore::new(5);
        let held = permits.acquire(2).unwrap();
        assert_eq!(semaphore(from_ref(&permits).addr()), Some((3, 5)));
        drop(held);
        let raw = RawRwLock::new();
        let address = from_ref(&raw).addr();
        assert_eq!(rwlock(address), Some((Holder::None, 0)));
        assert!(raw.try_take(want::READ) && raw.try_take(want::READ));
        assert_eq!(rwlock(address), Some((Holder::None, 2)));
        let raw = RawRwLock::new();
        let address = from_ref(&raw).addr();
        assert!(raw.try_take(want::WRITE));
        assert_eq!(rwlock(address), Some((Holder::Unnamed, 0)), "whose it is, is noted by the guard");
    }
}
