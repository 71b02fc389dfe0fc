// SPDX-License-Identifier: Apache-2.0
//! Which link TCP takes to a striped peer.

use std::collections::BTreeMap;

use super::{count, flow, is_exception, longest, mac, segment, with_macs, Frame, Passes};
use ri2n_fast::plan::{Mac, Path, Plan};

/// What the helper says of one link.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub ns_per_kib: u32,
    pub skew_ns: u32,
    pub nic: u32,
    /// When it is free.
    pub free_ns: u64,
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

/// A frame's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Bridge,
    /// The socket gets it back.
    Refused,
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

/// What becomes of a frame to a striped peer at this time.
pub fn sent(
    plan: &Plan,
    frame: &Frame,
    now: u64,
    steers: &BTreeMap<Mac, Steer>,
    nics: &Nics,
    mtu: impl Fn(u32) -> usize,
) -> Way {
    let choose = || {
        let (to, from) = (mac(&frame.bytes)?, mac(frame.bytes.get(6..)?)?);
        let paths = plan.striped.get(&to).filter(|_| plan.own == Some(from))?;
        let flow = flow(frame).filter(|flow| !is_exception(plan, flow))?;
        let steer = steers.get(&to).filter(|steer| now < steer.until_ns)?;
        let segment = segment(frame, &flow)?;
        let count = count(frame, &flow, 0);
        let possible = paths.iter().filter(|(link, path)| {
            let fits = longest(frame, &flow) <= mtu(path.port) + 14;
            steer.links >> **link & 1 == 1 && fits
        });
        let ways = possible.filter_map(|(link, path)| {
            let lane = &steer.lanes[usize::from(*link)];
            let nic = nics.get(&lane.nic).filter(|(_, rate)| *rate != 0);
            let start_ns = now.max(lane.free_ns).max(nic.map_or(0, |(free, _)| *free));
            let tag = if path.vlan.is_some() { 4 } else { 0 };
            let wire = count.bytes + count.packets * (u64::from(steer.overhead) + tag);
            let time = |rate: u32| wire * u64::from(rate) / 1024;
            (lane.ns_per_kib != 0).then(|| Chosen {
                link: *link,
                path: path.clone(),
                start_ns,
                lane_ns: time(lane.ns_per_kib),
                nic_ns: nic.map(|(_, rate)| time(*rate)),
                passes: Passes {
                    by: to,
                    frame: with_macs(frame, path.destination, path.source),
                    count,
                },
            })
        });
        let skew = |link: u8| u64::from(steer.lanes[usize::from(link)].skew_ns);
        let best = ways.min_by_key(|way| way.start_ns + way.lane_ns + skew(way.link))?;
        let waits = best.start_ns - now > steer.limit_ns.into();
        let is_refused = steer.limit_ns != 0 && segment.start != segment.end && waits;
        Some(if is_refused { Way::Refused } else { Way::Beside(best) })
    };
    choose().unwrap_or(Way::Bridge)
}
