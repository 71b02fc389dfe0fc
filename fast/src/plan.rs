// SPDX-License-Identifier: Apache-2.0
//! What the programs are to do: which peers they know, and which paths lead there.

use std::collections::{BTreeMap, BTreeSet};

/// A MAC address.
pub type Mac = [u8; 6];

/// So many slots has a peer's table, as the bridge's select groups have buckets.
pub const SLOTS: usize = 64;

/// So many paths to one peer are used. A peer with more is left to the bridge.
pub const MAX_PATHS: usize = 32;

/// So many peers are known. What is sent to others goes through the bridge.
pub const MAX_PEERS: usize = 1024;

/// So many exceptions are known. With more, everything is left to the bridge.
pub const MAX_EXCEPTIONS: usize = 64;

/// The way of a frame: the 32 bits of the bridge's `reg1`, by which counters are reported.
///
/// 10 bits of the sender's port, 10 of the receiver's port, 12 of the VLAN ID (0: no tag).
pub type PathId = u32;

/// Everything that the programs need, and nothing else. Equal plans make equal maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The host's own MAC; None: nothing passes beside the bridge.
    pub own: Option<Mac>,
    /// The peers to which frames are sent beside the bridge, by MAC.
    pub peers: BTreeMap<Mac, Peer>,
    /// The peers that the helper reaches, by MAC. TCP to them is striped beside the bridge while
    /// the helper says so; the rest, but for slow flows, is left to the bridge. They are in
    /// `left`, too.
    pub striped: BTreeMap<Mac, Striped>,
    /// The frames that are taken from NICs beside the bridge.
    pub arrivals: BTreeMap<Arrival, Source>,
    /// Frames of these flows go through the bridge, whoever the peer is.
    pub exceptions: Vec<Exception>,
    /// Why peers are left to the bridge, by MAC.
    pub left: BTreeMap<Mac, Left>,
}

impl Plan {
    /// Takes over the peers of an earlier plan about whom this one says nothing. Whether there are
    /// any.
    pub fn keep(&mut self, earlier: &Plan) -> bool {
        if self.own.is_some() && self.own != earlier.own {
            return false;
        }
        let states = self.states();
        let is_new = |peer: &&Mac| !states.contains_key(*peer) && !self.striped.contains_key(*peer);
        let all = earlier.peers.keys().chain(earlier.striped.keys());
        let kept: BTreeSet<Mac> = all.filter(is_new).copied().collect();
        let known = self.exceptions.iter().chain(&earlier.exceptions);
        let exceptions: BTreeSet<Exception> = known.copied().collect();
        if kept.is_empty() || exceptions.len() > MAX_EXCEPTIONS {
            return false;
        }
        self.own = earlier.own;
        self.exceptions = exceptions.into_iter().collect();
        for peer in &kept {
            self.peers.extend(earlier.peers.get(peer).map(|it| (*peer, it.clone())));
            self.striped.extend(earlier.striped.get(peer).map(|it| (*peer, it.clone())));
            self.left.extend(earlier.left.get(peer).map(|why| (*peer, *why)));
        }
        for (arrival, source) in earlier.arrivals.iter().filter(|it| kept.contains(&it.1.peer)) {
            self.arrivals.entry(arrival.clone()).or_insert_with(|| source.clone());
        }
        true
    }

    /// Why each peer's frames are left to the bridge; None: the frames pass beside it.
    pub fn states(&self) -> BTreeMap<Mac, Option<Left>> {
        let carried = self.peers.keys().map(|peer| (*peer, None));
        carried.chain(self.left.iter().map(|(peer, why)| (*peer, Some(*why)))).collect()
    }

    /// Leaves every peer's frames to the bridge.
    pub fn leave_all(&mut self, why: Left) {
        let peers = std::mem::take(&mut self.peers);
        self.left.extend(peers.into_keys().map(|peer| (peer, why)));
        self.striped.clear();
        self.arrivals.clear();
        self.exceptions.clear();
    }
}

/// A peer and the paths to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The paths, by rising ids, as slots count them. At most `MAX_PATHS`.
    pub paths: Vec<Path>,
    /// For each slot the index of its path in `paths`.
    pub slots: [u8; SLOTS],
}

/// A peer that the helper reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Striped {
    /// The path of each of the helper's links.
    pub paths: BTreeMap<u8, Path>,
    /// Packets of other protocols than TCP may take these paths, too: all of them go to the helper
    /// as they are. Only those of ICMPv6 never do.
    pub others: bool,
}

/// What the output table does with frames to a peer on one path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// `reg1` of the bridge's rows.
    pub id: PathId,
    /// The bridge's port number of the NIC.
    pub port: u32,
    /// The MACs that the frame carries on the wire.
    pub source: Mac,
    /// The peer's NIC.
    pub destination: Mac,
    /// The VLAN ID that the frame is tagged with.
    pub vlan: Option<u16>,
}

/// What a frame from a known peer's NIC looks like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// The bridge's port number of the NIC by which the frame comes.
    pub port: u32,
    /// The peer's NIC.
    pub source: Mac,
    /// The host's own NIC.
    pub destination: Mac,
    /// The frame's tag; None: it has none.
    pub vlan: Option<u16>,
}

/// Whose frame it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The peer's own MAC.
    pub peer: Mac,
    /// The helper's link by which it came, if it is one of `Plan::striped`.
    pub lane: Option<u8>,
}

/// Frames with this protocol and this port are left to the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exception {
    /// The IP protocol, 6 or 17.
    pub protocol: u8,
    /// The source port; None: any.
    pub source_port: Option<u16>,
    /// The destination port; None: any.
    pub destination_port: Option<u16>,
}

/// Why the bridge keeps a peer's frames. A code; people get its sentence from the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The frames are striped by the helper.
    Striped,
    /// A row asks for what only the bridge knows, such as a job's class or a placed connection.
    Undecided,
    /// The rows name a way that the programs cannot go.
    Unsupported,
    /// The peer has more than `MAX_PATHS` paths, or is more than the `MAX_PEERS`th, or the rows
    /// have more than `MAX_EXCEPTIONS` exceptions.
    TooMany,
}
