// SPDX-License-Identifier: Apache-2.0
//! Where the headers of a TCP or UDP packet lie in an Ethernet frame.

use super::OffloadError;
use crate::wire::{ETHERNET, TAG_LENGTH, TAG_TYPE};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;

const IPV6_HEADER: usize = 40;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Where the headers of a packet lie, in bytes from the frame's beginning.
///
/// Invariant: `ip < l4`; the IP header and its addresses lie before `l4`; and `l4` is at most the
/// frame's length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Where the IP header begins: at 14, or at 18 behind a VLAN tag.
    pub ip: usize,
    /// Where the header behind IP's begins: TCP's, UDP's or another one.
    pub l4: usize,
    /// Where the packet ends according to its IP header. That may be anywhere.
    pub end: usize,
    /// The packet is IPv6, not IPv4.
    pub v6: bool,
    /// The protocol of the header at `l4`.
    pub protocol: u8,
}

impl Layout {
    /// Finds the headers, behind at most one VLAN tag: IPv4 with its options, or IPv6 with its
    /// extension headers. Nothing from `l4` on is looked at.
    pub fn find(frame: &[u8]) -> Result<Self, OffloadError> {
        let ethertype = u16_at(frame, ETHERNET - 2)?;
        let (ip, ethertype) = match ethertype {
            TAG_TYPE | 0x88a8 => {
                let ip = ETHERNET + TAG_LENGTH;
                (ip, u16_at(frame, ip - 2)?)
            }
            _ => (ETHERNET, ethertype),
        };
        match ethertype {
            0x0800 => Self::find_v4(frame, ip),
            0x86dd => Self::find_v6(frame, ip),
            _ => Err(OffloadError::WrongProtocol),
        }
    }

    fn find_v4(frame: &[u8], ip: usize) -> Result<Self, OffloadError> {
        let header: &[u8; 20] = chunk(frame, ip)?;
        let length = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || length < header.len() {
            return Err(OffloadError::BadHeader);
        }
        // All fragments but the last have MF, and all but the first have an offset.
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(OffloadError::Fragment);
        }
        let l4 = ip + length;
        if frame.len() < l4 {
            return Err(OffloadError::Truncated);
        }
        let end = ip + usize::from(u16::from_be_bytes([header[2], header[3]]));
        Ok(Self { ip, l4, end, v6: false, protocol: header[9] })
    }

    fn find_v6(frame: &[u8], ip: usize) -> Result<Self, OffloadError> {
        let header: &[u8; IPV6_HEADER] = chunk(frame, ip)?;
        if header[0] >> 4 != 6 {
            return Err(OffloadError::BadHeader);
        }
        let mut protocol = header[6];
        let mut l4 = ip + IPV6_HEADER;
        while matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            let [next, units] = *chunk(frame, l4)?;
            protocol = next;
            l4 += 8 + 8 * usize::from(units);
        }
        if protocol == FRAGMENT {
            return Err(OffloadError::Fragment);
        }
        if frame.len() < l4 {
            return Err(OffloadError::Truncated);
        }
        let end = ip + IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
        Ok(Self { ip, l4, end, v6: true, protocol })
    }

    /// Source and destination address, one after the other, in a frame of this layout.
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        if self.v6 {
            &frame[self.ip + 8..self.ip + 40]
        } else {
            &frame[self.ip + 12..self.ip + 20]
        }
    }

    /// Whether there are IPv4 options or IPv6 extension headers.
    pub fn has_options(&self) -> bool {
        self.l4 - self.ip != if self.v6 { IPV6_HEADER } else { 20 }
    }

    /// Where the payload of a TCP or UDP packet begins. Its whole header is in the frame then.
    pub fn payload(&self, frame: &[u8]) -> Result<usize, OffloadError> {
        let length = match self.protocol {
            UDP => 8,
            TCP => {
                let header: &[u8; 20] = chunk(frame, self.l4)?;
                usize::from(header[12] >> 4) * 4
            }
            _ => return Err(OffloadError::WrongProtocol),
        };
        match self.l4 + length {
            _ if self.protocol == TCP && length < 20 => Err(OffloadError::BadHeader),
            payload if payload > frame.len() => Err(OffloadError::Truncated),
            payload => Ok(payload),
        }
    }

    /// Where the checksum lies, counted from `l4`.
    pub fn checksum_offset(&self) -> usize {
        if self.protocol == UDP {
            6
        } else {
            16
        }
    }
}

/// The 16-bit number at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, OffloadError> {
    chunk(bytes, at).map(|word| u16::from_be_bytes(*word))
}

/// Writes the 16-bit number at `at`, which must be there.
pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], OffloadError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(OffloadError::Truncated)
}
