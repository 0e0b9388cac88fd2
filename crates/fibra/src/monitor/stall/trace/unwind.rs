//! From a snapshot to the addresses of its frames: the call stack, by the unwind tables of the loaded modules.
//!
//! Above: `symbols.rs` names the addresses. Below: `dl_iterate_phdr`, and gimli, which reads `.eh_frame_hdr` and `.eh_frame`.
//!
//! A row of the tables says, for one instruction, where the frame ends (the CFA) and where the caller's registers are kept relative to it.
//! It is evaluated over the copy and nothing else: an address outside it ends the walk, as does code without a table, a rule that is
//! a DWARF program (signal frames, lazy binding), and the entry of a fiber, whose return address is marked as undefined.
//!
//! *Registers that are not known.* Of a thread that is blocked, only the stack pointer is. Most frames need no more; a function
//! that keeps a frame pointer (std is compiled so) needs that. Then the size of the frame is read from the function's first instructions;
//! or the frame is looked for: the lowest pair of a plausible frame pointer and an address right behind a call instruction, at best a
//! call of just this function. A wrong guess shows wrong frames, and reads nothing outside the copy.
//!
//! Modules are read inside `dl_iterate_phdr`'s callback, while the loader holds its lock: none is unloaded meanwhile.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Pointer, RegisterRule, UnwindContext, UnwindSection,
};

use super::{REGISTERS, Registers, Snapshot};

/// The most frames that are followed.
const MOST: usize = 64;
/// How far a frame is looked for whose place is not known.
const SEARCHED: u64 = 8 << 10;

#[cfg(target_arch = "x86_64")]
mod machine {
    // The numbers that the ABI gives them in DWARF.
    pub(super) const SP: usize = 7; // rsp
    pub(super) const FP: usize = 6; // rbp
    pub(super) const RETURN: usize = 16; // A column of the tables.
    /// Kept over a call: rbx, rbp, r12 to r15.
    pub(super) const KEPT: [usize; 6] = [3, 6, 12, 13, 14, 15];
}
#[cfg(target_arch = "aarch64")]
mod machine {
    // The numbers that the ABI gives them in DWARF.
    pub(super) const SP: usize = 31; // sp
    pub(super) const FP: usize = 29; // x29
    pub(super) const RETURN: usize = 30; // x30, the link register.
    /// Kept over a call: x19 to x29; and the link register, until a frame says where it is.
    pub(super) const KEPT: [usize; 12] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30];
}
use machine::{FP, KEPT, RETURN, SP};

/// The addresses of the code on the stack, innermost first. Each lies within the instruction that runs or that made the call.
pub(super) fn frames(snapshot: &Snapshot) -> Vec<u64> {
    let mut found = Vec::new();
    let mut registers = snapshot.registers;
    let mut at = snapshot.pc;
    while found.len() < MOST {
        found.push(at);
        let Some(row) = Row::of(at) else { break };
        let Some((next, caller)) = step(snapshot, &registers, &row) else { break };
        // Leaf functions have no frame on some machines; others grow upwards.
        if next == 0 || caller[SP] < registers[SP] || caller[SP] == registers[SP] && found.len() > 1 {
            break;
        }
        registers = caller;
        // Behind the call: it may be the first instruction of the next function.
        at = next - 1;
    }
    found
}

/// Where the function begins that this address lies in.
pub(super) fn start_of_function(address: u64) -> Option<u64> {
    Row::of(address).map(|row| row.start)
}

/// One frame outwards: the return address, and the caller's registers.
fn step(snapshot: &Snapshot, registers: &Registers, row: &Row) -> Option<(u64, Registers)> {
    let mut registers = *registers;
    let (base, offset) = row.cfa?;
    let lost = registers[base].is_none() || row.rule(RETURN).is_none() && registers[RETURN].is_none();
    if lost && registers[FP].is_none() {
        registers[FP] = Some(look_for_frame(snapshot, registers[SP]?, row.start)?);
    }
    let cfa = registers[base]?.checked_add_signed(offset)?;
    let mut caller: Registers = [None; REGISTERS];
    for kept in KEPT {
        caller[kept] = registers[kept];
    }
    for &(register, rule) in &row.rules {
        caller[register] = match rule {
            Rule::Unknown => None,
            Rule::Same => registers[register],
            Rule::At(offset) => snapshot.word(cfa.checked_add_signed(offset)?),
            Rule::Is(offset) => cfa.checked_add_signed(offset),
            Rule::In(other) => registers[other],
        };
    }
    caller[SP] = Some(cfa);
    let mut next = caller[RETURN];
    if lost && next.is_none() && row.rule(RETURN).is_none() {
        // A leaf: its return address was in a register, but that of its caller is in the frame that was found.
        let frame = registers[FP]?;
        caller[FP] = snapshot.word(frame);
        caller[SP] = frame.checked_add(16);
        next = snapshot.word(frame.checked_add(8)?);
    }
    // Signed return addresses (aarch64) have their signature in the upper bits.
    let next = if cfg!(target_arch = "aarch64") { next? & ((1 << 48) - 1) } else { next? };
    Some((next, caller))
}

