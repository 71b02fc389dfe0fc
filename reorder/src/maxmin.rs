// SPDX-License-Identifier: Apache-2.0
//! Max-min fair rates of senders that share a receiver's NICs, and an even split of each rate over
//! the sender's links.
//!
//! Every rate is as large as it can be without making a smaller one smaller still. The algorithm
//! raises all rates to one level. While no maximum flow carries that level, it lowers it to what
//! the cut in the way allows, which ends after a few cuts. Senders that cannot get more are done,
//! and the level rises again for the others.
//!
//! The totals are unique, but many splits carry them. The one that is taken is near the one in
//! proportion to the links' limits, by prices on full NICs. It depends continuously on the input,
//! so small changes of demand move little traffic.

mod flow;
mod split;

use flow::Flow;

/// All rates are computed as parts of the sum of the NICs. A difference this small is none.
const TINY: f64 = 1e-9;
/// A link of a sender: from one of its own NICs to one of the receiver's.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderLink {
    /// Index of the receiver's NIC. A NIC that does not exist carries nothing.
    pub nic: usize,
    /// Index of the sender's own NIC in `Sender::own_bps`. A NIC that is not there has no limit.
    pub own: usize,
    /// The most that the link carries, in bit/s; may be infinite.
    pub limit_bps: f64,
}

/// One who wants to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// What it would send, in bit/s; may be infinite.
    pub demand_bps: f64,
    /// Rates of its own NICs in bit/s, as far as they are known.
    pub own_bps: Vec<f64>,
    /// Its links to the receiver.
    pub links: Vec<SenderLink>,
}

/// Bit/s for each link of each sender.
///
/// The totals of the senders are max-min fair within the receiver's NICs (`nics_bps`), the links'
/// limits, the senders' NICs and their demands. A value that is negative or not a number counts as
/// 0.
pub fn max_min(nics_bps: &[f64], senders: &[Sender]) -> Vec<Vec<f64>> {
    let unit: f64 = nics_bps.iter().copied().map(amount).sum();
    if unit <= 0.0 {
        return senders.iter().map(|sender| vec![0.0; sender.links.len()]).collect();
    }
    let mut problem = Problem::new(nics_bps, senders, unit);
    let totals = problem.totals();
    problem.split(&totals);
    let mut rates = problem.links.iter().map(|link| problem.flow.carried(link.edge) * unit);
    senders.iter().map(|sender| rates.by_ref().take(sender.links.len()).collect()).collect()
}

/// A finite amount that is not negative.
fn amount(value: f64) -> f64 {
    if value > 0.0 {
        value.min(1e18)
    } else {
        0.0
    }
}

/// A link. Its limit includes everything that depends on this link alone.
struct Link {
    nic: usize,
    group: Option<usize>,
    limit: f64,
    edge: usize,
    /// Where its edge begins: at its sender, or at the sender's NIC if that one has several links.
    tail: usize,
}

/// Links of a sender that share one of its own NICs.
struct Group {
    capacity: f64,
    edge: usize,
}

/// The problem in parts of the sum of all NICs. As a flow network it has a source, the senders,
/// those of their NICs that have several links, the receiver's NICs, and a sink.
struct Problem {
    flow: Flow,
    nics: Vec<f64>,
    nic_edges: Vec<usize>,
    /// The first link of each sender; at the end, one past the last link.
    first: Vec<usize>,
    links: Vec<Link>,
    groups: Vec<Group>,
    demands: Vec<f64>,
    source_edges: Vec<usize>,
}

const SOURCE: usize = 0;
const SINK: usize = 1;
const FIRST_NIC: usize = 2;

impl Problem {
    fn new(nics_bps: &[f64], senders: &[Sender], unit: f64) -> Self {
        let nics: Vec<f64> = nics_bps.iter().map(|&bps| amount(bps) / unit).collect();
        let mut flow = Flow::new(FIRST_NIC + nics.len());
        let nic_edges = nics
            .iter()
            .enumerate()
            .map(|(nic, &bps)| flow.add(FIRST_NIC + nic, SINK, bps))
            .collect();
        let mut problem = Self {
            flow,
            nics,
            nic_edges,
            first: vec![0],
            links: Vec::new(),
            groups: Vec::new(),
            demands: Vec::new(),
            source_edges: Vec::new(),
        };
        for sender in senders {
            problem.add(sender, unit);
        }
        problem
    }

