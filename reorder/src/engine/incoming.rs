// SPDX-License-Identifier: Apache-2.0
//! What arrives from a peer in one channel: its sequence as far as it is believed, and the frames
//! that wait for others.

use super::{ACTIVE_NS, MS};
use crate::belief::{Position, AGREE, NEAR};
use crate::reorder::{Inserted, Policy, Poll, ReorderBuffer};
use crate::seq::Seq;
use crate::wire::{self, DataHead};
use crate::Nanos;

/// Sequences that a reorder buffer reaches ahead. A peer that is further ahead has lost its
/// receiver.
const REORDER_SLOTS: usize = 16_384;
/// How long frames wait for others that agree with their sequences.
const DOUBT_NS: Nanos = 100 * MS;
/// When more frames than this wait, short ones are copied out of the long buffers in which they
/// arrived, since memory is counted by the lengths of frames. If thousands of frames wait, the link
/// is very fast, or somebody wants to fill the memory.
const LOOSE_FRAMES: usize = 1024;

/// A frame of the peer's host, taken out of its envelope.
pub(super) struct Arrival {
    /// What the envelope said.
    pub(super) head: DataHead,
    /// The frame's length on the wire, in bytes.
    pub(super) bytes: usize,
    /// The host's frame.
    pub(super) frame: Vec<u8>,
}

/// A frame that waits until its sequence is believed.
struct Doubted {
    since_ns: Nanos,
    arrival: Arrival,
}

/// The receiving side of a channel: the peer's frames for this host.
///
/// Every sequence that a frame or heartbeat names goes through `position` first. What is not
/// believed changes nothing in `reorder`: a heartbeat's sequence is ignored, and a frame waits in
/// `doubted` until others agree with it or `DOUBT_NS` are over.
///
/// Invariants: `doubted` has fewer frames than are needed to believe them; while `reorder` misses
/// something, `look_at` is set.
pub(super) struct Incoming {
    /// Frames that arrived early.
    reorder: ReorderBuffer<Vec<u8>>,
    /// Where the peer is in its sequence, as far as that is believed.
    position: Position,
    doubted: Vec<Doubted>,
    /// When the reorder buffer has to be looked at.
    look_at: Option<Nanos>,
    /// It is known where the peer is in its sequence.
    begun: bool,
    /// When data last arrived.
    received_ns: Option<Nanos>,
}

impl Incoming {
    /// `max_bytes`: memory for the frames that wait.
    pub(super) fn new(max_bytes: usize) -> Self {
        Incoming {
            reorder: ReorderBuffer::new(REORDER_SLOTS, max_bytes),
            position: Position::default(),
            doubted: Vec::new(),
            look_at: None,
            begun: false,
            received_ns: None,
        }
    }

    /// A new session of the peer begins with sequence `next`.
    pub(super) fn begin(&mut self, next: Seq) {
        self.reorder.start(next);
        self.position = Position::default();
        self.doubted.clear();
        self.look_at = None;
        self.begun = true;
    }

    /// A new session of the peer begins, and it is not known with which sequence.
    pub(super) fn forget(&mut self) {
        self.begin(Seq(0));
        self.begun = false;
    }

    /// The first number that is heard in a channel, which may be any if the peer sent before.
    ///
    /// A channel begins with sequence 0. Its first frames arrive over several links, so the first
    /// one that arrives need not be the first one that was sent.
    fn begin_at(&mut self, seq: Seq) {
        if !self.begun {
            let near = (0..=NEAR).contains(&seq.since(Seq(0)));
            self.begin(if near { Seq(0) } else { seq });
        }
    }

    /// Whether it is known where the peer is in its sequence.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Data arrives.
    pub(super) fn received(&mut self, now: Nanos) {
        self.received_ns = Some(now);
    }

    /// Whether data arrived lately.
    pub(super) fn is_active(&self, now: Nanos) -> bool {
        self.received_ns.is_some_and(|at| now.saturating_sub(at) < ACTIVE_NS)
    }

    /// The sequence that is delivered next.
    pub(super) fn next(&self) -> Seq {
        self.reorder.next()
    }

    /// Whether a data frame's sequence is believed.
    pub(super) fn believes(&mut self, now: Nanos, seq: Seq) -> bool {
        self.begin_at(seq);
        self.position.data(now, self.reorder.end(), seq.next())
    }

    /// A heartbeat on `link` says which sequence is sent next; whether that is believed.
    pub(super) fn heartbeat(&mut self, now: Nanos, link: u8, next: Seq) -> bool {
        self.begin_at(next);
        let believed = self.position.heartbeat(now, self.reorder.end(), link, next);
        if believed {
            self.reorder.newer(now, link, next);
        }
        self.look_at = Some(now);
        believed
    }

