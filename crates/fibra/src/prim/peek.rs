//! Reads memory of this process that may be gone or be written by another thread meanwhile.
//!
//! A report wants to see what a parked fiber has on its stack, or the word of the lock that it waits for. The fiber may go on at any
//! moment, and then the stack is in use again, and the lock may be freed. A load would be a data race, or a fault. So the kernel reads,
//! with `process_vm_readv` on our own process: memory that is not there is an error and no fault, and what is written meanwhile is read in
//! some state. Whether what was read means anything is for the caller to find out afterwards: it looks whether the fiber is still
//! in the same wait (the ticket of its word), during which the stack and the lock stay as they are.
//!
//! Above: the backtraces of `monitor::stall`, and `inspect`. Safe in a signal handler: no lock, no allocation.

use std::mem::MaybeUninit;

/// The kernel copies a piece whole or not at all, so that one is read page by page. This is also the smallest page.
const PAGE: usize = 4096;
/// Pages that are read with one call.
const PAGES: usize = 17;

/// Copies memory from `address` on, as much as there is of it and there is room for. Says how many bytes were written to `to`, from its
/// beginning.
pub(crate) fn peek(address: usize, to: &mut [MaybeUninit<u8>]) -> usize {
    let mut done = 0;
    while done < to.len() {
        let read = peek_pages(address.wrapping_add(done), &mut to[done..]);
        done += read.0;
        if read.0 < read.1 {
            break;
        }
    }
    done
}

/// One call: how many bytes were read, and how many were asked for.
fn peek_pages(from: usize, to: &mut [MaybeUninit<u8>]) -> (usize, usize) {
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PAGES];
    let (mut count, mut at) = (0, 0);
    while at < to.len() && count < PAGES {
        let Some(start) = from.checked_add(at) else { break };
        // To the end of its page.
        let part = (PAGE - start % PAGE).min(to.len() - at);
        parts[count] = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: part };
        count += 1;
        at += part;
    }
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: at };
    // SAFETY: the kernel writes at most `at` bytes into `to`, which has as many; what it reads it looks at itself.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, parts.as_ptr(), count as libc::c_ulong, 0) };
    (usize::try_from(read).unwrap_or(0), at.max(1))
}

/// The bytes from `address` on, at most so many; fewer if there is no more memory.
pub(crate) fn peek_bytes(address: usize, most: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(most);
    let read = peek(address, &mut bytes.spare_capacity_mut()[..most]);
    // SAFETY: so many bytes were written by the kernel, into the vector's own memory.
    unsafe { bytes.set_len(read) };
    bytes
}

/// Words from `address` on, all of them or none.
pub(crate) fn peek_words<const N: usize>(address: usize) -> Option<[usize; N]> {
    let mut words = [MaybeUninit::<usize>::uninit(); N];
    let size = size_of_val(&words);
    // SAFETY: the same memory as bytes, which may be uninitialised in both.
    let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<MaybeUninit<u8>>(), size) };
    // SAFETY: all of it was written, if as much was read.
    (peek(address, bytes) == size).then(|| words.map(|word| unsafe { word.assume_init() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_no_fault() {
        let words: Vec<usize> = (0..100_000).collect();
        let address = words.as_ptr().addr();
        assert_eq!(peek_words::<3>(address + 10 * size_of::<usize>()), Some([10, 11, 12]));
        let bytes = peek_bytes(address, size_of_val(&words[..]));
        assert_eq!(bytes.len(), size_of_val(&words[..]), "more than one call reads");
        assert_eq!(bytes[size_of::<usize>() * 99_999..], 99_999_usize.to_ne_bytes());
        assert_eq!(peek_words::<1>(8), None, "nothing is mapped there");
        assert_eq!(peek_words::<2>(usize::MAX - 7), None, "the end of all addresses");
        assert!(peek_bytes(16, 5000).is_empty());
    }
}
