// SPDX-License-Identifier: Apache-2.0
//! One channel of a pair of hosts: the frames of one job, or of no job, in both directions.

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::{Settings, MS};
use crate::sched::Bucket;
use crate::seq::Seq;
use crate::wire::channels::{ASKS, BEGUN};
use crate::wire::{ChannelEntry, PeerChannel, NO_LIMIT};
use crate::Nanos;

/// How many rounds of heartbeats speak of a channel after it changed, whether it has traffic or
/// not: one may be lost.
const ROUNDS: u8 = 3;
/// A channel that had less than its share, since it had nothing to send or its links had no credit,
/// is ahead of the others by at most this many bytes.
const MAX_AHEAD: u64 = 2 * 1514;
/// How long a channel may save up its highest rate. Timers wake up late, and credit must not spill
/// over meanwhile. A second that begins after a pause has this much too much.
const LIMIT_DEPTH_NS: Nanos = 2 * MS;
/// How long a channel may save up its guaranteed rate: a burst of it delays others by that much.
const GUARANTEE_DEPTH_NS: Nanos = 5 * MS;

/// Frames wait for this long when their channel can send nothing, as they do for a peer that is
/// silent.
const PATIENCE_NS: Nanos = 200 * MS;

/// What a channel carried. All numbers only grow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Carried {
    /// Data frames that were sent for the first time, and bytes of them as the host sees them.
    pub(super) frames_out: u64,
    pub(super) bytes_out: u64,
    /// Data frames that arrived, and bytes of them as the host sees them.
    pub(super) frames_in: u64,
    pub(super) bytes_in: u64,
    /// Frames of the host that were dropped, by CoDel or for want of room.
    pub(super) drops: u64,
}

/// A channel.
///
/// A job's frames use only the links of their channel. So they have a sequence of their own: a gap
/// in it is a loss as soon as the links of the channel have delivered something newer, whatever
/// the others do. The channel of no job may use all links and has no rates of its own.
///
/// Invariant: of a job's channel nothing is sent before the peer said that it takes it.
pub(super) struct Channel {
    /// Its number; 0 for frames of no job.
    pub(super) number: u8,
    /// The job's tag; 0 for no job.
    tag: u32,
    /// Links that it may use, a bit each.
    links: u64,
    /// Links that the peer uses for it, as the peer says.
    remote_links: u64,
    /// The peer takes it.
    known_to_peer: bool,
    /// Since when it can send nothing: the peer does not take it, or all of its links are dead.
    stuck_ns: Option<Nanos>,
    /// Rounds of heartbeats that have to speak of it.
    announce: u8,
    /// What the controller says of its rates, in kbit/s.
    rates: Rates,
    /// Credit at its highest rate, if it has one.
    limit: Option<Bucket>,
    /// Credit at its guaranteed rate, if it has one.
    guarantee: Option<Bucket>,
    /// Bytes that it had of the rest of the rates. It is the turn of the channel with the fewest.
    served: u64,
    /// What it carried.
    pub(super) carried: Carried,
    /// What goes to the peer.
    pub(super) out: Outgoing,
    /// What arrives from the peer.
    pub(super) incoming: Incoming,
}

/// Rates of a channel in kbit/s, as the controller tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    /// `NO_LIMIT` if there is no highest rate.
    pub(super) max_kbps: u32,
    /// Guaranteed to the peer.
    pub(super) min_kbps: u32,
    /// Guaranteed on the way here.
    pub(super) min_in_kbps: u32,
}

impl Rates {
    const NONE: Rates = Rates { max_kbps: NO_LIMIT, min_kbps: 0, min_in_kbps: 0 };
}

impl Channel {
    /// The channel of frames that belong to no job.
    pub(super) fn classless(settings: &Settings) -> Self {
        let quarter = settings.max_memory / 4;
        Channel {
            number: 0,
            tag: 0,
            links: u64::MAX,
            remote_links: u64::MAX,
            known_to_peer: true,
            stuck_ns: None,
            announce: 0,
            rates: Rates::NONE,
            limit: None,
            guarantee: None,
            served: 0,
            carried: Carried::default(),
            out: Outgoing::new(settings, settings.first, quarter),
            incoming: Incoming::new(quarter),
        }
    }

