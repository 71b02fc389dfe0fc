// SPDX-License-Identifier: Apache-2.0
//! Spreads each sender's total over its links as evenly as the NICs allow: in proportion to the
//! links' limits, with a price on every NIC that would be too full.

use std::ops::Range;

use super::{Link, Problem, FIRST_NIC, SINK, SOURCE, TINY};

/// Prices change in at most this many rounds. What does not fit then is moved by flow alone.
const PRICE_ROUNDS: usize = 40;
/// Price rounds end when no NIC exceeds its capacity by more than this part.
const CLOSE: f64 = 1e-5;
/// The natural logarithm of the largest change of a price in the first round.
const LONGEST_STEP: f64 = 2.0;
/// After a round that brought the loads no nearer, only this part of that step is allowed: Newton's
/// steps may swing about the prices that fit.
const SHORTER: f64 = 0.5;
/// Keeps the equations for the steps solvable when all NICs are full, and only ratios of prices
/// matter.
const RIDGE: f64 = 1e-9;

impl Problem {
    /// Replaces the flow, which carries `totals`, by one that carries them evenly.
    pub(super) fn split(&mut self, totals: &[f64]) {
        let useful = self.useful();
        let mut shares = self.priced(totals, &useful);
        self.fit(&mut shares);
        self.flow.clear();
        for (link, &share) in self.links.iter().zip(&shares) {
            self.flow.put(link.edge, share);
            self.flow.put(self.nic_edges[link.nic], share);
            if let Some(group) = link.group {
                self.flow.put(self.groups[group].edge, share);
            }
        }
        for (sender, &total) in totals.iter().enumerate() {
            let sum: f64 = shares[self.first[sender]..self.first[sender + 1]].iter().sum();
            self.flow.set_capacity(self.source_edges[sender], total.max(sum));
            self.flow.put(self.source_edges[sender], sum);
        }
        self.flow.fill(SOURCE, SINK);
    }

    /// Which links can carry anything at all at these totals: those that do, and those through
    /// which flow can be sent round a circle. For the others, prices alone would come near 0 only
    /// slowly.
    fn useful(&self) -> Vec<bool> {
        let circles: Vec<Vec<bool>> =
            (0..self.nics.len()).map(|nic| self.flow.reached(FIRST_NIC + nic, TINY)).collect();
        self.links
            .iter()
            .map(|link| {
                link.limit > 0.0
                    && (self.flow.carried(link.edge) > TINY || circles[link.nic][link.tail])
            })
            .collect()
    }

    /// Shares of each sender's total in proportion to the limits of its links. Fuller NICs have a
    /// price that makes their loads fit.
    fn priced(&self, totals: &[f64], useful: &[bool]) -> Vec<f64> {
        let mut shares = vec![0.0; self.links.len()];
        let mut weights = vec![0.0; self.links.len()];
        let mut prices = Prices::new(self);
        for _ in 0..PRICE_ROUNDS {
            for ((weight, link), &useful) in weights.iter_mut().zip(&self.links).zip(useful) {
                *weight = if useful {
                    link.limit * self.priced_by(link).map(|at| prices.factor[at]).product::<f64>()
                } else {
                    0.0
                };
            }
            for (sender, &total) in totals.iter().enumerate() {
                self.share_out(
                    total,
                    self.first[sender]..self.first[sender + 1],
                    &weights,
                    &mut shares,
                );
            }
            if !prices.adjust(self, &shares) {
                break;
            }
        }
        shares
    }

    /// The places of a link's prices among all prices: first those of the receiver's NICs, then
    /// those of NICs that several links of a sender share.
    fn priced_by(&self, link: &Link) -> impl Iterator<Item = usize> {
        std::iter::once(link.nic).chain(link.group.map(|group| self.nics.len() + group))
    }

    /// Shares `total` among the links of `range` by weight, none over its limit.
    fn share_out(&self, total: f64, range: Range<usize>, weights: &[f64], shares: &mut [f64]) {
        shares[range.clone()].fill(0.0);
        let mut left = total;
        let mut weight: f64 = weights[range.clone()].iter().sum();
        // Each round is the last, or fills a link for good.
        for _ in range.clone() {
            if left <= 0.0 || weight <= 0.0 {
                break;
            }
            let per_weight = left / weight;
            let mut full = false;
            for index in range.clone() {
                let limit = self.links[index].limit;
                if weights[index] > 0.0
                    && shares[index] < limit
                    && weights[index] * per_weight >= limit
                {
                    shares[index] = limit;
                    left -= limit;
                    weight -= weights[index];
                    full = true;
                }
            }
            if !full {
                for index in range.clone() {
                    if shares[index] < self.links[index].limit {
                        shares[index] = weights[index] * per_weight;
                    }
                }
                break;
            }
        }
    }

