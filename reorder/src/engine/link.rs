// SPDX-License-Identifier: Apache-2.0
//! One link of a pair of hosts, as this host sees it: what was sent, what arrived, who hears whom.

use super::MS;
use crate::belief::{Counted, Newer, Rising};
use crate::seq::Seq;
use crate::wire::{Heartbeat, Mac, NO_LIMIT};
use crate::Nanos;

/// Two heartbeats may be missing. When the third one is missing, too, the link is silent.
const MISSED: u64 = 3;
/// How long greetings have to contradict what is known of a working link. They come every second,
/// so this is two of them after the first.
const INSISTS_NS: Nanos = 1_500 * MS;
/// How long a link whose peer is silent on all links counts as late and not as dead: a process may
/// get no CPU for so long.
const LATE_NS: Nanos = 200 * MS;
/// How much of the difference between the ways of two links counts, at most.
const MAX_SKEW_NS: Nanos = 50 * MS;
/// Rounds of heartbeats that the peer has to send over other links before a link without any of
/// them is dead.
const ROUNDS: u32 = 3;
/// One part in this many of a new time goes into the smoothed one.
const SMOOTH: i64 = 8;

/// A link: a pair of NICs, one of each host. Its number is the same in both directions.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Its number, 0 to 63.
    pub(super) number: u8,
    /// Port number of this host's NIC.
    pub(super) own_port: u8,
    /// Port number of the peer's NIC.
    pub(super) peer_port: u8,
    /// MAC of the peer's NIC; only used without a bridge.
    pub(super) peer_nic: Mac,
    /// What greetings say of the peer's end in contradiction to what is known.
    claimed: Option<Claimed>,
    /// What the controller wants, or what a greeting said.
    pub(super) configured: Configured,

    /// Link sequence of the next data frame.
    pub(super) next_sequence: Seq,
    /// Data frames that were sent.
    pub(super) sent_frames: u64,
    /// Frames of those that were sent before.
    pub(super) repeated: u64,
    /// Data frames that arrived at the peer by this link, in all of our session.
    pub(super) arrived_frames: u32,
    /// The peer says that it hears us here.
    pub(super) heard_by_peer: bool,
    /// What the peer grants, in kbit/s; none before it has said so.
    grant_kbps: Option<u32>,

    /// What the peer may send here at most, as far as it knows, in kbit/s.
    pub(super) limit_kbps: u32,
    /// When something last arrived.
    heard_ns: Option<Nanos>,
    /// The peer's round in which something last arrived.
    round: u32,
    /// When the first round after that one began, as another link says.
    missed_since: Option<Nanos>,
    /// How often the peer promises to say something here.
    pub(super) interval_ns: Nanos,
    /// This host's NIC has carrier.
    pub(super) own_up: bool,
    /// Something arrived within three intervals, or the peer is excused.
    pub(super) hears: bool,
    /// Data frames that arrived.
    pub(super) received_frames: u64,
    /// The peer's link sequences: which arrived, and which were left out.
    pub(super) sequence: Counted,
    /// Data frames that were lost: gaps in the link sequence.
    pub(super) lost: u64,

    /// Sequences of the peer's heartbeats.
    heartbeats: Rising,
    /// The peer's clock in its newest heartbeat (us), and when that arrived.
    pub(super) remote_time: Option<(u32, Nanos)>,
    /// The smoothed round-trip time.
    pub(super) round_trip_ns: Option<Nanos>,
    /// The time from the peer to here plus the difference of the two clocks, in us, smoothed. Only
    /// differences between links mean something.
    pub(super) way_us: Option<i64>,
    /// Mean deviation of that from `way_us`.
    way_var_us: i64,
    /// What the peer says for RI2N+ and RI2N++.
    pub(super) remote_counts: RemoteCounts,
}

/// What greetings say of the peer's end of a link.
#[derive(Debug, Clone, Copy)]
struct Claimed {
    nic: Mac,
    limit_kbps: u32,
    /// Since when they say so.
    since_ns: Nanos,
}

/// How a link is configured: by the controller, or by greetings where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Configured {
    /// The rate to begin with, in kbit/s.
    pub(super) rate_kbps: u32,
    /// Never send more, in kbit/s; `NO_LIMIT` if there is no such limit.
    pub(super) limit_kbps: u32,
    /// The link's weight; in parts of 1,000,000 if a controller gave it.
    pub(super) weight: u32,
}

/// The heartbeat's fields for RI2N+ and RI2N++, as the peer sent them (docs/wire-format.md: `cnt`,
/// `arrive`, `path_total`, `arrive_total`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RemoteCounts {
    /// Hosts whose traffic arrives at the peer by the NIC of this link.
    pub(super) peers: u16,
    /// kB of ours that arrived by this link.
    pub(super) arrive_kb: u32,
    /// kB from all hosts that arrived by the NIC of this link.
    pub(super) path_total_kb: u32,
    /// kB from all hosts that arrived by all NICs.
    pub(super) arrive_total_kb: u32,
}

