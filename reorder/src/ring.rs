// SPDX-License-Identifier: Apache-2.0
//! The frames of one session that were sent lately. Some of them may have to be sent again.

use std::collections::VecDeque;
use std::mem::{size_of, take};

use crate::reorder::clock::Clock;
use crate::seq::Seq;
use crate::Nanos;

/// At most this many buffers are kept for reuse.
const MAX_SPARE: usize = 256;

/// How much a ring keeps.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// A frame that is not acknowledged is kept for this long (ns) after it was first sent.
    pub keep_ns: Nanos,
    /// A frame that was repeated is not repeated again for this long (ns): the request may have
    /// been on its way already.
    pub min_ns: Nanos,
    /// Memory (bytes) for frames and spare buffers together.
    pub max_bytes: usize,
}

/// A frame that was sent.
#[derive(Debug)]
pub struct Entry {
    /// The link over which it was last sent. Whoever repeats it puts the new link here.
    pub link: u8,
    /// The frame as it was sent.
    pub frame: Vec<u8>,
    cost: usize,
    repeats: u8,
    queued: bool,
    pushed: Nanos,
    repeated: Nanos,
}

/// Frames in the order of their sequences.
///
/// Invariants:
/// * `entries[i]` has the sequence `first + i`.
/// * `bytes` is the memory of all entries, and `spare_bytes` that of all spare buffers. Together
///   they are at most `max_bytes`.
/// * `pushed` never falls from one entry to the next, so frames that are too old are always at the
///   front.
#[derive(Debug)]
pub struct Ring {
    limits: Limits,
    first: Seq,
    entries: VecDeque<Entry>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    clock: Clock,
}

impl Ring {
    /// An empty ring.
    pub fn new(limits: Limits) -> Self {
        Ring {
            limits,
            first: Seq(0),
            entries: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            clock: Clock::default(),
        }
    }

    /// Frames in the ring.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no frames in the ring.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory (bytes) of the frames in the ring.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the frame is in the ring.
    pub fn contains(&self, seq: Seq) -> bool {
        self.index(seq).is_some()
    }

    /// Which of the `count` sequences from `from` on are in the ring, as distances from `from`.
    pub fn within(&self, from: Seq, count: u16) -> std::ops::Range<u32> {
        let (start, end) = (self.first.since(from), self.end().since(from));
        let place = |at: i32| at.clamp(0, count.into()) as u32;
        place(start)..place(end).max(place(start))
    }

    /// The frame, if it is in the ring.
    pub fn get(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(self.index(seq)?)
    }

    /// The frame goes another way now, so it is never to be repeated. False if it is not in the
    /// ring, or was repeated already.
    pub fn forget(&mut self, seq: Seq) -> bool {
        let Some(entry) = self.index(seq).and_then(|at| self.entries.get_mut(at)) else {
            return false;
        };
        let fresh = entry.repeats == 0;
        entry.repeats = u8::MAX;
        fresh
    }

    /// Adds a frame that is sent now. A sequence that does not follow the last one begins a new
    /// session, and drops everything that was in the ring.
    pub fn push(&mut self, now: Nanos, seq: Seq, link: u8, frame: Vec<u8>) {
        let now = self.clock.read(now);
        if seq != self.end() {
            self.drop_front(self.entries.len());
            self.first = seq;
        }
        self.drop_old(now);
        let cost = cost(&frame);
        self.bytes += cost;
        self.entries.push_back(Entry {
            link,
            frame,
            cost,
            repeats: 0,
            queued: false,
            pushed: now,
            repeated: now,
        });
        while self.bytes > self.limits.max_bytes {
            self.drop_front(1);
        }
        self.trim_spare();
    }

    /// The other side has everything before `expected`, or has given it up. Returns how many frames
    /// this frees. A sequence that was never sent cannot be acknowledged, and frees nothing.
    pub fn ack(&mut self, expected: Seq) -> usize {
        let count = expected.since(self.first);
        if count <= 0 || count as usize > self.entries.len() {
            return 0;
        }
        self.drop_front(count as usize);
        count as usize
    }

    /// Frees frames that are too old. `push` does so too.
    pub fn expire(&mut self, now: Nanos) {
        let now = self.clock.read(now);
        self.drop_old(now);
    }

    /// Notes that the frame is to be sent again. False if it is not here, or if that was noted
    /// already.
    pub fn queue_for_repeat(&mut self, seq: Seq) -> bool {
        let Some(entry) = self.index(seq).and_then(|at| self.entries.get_mut(at)) else {
            return false;
        };
        !std::mem::replace(&mut entry.queued, true)
    }

    /// Notes that the frame is not to be sent again after all.
    pub fn unqueue(&mut self, seq: Seq) {
        if let Some(entry) = self.index(seq).and_then(|at| self.entries.get_mut(at)) {
            entry.queued = false;
        }
    }

    /// The frame, to be sent again now. None if it is not here, was repeated `tries` times already,
    /// or was repeated a moment ago.
    pub fn take_for_repeat(&mut self, seq: Seq, now: Nanos, tries: u8) -> Option<&mut Entry> {
        let now = self.clock.read(now);
        let at = self.index(seq)?;
        let entry = self.entries.get_mut(at)?;
        entry.queued = false;
        if entry.repeats >= tries || entry.repeats > 0 && now - entry.repeated < self.limits.min_ns
        {
            return None;
        }
        entry.repeats += 1;
        entry.repeated = now;
        Some(entry)
    }

    /// The frames that were last sent over `link`, oldest first.
    pub fn on_link(&self, link: u8) -> Vec<Seq> {
        let entries = (0..).zip(&self.entries);
        entries.filter(|(_, entry)| entry.link == link).map(|(at, _)| self.first.add(at)).collect()
    }

    /// An empty buffer of a frame that is not needed any more, if there is one.
    pub fn reclaim(&mut self) -> Option<Vec<u8>> {
        let buffer = self.spare.pop()?;
        self.spare_bytes -= cost(&buffer);
        Some(buffer)
    }

    /// The sequence after the last.
    fn end(&self) -> Seq {
        self.first.add(self.entries.len() as u32)
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        let at = seq.since(self.first);
        (at >= 0 && (at as usize) < self.entries.len()).then_some(at as usize)
    }

    fn drop_old(&mut self, now: Nanos) {
        while self.entries.front().is_some_and(|entry| now - entry.pushed >= self.limits.keep_ns) {
            self.drop_front(1);
        }
    }

    fn drop_front(&mut self, count: usize) {
        for mut entry in self.entries.drain(..count) {
            self.bytes -= entry.cost;
            let mut buffer = take(&mut entry.frame);
            if self.spare.len() < MAX_SPARE {
                buffer.clear();
                self.spare_bytes += cost(&buffer);
                self.spare.push(buffer);
            }
        }
        self.first = self.first.add(count as u32);
        self.trim_spare();
    }

    /// Spare buffers are freed before frames are.
    fn trim_spare(&mut self) {
        while self.bytes + self.spare_bytes > self.limits.max_bytes && self.reclaim().is_some() {}
    }
}

/// Memory that a frame takes in the ring.
fn cost(frame: &Vec<u8>) -> usize {
    frame.capacity() + size_of::<Entry>()
}
