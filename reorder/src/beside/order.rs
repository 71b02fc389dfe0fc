// SPDX-License-Identifier: Apache-2.0
//! Puts TCP that came beside the bridge in order: what came early waits here until it is its turn,
//! for a bounded time.
//!
//! The program `rx` lets a segment up when nothing before it is missing, and gives the helper those
//! that came early, and those that end a gap while some are held. Each flow's word says up to where
//! all is up (`expected`), and how many segments the helper has, or will read from its device
//! (`held`). `rx` alone makes `held` more, before the helper can read the frame; the helper alone
//! makes it less, after it wrote the frame. So as long as one is held, `rx` lets nothing overtake
//! it. TCP does the rest: every doubt is resolved by writing the frame at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::SeqCst;

use ri2n_wire::shared::Flow;

use super::segment::{ahead, Segment};
use crate::Nanos;

const MS: Nanos = 1_000_000;
/// Nothing is held for longer than this, whoever asks for it.
pub const MAX_HOLD_NS: Nanos = 50 * MS;
/// A link that delivered nothing of a flow for this long says nothing of its gaps.
const LANE_MS: i32 = 20;
/// Frames that `rx` counted and that do not come for this long were dropped on the way.
const LEAK_NS: Nanos = 20 * MS;
/// So often, at least, they have to be found missing within that time: at each look, some other
/// frame may just be on its way.
const LEAK_LOOKS: u32 = 16;
/// While something is held or missing, the flow is looked at this often: `rx` may have ended a gap
/// by itself in the moment in which the helper took the first frame behind it.
const LOOK_NS: Nanos = MS;
/// All flows are looked at this often: all frames of a flow may have been dropped.
const SCAN_NS: Nanos = 1000 * MS;
/// The most frames of a flow that are held.
const MAX_PIECES: usize = 4096;

/// What became of frames. All numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came and were held, some for no time.
    pub held: u64,
    /// Of those, frames that were written when it was their turn.
    pub released: u64,
    /// Written before that: all links had delivered something newer.
    pub lost: u64,
    /// Written before that: they had waited long enough.
    pub late: u64,
    /// Written before that: there was no memory, or the helper had to give up all.
    pub forced: u64,
    /// Written at once: nothing of the flow was held any more, or the flow was another one.
    pub through: u64,
    /// Written at once: no TCP segment could be read.
    pub unparsed: u64,
    /// Frames that `rx` counted, and that never came.
    pub repaired: u64,
}

/// What is known of a frame that `rx` gave.
#[derive(Clone, Copy, Debug)]
pub struct Early {
    /// The place of its flow, in which `rx` counted it.
    pub place: u32,
    /// The part of the connection that it has, if it could be read.
    pub segment: Option<Segment>,
    /// The memory that it occupies.
    pub bytes: usize,
    /// It is held for no longer than this.
    pub hold_ns: Nanos,
}

/// A frame that waits.
#[derive(Debug)]
struct Piece<T> {
    start: u32,
    end: u32,
    /// When it is written in any case.
    until_ns: Nanos,
    /// Until then, a link that has delivered nothing lately may still deliver what is missing.
    young_ns: Nanos,
    bytes: usize,
    item: T,
}

/// Frames that `rx` counted and the helper has not.
#[derive(Clone, Copy, Debug)]
struct Missing {
    /// The fewest since then.
    least: u32,
    since_ns: Nanos,
    looks: u32,
}

/// A flow of which something is held, or missing.
#[derive(Debug)]
struct Waiting<T> {
    key: u64,
    /// In order of their starts.
    pieces: VecDeque<Piece<T>>,
    missing: Option<Missing>,
}

impl<T> Waiting<T> {
    fn new(key: u64) -> Self {
        Waiting { key, pieces: VecDeque::new(), missing: None }
    }

    /// Finds frames of the flow that `rx` counted and that were dropped before the helper could
    /// read them: for a while, there are always more of them than the helper has. They count no
    /// more. Returns how many there are.
    fn find_leak(&mut self, now: Nanos, flow: &Flow) -> u64 {
        let more = word(flow).0.saturating_sub(self.pieces.len() as u32);
        let first = Missing { least: more, since_ns: now, looks: 0 };
        let missing = self.missing.get_or_insert(first);
        missing.least = missing.least.min(more);
        missing.looks += 1;
        let Missing { least, since_ns, looks } = *missing;
        let found = looks >= LEAK_LOOKS && now.saturating_sub(since_ns) >= LEAK_NS;
        if least == 0 || found {
            self.missing = None;
        }
        if least > 0 && found {
            change(flow, |held, expected| (held.saturating_sub(least), expected));
            return least.into();
        }
        0
    }
}

/// The frames that are held, by their flow's place.
///
/// Invariants: `bytes` is the sum over all pieces; it is above `max_bytes` for no longer than a
/// call. Each piece is counted in its flow's `held`, unless that was repaired by mistake.
#[derive(Debug)]
pub struct Order<T> {
    flows: BTreeMap<u32, Waiting<T>>,
    bytes: usize,
    max_bytes: usize,
    pieces: usize,
    scan_at: Nanos,
    counts: Counts,
}

