//! The checksum of a frame: nothing that it says is believed before this was checked.
//!
//! It is CRC32C, another polynomial than Ethernet's: what Ethernet's own does not see has a good
//! chance with this one.

use super::{Malformed, BROADCAST, DATA, HEAD, HEADER, MIN_FRAME};

/// Where the checksum is.
const PLACE: std::ops::Range<usize> = 16..HEAD;
/// Bytes of destination and source address, which bridges change on the way.
const MACS: usize = 12;

/// CRC32C of all but the addresses and the checksum itself, which is 0 then.
///
/// `covered` begins with a frame's head: else there is nothing to cover.
fn checksum(covered: &[u8]) -> u32 {
    match (covered.get(MACS..PLACE.start), covered.get(HEAD..)) {
        (Some(first), Some(rest)) => crc32c::crc32c_append(crc32c::crc32c(first), rest),
        _ => 0,
    }
}

/// As [`checksum`] of a header: in one piece and where words begin, which is twice as fast as in
/// two where they do not.
fn checksum_of_header(header: &[u8; HEADER]) -> u32 {
    const FIRST: usize = PLACE.start - MACS;
    #[repr(align(8))]
    struct Words([u8; FIRST + HEADER - HEAD]);
    let mut words = Words([0; FIRST + HEADER - HEAD]);
    words.0[..FIRST].copy_from_slice(&header[MACS..PLACE.start]);
    words.0[FIRST..].copy_from_slice(&header[HEAD..]);
    crc32c::crc32c(&words.0)
}

/// How much of a frame its checksum covers: the header of what has a host's payload, which has
/// checksums of its own, and all of the others. `None`: it is shorter than any of its type.
fn covered(frame: &[u8]) -> Option<&[u8]> {
    match frame.get(14)? & 0xf {
        DATA | BROADCAST => frame.get(..HEADER),
        _ => Some(frame).filter(|frame| frame.len() >= MIN_FRAME),
    }
}

/// Writes the checksum into a frame that is complete but for it; pads what has no payload to
/// Ethernet's least length.
///
/// What is too short for a head stays as it is.
pub fn seal(frame: &mut Vec<u8>) {
    let Some(kind) = frame.get(14).map(|byte| byte & 0xf) else { return };
    if !matches!(kind, DATA | BROADCAST) && frame.len() >= HEAD && frame.len() < MIN_FRAME {
        frame.resize(MIN_FRAME, 0);
    }
    let Some(sum) = covered(frame).map(checksum) else { return };
    frame[PLACE].copy_from_slice(&sum.to_be_bytes());
}

/// As [`seal`], for a data frame.
pub(super) fn seal_header(header: &mut [u8; HEADER]) {
    let sum = checksum_of_header(header);
    header[PLACE].copy_from_slice(&sum.to_be_bytes());
}

/// Whether a frame of this version has its checksum.
pub(super) fn check(frame: &[u8]) -> Result<(), Malformed> {
    let covered = covered(frame).ok_or(Malformed::Truncated)?;
    let sum = covered.try_into().map_or_else(|_| checksum(covered), checksum_of_header);
    if covered.get(PLACE) != Some(&sum.to_be_bytes()) {
        return Err(Malformed::Checksum);
    }
    Ok(())
}
