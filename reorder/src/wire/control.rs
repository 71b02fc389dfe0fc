// SPDX-License-Identifier: Apache-2.0
//! Type 4: what the controller tells a helper.

use super::{
    head, host_mac, seal, Mac, Malformed, Reader, CONTROL, CONTROLLER_MAC, HELPER_MAC, MAX_CHANNEL,
    MAX_LINKS, MAX_PORT, NO_LIMIT,
};

const THIS_HOST: u8 = 1;
const PEER: u8 = 2;
const GONE: u8 = 3;
const CHANNELS: u8 = 4;

/// A peer's flag: frames for it are striped.
const STRIPE: u8 = 1;
/// A peer's flag: TCP may go beside the bridge.
const BESIDE: u8 = 2;

/// The most channels in one frame: more would not fit a frame of 1,514 bytes.
pub const MAX_CHANNELS: usize = 48;

/// Weights are parts of this number.
pub const WHOLE_WEIGHT_PPM: u32 = 1_000_000;
/// Bytes of a NIC's name.
const NAME: usize = 16;

/// A control frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Control {
    /// It only grows. A frame with a lower one than the last frame of the same kind and peer is
    /// stale.
    pub generation: u32,
    /// The host's own address, or that of the peer in question.
    pub mac: Mac,
    /// What it says.
    pub body: Body,
}

/// What a control frame says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Body {
    /// How this host works and which NICs it has.
    ThisHost {
        /// How it sends.
        mode: Mode,
        /// Its NICs, with different ports.
        nics: Vec<Nic>,
    },
    /// A peer and the links to it.
    Peer {
        /// Whether frames for the peer are striped over the links. Otherwise they go by the slot
        /// table.
        stripe: bool,
        /// Whether TCP may go beside the bridge, without a header: the peer puts it in order.
        beside: bool,
        /// The links, in order of their numbers.
        links: Vec<PeerLink>,
    },
    /// A peer that is gone.
    Gone,
    /// The channels to a peer with numbers from `first` to `last`: those that are not named do not
    /// exist any more.
    Channels {
        /// The first number. With 0, the frame says over which links frames of no job may go: all
        /// of them, if there is no channel with number 0.
        first: u8,
        /// The last number, up to 63.
        last: u8,
        /// The channels, in order of their numbers.
        channels: Vec<PeerChannel>,
    },
}

/// How a host sends.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Mode {
    /// At the rates that were granted: `max_min`.
    Paced,
    /// By equal weights.
    RoundRobin,
    /// By the weights of RI2N+.
    Ri2nPlus,
    /// By the weights of RI2N++.
    Ri2nPlusPlus,
}

/// A NIC of this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nic {
    /// Port number at the bridge, 1..=62.
    pub port: u8,
    /// Whether it works, as far as the controller knows.
    pub up: bool,
    /// Its rate in kbit/s.
    pub rate_kbps: u32,
    /// Its name, at most 16 bytes.
    pub name: String,
}

/// A link to a peer.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct PeerLink {
    /// Number of the link, below 64.
    pub number: u8,
    /// Port number of this host's NIC, 1..=62.
    pub own_port: u8,
    /// Port number of the peer's NIC, 1..=62.
    pub peer_port: u8,
    /// Whether it works, as far as the controller knows.
    pub alive: bool,
    /// The rate in kbit/s to begin with, before the first grant.
    pub rate_kbps: u32,
    /// Never send more kbit/s than this; [`NO_LIMIT`](super::NO_LIMIT) if there is no such limit.
    pub limit_kbps: u32,
    /// Its weight, in parts of 1,000,000.
    pub weight_ppm: u32,
}

