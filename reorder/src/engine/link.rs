//! One link of a pair of hosts, as this host sees it: what was sent, what came in, who hears whom.

use crate::belief::{Counted, Newer, Rising};
use crate::seq::Seq;
use crate::wire::{Heartbeat, Mac, NO_LIMIT};
use crate::Nanos;

/// Heartbeats may be missed twice; the third one's absence is a dead link.
pub const MISSED: u64 = 3;
const MS: Nanos = 1_000_000;
/// A greeting comes every second: this is two of them after the first.
const INSISTS_NS: Nanos = 1_500 * MS;
/// How long a link whose peer is silent altogether counts as late, not as dead: a process may get
/// no CPU for so long.
pub const LATE_NS: Nanos = 200 * MS;
/// How much of the difference of the ways counts, at most.
const SKEW_NS: Nanos = 50 * MS;
/// Rounds of heartbeats that the peer sent over other links, at least, before one that has none of
/// them is dead.
const ROUNDS: u32 = 3;
/// How much of a new round-trip time goes into the smoothed one.
const SMOOTH: i64 = 8;

/// A link: a pair of NICs, one of each host. Its number is the same in both directions.
#[derive(Debug, Clone)]
pub struct Link {
    /// Its number, 0 to 63.
    pub number: u8,
    /// Port number of this host's NIC.
    pub own_port: u8,
    /// Port number of the peer's NIC.
    pub peer_port: u8,
    /// MAC of the peer's NIC; only used without a bridge.
    pub peer_nic: Mac,
    /// What a greeting says of the peer's NIC in contradiction to `peer_nic` and `told`, and since
    /// when.
    claimed: Option<(Mac, u32, Nanos)>,
    /// What the controller wants: rate to begin with, most that may ever be sent (kbit/s), weight.
    pub told: Told,

    /// Link sequence of the next data frame.
    pub next_sequence: Seq,
    /// Data frames and bytes sent.
    pub sent_frames: u64,
    /// Bytes of data frames sent.
    pub sent_bytes: u64,
    /// Frames sent again over this link.
    pub repeated: u64,
    /// Data frames that came in at the peer by this link, in all of our session.
    pub arrived_frames: u32,
    /// The peer says that it hears us here.
    pub heard_by_peer: bool,
    /// What the peer grants, in kbit/s; none before it has said so.
    pub grant_kbps: Option<u32>,

    /// What the peer may send here at most, as far as it knows, in kbit/s.
    pub limit_kbps: u32,
    /// When something last came in.
    heard_ns: Option<Nanos>,
    /// The peer's round in which something last came in, and when its first one after that was
    /// heard on another link.
    round: u32,
    missed_since: Option<Nanos>,
    /// How often the peer promises to say something here.
    pub interval_ns: Nanos,
    /// This host's NIC has carrier.
    pub own_up: bool,
    /// Something came in within three intervals.
    pub hears: bool,
    /// Data frames and bytes that came in.
    pub come_frames: u64,
    /// Bytes of data frames that came in, as on the wire.
    pub come_bytes: u64,
    /// Link sequences of the peer: what came in, and what was left out.
    pub sequence: Counted,
    /// Data frames that did not come in: gaps in the link sequence.
    pub lost: u64,

    /// Numbers of the peer's heartbeats.
    heartbeats: Rising,
    /// The peer's clock in its newest heartbeat (us), and when that came in.
    pub their_time: Option<(u32, Nanos)>,
    /// Smoothed round-trip time.
    pub round_trip_ns: Option<Nanos>,
    /// Difference of the clocks plus the way here, in us, smoothed; only differences between links
    /// mean something.
    pub way_us: Option<i64>,
    /// Mean deviation of the way here from `way_us`.
    way_var_us: i64,
    /// What RI2N's strategies know of the peer's end (SPEC.md: `cnt`, `arrive`, `path_total`,
    /// `arrive_total`).
    pub theirs: Counts,
}

/// What the controller told of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What to begin with, kbit/s.
    pub rate_kbps: u32,
    /// Never more, kbit/s; `u32::MAX` for no limit.
    pub limit_kbps: u32,
    /// Of 1,000,000.
    pub weight: u32,
}

/// The heartbeat's fields of RI2N+ and RI2N++, as the peer sent them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers whose traffic comes in by the NIC.
    pub peers: u16,
    /// kB of ours by this link.
    pub arrive: u32,
    /// kB of all by this link's NIC.
    pub path_total: u32,
    /// kB of all by all NICs.
    pub arrive_total: u32,
}

impl Link {
    /// A link of which nothing was heard yet.
    pub fn new(number: u8, own_port: u8, peer_port: u8, told: Told) -> Self {
        Link {
            number,
            own_port,
            peer_port,
            peer_nic: Mac::default(),
            claimed: None,
            told,
            next_sequence: Seq(0),
            sent_frames: 0,
            sent_bytes: 0,
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
            come_frames: 0,
            come_bytes: 0,
            sequence: Counted::default(),
            lost: 0,
            heartbeats: Rising::default(),
            their_time: None,
            round_trip_ns: None,
            way_us: None,
            way_var_us: 0,
            theirs: Counts::default(),
        }
    }

    /// Its bit in a set of links.
    pub fn bit(&self) -> u64 {
        1 << self.number
    }

    /// Something came in, in the peer's `round`; true if the link was not heard before.
    pub fn heard(&mut self, now: Nanos, round: u32) -> bool {
        self.heard_ns = Some(now);
        self.round = round;
        self.missed_since = None;
        !std::mem::replace(&mut self.hears, true)
    }

