// SPDX-License-Identifier: Apache-2.0
//! What the programs are to do with a frame, slowly and obviously.

pub mod lone;
pub mod order;
pub mod striping;

use ri2n_fast::plan::{Arrival, Mac, Path, Plan, Source};
use ri2n_fast::programs::Count;

/// A frame as a program gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// The size of the payload of each frame for which it stands; 0: it is one.
    pub gso_size: u32,
    /// So many frames; 0: nobody counted.
    pub gso_segs: u32,
}

/// Which flow a frame belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub addresses: Vec<u8>,
    pub protocol: u8,
    pub source_port: u16,
    pub destination_port: u16,
    /// Bytes before the payload.
    pub headers: usize,
    /// Where the uppermost header is, and where the packet ends.
    pub upper: (usize, usize),
    pub is_fragment: bool,
}

/// A frame that passes beside the bridge, and how it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes<T> {
    pub by: T,
    pub frame: Vec<u8>,
    pub count: Count,
}

pub fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.get(..6)?.try_into().ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().unwrap()))
}

/// docs/decisions/14-fast-path.md
pub fn hash(flow: &Flow) -> u64 {
    let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
    let addresses =
        flow.addresses.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    addresses.chain([ports, u32::from(flow.protocol)]).fold(0, |hash: u64, word| {
        let hash = (hash ^ u64::from(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^ (hash >> 29)
    })
}

fn is_extension(protocol: u8) -> bool {
    [0, 43, 44, 51, 60].contains(&protocol)
}

/// The uppermost header of an IPv6 packet, its bytes, and whether it is a fragment's.
fn uppermost(next: u8, bytes: &[u8], most: usize) -> Option<(u8, &[u8], bool)> {
    if !is_extension(next) {
        return Some((next, bytes, false));
    }
    let head = bytes.get(..8).filter(|_| most > 0)?;
    let length = match next {
        44 => 8,
        51 => (usize::from(head[1]) + 2) * 4,
        _ => (usize::from(head[1]) + 1) * 8,
    };
    let rest = bytes.get(length..)?;
    if next == 44 && head[2..4] != [0, 0] {
        return (!is_extension(head[0])).then_some((head[0], rest, true));
    }
    uppermost(head[0], rest, most - 1)
}

/// None: the bridge must look at the frame.
pub fn flow(frame: &Frame) -> Option<Flow> {
    let ip = frame.bytes.get(14..)?;
    let (protocol, upper, is_fragment, addresses) = match number(&frame.bytes, 12)? {
        0x0800 => {
            let header = usize::from(ip.first()? & 15) * 4;
            let packet = ip.get(..usize::from(number(ip, 2)?))?;
            let upper = packet.get(header..)?;
            if ip[0] >> 4 != 4 || header < 20 {
                return None;
            }
            (ip[9], upper, number(ip, 6)? & 0x3fff != 0, &ip[12..20])
        }
        0x86dd => {
            let payload = ip.get(40..40 + usize::from(number(ip, 4)?))?;
            let (protocol, upper, is_fragment) = uppermost(ip[6], payload, 6)?;
            if ip[0] >> 4 != 6 || protocol == 58 {
                return None;
            }
            (protocol, upper, is_fragment, &ip[8..40])
        }
        _ => return None,
    };
    let before = upper.as_ptr().addr() - frame.bytes.as_ptr().addr();
    let mut flow = Flow {
        addresses: addresses.to_vec(),
        protocol,
        source_port: 0,
        destination_port: 0,
        headers: before,
        upper: (before, before + upper.len()),
        is_fragment,
    };
    let least = match protocol {
        6 => 20,
        17 => 8,
        132 => 12,
        _ => return Some(flow),
    };
    if is_fragment {
        return Some(flow);
    }
    let header = upper.get(..least)?;
    flow.source_port = number(header, 0)?;
    flow.destination_port = number(header, 2)?;
    flow.headers += match protocol {
        6 if frame.gso_size > 0 => usize::from(header[12] >> 4) * 4,
        _ => least,
    };
    Some(flow)
}

fn is_exception(plan: &Plan, flow: &Flow) -> bool {
    [6, 17].contains(&flow.protocol)
        && plan.exceptions.iter().any(|exception| {
            exception.protocol == flow.protocol
                && exception.source_port.is_none_or(|port| port == flow.source_port)
                && exception.destination_port.is_none_or(|port| port == flow.destination_port)
        })
}

/// A TCP segment, as sequence numbers of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub start: u32,
    pub end: u32,
    pub flags: u8,
}

/// None: it is not TCP, a fragment, or has a header that cannot be.
pub fn segment(frame: &Frame, flow: &Flow) -> Option<Segment> {
    if flow.protocol != 6 || flow.is_fragment {
        return None;
    }
    let tcp = &frame.bytes[flow.upper.0..flow.upper.1];
    let header = usize::from(tcp[12] >> 4) * 4;
    let payload = tcp.get(header..).filter(|_| header >= 20)?;
    let start = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    Some(Segment { start, end: start.wrapping_add(payload.len() as u32), flags: tcp[13] })
}

fn longest(frame: &Frame, flow: &Flow) -> usize {
    match frame.gso_size as usize {
        0 => frame.bytes.len(),
        size => flow.headers + size,
    }
}

fn count(frame: &Frame, flow: &Flow, tag: usize) -> Count {
    let payload = frame.bytes.len().saturating_sub(flow.headers);
    let packets = match (frame.gso_size as usize, frame.gso_segs as usize) {
        (0, _) => 1,
        (size, 0) => payload.div_ceil(size).max(1),
        (_, segments) => segments,
    };
    let bytes = frame.bytes.len() + tag + (packets - 1) * (flow.headers + tag);
    Count { packets: packets as u64, bytes: bytes as u64 }
}

fn with_macs(frame: &Frame, destination: Mac, source: Mac) -> Vec<u8> {
    [&destination[..], &source[..], &frame.bytes[12..]].concat()
}

/// What becomes of a frame that the host sends without a tag of its own, and its slot. None: the
/// bridge's.
pub fn sent(
    plan: &Plan,
    frame: &Frame,
    mtu: impl Fn(u32) -> usize,
) -> Option<Passes<(Mac, Path, usize)>> {
    let (to, from) = (mac(&frame.bytes)?, mac(frame.bytes.get(6..)?)?);
    let peer = plan.peers.get(&to).filter(|_| plan.own == Some(from))?;
    let flow = flow(frame).filter(|flow| !is_exception(plan, flow))?;
    let slot = (hash(&flow) >> 58) as usize;
    let path = &peer.paths[usize::from(peer.slots[slot])];
    (longest(frame, &flow) <= mtu(path.port) + 14).then(|| Passes {
        by: (to, path.clone(), slot),
        frame: with_macs(frame, path.destination, path.source),
        count: count(frame, &flow, 0),
    })
}

/// What becomes of a frame that comes in by a NIC. None: the bridge's.
pub fn arrived(
    plan: &Plan,
    frame: &Frame,
    port: u32,
    vlan: Option<u16>,
) -> Option<Passes<Arrival>> {
    let (destination, source) = (mac(&frame.bytes)?, mac(frame.bytes.get(6..)?)?);
    let arrival = Arrival { port, source, destination, vlan };
    let Source { peer, .. } = plan.arrivals.get(&arrival)?;
    let flow = flow(frame).filter(|flow| !is_exception(plan, flow))?;
    Some(Passes {
        by: arrival,
        frame: with_macs(frame, plan.own?, *peer),
        count: count(frame, &flow, if vlan.is_some() { 4 } else { 0 }),
    })
}
