//! Simulation is announced, not there.
#[fibra::test(sim)]
fn a() {}

#[fibra::test(sim, seeds = 1000)]
fn b() {}

#[fibra::test(workers = 1, seeds = 1000)]
fn c() {}

fn main() {}