    /// The peer began a round, as another link says.
    pub fn is_missed(&mut self, now: Nanos) {
        self.missed_since.get_or_insert(now);
    }

    /// This process had no CPU for `late_ns` until `now`: silence in that time was its own.
    pub fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        let later = |at: Nanos| at.saturating_add(late_ns).min(now);
        self.heard_ns = self.heard_ns.map(later);
        self.missed_since = self.missed_since.map(later);
    }

    /// From when on silence is more than a missing heartbeat or two, `interval_ns` at most between
    /// them since `since`. As a retransmission timer does, it gives a link that is sometimes late
    /// more time, by four times the mean deviation.
    pub fn silent_at(&self, since: Nanos, interval_ns: Nanos) -> Option<Nanos> {
        let heard = self.heard_ns.filter(|_| self.hears)?;
        let slow = heard.saturating_add(MISSED * self.interval_ns);
        let fast = heard.saturating_add(MISSED * interval_ns.min(self.interval_ns));
        // A shorter interval holds from the moment on at which it became known.
        let silent = fast.max(since.saturating_add(MISSED * interval_ns).min(slow));
        Some(silent.saturating_add((4000 * self.way_var_us.unsigned_abs()).min(LATE_NS)))
    }

    /// When the link counts as dead unless something comes in; the peer is in `round`, and its
    /// fastest link's way takes `fastest_us` (as `way_us` counts).
    ///
    /// A peer that says nothing on any link is late, or gone, and nothing can be said of its links.
    /// One that goes on, on others, has sent its heartbeats over all of them: they are late by the
    /// difference of the ways at most.
    pub fn dies_at(
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
        let all = (MISSED - 1) * interval_ns.min(self.interval_ns) + (1000 * skew_us).min(SKEW_NS);
        Some(silent.max(missed.saturating_add(all)))
    }

    /// Whether it is silent for too long, as `dies_at` says; it is dead then.
    pub fn dies(&mut self, now: Nanos, at: Option<Nanos>) -> bool {
        if at.is_none_or(|at| now < at) {
            return false;
        }
        self.hears = false;
        self.heard_by_peer = false;
        true
    }

    /// Whether greetings that say another NIC or limit (kbit/s) of the peer's end are to be
    /// believed: on a link that is dead at once; on one that works when its heartbeats say so too,
    /// or greetings have said nothing else for a while.
    pub fn believes(&mut self, now: Nanos, nic: Mac, limit_kbps: u32, own_kbps: u32) -> bool {
        if (nic, limit_kbps) == (self.peer_nic, self.told.limit_kbps) {
            self.claimed = None;
            return true;
        }
        let since =
            self.claimed.filter(|old| (old.0, old.1) == (nic, limit_kbps)).map_or(now, |old| old.2);
        self.claimed = Some((nic, limit_kbps, since));
        let confirmed = nic == self.peer_nic && self.limit_kbps == limit_kbps.min(own_kbps);
        !self.hears || confirmed || now.saturating_sub(since) >= INSISTS_NS
    }

    /// Count a data frame that came in; the number of frames that are now known to be lost before
    /// it.
    pub fn came(&mut self, now: Nanos, link_sequence: Seq, bytes: usize) -> u32 {
        self.come_frames += 1;
        self.come_bytes += bytes as u64;
        let lost = self.sequence.came(now, link_sequence);
        self.lost += u64::from(lost);
        lost
    }

    /// Take what a heartbeat says of the link's liveness and clocks, if it is newer than the last.
    /// `timely`: it did not wait for this process, so that its way can be measured.
    pub fn heartbeat(&mut self, now: Nanos, beat: &Heartbeat, timely: bool) -> Newer {
        let newer = self.heartbeats.take(now, beat.seq, !self.hears);
        if newer != Newer::Yes {
            return newer;
        }
        self.lost += u64::from(self.sequence.told(now, beat.link_next));
        self.interval_ns = Nanos::from(beat.next_within_ms.max(1)) * MS;
        self.their_time = Some((beat.time_us, now));
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
        self.theirs = Counts {
            peers: beat.cnt,
            arrive: beat.arrive_kb,
            path_total: beat.path_total_kb,
            arrive_total: beat.arrive_total_kb,
        };
        Newer::Yes
    }

    fn measure_way(&mut self, way_us: i64) {
        let old = self.way_us.filter(|old| (way_us - old).abs() < 1_000_000);
        let Some(old) = old else {
            // The first, or the clocks' lower halves wrapped, or one of them was set: begin again.
            self.way_us = Some(way_us);
            return;
        };
        self.way_var_us += ((way_us - old).abs() - self.way_var_us) / 4;
        self.way_us = Some(old + (way_us - old) / SMOOTH);
    }

    /// The peer began anew: what is known of its sending is void.
    pub fn peer_restarted(&mut self) {
        self.heartbeats = Rising::default();
        self.sequence = Counted::default();
        self.their_time = None;
        self.way_us = None;
        self.way_var_us = 0;
        self.grant_kbps = None;
        self.heard_by_peer = false;
    }

    /// What may be sent here now, in kbit/s: granted, else told, never over the limit.
    pub fn rate_kbps(&self) -> u32 {
        self.grant_kbps.unwrap_or(self.told.rate_kbps).min(self.told.limit_kbps)
    }
}
