// SPDX-License-Identifier: Apache-2.0
//! Picks a link for each frame of a peer, at the rates that the receiver granted.

use super::{bits, Bucket};
use crate::wire::MAX_LINKS;
use crate::Nanos;

/// A bucket is at least this many full frames deep. More would wait in a slow link, and everything
/// behind them at the receiver.
const DEPTH_FRAMES: u64 = 1;
/// A bucket is at least this deep in time. Timers wake up late, by 50 us or on a busy machine by
/// some hundred, and credit must not spill over meanwhile.
const DEPTH_NS: u64 = 500_000;
/// A host uses this part of its own NICs' rates, so that no queue builds up in them.
const NIC_USE: f64 = 0.995;

/// The highest number of a link.
const LAST_LINK: u8 = MAX_LINKS as u8 - 1;

/// One peer's links, each with a token bucket.
///
/// Pacing keeps queues out of the network: what waits, waits in this host, where CoDel sees it and
/// where it can still take another link.
///
/// Invariants: a link without a rate is never picked. Over any time, a link carries no more than
/// its rate, its depth (`DEPTH_FRAMES` full frames, or `DEPTH_NS` at its rate) and one frame. A
/// peer with frames that wait wastes no link's rate as long as `pick` is called by `next_ready`
/// plus `DEPTH_NS`.
#[derive(Clone, Debug)]
pub struct Paced {
    buckets: Vec<Option<Bucket>>,
    frame: u64,
    /// The link that was picked last.
    last: u8,
}

impl Paced {
    /// No link has a rate yet. `frame` is what a full frame costs, in bytes, with everything that
    /// counts on the medium.
    pub fn new(frame: usize) -> Self {
        Self { buckets: Vec::new(), frame: frame as u64, last: LAST_LINK }
    }

    /// `link` (0..=63, others are ignored) may carry `rate_bps` bit/s from `now` on; 0 stops it.
    pub fn set(&mut self, now: Nanos, link: u8, rate_bps: u64) {
        if link > LAST_LINK {
            return;
        }
        let place = usize::from(link);
        if self.buckets.len() <= place {
            self.buckets.resize(place + 1, None);
        }
        let rate = rate_bps / 8;
        let depth = depth(rate, self.frame);
        match &mut self.buckets[place] {
            Some(bucket) => bucket.set(now, rate, depth),
            none => *none = Some(Bucket::new(now, rate, depth)),
        }
    }

    /// Takes `link` away. It cannot be picked until it is `set` again, and then starts with a full
    /// bucket.
    pub fn remove(&mut self, link: u8) {
        if let Some(place) = self.buckets.get_mut(usize::from(link)) {
            *place = None;
        }
    }

    /// Bit/s of all links in `usable` together.
    pub fn rate_bps(&self, usable: u64) -> u64 {
        bits(usable).filter_map(|link| self.bucket(link)).map(|bucket| bucket.rate() * 8).sum()
    }

    /// The link for a frame of `bytes`. Of the links in `usable` (a bit each) that have credit, and
    /// whose own NIC has time (`nic_ready(link)`), it is the one that has carried the frame first.
    ///
    /// Among links of one rate, this is the one with the most credit. A lone frame takes the
    /// fastest link; by the most credit in time it would take the slowest. Call `spent` when the
    /// frame was sent.
    pub fn pick(
        &mut self,
        now: Nanos,
        bytes: usize,
        usable: u64,
        nic_ready: impl Fn(u8) -> bool,
    ) -> Option<u8> {
        let mut best = None;
        let mut soonest = Nanos::MAX;
        // Among equally good links, the next one in turn is taken: a trickle of frames uses all of
        // them.
        let turned = usable & !(u64::MAX >> (LAST_LINK - self.last));
        for link in bits(turned).chain(bits(usable & !turned)) {
            let Some(Some(bucket)) = self.buckets.get_mut(usize::from(link)) else { continue };
            bucket.refill(now);
            if !bucket.has_credit() {
                continue;
            }
            let through = bucket.time_to_full(bytes);
            if through < soonest && nic_ready(link) {
                (best, soonest) = (Some(link), through);
            }
        }
        self.last = best.unwrap_or(self.last);
        best
    }

    /// Charges `link` with `bytes`, for repeated frames and heartbeats, too. The link may go into
    /// debt.
    pub fn spent(&mut self, link: u8, bytes: usize) {
        if let Some(Some(bucket)) = self.buckets.get_mut(usize::from(link)) {
            bucket.spend(bytes);
        }
    }

    /// `bytes` left over `link` without having been picked. They use up its credit, and make no
    /// debt.
    pub fn used_up(&mut self, link: u8, bytes: usize) {
        if let Some(Some(bucket)) = self.buckets.get_mut(usize::from(link)) {
            bucket.use_up(bytes);
        }
    }

