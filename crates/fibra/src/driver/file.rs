//! The system calls on files, pipes and processes that std has no safe function for: reading what need not be waited for,
//! non-blocking mode, and a descriptor that tells when a process exits.
//!
//! Above: `fs` and `process`, which are safe code. Below: the kernel.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// "At the position of the file", in the place of an offset.
pub(crate) const HERE: i64 = -1;

/// Reads at an offset, or [`HERE`], what is in memory already, without waiting for a device. None: it cannot be known without waiting, or
/// this file does not support such a read; nothing was read then.
pub(crate) fn read_at_once(file: BorrowedFd<'_>, buffers: &mut [IoSliceMut<'_>], offset: i64) -> Option<usize> {
    // SAFETY: `IoSliceMut` is an `iovec` by its promise, there are as many as said, and all are valid for writing through the call. (The
    // kernel takes 1024 at most, and more are an error.)
    let read = unsafe {
        libc::preadv2(file.as_raw_fd(), buffers.as_ptr().cast(), buffers.len() as libc::c_int, offset, libc::RWF_NOWAIT)
    };
    // 0 is not believed to be the end of the file: there were kernels that returned 0 for data that was not in memory.
    usize::try_from(read).ok().filter(|read| *read > 0)
}

/// Puts one end of a pipe into non-blocking mode, or takes it out of it. The other end stays as it is.
pub(crate) fn set_nonblocking(pipe: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    let mut value = libc::c_int::from(nonblocking);
    // SAFETY: the request takes a pointer to an int, which lives through the call.
    match unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONBIO, &raw mut value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that polls as readable when the process has exited. The process must be a child that has not been waited
/// for, so that its number has not been given to another process.
pub(crate) fn open_process(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process as libc::pid_t, 0) };
    match i32::try_from(descriptor) {
        // SAFETY: just opened, and owned by nothing else. (The kernel makes it close-on-exec.)
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until a child has exited, without taking its exit status: a later `wait` gets it. Blocks the thread.
pub(crate) fn await_exit(process: u32) {
    loop {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure lives through the call.
        let done = unsafe { libc::waitid(libc::P_PID, process, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        // Any error but an interruption: the child is gone, or was never there.
        if done == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn what_is_in_memory_is_read_at_once_and_an_empty_pipe_is_not() {
        let mut file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let mut warm = [0; 64];
        file.read_exact(&mut warm).unwrap();
        file.rewind().unwrap();
        let mut buffer = [0; 64];
        // Some file systems do not know how; then nothing was read.
        if let Some(read) = read_at_once(file.as_fd(), &mut [IoSliceMut::new(&mut buffer)], HERE) {
            assert_eq!(buffer[..read], warm[..read]);
            assert_eq!(file.stream_position().unwrap(), read as u64);
        } else {
            assert_eq!(file.stream_position().unwrap(), 0);
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(read_at_once(reader.as_fd(), &mut [IoSliceMut::new(&mut buffer)], HERE), None);
        set_nonblocking(reader.as_fd(), true).unwrap();
        assert_eq!((&reader).read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        writer.write_all(b"x").unwrap();
        assert_eq!((&reader).read(&mut buffer).unwrap(), 1);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // No process has this number: the kernel's end at 2^22.
        let error = open_process(i32::MAX as u32).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOSYS | libc::EPERM)), "{error}");
        await_exit(i32::MAX as u32);
    }
}
