//! The attribute macros of fibra: `#[fibra::main]` and `#[fibra::test]`.
