//! Names the function that recursed when a fiber ran off its stack: the one with the most frequent return address among the innermost
//! frames.
//!
//! Above: the overflow report, in a signal handler. Below: `prim::peek`, plain system calls.
//!
//! # Invariants
//! * No lock and no allocation: the fiber may have overflowed inside the allocator or the loader. So nothing of theirs is asked. Which
//!   memory is code comes from `/proc/self/maps`, the stack is read by the kernel, and the name comes from the symbol table of the
//!   program's file, read piece by piece with `pread`. A helper thread with the usual tools was the alternative: it would
//!   have to exist in every process, and would hang if the fiber held the allocator's lock.
//! * The report is printed before: whatever is missing or broken here costs no more than this line.

use std::ffi::CStr;
use std::fmt::Write;
use std::mem::MaybeUninit;

use super::ReportBuffer;
use crate::prim::peek::peek;

/// So much of the stack is looked at, from its innermost frame on.
const LOOKED_AT: usize = 64 << 10;
/// A return address that is there so often recurses. (A function that overflows the smallest stack with fewer frames has large ones.)
const OFTEN: u32 = 8;
/// Different return addresses that are counted: a circle of more functions than this is not found.
const DIFFERENT: usize = 128;
/// Mappings of code that are known: the program and its libraries.
const MAPPINGS: usize = 64;

/// A word of the stack, and how often it was seen.
type Seen = (usize, u32);

/// Writes which function recursed between these addresses of a stack, if one did.
pub(super) fn write(sp: usize, top: usize, out: &mut ReportBuffer) {
    let Some((address, times)) = most_frequent(sp, top) else { return };
    let mut place = CodePlace::default();
    if !place.find(address) {
        return;
    }
    let _ = out.write_str("fibra: it recursed in ");
    // A return address lies behind the call: the call may be the function's last instruction.
    let named = place.write_function(address - 1, out);
    if !named {
        let _ = out.write_str("a function without a name");
    }
    let _ = writeln!(
        out,
        ": its innermost 64 KiB hold the same return address {times} times. (The line: addr2line -Cfie {} {:#x})",
        place.path().to_str().unwrap_or("?"),
        place.address_in_file(address - 1).unwrap_or(address - 1),
    );
}

/// The return address that is most often in the innermost part of the stack. Among equals the innermost.
fn most_frequent(sp: usize, top: usize) -> Option<Seen> {
    let mut code = [(0, 0); MAPPINGS];
    let mut mappings = 0;
    each_mapping(|mapping| {
        if mapping.is_code && mappings < MAPPINGS {
            code[mappings] = (mapping.start, mapping.end);
            mappings += 1;
        }
        true
    });
    let code = &code[..mappings];
    let mut seen: [Seen; DIFFERENT] = [(0, 0); DIFFERENT];
    let mut different = 0;
    let mut at = sp.next_multiple_of(size_of::<usize>());
    let end = top.min(sp.saturating_add(LOOKED_AT));
    let mut piece = [MaybeUninit::<u8>::uninit(); 2048];
    while at < end {
        let wanted = piece.len().min(end - at);
        let read = peek(at, &mut piece[..wanted]);
        // SAFETY: so many bytes were written by the kernel.
        let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr().cast::<u8>(), read) };
        for word in bytes.chunks_exact(size_of::<usize>()) {
            let word = usize::from_ne_bytes(word.try_into().unwrap_or_default());
            if !code.iter().any(|(start, end)| (start..end).contains(&&word)) {
                continue;
            }
            match seen[..different].iter_mut().find(|(address, _)| *address == word) {
                Some((_, times)) => *times += 1,
                None if different < DIFFERENT => {
                    seen[different] = (word, 1);
                    different += 1;
                }
                None => {}
            }
        }
        if read < wanted {
            break;
        }
        at += read;
    }
    // (`max_by_key` would return the last of several.)
    let most = seen[..different].iter().rev().max_by_key(|(_, times)| *times)?;
    (most.1 >= OFTEN).then_some(*most)
}

// ---- The mappings ----------------------------------------------------------------------------------------------------

struct Mapping<'a> {
    start: usize,
    end: usize,
    is_code: bool,
    /// Where in its file it begins.
    offset: usize,
    /// Empty if it has no file.
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// A line such as `55d0c000-55d0e000 r-xp 00001000 08:01 1234   /usr/bin/program`.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(6, |byte| *byte == b' ');
        let mut range = parts.next()?.splitn(2, |byte| *byte == b'-');
        let (start, end) = (hex(range.next()?)?, hex(range.next()?)?);
        let is_code = parts.next()?.get(2) == Some(&b'x');
        let offset = hex(parts.next()?)?;
        let path = parts.nth(2).unwrap_or_default().trim_ascii();
        Some(Self { start, end, is_code, offset, path })
    }
}

