// SPDX-License-Identifier: Apache-2.0
//! Which link packets take to a striped peer.

use std::collections::BTreeMap;

use super::lone::Lone;
use super::{count, flow, is_exception, longest, mac, segment, with_macs, Flow, Frame, Passes};
use ri2n_fast::plan::{Mac, Path, Plan, Striped};

/// What the helper says of one link.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub ns_per_kib: u32,
    pub skew_ns: u32,
    pub nic: u32,
    /// When it is free.
    pub free_ns: u64,
    /// When it brought something, in units of 1,024 ns, wrapping.
    pub heard: u32,
}

/// What the helper says of one peer.
#[derive(Clone, Debug, Default)]
pub struct Steer {
    pub until_ns: u64,
    pub links: u64,
    pub overhead: u32,
    pub limit_ns: u32,
    pub lanes: Vec<Lane>,
}

/// When a NIC is free, and what 1,024 bytes take on it.
pub type Nics = BTreeMap<u32, (u64, u32)>;

/// A link says for so many units of 1,024 ns after it brought something that it works.
pub const FRESH: u32 = 20_000;

const SYN: u8 = 2;
const RST: u8 = 4;

/// A frame's way, if no socket of this host sent it: nothing is refused, and nobody knows what was
/// sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Bridge,
    Beside(Chosen),
}

/// The link, and when the frame begins and ends to leave by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub link: u8,
    pub path: Path,
    pub start_ns: u64,
    pub lane_ns: u64,
    /// By how much the NIC's time moves, if its rate is known.
    pub nic_ns: Option<u64>,
    pub passes: Passes<Mac>,
}

/// A frame at this time, and what the helper says then.
pub struct Sending<'a> {
    pub to: Mac,
    pub frame: &'a Frame,
    pub flow: Flow,
    pub now: u64,
    pub steer: &'a Steer,
    pub nics: &'a Nics,
}

impl Sending<'_> {
    /// The frame by a link. None: its rate is not known.
    pub fn by(&self, link: u8, path: &Path) -> Option<Chosen> {
        let Sending { now, steer, nics, .. } = *self;
        let count = count(self.frame, &self.flow, 0);
        let lane = &steer.lanes[usize::from(link)];
        let nic = nics.get(&lane.nic).filter(|(_, rate)| *rate != 0);
        let tag = if path.vlan.is_some() { 4 } else { 0 };
        let wire = count.bytes + count.packets * (u64::from(steer.overhead) + tag);
        let time = |rate: u32| wire * u64::from(rate) / 1024;
        (lane.ns_per_kib != 0).then(|| Chosen {
            link,
            path: path.clone(),
            start_ns: now.max(lane.free_ns).max(nic.map_or(0, |(free, _)| *free)),
            lane_ns: time(lane.ns_per_kib),
            nic_ns: nic.map(|(_, rate)| time(*rate)),
            passes: Passes {
                by: self.to,
                frame: with_macs(self.frame, path.destination, path.source),
                count,
            },
        })
    }

    pub fn fits(&self, path: &Path, mtu: impl Fn(u32) -> usize) -> bool {
        longest(self.frame, &self.flow) <= mtu(path.port) + 14
    }

    /// TCP takes the link by which it is there first; an acknowledgement takes the one that brought
    /// something last.
    fn tcp(&self, striped: &Striped, mtu: impl Fn(u32) -> usize) -> Option<Way> {
        let Sending { now, steer, .. } = *self;
        let segment = segment(self.frame, &self.flow).filter(|_| now < steer.until_ns)?;
        let links = striped.paths.iter().filter(|(link, path)| {
            let may = steer.links >> **link & 1 == 1;
            may && self.fits(path, &mtu)
        });
        let ways: Vec<Chosen> = links.filter_map(|(link, path)| self.by(*link, path)).collect();
        let lane = |way: &Chosen| &steer.lanes[usize::from(way.link)];
        let age = |way: &Chosen| ((now >> 10) as u32).wrapping_sub(lane(way).heard);
        let acknowledges = segment.start == segment.end && segment.flags & (SYN | RST) == 0;
        let heard = ways.iter().filter(|way| acknowledges && age(way) < FRESH);
        let first = |way: &&Chosen| way.start_ns + way.lane_ns + u64::from(lane(way).skew_ns);
        let best = heard.min_by_key(|way| age(way)).or_else(|| ways.iter().min_by_key(first))?;
        Some(Way::Beside(best.clone()))
    }
}

/// What becomes of a frame to a striped peer at this time.
pub fn sent(
    plan: &Plan,
    frame: &Frame,
    now: u64,
    (steers, nics): (&BTreeMap<Mac, Steer>, &Nics),
    lone: &mut Lone,
    mtu: impl Fn(u32) -> usize,
) -> Way {
    let choose = || {
        let (to, from) = (mac(&frame.bytes)?, mac(frame.bytes.get(6..)?)?);
        let striped = plan.striped.get(&to).filter(|_| plan.own == Some(from))?;
        let flow = flow(frame).filter(|flow| !is_exception(plan, flow))?;
        let sending = Sending { to, frame, flow, now, steer: steers.get(&to)?, nics };
        match sending.flow.protocol {
            6 => sending.tcp(striped, mtu),
            _ => lone.see(&sending, striped, mtu).map(Way::Beside),
        }
    };
    choose().unwrap_or(Way::Bridge)
}