    /// When `pick` will find a link among those in `usable`: `now` if it does now, `Nanos::MAX` if
    /// it never will.
    ///
    /// That is when the first of them has credit and its own NIC has time (from
    /// `nic_ready_at(link)` on). The first time of any link and the first time of any NIC would say
    /// nothing, if the two do not belong together.
    pub fn next_ready(
        &mut self,
        now: Nanos,
        usable: u64,
        nic_ready_at: impl Fn(u8) -> Nanos,
    ) -> Nanos {
        let mut soonest = Nanos::MAX;
        for link in bits(usable) {
            let Some(Some(bucket)) = self.buckets.get_mut(usize::from(link)) else { continue };
            if bucket.rate() > 0 {
                bucket.refill(now);
                soonest = soonest.min(bucket.ready_at(now).max(nic_ready_at(link)));
            }
        }
        soonest
    }

    fn bucket(&self, link: u8) -> Option<&Bucket> {
        self.buckets.get(usize::from(link))?.as_ref()
    }
}

/// The host's own NICs, which all peers share. Each has a token bucket at `NIC_USE` of its rate.
#[derive(Clone, Debug)]
pub struct NicBuckets {
    nics: Paced,
}

impl NicBuckets {
    /// No NIC has a rate yet. `frame` is as for `Paced`.
    pub fn new(frame: usize) -> Self {
        Self { nics: Paced::new(frame) }
    }

    /// `nic` (0..=63) runs at `rate_bps` bit/s.
    pub fn set(&mut self, now: Nanos, nic: u8, rate_bps: u64) {
        self.nics.set(now, nic, (rate_bps as f64 * NIC_USE) as u64);
    }

    /// Takes `nic` away.
    pub fn remove(&mut self, nic: u8) {
        self.nics.remove(nic);
    }

    /// Adds credit until `now`. Once per turn is enough, since `ready` does not look at the clock.
    pub fn refill(&mut self, now: Nanos) {
        self.nics.buckets.iter_mut().flatten().for_each(|bucket| bucket.refill(now));
    }

    /// Whether `nic` may send a frame. A NIC that has no rate is not held back.
    pub fn ready(&self, nic: u8) -> bool {
        self.nics.bucket(nic).is_none_or(Bucket::has_credit)
    }

    /// Charges `nic` with `bytes`.
    pub fn spent(&mut self, nic: u8, bytes: usize) {
        self.nics.spent(nic, bytes);
    }

    /// Bit/s at which `nic` is used; 0 if it has no rate.
    pub fn rate_bps(&self, nic: u8) -> u64 {
        self.nics.bucket(nic).map_or(0, |bucket| bucket.rate() * 8)
    }

    /// `bytes` left by `nic` without having been picked. They make no debt.
    pub fn used_up(&mut self, nic: u8, bytes: usize) {
        self.nics.used_up(nic, bytes);
    }

    /// When `nic` has credit: `now` if it has some.
    pub fn ready_at(&self, now: Nanos, nic: u8) -> Nanos {
        self.nics.bucket(nic).map_or(now, |bucket| bucket.ready_at(now))
    }
}

