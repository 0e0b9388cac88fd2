//! How much of a stack was used: the lowest of its pages that the system has given memory to.
//!
//! Above: `monitor::stack_marks`. Below: `mincore`, `guard::discard_within`.
//!
//! A stack serves one fiber after another, and keeps its pages in between. So what is found may be what an earlier fiber has used, unless
//! that one [gave back](freshen) what it had when it ended.

use super::arena::find;
use super::guard;

/// Pages that the system is asked about with one call.
const PAGES: usize = 512;
/// What [`freshen`] leaves below the frame that calls it: its own calls need room, and their pages would only come back.
const KEPT: usize = 4096;

/// How many bytes below its top were touched of the stack with this top, and how large the stack is (with guard and record). `None`: it is
/// no stack, or is gone.
pub(crate) fn touched(top: usize) -> Option<(usize, usize)> {
    let found = find(top)?;
    let mut at = found.lowest();
    let page = guard::page_size();
    while at < top {
        let len = (top - at).min(PAGES * page);
        let mut resident = [0_u8; PAGES];
        // SAFETY: the kernel writes a byte for each page, and there are at most `PAGES` of them; it checks the memory that it looks at.
        let asked = unsafe { libc::mincore(std::ptr::without_provenance_mut(at), len, resident.as_mut_ptr()) };
        if asked != 0 {
            return None;
        }
        if let Some(first) = resident[..len.div_ceil(page)].iter().position(|page| page & 1 != 0) {
            return Some((top.saturating_sub(at + first * page), found.size.bytes()));
        }
        at += len;
    }
    Some((0, found.size.bytes()))
}

/// Gives the pages below the caller's frame back to the system: the next fiber on this stack, which is the caller's, begins anew.
#[inline(never)]
pub(crate) fn freshen() {
    let here = 0_u8;
    let Some(found) = find(std::ptr::from_ref(&here).addr()) else { return };
    let end = std::ptr::from_ref(&here).addr().saturating_sub(KEPT);
    let lowest = found.lowest();
    if lowest < end {
        // SAFETY: on the running stack, below its frames, which do not come as deep as this before it returns. Above the guard, so mapped.
        unsafe { guard::discard_within(std::ptr::with_exposed_provenance_mut(lowest), end - lowest) };
    }
}
