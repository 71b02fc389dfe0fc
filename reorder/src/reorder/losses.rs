// SPDX-License-Identifier: Apache-2.0
//! Which sequences are missing, which of them are lost, and what is done about it.

use super::gaps::{Gap, Gaps};
use super::{Policy, MAX_RANGE, MAX_RANGES};
use crate::seq::Seq;
use crate::Nanos;

/// The missing sequences of a session. Times are those of the buffer's own clock.
///
/// Invariant: all of `wanted` comes before all of `missing`. In both, `since` never falls from one
/// run to the next, because what is behind was missed later. So what the rule calls lost is always
/// a first part of `missing`.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Sequences that did not arrive, and about which nothing is decided.
    missing: Gaps,
    /// Sequences that are lost, and asked for.
    wanted: Gaps,
    /// When `wanted` has to be looked at again.
    due: Nanos,
    /// When a link last died.
    gone_at: Option<Nanos>,
}

impl Losses {
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.wanted.is_empty()
    }

    /// The first missing sequence.
    pub fn first(&self) -> Option<Seq> {
        self.wanted.front().or_else(|| self.missing.front()).map(|gap| gap.first)
    }

    /// The sequences from `first` on and before `end` (at least one) are missing. They come after
    /// all that were added before.
    pub fn miss(&mut self, now: Nanos, first: Seq, end: Seq) {
        self.missing.push(Gap { first, end, since: now, asked: 0, tries: 0 });
    }

    pub fn contains(&self, seq: Seq) -> bool {
        self.wanted.contains(seq) || self.missing.contains(seq)
    }

    /// A missing frame arrived. False if it was not missing.
    pub fn take(&mut self, seq: Seq) -> bool {
        self.wanted.take(seq) || self.missing.take(seq)
    }

    pub fn link_died(&mut self, now: Nanos) {
        self.gone_at = Some(now);
    }

    /// Gives up the first run. Returns the sequence behind it, and how many frames it had.
    pub fn give_up_first(&mut self) -> Option<(Seq, u32)> {
        let gap = self.wanted.pop_front().or_else(|| self.missing.pop_front())?;
        Some((gap.end, gap.len()))
    }

    /// Gives up everything before `bound`. Returns how many frames that are.
    pub fn give_up_before(&mut self, bound: Seq) -> u32 {
        let mut lost = 0;
        for gaps in [&mut self.wanted, &mut self.missing] {
            while let Some(gap) = gaps.cut_front(bound) {
                lost += gap.len();
            }
        }
        lost
    }

    /// Sequences from `bound` on are not missing: they were never sent.
    pub fn withdraw(&mut self, bound: Seq) {
        self.missing.cut_back(bound);
        self.wanted.cut_back(bound);
    }

    /// Applies the loss rule: everything before `horizon` is lost, and so is what silent links have
    /// held up too long. It is wanted from now on, or given up. Returns how many frames are given
    /// up.
    pub fn decide(&mut self, now: Nanos, horizon: Option<Seq>, policy: &Policy) -> u32 {
        let mut lost = 0;
        while let Some(first) = self.missing.front() {
            let bound = if now - first.since >= policy.skew_ns { Some(first.end) } else { horizon };
            let Some(mut gap) = bound.and_then(|bound| self.missing.cut_front(bound)) else {
                break;
            };
            let orphan =
                self.gone_at.is_some_and(|at| gap.since <= at.saturating_add(policy.give_up_ns));
            if policy.tries == 0 || !(policy.repair || policy.repair_dead && orphan) {
                lost += gap.len();
                continue;
            }
            self.due = now;
            gap.since = now;
            while gap.len() > u32::from(MAX_RANGE) {
                let end = gap.first.add(MAX_RANGE.into());
                self.wanted.push(Gap { end, ..gap });
                gap.first = end;
            }
            self.wanted.push(gap);
        }
        lost
    }

    /// Asks for what is wanted, and gives up what did not arrive in time. Returns how many frames
    /// are given up.
    pub fn chase(&mut self, now: Nanos, policy: &Policy, ask: &mut Vec<(Seq, u16)>) -> u32 {
        if self.wanted.is_empty() || now < self.due {
            return 0;
        }
        let (mut lost, mut due) = (0, Nanos::MAX);
        self.wanted.retain(|gap| {
            let may_ask = gap.tries == 0 || now - gap.asked >= policy.retry_ns;
            if now - gap.since >= policy.give_up_ns || may_ask && gap.tries >= policy.tries {
                lost += gap.len();
                return false;
            }
            let asked = may_ask && add_range(ask, gap);
            if asked {
                gap.tries += 1;
                gap.asked = now;
            }
            // What did not fit into the request is asked for in the next.
            let again =
                if may_ask && !asked { now } else { gap.asked.saturating_add(policy.retry_ns) };
            due = due.min(again).min(gap.since.saturating_add(policy.give_up_ns));
            true
        });
        self.due = due;
        lost
    }

    /// When there is something to decide or to ask for, if nothing arrives until then.
    pub fn next_due(&self, policy: &Policy) -> Option<Nanos> {
        let decide = self.missing.front().map(|gap| gap.since.saturating_add(policy.skew_ns));
        let chase = (!self.wanted.is_empty()).then_some(self.due);
        decide.into_iter().chain(chase).min()
    }
}

/// Adds a run to a request; if it follows the last range there, to that. False if the request is
/// full.
fn add_range(ask: &mut Vec<(Seq, u16)>, gap: &Gap) -> bool {
    let len = gap.len() as u16;
    if let Some((first, count)) = ask.last_mut() {
        if first.add((*count).into()) == gap.first && count.saturating_add(len) <= MAX_RANGE {
            *count += len;
            return true;
        }
    }
    if ask.len() >= MAX_RANGES {
        return false;
    }
    ask.push((gap.first, len));
    true
}
