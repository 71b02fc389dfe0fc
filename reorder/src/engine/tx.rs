// SPDX-License-Identifier: Apache-2.0
//! What all channels to a peer share: the links' credit and weights, and the numbers of heartbeats
//! and broadcasts.

use super::link::Link;
use super::strategy::Seen;
use super::{Settings, ACTIVE_NS};
use crate::sched::paced::{NicBuckets, Paced};
use crate::sched::weighted::Weighted;
use crate::seq::Seq;
use crate::wire::MAX_LINKS;
use crate::Nanos;

/// What one link had sent when the HBSPAN began.
#[derive(Debug, Clone, Copy)]
struct SpanStart {
    link: u8,
    sent_frames: u64,
    arrived_frames: u32,
}

/// The sending side of a pair, as far as it is the same for all channels.
///
/// Invariant: a link that went and is back goes on with the link sequence where it was, or its
/// frames would look old.
pub(super) struct Tx {
    /// Sequence of the next heartbeat, over whichever link.
    next_heartbeat: Seq,
    /// Sequence of the next broadcast.
    next_broadcast: u16,
    /// Where the link sequences of links that are gone stopped.
    link_sequences: [Seq; MAX_LINKS],
    /// Rates of the links, as the peer grants them.
    paced: Paced,
    /// Weights of the links, for the papers' strategies.
    weighted: Weighted,
    /// When data was last sent, or queued to be.
    sent_ns: Option<Nanos>,
    /// What the links had sent when the HBSPAN began.
    span_starts: Vec<SpanStart>,
    /// Bytes that used up a link's credit and of which the programs beside the bridge, whose credit
    /// it is, too, were not told.
    untold: [u64; MAX_LINKS],
}

impl Tx {
    pub(super) fn new(settings: &Settings) -> Self {
        Tx {
            next_heartbeat: settings.first,
            next_broadcast: 0,
            link_sequences: [settings.first; MAX_LINKS],
            paced: Paced::new(settings.longest + settings.overhead),
            weighted: Weighted::new(settings.longest),
            sent_ns: None,
            span_starts: Vec::new(),
            untold: [0; MAX_LINKS],
        }
    }

    /// The sequence of a heartbeat that leaves now.
    pub(super) fn take_heartbeat_sequence(&mut self) -> Seq {
        let seq = self.next_heartbeat;
        self.next_heartbeat = seq.next();
        seq
    }

    /// The sequence of a broadcast that leaves now.
    pub(super) fn take_broadcast_sequence(&mut self) -> u16 {
        let sequence = self.next_broadcast;
        self.next_broadcast = sequence.wrapping_add(1);
        sequence
    }

    /// Where the sequences of link `number` go on.
    pub(super) fn link_sequence(&self, number: u8) -> Seq {
        self.link_sequences[usize::from(number)]
    }

    /// Remembers where the sequences of a link are, should it go.
    pub(super) fn keep_link_sequence(&mut self, link: &Link) {
        self.link_sequences[usize::from(link.number)] = link.next_sequence;
    }

    /// Link `number` is gone.
    pub(super) fn remove_link(&mut self, number: u8) {
        self.paced.remove(number);
    }

    /// Link `number` may carry `rate_bps` bit/s.
    pub(super) fn set_rate(&mut self, now: Nanos, number: u8, rate_bps: u64) {
        self.paced.set(now, number, rate_bps);
    }

    /// Link `number` has this weight.
    pub(super) fn set_weight(&mut self, number: u8, weight: u32) {
        self.weighted.set(number, weight);
    }

    /// Bytes went out over link `number` and use up its credit.
    pub(super) fn spend(&mut self, number: u8, bytes: usize) {
        self.paced.spent(number, bytes);
        if let Some(untold) = self.untold.get_mut(usize::from(number)) {
            *untold = untold.saturating_add(bytes as u64);
        }
    }

    /// Bytes that used up credit of link `number` since the last call.
    pub(super) fn take_untold(&mut self, number: u8) -> u64 {
        self.untold.get_mut(usize::from(number)).map_or(0, std::mem::take)
    }

