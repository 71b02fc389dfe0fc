// SPDX-License-Identifier: Apache-2.0
//! The checksum of a frame, which is checked before anything that the frame says is believed.
//!
//! It is CRC32C, which has another polynomial than Ethernet's checksum. So this one has a good
//! chance with what that one does not see.

use super::{Malformed, BROADCAST, DATA, HEAD, HEADER, MACS, MIN_FRAME};

/// Where the checksum is. Bridges change the addresses before it on the way.
const PLACE: std::ops::Range<usize> = 16..HEAD;

/// CRC32C of everything except the addresses and the checksum itself, which is 0 at that time.
///
/// `covered` begins with a frame's head; otherwise there is nothing to cover.
fn checksum(covered: &[u8]) -> u32 {
    match (covered.get(MACS..PLACE.start), covered.get(HEAD..)) {
        (Some(first), Some(rest)) => crc32c::crc32c_append(crc32c::crc32c(first), rest),
        _ => 0,
    }
}

/// The [`checksum`] of a header. It is computed in one piece that begins where words do: that is
/// twice as fast as in two pieces that do not.
fn checksum_of_header(header: &[u8; HEADER]) -> u32 {
    const FIRST: usize = PLACE.start - MACS;
    #[repr(align(8))]
    struct Words([u8; FIRST + HEADER - HEAD]);
    let mut words = Words([0; FIRST + HEADER - HEAD]);
    words.0[..FIRST].copy_from_slice(&header[MACS..PLACE.start]);
    words.0[FIRST..].copy_from_slice(&header[HEAD..]);
    crc32c::crc32c(&words.0)
}

/// The part of a frame that its checksum covers. A host's payload has checksums of its own, so in a
/// frame with one this is the header; otherwise it is the whole frame. `None` if the frame is
/// shorter than any of its type.
fn covered(frame: &[u8]) -> Option<&[u8]> {
    match frame.get(14)? & 0xf {
        DATA | BROADCAST => frame.get(..HEADER),
        _ => Some(frame).filter(|frame| frame.len() >= MIN_FRAME),
    }
}

/// Writes the checksum into a frame that is otherwise complete. Pads a frame without a host's
/// payload to Ethernet's least length.
///
/// A frame that is too short for a head does not change.
pub fn seal(frame: &mut Vec<u8>) {
    let Some(kind) = frame.get(14).map(|byte| byte & 0xf) else { return };
    if !matches!(kind, DATA | BROADCAST) && frame.len() >= HEAD && frame.len() < MIN_FRAME {
        frame.resize(MIN_FRAME, 0);
    }
    let Some(sum) = covered(frame).map(checksum) else { return };
    frame[PLACE].copy_from_slice(&sum.to_be_bytes());
}

/// Does the same as [`seal`], for a data frame.
pub(super) fn seal_header(header: &mut [u8; HEADER]) {
    let sum = checksum_of_header(header);
    header[PLACE].copy_from_slice(&sum.to_be_bytes());
}

/// Checks whether a frame of this version has the right checksum.
pub(super) fn check(frame: &[u8]) -> Result<(), Malformed> {
    let covered = covered(frame).ok_or(Malformed::Truncated)?;
    let sum = covered.try_into().map_or_else(|_| checksum(covered), checksum_of_header);
    if covered.get(PLACE) != Some(&sum.to_be_bytes()) {
        return Err(Malformed::Checksum);
    }
    Ok(())
}