    fn add(&mut self, sender: &Sender, unit: f64) {
        let node = self.flow.node();
        self.source_edges.push(self.flow.add(SOURCE, node, 0.0));
        let mut own_groups: Vec<Option<usize>> = vec![None; sender.own_bps.len()];
        let mut reach = 0.0;
        for (own, &bps) in sender.own_bps.iter().enumerate() {
            if sender.links.iter().filter(|link| link.own == own).count() > 1 {
                let group_node = self.flow.node();
                let capacity = (amount(bps) / unit).min(1.0);
                own_groups[own] = Some(self.groups.len());
                self.groups
                    .push(Group { capacity, edge: self.flow.add(node, group_node, capacity) });
            }
        }
        let mut group_reach = vec![0.0; own_groups.len()];
        for link in &sender.links {
            let nic_bps = self.nics.get(link.nic).copied().unwrap_or(0.0);
            let own_bps =
                sender.own_bps.get(link.own).map_or(f64::INFINITY, |&bps| amount(bps) / unit);
            let limit = (amount(link.limit_bps) / unit).min(own_bps).min(nic_bps);
            let group = own_groups.get(link.own).copied().flatten();
            let tail = group.map_or(node, |group| self.flow.head(self.groups[group].edge));
            let nic = link.nic.min(self.nics.len().saturating_sub(1));
            let edge = self.flow.add(tail, FIRST_NIC + nic, limit);
            self.links.push(Link { nic, group, limit, edge, tail });
            match group {
                Some(_) => group_reach[link.own] += limit,
                None => reach += limit,
            }
        }
        for (own, group) in own_groups.iter().enumerate() {
            reach += group.map_or(0.0, |group| self.groups[group].capacity.min(group_reach[own]));
        }
        self.first.push(self.links.len());
        self.demands.push((amount(sender.demand_bps) / unit).min(reach).min(1.0));
    }

    /// The max-min fair total of each sender. The flow carries them afterwards.
    fn totals(&mut self) -> Vec<f64> {
        let mut totals = vec![0.0; self.demands.len()];
        let mut open: Vec<bool> = self.demands.iter().map(|&demand| demand > 0.0).collect();
        while open.iter().any(|&open| open) {
            let (level, tight) = self.highest_level(&totals, &open);
            let grows = self.flow.reaches(SINK, TINY);
            let mut done = false;
            for pass in 0..2 {
                for (sender, total) in
                    totals.iter_mut().enumerate().filter(|&(sender, _)| open[sender])
                {
                    let demand = self.demands[sender];
                    let satisfied = demand <= level + TINY;
                    // If the first pass finds nobody, that can only be due to rounding: end it
                    // there.
                    if satisfied || tight[sender] || !grows[self.node(sender)] || pass == 1 {
                        *total = demand.min(level);
                        done = true;
                    }
                }
                if done {
                    break;
                }
            }
            for (sender, open) in open.iter_mut().enumerate() {
                *open &= totals[sender] == 0.0;
            }
            if level <= 0.0 {
                break;
            }
        }
        self.carry(&totals);
        totals
    }

    /// The highest level that all `open` senders can have together, up to their demands, while the
    /// others keep their totals. Also who is in the last cut that was in the way.
    fn highest_level(&mut self, totals: &[f64], open: &[bool]) -> (f64, Vec<bool>) {
        let count = totals.len();
        let mut tight = vec![false; count];
        let mut level = (0..count)
            .filter(|&sender| open[sender])
            .map(|sender| self.demands[sender])
            .fold(0.0, f64::max);
        for _ in 0..=2 * count {
            let wanted: Vec<f64> =
                (0..count)
                    .map(|sender| {
                        if open[sender] {
                            self.demands[sender].min(level)
                        } else {
                            totals[sender]
                        }
                    })
                    .collect();
            let carried = self.carry(&wanted);
            if carried >= wanted.iter().sum::<f64>() - TINY {
                break;
            }
            let short = self.flow.reached(SOURCE, flow::NOTHING);
            let cut: Vec<bool> = (0..count).map(|sender| short[self.node(sender)]).collect();
            let outside: f64 =
                (0..count).filter(|&sender| !cut[sender]).map(|sender| wanted[sender]).sum();
            let settled: f64 = (0..count)
                .filter(|&sender| cut[sender] && !open[sender])
                .map(|sender| totals[sender])
                .sum();
            let members: Vec<f64> = (0..count)
                .filter(|&sender| cut[sender] && open[sender])
                .map(|sender| self.demands[sender])
                .collect();
            let lower = water_level(&members, carried - outside - settled);
            if lower >= level {
                break;
            }
            level = lower;
            tight = cut;
        }
        (level, tight)
    }

    /// Sends as much of `wanted` as there is room for, in an empty network. Returns the sum.
    fn carry(&mut self, wanted: &[f64]) -> f64 {
        self.flow.clear();
        for (&edge, &wanted) in self.source_edges.iter().zip(wanted) {
            self.flow.set_capacity(edge, wanted);
        }
        self.flow.fill(SOURCE, SINK)
    }

    fn node(&self, sender: usize) -> usize {
        self.flow.head(self.source_edges[sender])
    }
}

/// The level at which `sum(min(demand, level))` is `amount`; the highest demand if all of them
/// together are less.
fn water_level(demands: &[f64], amount: f64) -> f64 {
    let mut sorted = demands.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut left = amount.max(0.0);
    for (below, &demand) in sorted.iter().enumerate() {
        let level = left / (sorted.len() - below) as f64;
        if level <= demand {
            return level;
        }
        left -= demand;
    }
    sorted.last().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