/// The frame pointer of the function that begins at `start`, which is not known. `from`: its stack pointer.
fn look_for_frame(snapshot: &Snapshot, from: u64, start: u64) -> Option<u64> {
    let returns_at = |frame: u64| snapshot.word(frame.checked_add(8)?).and_then(called_from);
    // As its first instructions say; unless it has moved the stack pointer since.
    let said = frame_size(start).and_then(|size| from.checked_add(size)).filter(|frame| returns_at(*frame).is_some());
    if said.is_some() {
        return said;
    }
    let end = snapshot.end().min(from.saturating_add(SEARCHED));
    let mut likely = None;
    for frame in (from..end).step_by(8) {
        let callers = snapshot.word(frame).unwrap_or(0);
        match returns_at(frame) {
            Some(Some(called)) if called == start => return Some(frame),
            // The caller's own frame lies above. (One that keeps no frame pointer may have anything in that register.)
            Some(_) if callers > frame && callers < snapshot.end() => likely = likely.or(Some(frame)),
            _ => {}
        }
    }
    likely
}

/// How far the frame pointer lies above the stack pointer in this function, if its first instructions are the usual ones: keep and set the
/// frame pointer, keep other registers, make room.
#[cfg(target_arch = "x86_64")]
fn frame_size(start: u64) -> Option<u64> {
    with_module(start, |module| {
        let mut code = module.bytes(start, 64)?;
        // endbr64
        code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
        // push rbp; mov rbp, rsp
        code = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?;
        let mut size = 0;
        loop {
            code = match *code {
                // push
                [0x50..=0x57, ref rest @ ..] | [0x41, 0x50..=0x57, ref rest @ ..] => {
                    size += 8;
                    rest
                }
                // sub rsp, ..
                [0x48, 0x83, 0xec, room, ..] => return Some(size + u64::from(room)),
                [0x48, 0x81, 0xec, a, b, c, d, ..] => return Some(size + u64::from(u32::from_le_bytes([a, b, c, d]))),
                // and rsp, ..: unknown.
                [0x48, 0x83 | 0x81, 0xe4, ..] => return None,
                _ => return Some(size),
            };
        }
    })
    .flatten()
}

#[cfg(target_arch = "aarch64")]
fn frame_size(_start: u64) -> Option<u64> {
    None
}

/// Is this the address behind a call? If so, of what, if the instruction says so.
fn called_from(back: u64) -> Option<Option<u64>> {
    with_module(back, |module| {
        #[cfg(target_arch = "x86_64")]
        {
            let code = module.bytes(back.checked_sub(7)?, 7)?;
            let relative = || Some(i64::from(i32::from_ne_bytes(code[3..7].try_into().ok()?)));
            match *code {
                // Through a slot of this module that holds the address.
                [_, 0xff, 0x15, ..] => {
                    let slot = back.checked_add_signed(relative()?)?;
                    Some(module.bytes(slot, 8).and_then(|slot| Some(u64::from_ne_bytes(slot.try_into().ok()?))))
                }
                [_, _, 0xe8, ..] => Some(back.checked_add_signed(relative()?)),
                // Through a register, or memory that it points to.
                [.., 0xff, 0xd0..=0xd7] | [.., 0xff, 0x50..=0x57, _] => Some(None),
                [_, 0xff, 0x90..=0x97, ..] | [.., 0xff, 0x10..=0x17] => Some(None),
                _ => None,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            let at = (back & ((1 << 48) - 1)).checked_sub(4)?;
            let code = u32::from_ne_bytes(module.bytes(at, 4)?.try_into().ok()?);
            match code {
                _ if code & 0xfc00_0000 == 0x9400_0000 => {
                    Some(at.checked_add_signed(i64::from((code << 6) as i32 >> 6) * 4))
                }
                _ if code & 0xffff_fc1f == 0xd63f_0000 => Some(None),
                _ => None,
            }
        }
    })
    .flatten()
}

/// Where a register of the caller is, relative to the end of the frame.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Unknown,
    Same,
    At(i64),
    Is(i64),
    In(usize),
}

