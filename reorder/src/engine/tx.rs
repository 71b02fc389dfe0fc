//! What goes to a peer: sequences, the frames that wait and those that may be repeated, and which
//! link takes the next one.

use std::collections::VecDeque;

use super::link::Link;
use super::meter::Meter;
use super::strategy::Seen;
use super::{Mode, Settings, ACTIVE_NS, AGAIN_NS, FAST_NS, MS};
use crate::ring::{Limits, Ring};
use crate::sched::fair::FairQueue;
use crate::sched::paced::{NicBuckets, Paced};
use crate::sched::queue::QueueSettings;
use crate::sched::weighted::Weighted;
use crate::seq::Seq;
use crate::wire::{self, MAX_LINKS, NO_LIMIT};
use crate::Nanos;

/// Frames that waited for credit within this time mean that there are more.
const SHORT_NS: Nanos = 5 * MS;

/// What one link had sent when the HBSPAN began.
#[derive(Debug, Clone, Copy)]
struct SpanStart {
    link: u8,
    sent_frames: u64,
    arrived_frames: u32,
}

/// The sending side of a pair: this host's frames for the peer.
///
/// A frame waits in `queue` until a link has credit for it. It then gets the next sequence, and a
/// copy of it stays in `ring` until the peer has it. What the peer asks for again is in `repeats`,
/// and goes before everything in `queue`.
///
/// Invariants: sequences are given once, in the order in which frames leave. The frames that `ring`
/// notes as queued are exactly those in `repeats` that it still has. A link that went and is back
/// goes on with the link sequence where it was, or its frames would look old.
pub(super) struct Tx {
    /// Frames that wait for credit.
    pub(super) queue: FairQueue,
    /// Frames that were sent and are not known to have arrived.
    pub(super) ring: Ring,
    /// Sequence of the next data frame.
    next: Seq,
    /// Sequence of the next heartbeat, over whichever link.
    next_heartbeat: Seq,
    /// Sequence of the next broadcast.
    next_broadcast: u16,
    /// Where the link sequences of links that are gone stopped.
    link_sequences: [Seq; MAX_LINKS],
    /// Sequences to be sent again, those asked for first in front.
    repeats: VecDeque<Seq>,
    /// Rates of the links, as the peer grants them.
    paced: Paced,
    /// Weights of the links, for the papers' strategies.
    weighted: Weighted,
    /// The link that the next frame takes by weight, while it waits for its NIC.
    chosen: Option<u8>,
    /// When a frame last waited for credit.
    short_ns: Option<Nanos>,
    /// When data was last sent, or queued to be.
    sent_ns: Option<Nanos>,
    /// The rate at which this host has frames for the peer.
    offered: Meter,
    /// What the links had sent when the HBSPAN began.
    span_starts: Vec<SpanStart>,
}

impl Tx {
    pub(super) fn new(settings: &Settings) -> Self {
        let quarter = settings.max_memory / 4;
        Tx {
            queue: FairQueue::new(QueueSettings { max_bytes: quarter, ..QueueSettings::default() }),
            ring: Ring::new(Limits {
                keep_ns: settings.keep_ns,
                min_ns: AGAIN_NS,
                max_bytes: quarter,
            }),
            next: settings.first,
            next_heartbeat: settings.first,
            next_broadcast: 0,
            link_sequences: [settings.first; MAX_LINKS],
            repeats: VecDeque::new(),
            paced: Paced::new(settings.longest + settings.overhead),
            weighted: Weighted::new(settings.longest),
            chosen: None,
            short_ns: None,
            sent_ns: None,
            offered: Meter::default(),
            span_starts: Vec::new(),
        }
    }

    /// The sequence that the next data frame will have.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// The sequence of a data frame that leaves now.
    pub(super) fn take_sequence(&mut self) -> Seq {
        let seq = self.next;
        self.next = seq.next();
        seq
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
    }

    /// A frame of the host waits for credit. Frames for which there is no room go to `refused`.
    pub(super) fn enqueue(&mut self, now: Nanos, frame: Vec<u8>, refused: impl FnMut(Vec<u8>)) {
        self.offered.count(now, frame.len() + wire::OVERHEAD);
        self.queue.push(now, frame, refused);
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

    /// Whether there is something to send, for the first time or again.
    pub(super) fn has_frames(&self) -> bool {
        !(self.queue.is_empty() && self.repeats.is_empty())
    }

    /// Whether data was sent within `span_ns`, or is to be.
    pub(super) fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.sent_ns.is_some_and(|at| now.saturating_sub(at) < span_ns) || self.has_frames()
    }

