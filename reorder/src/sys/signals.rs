// SPDX-License-Identifier: Apache-2.0
//! Signals that are read like data: those that end this process, and one that shows its state.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{checked, checked_len};

/// What somebody wants of this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// SIGTERM, SIGINT: say goodbye and end.
    Stop,
    /// SIGUSR1: write the state to standard error.
    Show,
}

/// SIGTERM, SIGINT and SIGUSR1, kept from their usual effect.
///
/// They are blocked in the thread that calls `take`. So call it before other threads are made,
/// which inherit that.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// From now on, these signals are read here.
    pub fn take() -> io::Result<Self> {
        // SAFETY: the set is made valid by sigemptyset before it is used, and lives on the stack
        // for all calls; the descriptor that signalfd returns is ours.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
                libc::sigaddset(&mut set, signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            let fd = checked(libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))?;
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// The next signal that arrived, if any.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        // SAFETY: signalfd_siginfo is plain old data, all zeros is a valid value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let room = std::mem::size_of_val(&info);
        // SAFETY: `info` is writable for `room` bytes.
        match checked_len(unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), room) })
        {
            Ok(_) if info.ssi_signo == libc::SIGUSR1 as u32 => Ok(Some(Signal::Show)),
            Ok(_) => Ok(Some(Signal::Stop)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
