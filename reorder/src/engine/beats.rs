// SPDX-License-Identifier: Apache-2.0
//! Heartbeats: which links live, whose session counts, what is granted.

use std::collections::BTreeMap;

use super::channel::in_kbps;
use super::peer::Peer;
use super::schedule::Due;
use super::session::Verdict;
use super::{Engine, ACTIVE_NS, IDLE_NS, MS};
use crate::belief::Newer;
use crate::driver::{Out, Sink};
use crate::seq::Seq;
use crate::wire::channels::{self, Channels, MAX_ENTRIES};
use crate::wire::heartbeat::{Echo, Heartbeat, ACTIVE, HOLD, MAX_ECHO_AGE_US, REPLY};
use crate::wire::{Mac, NO_LIMIT};
use crate::Nanos;

/// Without a controller, a peer of which nothing was heard for this long is forgotten.
const FORGET_NS: Nanos = 10 * IDLE_NS;

impl Engine {
    /// Finds links that fell silent.
    pub(super) fn check_links(&mut self, now: Nanos, number: usize) {
        let peer = &mut self.peers[number];
        let interval_ns = peer.beat_interval_ns();
        peer.look(now, interval_ns);
        if !peer.is_reachable(now) {
            // The peer is gone for good, or has another session when it is back, or nothing is to
            // be striped to it. What is to be repeated would wait for ever, and count as traffic.
            peer.channels.forget_repeats();
        }
        if peer.session.ends_probation(now) {
            peer.beats.send_at_once();
            peer.beats.ask_for_reply();
        }
        let mut died = false;
        for at in 0..peer.links.len() {
            let dies_at = peer.dies_at(&peer.links[at], interval_ns);
            let link = &mut peer.links[at];
            if link.dies(now, dies_at) {
                self.counters.link_deaths += 1;
                peer.channels.link_gone(link.number);
                died = true;
            }
        }
        if died {
            peer.beats.send_at_once();
            peer.channels.iter_mut().for_each(|channel| channel.incoming.look_now(now));
            if peer.heard() == 0 {
                peer.liveness.silent_from(now);
            }
            self.tell_granter(number);
            self.set_rates(now, number);
        }
    }

