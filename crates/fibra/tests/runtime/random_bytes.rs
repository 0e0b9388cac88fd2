//! A C library may write random bytes itself, without a system call: glibc 2.41 and later do, where Linux has the function for it in its
//! vDSO. So nothing may call `getrandom` to learn whether memory can be written: where it cannot, the process dies.
//!
//! In this program all calls are of the function below, which does the same under every C library: every test would fail.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Sanitizers have one of their own.

/// Takes the place of the C library's. It writes to `buffer` in user space, as that does.
///
/// # Safety
/// `len` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, flags: libc::c_uint) -> isize {
    for at in 0..len {
        let mut byte = 0u8;
        // SAFETY: the kernel writes to a local.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, &raw mut byte, 1_usize, flags) };
        if got != 1 {
            return if at == 0 { -1 } else { at as isize };
        }
        // SAFETY: the caller's promise.
        unsafe { buffer.add(at).write_volatile(byte) };
    }
    len as isize
}

#[test]
fn stacks_are_guarded_though_the_c_library_writes_random_bytes_itself() {
    let mut bytes = [0u8; 32];
    // SAFETY: the bytes are a local.
    assert_eq!(unsafe { getrandom(bytes.as_mut_ptr(), bytes.len(), 0) }, 32);
    assert_ne!(bytes, [0; 32]);
    assert_eq!(fibra::run(|| fibra::spawn(|| 5).join().unwrap()), 5);
}
