//! Reports that are made once for each place of the program: the places that were named already.
//!
//! Above: `task::unread`, `inspect::leaks`, with a value each. Below: `per_process.rs`: a child of a fork reports anew.

use std::collections::HashSet;
use std::panic::Location;

use super::per_process::PerProcess;
use crate::prim::sync::Mutex;

/// See the header.
pub(crate) struct OncePerSite(PerProcess<Mutex<HashSet<&'static Location<'static>>>>);

impl OncePerSite {
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new(Mutex::default))
    }

    /// Is it the first time that this place is asked for?
    pub(crate) fn is_first(&'static self, site: &'static Location<'static>) -> bool {
        self.0.get().lock().insert(site)
    }
}
