// SPDX-License-Identifier: Apache-2.0
//! A bridge's rows as a plan for the programs.

use std::collections::{BTreeMap, BTreeSet};

use ri2n_wire::shared::LANES;

use super::frame::{Counted, Frame, Kind};
use super::index::Index;
use super::interpret::{Walk, NICS_END, WIRE};
use super::model::{mac, number, Bridge, Field, LOCAL, VLAN_PRESENT};
use super::outcome::{Outcome, Sent};
use crate::plan::{
    Arrival, Exception, Left, Mac, Path, Peer, Plan, Source, Striped, MAX_EXCEPTIONS, MAX_PATHS,
    MAX_PEERS, SLOTS,
};

/// The table whose rows count frames by path and peer.
pub const PATH_TABLE: u8 = 30;
/// The table whose rows count frames by NIC and source.
pub const SOURCE_TABLE: u8 = 3;

/// A plan, and which tables it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Changes of other tables' rows change nothing.
    pub tables: BTreeSet<u8>,
}

/// What the rows say about the frames of peers.
///
/// A peer is who has a row in the table that counts by path. Whoever else the rows know, such as a
/// router, is the bridge's business.
pub fn plan(bridge: &Bridge) -> Planned {
    let mut planned =
        Planned { tables: BTreeSet::from([0, PATH_TABLE, SOURCE_TABLE]), ..Planned::default() };
    let Some(local) = bridge.ports.get(&LOCAL).filter(|port| !port.restricted) else {
        return planned;
    };
    planned.plan.own = Some(local.mac);
    let index = Index::new(bridge);
    let mut exceptions = BTreeSet::new();
    let links = links(bridge);
    for peer in peers(bridge) {
        let has_room = planned.plan.peers.len() + planned.plan.striped.len() < MAX_PEERS;
        let mut walk = Walk::new(bridge, &index);
        let frame = |kind| Frame::new(kind, LOCAL, number(local.mac), peer, None);
        let outcome = walk.follow(frame(Kind::Ip));
        planned.tables.append(&mut walk.tables);
        let others = is_helpers(&outcome, local.mac, peer);
        match sent(outcome) {
            Ok(_) if !has_room => {
                planned.plan.left.insert(mac(peer), Left::TooMany);
            }
            Ok(known) => {
                planned.plan.peers.insert(mac(peer), known);
                exceptions.append(&mut walk.exceptions);
            }
            Err(why) => drop(planned.plan.left.insert(mac(peer), why)),
        }
        if has_room && planned.plan.left.get(&mac(peer)) == Some(&Left::Striped) {
            let links = links.get(&peer).into_iter().flatten().copied();
            let found = beside(bridge, &index, local.mac, peer, links, &mut planned.tables);
            if let Some((paths, mut excepted)) = found {
                planned.plan.striped.insert(mac(peer), Striped { paths, others });
                exceptions.append(&mut excepted);
                if others {
                    exceptions.append(&mut walk.exceptions);
                }
            }
        }
    }
    let lanes = lanes(&planned.plan.striped);
    for arrival in arrivals(bridge) {
        let mut walk = Walk::new(bridge, &index);
        let frame = Frame::new(
            Kind::Ip,
            arrival.port,
            number(arrival.source),
            number(arrival.destination),
            arrival.vlan,
        );
        let outcome = walk.follow(frame);
        planned.tables.append(&mut walk.tables);
        if let Some(peer) = delivered(&outcome, local.mac) {
            let lane = lanes.get(&arrival).filter(|(sender, _)| *sender == peer);
            let source = Source { peer, lane: lane.map(|(_, link)| *link) };
            planned.plan.arrivals.insert(arrival, source);
            exceptions.append(&mut walk.exceptions);
        }
    }
    planned.plan.exceptions = widest(exceptions);
    if planned.plan.exceptions.len() > MAX_EXCEPTIONS {
        planned.plan.leave_all(Left::TooMany);
    }
    planned
}

