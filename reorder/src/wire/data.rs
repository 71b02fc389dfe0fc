// SPDX-License-Identifier: Apache-2.0
//! Type 1: a frame of a session in its envelope.

use super::seal::seal_header;
use super::{
    channel_and_session, head, link_number, Mac, Malformed, Reader, DATA, ETHERTYPE, HEAD, HEADER,
    MACS, OVERHEAD,
};
use crate::seq::Seq;

/// Flag: the frame was sent before.
pub const REPEATED: u8 = 1;
/// Flag: deliver the frame at once, without waiting for those before it.
pub const UNORDERED: u8 = 2;
/// Flag: the sender has more frames, which wait for credit.
pub const MORE: u8 = 4;
pub(super) const FLAGS: u8 = REPEATED | UNORDERED | MORE;

/// Where the original frame's EtherType and payload begin in the envelope.
const INNER: usize = MACS + OVERHEAD;

/// A data frame, as it was read.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Data<'a> {
    /// Where the frame goes: to a NIC or, between bridge and helper, to a host.
    pub dst: Mac,
    /// Where the frame comes from: a NIC or, between bridge and helper, a host.
    pub src: Mac,
    /// [`REPEATED`], [`UNORDERED`], [`MORE`].
    pub flags: u8,
    /// Number of the channel, up to 63; 0 if the frame is of no job.
    pub channel: u8,
    /// Number of the link over which it was sent, below 64.
    pub link: u8,
    /// Number of the session, not 0. In a job's channel: that number XOR the job's tag.
    pub session: u32,
    /// Its sequence in the session and channel.
    pub seq: Seq,
    /// Its sequence among the session's frames on this link.
    pub link_seq: Seq,
    /// EtherType of the original frame.
    pub ethertype: u16,
    /// Payload of the original frame, with Ethernet's padding.
    pub payload: &'a [u8],
}

/// What the envelope says of a frame.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct DataHead {
    /// [`REPEATED`], [`UNORDERED`], [`MORE`].
    pub flags: u8,
    /// Number of the channel, up to 63; 0 if the frame is of no job.
    pub channel: u8,
    /// Number of the link, below 64.
    pub link: u8,
    /// Number of the session, not 0. In a job's channel: that number XOR the job's tag.
    pub session: u32,
    /// Its sequence in the session and channel.
    pub seq: Seq,
    /// Its sequence among the session's frames on this link.
    pub link_seq: Seq,
}

impl DataHead {
    /// Bytes 12 to 34: the whole envelope without the addresses and, so far, without the checksum.
    fn bytes(&self) -> [u8; OVERHEAD] {
        let mut bytes = [0; OVERHEAD];
        bytes[..HEAD - MACS].copy_from_slice(&head(Mac::NONE, Mac::NONE, DATA, self.flags)[MACS..]);
        bytes[8..10].copy_from_slice(&[self.channel, self.link]);
        bytes[10..14].copy_from_slice(&self.session.to_be_bytes());
        bytes[14..18].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes[18..].copy_from_slice(&self.link_seq.0.to_be_bytes());
        bytes
    }
}

impl<'a> Data<'a> {
    pub(super) fn read(
        dst: Mac,
        src: Mac,
        flags: u8,
        mut rest: Reader<'a>,
    ) -> Result<Self, Malformed> {
        let [channel, link] = rest.array()?;
        let (channel, session) = channel_and_session(channel, rest.u32()?)?;
        Ok(Self {
            dst,
            src,
            flags,
            channel,
            link: link_number(link.into())?,
            session,
            seq: Seq(rest.u32()?),
            link_seq: Seq(rest.u32()?),
            ethertype: rest.u16()?,
            payload: rest.rest(),
        })
    }

    /// What the envelope says.
    #[must_use]
    pub fn head(&self) -> DataHead {
        let Self { flags, channel, link, session, seq, link_seq, .. } = *self;
        DataHead { flags, channel, link, session, seq, link_seq }
    }

    /// Writes everything before the payload.
    pub fn write_header(&self, out: &mut [u8; HEADER]) {
        out[..6].copy_from_slice(&self.dst.0);
        out[6..MACS].copy_from_slice(&self.src.0);
        out[MACS..INNER].copy_from_slice(&self.head().bytes());
        out[INNER..].copy_from_slice(&self.ethertype.to_be_bytes());
        seal_header(out);
    }

    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut header = [0; HEADER];
        self.write_header(&mut header);
        out.clear();
        out.extend_from_slice(&header);
        out.extend_from_slice(self.payload);
    }
}

/// Puts an Ethernet frame into its envelope. The addresses stay. A frame that is shorter than an
/// Ethernet header is first padded to one with zeros.
pub fn wrap(frame: &mut Vec<u8>, head: &DataHead) {
    make_room(frame);
    if let Some(header) = frame.first_chunk_mut::<HEADER>() {
        header[MACS..INNER].copy_from_slice(&head.bytes());
        seal_header(header);
    }
}

/// Moves everything behind the addresses back by the length of the envelope.
pub(super) fn make_room(frame: &mut Vec<u8>) {
    let length = frame.len().max(HEADER - OVERHEAD);
    frame.resize(length + OVERHEAD, 0);
    frame.copy_within(MACS..length, INNER);
}

/// Takes a data frame or a broadcast out of its envelope, after [`parse`](super::parse) has read
/// it. The addresses stay: see [`set_macs`]. A frame that is too short for an envelope does not
/// change.
pub fn unwrap(frame: &mut Vec<u8>) {
    if frame.len() >= HEADER {
        frame.copy_within(INNER.., MACS);
        frame.truncate(frame.len() - OVERHEAD);
    }
}

/// Changes the addresses of a frame. A frame that is too short for addresses does not change.
pub fn set_macs(frame: &mut [u8], dst: Mac, src: Mac) {
    if let Some(macs) = frame.first_chunk_mut::<MACS>() {
        macs[..6].copy_from_slice(&dst.0);
        macs[6..].copy_from_slice(&src.0);
    }
}

/// Changes the envelope of a data frame that is sent again, perhaps over another link.
pub fn rewrite(frame: &mut [u8], link: u8, link_seq: Seq, flags: u8) {
    if let Some(header) = frame.first_chunk_mut::<HEADER>() {
        debug_assert_eq!(header[MACS..14], ETHERTYPE.to_be_bytes());
        header[15] = flags;
        header[21] = link;
        header[30..34].copy_from_slice(&link_seq.0.to_be_bytes());
        seal_header(header);
    }
}
