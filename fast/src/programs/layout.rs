// SPDX-License-Identifier: Apache-2.0
//! A plan as the bytes of the programs' maps (`bpf/maps.h` names the same fields).

use std::collections::BTreeMap;

use ri2n_wire::shared::LANES;

use crate::plan::{
    Arrival, Exception, Mac, Path, PathId, Peer, Plan, Source, Striped, MAX_PATHS, SLOTS,
};

const COUNTER_AT: usize = 6;
const PATH_BYTES: usize = 24;
const SLOTS_AT: usize = 8;
const STRIPED_AT: usize = SLOTS_AT + SLOTS;
const STRIPED_TCP: u32 = 1;
const STRIPED_OTHERS: u32 = 2;
const PATHS_AT: usize = STRIPED_AT + 4;
// A striped peer has a path for each lane.
const _: () = assert!(MAX_PATHS == LANES);
/// So many exceptions has each of both setups.
pub const MAX_EXCEPTIONS: usize = 64;
const SETUP_BYTES: usize = 20;
/// Where `struct setup` says which exceptions are its own.
pub const FIRST_AT: usize = 16;
const TAGGED: u16 = 0x1000;
const MAX_VLAN: u16 = 4094;

/// `struct mac`.
pub type MacKey = [u8; 8];
/// `struct peer`.
pub type PeerBytes = [u8; PATHS_AT + MAX_PATHS * PATH_BYTES];
/// `struct arrival`.
pub type ArrivalKey = [u8; 20];
/// `struct source`.
pub type SourceBytes = [u8; 40];
/// `struct setup`.
pub type SetupBytes = [u8; SETUP_BYTES];
/// `struct exception`.
pub type ExceptionBytes = [u8; 16];

/// Where `struct source` says whether `own` refuses such frames.
pub const OPEN_AT: usize = 32;
const LANE_AT: usize = 33;
const STEER_AT: usize = 34;

/// What is known of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub ifindex: u32,
    /// Bytes of the longest packet.
    pub mtu: u32,
}

/// The bridge's devices as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The number of the bridge's local port; 0: there is none.
    pub local: u32,
    /// Whether a process has packet sockets on the NICs, so that `rx` may take only what `own`
    /// refuses.
    pub must_ask: bool,
    /// The NICs that exist, by the bridge's port numbers.
    pub nics: BTreeMap<u32, Link>,
}

/// Where each path's, each peer's and each arrival's frames are counted.
pub trait Counters {
    /// The place for what is sent to a peer by a path; None: there is no more room.
    fn sent(&mut self, peer: Mac, path: PathId) -> Option<u32>;
    /// The place for what is sent to a peer by slot, and for how TCP to it is striped.
    fn by_slot(&mut self, peer: Mac) -> Option<u16>;
    /// The place for what arrives.
    fn arrived(&mut self, arrival: &Arrival) -> Option<u32>;
}

/// What the maps are to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What all frames have in common.
    pub setup: SetupBytes,
    /// The exceptions.
    pub exceptions: Vec<ExceptionBytes>,
    /// The peers to which frames are sent.
    pub peers: BTreeMap<MacKey, PeerBytes>,
    /// The frames that are taken.
    pub sources: BTreeMap<ArrivalKey, SourceBytes>,
    /// So many peers and arrivals of the plan are not among them: there is no room, or the plan
    /// says something that no frame can be.
    pub left_out: usize,
}