impl Link {
    /// A link on which nothing was heard yet.
    pub(super) fn new(number: u8, own_port: u8, peer_port: u8, configured: Configured) -> Self {
        Link {
            number,
            own_port,
            peer_port,
            peer_nic: Mac::default(),
            claimed: None,
            configured,
            next_sequence: Seq(0),
            sent_frames: 0,
            repeated: 0,
            arrived_frames: 0,
            heard_by_peer: false,
            grant_kbps: None,
            limit_kbps: NO_LIMIT,
            heard_ns: None,
            round: 0,
            missed_since: None,
            interval_ns: 1000 * MS,
            own_up: true,
            hears: false,
            received_frames: 0,
            sequence: Counted::default(),
            lost: 0,
            heartbeats: Rising::default(),
            remote_time: None,
            round_trip_ns: None,
            way_us: None,
            way_var_us: 0,
            remote_counts: RemoteCounts::default(),
        }
    }

    /// Its bit in a set of links.
    pub(super) fn bit(&self) -> u64 {
        1 << self.number
    }

    /// Something arrived, in the peer's `round`; true if the link was not heard before.
    pub(super) fn heard(&mut self, now: Nanos, round: u32) -> bool {
        self.heard_ns = Some(now);
        self.round = round;
        self.missed_since = None;
        !std::mem::replace(&mut self.hears, true)
    }

    /// The peer began a round, and said so on another link.
    pub(super) fn is_missed(&mut self, now: Nanos) {
        self.missed_since.get_or_insert(now);
    }