    /// A frame costs link `number` as much credit again: it leaves half to TCP beside the bridge.
    pub(super) fn pay_again(&mut self, number: u8, bytes: usize) {
        self.paced.spent(number, bytes);
    }

    /// Bytes went out over link `number` beside the bridge.
    pub(super) fn spent_beside(&mut self, number: u8, bytes: usize) {
        self.paced.used_up(number, bytes);
    }

    /// Bit/s that link `number` may carry.
    pub(super) fn rate_bps(&self, number: u8) -> u64 {
        self.paced.rate_bps(1 << number)
    }

    /// Data was queued. True if there was none for a while: the peer has to hear of it then.
    pub(super) fn traffic_begins(&mut self, now: Nanos) -> bool {
        let begins = self.sent_ns.is_none_or(|at| now.saturating_sub(at) >= ACTIVE_NS);
        self.sent_ns = Some(now);
        begins
    }

    /// A data frame leaves.
    pub(super) fn sent(&mut self, now: Nanos) {
        self.sent_ns = Some(now);
    }

    /// Whether data was sent within `span_ns`.
    pub(super) fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.sent_ns.is_some_and(|at| now.saturating_sub(at) < span_ns)
    }

    /// The link with credit that carries the next frame of `bytes`, of those in `wanted` (a bit
    /// each). If there is none yet, the time at which there may be one.
    pub(super) fn choose_paced(
        &mut self,
        now: Nanos,
        bytes: usize,
        wanted: u64,
        ports: &[u8; MAX_LINKS],
        nics: &mut NicBuckets,
    ) -> Result<u8, Nanos> {
        nics.refill(now);
        let ready = |link: u8| nics.ready(ports[usize::from(link)]);
        self.paced.pick(now, bytes, wanted, ready).ok_or_else(|| {
            let nic_at = |link: u8| nics.ready_at(now, ports[usize::from(link)]);
            self.paced.next_ready(now, wanted, nic_at)
        })
    }

    /// The same by weight: the link whose turn it is. Until its NIC has time, it is `chosen` and
    /// waits.
    ///
    /// Weights say which link a frame takes, and the link's own NIC says when: what leaves faster
    /// would be dropped by the NIC's queue.
    pub(super) fn choose_weighted(
        &mut self,
        now: Nanos,
        bytes: usize,
        wanted: u64,
        ports: &[u8; MAX_LINKS],
        nics: &mut NicBuckets,
        chosen: &mut Option<u8>,
    ) -> Result<u8, Nanos> {
        nics.refill(now);
        *chosen = chosen.filter(|link| wanted & (1 << link) != 0);
        *chosen = chosen.or_else(|| self.weighted.pick(bytes, wanted));
        let Some(link) = *chosen else { return Err(Nanos::MAX) };
        let nic = ports[usize::from(link)];
        if !nics.ready(nic) {
            return Err(nics.ready_at(now, nic));
        }
        *chosen = None;
        Ok(link)
    }

    /// Ends the HBSPAN. Returns how much each of `links` sent in it, and how much of that arrived.
    pub(super) fn end_span(&mut self, links: &[Link]) -> Vec<Seen> {
        let seen = links.iter().map(|link| {
            let start = self.span_starts.iter().find(|start| start.link == link.number);
            let (sent, arrived) = start.map_or((link.sent_frames, link.arrived_frames), |start| {
                (start.sent_frames, start.arrived_frames)
            });
            Seen {
                sent: link.sent_frames.saturating_sub(sent),
                arrived: u64::from(link.arrived_frames.wrapping_sub(arrived)),
                remote: link.remote_counts,
            }
        });
        let seen = seen.collect();
        let starts = links.iter().map(|link| SpanStart {
            link: link.number,
            sent_frames: link.sent_frames,
            arrived_frames: link.arrived_frames,
        });
        self.span_starts = starts.collect();
        seen
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            sent_ns,
            paced: _, // token buckets go on from where the clock is
            next_heartbeat: _,
            next_broadcast: _,
            link_sequences: _,
            weighted: _,
            span_starts: _,
            untold: _,
        } = self;
        *sent_ns = sent_ns.map(|at| at.min(now));
    }
}
