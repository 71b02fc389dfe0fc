// SPDX-License-Identifier: Apache-2.0
//! What the controller is told: what was carried, and what is left to the bridge.
//!
//! A report is a frame that the bridge gives to its controller. `docs/wire-format.md` has its
//! layout, `tests/reports.json` examples that the controller's tests read, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Arrival, Left, Mac, PathId, Plan, SLOTS};
use crate::rows::{PATH_TABLE, SOURCE_TABLE};

const TO_NOBODY: Mac = [0; 6];
const ETHERTYPE: [u8; 2] = [0x88, 0xb6];
const VERSION: u8 = 1;
const KIND_COUNTS: u8 = 1;
const KIND_STATE: u8 = 2;
const KIND_SLOTS: u8 = 3;
/// So many rows' counters go into one frame.
const MOST_COUNTS: usize = 40;
/// So many peers' states go into one frame.
const MOST_STATES: usize = 160;

/// So many peers' slots go into one frame.
const MOST_SLOTS: usize = 2;

/// What the head of every report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The host's own MAC.
    pub own: Mac,
    /// A random number of the counters' start.
    pub epoch: u64,
    /// The host's clock.
    pub time_ns: u64,
}

/// A row whose frames are counted beside the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A row of table 30.
    Path {
        /// The peer's own MAC.
        peer: Mac,
        /// The way.
        id: PathId,
    },
    /// A row of table 3.
    Source {
        /// The NIC's port.
        port: u32,
        /// The peer's NIC.
        source: Mac,
        /// The VLAN ID; 0: none.
        vlan: u16,
    },
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// How many frames.
    pub packets: u64,
    /// How many bytes on the wire.
    pub bytes: u64,
}

/// Whether the programs are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The programs were removed.
    Off,
    /// The programs carry frames.
    InForce,
    /// The kernel refuses them.
    Refused,
    /// A device is missing.
    NoDevice,
}

/// Whether Open vSwitch's own sockets leave the programs' frames alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// There are no such sockets.
    NotNeeded,
    /// The sockets refuse what the programs take.
    InForce,
    /// The sockets copy what the programs take.
    Missing,
}

/// Whether TCP that comes in without the helper's header is put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It comes up as it comes in.
    None,
    /// A helper has the maps and holds early frames.
    Ready,
}

/// The state of the fast path, besides the peers'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The programs.
    pub programs: Force,
    /// The sockets.
    pub filter: Filter,
    /// The order.
    pub order: Order,
    /// The kernel's reason; 0: none.
    pub errno: u8,
    /// Frames that the programs dropped.
    pub dropped: u64,
    /// The digest of the rows that the programs obey, and no others; 0: they may still do what
    /// earlier rows said.
    pub obeyed: u64,
}

/// Reports of these rows' counters, in as many frames as they need.
pub fn counts(head: &Head, rows: &[(Row, Carried)]) -> Vec<Vec<u8>> {
    frames(head, KIND_COUNTS, &[], rows, MOST_COUNTS, |(row, carried), to| {
        let (table, vlan, number, mac) = match *row {
            Row::Path { peer, id } => (PATH_TABLE, 0, id, peer),
            Row::Source { port, source, vlan } => (SOURCE_TABLE, vlan, port, source),
        };
        to.extend([table, 0]);
        to.extend(vlan.to_be_bytes());
        to.extend(number.to_be_bytes());
        to.extend(mac);
        to.extend([0; 2]);
        to.extend(carried.packets.to_be_bytes());
        to.extend(carried.bytes.to_be_bytes());
    })
}

/// Reports of the bytes that were sent to these peers by slot, in as many frames as they need, and in
/// one at least: peers that are not in it have sent nothing since the last one.
pub fn slots(head: &Head, peers: &[(Mac, [u64; SLOTS])]) -> Vec<Vec<u8>> {
    frames(head, KIND_SLOTS, &[], peers, MOST_SLOTS, |(peer, bytes), to| {
        to.extend(peer);
        to.extend([0; 2]);
        to.extend(bytes.iter().flat_map(|number| number.to_be_bytes()));
    })
}

/// Reports of the state of all peers, in as many frames as they need, and in one at least. To the
/// peers in `striping` TCP is striped beside the bridge.
pub fn state(head: &Head, state: &State, plan: &Plan, striping: &BTreeSet<Mac>) -> Vec<Vec<u8>> {
    let mut front = vec![
        match state.programs {
            Force::Off => 0,
            Force::InForce => 1,
            Force::Refused => 2,
            Force::NoDevice => 3,
        },
        match state.filter {
            Filter::NotNeeded => 0,
            Filter::InForce => 1,
            Filter::Missing => 2,
        },
        match state.order {
            Order::None => 0,
            Order::Ready => 1,
        },
        state.errno,
    ];
    front.extend(u32::try_from(state.dropped).unwrap_or(u32::MAX).to_be_bytes());
    front.extend(state.obeyed.to_be_bytes());
    let mut peers: Vec<(Mac, u8)> = plan.peers.keys().map(|peer| (*peer, 0)).collect();
    peers.extend(plan.left.iter().map(|(peer, why)| {
        let code = match why {
            Left::Striped if striping.contains(peer) => 5,
            Left::Striped => 1,
            Left::Undecided => 2,
            Left::Unsupported => 3,
            Left::TooMany => 4,
        };
        (*peer, code)
    }));
    peers.sort_unstable();
    frames(head, KIND_STATE, &front, &peers, MOST_STATES, |(peer, code), to| {
        to.extend(peer);
        to.extend([*code, 0]);
    })
}

/// Counters by the rows under which the controller knows them.
pub fn by_row(
    sent: impl IntoIterator<Item = ((Mac, PathId), Carried)>,
    arrived: impl IntoIterator<Item = (Arrival, Carried)>,
) -> BTreeMap<Row, Carried> {
    let mut rows: BTreeMap<Row, Carried> = BTreeMap::new();
    let mut add = |row, carried: Carried| {
        let sum = rows.entry(row).or_default();
        sum.packets += carried.packets;
        sum.bytes += carried.bytes;
    };
    for ((peer, id), carried) in sent {
        add(Row::Path { peer, id }, carried);
    }
    for (Arrival { port, source, vlan, .. }, carried) in arrived {
        add(Row::Source { port, source, vlan: vlan.unwrap_or(0) }, carried);
    }
    rows
}

fn frames<R>(
    head: &Head,
    kind: u8,
    front: &[u8],
    records: &[R],
    most: usize,
    mut put: impl FnMut(&R, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let chunks: Vec<&[R]> = match records {
        [] => vec![records],
        _ => records.chunks(most).collect(),
    };
    let short = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    let parts = chunks.len();
    let one = |(part, chunk): (usize, &[R])| {
        let mut body = vec![VERSION, kind];
        body.extend(short(part));
        body.extend(short(parts));
        body.extend(short(chunk.len()));
        body.extend(head.epoch.to_be_bytes());
        body.extend(head.time_ns.to_be_bytes());
        body.extend(front);
        chunk.iter().for_each(|record| put(record, &mut body));
        let sum = crc32c::crc32c(&body);
        let mut frame = [TO_NOBODY, head.own].concat();
        frame.extend(ETHERTYPE);
        frame.extend(body);
        frame.extend(sum.to_be_bytes());
        frame
    };
    chunks.into_iter().enumerate().map(one).collect()
}
