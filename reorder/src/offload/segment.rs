// SPDX-License-Identifier: Apache-2.0
//! Cuts super-frames from the TAP into frames for the wire, and completes checksums.
//!
//! This is what a network card does for TSO and USO: each segment gets the headers, with its own
//! lengths, IPv4 identification, TCP sequence number and checksums. A super-frame is cut as a
//! whole, or refused as a whole.

use super::checksum::{add, complete, subtract, sum};
use super::packet::{put_u16, u16_at, Layout, TCP, UDP};
use super::vnet::{Gso, VnetHdr};
use super::{OffloadError, SPARE};

/// A super-frame with more segments is refused. This many are 64 KB in segments of 64 bytes.
pub const MAX_SEGMENTS: usize = 1024;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Hands the frames for which `frame` stands to `out`, in order: its segments, or a copy with a
/// complete checksum. Returns their number. Each is at most `max_frame` bytes long, counted from
/// the destination MAC. After an error, none was handed over.
pub fn segments(
    hdr: &VnetHdr,
    frame: &[u8],
    max_frame: usize,
    out: &mut impl FnMut(Vec<u8>),
) -> Result<usize, OffloadError> {
    segments_in(hdr, frame, max_frame, &mut Vec::new, out)
}

/// Does the same as [`segments`], in buffers that `buffers` supplies. What they hold is
/// overwritten. Buffers grow as needed, and have [`SPARE`] bytes to spare.
pub fn segments_in(
    hdr: &VnetHdr,
    frame: &[u8],
    max_frame: usize,
    buffers: &mut impl FnMut() -> Vec<u8>,
    out: &mut impl FnMut(Vec<u8>),
) -> Result<usize, OffloadError> {
    if hdr.is_gso() {
        let cut = Cut::plan(hdr, frame, max_frame)?;
        for index in 0..cut.count {
            out(cut.segment(frame, index, buffers()));
        }
        return Ok(cut.count);
    }
    check_whole(hdr, frame, max_frame)?;
    let mut whole = filled(buffers(), &[frame]);
    complete_whole(hdr, &mut whole)?;
    out(whole);
    Ok(1)
}

/// Makes an ordinary frame, which is no super-frame, fit for the wire where it is: as [`segments`],
/// without the copy.
pub fn finish(hdr: &VnetHdr, frame: &mut [u8], max_frame: usize) -> Result<(), OffloadError> {
    if hdr.is_gso() {
        return Err(OffloadError::BadGso);
    }
    check_whole(hdr, frame, max_frame)?;
    complete_whole(hdr, frame)
}

fn check_whole(hdr: &VnetHdr, frame: &[u8], max_frame: usize) -> Result<(), OffloadError> {
    hdr.check(frame)?;
    if frame.len() > max_frame {
        return Err(OffloadError::TooLong);
    }
    Ok(())
}

fn complete_whole(hdr: &VnetHdr, frame: &mut [u8]) -> Result<(), OffloadError> {
    if !hdr.needs_csum {
        return Ok(());
    }
    complete(frame, usize::from(hdr.csum_start), usize::from(hdr.csum_offset))
}

fn filled(mut buffer: Vec<u8>, parts: &[&[u8]]) -> Vec<u8> {
    buffer.clear();
    buffer.reserve(parts.iter().map(|part| part.len()).sum::<usize>() + SPARE);
    for part in parts {
        buffer.extend_from_slice(part);
    }
    buffer
}

/// How a super-frame is cut.
///
/// Invariant: all headers lie before `payload`, which lies in the frame. No segment is longer than
/// an IP packet can be.
struct Cut {
    layout: Layout,
    /// Where the payload begins.
    payload: usize,
    /// Payload bytes of each segment except the last.
    size: usize,
    count: usize,
    /// The sum of the pseudo-header without its length.
    seed: u16,
}

impl Cut {
    fn plan(hdr: &VnetHdr, frame: &[u8], max_frame: usize) -> Result<Self, OffloadError> {
        hdr.check(frame)?;
        let layout = Layout::find(frame)?;
        let kind = match (layout.protocol, layout.v6) {
            (TCP, false) => Gso::TcpV4,
            (TCP, true) => Gso::TcpV6,
            (UDP, _) => Gso::Udp,
            _ => return Err(OffloadError::WrongProtocol),
        };
        if kind != hdr.gso {
            return Err(OffloadError::WrongProtocol);
        }
        let payload = layout.payload(frame)?;
        let place = (usize::from(hdr.csum_start), usize::from(hdr.csum_offset));
        if place != (layout.l4, layout.checksum_offset()) {
            return Err(OffloadError::BadChecksumPlace);
        }
        // As in the kernel, the frame's length counts. The IP header's need not be right in a
        // super-frame.
        let bytes = frame.len() - payload;
        let size = usize::from(hdr.gso_size);
        let longest_packet = usize::from(u16::MAX) + if layout.v6 { 40 } else { 0 };
        if payload + bytes.min(size) > max_frame || frame.len() - layout.ip > longest_packet {
            return Err(OffloadError::TooLong);
        }
        let count = bytes.div_ceil(size).max(1);
        if count > MAX_SEGMENTS {
            return Err(OffloadError::TooMany);
        }
        // The sum that the kernel put there counts, not one of our own: with an IPv6 routing
        // header, the destination in the pseudo-header is not that of the IP header.
        let partial = u16_at(frame, layout.l4 + layout.checksum_offset())?;
        let seed = subtract(partial, (frame.len() - layout.l4) as u16);
        Ok(Self { layout, payload, size, count, seed })
    }

    fn segment(&self, frame: &[u8], index: usize, buffer: Vec<u8>) -> Vec<u8> {
        let Layout { ip, l4, .. } = self.layout;
        let start = self.payload + index * self.size;
        let end = frame.len().min(start + self.size);
        let mut segment = filled(buffer, &[&frame[..self.payload], &frame[start..end]]);
        let length = segment.len();
        if self.layout.v6 {
            put_u16(&mut segment, ip + 4, (length - ip - 40) as u16);
        } else {
            put_u16(&mut segment, ip + 2, (length - ip) as u16);
            let id = u16::from_be_bytes([segment[ip + 4], segment[ip + 5]]);
            put_u16(&mut segment, ip + 4, id.wrapping_add(index as u16));
            put_u16(&mut segment, ip + 10, 0);
            let checksum = !sum(&segment[ip..l4]);
            put_u16(&mut segment, ip + 10, checksum);
        }
        let l4_length = (length - l4) as u16;
        if self.layout.protocol == TCP {
            let sequence = [segment[l4 + 4], segment[l4 + 5], segment[l4 + 6], segment[l4 + 7]];
            let sequence = u32::from_be_bytes(sequence).wrapping_add((index * self.size) as u32);
            segment[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
            if index > 0 {
                segment[l4 + 13] &= !CWR;
            }
            if index + 1 < self.count {
                segment[l4 + 13] &= !(FIN | PSH);
            }
        } else {
            put_u16(&mut segment, l4 + 4, l4_length);
        }
        let place = l4 + self.layout.checksum_offset();
        put_u16(&mut segment, place, add(self.seed, l4_length));
        let checksum = match !sum(&segment[l4..]) {
            // To UDP, 0 means that there is no checksum.
            0 if self.layout.protocol == UDP => 0xffff,
            checksum => checksum,
        };
        put_u16(&mut segment, place, checksum);
        segment
    }
}
