// SPDX-License-Identifier: Apache-2.0
//! Plans and frames at random: right ones, odd ones, and ones that lie.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::model::Frame;
use ri2n_fast::plan::{
    Arrival, Exception, Mac, Path, Peer, Plan, Source, Striped, MAX_PATHS, SLOTS,
};

pub const OWN: Mac = [6, 0, 0, 0, 0, 1];
/// The NICs' ports of the bridge.
pub const PORTS: [u32; 3] = [1, 2, 5];

/// A peer's own MAC.
pub fn peer_mac(peer: u8) -> Mac {
    [6, 0, 0, 0, 1, peer]
}

/// The MAC of a peer's NIC.
pub fn far_nic(peer: u8, nic: u8) -> Mac {
    [4, 0, 0, 1, peer, nic]
}

/// The MAC of the host's NIC.
pub fn own_nic(port: u32) -> Mac {
    [4, 0, 0, 0, 0, port as u8]
}

fn ports() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(80), Just(6653), 1000..1010u16]
}

fn exception() -> impl Strategy<Value = Exception> {
    let port = || proptest::option::weighted(0.7, ports());
    (prop_oneof![Just(6), Just(17)], port(), port()).prop_map(
        |(protocol, source_port, destination_port)| Exception {
            protocol,
            source_port,
            destination_port,
        },
    )
}

fn path_parts() -> impl Strategy<Value = (u32, u8, Option<u16>)> {
    let port = proptest::sample::select(&PORTS[..]);
    (port, 1..4u8, proptest::option::weighted(0.3, 1..=4094u16))
}

fn peer(number: u8) -> impl Strategy<Value = Peer> {
    let most = prop_oneof![4 => Just(4usize), 1 => Just(MAX_PATHS)];
    most.prop_flat_map(|most| proptest::collection::vec(path_parts(), 1..=most)).prop_flat_map(
        move |paths| {
            let count = paths.len();
            let path = move |(port, nic, vlan): &(u32, u8, Option<u16>)| Path {
                id: port << 22 | u32::from(*nic) << 12 | u32::from(vlan.unwrap_or(0)),
                port: *port,
                source: own_nic(*port),
                destination: far_nic(number, *nic),
                vlan: *vlan,
            };
            let paths: Vec<Path> = paths.iter().map(path).collect();
            proptest::collection::vec(0..count as u8, SLOTS).prop_map(move |slots| Peer {
                paths: paths.clone(),
                slots: slots.try_into().unwrap(),
            })
        },
    )
}

/// A peer's paths by link.
fn links(number: u8) -> impl Strategy<Value = Striped> {
    let path = move |(port, nic, vlan): (u32, u8, Option<u16>)| Path {
        id: port << 22 | u32::from(nic) << 12 | u32::from(vlan.unwrap_or(0)),
        port,
        source: own_nic(port),
        destination: far_nic(number, nic),
        vlan,
    };
    let paths = proptest::collection::btree_map(0..32u8, path_parts().prop_map(path), 1..=32);
    let others = proptest::bool::weighted(0.7);
    (paths, others).prop_map(|(paths, others)| Striped { paths, others })
}

/// The lane by which a peer's frames come, mostly none.
fn lane() -> impl Strategy<Value = Option<u8>> {
    proptest::option::weighted(0.4, 0..34u8)
}

/// A plan with up to four peers, few of which are striped. Some have only arrivals.
pub fn plan() -> impl Strategy<Value = Plan> {
    plan_with(0.1)
}

/// A plan in which this share of the peers is striped.
pub fn plan_with(share: f64) -> impl Strategy<Value = Plan> {
    let peers = (0..4u8).map(|number| proptest::option::weighted(0.8, peer(number)));
    let arrivals = proptest::collection::btree_map(
        (path_parts(), 0..4u8).prop_map(|((port, nic, vlan), peer)| Arrival {
            port,
            source: far_nic(peer, nic),
            destination: own_nic(port),
            vlan,
        }),
        lane(),
        0..40,
    );
    let striped = (0..4u8).map(move |number| proptest::option::weighted(share, links(number)));
    let parts = (
        peers.collect::<Vec<_>>(),
        striped.collect::<Vec<_>>(),
        arrivals,
        proptest::collection::vec(exception(), 0..5),
    );
    parts.prop_map(|(peers, striped, arrivals, exceptions)| Plan {
        own: Some(OWN),
        peers: (0..)
            .zip(peers)
            .filter(|(n, _)| striped[usize::from(*n)].is_none())
            .filter_map(|(n, peer)| Some((peer_mac(n), peer?)))
            .collect(),
        arrivals: arrivals
            .into_iter()
            .map(|(arrival, lane)| {
                let peer = peer_mac(arrival.source[4]);
                (arrival, Source { peer, lane })
            })
            .collect(),
        exceptions,
        striped: (0..)
            .zip(striped.clone())
            .filter_map(|(n, striped)| Some((peer_mac(n), striped?)))
            .collect(),
        left: BTreeMap::new(),
    })
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![
        4 => Just(6u8),
        4 => Just(17u8),
        1 => Just(132u8),
        1 => Just(1u8),
        1 => Just(58u8),
        1 => any::<u8>(),
    ]
}

