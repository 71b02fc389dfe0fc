// SPDX-License-Identifier: Apache-2.0
//! A socket to the kernel's network configuration.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::checked;

/// The kernel's messages are shorter.
const LONGEST: usize = 65_536;

/// A NETLINK_ROUTE socket of this process's network namespace.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Needs no capability; what is asked for may.
    pub fn open() -> io::Result<Self> {
        // SAFETY: takes numbers alone; the descriptor that it returns is ours.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let fd = checked(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Socket(socket))
    }

    /// Sends messages to the kernel.
    pub fn send(&self, messages: &[u8]) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel reads the slice. A socket that is not connected sends to the kernel.
        checked(unsafe { libc::send(fd, messages.as_ptr().cast(), messages.len(), 0) }).map(drop)
    }

    /// Waits for the next messages.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0u8; LONGEST];
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel writes no more than the buffer's length.
        let length =
            checked(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) })?;
        buffer.truncate(length as usize);
        Ok(buffer)
    }
}