    /// This process had no CPU for `late_ns` until `now`: silence in that time was its own.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        let later = |at: Nanos| at.saturating_add(late_ns).min(now);
        self.heard_ns = self.heard_ns.map(later);
        self.missed_since = self.missed_since.map(later);
    }

    /// From when on silence means more than one or two missing heartbeats. These are at most
    /// `interval_ns` apart since `since`.
    ///
    /// A link whose heartbeats come irregularly has more time, four times their mean deviation, as
    /// a retransmission timer does it.
    pub(super) fn silent_at(&self, since: Nanos, interval_ns: Nanos) -> Option<Nanos> {
        let heard = self.heard_ns.filter(|_| self.hears)?;
        let slow = heard.saturating_add(MISSED * self.interval_ns);
        let fast = heard.saturating_add(MISSED * interval_ns.min(self.interval_ns));
        // A shorter interval counts from the moment at which it became known.
        let silent = fast.max(since.saturating_add(MISSED * interval_ns).min(slow));
        Some(silent.saturating_add((4000 * self.way_var_us.unsigned_abs()).min(LATE_NS)))
    }

    /// When the link counts as dead unless something arrives. The peer is in `round`, and the way
    /// of its fastest link takes `fastest_us` (in the terms of `way_us`).
    ///
    /// A peer that is silent on all links is late, or gone, and nothing can be said about its
    /// links. A peer that speaks on other links has sent its heartbeats over all of them, so here
    /// they can be late by no more than the difference of the ways.
    pub(super) fn dies_at(
        &self,
        since: Nanos,
        interval_ns: Nanos,
        round: u32,
        fastest_us: i64,
    ) -> Option<Nanos> {
        let silent = self.silent_at(since, interval_ns)?;
        let missed = self.missed_since.filter(|_| round.wrapping_sub(self.round) >= ROUNDS);
        let Some(missed) = missed else { return Some(silent.saturating_add(LATE_NS)) };
        let skew_us = self.way_us.map_or(0, |way| way - fastest_us).max(0).unsigned_abs();
        let all =
            (MISSED - 1) * interval_ns.min(self.interval_ns) + (1000 * skew_us).min(MAX_SKEW_NS);
        Some(silent.max(missed.saturating_add(all)))
    }

    /// Whether the time that `dies_at` gave is over. The link is dead then.
    pub(super) fn dies(&mut self, now: Nanos, at: Option<Nanos>) -> bool {
        if at.is_none_or(|at| now < at) {
            return false;
        }
        self.hears = false;
        self.heard_by_peer = false;
        true
    }

    /// Whether to believe a greeting that names another NIC or limit (kbit/s) of the peer's end.
    ///
    /// Anybody can send a greeting. On a dead link it is believed at once. On a link that works it
    /// is believed when the link's heartbeats say the same, or when greetings have said nothing
    /// else for a while.
    pub(super) fn believes(
        &mut self,
        now: Nanos,
        nic: Mac,
        limit_kbps: u32,
        own_kbps: u32,
    ) -> bool {
        if (nic, limit_kbps) == (self.peer_nic, self.configured.limit_kbps) {
            self.claimed = None;
            return true;
        }
        let same = self.claimed.filter(|old| (old.nic, old.limit_kbps) == (nic, limit_kbps));
        let since_ns = same.map_or(now, |old| old.since_ns);
        self.claimed = Some(Claimed { nic, limit_kbps, since_ns });
        let confirmed = nic == self.peer_nic && self.limit_kbps == limit_kbps.min(own_kbps);
        !self.hears || confirmed || now.saturating_sub(since_ns) >= INSISTS_NS
    }

    /// Counts a data frame that arrived. Returns how many frames before it are now known to be
    /// lost.
    pub(super) fn received(&mut self, now: Nanos, link_sequence: Seq) -> u32 {
        self.received_frames += 1;
        let lost = self.sequence.received(now, link_sequence);
        self.lost += u64::from(lost);
        lost
    }

    /// Takes what a heartbeat says of the link's liveness and clocks, if it is newer than the last
    /// one. `timely`: it did not wait for this process, so the time that it took can be measured.
    pub(super) fn heartbeat(&mut self, now: Nanos, beat: &Heartbeat, timely: bool) -> Newer {
        let newer = self.heartbeats.take(now, beat.seq, !self.hears);
        if newer != Newer::Yes {
            return newer;
        }
        self.lost += u64::from(self.sequence.announced(now, beat.link_next));
        self.interval_ns = Nanos::from(beat.next_within_ms.max(1)) * MS;
        self.remote_time = Some((beat.time_us, now));
        if timely {
            self.measure_way(i64::from((now / 1000) as u32) - i64::from(beat.time_us));
        }
        if let Some(echo) = beat.echo.filter(|_| timely) {
            let back = (now / 1000) as u32;
            let trip_us = i64::from(back.wrapping_sub(echo.time_us)) - i64::from(echo.age_us);
            if (0..10_000_000).contains(&trip_us) {
                let trip = trip_us as Nanos * 1000;
                self.round_trip_ns = Some(match self.round_trip_ns {
                    Some(old) => (old * (SMOOTH as u64 - 1) + trip) / SMOOTH as u64,
                    None => trip,
                });
            }
        }
        self.arrived_frames = beat.frames_in;
        self.limit_kbps = beat.limit_kbps;
        self.grant_kbps = (beat.grant_kbps != NO_LIMIT).then_some(beat.grant_kbps);
        self.remote_counts = RemoteCounts {
            peers: beat.cnt,
            arrive_kb: beat.arrive_kb,
            path_total_kb: beat.path_total_kb,
            arrive_total_kb: beat.arrive_total_kb,
        };
        Newer::Yes
    }

    /// The sequence of the newest heartbeat that was believed.
    pub(super) fn newest_heartbeat(&self) -> Option<Seq> {
        self.heartbeats.newest()
    }

    fn measure_way(&mut self, way_us: i64) {
        let old = self.way_us.filter(|old| (way_us - old).abs() < 1_000_000);
        let Some(old) = old else {
            // It is the first, or one of the two 32-bit clocks wrapped round, or one was set.
            self.way_us = Some(way_us);
            return;
        };
        self.way_var_us += ((way_us - old).abs() - self.way_var_us) / 4;
        self.way_us = Some(old + (way_us - old) / SMOOTH);
    }

    /// The peer's helper began anew: what is known of its sending is void.
    pub(super) fn peer_restarted(&mut self) {
        self.heartbeats = Rising::default();
        self.sequence = Counted::default();
        self.remote_time = None;
        self.way_us = None;
        self.way_var_us = 0;
        self.grant_kbps = None;
        self.heard_by_peer = false;
    }

    /// What may be sent here now, in kbit/s: what the peer grants, or what was configured if it has
    /// granted nothing yet; never more than the configured limit.
    pub(super) fn rate_kbps(&self) -> u32 {
        self.grant_kbps.unwrap_or(self.configured.rate_kbps).min(self.configured.limit_kbps)
    }

    /// The clock was set back to `now`; the peer is in `peer_round`. A link that lives counts as
    /// heard now.
    pub(super) fn settle_clock(&mut self, now: Nanos, peer_round: u32) {
        let Self {
            heard_ns,
            round,
            missed_since,
            hears,
            claimed,
            heartbeats: _,  // old claims look new, for once
            sequence: _,    // the same
            remote_time: _, // the next heartbeat replaces it
            number: _,
            own_port: _,
            peer_port: _,
            peer_nic: _,
            configured: _,
            next_sequence: _,
            sent_frames: _,
            repeated: _,
            arrived_frames: _,
            heard_by_peer: _,
            grant_kbps: _,
            limit_kbps: _,
            interval_ns: _,
            own_up: _,
            received_frames: _,
            lost: _,
            round_trip_ns: _,
            way_us: _,
            way_var_us: _,
            remote_counts: _,
        } = self;
        if *hears {
            *heard_ns = Some(now);
            *round = peer_round;
            *missed_since = None;
        }
        if let Some(claimed) = claimed {
            claimed.since_ns = claimed.since_ns.min(now);
        }
    }
}
