//! The unwinder over copies whose frames are known: this thread's own stack.

use super::super::capture;
use crate::monitor::stall::trace::unwind::*;

/// This thread's registers and stack, as the system calls below see them.
#[inline(never)]
fn own_snapshot() -> Snapshot {
    capture::of_this_thread()
}

/// The functions of the addresses.
fn functions(addresses: &[u64]) -> Vec<u64> {
    addresses.iter().map(|address| Row::of(*address).map_or(0, |row| row.start)).collect()
}

/// The functions on this stack as the `backtrace` crate's unwinder sees them, outermost first.
fn known() -> Vec<u64> {
    let mut found = Vec::new();
    backtrace::trace(|frame| {
        found.push((frame.ip().addr() as u64).wrapping_sub(1));
        true
    });
    let mut known = functions(&found);
    known.reverse();
    known
}

/// How many of the outermost functions are the same.
fn common(found: &[u64], known: &[u64]) -> usize {
    found.iter().rev().zip(known).take_while(|(found, known)| found == known).count()
}

#[test]
fn frames_are_those_that_another_unwinder_finds() {
    let known = known();
    assert!(known.len() > 5, "{known:x?}");
    let mut snapshot = own_snapshot();
    let all = frames(&snapshot);
    // All but the innermost, which are the unwinder's own on one side and `own_snapshot` with what it calls on the other.
    let own = functions(&all);
    let here = Row::of(frames_are_those_that_another_unwinder_finds as *const () as u64).map_or(0, |row| row.start);
    let at = known.iter().position(|function| *function == here).expect("this function is on its own stack");
    // The outermost have no tables, and which of them is shown differs.
    let known: Vec<u64> = known.into_iter().take(at + 1).filter(|function| *function != 0).collect();
    let own: Vec<u64> = own.into_iter().filter(|function| *function != 0).collect();
    assert!(common(&own, &known) == known.len(), "{own:x?}\n{known:x?}");
    // With nothing but the stack pointer, as of a blocked thread.
    let (sp, pc) = (snapshot.sp, snapshot.pc);
    snapshot.registers = [None; REGISTERS];
    snapshot.registers[SP] = Some(sp);
    snapshot.pc = pc;
    let without: Vec<u64> = functions(&frames(&snapshot)).into_iter().filter(|function| *function != 0).collect();
    assert_eq!(without, own);
}

#[test]
fn a_copy_that_ends_early_gives_the_first_frames() {
    let snapshot = own_snapshot();
    let all = frames(&snapshot);
    assert!(all.len() > 5, "{all:x?}");
    let mut most = 0;
    for len in (0..snapshot.stack.len().min(8 << 10)).step_by(56) {
        let cut = Snapshot { stack: snapshot.stack[..len].to_vec(), ..snapshot.clone() };
        let found = frames(&cut);
        assert!(all.starts_with(&found), "{found:x?}");
        most = most.max(found.len());
    }
    assert!(most > 1);
}

#[test]
fn what_is_no_code_ends_the_walk() {
    for pc in [0, 1, 4096, 1 << 47, u64::MAX, u64::MAX - 7] {
        let snapshot = Snapshot { registers: [Some(pc); REGISTERS], pc, sp: 4096, stack: vec![0xff; 64] };
        assert_eq!(frames(&snapshot), [pc]);
        assert_eq!(called_from(pc), None);
        assert_eq!(frame_size(pc), None);
    }
    let code = what_is_no_code_ends_the_walk as *const () as u64;
    for sp in [0, 4096, u64::MAX - 7] {
        let snapshot = Snapshot { registers: [Some(sp); REGISTERS], pc: code, sp, stack: vec![0xff; 64] };
        assert!(frames(&snapshot).len() <= 3);
    }
}
