// SPDX-License-Identifier: Apache-2.0
//! Everything that needs the kernel and is in no library: the only place with `unsafe`.
//!
//! Nothing here knows what a plan is. Every descriptor is closed on exec.

#![allow(unsafe_code)]

pub mod bpf;
pub mod netlink;
pub mod packet;
pub mod process;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::time::{clock_gettime, ClockId};

/// The time by CLOCK_MONOTONIC, as the programs and the helper have it.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The process at the other end of a connected Unix socket. Its number is 0 where it is of another
/// PID namespace.
pub fn peer_of(socket: impl AsFd) -> io::Result<libc::ucred> {
    let fd = socket.as_fd().as_raw_fd();
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    let to = (&raw mut peer).cast();
    // SAFETY: the kernel writes no more than the length.
    checked(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length)
    })?;
    Ok(peer)
}

/// The result of a system call, or the error that it left behind.
fn checked<T: TryInto<i64> + Copy>(result: T) -> io::Result<T> {
    if result.try_into().is_ok_and(|number| number < 0) {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
