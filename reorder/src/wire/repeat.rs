// SPDX-License-Identifier: Apache-2.0
//! Type 3: a request to repeat frames.

use super::{
    channel_and_session, head, seal, session_number, Mac, Malformed, Reader, HEAD, REPEAT,
};
use crate::seq::Seq;

/// The most ranges in one request.
pub const MAX_RANGES: usize = 128;
/// The most frames in one range.
pub const MAX_RANGE: u16 = 1024;
/// Bytes of a range.
const RANGE: usize = 6;

/// A request to repeat frames, as it was read.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Repeat<'a> {
    /// Where the frame goes: to a NIC or, between bridge and helper, to a host.
    pub dst: Mac,
    /// Where the frame comes from: a NIC or, between bridge and helper, a host.
    pub src: Mac,
    /// Channel whose frames are asked for, up to 63; 0 for those of no job.
    pub channel: u8,
    /// Session whose frames are asked for, not 0. In a job's channel: XOR the job's tag.
    pub session: u32,
    /// Session of the one who asks, not 0.
    pub asker: u32,
    /// The frames that are asked for.
    pub ranges: Ranges<'a>,
}

/// Ranges of frames that are asked for, as they are on the wire: 1 to 128 ranges of 1 to 1024
/// frames each.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Ranges<'a>(&'a [u8]);

impl<'a> Ranges<'a> {
    fn read(count: u8, rest: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = usize::from(count);
        if count == 0 || count > MAX_RANGES {
            return Err(Malformed::BadCount);
        }
        let ranges = Self(rest.slice(count * RANGE)?);
        if ranges.iter().any(|(_, frames)| frames == 0 || frames > MAX_RANGE) {
            return Err(Malformed::BadRange);
        }
        Ok(ranges)
    }

    /// The first sequence and the number of frames of each range.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, u16)> + 'a {
        self.0.chunks_exact(RANGE).map(|range| {
            let first = [range[0], range[1], range[2], range[3]];
            (Seq(u32::from_be_bytes(first)), u16::from_be_bytes([range[4], range[5]]))
        })
    }
}

impl<'a> Repeat<'a> {
    pub(super) fn read(dst: Mac, src: Mac, mut rest: Reader<'a>) -> Result<Self, Malformed> {
        let [channel, count] = rest.array()?;
        let (channel, session) = channel_and_session(channel, rest.u32()?)?;
        let asker = session_number(rest.u32()?)?;
        let ranges = Ranges::read(count, &mut rest)?;
        rest.end()?;
        Ok(Self { dst, src, channel, session, asker, ranges })
    }

    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (channel, ranges) = (self.channel, self.ranges.iter());
        write(self.dst, self.src, channel, self.session, self.asker, ranges, out);
    }
}

/// Writes a request into `out`, and removes what was there. A range that is too long is split. What
/// does not fit into one request is left out, and must be asked for again. Returns how many ranges
/// it wrote; 0 makes no valid frame.
pub fn write(
    dst: Mac,
    src: Mac,
    channel: u8,
    session: u32,
    asker: u32,
    ranges: impl IntoIterator<Item = (Seq, u16)>,
    out: &mut Vec<u8>,
) -> usize {
    out.clear();
    out.extend_from_slice(&head(dst, src, REPEAT, 0));
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&session.to_be_bytes());
    out.extend_from_slice(&asker.to_be_bytes());
    let split = ranges.into_iter().flat_map(|(first, frames)| {
        let starts = (0..frames).step_by(usize::from(MAX_RANGE));
        starts.map(move |start| (first.add(u32::from(start)), (frames - start).min(MAX_RANGE)))
    });
    let mut count = 0u8;
    for (first, frames) in split.take(MAX_RANGES) {
        out.extend_from_slice(&first.0.to_be_bytes());
        out.extend_from_slice(&frames.to_be_bytes());
        count += 1;
    }
    out[HEAD..HEAD + 2].copy_from_slice(&[channel, count]);
    seal(out);
    usize::from(count)
}
