// SPDX-License-Identifier: Apache-2.0
//! Packet sockets, of this process or another one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::checked;

/// A socket for whole frames.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket that gets a copy of all frames that come in or go out by an interface. Needs
    /// CAP_NET_RAW.
    pub fn open(ifindex: u32) -> io::Result<Self> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers alone; the descriptor that it returns is ours. Of protocol 0 it
        // gets nothing until it is bound. sockaddr_ll is plain old data, all zeros is a valid
        // value; the kernel reads no more than its length.
        unsafe {
            let fd = checked(libc::socket(libc::AF_PACKET, kind, 0))?;
            let socket = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = ifindex as i32;
            let length = std::mem::size_of_val(&address) as libc::socklen_t;
            checked(libc::bind(fd, (&raw const address).cast(), length))?;
            Ok(PacketSocket(socket))
        }
    }

    /// Sends a frame by the socket's interface.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel reads the slice.
        checked(unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) }).map(drop)
    }

    /// The next frame, without its tag; None: there is none now.
    pub fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0u8; 65_536];
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel writes no more than the buffer's length.
        let got = checked(unsafe {
            libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        });
        match got {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            got => {
                buffer.truncate(got? as usize);
                Ok(Some(buffer))
            }
        }
    }

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