/// Depth in bytes of a bucket with `rate` bytes per second and full frames of `frame` bytes.
fn depth(rate: u64, frame: u64) -> u64 {
    (DEPTH_FRAMES * frame).max((u128::from(rate) * u128::from(DEPTH_NS) / 1_000_000_000) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: usize = 1_514;
    const MS: Nanos = 1_000_000;

    fn paced(rates_bps: &[u64]) -> Paced {
        let mut links = Paced::new(FULL);
        rates_bps.iter().enumerate().for_each(|(link, &rate)| links.set(0, link as u8, rate));
        links
    }

    /// Sends full frames as soon as they may leave, from 0 to `until`. Returns the time and link of
    /// each.
    fn send(links: &mut Paced, until: Nanos, usable: u64) -> Vec<(Nanos, u8)> {
        let (mut now, mut sent) = (0, Vec::new());
        loop {
            while let Some(link) = links.pick(now, FULL, usable, |_| true) {
                links.spent(link, FULL);
                sent.push((now, link));
            }
            now = links.next_ready(now, usable, |_| now);
            if now > until {
                return sent;
            }
        }
    }

    #[test]
    fn a_lone_frame_takes_the_fastest_link() {
        let mut links = paced(&[10_000_000, 100_000_000, 50_000_000]);
        for n in 0..20 {
            assert_eq!(links.pick(n * 10 * MS, FULL, 0b111, |_| true), Some(1));
            links.spent(1, FULL);
        }
        assert_eq!(links.pick(300 * MS, FULL, 0b111, |link| link != 1), Some(2));
    }

    #[test]
    fn equal_links_take_turns() {
        let links: Vec<_> = send(&mut paced(&[100_000_000; 3]), 50 * MS, 0b111)
            .into_iter()
            .map(|(_, link)| link)
            .collect();
        let turns = links
            .chunks_exact(3)
            .filter(|turn| turn.iter().fold(0, |set, link| set | 1 << link) == 0b111)
            .count();
        assert_eq!(turns, links.len() / 3);
    }

    #[test]
    fn links_without_rate_or_credit_are_not_picked() {
        let mut links = paced(&[0]);
        links.spent(0, 100_000);
        assert_eq!(links.pick(1 << 50, FULL, u64::MAX, |_| true), None);
        assert_eq!(links.next_ready(1 << 50, u64::MAX, |_| 0), Nanos::MAX);
        links.set(1 << 50, 0, 8_000_000_000);
        assert!(links.next_ready(1 << 50, 1, |_| 0) < (1 << 50) + MS);
        links.remove(0);
        assert_eq!(links.next_ready(1 << 50, 1, |_| 0), Nanos::MAX);
        links.set(0, 200, 1); // no such link
        assert_eq!(links.rate_bps(u64::MAX), 0);
    }

    #[test]
    fn own_nics_hold_back_all_peers_together() {
        let mut nics = NicBuckets::new(FULL);
        nics.set(0, 3, 100_000_000);
        let (mut now, mut sent) = (0, 0usize);
        while now < 1_000 * MS {
            nics.refill(now);
            while nics.ready(3) {
                nics.spent(3, FULL);
                sent += FULL;
            }
            now = nics.ready_at(now, 3);
        }
        assert!((sent as f64 / 12_500_000.0 - NIC_USE).abs() < 0.001, "{sent}");
        assert!(nics.ready(9));
        assert_eq!(nics.ready_at(now, 9), now);
        nics.remove(3);
        assert!(nics.ready(3));
    }

    #[test]
    fn the_time_of_a_link_and_that_of_another_ones_nic_are_not_mixed() {
        // Link 0 has credit, but its NIC has none for a while; with link 1 it is the other way
        // round.
        let mut links = paced(&[100_000_000, 100_000_000]);
        links.spent(1, 10 * FULL);
        let at = links.next_ready(0, 0b11, |link| if link == 0 { 5 * MS } else { 0 });
        assert!((700_000..800_000).contains(&at), "{at}");
        assert_eq!(links.next_ready(0, 0b01, |_| 5 * MS), 5 * MS);
    }

    #[test]
    fn a_link_without_a_rate_is_never_ready_though_it_has_credit() {
        let mut links = paced(&[0, 1_000_000]);
        links.spent(1, FULL);
        assert_eq!(links.next_ready(0, 0b01, |_| 0), Nanos::MAX);
        assert!(links.next_ready(0, 0b11, |_| 0) > 0);
    }

    proptest! {
        /// Whatever links and NICs have, nothing is picked before the time that was said, and
        /// something is picked at that time.
        #[test]
        fn a_link_is_picked_at_the_time_that_was_said(
            rates in prop::collection::vec(
                prop_oneof![Just(0u64), 1_000_000u64..10_000_000_000],
                1..5,
            ),
            debts in prop::collection::vec((0usize..100_000, 0..2 * MS), 5),
        ) {
            let mut links = paced(&rates);
            for (link, (bytes, _)) in (0..rates.len()).zip(&debts) {
                links.spent(link as u8, *bytes);
            }
            let usable = (1u64 << rates.len()) - 1;
            let nic_at = |link: u8| debts[usize::from(link)].1;
            let at = links.next_ready(0, usable, nic_at);
            if at > 0 {
                prop_assert_eq!(
                    links.pick(at.min(1_000 * MS) - 1, FULL, usable, |link| nic_at(link)
                        < at.min(1_000 * MS)),
                    None
                );
            }
            if at < Nanos::MAX {
                prop_assert!(links.pick(at, FULL, usable, |link| nic_at(link) <= at).is_some());
            }
        }

        /// While frames wait, every link carries its whole rate, in bursts no longer than the
        /// depth.
        #[test]
        fn every_link_carries_its_rate(
            rates in prop::collection::vec(1_000_000u64..10_000_000_000, 1..5),
            late in 0u64..150_000,
        ) {
            let mut links = paced(&rates);
            let usable = (1u64 << rates.len()) - 1;
            let mut carried = vec![0u64; rates.len()];
            let (mut now, until) = (0, 20 * MS);
            while now <= until {
                let mut burst = vec![0u64; rates.len()];
                while let Some(link) = links.pick(now, FULL, usable, |_| true) {
                    links.spent(link, FULL);
                    carried[usize::from(link)] += FULL as u64;
                    burst[usize::from(link)] += FULL as u64;
                }
                for (link, &rate) in rates.iter().enumerate() {
                    prop_assert!(burst[link] <= depth(rate / 8, FULL as u64) + FULL as u64);
                }
                now = links.next_ready(now, usable, |_| now) + late;
            }
            for (link, &rate) in rates.iter().enumerate() {
                let earned = rate as f64 / 8.0 * 0.02;
                let slack = (depth(rate / 8, FULL as u64) + FULL as u64) as f64;
                prop_assert!(
                    (carried[link] as f64 - earned).abs() <= slack + 1.0,
                    "{carried:?} {rates:?}"
                );
            }
        }
    }
}