fn hex(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Calls `f` with each mapping of the process, until it returns false. Lines that are too long for the buffer are left out.
fn each_mapping(mut f: impl FnMut(&Mapping<'_>) -> bool) {
    let Some(file) = File::open(c"/proc/self/maps") else { return };
    let mut buffer = [0; 2048];
    let mut held = 0;
    loop {
        let read = file.read(&mut buffer[held..]);
        held += read;
        let mut from = 0;
        while let Some(len) = buffer[from..held].iter().position(|byte| *byte == b'\n') {
            if Mapping::parse(&buffer[from..from + len]).is_some_and(|mapping| !f(&mapping)) {
                return;
            }
            from += len + 1;
        }
        if read == 0 {
            return;
        }
        buffer.copy_within(from..held, 0);
        held -= from;
        if held == buffer.len() {
            held = 0;
        }
    }
}

// ---- The file of the code ----------------------------------------------------------------------------------------------

/// The file that an address was loaded from.
struct CodePlace {
    path: [u8; 512],
    /// Start of the mapping, and where in the file it begins.
    mapping: (usize, usize),
    file: Option<File>,
}

impl Default for CodePlace {
    fn default() -> Self {
        Self { path: [0; 512], mapping: (0, 0), file: None }
    }
}

impl CodePlace {
    fn find(&mut self, address: usize) -> bool {
        let mut found = false;
        each_mapping(|mapping| {
            if !(mapping.start..mapping.end).contains(&address) {
                return true;
            }
            if mapping.path.first() == Some(&b'/') && mapping.path.len() < self.path.len() {
                self.path[..mapping.path.len()].copy_from_slice(mapping.path);
                self.mapping = (mapping.start, mapping.offset);
                found = true;
            }
            false
        });
        if found {
            self.file = File::open(self.path());
        }
        found
    }

    fn path(&self) -> &CStr {
        // (There is always a zero at the end.)
        CStr::from_bytes_until_nul(&self.path).unwrap_or_default()
    }

    /// The address by which the file knows it.
    fn address_in_file(&self, address: usize) -> Option<usize> {
        let file = self.file.as_ref()?;
        let offset = address - self.mapping.0 + self.mapping.1;
        let header = file.header()?;
        // Program headers: the one that loads this part of the file.
        for number in 0..usize::from(u16_at(&header, 0x38)) {
            let at = usize_at(&header, 0x20).checked_add(number.checked_mul(0x38)?)?;
            let program: [u8; 0x38] = file.exactly(at)?;
            let (begins, len) = (usize_at(&program, 0x08), usize_at(&program, 0x20));
            if u32_at(&program, 0) == PT_LOAD && offset.checked_sub(begins).is_some_and(|into| into < len) {
                return usize_at(&program, 0x10).checked_add(offset - begins);
            }
        }
        None
    }

    /// Writes the name of the function that holds this address. False: it is not known.
    fn write_function(&self, address: usize, out: &mut ReportBuffer) -> bool {
        let (Some(file), Some(address)) = (&self.file, self.address_in_file(address)) else { return false };
        let mut name = [0; 384];
        // The table of all symbols; of the exported ones if the program was stripped.
        let found = [SHT_SYMTAB, SHT_DYNSYM].iter().find_map(|kind| file.symbol(*kind, address, &mut name));
        let Some(len) = found else { return false };
        write_name(&name[..len], out);
        true
    }
}

#[cfg(feature = "backtrace")]
fn write_name(name: &[u8], out: &mut ReportBuffer) {
    // (It demangles as it writes, without memory of its own.)
    let _ = write!(out, "{:#}", backtrace::SymbolName::new(name));
}

#[cfg(not(feature = "backtrace"))]
fn write_name(name: &[u8], out: &mut ReportBuffer) {
    let _ = out.write_str(std::str::from_utf8(name).unwrap_or("?"));
}

const PT_LOAD: u32 = 1;
/// Of ELF, as are those below: a section with all symbols, one with those for the loader, and the kind of a function.
const SHT_SYMTAB: u32 = 2;
/// As above.
const SHT_DYNSYM: u32 = 11;
/// As above.
const STT_FUNC: u8 = 2;

/// Numbers of a record of the file; the callers' constants lie inside.
fn u16_at(record: &[u8], at: usize) -> u16 {
    record.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn usize_at(record: &[u8], at: usize) -> usize {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, usize::from_le_bytes)
}

/// A file that is open for reading, with nothing but system calls.
struct File(libc::c_int);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a string that ends with a zero.
        let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (descriptor >= 0).then_some(Self(descriptor))
    }

    /// The next bytes; 0 at the end, and for an error.
    fn read(&self, to: &mut [u8]) -> usize {
        // SAFETY: the pointer and the length are those of a slice that is ours.
        let read = unsafe { libc::read(self.0, to.as_mut_ptr().cast(), to.len()) };
        usize::try_from(read).unwrap_or(0)
    }

    /// The bytes from there on: as many as there are, and fit.
    fn read_at(&self, at: usize, to: &mut [u8]) -> usize {
        let Ok(offset) = libc::off_t::try_from(at) else { return 0 };
        // SAFETY: as above.
        let read = unsafe { libc::pread(self.0, to.as_mut_ptr().cast(), to.len(), offset) };
        usize::try_from(read).unwrap_or(0)
    }

    fn exactly<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut record = [0; N];
        (self.read_at(at, &mut record) == N).then_some(record)
    }

    /// The header of an ELF file of 64 bits, little-endian.
    fn header(&self) -> Option<[u8; 0x40]> {
        self.exactly(0).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))
    }

    /// The name of the function that holds this address, in the first table of that kind: how long it is.
    fn symbol(&self, kind: u32, address: usize, name: &mut [u8]) -> Option<usize> {
        let header = self.header()?;
        let (sections, count) = (usize_at(&header, 0x28), u16_at(&header, 0x3c));
        let section = |number: u32| -> Option<[u8; 0x40]> {
            self.exactly(sections.checked_add((number as usize).checked_mul(0x40)?)?)
        };
        let is_wanted = |number: &u32| section(*number).is_some_and(|section| u32_at(&section, 0x04) == kind);
        let table = section((0..u32::from(count)).find(is_wanted)?)?;
        let strings = section(u32_at(&table, 0x28))?;
        let (mut at, end) = (usize_at(&table, 0x18), usize_at(&table, 0x18).checked_add(usize_at(&table, 0x20))?);
        // 170 symbols at a time.
        let mut piece = [0; 170 * 0x18];
        while at < end {
            let wanted = piece.len().min(end - at);
            let read = self.read_at(at, &mut piece[..wanted]) / 0x18 * 0x18;
            let holds = |symbol: &&[u8]| {
                let start = usize_at(symbol, 0x08);
                symbol[0x04] & 0xf == STT_FUNC
                    && address.checked_sub(start).is_some_and(|into| into < usize_at(symbol, 0x10))
            };
            if let Some(symbol) = piece[..read].chunks_exact(0x18).find(holds) {
                let from = usize_at(&strings, 0x18).checked_add(u32_at(symbol, 0) as usize)?;
                let read = self.read_at(from, name);
                return name[..read].iter().position(|byte| *byte == 0);
            }
            if read == 0 {
                return None;
            }
            at += read;
        }
        None
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours, and open.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_with_a_name() -> usize {
        std::hint::black_box(17)
    }

    #[test]
    fn a_function_is_named_by_its_address() {
        let mut place = CodePlace::default();
        let address = a_function_with_a_name as fn() -> usize as usize;
        assert!(place.find(address), "it is code of this program");
        let mut out = ReportBuffer::new();
        assert!(place.write_function(address, &mut out));
        let text = String::from_utf8_lossy(out.as_bytes());
        assert!(text.contains("a_function_with_a_name"), "{text}");
        assert!(!CodePlace::default().find(std::ptr::from_ref(&address).addr()), "what has no file has no functions");
        assert!(!CodePlace::default().find(8));
    }

    #[test]
    fn lines_of_mappings_are_understood() {
        let line = b"55d0c000-55d0e000 r-xp 00001000 08:01 1234                       /usr/bin/a program";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x55d0_c000, 0x55d0_e000, 0x1000));
        assert!(mapping.is_code);
        assert_eq!(mapping.path, b"/usr/bin/a program");
        let nameless = Mapping::parse(b"7f00-7f01 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!nameless.is_code && nameless.path.is_empty());
        assert!(Mapping::parse(b"no mapping").is_none());
    }

    #[test]
    fn what_does_not_repeat_is_no_recursion() {
        let address = a_function_with_a_name as fn() -> usize as usize;
        let other = what_does_not_repeat_is_no_recursion as fn() as usize;
        let mut stack = [0_usize; 200];
        let look = |stack: &[usize]| {
            let start = stack.as_ptr().addr();
            most_frequent(start, start + size_of_val(stack))
        };
        assert_eq!(look(&stack), None);
        stack[..OFTEN as usize - 1].fill(address);
        assert_eq!(look(&stack), None);
        stack[100..100 + OFTEN as usize].fill(other);
        assert_eq!(look(&stack), Some((other, OFTEN)));
        stack[120] = address;
        assert_eq!(look(&stack), Some((address, OFTEN)), "the innermost of equals");
    }
}
