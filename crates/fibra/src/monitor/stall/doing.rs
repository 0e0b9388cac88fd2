//! What a thread does that does not switch, as `/proc/self/task/<thread>` says: it runs, or is blocked in which system call.

use std::fs;

/// What a thread does that does not switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    /// On a processor, or waiting for one.
    Computing,
    /// Blocked in a system call, with its first argument.
    Call(i64, String),
    /// Blocked, and that is all the system says.
    Blocked,
}

impl Doing {
    pub(super) fn of(thread: u32) -> Self {
        if let Ok(text) = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")) {
            return Self::from_syscall(&text);
        }
        // Not every kernel has that file.
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        Self::from_stat(&stat)
    }

    /// `running`, or the number and the arguments of the call, or -1 if it is blocked outside one (in a page fault).
    fn from_syscall(text: &str) -> Self {
        let mut words = text.split_whitespace();
        match words.next().map(str::parse) {
            Some(Ok(-1)) => Self::Blocked,
            Some(Ok(number)) => Self::Call(number, words.next().unwrap_or_default().to_owned()),
            _ => Self::Computing,
        }
    }

    /// The state follows the name, which is in brackets and may hold any others.
    fn from_stat(stat: &str) -> Self {
        match stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R')) {
            Some(false) => Self::Blocked,
            _ => Self::Computing,
        }
    }

    /// The name of the call it is blocked in; empty for one that is not in the table.
    pub(super) fn call(&self) -> &'static str {
        match self {
            Self::Call(number, _) => call_name(*number).unwrap_or(""),
            _ => "",
        }
    }

    /// The call with its first argument, as text.
    pub(super) fn call_text(&self) -> String {
        let Self::Call(number, argument) = self else { return String::new() };
        let call = call_name(*number).map_or_else(|| format!("{number} "), str::to_owned);
        format!("{call}({argument}, ..)")
    }

    /// What its first argument is, for a call on a descriptor: a path, `socket:[17]`, `pipe:[18]`.
    pub(super) fn descriptor(&self) -> Option<String> {
        let Self::Call(_, argument) = self else { return None };
        if !ON_DESCRIPTORS.contains(&self.call()) {
            return None;
        }
        let number = u32::from_str_radix(argument.strip_prefix("0x")?, 16).ok()?;
        let target = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        Some(target.display().to_string())
    }
}

/// The calls of the table below whose first argument is a descriptor.
const ON_DESCRIPTORS: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "write",
    "pwrite64",
    "writev",
    "fsync",
    "fdatasync",
    "flock",
    "fcntl",
    "accept",
    "accept4",
    "connect",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "sendto",
    "sendmsg",
    "sendmmsg",
];

/// The calls that programs block in.
const CALLS: &[(i64, &str)] = &[
    (libc::SYS_futex, "futex"),
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
];

pub(super) fn call_name(number: i64) -> Option<&'static str> {
    CALLS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::Doing;

    #[test]
    fn what_a_thread_does_is_read_from_proc() {
        let futex = format!("{} 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f4e\n", libc::SYS_futex);
        assert_eq!(Doing::from_syscall(&futex), Doing::Call(libc::SYS_futex, "0x7f00".to_owned()));
        assert_eq!(Doing::from_syscall("running\n"), Doing::Computing);
        assert_eq!(Doing::from_syscall("-1 0x7ffd 0x7f4e\n"), Doing::Blocked);
        assert_eq!(Doing::from_syscall(""), Doing::Computing, "a thread that has just ended");
        assert_eq!(Doing::from_stat("17 (a) b) S 1 2"), Doing::Blocked);
        assert_eq!(Doing::from_stat("17 (a) S) R 1 2"), Doing::Computing);
        assert_eq!(Doing::from_stat(""), Doing::Computing);
        assert_eq!(super::call_name(libc::SYS_wait4), Some("wait4"));
        assert_eq!(super::call_name(999), None);
    }
}
