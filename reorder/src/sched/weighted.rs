// SPDX-License-Identifier: Apache-2.0
//! The papers' way to share frames among links: by weights, in bytes, smoothly.

use std::cmp::Reverse;

use super::bits;
use crate::wire::MAX_LINKS;

/// Bytes by which a link may be ahead of its share or behind it, in full frames. One full frame
/// when weights or usable links change, so that no burst makes up for the past.
const MAX_BEHIND: i64 = 4;

/// Credit is kept in such parts of a byte, so that a millionth of a small frame does not round to
/// nothing.
const SCALE: u64 = 1 << 15;
/// Larger frames do not exist. If there is one, it counts as this many bytes.
const LARGEST: usize = 65_535;

/// Shares bytes among links in proportion to their weights.
///
/// Each frame gives every usable link its share of the bytes as credit, and charges the link that
/// carries it, which is the one with the most credit.
///
/// Invariants: with frames of one size, no link carries more than the paper's C = ceil(weight /
/// least weight) in a row. With frames of all sizes, it carries what makes the bytes right, within
/// `MAX_BEHIND` full frames. A link of weight 0 carries nothing, unless all usable links have
/// weight 0; then they share equally.
#[derive(Clone, Debug)]
pub struct Weighted {
    weights: [u32; MAX_LINKS],
    credit: [i64; MAX_LINKS],
    max_credit: i64,
    shares: Shares,
}

/// What follows from the weights and the links that were usable last.
#[derive(Clone, Debug)]
struct Shares {
    usable: u64,
    /// The links that take part.
    links: u64,
    /// Share of each link, in parts of 2^-32.
    fraction: [u64; MAX_LINKS],
}

impl Weighted {
    /// No link has a weight yet. `frame` is the size of a full frame in bytes.
    pub fn new(frame: usize) -> Self {
        let max_credit = MAX_BEHIND * (frame.clamp(64, LARGEST) as u64 * SCALE) as i64;
        let shares = Shares { usable: 0, links: 0, fraction: [0; MAX_LINKS] };
        Self { weights: [0; MAX_LINKS], credit: [0; MAX_LINKS], max_credit, shares }
    }

    /// Gives `link` a weight, in any unit that all links of this peer share. Weight 0 drains it.
    /// Links over 63 do not exist.
    pub fn set(&mut self, link: u8, weight: u32) {
        if let Some(place) = self.weights.get_mut(usize::from(link)) {
            *place = weight;
            self.share_out(self.shares.usable);
        }
    }

    /// The link among `usable` (a bit each) that carries the next frame. The frame is charged to
    /// it. `None` if no link is usable.
    pub fn pick(&mut self, bytes: usize, usable: u64) -> Option<u8> {
        if usable != self.shares.usable {
            self.share_out(usable);
        }
        let size = bytes.min(LARGEST) as u64 * SCALE;
        let links = self.shares.links;
        let mut given = 0;
        for link in bits(links) {
            let share = ((size * self.shares.fraction[usize::from(link)]) >> 32) as i64;
            given += share;
            let credit = &mut self.credit[usize::from(link)];
            *credit = (*credit + share).min(self.max_credit);
        }
        let chosen =
            bits(links).max_by_key(|&link| (self.credit[usize::from(link)], Reverse(link)))?;
        // The chosen link is charged what all links were given, rounding included, so that the sum
        // stays.
        let credit = &mut self.credit[usize::from(chosen)];
        *credit = (*credit - given).max(-self.max_credit);
        Some(chosen)
    }