/// The upper header and a payload.
fn upper() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![6 => 20..200usize, 1 => 0..20usize, 1 => 1300..1600usize];
    // Mostly what TCP says of its header's length, of 20 bytes or some more.
    let offset = prop_oneof![4 => Just(Some(0x50)), 1 => Just(Some(0x80)), 1 => Just(None)];
    let parts = (ports(), ports(), any::<[u8; 20]>(), offset, length);
    parts.prop_map(|(source, destination, head, offset, length)| {
        let mut bytes = vec![0x5a; length.max(20)];
        bytes[..20].copy_from_slice(&head);
        bytes[12] = offset.unwrap_or(head[12]);
        bytes[..2].copy_from_slice(&source.to_be_bytes());
        bytes[2..4].copy_from_slice(&destination.to_be_bytes());
        bytes.truncate(length);
        bytes
    })
}

/// Mostly nothing, else a few bytes too many or too few.
fn lie() -> impl Strategy<Value = i32> {
    prop_oneof![12 => Just(0), 1 => -4..=4i32, 1 => any::<i16>().prop_map(i32::from)]
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let options = prop_oneof![6 => Just(0u8), 1 => 1..=10u8];
    let fragment = prop_oneof![6 => Just(0u16), 1 => Just(0x4000), 2 => any::<u16>()];
    (any::<[u8; 8]>(), options, fragment, protocol(), lie(), upper()).prop_map(
        |(addresses, options, fragment, protocol, lie, upper)| {
            let header = 20 + usize::from(options) * 4;
            let mut bytes = vec![0; header];
            bytes[0] = 0x45 + options;
            let total = (header + upper.len()) as i32 + lie;
            bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
            bytes[8..10].copy_from_slice(&[64, protocol]);
            bytes[12..20].copy_from_slice(&addresses);
            [bytes, upper].concat()
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let kind = proptest::sample::select(&[0u8, 43, 44, 51, 60][..]);
    let extension = (kind, 0..4u8, prop_oneof![2 => Just(0u16), 1 => any::<u16>()]);
    let extensions = prop_oneof![
        2 => Just(Vec::new()),
        1 => proptest::collection::vec(extension, 1..9),
    ];
    (any::<[u8; 32]>(), extensions, protocol(), lie(), upper()).prop_map(
        |(addresses, extensions, protocol, lie, upper)| {
            let mut payload = upper;
            let mut next = protocol;
            for (kind, length, fragment) in extensions.into_iter().rev() {
                let bytes = match kind {
                    44 => 8,
                    51 => (usize::from(length) + 2) * 4,
                    _ => (usize::from(length) + 1) * 8,
                };
                let mut header = vec![0; bytes];
                header[..2].copy_from_slice(&[next, length]);
                header[2..4].copy_from_slice(&fragment.to_be_bytes());
                payload = [header, payload].concat();
                next = kind;
            }
            let mut bytes = vec![0x60, 0, 0, 0];
            bytes.extend(((payload.len() as i32 + lie) as u16).to_be_bytes());
            bytes.extend([next, 64]);
            bytes.extend(addresses);
            [bytes, payload].concat()
        },
    )
}

/// What is behind the MACs.
fn inside() -> impl Strategy<Value = Vec<u8>> {
    let typed = |kind: u16, bytes: Vec<u8>| [&kind.to_be_bytes()[..], &bytes[..]].concat();
    prop_oneof![
        5 => ipv4().prop_map(move |bytes| typed(0x0800, bytes)),
        5 => ipv6().prop_map(move |bytes| typed(0x86dd, bytes)),
        1 => (any::<u16>(), upper()).prop_map(move |(kind, bytes)| typed(kind, bytes)),
    ]
}

/// A frame between these addresses, or with some bytes of another one, or cut off.
fn frame(macs: impl Strategy<Value = (Mac, Mac)>) -> impl Strategy<Value = Frame> {
    let changes = proptest::collection::vec((0..80usize, any::<u8>()), 1..4);
    let gso = (prop_oneof![Just(0u32), 1..3000u32], prop_oneof![Just(0u32), 1..60u32]);
    (
        macs,
        inside(),
        proptest::option::weighted(0.2, changes),
        proptest::option::weighted(0.1, 15..100usize),
        proptest::option::weighted(0.2, gso),
    )
        .prop_map(|((to, from), inside, changes, cut, gso)| {
            let mut bytes = [&to[..], &from[..], &inside[..]].concat();
            for (at, byte) in changes.unwrap_or_default() {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(cut.unwrap_or(usize::MAX));
            let (gso_size, gso_segs) = gso.unwrap_or_default();
            Frame { bytes, gso_size, gso_segs }
        })
}

/// A frame that the host sends, mostly to a peer.
pub fn sent() -> impl Strategy<Value = Frame> {
    let to = prop_oneof![
        8 => (0..4u8).prop_map(peer_mac),
        1 => Just(OWN),
        1 => any::<Mac>(),
    ];
    let from = prop_oneof![8 => Just(OWN), 1 => (0..4u8).prop_map(peer_mac), 1 => any::<Mac>()];
    frame((to, from))
}

/// A frame that comes in by a NIC, mostly a peer's.
pub fn arriving() -> impl Strategy<Value = (u32, Frame)> {
    let port = || proptest::sample::select(&PORTS[..]);
    let to = prop_oneof![8 => port().prop_map(own_nic), 1 => Just(OWN), 1 => any::<Mac>()];
    let from = prop_oneof![
        8 => (0..4u8, 1..4u8).prop_map(|(peer, nic)| far_nic(peer, nic)),
        1 => any::<Mac>(),
    ];
    (port(), frame((to, from)))
}
