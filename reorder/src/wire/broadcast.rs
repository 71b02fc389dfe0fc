// SPDX-License-Identifier: Apache-2.0
//! Type 6: a broadcast or multicast frame, without a controller.

use super::data::make_room;
use super::{head, link_number, seal, session_number, Mac, Malformed, Reader, BROADCAST, HEAD};

/// A broadcast or multicast frame in its envelope, as it was read. [`unwrap`](super::unwrap) takes
/// the frame out of the envelope.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Broadcast<'a> {
    /// The NIC to which it goes.
    pub dst: Mac,
    /// The NIC from which it comes.
    pub src: Mac,
    /// Number of the link over which it was sent, below 64.
    pub link: u8,
    /// Number of the session, not 0.
    pub session: u32,
    /// Its number among the broadcasts of the session, wrapping round.
    pub number: u16,
    /// Destination of the original frame: a group.
    pub group: Mac,
    /// EtherType of the original frame.
    pub ethertype: u16,
    /// Payload of the original frame, with Ethernet's padding.
    pub payload: &'a [u8],
}

impl<'a> Broadcast<'a> {
    pub(super) fn read(dst: Mac, src: Mac, mut rest: Reader<'a>) -> Result<Self, Malformed> {
        let link = link_number(rest.u16()?)?;
        let session = session_number(rest.u32()?)?;
        let number = rest.u16()?;
        let group = rest.mac()?;
        if !group.is_multicast() {
            return Err(Malformed::Mac(group));
        }
        Ok(Self {
            dst,
            src,
            link,
            session,
            number,
            group,
            ethertype: rest.u16()?,
            payload: rest.rest(),
        })
    }

    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.ethertype.to_be_bytes());
        out.extend_from_slice(self.payload);
        wrap_broadcast(out, self.dst, self.src, self.link, self.session, self.number);
    }
}

/// Puts a broadcast or multicast frame into the envelope that goes from NIC `src` to NIC `dst`. A
/// frame that is shorter than an Ethernet header is first padded to one with zeros.
pub fn wrap_broadcast(
    frame: &mut Vec<u8>,
    dst: Mac,
    src: Mac,
    link: u8,
    session: u32,
    number: u16,
) {
    make_room(frame);
    frame.copy_within(..6, 28);
    frame[..HEAD].copy_from_slice(&head(dst, src, BROADCAST, 0));
    frame[20..22].copy_from_slice(&u16::from(link).to_be_bytes());
    frame[22..26].copy_from_slice(&session.to_be_bytes());
    frame[26..28].copy_from_slice(&number.to_be_bytes());
    seal(frame);
}
