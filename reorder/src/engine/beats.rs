//! Heartbeats: who lives, whose session counts, what is granted.

use std::collections::BTreeMap;

use super::peer::Candidate;
use super::{Engine, ACTIVE_NS, BEATS_AFTER, FAST_NS, IDLE_NS, MS};
use crate::belief::Newer;
use crate::driver::{Out, Sink};
use crate::engine::peer::Peer;
use crate::seq::Seq;
use crate::wire::heartbeat::{Echo, Heartbeat, ACTIVE, HOLD, REPLY};
use crate::wire::{Mac, NO_LIMIT};
use crate::Nanos;

/// A new session must be alone for so long: the old one, asked to answer, did not.
const PROBATION_NS: Nanos = 20 * MS;
/// How long frames that waited for credit mean that there are more.
const SHORT_NS: Nanos = 5 * MS;

/// What the heartbeats of one peer say on all of its links.
struct Round<'a> {
    next_ns: Nanos,
    active: bool,
    reply: bool,
    /// Peers that sent data lately, by NIC.
    senders: &'a BTreeMap<u8, u16>,
}

impl Engine {
    /// How often the peer promises something on some link of its; links that were silent before are
    /// measured by it.
    pub(super) fn their_interval(&self, peer: &Peer) -> Nanos {
        peer.links
            .iter()
            .filter(|link| link.hears)
            .map(|link| link.interval_ns)
            .min()
            .unwrap_or(IDLE_NS)
    }

    /// Find links that fell silent.
    pub(super) fn check_links(&mut self, now: Nanos, number: usize) {
        let interval_ns = self.their_interval(&self.peers[number]);
        let peer = &mut self.peers[number];
        peer.quiet = peer.is_quiet(now, interval_ns);
        if peer.usable() != 0 && !peer.quiet {
            peer.usable_ns = now;
        }
        if !peer.again.is_empty() && !peer.is_reachable(now) {
            // It is gone for good, or has another session when it is back, or is not to be striped
            // to: what waits to be repeated would wait for ever, and count as traffic.
            peer.forget_repeats();
        }
        if peer.ask_at.is_some_and(|at| at <= now) {
            // The old session was silent for the time it had: let the new one speak again.
            peer.ask_at = None;
            peer.candidate =
                peer.candidate.filter(|candidate| peer.theirs_heard <= candidate.since);
            if peer.candidate.is_some() {
                peer.beat_now = true;
                peer.ask_reply = true;
            }
        }
        let mut died = false;
        for at in 0..peer.links.len() {
            let dies_at = peer.dies_at(&peer.links[at], interval_ns);
            let link = &mut peer.links[at];
            if link.dies(now, dies_at) {
                self.counters.link_deaths += 1;
                peer.reorder.link_gone(link.number);
                died = true;
            }
        }
        if died {
            peer.beat_now = true;
            peer.gap_at = Some(now);
            if peer.heard() == 0 {
                peer.silent_since = now;
            }
            self.tell_granter(number);
            self.set_rates(now, number);
        }
    }

