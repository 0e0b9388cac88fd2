//! How many panics are unwinding on this thread: the number behind `thread::panicking()`, which says only whether there is one.
//!
//! Fibers that wait in destructors leave their panics on the thread's count, so for their neighbours `thread::panicking()` is true all the
//! time, and it does not tell whether a neighbour unwinds itself, or has caught its panic. The number does (`cancel::unwinding`).
//!
//! std does not publish the number. It keeps it in a thread-local, so it is looked for there, once per process: of the words in the
//! thread-local memory of every loaded module, the one that goes up by one when an unwinding begins, by another one when a second
//! begins inside the first, and down again as they are caught. `dl_iterate_phdr` says where that memory is. It is only ever read, and on
//! each further thread the place is tried out before it is believed. If there is not exactly one such word (another std, another way to
//! keep thread-locals), [`count`] says None, and `cancel::unwinding` has to guess. See docs/decisions/0040.
//!
//! No trial is made inside a panic hook: std does not count an unwinding that begins there, but takes its end off the number.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use super::atomic::{AtomicBool, Ordering};
use super::thread;

/// Thread-local memory of a module beyond this size is not searched.
const MOST_BYTES: usize = 1 << 20;

/// The place of the number: the module in whose thread-local memory it is, and the offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountLocation {
    module: usize,
    offset: usize,
}

/// The thread-local memory of one module, on the calling thread.
struct Block {
    module: usize,
    start: *const usize,
    words: usize,
}

/// The address of the number on one thread.
#[derive(Clone, Copy)]
enum Address {
    NotAsked,
    NotThere,
    At(*const usize),
}

thread_local! {
    static ADDRESS: Cell<Address> = const { Cell::new(Address::NotAsked) };
}

/// For tests: [`count`] behaves as if the number were not found.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// How many unwindings have begun on this thread and have not been caught. The first call on a thread costs some microseconds and a few
/// kilobytes of stack; workers make it when they start.
pub(crate) fn count() -> Option<usize> {
    match address() {
        // SAFETY: in this thread's own thread-local memory, which stays while the thread runs.
        Address::At(address) => Some(unsafe { read(address) }),
        Address::NotAsked | Address::NotThere => None,
    }
}