fn peers(bridge: &Bridge) -> BTreeSet<u64> {
    let rows = bridge.rows.iter().filter(|(key, _)| key.table == PATH_TABLE);
    let macs = rows.filter_map(|(_, row)| row.exactly(Field::EthDst));
    macs.map(|it| it as u64).filter(|it| !is_group_address(*it)).collect()
}

/// The frames from NICs about which to ask: of every row that counts by NIC and source, with every
/// address that a row of that NIC names, and with the tag that the row asks for.
fn arrivals(bridge: &Bridge) -> BTreeSet<Arrival> {
    const CAME_WITH: Field = Field::Reg(4);
    let mut destinations: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut tags: BTreeSet<Option<u16>> = BTreeSet::from([None]);
    for (key, row) in &bridge.rows {
        let pair = (row.exactly(Field::InPort), row.exactly(Field::EthDst));
        if let (Some(port), Some(dst)) = pair {
            if key.table != SOURCE_TABLE && !is_group_address(dst as u64) {
                destinations.entry(port as u32).or_default().insert(dst as u64);
            }
        }
        let tag = row.exactly(Field::VlanVid).map(|it| it as u16);
        if let Some(tag) = tag.filter(|tag| key.table == 0 && tag & VLAN_PRESENT != 0) {
            tags.insert(Some(tag & !VLAN_PRESENT));
        }
    }
    let mut all = BTreeSet::new();
    for (_, row) in bridge.rows.iter().filter(|(key, _)| key.table == SOURCE_TABLE) {
        let (Some(port), Some(source)) = (row.exactly(Field::InPort), row.exactly(Field::EthSrc))
        else {
            continue;
        };
        let port = port as u32;
        let restricted = bridge.ports.get(&port).is_none_or(|it| it.restricted);
        if port >= NICS_END || restricted || is_group_address(source as u64) {
            continue;
        }
        let asked = row.exactly(CAME_WITH).map(|it| (it as u16 & !VLAN_PRESENT) & 0xfff);
        for destination in destinations.get(&port).into_iter().flatten() {
            for vlan in &tags {
                if asked.is_none_or(|asked| asked == vlan.unwrap_or(0)) {
                    all.insert(Arrival {
                        port,
                        source: mac(source as u64),
                        destination: mac(*destination),
                        vlan: *vlan,
                    });
                }
            }
        }
    }
    all
}

/// The helper links to each peer about which to ask: those that a row knows by their tags.
fn links(bridge: &Bridge) -> BTreeMap<u64, BTreeSet<u8>> {
    let mut links: BTreeMap<u64, BTreeSet<u8>> = BTreeMap::new();
    for (_, row) in bridge.rows.iter().filter(|(key, _)| key.table == 0) {
        let tag = row.exactly(Field::VlanVid).map(|it| it as u16);
        let id = tag.filter(|tag| tag & VLAN_PRESENT != 0).map(|tag| tag & !VLAN_PRESENT);
        let link = id.and_then(|id| u8::try_from(id.checked_sub(1)?).ok());
        let link = link.filter(|link| usize::from(*link) < LANES);
        let from_helper = row.exactly(Field::InPort) == Some(WIRE.into());
        if let (Some(peer), Some(link), true) = (row.exactly(Field::EthDst), link, from_helper) {
            links.entry(peer as u64).or_default().insert(link);
        }
    }
    links
}

/// Whether all frames of a class go to the helper, as the host sent them.
fn is_helpers(outcome: &Outcome, own: Mac, peer: u64) -> bool {
    let Outcome::ToHelper(sent) = outcome else { return false };
    (sent.src, sent.dst, sent.vlan) == (own, mac(peer), None)
}