    /// A job's channel, whose next sequence is `first`.
    pub(super) fn new(now: Nanos, told: &PeerChannel, first: Seq, settings: &Settings) -> Self {
        let mut channel = Channel {
            number: told.number,
            tag: told.tag,
            known_to_peer: false,
            announce: ROUNDS,
            out: Outgoing::new(settings, first, settings.max_memory / 4),
            ..Self::classless(settings)
        };
        channel.change(now, told);
        channel
    }

    /// The controller says something else of the same job's channel.
    pub(super) fn change(&mut self, now: Nanos, told: &PeerChannel) {
        self.use_links(told.links);
        let PeerChannel { max_kbps, min_kbps, min_in_kbps, .. } = *told;
        self.rates = Rates { max_kbps, min_kbps, min_in_kbps };
        let limit = Some(max_kbps).filter(|kbps| *kbps != NO_LIMIT);
        set_bucket(&mut self.limit, now, limit, LIMIT_DEPTH_NS);
        let guarantee = Some(min_kbps).filter(|kbps| *kbps > 0);
        set_bucket(&mut self.guarantee, now, guarantee, GUARANTEE_DEPTH_NS);
    }

    /// The job's tag.
    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    /// Links that it may use, a bit each.
    pub(super) fn links(&self) -> u64 {
        self.links
    }

    /// Links that the peer uses for it, a bit each.
    pub(super) fn remote_links(&self) -> u64 {
        self.remote_links
    }

    /// The peer takes it.
    pub(super) fn is_known_to_peer(&self) -> bool {
        self.known_to_peer
    }

    /// What the controller says of its rates.
    pub(super) fn rates(&self) -> Rates {
        self.rates
    }

    /// Whether it has a guaranteed rate.
    pub(super) fn is_guaranteed(&self) -> bool {
        self.guarantee.is_some()
    }

    /// A session's number as the channel's frames have it. The job's tag is in it: a frame of the
    /// job that had the channel before is never taken for one of this job.
    pub(super) fn mixed(&self, session: u32) -> u32 {
        session ^ self.tag
    }

    /// Every turn, with the `usable` links: finds out whether it can send anything.
    ///
    /// The channel of no job that may use all links waits as long as its peer is waited for.
    pub(super) fn look(&mut self, now: Nanos, usable: u64) {
        let sends = self.known_to_peer && (self.links == u64::MAX || self.links & usable != 0);
        self.stuck_ns = if sends { None } else { self.stuck_ns.or(Some(now)) };
    }

    /// When what waits in it is not to wait any longer; none if nothing waits, or if it is sent.
    pub(super) fn strands_at(&self) -> Option<Nanos> {
        let stuck = self.stuck_ns.filter(|_| !self.out.queue.is_empty());
        stuck.map(|at| at.saturating_add(PATIENCE_NS))
    }

