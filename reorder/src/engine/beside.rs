// SPDX-License-Identifier: Apache-2.0
//! TCP that goes beside the bridge: which peers it may go to, over which links and how fast, and
//! what it means for grants, heartbeats and what the helper sends itself.

use super::receive::{MAX_SKEW_NS, SKEW_NS};
use super::{Engine, Mode, ACTIVE_NS, MS};
use crate::beside::steering::{Carried, LinkOrder, Steering};
use crate::wire::Mac;
use crate::Nanos;

/// After TCP beside the bridge had to wait, the helper leaves half of a link to it for this long.
const SHORT_NS: Nanos = 5 * MS;

/// What is known of a peer's TCP beside the bridge.
#[derive(Debug, Default)]
pub(super) struct PeerBeside {
    /// The controller says that the peer puts it in order.
    pub(super) wanted: bool,
    /// The programs may stripe it, as they were told in the last turn.
    pub(super) allowed: bool,
    /// When it last had to wait.
    short_ns: Option<Nanos>,
}

impl PeerBeside {
    fn is_short(&self, now: Nanos) -> bool {
        self.short_ns.is_some_and(|at| now.saturating_sub(at) < SHORT_NS)
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self { short_ns, wanted: _, allowed: _ } = self;
        *short_ns = short_ns.map(|at| at.min(now));
    }
}

impl Engine {
    /// Takes what the programs carried since the last turn. Whether that was something.
    pub(super) fn look_beside(&mut self, now: Nanos, steering: &mut Steering) -> bool {
        steering.find_peers();
        self.busy_nics = 0;
        let mut any = false;
        for number in 0..self.peers.len() {
            if let Some(place) = steering.place_of(self.peers[number].mac) {
                any |= self.look_beside_at(now, number, place, steering);
            }
        }
        if any {
            self.busy_nics = steering.busy_nics(now);
        }
        any
    }

    fn look_beside_at(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        steering: &mut Steering,
    ) -> bool {
        let mut sum = Carried::default();
        for at in 0..self.peers[number].links.len() {
            let carried = steering.carried(place, self.peers[number].links[at].number);
            if carried != Carried::default() {
                self.count_beside(number, at, &carried);
                sum.frames_out += carried.frames_out;
                sum.bytes_out += carried.bytes_out;
                sum.frames_in += carried.frames_in;
                sum.bytes_in += carried.bytes_in;
            }
        }
        let peer = &mut self.peers[number];
        let refused = steering.refused(place) > 0;
        if refused || (sum.bytes_out > 0 && steering.waits(now, place)) {
            peer.beside.short_ns = Some(now);
            peer.channels.classless_mut().out.is_short(now);
        }
        let channel = peer.channels.classless_mut();
        channel.carried.frames_out += sum.frames_out;
        channel.carried.bytes_out += sum.bytes_out;
        channel.carried.frames_in += sum.frames_in;
        channel.carried.bytes_in += sum.bytes_in;
        if sum.frames_out > 0 {
            channel.out.sent_beside(now, sum.bytes_out as usize);
        }
        if (sum.frames_out > 0 || refused) && peer.tx.traffic_begins(now) {
            peer.beats.send_at_once();
        }
        if sum.frames_in > 0 {
            if peer.rx.traffic_begins(now) {
                peer.beats.send_at_once();
                peer.liveness.speeds_up(now);
            }
            let added = sum.frames_in.saturating_mul(self.settings.overhead as u64);
            self.granter.arrived(peer.mac, 0, sum.bytes_in.saturating_add(added) as usize);
        }
        sum != Carried::default() || refused
    }

