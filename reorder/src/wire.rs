// SPDX-License-Identifier: Apache-2.0
//! The frames that helpers send to each other and to the controller: `docs/wire-format.md` in code.
//!
//! Nothing here trusts a frame. [`parse`] checks its checksum before anything else, and then every
//! field that can have a wrong value. It never panics, and says why a frame is refused. What needs
//! memory of earlier frames (sessions, peers, generations) is left to the engine.

pub mod broadcast;
pub mod channels;
pub mod control;
pub mod data;
pub mod heartbeat;
mod mac;
mod malformed;
mod reader;
pub mod repeat;
pub mod report;
mod seal;
mod tag;

pub use broadcast::{wrap_broadcast, Broadcast};
pub use channels::{ChannelEntry, Channels};
pub use control::{Body, Control, Mode, Nic, PeerChannel, PeerLink};
pub use data::{rewrite, set_macs, unwrap, wrap, Data, DataHead};
pub use heartbeat::{Echo, Heartbeat};
pub use mac::{BadMac, Mac};
pub use malformed::Malformed;
pub use repeat::{Ranges, Repeat};
pub use report::{Report, ReportEntry};
pub use seal::seal;
pub use tag::{pop_tag, push_tag, read_tag, Tag, TAG_LENGTH, TAG_TYPE};

use reader::Reader;

/// EtherType of the helper's frames.
pub const ETHERTYPE: u16 = 0x88b6;
/// Version of the format.
pub const VERSION: u8 = 3;
/// Bytes before the original frame's payload, in a data frame or a broadcast.
pub const HEADER: usize = 36;
/// Bytes by which a data frame or a broadcast is longer than the original frame.
pub const OVERHEAD: usize = 22;
/// Links of a pair of hosts are numbered below this.
pub const MAX_LINKS: usize = 64;
/// Highest number of a job's channel; 0 stands for frames of no job.
pub const MAX_CHANNEL: u8 = 63;
/// Without a controller, this many NICs of a host take part. A link's number is `MAX_NICS` times
/// the position of the one NIC plus the position of the other.
pub const MAX_NICS: u8 = 8;
/// Highest port number of a host's NIC.
pub const MAX_PORT: u8 = 62;
/// Bytes of the two addresses of an Ethernet header.
pub const MACS: usize = 12;
/// Bytes of an Ethernet header: two addresses and an EtherType.
pub const ETHERNET: usize = MACS + 2;
/// Bytes of the longest frame: an Ethernet header and the longest IPv4 packet.
pub const MAX_FRAME: usize = ETHERNET + 0xffff;
/// Bytes of the shortest frame without a payload. Its sender pads a shorter one, so that the
/// checksum covers what Ethernet would pad.
pub const MIN_FRAME: usize = 60;
/// A rate in kbit/s that stands for "no limit here". As the highest number, it compares rightly.
pub const NO_LIMIT: u32 = u32::MAX;
/// VLAN ID of frames to and from the controller on the wire port.
pub const CONTROL_VID: u16 = 4094;
/// Priority of our own frames that the bridge sends back.
pub const BOUNCED_PCP: u8 = 7;
/// Stands for the controller in the addresses of control frames and reports.
pub const CONTROLLER_MAC: Mac = Mac([0x02, 0x52, 0x49, 0x32, 0x4e, 0x01]);
/// Stands for the helper in the addresses of control frames.
pub const HELPER_MAC: Mac = Mac([0x02, 0x52, 0x49, 0x32, 0x4e, 0x02]);

const DATA: u8 = 1;
const HEARTBEAT: u8 = 2;
const REPEAT: u8 = 3;
const CONTROL: u8 = 4;
const REPORT: u8 = 5;
const BROADCAST: u8 = 6;
const CHANNELS: u8 = 7;
/// Bytes of the head that all frames have.
const HEAD: usize = 20;