    /// Whether more waits behind the frame that leaves now, or did a moment ago: the flag MORE.
    pub(super) fn has_more(&self, now: Nanos) -> bool {
        !self.queue.is_empty() || self.was_short(now, FAST_NS)
    }

    /// kbit/s that the host would send to the peer; `NO_LIMIT` if frames waited for credit lately.
    pub(super) fn demand_kbps(&mut self, now: Nanos) -> u32 {
        if self.was_short(now, SHORT_NS) || !self.queue.is_empty() {
            return NO_LIMIT;
        }
        (self.offered.rate_bps(now) / 1e3).min(4e9) as u32
    }

    fn was_short(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.short_ns.is_some_and(|at| now.saturating_sub(at) < span_ns)
    }

    /// The link that carries the next frame of `bytes`, of those in `wanted` (a bit each): in
    /// paced mode one with credit, else the one whose turn it is by weight. If there is none yet,
    /// the time at which there may be one.
    ///
    /// Weights say which link a frame takes, and the link's own NIC says when: what leaves faster
    /// would be dropped by the NIC's queue.
    pub(super) fn choose(
        &mut self,
        now: Nanos,
        mode: Mode,
        bytes: usize,
        wanted: u64,
        ports: &[u8; MAX_LINKS],
        nics: &mut NicBuckets,
    ) -> Result<u8, Nanos> {
        nics.refill(now);
        let ready = |link: u8| nics.ready(ports[usize::from(link)]);
        let found = if mode == Mode::Paced {
            self.paced.pick(now, bytes, wanted, ready)
        } else {
            let chosen = self.chosen.filter(|link| wanted & (1 << link) != 0);
            self.chosen = chosen.or_else(|| self.weighted.pick(bytes, wanted));
            self.chosen.filter(|link| ready(*link)).inspect(|_| self.chosen = None)
        };
        found.ok_or_else(|| {
            self.short_ns = Some(now);
            let nic_at = |link: u8| nics.ready_at(now, ports[usize::from(link)]);
            match self.chosen {
                // The link is chosen already, so only its own NIC is waited for.
                Some(link) if mode != Mode::Paced => nic_at(link),
                _ => self.paced.next_ready(now, wanted, nic_at),
            }
        })
    }

    /// The next sequence to be sent again.
    pub(super) fn next_repeat(&self) -> Option<Seq> {
        self.repeats.front().copied()
    }

    /// The next repeat was sent, or is not needed any more.
    pub(super) fn end_repeat(&mut self) {
        self.repeats.pop_front();
    }

    /// The peer asks for `frames` frames from `first` on. Returns how many of them are kept no
    /// more.
    pub(super) fn repeat(&mut self, first: Seq, frames: u16) -> u64 {
        // Frames that were never sent are not looked for one by one: a request for a thousand of
        // them costs no more than for one.
        let kept = self.ring.within(first, frames);
        let missing = u64::from(frames) - kept.len() as u64;
        for ahead in kept {
            self.queue_for_repeat(first.add(ahead));
        }
        missing
    }

    /// Everything that was last sent over link `number` and may not have arrived is sent again.
    pub(super) fn repeat_link(&mut self, number: u8) {
        for seq in self.ring.on_link(number) {
            self.queue_for_repeat(seq);
        }
    }

    fn queue_for_repeat(&mut self, seq: Seq) {
        if self.ring.queue_for_repeat(seq) {
            self.repeats.push_back(seq);
        }
    }

    /// Nothing is to be repeated any more.
    pub(super) fn forget_repeats(&mut self) {
        for seq in self.repeats.drain(..) {
            self.ring.unqueue(seq);
        }
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

    /// Bytes in the queue and the ring.
    pub(super) fn held_bytes(&self) -> usize {
        self.queue.bytes() + self.ring.bytes()
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            short_ns,
            sent_ns,
            offered,
            queue: _, // takes a frame from the future for one that did not wait
            ring: _,  // has a clock of its own
            paced: _, // token buckets go on from where the clock is
            next: _,
            next_heartbeat: _,
            next_broadcast: _,
            link_sequences: _,
            repeats: _,
            weighted: _,
            chosen: _,
            span_starts: _,
        } = self;
        for at in [short_ns, sent_ns] {
            *at = at.map(|at| at.min(now));
        }
        offered.settle_clock(now);
    }
}