    fn share_out(&mut self, usable: u64) {
        let of = |link: u8| u64::from(self.weights[usize::from(link)]);
        let weighted =
            bits(usable).filter(|&link| of(link) > 0).fold(0, |set, link| set | 1 << link);
        let links = if weighted == 0 { usable } else { weighted };
        let of = |link: u8| if weighted == 0 { 1 } else { of(link) };
        let total: u64 = bits(links).map(of).sum();
        let mean = bits(links).map(|link| self.credit[usize::from(link)]).sum::<i64>()
            / i64::from(links.count_ones().max(1));
        for link in bits(links) {
            let place = usize::from(link);
            self.shares.fraction[place] = (of(link) << 32) / total;
            self.credit[place] = (self.credit[place] - mean)
                .clamp(-self.max_credit / MAX_BEHIND, self.max_credit / MAX_BEHIND);
        }
        (self.shares.usable, self.shares.links) = (usable, links);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weighted(weights: &[u32]) -> Weighted {
        let mut all = Weighted::new(1_514);
        weights.iter().enumerate().for_each(|(link, &weight)| all.set(link as u8, weight));
        all
    }

    #[test]
    fn equal_weights_take_turns() {
        let mut links = weighted(&[7, 7, 7]);
        let picked: Vec<_> = (0..7).filter_map(|_| links.pick(1_500, 0b111)).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn weight_zero_drains_unless_all_are_zero() {
        let mut links = weighted(&[0, 1]);
        assert!((0..100).all(|_| links.pick(1_500, 0b11) == Some(1)));
        let on_zero = (0..100).filter(|_| links.pick(1_500, 0b1101) == Some(2)).count();
        assert!((32..=35).contains(&on_zero), "{on_zero}");
        assert_eq!(links.pick(1_500, 0), None);
    }

    #[test]
    fn what_was_missed_while_unusable_comes_back_in_no_burst() {
        let mut links = weighted(&[1, 1]);
        (0..10_000).for_each(|_| assert_eq!(links.pick(1_500, 0b01), Some(0)));
        let first: Vec<_> = (0..20).filter_map(|_| links.pick(1_500, 0b11)).collect();
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    }

    #[test]
    fn rounding_does_not_add_up() {
        let mut links = weighted(&[1, 2, 4]);
        (0..1_000_000).for_each(|_| assert!(links.pick(61, 0b111).is_some()));
        let on_last = (0..7_000).filter(|_| links.pick(61, 0b111) == Some(2)).count();
        assert!((3_990..4_010).contains(&on_last), "{on_last}");
    }

    proptest! {
        /// Bytes follow the weights, and nothing is sent in longer bursts than the paper's C.
        #[test]
        fn bytes_follow_weights(
            weights in prop::collection::vec(1u32..20, 2..6),
            sizes in prop::collection::vec(60usize..1_514, 1..20),
        ) {
            let mut links = weighted(&weights);
            let total: u32 = weights.iter().sum();
            let least = *weights.iter().min().unwrap_or(&1);
            let usable = (1 << weights.len()) - 1;
            let mut carried = vec![0f64; weights.len()];
            let (mut last, mut row) = (None, 0);
            let frames = 4_000;
            for n in 0..frames {
                // Sizes come in random order: a period could beat with the links' turns.
                let size = sizes[(n * 7_919 + n / 13) % sizes.len()];
                let link = links.pick(size, usable);
                row = if link == last { row + size } else { size };
                last = link;
                let link = usize::from(link.ok_or_else(|| TestCaseError::fail("no link"))?);
                prop_assert!(row <= (weights[link].div_ceil(least) as usize + 1) * 1_514);
                carried[link] += size as f64;
            }
            let sum: f64 = carried.iter().sum();
            for (link, &weight) in weights.iter().enumerate() {
                let share = f64::from(weight) / f64::from(total);
                prop_assert!(
                    (carried[link] / sum - share).abs() < 0.02,
                    "{carried:?} for {weights:?}"
                );
            }
        }

        #[test]
        fn bursts_of_one_size_are_no_longer_than_c(
            weights in prop::collection::vec(1u32..100_000, 2..6),
            size in 60usize..1_514,
        ) {
            let mut links = weighted(&weights);
            let least = *weights.iter().min().unwrap_or(&1);
            let (mut last, mut row) = (None, 0);
            for _ in 0..1_000 {
                let link = links.pick(size, (1 << weights.len()) - 1);
                row = if link == last { row + 1 } else { 1 };
                last = link;
                prop_assert!(
                    link.is_some_and(|link| row <= weights[usize::from(link)].div_ceil(least)),
                    "{row} on {link:?}"
                );
            }
        }

        #[test]
        fn a_pick_is_usable_whatever_comes(
            ops in prop::collection::vec(
                (any::<u8>(), any::<u32>(), any::<usize>(), any::<u64>()),
                1..60,
            ),
        ) {
            let mut links = Weighted::new(1_514);
            for (link, weight, bytes, usable) in ops {
                links.set(link, weight);
                match links.pick(bytes, usable) {
                    Some(link) => prop_assert!(usable >> link & 1 == 1),
                    None => prop_assert_eq!(usable, 0),
                }
            }
        }
    }
}