    /// Keeps a frame whose sequence is not believed, if there is `room`. Buffers that are not
    /// needed any more go to `done`: there are never so many frames here that they would be
    /// believed.
    pub(super) fn doubt(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        room: bool,
        mut done: impl FnMut(Vec<u8>),
    ) {
        if self.doubted.len() + 1 >= usize::from(AGREE) {
            done(self.doubted.remove(0).arrival.frame);
        }
        if room {
            self.doubted.push(Doubted { since_ns: now, arrival });
        } else {
            done(arrival.frame);
        }
    }

    /// The first frame, at place `from` or behind it, that need not wait for belief any more: with
    /// `true` if its sequence is believed now, with `false` if it waited too long. `from` becomes
    /// the place to go on at.
    pub(super) fn settle_doubt(&mut self, now: Nanos, from: &mut usize) -> Option<(Arrival, bool)> {
        while let Some(doubted) = self.doubted.get(*from) {
            let seq = doubted.arrival.head.seq.next();
            let believed = self.position.fits(self.reorder.end(), seq);
            if believed || now.saturating_sub(doubted.since_ns) >= DOUBT_NS {
                return Some((self.doubted.remove(*from).arrival, believed));
            }
            *from += 1;
        }
        None
    }

    /// Puts a frame where its sequence belongs. `full`: there is no memory for a frame that has to
    /// wait. A buffer that is not needed any more goes to `done`.
    pub(super) fn insert(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        full: bool,
        done: impl FnOnce(Vec<u8>),
    ) -> Inserted<Vec<u8>> {
        let Arrival { head: DataHead { flags, link, seq, .. }, bytes, mut frame } = arrival;
        let repeated = flags & wire::data::REPEATED != 0;
        if flags & wire::data::UNORDERED != 0 {
            // It does not wait, so it needs no memory. It is delivered only if its place was still
            // free: otherwise it would be asked for and delivered a second time.
            match self.reorder.mark(now, seq, link, repeated) {
                Inserted::InOrder(()) | Inserted::Held => Inserted::InOrder(frame),
                Inserted::Duplicate => Inserted::Duplicate,
                Inserted::Old => Inserted::Old,
                Inserted::FarAhead => Inserted::FarAhead,
                Inserted::NoMemory => Inserted::NoMemory,
            }
        } else if full && seq != self.reorder.next() {
            Inserted::NoMemory
        } else {
            if self.reorder.held() >= LOOSE_FRAMES && frame.capacity() / 4 > frame.len() {
                let short = frame.as_slice().into();
                done(std::mem::replace(&mut frame, short));
            }
            self.reorder.insert(now, seq, link, repeated, bytes, frame)
        }
    }

    /// The next frame in order, if it is here.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        self.reorder.pop()
    }

    /// After frames were inserted and popped: looks for losses in this turn if some are missing.
    pub(super) fn look_if_waiting(&mut self, now: Nanos) {
        if self.reorder.is_waiting() {
            self.look_at = Some(now);
        }
    }

    /// Looks for losses in this turn.
    pub(super) fn look_now(&mut self, now: Nanos) {
        self.look_at = Some(now);
    }

    /// When the reorder buffer has to be looked at.
    pub(super) fn due_at(&self) -> Option<Nanos> {
        self.look_at
    }

    /// Goes back to where the peer says it is, if all `live` links have denied for `wait_ns` what
    /// was believed. True if so.
    pub(super) fn resync(&mut self, now: Nanos, live: u64, wait_ns: Nanos) -> bool {
        let said = self.position.denied(now, live, wait_ns);
        if let Some(to) = said {
            self.reorder.withdraw(to);
        }
        said.is_some()
    }

    /// Decides what is lost, and adds what is asked for again to `ask`. Returns how many frames are
    /// given up.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        live: u64,
        policy: &Policy,
        ask: &mut Vec<(Seq, u16)>,
    ) -> u32 {
        let Poll { lost, next } = self.reorder.poll(now, live, policy, ask);
        self.look_at = next.map(|at| at.max(now + 1));
        lost
    }

    /// Nothing is expected from a link any more.
    pub(super) fn link_gone(&mut self, link: u8) {
        self.reorder.link_gone(link);
    }

    /// Frames in the reorder buffer.
    pub(super) fn held_frames(&self) -> usize {
        self.reorder.held()
    }

    /// Bytes of the frames that wait.
    pub(super) fn held_bytes(&self) -> usize {
        let doubted: usize = self.doubted.iter().map(|doubted| doubted.arrival.bytes).sum();
        self.reorder.bytes() + doubted
    }

    /// This process had no CPU for `late_ns` until `now`: nothing waited in that time.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.reorder.excuse(now, late_ns);
        for Doubted { since_ns, .. } in &mut self.doubted {
            *since_ns = since_ns.saturating_add(late_ns).min(now);
        }
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            position,
            doubted,
            look_at,
            received_ns,
            reorder: _, // has a clock of its own
            begun: _,
        } = self;
        position.settle_clock(now);
        for Doubted { since_ns, arrival: _ } in doubted {
            *since_ns = (*since_ns).min(now);
        }
        *look_at = look_at.map(|_| now);
        *received_ns = received_ns.map(|at| at.min(now));
    }
}