/// A job's channel to a peer, and from it; or what is said of frames of no job.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct PeerChannel {
    /// Its number, 1..=63, which the peer's helper is told, too; 0 for frames of no job, which have
    /// tag 0 and no rates.
    pub number: u8,
    /// The job's tag. The peer's helper is told the same tag.
    pub tag: u32,
    /// Links over which the channel's frames to the peer may go, a bit each; at least one.
    pub links: u64,
    /// Never send more kbit/s than this; [`NO_LIMIT`] if there is no such limit.
    pub max_kbps: u32,
    /// kbit/s that the channel can send before others share the rest; at most `max_kbps`.
    pub min_kbps: u32,
    /// The same for what the peer sends: kbit/s that are set aside for it on the NICs of this host.
    pub min_in_kbps: u32,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Paced, Self::RoundRobin, Self::Ri2nPlus, Self::Ri2nPlusPlus];
}

impl Control {
    pub(super) fn read(mut rest: Reader<'_>) -> Result<Self, Malformed> {
        let kind = rest.u8()?;
        let count = rest.u8()?;
        let generation = rest.u32()?;
        let mac = host_mac(rest.mac()?)?;
        let body = match kind {
            THIS_HOST => {
                let [mode, _, _, _] = rest.array()?;
                let mode = *Mode::ALL.get(usize::from(mode)).ok_or(Malformed::Mode(mode))?;
                Body::ThisHost { mode, nics: read_nics(count, &mut rest)? }
            }
            PEER => {
                let flags = rest.entry_flags(STRIPE | BESIDE)?;
                rest.array::<3>()?;
                Body::Peer {
                    stripe: flags & STRIPE != 0,
                    beside: flags & BESIDE != 0,
                    links: read_links(count, &mut rest)?,
                }
            }
            CHANNELS => {
                let [first, last, _, _] = rest.array()?;
                if last > MAX_CHANNEL {
                    return Err(Malformed::Channel(last));
                }
                if first > last {
                    return Err(Malformed::BadEntry);
                }
                Body::Channels {
                    first,
                    last,
                    channels: read_channels(first, last, count, &mut rest)?,
                }
            }
            GONE if count == 0 => Body::Gone,
            GONE => return Err(Malformed::BadCount),
            other => return Err(Malformed::Kind(other)),
        };
        rest.end()?;
        Ok(Self { generation, mac, body })
    }

    /// Writes the frame into `out`, and removes what was there. At most 62 NICs, 64 links, 48
    /// channels and 16 bytes of a name fit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, count) = match &self.body {
            Body::ThisHost { nics, .. } => (THIS_HOST, nics.len()),
            Body::Peer { links, .. } => (PEER, links.len()),
            Body::Gone => (GONE, 0),
            Body::Channels { channels, .. } => (CHANNELS, channels.len()),
        };
        out.clear();
        out.extend_from_slice(&head(HELPER_MAC, CONTROLLER_MAC, CONTROL, 0));
        out.extend_from_slice(&[kind, count as u8]);
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.mac.0);
        match &self.body {
            Body::ThisHost { mode, nics } => {
                out.extend_from_slice(&[*mode as u8, 0, 0, 0]);
                nics.iter().for_each(|nic| nic.write(out));
            }
            Body::Peer { stripe, beside, links } => {
                let flags = u8::from(*stripe) * STRIPE + u8::from(*beside) * BESIDE;
                out.extend_from_slice(&[flags, 0, 0, 0]);
                links.iter().for_each(|link| link.write(out));
            }
            Body::Gone => {}
            Body::Channels { first, last, channels } => {
                out.extend_from_slice(&[*first, *last, 0, 0]);
                channels.iter().for_each(|channel| channel.write(out));
            }
        }
        seal(out);
    }
}

/// Reads NICs, no two of which have the same port.
fn read_nics(count: u8, rest: &mut Reader<'_>) -> Result<Vec<Nic>, Malformed> {
    if count > MAX_PORT {
        return Err(Malformed::BadCount);
    }
    let mut seen = 0u64;
    let mut nics = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let nic = Nic::read(rest)?;
        if seen & (1 << nic.port) != 0 {
            return Err(Malformed::BadEntry);
        }
        seen |= 1 << nic.port;
        nics.push(nic);
    }
    Ok(nics)
}

