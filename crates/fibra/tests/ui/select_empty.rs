//! Nothing to wait for.
fn main() {
    fibra::select! {}
    fibra::select_biased! {}
}
