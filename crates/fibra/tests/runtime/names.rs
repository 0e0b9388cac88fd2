//! Names that the system cannot bear are refused with an error, where the runtime is built and where the fiber is started.

use std::io::ErrorKind;

use fibra::{Builder, Runtime};

fn is_told(error: &std::io::Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains(r#""a\0b""#) && text.contains("zero byte at position 1"), "{text}");
}

#[test]
fn a_zero_byte_in_a_runtimes_name_is_an_error() {
    is_told(&Runtime::builder().name("a\0b").build().unwrap_err());
    is_told(&Runtime::builder().current_thread().name("a\0b").build().unwrap_err());
}

#[test]
fn a_zero_byte_in_a_fibers_name_is_an_error() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    is_told(&runtime.handle().spawn_with(Builder::new().name("a\0b"), || ()).unwrap_err());
    runtime.run(|| {
        is_told(&Builder::new().name("a\0b").spawn(|| ()).unwrap_err());
        is_told(&Builder::new().name("a\0b").spawn_local(|| ()).unwrap_err());
        fibra::scope(|s| is_told(&Builder::new().name("a\0b").spawn_scoped(s, || ()).unwrap_err()));
        assert_eq!(Builder::new().name("ab").spawn(|| 7).unwrap().join().unwrap(), 7);
    });
}
