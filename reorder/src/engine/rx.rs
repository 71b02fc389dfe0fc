//! What arrives from a peer: its sequence as far as it is believed, the frames that wait for
//! others, and broadcasts.

use std::collections::{BTreeSet, VecDeque};

use super::{ACTIVE_NS, MS};
use crate::belief::{Position, AGREE};
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

/// Bytes of data that arrived by one link: R_ijk.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    link: u8,
    /// In the HBSPAN that goes on.
    bytes: u64,
    /// In the one before.
    last_bytes: u64,
}

/// The receiving side of a pair: the peer's frames for this host.
///
/// Every sequence that a frame or heartbeat names goes through `position` first. What is not
/// believed changes nothing in `reorder`: a heartbeat's sequence is ignored, and a frame waits in
/// `doubted` until others agree with it or `DOUBT_NS` are over.
///
/// Invariants: `doubted` has fewer frames than are needed to believe them; while `reorder` misses
/// something, `look_at` is set.
pub(super) struct Rx {
    /// Frames that arrived early.
    reorder: ReorderBuffer<Vec<u8>>,
    /// Where the peer is in its sequence, as far as that is believed.
    position: Position,
    doubted: Vec<Doubted>,
    /// When data last arrived.
    received_ns: Option<Nanos>,
    /// When the reorder buffer has to be looked at.
    look_at: Option<Nanos>,
    broadcasts: Broadcasts,
    arrived: Vec<Arrived>,
}

impl Rx {
    /// `max_bytes`: memory for the frames that wait.
    pub(super) fn new(max_bytes: usize) -> Self {
        Rx {
            reorder: ReorderBuffer::new(REORDER_SLOTS, max_bytes),
            position: Position::default(),
            doubted: Vec::new(),
            received_ns: None,
            look_at: None,
            broadcasts: Broadcasts::default(),
            arrived: Vec::new(),
        }
    }

    /// A new session of the peer begins with sequence `next`.
    pub(super) fn begin(&mut self, next: Seq) {
        self.reorder.start(next);
        self.position = Position::default();
        self.doubted.clear();
        self.look_at = None;
        self.broadcasts = Broadcasts::default();
    }

    /// The sequence that is delivered next.
    pub(super) fn next(&self) -> Seq {
        self.reorder.next()
    }

    /// Data arrives. True if none did for a while: the peer has to hear of it then.
    pub(super) fn traffic_begins(&mut self, now: Nanos) -> bool {
        self.received_ns.replace(now).is_none_or(|at| now.saturating_sub(at) >= ACTIVE_NS)
    }

    /// Whether data arrived within `span_ns`.
    pub(super) fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.received_ns.is_some_and(|at| now.saturating_sub(at) < span_ns)
    }

    /// Counts bytes of data that arrived by a link.
    pub(super) fn count(&mut self, link: u8, bytes: usize) {
        let bytes = bytes as u64;
        match self.arrived.iter_mut().find(|arrived| arrived.link == link) {
            Some(arrived) => arrived.bytes += bytes,
            None => self.arrived.push(Arrived { link, bytes, last_bytes: 0 }),
        }
    }

    /// Bytes of data that arrived by a link in the last HBSPAN: R_ijk.
    pub(super) fn last_bytes(&self, link: u8) -> u64 {
        self.arrived.iter().find(|arrived| arrived.link == link).map_or(0, |it| it.last_bytes)
    }

    /// Whether data arrived by a link in this HBSPAN or the last.
    pub(super) fn has_traffic(&self, link: u8) -> bool {
        self.arrived.iter().any(|it| it.link == link && it.bytes + it.last_bytes > 0)
    }

    /// The next HBSPAN begins.
    pub(super) fn end_span(&mut self) {
        for arrived in &mut self.arrived {
            (arrived.bytes, arrived.last_bytes) = (0, arrived.bytes);
        }
    }

    /// Whether a data frame's sequence is believed.
    pub(super) fn believes(&mut self, now: Nanos, seq: Seq) -> bool {
        self.position.data(now, self.reorder.end(), seq.next())
    }

    /// A heartbeat on `link` says which sequence is sent next; whether that is believed.
    pub(super) fn heartbeat(&mut self, now: Nanos, link: u8, next: Seq) -> bool {
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

    /// Whether a broadcast with this number was not seen before.
    pub(super) fn is_new_broadcast(&mut self, now: Nanos, number: u16) -> bool {
        self.broadcasts.take(now, number)
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
            received_ns,
            look_at,
            reorder: _,    // has a clock of its own
            broadcasts: _, // forgets what lies in the future
            arrived: _,
        } = self;
        position.settle_clock(now);
        for Doubted { since_ns, arrival: _ } in doubted {
            *since_ns = (*since_ns).min(now);
        }
        *received_ns = received_ns.map(|at| at.min(now));
        *look_at = look_at.map(|_| now);
    }
}

/// Copies of a broadcast arrive within this time of each other.
const COPIES_NS: Nanos = 100 * MS;
/// Broadcasts that are remembered.
const MAX_RECENT: usize = 4096;

/// The broadcasts that arrived lately: each arrives by every link, and counts once.
///
/// A number says nothing but that it was seen, so a wrong one spoils at most its own broadcast, for
/// `COPIES_NS`.
///
/// Invariant: `seen` has exactly the numbers in `recent`.
#[derive(Debug, Default)]
struct Broadcasts {
    recent: VecDeque<(Nanos, u16)>,
    seen: BTreeSet<u16>,
}

impl Broadcasts {
    /// Whether broadcast `number` was not seen.
    fn take(&mut self, now: Nanos, number: u16) -> bool {
        let old = |&(at, _): &(Nanos, u16)| now.saturating_sub(at) >= COPIES_NS || at > now;
        while self.recent.front().is_some_and(old) || self.recent.len() >= MAX_RECENT {
            let Some((_, gone)) = self.recent.pop_front() else { break };
            self.seen.remove(&gone);
        }
        let fresh = self.seen.insert(number);
        if fresh {
            self.recent.push_back((now, number));
        }
        fresh
    }
}