/// What the maps are to hold for a plan with these devices.
pub fn wanted(plan: &Plan, links: &Links, counters: &mut impl Counters) -> Wanted {
    let mut wanted = Wanted {
        setup: [0; SETUP_BYTES],
        exceptions: Vec::new(),
        peers: BTreeMap::new(),
        sources: BTreeMap::new(),
        left_out: 0,
    };
    // With more exceptions than there is room for, nothing passes beside the bridge.
    let usable = plan.exceptions.len() <= MAX_EXCEPTIONS && links.local != 0;
    let Some(own) = plan.own.filter(|_| usable) else {
        wanted.left_out = plan.peers.len() + plan.striped.len() + plan.arrivals.len();
        return wanted;
    };
    wanted.setup = setup(own, links, plan.exceptions.len());
    wanted.exceptions = plan.exceptions.iter().map(exception_bytes).collect();
    let can_be = |mac: &Mac| *mac != own && is_host(mac);
    for (mac, peer) in &plan.peers {
        let encoded = can_be(mac).then(|| encode(*mac, peer, links, counters));
        match encoded.flatten() {
            Some(bytes) => _ = wanted.peers.insert(mac_key(mac), bytes),
            None => wanted.left_out += 1,
        }
    }
    for (mac, striped) in &plan.striped {
        let usable = can_be(mac) && !plan.peers.contains_key(mac);
        match usable.then(|| encode_striped(*mac, striped, links, counters)).flatten() {
            Some(bytes) => _ = wanted.peers.insert(mac_key(mac), bytes),
            None => wanted.left_out += 1,
        }
    }
    for (arrival, source) in &plan.arrivals {
        let entry = arrival_key(arrival, links).and_then(|key| {
            let counter = counters.arrived(arrival)?;
            Some((key, source_bytes(key, own, counter, source, counters)))
        });
        match entry {
            Some((key, bytes)) => _ = wanted.sources.insert(key, bytes),
            None => wanted.left_out += 1,
        }
    }
    wanted
}

