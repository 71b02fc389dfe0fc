// SPDX-License-Identifier: Apache-2.0
//! Packet sockets: frames of one EtherType, straight from and to a NIC, many per system call.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::interface::Interfaces;
use super::{checked, Unavailable};

/// The most frames per system call.
pub const BATCH: usize = 64;
/// Bytes of the kernel's memory for frames that wait in the socket: about 10 ms at 1 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 4 << 20;
const SEND_BUFFER: libc::c_int = 1 << 20;

/// A frame that arrived.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Received {
    /// The frame from the destination MAC on, without FCS.
    pub frame: Vec<u8>,
    /// The frame was longer than its buffer, so its end is missing.
    pub cut_off: bool,
    /// The frame is not for this NIC: it has another MAC, or had a VLAN tag (which the kernel has
    /// taken out).
    pub foreign: bool,
}

/// A socket that gets all frames of one EtherType that arrive by one NIC, and none that leave by
/// it.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    index: i32,
}

impl PacketSocket {
    /// Opens `name` for frames of `ethertype`. Needs CAP_NET_RAW.
    ///
    /// The NIC takes all frames while the socket is open (promiscuous mode). So its counters show
    /// everything that the cable carries, with frames for other hosts that were flooded. These are
    /// marked as foreign.
    pub fn open(name: &str, ethertype: u16) -> Result<Self, Unavailable> {
        let failed = |error: io::Error| Unavailable::because(format_args!("NIC {name}"), &error);
        let index =
            Interfaces::open().and_then(|interfaces| interfaces.index(name)).map_err(failed)?;
        // Protocol 0: nothing arrives before the socket is bound, so nothing of other NICs does.
        // SAFETY: takes numbers alone; the descriptor that it returns is ours.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_PACKET, kind, 0)).map_err(failed)?)
        };
        let opened = PacketSocket { socket, index };
        opened.configure(ethertype).map_err(failed)?;
        Ok(opened)
    }

    fn configure(&self, ethertype: u16) -> io::Result<()> {
        let yes: libc::c_int = 1;
        self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &yes)?;
        // With CAP_NET_ADMIN this goes over the system's limit; otherwise it gets what the limit
        // allows.
        if self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        if self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).is_err() {
            self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER)?;
        }
        // SAFETY: sockaddr_ll is plain old data, all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = self.index;
        let length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is readable for `length` bytes.
        checked(unsafe {
            libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length)
        })?;
        let everything = libc::packet_mreq {
            mr_ifindex: self.index,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everything)
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` is readable for `length` bytes.
        checked(unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                option,
                (value as *const T).cast(),
                length,
            )
        })
        .map(drop)
    }

    /// The NIC's number. A NIC that was removed and made again has another, and this socket does
    /// not serve it any more.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Frames that the kernel dropped for want of room since the last call.
    pub fn drops(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is plain old data, all zeros is a valid value.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut length = mem::size_of_val(&stats) as libc::socklen_t;
        // SAFETY: `stats` is writable for `length` bytes.
        checked(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut length,
            )
        })?;
        Ok(u64::from(stats.tp_drops))
    }

    /// Reads up to [`BATCH`] frames into buffers from the end of `spare`, and appends them to
    /// `got`. `WouldBlock`: there is nothing to read.
    pub fn receive(&self, spare: &mut Vec<Vec<u8>>, got: &mut Vec<Received>) -> io::Result<()> {
        // SAFETY: these are plain old data, all zeros is a valid value.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut sources: [libc::sockaddr_ll; BATCH] = unsafe { mem::zeroed() };
        let wanted = spare.len().min(BATCH);
        for (i, buffer) in spare.iter_mut().rev().take(wanted).enumerate() {
            buffer.clear();
            let room = buffer.spare_capacity_mut();
            parts[i] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let head = &mut messages[i].msg_hdr;
            head.msg_iov = &mut parts[i];
            head.msg_iovlen = 1;
            head.msg_name = (&raw mut sources[i]).cast();
            head.msg_namelen = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        }
        // SAFETY: each message points to one iovec, whose buffer is writable for its length, and to
        // one address; all of them live until the call returns.
        let count = checked(unsafe {
            let fd = self.socket.as_raw_fd();
            libc::recvmmsg(
                fd,
                messages.as_mut_ptr(),
                wanted as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })?;
        for (message, source) in messages.iter().zip(&sources).take(count as usize) {
            let Some(mut frame) = spare.pop() else { break };
            // SAFETY: the kernel wrote msg_len bytes to this buffer: they were handed out from the
            // end of `spare`.
            unsafe { frame.set_len((message.msg_len as usize).min(frame.capacity())) };
            let cut_off = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            got.push(Received {
                frame,
                cut_off,
                foreign: source.sll_pkttype == libc::PACKET_OTHERHOST,
            });
        }
        Ok(())
    }

    /// Sends the frames, at most [`BATCH`], and returns how many were sent. An error is about the
    /// first of them. `WouldBlock`: there is no room now.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        // SAFETY: these are plain old data, all zeros is a valid value.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        let mut count = 0;
        for ((message, part), frame) in messages.iter_mut().zip(&mut parts).zip(frames) {
            *part =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the kernel only reads from the frames, each readable for its length.
        let sent = checked(unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
            )
        })?;
        Ok(sent as usize)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
