// SPDX-License-Identifier: Apache-2.0
//! Type 7: what a helper says of its channels, right after a heartbeat on the same link.

use super::{
    head, link_number, seal, session_number, Mac, Malformed, Reader, CHANNELS, HEAD, MAX_CHANNEL,
};
use crate::seq::Seq;

/// An entry's flag: the sender does not know whether the receiver takes this channel, and asks.
pub const ASKS: u8 = 1;
/// An entry's flag: the sender knows where the receiver is in its sequence of this channel.
pub const BEGUN: u8 = 2;

/// The most entries of one frame. More of them go into several frames after the same heartbeat.
pub const MAX_ENTRIES: usize = 48;
/// Bytes of an entry.
const ENTRY: usize = 28;

/// What a helper says of its channels, as it was read.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Channels<'a> {
    /// Where the frame goes: to a host, since there are channels between bridges only.
    pub dst: Mac,
    /// Where the frame comes from.
    pub src: Mac,
    /// Number of the link over which it was sent, below 64.
    pub link: u8,
    /// Session of the sender, not 0.
    pub session: u32,
    /// Sequence of the heartbeat that was sent before it over this link.
    pub beat: Seq,
    /// The channels.
    pub entries: Entries<'a>,
}

/// What a helper says of a channel. It says so only of channels that it takes from the receiver.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct ChannelEntry {
    /// Number of the channel, up to 63; 0 for frames of no job, if they may not use all links.
    pub channel: u8,
    /// [`ASKS`], [`BEGUN`].
    pub flags: u8,
    /// Tag of the job to which the sender's channel belongs.
    pub tag: u32,
    /// Links over which the sender's frames of the channel go, a bit each.
    pub links: u64,
    /// The sequence of the sender's next data frame of the channel.
    pub next: Seq,
    /// With [`BEGUN`]: all data frames of the receiver in the channel before this sequence were
    /// delivered or given up.
    pub expected: Seq,
    /// kbit/s that the sender would send in the channel; [`NO_LIMIT`](super::NO_LIMIT) if that is
    /// more than it is granted. For channel 0 the heartbeat says it.
    pub demand_kbps: u32,
}

/// Entries as they are on the wire: 1 to 48, in order of their channels.
#[derive(Copy, Clone, Debug)]
pub struct Entries<'a>(&'a [u8]);

/// Entries are equal when they say the same: the bytes that are not looked at do not count.
impl PartialEq for Entries<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Entries<'_> {}

impl<'a> Entries<'a> {
    fn read(count: u8, rest: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = usize::from(count);
        if count == 0 || count > MAX_ENTRIES {
            return Err(Malformed::BadCount);
        }
        let entries = Self(rest.slice(count * ENTRY)?);
        let mut last = None;
        for raw in entries.0.chunks_exact(ENTRY) {
            if raw[0] > MAX_CHANNEL {
                return Err(Malformed::Channel(raw[0]));
            }
            if raw[1] & !(ASKS | BEGUN) != 0 || last.is_some_and(|last| raw[0] <= last) {
                return Err(Malformed::BadEntry);
            }
            last = Some(raw[0]);
        }
        Ok(entries)
    }

    /// Each entry.
    pub fn iter(&self) -> impl Iterator<Item = ChannelEntry> + 'a {
        self.0.chunks_exact(ENTRY).filter_map(|raw| ChannelEntry::read(Reader::new(raw)).ok())
    }
}

impl ChannelEntry {
    fn read(mut rest: Reader<'_>) -> Result<Self, Malformed> {
        let [channel, flags, _, _] = rest.array()?;
        Ok(Self {
            channel,
            flags,
            tag: rest.u32()?,
            links: rest.u64()?,
            next: Seq(rest.u32()?),
            expected: Seq(rest.u32()?),
            demand_kbps: rest.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.channel, self.flags, 0, 0]);
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.links.to_be_bytes());
        out.extend_from_slice(&self.next.0.to_be_bytes());
        out.extend_from_slice(&self.expected.0.to_be_bytes());
        out.extend_from_slice(&self.demand_kbps.to_be_bytes());
    }
}

impl<'a> Channels<'a> {
    pub(super) fn read(dst: Mac, src: Mac, mut rest: Reader<'a>) -> Result<Self, Malformed> {
        let count = rest.u8()?;
        let link = link_number(u16::from(rest.u8()?))?;
        let session = session_number(rest.u32()?)?;
        let beat = Seq(rest.u32()?);
        let entries = Entries::read(count, &mut rest)?;
        rest.end()?;
        Ok(Self { dst, src, link, session, beat, entries })
    }

    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let entries: Vec<ChannelEntry> = self.entries.iter().collect();
        write(self.dst, self.src, self.link, self.session, self.beat, &entries, out);
    }
}

/// Writes a frame into `out`, and removes what was there. At most [`MAX_ENTRIES`] fit, in order of
/// their channels; none makes no valid frame.
pub fn write(
    dst: Mac,
    src: Mac,
    link: u8,
    session: u32,
    beat: Seq,
    entries: &[ChannelEntry],
    out: &mut Vec<u8>,
) {
    let entries = &entries[..entries.len().min(MAX_ENTRIES)];
    out.clear();
    out.extend_from_slice(&head(dst, src, CHANNELS, 0));
    out.extend_from_slice(&[entries.len() as u8, link]);
    out.extend_from_slice(&session.to_be_bytes());
    out.extend_from_slice(&beat.0.to_be_bytes());
    debug_assert_eq!(out.len(), HEAD + 10);
    entries.iter().for_each(|entry| entry.write(out));
    seal(out);
}