    /// This process had no CPU for `late_ns` until `now`: that uses up no patience.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.stuck_ns = self.stuck_ns.map(|at| at.saturating_add(late_ns).min(now));
        self.incoming.excuse(now, late_ns);
    }

    /// When its next frame may leave, as far as its own rates decide that; none if it has nothing
    /// that may leave. `guaranteed`: within its guaranteed rate.
    pub(super) fn ready_at(&mut self, now: Nanos, guaranteed: bool) -> Option<Nanos> {
        if !self.out.has_frames() || !self.known_to_peer {
            return None;
        }
        if guaranteed {
            let bucket = self.guarantee.as_mut()?;
            bucket.refill(now);
            if !bucket.has_credit() {
                return None; // it still has its part of the rest
            }
        }
        let Some(limit) = &mut self.limit else { return Some(now) };
        limit.refill(now);
        Some(limit.ready_at(now))
    }

    /// What counts when turns are given: the bytes that it had, where the others are at `place`.
    pub(super) fn served(&mut self, place: u64) -> u64 {
        self.served = self.served.max(place.saturating_sub(MAX_AHEAD));
        self.served
    }

    /// Bytes of it, as the host sees them, left within its guaranteed rate.
    pub(super) fn spend_guarantee(&mut self, bytes: usize) {
        if let Some(guarantee) = &mut self.guarantee {
            guarantee.spend(bytes);
        }
        self.spend_limit(bytes);
    }

    /// Bytes of it left in its turn.
    pub(super) fn spend_turn(&mut self, bytes: usize) {
        self.served += bytes as u64;
        self.spend_limit(bytes);
    }

    fn spend_limit(&mut self, bytes: usize) {
        if let Some(limit) = &mut self.limit {
            limit.spend(bytes);
        }
    }

    /// Whether more waits for the links' credit behind the frame that leaves now: the flag MORE.
    ///
    /// What waits for the channel's own highest rate needs no more from the peer.
    pub(super) fn has_more(&self, now: Nanos) -> bool {
        match self.limit {
            Some(_) => self.out.waited_for_credit(now),
            None => self.out.has_more(now),
        }
    }

    /// Bit/s that the host would send in it; infinite if that is more than is granted.
    pub(super) fn demand_bps(&mut self, now: Nanos) -> f64 {
        let demand_bps = self.out.demand_bps(now);
        match self.rates.max_kbps {
            NO_LIMIT => demand_bps,
            max_kbps => demand_bps.min(f64::from(max_kbps) * 1e3),
        }
    }

    /// Frames of the channel may use other links.
    pub(super) fn use_links(&mut self, links: u64) {
        if self.links != links {
            self.announce = ROUNDS;
        }
        self.links = links;
    }

    /// A new session of the peer begins. The channel of no job begins with sequence `next`; those
    /// of jobs have to be asked for.
    pub(super) fn peer_restarted(&mut self, next: Seq) {
        self.remote_links = u64::MAX;
        if self.number > 0 || self.links != u64::MAX {
            self.announce = ROUNDS;
        }
        if self.number > 0 {
            self.known_to_peer = false;
            self.incoming.forget();
        } else {
            self.incoming.begin(next);
        }
    }

    /// The peer speaks of it. True if it asks whether we take it.
    pub(super) fn said(&mut self, entry: &ChannelEntry) -> bool {
        self.known_to_peer = true;
        self.remote_links = entry.links;
        if entry.flags & BEGUN != 0 {
            self.out.ring.ack(entry.expected);
        }
        let asks = entry.flags & ASKS != 0;
        if asks {
            self.announce = self.announce.max(1);
        }
        asks
    }

    /// What to say of it in this round of heartbeats, if anything. `all`: everything is said.
    ///
    /// Of the channel of no job, heartbeats say all but its links.
    pub(super) fn entry(&mut self, now: Nanos, all: bool) -> Option<ChannelEntry> {
        if self.number == 0 && self.links == u64::MAX && self.announce == 0 {
            return None;
        }
        let active = self.out.is_active(now) || self.incoming.is_active(now);
        let due = all || active || self.announce > 0;
        self.announce = self.announce.saturating_sub(1);
        due.then(|| ChannelEntry {
            channel: self.number,
            flags: u8::from(!self.known_to_peer) * ASKS
                + u8::from(self.incoming.has_begun()) * BEGUN,
            tag: self.tag,
            links: self.links,
            next: self.out.next(),
            expected: self.incoming.next(),
            demand_kbps: in_kbps(self.demand_bps(now)),
        })
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            out,
            incoming,
            stuck_ns,
            limit: _, // token buckets go on from where the clock is
            guarantee: _,
            number: _,
            tag: _,
            links: _,
            remote_links: _,
            known_to_peer: _,
            announce: _,
            rates: _,
            served: _,
            carried: _,
        } = self;
        *stuck_ns = stuck_ns.map(|at| at.min(now));
        out.settle_clock(now);
        incoming.settle_clock(now);
    }
}

/// A rate in kbit/s as frames have it; `NO_LIMIT` if it is infinite.
pub(super) fn in_kbps(bps: f64) -> u32 {
    if bps == f64::INFINITY {
        NO_LIMIT
    } else {
        (bps / 1e3).min(4e9) as u32
    }
}

/// Gives a bucket a rate, or takes it away. `depth_ns`: how long it saves up.
fn set_bucket(bucket: &mut Option<Bucket>, now: Nanos, kbps: Option<u32>, depth_ns: Nanos) {
    let Some(rate) = kbps.map(|kbps| u64::from(kbps) * 125) else {
        *bucket = None;
        return;
    };
    let depth = (rate * depth_ns / 1_000_000_000).max(1);
    match bucket {
        Some(bucket) => bucket.set(now, rate, depth),
        None => *bucket = Some(Bucket::new(now, rate, depth)),
    }
}
