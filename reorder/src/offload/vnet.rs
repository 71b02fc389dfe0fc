// SPDX-License-Identifier: Apache-2.0
//! The header that the kernel puts before each frame of a TAP with `IFF_VNET_HDR` (`struct
//! virtio_net_hdr`).
//!
//! It has ten bytes, in the byte order of the machine. Its `hdr_len` is a hint, is often wrong, and
//! is not used for reading.

use super::OffloadError;
use crate::wire::ETHERNET;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What a super-frame is cut into.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Gso {
    /// Nothing: it is one frame.
    #[default]
    None,
    /// TCP segments over IPv4.
    TcpV4,
    /// TCP segments over IPv6.
    TcpV6,
    /// UDP datagrams over IPv4 or IPv6.
    Udp,
}

/// What the kernel says about the frame that follows, or is told about it. The default is an
/// ordinary, complete frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VnetHdr {
    /// The checksum at `csum_start + csum_offset` holds the sum of the pseudo-header alone.
    pub needs_csum: bool,
    /// The checksum was verified.
    pub data_valid: bool,
    /// What to cut the frame into.
    pub gso: Gso,
    /// The super-frame's TCP header has CWR set.
    pub ecn: bool,
    /// Bytes of all headers before the payload; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment except the last.
    pub gso_size: u16,
    /// Where the part with the checksum begins, counted from the frame's beginning. It ends with
    /// the frame.
    pub csum_start: u16,
    /// Where the checksum lies, counted from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHdr {
    /// Bytes before each frame.
    pub const LEN: usize = 10;

    /// Reads the header with which `bytes` begin. Flags that say nothing about sending are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, OffloadError> {
        let head: &[u8; Self::LEN] = bytes.first_chunk().ok_or(OffloadError::Truncated)?;
        let [flags, kind, ..] = *head;
        let field = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let gso = match kind & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::TcpV4,
            GSO_TCPV6 => Gso::TcpV6,
            GSO_UDP_L4 => Gso::Udp,
            _ => return Err(OffloadError::UnknownGso),
        };
        Ok(Self {
            needs_csum: flags & NEEDS_CSUM != 0,
            data_valid: flags & DATA_VALID != 0,
            gso,
            ecn: kind & GSO_ECN != 0,
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        })
    }

    /// The header as the kernel reads it.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let kind = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::Udp => GSO_UDP_L4,
        };
        let mut head = [0; Self::LEN];
        head[0] = if self.needs_csum { NEEDS_CSUM } else { 0 }
            | if self.data_valid { DATA_VALID } else { 0 };
        head[1] = kind | if self.ecn { GSO_ECN } else { 0 };
        for (at, value) in
            [(2, self.hdr_len), (4, self.gso_size), (6, self.csum_start), (8, self.csum_offset)]
        {
            head[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        head
    }

    /// Whether the frame is a super-frame.
    pub fn is_gso(&self) -> bool {
        self.gso != Gso::None
    }

    /// Checks whether the header can be true of `frame`, as far as that shows without reading the
    /// packet.
    pub fn check(&self, frame: &[u8]) -> Result<(), OffloadError> {
        if frame.len() < ETHERNET {
            return Err(OffloadError::Truncated);
        }
        if self.is_gso() && (!self.needs_csum || self.gso_size == 0) {
            return Err(OffloadError::BadGso);
        }
        let (start, offset) = (usize::from(self.csum_start), usize::from(self.csum_offset));
        if self.needs_csum && (start < ETHERNET || start + offset + 2 > frame.len()) {
            return Err(OffloadError::BadChecksumPlace);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCPv4 super-frame with ECN, as Linux lays it out on this machine.
    #[test]
    fn reads_what_the_kernel_writes() {
        let mut bytes = vec![1, 0x81];
        for field in [66u16, 1448, 34, 16] {
            bytes.extend(field.to_ne_bytes());
        }
        let hdr = VnetHdr::parse(&bytes).unwrap();
        let wanted = VnetHdr {
            needs_csum: true,
            data_valid: false,
            gso: Gso::TcpV4,
            ecn: true,
            hdr_len: 66,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        assert_eq!(hdr, wanted);
        assert_eq!(hdr.to_bytes()[..], bytes[..]);
    }

    #[test]
    fn an_ordinary_frame_has_a_header_of_zeros() {
        assert_eq!(VnetHdr::default().to_bytes(), [0; 10]);
        assert_eq!(VnetHdr::default().check(&[0; 14]), Ok(()));
        assert_eq!(VnetHdr::default().check(&[0; 13]), Err(OffloadError::Truncated));
    }

    #[test]
    fn refuses_what_was_never_offered() {
        assert_eq!(VnetHdr::parse(&[0; 9]), Err(OffloadError::Truncated));
        // 3 is UFO.
        assert_eq!(VnetHdr::parse(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0]), Err(OffloadError::UnknownGso));
    }

    #[test]
    fn a_checksum_lies_within_the_frame() {
        let at = |start, offset| VnetHdr {
            needs_csum: true,
            csum_start: start,
            csum_offset: offset,
            ..VnetHdr::default()
        };
        assert_eq!(at(34, 16).check(&[0; 52]), Ok(()));
        assert_eq!(at(34, 16).check(&[0; 51]), Err(OffloadError::BadChecksumPlace));
        assert_eq!(at(0xffff, 0xffff).check(&[0; 1500]), Err(OffloadError::BadChecksumPlace));
        assert_eq!(at(12, 0).check(&[0; 1500]), Err(OffloadError::BadChecksumPlace));
    }

    #[test]
    fn a_super_frame_needs_a_size_and_a_partial_checksum() {
        let hdr = VnetHdr {
            needs_csum: true,
            gso: Gso::Udp,
            gso_size: 100,
            csum_start: 34,
            csum_offset: 6,
            ..VnetHdr::default()
        };
        assert_eq!(hdr.check(&[0; 142]), Ok(()));
        assert_eq!(VnetHdr { gso_size: 0, ..hdr }.check(&[0; 142]), Err(OffloadError::BadGso));
        assert_eq!(
            VnetHdr { needs_csum: false, ..hdr }.check(&[0; 142]),
            Err(OffloadError::BadGso)
        );
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_to_bytes(bytes: [u8; 10]) {
            if let Ok(hdr) = VnetHdr::parse(&bytes) {
                prop_assert_eq!(VnetHdr::parse(&hdr.to_bytes()), Ok(hdr));
            }
        }
    }
}
