//! Heads: what is understood, what is refused, and that it does not matter how they are cut.