/// Reads links, whose numbers rise.
fn read_links(count: u8, rest: &mut Reader<'_>) -> Result<Vec<PeerLink>, Malformed> {
    if usize::from(count) > MAX_LINKS {
        return Err(Malformed::BadCount);
    }
    let mut links: Vec<PeerLink> = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let link = PeerLink::read(rest)?;
        if links.last().is_some_and(|last| last.number >= link.number) {
            return Err(Malformed::BadEntry);
        }
        links.push(link);
    }
    Ok(links)
}

/// Reads channels, whose numbers rise from `first` to `last`.
fn read_channels(
    first: u8,
    last: u8,
    count: u8,
    rest: &mut Reader<'_>,
) -> Result<Vec<PeerChannel>, Malformed> {
    if usize::from(count) > MAX_CHANNELS {
        return Err(Malformed::BadCount);
    }
    let mut channels: Vec<PeerChannel> = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let channel = PeerChannel::read(rest)?;
        let rises = channels.last().is_none_or(|before| before.number < channel.number);
        if !rises || !(first..=last).contains(&channel.number) {
            return Err(Malformed::BadEntry);
        }
        channels.push(channel);
    }
    Ok(channels)
}

/// A NIC's port number.
fn port_number(port: u8) -> Result<u8, Malformed> {
    if port == 0 || port > MAX_PORT {
        return Err(Malformed::BadEntry);
    }
    Ok(port)
}

impl Nic {
    fn read(rest: &mut Reader<'_>) -> Result<Self, Malformed> {
        let port = port_number(rest.u8()?)?;
        let up = rest.entry_flags(1)? != 0;
        rest.array::<2>()?;
        let rate_kbps = rest.u32()?;
        let name: [u8; NAME] = rest.array()?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        if name[length..].iter().any(|byte| *byte != 0) {
            return Err(Malformed::BadEntry);
        }
        let name = std::str::from_utf8(&name[..length]).map_err(|_| Malformed::BadEntry)?;
        Ok(Self { port, up, rate_kbps, name: name.to_string() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.port, u8::from(self.up), 0, 0]);
        out.extend_from_slice(&self.rate_kbps.to_be_bytes());
        let end = out.len() + NAME;
        out.extend(self.name.bytes().take(NAME));
        out.resize(end, 0);
    }
}

impl PeerChannel {
    fn read(rest: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = rest.u8()?; // the caller compares it with the first and the last one
        rest.entry_flags(0)?;
        rest.array::<2>()?;
        let channel = Self {
            number,
            tag: rest.u32()?,
            links: rest.u64()?,
            max_kbps: rest.u32()?,
            min_kbps: rest.u32()?,
            min_in_kbps: rest.u32()?,
        };
        let rates = channel.max_kbps > 0
            && channel.min_kbps <= channel.max_kbps
            && channel.min_kbps.max(channel.min_in_kbps) < NO_LIMIT;
        let classless = Self {
            number: 0,
            tag: 0,
            links: channel.links,
            max_kbps: NO_LIMIT,
            min_kbps: 0,
            min_in_kbps: 0,
        };
        if channel.links == 0 || !rates || number == 0 && channel != classless {
            return Err(Malformed::BadEntry);
        }
        Ok(channel)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.number, 0, 0, 0]);
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.links.to_be_bytes());
        for number in [self.max_kbps, self.min_kbps, self.min_in_kbps] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

impl PeerLink {
    fn read(rest: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = rest.u8()?;
        if usize::from(number) >= MAX_LINKS {
            return Err(Malformed::BadEntry);
        }
        let link = Self {
            number,
            own_port: port_number(rest.u8()?)?,
            peer_port: port_number(rest.u8()?)?,
            alive: rest.entry_flags(1)? != 0,
            rate_kbps: rest.u32()?,
            limit_kbps: rest.u32()?,
            weight_ppm: rest.u32()?,
        };
        rest.array::<4>()?;
        if link.weight_ppm > WHOLE_WEIGHT_PPM {
            return Err(Malformed::BadEntry);
        }
        Ok(link)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.number, self.own_port, self.peer_port, u8::from(self.alive)]);
        for number in [self.rate_kbps, self.limit_kbps, self.weight_ppm, 0] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}