/// A frame of the helper, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// A frame of a session, in its envelope.
    Data(Data<'a>),
    /// A sign of life over one link, with the numbers that the other side needs.
    Heartbeat(Heartbeat),
    /// The other side misses frames.
    Repeat(Repeat<'a>),
    /// What the controller wants. To be believed with VLAN ID [`CONTROL_VID`] only.
    Control(Control),
    /// What a helper tells the controller. No helper should receive one.
    Report(Report),
    /// A broadcast or multicast frame, without a controller.
    Broadcast(Broadcast<'a>),
    /// What the sender says of its channels, after a heartbeat.
    Channels(Channels<'a>),
}

impl Message<'_> {
    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data(data) => data.encode(out),
            Self::Heartbeat(heartbeat) => heartbeat.encode(out),
            Self::Repeat(repeat) => repeat.encode(out),
            Self::Control(control) => control.encode(out),
            Self::Report(report) => report.encode(out),
            Self::Broadcast(broadcast) => broadcast.encode(out),
            Self::Channels(channels) => channels.encode(out),
        }
    }
}

/// Reads a frame that begins with its Ethernet header. The bridge's tag must be off already
/// ([`pop_tag`]).
pub fn parse(frame: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut rest = Reader::new(frame);
    let (dst, src) = (rest.mac()?, rest.mac()?);
    match rest.u16()? {
        ETHERTYPE => {}
        tag @ (TAG_TYPE | 0x88a8 | 0x9100) => return Err(Malformed::Tagged(tag)),
        _ => return Err(Malformed::NotOurs),
    }
    if frame.len() > MAX_FRAME {
        return Err(Malformed::Oversized);
    }
    let version_and_type = rest.u8()?;
    if version_and_type >> 4 != VERSION {
        return Err(Malformed::Version(version_and_type >> 4));
    }
    let flags = rest.u8()?;
    rest.u32()?;
    seal::check(frame)?;
    let known_flags =
        |known: u8| if flags & !known == 0 { Ok(flags) } else { Err(Malformed::Flags(flags)) };
    match version_and_type & 0xf {
        DATA => Ok(Message::Data(Data::read(dst, src, known_flags(data::FLAGS)?, rest)?)),
        HEARTBEAT => {
            Ok(Message::Heartbeat(Heartbeat::read(dst, src, known_flags(heartbeat::FLAGS)?, rest)?))
        }
        REPEAT => known_flags(0).and_then(|_| Ok(Message::Repeat(Repeat::read(dst, src, rest)?))),
        CONTROL => known_flags(0).and_then(|_| Ok(Message::Control(Control::read(rest)?))),
        REPORT => known_flags(0).and_then(|_| Ok(Message::Report(Report::read(rest)?))),
        BROADCAST => {
            known_flags(0).and_then(|_| Ok(Message::Broadcast(Broadcast::read(dst, src, rest)?)))
        }
        CHANNELS => {
            known_flags(0).and_then(|_| Ok(Message::Channels(Channels::read(dst, src, rest)?)))
        }
        other => Err(Malformed::Type(other)),
    }
}

/// The first bytes of every frame of the helper, without the checksum: see [`seal`].
fn head(dst: Mac, src: Mac, kind: u8, flags: u8) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[..6].copy_from_slice(&dst.0);
    bytes[6..12].copy_from_slice(&src.0);
    bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    bytes[14] = VERSION << 4 | kind;
    bytes[15] = flags;
    bytes
}

/// A link number as it is on the wire, if a link can have it.
fn link_number(number: u16) -> Result<u8, Malformed> {
    u8::try_from(number)
        .ok()
        .filter(|link| usize::from(*link) < MAX_LINKS)
        .ok_or(Malformed::Link(number))
}

/// Number of the channel to which a frame belongs, 0..=63, and the session's number in it.
///
/// In a job's channel the session is mixed with the job's tag, so it can be any number there.
fn channel_and_session(channel: u8, session: u32) -> Result<(u8, u32), Malformed> {
    match channel {
        0 => Ok((0, session_number(session)?)),
        1..=MAX_CHANNEL => Ok((channel, session)),
        _ => Err(Malformed::Channel(channel)),
    }
}

/// A session's number: anything but 0, which stands for "unknown".
fn session_number(number: u32) -> Result<u32, Malformed> {
    if number == 0 {
        return Err(Malformed::Session);
    }
    Ok(number)
}

/// An address that a host or NIC can have.
fn host_mac(mac: Mac) -> Result<Mac, Malformed> {
    if mac == Mac::NONE || mac.is_multicast() {
        return Err(Malformed::Mac(mac));
    }
    Ok(mac)
}

#[cfg(test)]
mod tests;