    /// Counts what was carried over the link at place `at` of a peer.
    ///
    /// What came shows nothing of the link's life: whoever sent it said no session. What left uses
    /// up credit, and makes no debt: the programs keep to the rates by themselves, which the
    /// helper's own frames are part of, and these must not wait for TCP that always has more.
    fn count_beside(&mut self, number: usize, at: usize, carried: &Carried) {
        let Carried { frames_out, bytes_out, frames_in, bytes_in } = *carried;
        let peer = &mut self.peers[number];
        let link = &mut peer.links[at];
        link.sent_frames += frames_out;
        link.received_frames += frames_in;
        if bytes_out > 0 {
            let added = frames_out.saturating_mul(self.settings.overhead as u64);
            let bytes = bytes_out.saturating_add(added) as usize;
            peer.tx.spent_beside(link.number, bytes);
            self.nic_buckets.used_up(link.own_port, bytes);
        }
        if bytes_in > 0 {
            peer.rx.count(link.number, bytes_in as usize);
            self.granter.managed(link.own_port, bytes_in as usize);
            if let Some(nic) = self.nics.get_mut(&link.own_port) {
                nic.arrived.0 += bytes_in;
            }
        }
    }

    /// Tells the programs what they may do until the next turn, and what the helper itself sent.
    pub(super) fn steer_beside(&mut self, now: Nanos, steering: &mut Steering) {
        steering.set_nics(now, |port| self.nic_buckets.rate_bps(port));
        for peer in &mut self.peers {
            let place = steering.place_of(peer.mac);
            for link in &peer.links {
                let bytes = peer.tx.take_untold(link.number);
                if bytes > 0 {
                    steering.sent_by(now, link.own_port, bytes);
                    place.into_iter().for_each(|it| steering.sent(now, it, link.number, bytes));
                }
            }
            peer.beside.allowed = false;
            let Some(place) = place.filter(|_| {
                self.mode == Mode::Paced
                    && !self.ended
                    && peer.beside.wanted
                    && peer.session.is_open()
                    && !peer.liveness.is_quiet()
            }) else {
                continue;
            };
            let usable = peer.usable() & peer.channels.classless().links();
            let used = |number: u8| number < 32 && usable & (1 << number) != 0;
            let ways = peer.links.iter().filter(|link| used(link.number));
            let fastest = ways.filter_map(|link| link.way_us).min().unwrap_or(0);
            let orders = peer.links.iter().filter(|link| used(link.number)).map(|link| {
                let skew_us = link.way_us.map_or(0, |way| way - fastest).max(0).unsigned_abs();
                LinkOrder {
                    link: link.number,
                    rate_bps: peer.tx.rate_bps(link.number),
                    skew_ns: (1000 * skew_us).min(MAX_SKEW_NS) as u32,
                    nic: link.own_port,
                }
            });
            let orders: Vec<LinkOrder> = orders.filter(|order| order.rate_bps > 0).collect();
            let active = peer.is_active(now, ACTIVE_NS);
            steering.allow(now, place, &orders, self.settings.overhead, active);
            peer.beside.allowed = !orders.is_empty();
        }
        steering.end_turn();
    }

    /// A frame of `bytes` leaves by the helper. Where TCP beside the bridge waits, the frame costs
    /// twice as much, so that each of the two has half.
    pub(super) fn share_beside(
        &mut self,
        now: Nanos,
        number: usize,
        link: u8,
        port: u8,
        bytes: usize,
    ) {
        let peer = &mut self.peers[number];
        if peer.beside.is_short(now) {
            peer.tx.pay_again(link, bytes);
        }
        if self.busy_nics & 1u64.checked_shl(port.into()).unwrap_or(0) != 0 {
            self.nic_buckets.spent(port, bytes);
        }
    }

    /// A frame left for a peer, and nobody here looked: heartbeats begin.
    pub(super) fn traffic_beside(&mut self, now: Nanos, mac: Mac) {
        let Some(number) = self.peer_of(mac) else { return };
        let peer = &mut self.peers[number];
        if peer.tx.traffic_begins(now) {
            peer.beats.send_at_once();
        }
    }

    /// How long a frame that came beside the bridge may wait for one before it: as long as one that
    /// came to the helper.
    pub(super) fn patience_beside(&self, mac: Mac) -> Nanos {
        let skew_ns = self.peer_of(mac).map_or(0, |number| self.peers[number].skew_ns());
        SKEW_NS.saturating_add(2 * skew_ns).min(MAX_SKEW_NS)
    }
}