    /// Sends the heartbeats that are due.
    pub(super) fn send_beats(&mut self, now: Nanos, out: &mut dyn Sink) {
        // Counted at most once in a turn, since all peers are looked at for it.
        let mut senders = None;
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            let active = peer.is_active(now, ACTIVE_NS);
            let Some(due) = peer.beats.take_due(now, active) else { continue };
            let senders = senders.get_or_insert_with(|| self.senders_by_nic());
            self.beat(now, number, due, senders, out);
        }
    }

    /// Sends the heartbeats of one peer over all of its links. `senders`: hosts that sent data
    /// lately, by NIC.
    fn beat(
        &mut self,
        now: Nanos,
        number: usize,
        due: Due,
        senders: &BTreeMap<u8, u16>,
        out: &mut dyn Sink,
    ) {
        let Some(own) = self.own else { return };
        let Due { next_ns, active, reply } = due;
        let hold = self.ended;
        let arrive_total: u64 = self.nics.values().map(|nic| nic.arrived.1).sum();
        let peer = &mut self.peers[number];
        let demand_kbps = in_kbps(peer.channels.classless_mut().demand_bps(now));
        let heard = peer.heard();
        let waiting = peer.channels.iter().any(|channel| !channel.out.queue.is_empty());
        let entries = peer.channels.entries(now, reply || next_ns == IDLE_NS);
        for at in 0..peer.links.len() {
            let link = &mut peer.links[at];
            let nic = self.nics.get(&link.own_port);
            let own_kbps = nic.map_or(NO_LIMIT, |nic| nic.rate_kbps);
            let echo = link.remote_time.map(|(time_us, arrived)| Echo {
                time_us,
                age_us: (now.saturating_sub(arrived) / 1000).min(u64::from(MAX_ECHO_AGE_US)) as u32,
            });
            let granted = self.granter.grant(peer.mac, link.number);
            let (dst, src) = self.addressing.addresses(link, peer.mac, own, &self.nics);
            let beat = Heartbeat {
                dst,
                src,
                flags: u8::from(reply) * REPLY
                    + u8::from(active || waiting) * ACTIVE
                    + u8::from(hold) * HOLD,
                link: Some(link.number),
                session: peer.session.own(),
                peer_session: peer.session.remote(),
                seq: peer.tx.take_heartbeat_sequence(),
                time_us: (now / 1000) as u32,
                echo,
                next_within_ms: (next_ns / MS) as u16,
                cnt: senders.get(&link.own_port).copied().unwrap_or(0),
                hears: heard,
                next: peer.channels.classless().out.next(),
                link_next: link.next_sequence,
                expected: peer.channels.classless().incoming.next(),
                arrive_kb: kilobytes(peer.rx.last_bytes(link.number)),
                path_total_kb: kilobytes(nic.map_or(0, |nic| nic.arrived.1)),
                arrive_total_kb: kilobytes(arrive_total),
                grant_kbps: granted.map_or(NO_LIMIT, |bps| (bps / 1e3).clamp(1.0, 4e9) as u32),
                limit_kbps: own_kbps.min(link.configured.limit_kbps),
                demand_kbps,
                frames_in: link.received_frames as u32,
                link_expected: link.sequence.next().unwrap_or_default(),
                own,
                peer: peer.mac,
            };
            let mut frame = out.recycle();
            beat.encode(&mut frame);
            // On a slow link, heartbeats are a percent of the rate. They are part of it, and not
            // sent on top of it.
            let bytes = frame.len() + self.settings.overhead;
            peer.tx.spend(link.number, bytes);
            self.nic_buckets.spent(link.own_port, bytes);
            out.wire(Out::Link(link.number, link.own_port), frame);
            self.counters.heartbeats_out += 1;
            for part in entries.chunks(MAX_ENTRIES) {
                let mut frame = out.recycle();
                channels::write(dst, src, link.number, beat.session, beat.seq, part, &mut frame);
                let bytes = frame.len() + self.settings.overhead;
                peer.tx.spend(link.number, bytes);
                self.nic_buckets.spent(link.own_port, bytes);
                out.wire(Out::Link(link.number, link.own_port), frame);
                self.counters.channels_out += 1;
            }
        }
    }

    /// Hosts that sent data lately, by the NIC by which it arrived: RI2N+'s counts.
    fn senders_by_nic(&self) -> BTreeMap<u8, u16> {
        let mut counts = BTreeMap::new();
        for peer in &self.peers {
            for link in peer.links.iter().filter(|link| peer.rx.has_traffic(link.number)) {
                *counts.entry(link.own_port).or_insert(0u16) += 1;
            }
        }
        counts
    }

    /// A heartbeat of a peer arrived by NIC `nic`.
    pub(super) fn take_beat(&mut self, now: Nanos, nic: u8, beat: &Heartbeat, out: &mut dyn Sink) {
        self.counters.heartbeats_in += 1;
        let Some(link_number) = beat.link else {
            if self.addressing.greets() {
                self.greeted(now, nic, beat, out);
            } else {
                self.counters.not_ours += 1;
            }
            return;
        };
        let Some(number) = self.peer_of(beat.own) else {
            self.counters.unknown_peer += 1;
            return;
        };
        if self.own.is_some_and(|own| own != beat.peer) {
            self.counters.unknown_peer += 1;
            return;
        }
        if self.peers[number].link(link_number).is_none_or(|link| link.own_port != nic) {
            self.counters.bad_link += 1;
            return;
        }
        if self.is_current(now, number, beat) {
            self.take_current_beat(now, number, link_number, beat, out);
        }
    }

    /// Whether a heartbeat is of the peer's current session, which it may make the current one.
    fn is_current(&mut self, now: Nanos, number: usize, beat: &Heartbeat) -> bool {
        let peer = &mut self.peers[number];
        match peer.session.judge(now, beat.session, beat.peer_session) {
            Verdict::Current => return true,
            Verdict::First => {
                self.begin(now, number, beat);
                return true;
            }
            Verdict::Restarted => {
                self.counters.restarts += 1;
                self.begin(now, number, beat);
                return true;
            }
            // The peer will hear of our session, and greet anew.
            Verdict::ForPredecessor => peer.beats.answer(now),
            Verdict::NewCandidate => {
                peer.beats.answer(now);
                peer.beats.ask_for_reply();
            }
            Verdict::OnProbation => {}
        }
        self.counters.unknown_session += 1;
        false
    }

    /// A session of the peer begins.
    fn begin(&mut self, now: Nanos, number: usize, beat: &Heartbeat) {
        let peer = &mut self.peers[number];
        peer.session.begin(now, beat.session);
        peer.rx.begin();
        peer.channels.begin(beat.next);
        peer.beats.send_at_once();
        peer.beats.ask_for_reply();
        peer.links.iter_mut().for_each(super::link::Link::peer_restarted);
        self.tell_classes(number);
    }

    /// Takes what a heartbeat of the current session says.
    fn take_current_beat(
        &mut self,
        now: Nanos,
        number: usize,
        link_number: u8,
        beat: &Heartbeat,
        out: &mut dyn Sink,
    ) {
        let peer = &mut self.peers[number];
        let was_usable = peer.usable();
        let was_reachable = peer.is_reachable(now);
        let Some(link) = peer.link_mut(link_number) else { return };
        let limit_changed = link.limit_kbps != beat.limit_kbps;
        let timely = now.saturating_sub(self.excused_ns) >= super::LATE_NS;
        match link.heartbeat(now, beat, timely) {
            Newer::Yes => {}
            Newer::Doubted => {
                // Whatever else the heartbeat says, it shows that the link lives.
                self.counters.doubted += 1;
                peer.hear(now, link_number);
                return;
            }
            Newer::No => {
                self.counters.old_heartbeats += 1;
                return;
            }
        }
        if link.peer_nic == beat.src {
            self.addressing.claim(beat.src, number); // a greeting may have said something else
        }
        let arose = peer.hear(now, link_number);
        for link in &mut peer.links {
            link.heard_by_peer = link.hears && beat.hears & link.bit() != 0;
        }
        if speeds_up(peer, beat) {
            peer.liveness.speeds_up(now);
        }
        peer.session.heartbeat(beat.peer_session, beat.flags & HOLD != 0);
        let knows_us = peer.session.known_to_peer();
        if knows_us {
            peer.channels.classless_mut().out.ring.ack(beat.expected);
        }
        if !peer.channels.classless_mut().incoming.heartbeat(now, link_number, beat.next) {
            self.counters.doubted += 1;
        }
        if beat.flags & REPLY != 0 || !knows_us && beat.peer_session != 0 {
            peer.beats.answer(now); // it may have heard of another session of ours, by mistake
        }
        if arose || (!knows_us && beat.peer_session == 0) || peer.usable() != was_usable {
            peer.beats.send_at_once();
        }
        let mac = peer.mac;
        self.grants_now |= self.granter.demand(now, mac, 0, in_bps(beat.demand_kbps));
        if arose || limit_changed {
            self.tell_granter(number);
        }
        self.set_rates(now, number);
        self.settle_doubts(now, number, 0, out);
        if was_reachable && !self.peers[number].is_reachable(now) {
            self.strand(number, out);
        }
    }

    /// What a peer says of its channels arrived by NIC `nic`. It belongs to the newest heartbeat on
    /// that link, or is out of date.
    pub(super) fn take_channels(
        &mut self,
        now: Nanos,
        nic: u8,
        said: &Channels<'_>,
        out: &mut dyn Sink,
    ) {
        self.counters.channels_in += 1;
        let Some(number) = self.addressing.sender(said.src, &self.by_mac) else {
            self.counters.unknown_peer += 1;
            return;
        };
        let peer = &mut self.peers[number];
        if peer.session.remote() != said.session {
            self.counters.unknown_session += 1;
            return;
        }
        let Some(link) = peer.link(said.link).filter(|link| link.own_port == nic) else {
            self.counters.bad_link += 1;
            return;
        };
        if link.newest_heartbeat() != Some(said.beat) {
            self.counters.old_heartbeats += 1;
            return;
        }
        for entry in said.entries.iter() {
            let peer = &mut self.peers[number];
            let Some(place) = peer.channels.place(entry.channel) else {
                self.counters.unknown_channel += 1;
                continue;
            };
            let channel = peer.channels.at(place);
            if channel.tag() != entry.tag {
                self.counters.refused_tag += 1;
                continue;
            }
            let links_change = channel.remote_links() != entry.links;
            let asks = channel.said(&entry);
            if !channel.incoming.heartbeat(now, said.link, entry.next) {
                self.counters.doubted += 1;
            }
            if asks {
                peer.beats.answer(now);
            }
            if entry.channel > 0 {
                let (mac, demand_bps) = (peer.mac, in_bps(entry.demand_kbps));
                self.grants_now |= self.granter.demand(now, mac, entry.channel, demand_bps);
            }
            if links_change {
                self.tell_classes(number);
            }
            self.settle_doubts(now, number, place, out);
        }
    }

    /// Forgets peers of which nothing was heard for long. Only without a controller, which
    /// otherwise says who is gone.
    pub(super) fn forget_silent(&mut self, now: Nanos) {
        let gone: Vec<Mac> = self
            .peers
            .iter()
            .filter(|peer| peer.heard() == 0 && peer.liveness.silent_for(now) > FORGET_NS)
            .map(|peer| peer.mac)
            .collect();
        for mac in gone {
            self.remove_peer(mac);
        }
    }

    /// The sequence that is expected next from a peer; for tests.
    pub fn expected_of(&self, mac: Mac) -> Option<Seq> {
        self.peer_of(mac).map(|number| self.peers[number].channels.classless().incoming.next())
    }
}

/// Whether a peer's heartbeats are more frequent from now on, so that silent links have to show
/// themselves.
fn speeds_up(peer: &Peer, beat: &Heartbeat) -> bool {
    let interval_ns = Nanos::from(beat.next_within_ms.max(1)) * MS;
    peer.links
        .iter()
        .filter(|link| link.hears && Some(link.number) != beat.link)
        .all(|link| link.interval_ns > interval_ns)
}

/// A rate in bit/s; infinite if it is `NO_LIMIT`.
fn in_bps(kbps: u32) -> f64 {
    match kbps {
        NO_LIMIT => f64::INFINITY,
        kbps => f64::from(kbps) * 1e3,
    }
}

fn kilobytes(bytes: u64) -> u32 {
    (bytes / 1000).min(u64::from(u32::MAX)) as u32
}
