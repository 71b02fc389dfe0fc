// SPDX-License-Identifier: Apache-2.0
//! Packet sockets of another process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::checked;

/// Another process, by a descriptor that stands for it alone, also when its number is used again.
#[derive(Debug)]
pub struct Process(OwnedFd);

/// A copy of a descriptor of another process for a packet socket.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

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

impl PacketSocket {
    /// None if it is no packet socket.
    pub fn from(fd: OwnedFd) -> Option<Self> {
        let socket = PacketSocket(fd);
        (socket.address().ok()?.sll_family == libc::AF_PACKET as u16).then_some(socket)
    }

    fn address(&self) -> io::Result<libc::sockaddr_ll> {
        // SAFETY: sockaddr_ll is plain old data, all zeros is a valid value; the kernel writes no
        // more than its length.
        unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            let mut length = std::mem::size_of_val(&address) as libc::socklen_t;
            checked(libc::getsockname(
                self.0.as_raw_fd(),
                (&raw mut address).cast(),
                &raw mut length,
            ))?;
            Ok(address)
        }
    }

    /// The number of the interface whose frames the socket gets; 0: all, or none at all.
    pub fn ifindex(&self) -> io::Result<u32> {
        let address = self.address()?;
        Ok(if address.sll_protocol == 0 { 0 } else { address.sll_ifindex as u32 })
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let length = std::mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `value`.
        checked(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                length,
            )
        })
        .map(drop)
    }

    /// Puts a program of type socket filter in the place of the socket's filter.
    pub fn set_filter(&self, program: impl AsFd) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_fd().as_raw_fd())
    }

    /// Whether the socket gets copies of the frames that the host sends. Programs that filter them
    /// cost a copy of each frame's head all the same.
    pub fn set_ignores_outgoing(&self, ignores: bool) -> io::Result<()> {
        const PACKET_IGNORE_OUTGOING: i32 = 23;
        self.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &i32::from(ignores))
    }

    /// Whether the socket's filter is one of the kind that `set_filter` sets.
    pub fn has_program(&self) -> bool {
        let mut length: libc::socklen_t = 0;
        // SAFETY: with a length of 0 the kernel writes nothing.
        let result = checked(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                std::ptr::null_mut(),
                &raw mut length,
            )
        });
        // The kernel cannot say a program's text in the old form.
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    }

    /// Puts an old filter there that refuses what the host itself sends, as Open vSwitch's does.
    pub fn refuse_outgoing(&self) -> io::Result<()> {
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
        let mut text = [
            instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, packet_type),
            instruction(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                u32::from(libc::PACKET_OUTGOING),
            ),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0xffff),
        ];
        let filter = libc::sock_fprog { len: text.len() as u16, filter: text.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }
}