    /// Send the heartbeats that are due.
    pub(super) fn send_beats(&mut self, now: Nanos, out: &mut dyn Sink) {
        // Once for all peers whose heartbeats are due, as it looks at all peers.
        let mut senders = None;
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            let active = peer.is_active(now, ACTIVE_NS);
            if active {
                peer.beats_left = BEATS_AFTER;
            }
            if !peer.beat_now && now < peer.beat_at {
                continue;
            }
            let fast = active || peer.beats_left > 0;
            if !active {
                peer.beats_left = peer.beats_left.saturating_sub(1);
            }
            let next_ns = if fast { FAST_NS } else { IDLE_NS };
            peer.beat_at = now + next_ns;
            peer.beat_ns = now;
            peer.beat_now = false;
            let reply = std::mem::take(&mut peer.ask_reply);
            let senders = senders.get_or_insert_with(|| self.senders_by_nic());
            self.beat(now, number, &Round { next_ns, active, reply, senders }, out);
        }
    }

    fn beat(&mut self, now: Nanos, number: usize, round: &Round<'_>, out: &mut dyn Sink) {
        let Some(own) = self.own else { return };
        let &Round { next_ns, active, reply, senders } = round;
        let hold = self.ended;
        let demand_kbps = self.demand_kbps(now, number);
        let arrive_total: u64 = self.nics.values().map(|nic| nic.arrived.1).sum();
        let peer = &mut self.peers[number];
        let heard = peer.heard();
        let waiting = !peer.queue.is_empty();
        for at in 0..peer.links.len() {
            let link = &mut peer.links[at];
            let nic = self.nics.get(&link.own_port);
            let own_kbps = nic.map_or(u32::MAX, |nic| nic.rate_kbps);
            let echo = link.their_time.map(|(time_us, came)| Echo {
                time_us,
                age_us: (now.saturating_sub(came) / 1000).min(u64::from(NO_LIMIT) - 1) as u32,
            });
            let granted = self.granter.grant(peer.mac, link.number);
            let arrive =
                peer.arrived.iter().find(|entry| entry.0 == link.number).map_or(0, |entry| entry.2);
            let beat = Heartbeat {
                dst: if self.settings.autonomous { link.peer_nic } else { peer.mac },
                src: if self.settings.autonomous { nic.map_or(own, |nic| nic.mac) } else { own },
                flags: u8::from(reply) * REPLY
                    + u8::from(active || waiting) * ACTIVE
                    + u8::from(hold) * HOLD,
                link: Some(link.number),
                session: peer.session,
                peer_session: peer.theirs,
                seq: peer.next_heartbeat,
                time_us: (now / 1000) as u32,
                echo,
                next_within_ms: (next_ns / MS) as u16,
                cnt: senders.get(&link.own_port).copied().unwrap_or(0),
                hears: heard,
                next: peer.next,
                link_next: link.next_sequence,
                expected: peer.reorder.next(),
                arrive_kb: kilobytes(arrive),
                path_total_kb: kilobytes(nic.map_or(0, |nic| nic.arrived.1)),
                arrive_total_kb: kilobytes(arrive_total),
                grant_kbps: granted.map_or(NO_LIMIT, |bps| (bps / 1e3).clamp(1.0, 4e9) as u32),
                limit_kbps: own_kbps.min(link.told.limit_kbps),
                demand_kbps,
                frames_in: link.come_frames as u32,
                link_expected: link.sequence.next().unwrap_or_default(),
                own,
                peer: peer.mac,
            };
            peer.next_heartbeat = peer.next_heartbeat.next();
            let mut frame = out.recycle();
            beat.encode(&mut frame);
            // On a slow link they are a percent of the rate, which must not be sent on top of it.
            let bytes = frame.len() + self.settings.overhead;
            peer.paced.spent(link.number, bytes);
            self.nic_buckets.spent(link.own_port, bytes);
            out.wire(Out::Link(link.number, link.own_port), frame);
            self.counters.heartbeats_out += 1;
        }
    }

    /// Peers that sent data lately, by the NIC it came in by: RI2N+'s counts.
    fn senders_by_nic(&self) -> BTreeMap<u8, u16> {
        let mut counts = BTreeMap::new();
        for peer in &self.peers {
            for link in &peer.links {
                if peer.arrived.iter().any(|entry| entry.0 == link.number && entry.1 + entry.2 > 0)
                {
                    *counts.entry(link.own_port).or_insert(0u16) += 1;
                }
            }
        }
        counts
    }

    /// kbit/s that the host would send to a peer; `u32::MAX` when frames waited for credit lately.
    pub(super) fn demand_kbps(&mut self, now: Nanos, number: usize) -> u32 {
        let peer = &mut self.peers[number];
        let short = peer.short_ns.is_some_and(|at| now.saturating_sub(at) < SHORT_NS);
        if short || !peer.queue.is_empty() {
            return u32::MAX;
        }
        (peer.offered.rate_bps(now) / 1e3).min(4e9) as u32
    }

    /// A heartbeat of a peer came in by NIC `nic`.
    pub(super) fn take_beat(&mut self, now: Nanos, nic: u8, beat: &Heartbeat, out: &mut dyn Sink) {
        self.counters.heartbeats_in += 1;
        let Some(link_number) = beat.link else {
            if self.settings.autonomous {
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
        if !self.is_theirs(now, number, beat) {
            return;
        }
        self.take_own_beat(now, number, link_number, beat, out);
    }

    /// Whether a heartbeat is of the peer's current session, which it may make the current one.
    fn is_theirs(&mut self, now: Nanos, number: usize, beat: &Heartbeat) -> bool {
        let peer = &mut self.peers[number];
        if peer.theirs == beat.session {
            peer.theirs_heard = now;
            peer.candidate = None;
            return true;
        }
        if beat.peer_session != 0 && beat.peer_session != peer.session {
            // To a process before this one: it will learn of us, and then greet anew.
            self.counters.unknown_session += 1;
            peer.answer(now);
            return false;
        }
        if peer.theirs == 0 {
            self.begin(now, number, beat);
            return true;
        }
        match peer.candidate {
            Some(candidate) if candidate.session == beat.session => {
                if now.saturating_sub(candidate.since) < PROBATION_NS {
                    self.counters.unknown_session += 1;
                    return false;
                }
                self.counters.restarts += 1;
                self.begin(now, number, beat);
                true
            }
            _ => {
                // Replayed, or begun anew? The current session, if it lives, answers at once.
                self.counters.unknown_session += 1;
                peer.candidate = Some(Candidate { session: beat.session, since: now });
                peer.ask_at = Some(now + PROBATION_NS);
                peer.answer(now);
                peer.ask_reply = true;
                false
            }
        }
    }

    /// A session of the peer begins.
    fn begin(&mut self, now: Nanos, number: usize, beat: &Heartbeat) {
        let peer = &mut self.peers[number];
        peer.theirs = beat.session;
        peer.theirs_heard = now;
        peer.candidate = None;
        peer.knows_us = false;
        peer.holds = false;
        peer.reorder.start(beat.next);
        peer.forget_repeats();
        peer.gap_at = None;
        peer.broadcasts = Default::default();
        peer.position = Default::default();
        peer.doubted.clear();
        peer.beat_now = true;
        peer.ask_reply = true;
        peer.links.iter_mut().for_each(super::link::Link::peer_restarted);
    }

    fn take_own_beat(
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
                // Whatever it says otherwise: the link lives.
                self.counters.doubted += 1;
                peer.hear(now, link_number);
                return;
            }
            Newer::No => {
                self.counters.old_heartbeats += 1;
                return;
            }
        }
        if self.settings.autonomous && link.peer_nic == beat.src {
            self.by_nic.insert(beat.src, number); // somebody may have claimed it in a greeting
        }
        let peer = &mut self.peers[number];
        let arose = peer.hear(now, link_number);
        for link in &mut peer.links {
            link.heard_by_peer = link.hears && beat.hears & link.bit() != 0;
        }
        if self.their_fast(number, beat) {
            self.peers[number].fast_since = now;
        }
        let peer = &mut self.peers[number];
        peer.holds = beat.flags & HOLD != 0;
        peer.knows_us = beat.peer_session == peer.session;
        if peer.knows_us {
            peer.gone = false;
            peer.ring.ack(beat.expected);
        }
        if peer.position.heartbeat(now, peer.reorder.end(), link_number, beat.next) {
            peer.reorder.newer(now, link_number, beat.next);
        } else {
            self.counters.doubted += 1;
        }
        peer.gap_at = Some(now);
        if beat.flags & REPLY != 0 || !peer.knows_us && beat.peer_session != 0 {
            peer.answer(now); // it may have been told of another session of ours, by mistake
        }
        if arose || (!peer.knows_us && beat.peer_session == 0) || peer.usable() != was_usable {
            peer.beat_now = true;
        }
        let demand = if beat.demand_kbps == u32::MAX {
            f64::INFINITY
        } else {
            f64::from(beat.demand_kbps) * 1e3
        };
        let mac = peer.mac;
        self.grants_now |= self.granter.demand(now, mac, demand);
        if arose || limit_changed {
            self.tell_granter(number);
        }
        self.set_rates(now, number);
        self.settle_doubts(now, number, out);
        if was_reachable && !self.peers[number].is_reachable(now) {
            self.strand(number, out);
        }
    }

    /// The peer's heartbeats come faster from now on, so that silent links must show themselves.
    fn their_fast(&self, number: usize, beat: &Heartbeat) -> bool {
        let interval = Nanos::from(beat.next_within_ms.max(1)) * MS;
        let peer = &self.peers[number];
        peer.links
            .iter()
            .filter(|link| link.hears && Some(link.number) != beat.link)
            .all(|link| link.interval_ns > interval)
    }

    /// Peers that nobody heard for long are forgotten (without a controller).
    pub(super) fn forget_silent(&mut self, now: Nanos) {
        let gone: Vec<Mac> = self
            .peers
            .iter()
            .filter(|peer| {
                peer.heard() == 0 && now.saturating_sub(peer.silent_since) > 10 * IDLE_NS
            })
            .map(|peer| peer.mac)
            .collect();
        for mac in gone {
            self.remove_peer(mac);
        }
    }

    /// Sequence that a peer expects next, for tests.
    pub fn expected_of(&self, mac: Mac) -> Option<Seq> {
        self.peer_of(mac).map(|number| self.peers[number].reorder.next())
    }
}

fn kilobytes(bytes: u64) -> u32 {
    (bytes / 1000).min(u64::from(u32::MAX)) as u32
}
