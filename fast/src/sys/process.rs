// SPDX-License-Identifier: Apache-2.0
//! Descriptors of another process.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::checked;

/// Another process, by a descriptor that stands for it alone, also when its number is used again.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Fails if there is no such process.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: takes numbers alone; the descriptor that it returns is ours.
        unsafe {
            let fd = checked(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
            Ok(Process(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    /// The process's descriptor `number` as ours. Needs the right to trace the process.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        // SAFETY: takes numbers alone; the descriptor that it returns is ours.
        unsafe {
            let fd = checked(libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), number, 0))?;
            Ok(OwnedFd::from_raw_fd(fd as i32))
        }
    }
}
