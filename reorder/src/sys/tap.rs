// SPDX-License-Identifier: Apache-2.0
//! TAP devices: one frame per call, with the offloads of virtio_net where wanted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::interface::{request, Interfaces};
use super::{checked, checked_len, Unavailable};
use crate::wire::{MACS, TAG_LENGTH, TAG_TYPE};

/// Length of the virtio_net header, in bytes.
pub const VNET: usize = 10;
/// Offloads that the kernel is asked for, best first. Those with segmentation of UDP came with
/// Linux 6.2.
const OFFLOADS: [libc::c_uint; 3] = [
    libc::TUN_F_CSUM
        | libc::TUN_F_TSO4
        | libc::TUN_F_TSO6
        | libc::TUN_F_TSO_ECN
        | libc::TUN_F_USO4
        | libc::TUN_F_USO6,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
    libc::TUN_F_CSUM,
];

/// A TAP that this process holds. As long as it does, the TAP has carrier.
///
/// With `vnet_hdr`, every frame has 10 bytes of virtio_net header before it, in the machine's byte
/// order.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    vnet_hdr: bool,
    /// Those of OFFLOADS that the kernel took.
    offloads: libc::c_uint,
}

impl Tap {
    /// Takes the TAP `name`, which somebody (`host-up`) has made persistent and up. Needs
    /// CAP_NET_ADMIN, unless the TAP belongs to this user.
    ///
    /// With `offloads`, the kernel may hand over super-frames and partial checksums, and takes
    /// them. Otherwise every frame is complete, and at most as long as the MTU. `offloads` needs
    /// `vnet_hdr`.
    pub fn open(name: &str, vnet_hdr: bool, offloads: bool) -> Result<Self, Unavailable> {
        let here = Interfaces::open().and_then(|interfaces| interfaces.index(name));
        match here {
            // Otherwise TUNSETIFF would make a TAP that the bridge does not know.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(Unavailable(format!(
                "there is no interface {name}: make it with host-up --helper"
            ))),
            Err(error) => Err(Unavailable::because(format_args!("interface {name}"), &error)),
            Ok(_) => Self::attach(name, vnet_hdr, offloads),
        }
    }

    /// Takes the TAP `name`, or makes it if it is not there. A TAP that was made goes with this
    /// process. Returns whether it was made. Needs CAP_NET_ADMIN.
    pub fn open_or_make(
        name: &str,
        vnet_hdr: bool,
        offloads: bool,
    ) -> Result<(Self, bool), Unavailable> {
        let made = Interfaces::open().and_then(|interfaces| interfaces.index(name)).is_err();
        Ok((Self::attach(name, vnet_hdr, offloads)?, made))
    }

    fn attach(name: &str, vnet_hdr: bool, offloads: bool) -> Result<Self, Unavailable> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(|error| Unavailable::because("/dev/net/tun (module tun)", &error))?;
        let mut ifreq = request(name)
            .map_err(|error| Unavailable::because(format_args!("TAP {name}"), &error))?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | if vnet_hdr { libc::IFF_VNET_HDR } else { 0 };
        ifreq.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut ifreq) }).map_err(
            |error| match error.raw_os_error() {
                Some(libc::EBUSY) => Unavailable(format!("TAP {name}: another process has it")),
                Some(libc::EINVAL) => Unavailable(format!("{name} is not a TAP with one queue")),
                _ => Unavailable::because(format_args!("TAP {name}"), &error),
            },
        )?;
        let mut tap = Tap { file, name: name.to_string(), vnet_hdr, offloads: 0 };
        tap.configure(offloads)
            .map_err(|error| Unavailable::because(format_args!("TAP {name}"), &error))?;
        Ok(tap)
    }

    /// Header and offloads stay with a persistent TAP. So they are set even to their defaults.
    fn configure(&mut self, offloads: bool) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        if self.vnet_hdr {
            let length = VNET as libc::c_int;
            // SAFETY: TUNSETVNETHDRSZ reads one int.
            checked(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &length) })?;
        }
        // SAFETY: TUNSETOFFLOAD takes a number.
        let set = |wanted: libc::c_uint| {
            checked(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, wanted) }).map(drop)
        };
        if !(self.vnet_hdr && offloads) {
            return set(0);
        }
        match OFFLOADS.iter().find(|wanted| set(**wanted).is_ok()) {
            Some(taken) => self.offloads = *taken,
            None => set(0)?,
        }
        Ok(())
    }

    /// Whether the kernel takes super-frames of UDP datagrams (Linux 6.2).
    pub fn takes_udp(&self) -> bool {
        self.offloads & libc::TUN_F_USO4 != 0
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a virtio_net header comes before each frame.
    pub fn has_vnet_hdr(&self) -> bool {
        self.vnet_hdr
    }

    /// Keeps the TAP (or no longer keeps it) when this process is gone.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        // SAFETY: TUNSETPERSIST takes a number.
        checked(unsafe {
            libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST, libc::c_int::from(persistent))
        })
        .map(drop)
    }

    /// Reads one frame that the kernel sends out by this TAP into the capacity of `frame`, and its
    /// header (zeros on a TAP without). A frame that fills the whole capacity was cut off.
    /// `WouldBlock`: there is nothing to read.
    pub fn read(&self, header: &mut [u8; VNET], frame: &mut Vec<u8>) -> io::Result<()> {
        frame.clear();
        *header = [0; VNET];
        let head = if self.vnet_hdr { VNET } else { 0 };
        let room = frame.spare_capacity_mut();
        let parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: head },
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
        ];
        // SAFETY: both parts are writable for the given lengths.
        let length = checked_len(unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), 2) })?;
        // The kernel returns the length of the whole frame, even if it had to cut it off.
        let written = length.saturating_sub(head).min(frame.capacity());
        // SAFETY: the kernel wrote the header, and then this many bytes.
        unsafe { frame.set_len(written) };
        Ok(())
    }

    /// Does the same as [`Tap::read`], for a TAP without virtio_net header. An 802.1Q tag
    /// (EtherType 0x8100) is taken out of the frame and returned. There is always room for 64
    /// bytes.
    pub fn read_tagged(&self, frame: &mut Vec<u8>) -> io::Result<Option<[u8; TAG_LENGTH]>> {
        frame.clear();
        frame.reserve(64);
        let mut tag = [0; TAG_LENGTH];
        let room = frame.spare_capacity_mut();
        let (macs, rest) = room.split_at_mut(MACS);
        let parts = [
            libc::iovec { iov_base: macs.as_mut_ptr().cast(), iov_len: macs.len() },
            libc::iovec { iov_base: tag.as_mut_ptr().cast(), iov_len: tag.len() },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        // SAFETY: all parts are writable for the given lengths.
        let length = checked_len(unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), 3) })?;
        let length = length.min(frame.capacity() + tag.len());
        let behind = length.saturating_sub(MACS);
        // SAFETY: of `length` bytes the kernel wrote min(length, 12) to `macs`, the next 4 to
        // `tag`, the others to `rest`, which follows `macs` in the frame.
        unsafe { frame.set_len(length - behind.min(tag.len())) };
        if behind >= tag.len() && tag[..2] == TAG_TYPE.to_be_bytes() {
            return Ok(Some(tag));
        }
        // This is rare: it is no tag, so these bytes belong to the frame.
        frame
            .splice(length - behind..length - behind, tag[..behind.min(tag.len())].iter().copied());
        Ok(None)
    }

    /// Gives one frame to the kernel, as if it arrived by this TAP. The header counts only on a TAP
    /// that has one.
    pub fn write(&self, header: &[u8; VNET], frame: &[u8]) -> io::Result<()> {
        let head = if self.vnet_hdr { &header[..] } else { &[] };
        self.write_parts(&[head, frame])
    }

    /// Does the same as [`Tap::write`], for a TAP without virtio_net header. `tag` is put in behind
    /// the MACs.
    pub fn write_tagged(&self, tag: [u8; TAG_LENGTH], frame: &[u8]) -> io::Result<()> {
        let (macs, rest) = frame.split_at(MACS.min(frame.len()));
        self.write_parts(&[macs, &tag, rest])
    }

    fn write_parts<const N: usize>(&self, parts: &[&[u8]; N]) -> io::Result<()> {
        let parts = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: writev only reads from the parts, which are readable for the given lengths.
        checked_len(unsafe {
            libc::writev(self.file.as_raw_fd(), parts.as_ptr(), N as libc::c_int)
        })
        .map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