/// The paths of the helper's links to a peer, and the flows that they are not for, if all TCP to
/// the peer but these flows goes to the helper as it is.
///
/// The helper would send it over these very paths. Where a row treats some of it in another way,
/// such as a job's, the programs could not tell which, and all of it stays in the bridge.
fn beside(
    bridge: &Bridge,
    index: &Index,
    own: Mac,
    peer: u64,
    links: impl Iterator<Item = u8>,
    tables: &mut BTreeSet<u8>,
) -> Option<(BTreeMap<u8, Path>, BTreeSet<Exception>)> {
    let mut walk = Walk::new(bridge, index);
    let outcome = walk.follow(Frame::new(Kind::Tcp, LOCAL, number(own), peer, None));
    tables.append(&mut walk.tables);
    if !is_helpers(&outcome, own, peer) {
        return None;
    }
    let mut paths = BTreeMap::new();
    for link in links {
        let tag = Some(u16::from(link) + 1);
        let mut walk = Walk::new(bridge, index);
        let outcome = walk.follow(Frame::new(Kind::Striped, WIRE, number(own), peer, tag));
        tables.append(&mut walk.tables);
        if let Outcome::Sent(sent) = outcome {
            paths.extend(path(&sent).map(|path| (link, path)));
        }
    }
    (!paths.is_empty()).then_some((paths, walk.exceptions))
}

/// What a frame looks like that the peer sends over one of its helper links, and which link that
/// is: both hosts know links by the same numbers.
fn lanes(striped: &BTreeMap<Mac, Striped>) -> BTreeMap<Arrival, (Mac, u8)> {
    let reversed = |path: &Path| Arrival {
        port: path.port,
        source: path.destination,
        destination: path.source,
        vlan: path.vlan,
    };
    let links = striped.iter().flat_map(|(peer, striped)| {
        striped.paths.iter().map(move |(link, path)| (reversed(path), (*peer, *link)))
    });
    links.collect()
}

/// Frames to a peer, if they are sent in a way that the programs can go.
fn sent(outcome: Outcome) -> Result<Peer, Left> {
    let slots = match outcome {
        Outcome::Left(why) => return Err(why),
        Outcome::ToHelper(_) => return Err(Left::Striped),
        Outcome::Nothing => return Err(Left::Unsupported),
        Outcome::Sent(one) => Box::new(std::array::from_fn(|_| one.clone())),
        Outcome::Slots(slots) => slots,
    };
    let ways: Option<Vec<Path>> = slots.iter().map(path).collect();
    let ways = ways.ok_or(Left::Unsupported)?;
    // In an order of their own, so that a path keeps its place while slots change.
    let paths: BTreeSet<&Path> = ways.iter().collect();
    let paths: Vec<Path> = paths.into_iter().cloned().collect();
    if paths.len() > MAX_PATHS {
        return Err(Left::TooMany);
    }
    let mut slots = [0; SLOTS];
    for (slot, way) in slots.iter_mut().zip(&ways) {
        *slot = paths.iter().position(|path| path == way).expect("it is one of them") as u8;
    }
    Ok(Peer { paths, slots })
}

fn path(sent: &Sent) -> Option<Path> {
    let Some(Counted::Path(id)) = sent.counted else { return None };
    (sent.port < NICS_END).then_some(Path {
        id,
        port: sent.port,
        source: sent.src,
        destination: sent.dst,
        vlan: sent.vlan,
    })
}

/// Whose frame it is, if it is delivered to the host under the host's own address and as the peer's
/// own frame.
fn delivered(outcome: &Outcome, own: Mac) -> Option<Mac> {
    let Outcome::Sent(sent) = outcome else { return None };
    let ours = sent.port == LOCAL && sent.dst == own && sent.vlan.is_none();
    (ours && sent.counted == Some(Counted::Source)).then_some(sent.src)
}

fn is_group_address(mac: u64) -> bool {
    mac >> 40 & 1 == 1
}

/// The exceptions without those that another one covers.
fn widest(all: BTreeSet<Exception>) -> Vec<Exception> {
    let covers = |wide: &Exception, one: &Exception| {
        let port = |wide: Option<u16>, one: Option<u16>| wide.is_none() || wide == one;
        wide.protocol == one.protocol
            && port(wide.source_port, one.source_port)
            && port(wide.destination_port, one.destination_port)
    };
    let is_covered = |one: &Exception| all.iter().any(|wide| wide != one && covers(wide, one));
    all.iter().filter(|one| !is_covered(one)).copied().collect()
}