    /// Scales down the shares that are still too much for a NIC.
    fn fit(&self, shares: &mut [f64]) {
        let scale = |load: &[f64], capacity: &dyn Fn(usize) -> f64| -> Vec<f64> {
            load.iter()
                .enumerate()
                .map(|(at, &load)| if load > capacity(at) { capacity(at) / load } else { 1.0 })
                .collect()
        };
        let mut group_load = vec![0.0; self.groups.len()];
        for (link, &share) in self.links.iter().zip(shares.iter()) {
            if let Some(group) = link.group {
                group_load[group] += share;
            }
        }
        let group_scale = scale(&group_load, &|group| self.groups[group].capacity);
        let mut load = vec![0.0; self.nics.len()];
        for (link, share) in self.links.iter().zip(shares.iter_mut()) {
            *share *= link.group.map_or(1.0, |group| group_scale[group]);
            load[link.nic] += *share;
        }
        let nic_scale = scale(&load, &|nic| self.nics[nic]);
        for (link, share) in self.links.iter().zip(shares.iter_mut()) {
            *share *= nic_scale[link.nic];
        }
    }
}

/// What makes the links of full NICs less attractive.
///
/// The prices minimise a convex function whose slope is the load less the capacity. So Newton's
/// steps lead to the minimum, even where NICs can only become dearer together.
struct Prices {
    capacity: Vec<f64>,
    /// At most 1, which is the price of a NIC that is not full.
    factor: Vec<f64>,
    /// Where each price is among the equations of this round, if it is.
    row: Vec<Option<usize>>,
    longest_step: f64,
    /// How far off the worst load was in the last round, in parts of its capacity.
    misfit: f64,
}

impl Prices {
    fn new(problem: &Problem) -> Self {
        let groups = problem.groups.iter().map(|group| group.capacity);
        let capacity: Vec<f64> = problem.nics.iter().copied().chain(groups).collect();
        let count = capacity.len();
        Self {
            factor: vec![1.0; count],
            row: vec![None; count],
            capacity,
            longest_step: LONGEST_STEP,
            misfit: f64::INFINITY,
        }
    }

    /// Goes one step towards the prices at which all loads fit. Returns whether one was far off.
    fn adjust(&mut self, problem: &Problem, shares: &[f64]) -> bool {
        let mut load = vec![0.0; self.capacity.len()];
        for (link, share) in problem.links.iter().zip(shares) {
            problem.priced_by(link).for_each(|at| load[at] += share);
        }
        let mut misfit = 0.0;
        let mut active = Vec::new();
        for (at, &capacity) in self.capacity.iter().enumerate() {
            let excess = if load[at] > 0.0 { load[at] / capacity - 1.0 } else { 0.0 };
            self.row[at] = (excess > CLOSE || self.factor[at] < 1.0).then_some(active.len());
            if self.row[at].is_some() {
                active.push(at);
                misfit = f64::max(misfit, excess.abs());
            }
        }
        if misfit <= CLOSE {
            return false;
        }
        if misfit >= self.misfit {
            self.longest_step *= SHORTER;
        }
        self.misfit = misfit;
        let slopes = self.slopes(problem, shares, active.len());
        let step = solve(slopes, active.iter().map(|&at| self.capacity[at] - load[at]).collect());
        let longest = step.iter().fold(self.longest_step, |longest, step| longest.max(step.abs()));
        for (&at, step) in active.iter().zip(&step) {
            let factor = self.factor[at] * (step * self.longest_step / longest).exp();
            self.factor[at] = factor.clamp(1e-12, 1.0);
        }
        true
    }

    /// How the load of each active price answers to a small relative change of each price.
    fn slopes(&self, problem: &Problem, shares: &[f64], count: usize) -> Vec<Vec<f64>> {
        let mut slopes = vec![vec![0.0; count]; count];
        let mut sums: Vec<(usize, f64)> = Vec::new();
        for range in problem.first.windows(2).map(|pair| pair[0]..pair[1]) {
            // What is at a link's limit stays there; the rest goes where it is cheaper.
            let links = problem.links[range.clone()]
                .iter()
                .zip(&shares[range])
                .filter(|(link, &share)| share < link.limit);
            let mut movable = 0.0;
            sums.clear();
            for (link, share) in links {
                movable += share;
                for row in problem.priced_by(link).filter_map(|at| self.row[at]) {
                    for other in problem.priced_by(link).filter_map(|at| self.row[at]) {
                        slopes[row][other] += share;
                    }
                    match sums.iter_mut().find(|(known, _)| *known == row) {
                        Some((_, sum)) => *sum += share,
                        None => sums.push((row, *share)),
                    }
                }
            }
            for &(row, one) in sums.iter().filter(|_| movable > 0.0) {
                sums.iter().for_each(|&(other, two)| slopes[row][other] -= one * two / movable);
            }
        }
        slopes
    }
}

/// Solves symmetric equations that have no negative direction, by elimination.
fn solve(mut rows: Vec<Vec<f64>>, mut values: Vec<f64>) -> Vec<f64> {
    for at in 0..values.len() {
        rows[at][at] += RIDGE;
        let (done, below) = rows.split_at_mut(at + 1);
        let pivot = &done[at];
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[at] / pivot[at];
            row.iter_mut().zip(pivot).skip(at).for_each(|(cell, above)| *cell -= factor * above);
            values[at + 1 + offset] -= factor * values[at];
        }
    }
    for at in (0..values.len()).rev() {
        let known: f64 = (at + 1..values.len()).map(|next| rows[at][next] * values[next]).sum();
        values[at] = (values[at] - known) / rows[at][at];
    }
    values
}
