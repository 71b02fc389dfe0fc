// SPDX-License-Identifier: Apache-2.0
//! What goes to a peer in one channel: its sequence, the frames that wait and those that may be
//! repeated.

use std::collections::VecDeque;

use super::meter::Meter;
use super::{Settings, ACTIVE_NS, AGAIN_NS, FAST_NS, MS};
use crate::ring::{Limits, Ring};
use crate::sched::fair::FairQueue;
use crate::sched::queue::QueueSettings;
use crate::seq::Seq;
use crate::wire;
use crate::Nanos;

/// Frames that waited for credit within this time mean that there are more.
const SHORT_NS: Nanos = 5 * MS;

/// The sending side of a channel: this host's frames for the peer.
///
/// A frame waits in `queue` until a link has credit for it. It then gets the next sequence, and a
/// copy of it stays in `ring` until the peer has it. What the peer asks for again is in `repeats`,
/// and goes before everything in `queue`.
///
/// Invariants: sequences are given once, in the order in which frames leave. The frames that `ring`
/// notes as queued are exactly those in `repeats` that it still has.
pub(super) struct Outgoing {
    /// Frames that wait for credit.
    pub(super) queue: FairQueue,
    /// Frames that were sent and are not known to have arrived.
    pub(super) ring: Ring,
    /// Sequence of the next data frame.
    next: Seq,
    /// Sequences to be sent again, those asked for first in front.
    repeats: VecDeque<Seq>,
    /// The link that the next frame takes by weight, while it waits for its NIC.
    pub(super) chosen: Option<u8>,
    /// When a frame last waited for credit.
    short_ns: Option<Nanos>,
    /// When data was last sent.
    sent_ns: Option<Nanos>,
    /// The rate at which this host has frames for the peer.
    offered: Meter,
}

impl Outgoing {
    /// `first` is the first sequence; `max_bytes` may wait in the queue.
    pub(super) fn new(settings: &Settings, first: Seq, max_bytes: usize) -> Self {
        Outgoing {
            queue: FairQueue::new(QueueSettings { max_bytes, ..QueueSettings::default() }),
            ring: Ring::new(Limits {
                keep_ns: settings.keep_ns,
                min_ns: AGAIN_NS,
                max_bytes: settings.max_memory / 4,
            }),
            next: first,
            repeats: VecDeque::new(),
            chosen: None,
            short_ns: None,
            sent_ns: None,
            offered: Meter::default(),
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

    /// A frame of the host waits for credit. Frames for which there is no room go to `refused`.
    pub(super) fn enqueue(&mut self, now: Nanos, frame: Vec<u8>, refused: impl FnMut(Vec<u8>)) {
        self.offered.count(now, frame.len() + wire::OVERHEAD);
        self.queue.push(now, frame, refused);
    }

    /// Bytes of the host left beside the bridge.
    pub(super) fn sent_beside(&mut self, now: Nanos, bytes: usize) {
        self.offered.count(now, bytes);
    }

    /// A data frame leaves.
    pub(super) fn sent(&mut self, now: Nanos) {
        self.sent_ns = Some(now);
    }

    /// Whether there is something to send, for the first time or again.
    pub(super) fn has_frames(&self) -> bool {
        !(self.queue.is_empty() && self.repeats.is_empty())
    }

    /// Whether data was sent lately, or is to be.
    pub(super) fn is_active(&self, now: Nanos) -> bool {
        self.sent_ns.is_some_and(|at| now.saturating_sub(at) < ACTIVE_NS) || self.has_frames()
    }

    /// Whether more waits behind the frame that leaves now, or did a moment ago.
    pub(super) fn has_more(&self, now: Nanos) -> bool {
        !self.queue.is_empty() || self.waited_for_credit(now)
    }

    /// Whether frames waited for the links' credit a moment ago.
    pub(super) fn waited_for_credit(&self, now: Nanos) -> bool {
        self.was_short(now, FAST_NS)
    }

    /// Bit/s that the host would send to the peer; infinite if frames waited for credit lately.
    pub(super) fn demand_bps(&mut self, now: Nanos) -> f64 {
        if self.was_short(now, SHORT_NS) || !self.queue.is_empty() {
            return f64::INFINITY;
        }
        self.offered.rate_bps(now)
    }

    /// A frame waits for credit.
    pub(super) fn is_short(&mut self, now: Nanos) {
        self.short_ns = Some(now);
    }

    fn was_short(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.short_ns.is_some_and(|at| now.saturating_sub(at) < span_ns)
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
            next: _,
            repeats: _,
            chosen: _,
        } = self;
        for at in [short_ns, sent_ns] {
            *at = at.map(|at| at.min(now));
        }
        offered.settle_clock(now);
    }
}
