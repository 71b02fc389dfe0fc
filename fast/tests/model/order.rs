// SPDX-License-Identifier: Apache-2.0
//! How TCP that comes in is put in order, and the helper's part of it.

use std::collections::{BTreeMap, VecDeque};

use super::Segment;

const FAR: u32 = 4 << 20;
const MOST_HELD: u32 = 4096;

/// How far a sequence number is ahead of another one.
pub fn ahead(one: u32, other: u32) -> i32 {
    one.wrapping_sub(other) as i32
}

/// What is known of a connection in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0: nobody's.
    pub key: u64,
    pub expected: u32,
    pub held: u32,
    pub least: u32,
    /// What came last.
    pub ends: BTreeMap<u8, u32>,
}

/// Where a segment goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Up,
    Early,
    Crowded,
    Far,
    Full,
}

impl Place {
    /// A segment of a connection comes over a lane. `is_idle`: nothing came for a second.
    pub fn see(&mut self, key: u64, segment: Segment, lane: u8, is_idle: bool) -> Verdict {
        let Segment { start, end, flags } = segment;
        let (is_syn, is_reset) = (flags & 2 != 0, flags & 4 != 0);
        if is_syn && key == self.key && self.held == 0 {
            self.expected = end.wrapping_add(1);
            self.ends.clear();
        }
        if is_syn || is_reset || start == end {
            return Verdict::Up;
        }
        if key != self.key {
            if self.key != 0 && (self.held > 0 || !is_idle) {
                return Verdict::Crowded;
            }
            (self.key, self.expected) = (key, end);
        } else if ahead(start, self.expected).unsigned_abs() > FAR {
            if self.held > 0 || !is_idle {
                return Verdict::Far;
            }
            self.expected = end;
        } else if ahead(end, self.expected) > 0 {
            let ends_a_gap = self.held > 0 && ahead(end, self.least) >= 0;
            if ahead(start, self.expected) <= 0 && !ends_a_gap {
                self.expected = end;
            } else if self.held == MOST_HELD {
                self.mark(lane, end);
                return Verdict::Full;
            } else {
                if self.held == 0 {
                    self.least = self.expected;
                }
                self.held += 1;
                self.mark(lane, end);
                return Verdict::Early;
            }
        }
        self.mark(lane, end);
        Verdict::Up
    }

    fn mark(&mut self, lane: u8, end: u32) {
        let last = self.ends.entry(lane).or_insert(end);
        if ahead(end, *last) > 0 {
            *last = end;
        }
    }
}

/// The helper's part for one connection: what it holds, by rising sequence.
#[derive(Debug, Default)]
pub struct Holder<T> {
    /// What the programs gave, and the helper has not read.
    pub queue: VecDeque<(Segment, T)>,
    list: Vec<(Segment, T)>,
}

impl<T> Holder<T> {
    /// Everything that was given and not sent up.
    pub fn count(&self) -> usize {
        self.queue.len() + self.list.len()
    }

    /// Reads one frame.
    pub fn read(&mut self) {
        let Some(frame) = self.queue.pop_front() else { return };
        let behind = |(one, _): &(Segment, T)| ahead(one.start, frame.0.start) <= 0;
        self.list.insert(self.list.iter().take_while(|one| behind(one)).count(), frame);
    }

    /// The next one that is in order; or any, since what is missing is lost.
    pub fn release(&mut self, expected: u32, is_lost: bool) -> Option<(Segment, T)> {
        let (first, _) = self.list.first()?;
        (is_lost || ahead(first.start, expected) <= 0).then(|| self.list.remove(0))
    }

    /// The lowest sequence number that is held.
    pub fn least(&self) -> Option<u32> {
        self.list.first().map(|(segment, _)| segment.start)
    }
}
