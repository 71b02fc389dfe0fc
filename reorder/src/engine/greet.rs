// SPDX-License-Identifier: Apache-2.0
//! Without a controller: greetings on every NIC tell who is there, and by which NICs.

use super::link::{Configured, Link};
use super::{Engine, IDLE_NS, MAX_PEERS, MS};
use crate::driver::{Out, Sink};
use crate::seq::Seq;
use crate::wire::{Heartbeat, Mac, MAX_NICS, NO_LIMIT};
use crate::Nanos;

/// The most hosts that greeted and did nothing else yet. Each costs time in every turn.
const MAX_STRANGERS: usize = 32;
/// New hosts that are looked at in a second.
pub(super) const NEWCOMERS_PER_S: u64 = 1_000;
/// New hosts that are looked at in a burst.
pub(super) const NEWCOMERS: u64 = 64;

impl Engine {
    /// Greets everybody on every NIC when that is due, and forgets peers that were silent for long.
    pub(super) fn greet(&mut self, now: Nanos, out: &mut dyn Sink) {
        if now < self.greet_at || self.ended {
            return;
        }
        self.greet_at = now + IDLE_NS;
        self.forget_silent(now);
        let Some(own) = self.own else { return };
        let ports: Vec<u8> = self.nics.keys().copied().collect();
        for port in ports {
            self.greet_by(now, own, port, Mac::BROADCAST, out);
        }
        self.greetings = self.greetings.wrapping_add(1);
    }

    /// Greets somebody, or everybody, on one NIC.
    fn greet_by(&mut self, now: Nanos, own: Mac, port: u8, dst: Mac, out: &mut dyn Sink) {
        let Some((position, (_, nic))) =
            self.nics.iter().enumerate().find(|(_, (known, _))| **known == port)
        else {
            return;
        };
        let greeting = Heartbeat {
            dst,
            src: nic.mac,
            link: None,
            session: ((self.settings.seed >> 32) as u32).max(1),
            seq: Seq(self.greetings),
            time_us: (now / 1000) as u32,
            next_within_ms: (IDLE_NS / MS) as u16,
            cnt: position as u16,
            limit_kbps: nic.rate_kbps,
            own,
            ..Heartbeat::default()
        };
        let mut frame = out.recycle();
        greeting.encode(&mut frame);
        self.counters.heartbeats_out += 1;
        self.nic_buckets.spent(port, frame.len() + self.settings.overhead);
        out.wire(Out::Nic(port), frame);
    }

    /// Whether to look at one more host that is not known.
    ///
    /// Anybody can send greetings, from as many addresses as he likes. So only a number of new
    /// hosts is looked at in a second, and only a number of strangers is kept. The stranger that
    /// was met first makes room: a host that is really there answers within milliseconds, and is no
    /// stranger then.
    fn admits(&mut self, now: Nanos) -> bool {
        self.newcomers.refill(now);
        if !self.newcomers.has_credit() || self.peers.len() >= MAX_PEERS {
            return false;
        }
        self.newcomers.spend(1);
        let strangers = self.peers.iter().filter(|peer| peer.session.remote() == 0);
        if strangers.clone().count() >= MAX_STRANGERS {
            if let Some(first) =
                strangers.min_by_key(|peer| peer.liveness.met_ns()).map(|peer| peer.mac)
            {
                self.remove_peer(first);
            }
        }
        true
    }

    /// A greeting arrived by NIC `port`: there is a link between that NIC and the greeter's.
    pub(super) fn greeted(&mut self, now: Nanos, port: u8, beat: &Heartbeat, out: &mut dyn Sink) {
        let Some(own) = self.own else { return };
        let own_position = self.nics.keys().position(|known| *known == port);
        let own_position = own_position.and_then(|at| u8::try_from(at).ok());
        let positions = own_position.zip(u8::try_from(beat.cnt).ok());
        let Some((own_position, remote_position)) =
            positions.filter(|(own, remote)| own.max(remote) < &MAX_NICS)
        else {
            self.counters.bad_link += 1;
            return;
        };
        if beat.src == Mac::NONE || beat.src.is_multicast() {
            // An answer would go to many hosts.
            self.counters.bad_mac += 1;
            return;
        }
        if beat.own == own {
            return; // our own, on another of our NICs
        }
        let number = match self.peer_of(beat.own) {
            Some(number) => number,
            None if !self.admits(now) => {
                self.counters.too_many_peers += 1;
                return;
            }
            None => {
                // A host that knows us can answer at once then, before other strangers take its
                // place.
                self.greet_by(now, own, port, beat.src, out);
                self.add_peer(now, beat.own)
            }
        };
        let link_number = if own < beat.own {
            MAX_NICS * own_position + remote_position
        } else {
            MAX_NICS * remote_position + own_position
        };
        self.peers[number].liveness.silent_from(now);
        let own_kbps = self.nics.get(&port).map_or(NO_LIMIT, |nic| nic.rate_kbps);
        let (src, limit_kbps) = (beat.src, beat.limit_kbps);
        let link = self.peers[number].link_mut(link_number);
        if link.is_some_and(|link| !link.believes(now, src, limit_kbps, own_kbps)) {
            self.counters.doubted += 1;
            return;
        }
        let known = self.peers[number].link(link_number);
        let known = known.map(|link| (link.peer_nic, link.configured.limit_kbps));
        if let Some((old, _)) = known.filter(|known| known.0 != beat.src) {
            self.addressing.release(old, number);
        }
        // This is done every time: who claimed the NIC in between, by mistake or not, loses it.
        self.addressing.claim(beat.src, number);
        if known == Some((beat.src, beat.limit_kbps)) {
            return;
        }
        let rate_kbps = own_kbps.min(beat.limit_kbps);
        let mut links: Vec<Link> = self.peers[number].links.clone();
        links.retain(|old| old.number != link_number);
        let configured = Configured {
            rate_kbps,
            limit_kbps: beat.limit_kbps,
            weight: first_weight(rate_kbps, &links),
        };
        let mut link = Link::new(link_number, port, remote_position, configured);
        link.peer_nic = beat.src;
        links.push(link);
        self.set_links(now, number, links);
    }
}

/// The weight of a new link until the next HBSPAN: its weight is to those of the `others` as its
/// rate is to theirs. As long as no weights were computed (they have another unit), that is the
/// rate itself.
fn first_weight(rate_kbps: u32, others: &[Link]) -> u32 {
    let sum = |of: fn(&Configured) -> u32| {
        others.iter().map(|link| u128::from(of(&link.configured))).sum::<u128>()
    };
    let (rates, weights) =
        (sum(|configured| configured.rate_kbps), sum(|configured| configured.weight));
    if rates == 0 || weights == 0 {
        return rate_kbps;
    }
    u32::try_from(u128::from(rate_kbps) * weights / rates).unwrap_or(u32::MAX)
}
