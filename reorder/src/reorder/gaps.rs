// SPDX-License-Identifier: Apache-2.0
//! Sets of missing sequences, as runs.

use std::collections::VecDeque;

use crate::seq::Seq;
use crate::Nanos;

/// A run of missing sequences: from `first` on, and before `end`. It is never empty.
#[derive(Copy, Clone, Debug)]
pub(super) struct Gap {
    pub first: Seq,
    pub end: Seq,
    /// When the run was put into the set in which it is.
    pub since: Nanos,
    /// When the run was last asked for, if `tries` is not 0.
    pub asked: Nanos,
    /// How often the run was asked for.
    pub tries: u8,
}

impl Gap {
    pub fn len(&self) -> u32 {
        self.end.since(self.first) as u32
    }
}

/// Runs in the order of their sequences. No two overlap.
#[derive(Debug, Default)]
pub(super) struct Gaps(VecDeque<Gap>);

impl Gaps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn front(&self) -> Option<&Gap> {
        self.0.front()
    }

    pub fn pop_front(&mut self) -> Option<Gap> {
        self.0.pop_front()
    }

    /// Adds a run behind all others.
    pub fn push(&mut self, gap: Gap) {
        debug_assert!(gap.first.is_before(gap.end));
        debug_assert!(self.0.back().is_none_or(|last| !gap.first.is_before(last.end)));
        self.0.push_back(gap);
    }

    /// Takes the first run, or the part of it before `bound`.
    pub fn cut_front(&mut self, bound: Seq) -> Option<Gap> {
        let front = self.0.front_mut()?;
        if !front.first.is_before(bound) {
            return None;
        }
        if !bound.is_before(front.end) {
            return self.0.pop_front();
        }
        let cut = Gap { end: bound, ..*front };
        front.first = bound;
        Some(cut)
    }

    /// Removes all sequences from `bound` on.
    pub fn cut_back(&mut self, bound: Seq) {
        while let Some(last) = self.0.back_mut() {
            if last.first.is_before(bound) {
                if bound.is_before(last.end) {
                    last.end = bound;
                }
                return;
            }
            self.0.pop_back();
        }
    }

    /// Keeps the runs for which `keep` returns true. It may change everything but their sequences.
    pub fn retain(&mut self, keep: impl FnMut(&mut Gap) -> bool) {
        self.0.retain_mut(keep);
    }

    pub fn contains(&self, seq: Seq) -> bool {
        self.find(seq).is_some()
    }

    /// Takes one sequence out. False if it is not in the set.
    pub fn take(&mut self, seq: Seq) -> bool {
        let Some(at) = self.find(seq) else { return false };
        let gap = &mut self.0[at];
        let (whole, after) = (*gap, seq.next());
        if seq == whole.first {
            gap.first = after;
            if after == whole.end {
                self.0.remove(at);
            }
        } else {
            gap.end = seq;
            if after != whole.end {
                self.0.insert(at + 1, Gap { first: after, ..whole });
            }
        }
        true
    }

    fn find(&self, seq: Seq) -> Option<usize> {
        // Links keep their order, so a frame that is late is nearly always in the first run.
        let front = self.0.front()?;
        let at = if seq.is_before(front.end) {
            0
        } else {
            self.0.partition_point(|gap| !seq.is_before(gap.end))
        };
        let gap = self.0.get(at)?;
        (!seq.is_before(gap.first)).then_some(at)
    }
}