impl<T> Order<T> {
    /// Nothing is held. `max_bytes` is the memory for what will be.
    pub fn new(max_bytes: usize) -> Self {
        Order {
            flows: BTreeMap::new(),
            bytes: 0,
            max_bytes,
            pieces: 0,
            scan_at: 0,
            counts: Counts::default(),
        }
    }

    /// What became of frames.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Frames that are held now.
    pub fn len(&self) -> usize {
        self.pieces
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Takes a frame that `rx` gave. Frames whose turn it is go to `write`.
    pub fn take(
        &mut self,
        now: Nanos,
        all: &[Flow],
        early: Early,
        item: T,
        write: &mut dyn FnMut(T),
    ) {
        let Early { place, segment, bytes, hold_ns } = early;
        let Some(flow) = all.get(place as usize) else {
            self.counts.through += 1;
            return write(item);
        };
        let Some(Segment { key, start, end }) = segment else {
            self.counts.unparsed += 1;
            write(item);
            return change(flow, |held, expected| (held.saturating_sub(1), expected));
        };
        if flow.key.load(SeqCst) != key {
            // It was counted in a flow that had the place before, and is counted no more.
            self.counts.through += 1;
            return write(item);
        }
        if self.flows.get(&place).is_some_and(|waiting| waiting.key != key) {
            self.give_up(place, None, write);
        }
        let (held, expected) = word(flow);
        if held == 0 || ahead(expected, end) <= 0 {
            self.counts.through += 1;
            write(item);
            return step(flow, u32::from(held > 0), end);
        }
        let waiting = self.flows.entry(place).or_insert_with(|| Waiting::new(key));
        let hold_ns = hold_ns.min(MAX_HOLD_NS);
        let (until_ns, young_ns) = (now.saturating_add(hold_ns), now.saturating_add(hold_ns / 2));
        let behind = waiting.pieces.iter().rposition(|piece| ahead(piece.start, start) >= 0);
        let piece = Piece { start, end, until_ns, young_ns, bytes, item };
        waiting.pieces.insert(behind.map_or(0, |at| at + 1), piece);
        self.bytes += bytes;
        self.pieces += 1;
        self.counts.held += 1;
        let many = waiting.pieces.len() > MAX_PIECES;
        self.release(place, flow, write);
        if many {
            self.give_up(place, Some(flow), write);
        }
        if self.bytes > self.max_bytes {
            self.give_up_all(Some(all), write);
        }
    }

    /// Writes what need not wait any longer, in all flows. `drained`: the device had nothing more
    /// to read a moment ago. Returns when to look again.
    pub fn look(
        &mut self,
        now: Nanos,
        all: &[Flow],
        drained: bool,
        write: &mut dyn FnMut(T),
    ) -> Nanos {
        if now >= self.scan_at || self.scan_at - now > SCAN_NS {
            self.scan_at = now + SCAN_NS;
            for (place, flow) in (0..).zip(all) {
                if word(flow).0 > 0 {
                    let key = flow.key.load(SeqCst);
                    self.flows.entry(place).or_insert_with(|| Waiting::new(key));
                }
            }
        }
        if drained {
            // Before anything is written, since `rx` counts more meanwhile.
            for (place, waiting) in &mut self.flows {
                let flow = all.get(*place as usize);
                self.counts.repaired += flow.map_or(0, |flow| waiting.find_leak(now, flow));
            }
        }
        let mut next = Nanos::MAX;
        let mut from = 0;
        while let Some(place) = self.flows.range(from..).next().map(|(place, _)| *place) {
            from = place + 1;
            if let Some(flow) = all.get(place as usize) {
                next = next.min(self.look_at(now, place, flow, write));
            }
        }
        next
    }

    fn look_at(&mut self, now: Nanos, place: u32, flow: &Flow, write: &mut dyn FnMut(T)) -> Nanos {
        let Some(waiting) = self.flows.get(&place) else { return Nanos::MAX };
        if waiting.key != flow.key.load(SeqCst) {
            self.give_up(place, None, write);
            return Nanos::MAX;
        }
        let overdue = |piece: &Piece<T>| {
            piece.until_ns <= now || piece.until_ns > now.saturating_add(MAX_HOLD_NS)
        };
        let late = waiting.pieces.iter().rposition(overdue).map_or(0, |last| last + 1);
        for _ in 0..late {
            let in_turn = self.is_next(place, flow);
            self.write_first(place, Some(flow), write);
            *if in_turn { &mut self.counts.released } else { &mut self.counts.late } += 1;
        }
        self.release(place, flow, write);
        while self.is_lost(now, place, flow) {
            self.write_first(place, Some(flow), write);
            self.counts.lost += 1;
            self.release(place, flow, write);
        }
        let Some(waiting) = self.flows.get(&place) else { return Nanos::MAX };
        match waiting.pieces.iter().map(|piece| piece.until_ns).min() {
            Some(until_ns) => until_ns.min(now + LOOK_NS),
            None if word(flow).0 > 0 => now + LOOK_NS,
            None => {
                self.flows.remove(&place);
                Nanos::MAX
            }
        }
    }

    /// Whether what is missing before the first piece of a flow is lost: each link that delivered
    /// something lately has delivered something behind it, and the helper has all of that.
    ///
    /// A link that delivered nothing lately may be idle or dead, or bring the first of a new burst in
    /// a moment. So where there is such a link, or only one that delivers, the piece waits for a part
    /// of its time before that counts.
    fn is_lost(&self, now: Nanos, place: u32, flow: &Flow) -> bool {
        let waiting = self.flows.get(&place);
        let Some((waiting, first)) = waiting.and_then(|it| Some((it, it.pieces.front()?))) else {
            return false;
        };
        let now_ms = (now / MS) as u32;
        // In this order: a frame is counted before its link's end is moved on.
        let ends: [u64; ri2n_wire::shared::LANES] =
            std::array::from_fn(|lane| flow.lanes[lane].load(SeqCst));
        let (held, expected) = word(flow);
        let (mut delivering, mut silent) = (0, 0);
        for end in ends.into_iter().filter(|end| *end != 0) {
            if ahead(end as u32, now_ms) > LANE_MS {
                silent += 1;
            } else if ahead(expected, (end >> 32) as u32) > 0 {
                delivering += 1;
            } else {
                return false;
            }
        }
        let is_plain = delivering > 1 && silent == 0;
        let is_young = now < first.young_ns;
        delivering > 0 && (is_plain || !is_young) && held as usize == waiting.pieces.len()
    }

    /// Writes what is in order, and tells `rx` which piece is the lowest.
    fn release(&mut self, place: u32, flow: &Flow, write: &mut dyn FnMut(T)) {
        loop {
            while self.is_next(place, flow) {
                self.write_first(place, Some(flow), write);
                self.counts.released += 1;
            }
            let first = self.flows.get(&place).and_then(|waiting| waiting.pieces.front());
            let Some(least) = first.map(|piece| piece.start) else {
                // What comes while frames are on the way to the helper follows them.
                return flow.least.store(word(flow).1, SeqCst);
            };
            if flow.least.swap(least, SeqCst) == least {
                return;
            }
            // `rx` may just have ended the gap, and not have known that somebody waits for it.
        }
    }

    /// Whether nothing is missing before a flow's first piece.
    fn is_next(&self, place: u32, flow: &Flow) -> bool {
        let first = self.flows.get(&place).and_then(|waiting| waiting.pieces.front());
        first.is_some_and(|piece| ahead(word(flow).1, piece.start) <= 0)
    }

    /// Writes a flow's first piece. Without `flow`, the piece is counted there no more.
    fn write_first(&mut self, place: u32, flow: Option<&Flow>, write: &mut dyn FnMut(T)) {
        let first = self.flows.get_mut(&place).and_then(|waiting| waiting.pieces.pop_front());
        let Some(Piece { end, bytes, item, .. }) = first else { return };
        self.bytes -= bytes;
        self.pieces -= 1;
        write(item);
        if let Some(flow) = flow {
            step(flow, 1, end);
        }
    }

    /// Writes all pieces of a flow, and forgets the flow.
    fn give_up(&mut self, place: u32, flow: Option<&Flow>, write: &mut dyn FnMut(T)) {
        while self.flows.get(&place).is_some_and(|waiting| !waiting.pieces.is_empty()) {
            self.write_first(place, flow, write);
            self.counts.forced += 1;
        }
        self.flows.remove(&place);
    }

    /// Writes everything. Without `all`, the maps are others than those that counted it.
    pub fn give_up_all(&mut self, all: Option<&[Flow]>, write: &mut dyn FnMut(T)) {
        while let Some(place) = self.flows.first_key_value().map(|(place, _)| *place) {
            self.give_up(place, all.and_then(|all| all.get(place as usize)), write);
        }
    }
}

/// Frames of a flow that are held, and the sequence up to which all is up.
fn word(flow: &Flow) -> (u32, u32) {
    split(flow.word.load(SeqCst))
}

fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn change(flow: &Flow, to: impl Fn(u32, u32) -> (u32, u32)) {
    let _ = flow.word.fetch_update(SeqCst, SeqCst, |word| {
        let (held, expected) = split(word);
        let (held, expected) = to(held, expected);
        Some(u64::from(held) << 32 | u64::from(expected))
    });
}

/// A frame is up, and everything before `end` with it. It was `counted` once, or not at all.
fn step(flow: &Flow, counted: u32, end: u32) {
    change(flow, |held, expected| {
        let further = if ahead(expected, end) > 0 { end } else { expected };
        (held.saturating_sub(counted), further)
    });
}