/// A MAC of zeros marks what is free.
fn is_host(mac: &Mac) -> bool {
    mac[0] & 1 == 0 && *mac != [0; 6]
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// A MAC as `struct mac`.
pub fn mac_key(mac: &Mac) -> MacKey {
    let mut key = [0; 8];
    put(&mut key, 0, *mac);
    key
}

fn setup(own: Mac, links: &Links, exceptions: usize) -> SetupBytes {
    let mut bytes = [0; SETUP_BYTES];
    put(&mut bytes, 0, own);
    put(&mut bytes, 6, (exceptions as u16).to_ne_bytes());
    put(&mut bytes, 8, links.local.to_ne_bytes());
    put(&mut bytes, 12, u32::from(links.must_ask).to_ne_bytes());
    bytes
}

fn exception_bytes(exception: &Exception) -> ExceptionBytes {
    let part = |port: Option<u16>, shift: u32| match port {
        Some(port) => (0xffff << shift, u64::from(port) << shift),
        None => (0, 0),
    };
    let source = part(exception.source_port, 16);
    let destination = part(exception.destination_port, 0);
    let protocol = u64::from(exception.protocol) << 32;
    let mut bytes = [0; 16];
    put(&mut bytes, 0, (0xff_u64 << 32 | source.0 | destination.0).to_ne_bytes());
    put(&mut bytes, 8, (protocol | source.1 | destination.1).to_ne_bytes());
    bytes
}

/// None if there is no room to count it, or the peer's entry is no valid one.
fn encode(mac: Mac, peer: &Peer, links: &Links, counters: &mut impl Counters) -> Option<PeerBytes> {
    let valid = peer.paths.len() <= MAX_PATHS
        && peer.slots.iter().all(|slot| usize::from(*slot) < peer.paths.len())
        && peer.paths.iter().all(|path| path.vlan.is_none_or(is_vlan));
    if !valid {
        return None;
    }
    let mut bytes = [0; PATHS_AT + MAX_PATHS * PATH_BYTES];
    put(&mut bytes, 0, mac);
    put(&mut bytes, COUNTER_AT, counters.by_slot(mac)?.to_ne_bytes());
    put(&mut bytes, SLOTS_AT, peer.slots);
    for (place, path) in peer.paths.iter().enumerate() {
        put_path(&mut bytes, place, mac, path, links, counters)?;
    }
    Some(bytes)
}

/// The same for a peer to which TCP is striped. Links with a number too high are not used.
fn encode_striped(
    mac: Mac,
    striped: &Striped,
    links: &Links,
    counters: &mut impl Counters,
) -> Option<PeerBytes> {
    let Striped { paths, others } = striped;
    if !paths.values().all(|path| path.vlan.is_none_or(is_vlan)) {
        return None;
    }
    let mut bytes = [0; PATHS_AT + MAX_PATHS * PATH_BYTES];
    put(&mut bytes, 0, mac);
    put(&mut bytes, COUNTER_AT, counters.by_slot(mac)?.to_ne_bytes());
    put(&mut bytes, SLOTS_AT, std::array::from_fn::<u8, MAX_PATHS, _>(|link| link as u8));
    let which = STRIPED_TCP | if *others { STRIPED_OTHERS } else { 0 };
    put(&mut bytes, STRIPED_AT, which.to_ne_bytes());
    for (link, path) in paths.iter().filter(|(link, _)| usize::from(**link) < MAX_PATHS) {
        put_path(&mut bytes, usize::from(*link), mac, path, links, counters)?;
    }
    Some(bytes)
}

/// Without its device a path is empty: its frames go through the bridge.
fn put_path(
    bytes: &mut PeerBytes,
    place: usize,
    mac: Mac,
    path: &Path,
    links: &Links,
    counters: &mut impl Counters,
) -> Option<()> {
    let Some(link) = links.nics.get(&path.port) else { return Some(()) };
    let at = PATHS_AT + place * PATH_BYTES;
    put(bytes, at, link.ifindex.to_ne_bytes());
    put(bytes, at + 4, counters.sent(mac, path.id)?.to_ne_bytes());
    put(bytes, at + 8, path.destination);
    put(bytes, at + 14, path.source);
    put(bytes, at + 20, path.vlan.unwrap_or(0).to_ne_bytes());
    put(bytes, at + 22, u16::try_from(link.mtu).unwrap_or(u16::MAX).to_ne_bytes());
    Some(())
}

/// The links over which TCP to a peer can be striped, a bit each.
pub fn striped_links(peer: &PeerBytes) -> u64 {
    if peer[STRIPED_AT..PATHS_AT] == [0; 4] {
        return 0;
    }
    let paths = peer[PATHS_AT..].chunks_exact(PATH_BYTES).enumerate();
    let there = paths.filter(|(_, path)| path[..4] != [0; 4]);
    there.fold(0, |links, (link, _)| links | 1 << link)
}

fn is_vlan(vlan: u16) -> bool {
    (1..=MAX_VLAN).contains(&vlan)
}

fn arrival_key(arrival: &Arrival, links: &Links) -> Option<ArrivalKey> {
    let link = links.nics.get(&arrival.port)?;
    let tag = match arrival.vlan {
        None => 0,
        Some(vlan) if is_vlan(vlan) => TAGGED | vlan,
        Some(_) => return None,
    };
    let mut key = [0; 20];
    put(&mut key, 0, link.ifindex.to_ne_bytes());
    put(&mut key, 4, tag.to_ne_bytes());
    put(&mut key, 6, arrival.destination);
    put(&mut key, 12, arrival.source);
    Some(key)
}

fn source_bytes(
    key: ArrivalKey,
    own: Mac,
    counter: u32,
    source: &Source,
    counters: &mut impl Counters,
) -> SourceBytes {
    let lane = source.lane.filter(|lane| usize::from(*lane) < LANES && is_host(&source.peer));
    // A frame of no lane is taken as it comes.
    let (lane, steer) = lane
        .and_then(|lane| Some((lane, counters.by_slot(source.peer)?)))
        .unwrap_or((LANES as u8, 0));
    let mut bytes = [0; 40];
    put(&mut bytes, 0, key);
    put(&mut bytes, 20, own);
    put(&mut bytes, 26, source.peer);
    bytes[OPEN_AT] = 1;
    bytes[LANE_AT] = lane;
    put(&mut bytes, STEER_AT, steer.to_ne_bytes());
    put(&mut bytes, 36, counter.to_ne_bytes());
    bytes
}