/// What the tables say of one instruction.
#[derive(Debug)]
struct Row {
    /// Where its function begins.
    start: u64,
    /// The register and the offset that give the end of the frame.
    cfa: Option<(usize, i64)>,
    rules: Vec<(usize, Rule)>,
}

impl Row {
    fn of(address: u64) -> Option<Row> {
        with_module(address, |module| module.row(address)).flatten()
    }

    fn rule(&self, register: usize) -> Option<Rule> {
        self.rules.iter().find(|(of, _)| *of == register).map(|(_, rule)| *rule)
    }
}

/// A loaded module, for as long as the loader's lock is held.
struct Module<'a> {
    base: u64,
    headers: &'a [Header],
}

#[cfg(target_pointer_width = "64")]
type Header = libc::Elf64_Phdr;

impl<'a> Module<'a> {
    /// The readable, loaded segment an address lies in: where it begins and how long it is.
    fn segment(&self, address: u64) -> Option<(u64, u64)> {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0)
            .map(|header| (self.base.wrapping_add(header.p_vaddr), header.p_memsz))
            .find(|(start, len)| address.wrapping_sub(*start) < *len)
    }

    /// Bytes of the module, if they lie in one of its segments.
    fn bytes(&self, address: u64, len: u64) -> Option<&'a [u8]> {
        let (start, size) = self.segment(address)?;
        if len > size - (address - start) {
            return None;
        }
        // SAFETY: loaded by the loader, readable, and not unloaded while its lock is held. It may be data that the program writes; only
        // code, tables and slots of the loader are read, which do not change any more.
        Some(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), len as usize) })
    }

    fn row(&self, address: u64) -> Option<Row> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let at = self.base.wrapping_add(header.p_vaddr);
        let bases = BaseAddresses::default().set_eh_frame_hdr(at);
        let index = EhFrameHdr::new(self.bytes(at, header.p_memsz)?, NativeEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(at) = index.eh_frame_ptr() else { return None };
        // How long it is, is not said: at most to the end of its segment. The index leads to the right entry.
        let (start, len) = self.segment(at)?;
        let frames = EhFrame::new(self.bytes(at, len - (at - start))?, NativeEndian);
        let bases = bases.set_eh_frame(at);
        let entry = index.table()?.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&frames, &bases, &mut context, address).ok()?;
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Some((usize::from(register.0), *offset)).filter(|(register, _)| *register < REGISTERS)
            }
            CfaRule::Expression(_) => None,
        };
        let rules = row.registers().filter_map(|(register, rule)| {
            let rule = match *rule {
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(offset) => Rule::At(offset),
                RegisterRule::ValOffset(offset) => Rule::Is(offset),
                RegisterRule::Register(other) if usize::from(other.0) < REGISTERS => Rule::In(other.0.into()),
                _ => Rule::Unknown,
            };
            Some((usize::from(register.0), rule)).filter(|(register, _)| *register < REGISTERS)
        });
        Some(Row { start: entry.initial_address(), cfa, rules: rules.collect() })
    }
}

/// Calls `f` with the module that an address lies in.
fn with_module<R, F: FnOnce(&Module<'_>) -> R>(address: u64, f: F) -> Option<R> {
    struct Asked<R, F> {
        address: u64,
        f: Option<F>,
        answer: Option<R>,
    }
    unsafe extern "C" fn visit<R, F: FnOnce(&Module<'_>) -> R>(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        asked: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes a module with its headers, valid for this call, and what `with_module` gave it, which nothing else
        // uses.
        let (asked, module) = unsafe {
            let asked = &mut *asked.cast::<Asked<R, F>>();
            let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
            (asked, Module { base: (*info).dlpi_addr, headers })
        };
        if module.segment(asked.address).is_none() {
            return 0;
        }
        asked.answer = asked.f.take().map(|f| f(&module));
        1
    }
    let mut asked = Asked { address, f: Some(f), answer: None };
    // SAFETY: `visit` is given `asked`, which outlives the call. It does not unwind: the tables are read without a panic, and if there were
    // one, `extern "C"` ends the process.
    unsafe { libc::dl_iterate_phdr(Some(visit::<R, F>), (&raw mut asked).cast()) };
    asked.answer
}

#[cfg(test)]
mod tests;