fn address() -> Address {
    // Relaxed: set before the runtime that asks is built.
    if HIDDEN.load(Ordering::Relaxed) {
        return Address::NotThere;
    }
    match ADDRESS.get() {
        Address::NotAsked => ask(),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn ask() -> Address {
    let address = match place_here() {
        None => Address::NotThere,
        // std does not count an unwinding that begins inside a hook, but counts its end: no trial may be made here. So the place is
        // believed this once.
        Some(address) if is_hook_called(address) => return Address::At(address),
        Some(address) if follows(address) => Address::At(address),
        Some(_) => Address::NotThere,
    };
    ADDRESS.set(address);
    address
}

/// Is a panic hook being called on this thread? std has a flag for that beside the number, as its `Cell<(usize, bool)>` is laid out; if
/// the number was not found the answer is no. A wrong word there could only give a wrong answer, as with the number.
#[cold]
pub(crate) fn is_in_hook() -> bool {
    matches!(address(), Address::At(address) if is_hook_called(address))
}

/// The flag behind the number.
fn is_hook_called(number: *const usize) -> bool {
    // SAFETY: in this thread's own thread-local memory, which stays while the thread runs; `find` has made sure that a word follows.
    unsafe { number.add(1).cast::<u8>().read_volatile() == 1 }
}

/// For tests: from now on [`count`] finds nothing, on any thread.
pub(crate) fn hide() {
    // Relaxed: see `count`.
    HIDDEN.store(true, Ordering::Relaxed);
}

/// The place where the number should be on this thread.
fn place_here() -> Option<*const usize> {
    static PLACE: OnceLock<Option<CountLocation>> = OnceLock::new();
    if cfg!(panic = "abort") {
        return None;
    }
    let place = (*PLACE.get_or_init(find_where_nothing_unwinds))?;
    if !std::thread::panicking() {
        // Some thread-local memory is made when it is first used.
        while_unwinding(|| ());
    }
    let block = blocks().into_iter().find(|block| block.module == place.module)?;
    Some(block.start.wrapping_byte_add(place.offset))
}

/// Tries out whether the word at this address follows the number of unwindings.
fn follows(address: *const usize) -> bool {
    // SAFETY: inside the block, which is of the same size on every thread.
    let read_it = || unsafe { read(address) };
    let before = read_it();
    let mut during = before;
    while_unwinding(|| during = read_it());
    let after = read_it();
    during == before.wrapping_add(1) && after == before && (before != 0) == std::thread::panicking()
}

/// [`find`], on a thread of its own if something unwinds here: this may be a hook, where no trial may be made.
fn find_where_nothing_unwinds() -> Option<CountLocation> {
    if !std::thread::panicking() {
        return find();
    }
    let found = Arc::new(OnceLock::new());
    let finds = found.clone();
    let thread = thread::start("fibra-panics".to_owned(), move || finds.set(find()).expect("set once")).ok()?;
    thread.join().ok()?;
    found.get().copied().flatten()
}

/// Looks for the one word that follows the number of unwindings.
fn find() -> Option<CountLocation> {
    while_unwinding(|| ());
    let blocks = blocks();
    let at_rest = words(&blocks);
    let (mut one, mut two, mut one_again) = (Vec::new(), Vec::new(), Vec::new());
    while_unwinding(|| {
        one = words(&blocks);
        while_unwinding(|| two = words(&blocks));
        one_again = words(&blocks);
    });
    let at_rest_again = words(&blocks);
    let follows = |index: usize| {
        let value = at_rest[index];
        one[index] == value.wrapping_add(1)
            && two[index] == value.wrapping_add(2)
            && one_again[index] == one[index]
            && at_rest_again[index] == value
            && (value != 0) == std::thread::panicking()
    };
    let mut following = (0..at_rest.len()).filter(|index| follows(*index));
    let (Some(mut index), None) = (following.next(), following.next()) else { return None };
    for block in &blocks {
        // (The word behind it is read too.)
        if index + 1 == block.words {
            return None;
        }
        if index < block.words {
            return Some(CountLocation { module: block.module, offset: index * size_of::<usize>() });
        }
        index -= block.words;
    }
    None
}

/// Calls `f` while an unwinding of this thread is under way: from a destructor. `f` must not panic.
fn while_unwinding(f: impl FnMut()) {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(|| {
        let _on_drop = OnDrop(f);
        resume_unwind(Box::new(()))
    }));
    debug_assert!(caught.is_err());
}

/// The current values of all words of these blocks, one after the other.
fn words(blocks: &[Block]) -> Vec<usize> {
    let mut words = Vec::with_capacity(blocks.iter().map(|block| block.words).sum());
    for block in blocks {
        // SAFETY: inside the block, which is the calling thread's, like all that `blocks` gives out.
        words.extend((0..block.words).map(|index| unsafe { read(block.start.add(index)) }));
    }
    words
}

/// # Safety
/// The address is in the calling thread's thread-local memory, and aligned. (Volatile, because the compiler does not know that other code
/// keeps its thread-locals there.)
unsafe fn read(address: *const usize) -> usize {
    // SAFETY: mapped as long as the thread runs, and written by this thread only.
    unsafe { address.read_volatile() }
}

/// The thread-local memory of this thread.
#[cfg(target_os = "linux")]
fn blocks() -> Vec<Block> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, size: usize, blocks: *mut c_void) -> c_int {
        if size < size_of::<libc::dl_phdr_info>() {
            return 0;
        }
        // SAFETY: the C library's structure, valid for this call and as long as it says; the vector is ours, from below.
        let (info, blocks) = unsafe { (&*info, &mut *blocks.cast::<Vec<Block>>()) };
        if info.dlpi_tls_data.is_null() || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the headers of a loaded module, as many as it says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS) {
            let (from, bytes) = (info.dlpi_tls_data.addr(), header.p_memsz as usize);
            let start = from.next_multiple_of(size_of::<usize>());
            let words = (from + bytes).saturating_sub(start) / size_of::<usize>();
            if bytes <= MOST_BYTES {
                let start = info.dlpi_tls_data.cast_const().cast::<usize>().with_addr(start);
                blocks.push(Block { module: info.dlpi_tls_modid, start, words });
            }
        }
        0
    }
    let mut blocks: Vec<Block> = Vec::new();
    // SAFETY: `add` gets what the C library promises, and the vector, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add), std::ptr::from_mut(&mut blocks).cast()) };
    blocks
}

#[cfg(not(target_os = "linux"))]
fn blocks() -> Vec<Block> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::{count, while_unwinding};

    #[test]
    fn the_number_is_found_and_is_each_threads_own() {
        let nested = || {
            assert_eq!(count(), Some(0));
            while_unwinding(|| {
                assert_eq!(count(), Some(1));
                while_unwinding(|| assert_eq!(count(), Some(2)));
                assert_eq!(count(), Some(1));
            });
            assert_eq!(count(), Some(0));
        };
        nested();
        while_unwinding(|| std::thread::spawn(nested).join().unwrap());
    }

    #[test]
    fn a_hook_is_seen_from_inside_of_it_and_nowhere_else() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static SEEN: AtomicBool = AtomicBool::new(false);
        assert!(!super::is_in_hook());
        let before = std::panic::take_hook();
        let me = std::thread::current().id();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == me {
                SEEN.store(super::is_in_hook(), Ordering::SeqCst);
            } else {
                before(info);
            }
        }));
        let caught = std::panic::catch_unwind(|| panic!("on purpose"));
        assert!(caught.is_err());
        assert!(SEEN.load(Ordering::SeqCst));
        while_unwinding(|| assert!(!super::is_in_hook()));
        assert!(!super::is_in_hook());
    }

    #[test]
    fn a_thread_that_asks_first_while_it_unwinds_is_told_the_number_too() {
        std::thread::spawn(|| {
            while_unwinding(|| {
                while_unwinding(|| assert_eq!(count(), Some(2)));
            });
            assert_eq!(count(), Some(0));
        })
        .join()
        .unwrap();
    }
}
