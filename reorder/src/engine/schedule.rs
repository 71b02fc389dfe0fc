// SPDX-License-Identifier: Apache-2.0
//! When the heartbeats to a peer are due.

use super::{FAST_NS, IDLE_NS, MS};
use crate::Nanos;

/// Heartbeats at the fast interval after the end of traffic: they show that the last frames were
/// lost.
const BEATS_AFTER: u8 = 3;
/// Heartbeats that answer somebody are at least this far apart.
const ANSWERS_NS: Nanos = MS;

/// The heartbeats that are due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// Time until the next ones, as they promise.
    pub(super) next_ns: Nanos,
    /// There is data in one of the directions.
    pub(super) active: bool,
    /// They ask for an answer.
    pub(super) reply: bool,
}

/// When heartbeats go out to a peer, over all links at the same time.
///
/// Invariant: whatever the peer asks for, no two answers are less than `ANSWERS_NS` apart.
#[derive(Debug)]
pub(super) struct BeatSchedule {
    /// When the next heartbeats are due.
    beat_at: Nanos,
    /// When the last ones went out.
    beat_ns: Nanos,
    /// They go out in this turn, whatever `beat_at` says.
    at_once: bool,
    /// The next ones ask for an answer.
    ask_reply: bool,
    /// Fast heartbeats that are left after the end of traffic.
    left: u8,
}

impl BeatSchedule {
    pub(super) fn new(now: Nanos) -> Self {
        BeatSchedule { beat_at: now, beat_ns: 0, at_once: true, ask_reply: true, left: 0 }
    }

    /// Heartbeats go out in this turn: they have something to say that must not wait.
    pub(super) fn send_at_once(&mut self) {
        self.at_once = true;
    }

    /// The next heartbeats ask for an answer.
    pub(super) fn ask_for_reply(&mut self) {
        self.ask_reply = true;
    }

    /// Heartbeats go out as an answer: at once, unless some did a moment ago. Each goes over all
    /// links, and who makes us answer need not be the peer.
    pub(super) fn answer(&mut self, now: Nanos) {
        self.beat_at = self.beat_at.min((self.beat_ns + ANSWERS_NS).max(now));
    }

    /// When heartbeats are due.
    pub(super) fn due_at(&self, now: Nanos) -> Nanos {
        if self.at_once {
            now
        } else {
            self.beat_at
        }
    }

    /// The heartbeats that are due now, if any; they count as sent. `active`: there is data in one
    /// of the directions.
    pub(super) fn take_due(&mut self, now: Nanos, active: bool) -> Option<Due> {
        if active {
            self.left = BEATS_AFTER;
        }
        if now < self.due_at(now) {
            return None;
        }
        let next_ns = if self.left > 0 { FAST_NS } else { IDLE_NS };
        if !active {
            self.left = self.left.saturating_sub(1);
        }
        self.beat_at = now + next_ns;
        self.beat_ns = now;
        self.at_once = false;
        Some(Due { next_ns, active, reply: std::mem::take(&mut self.ask_reply) })
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self { beat_at, beat_ns, at_once: _, ask_reply: _, left: _ } = self;
        *beat_at = now;
        *beat_ns = (*beat_ns).min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_fast_while_there_is_data_and_a_little_longer() {
        let mut schedule = BeatSchedule::new(0);
        let first = Due { next_ns: FAST_NS, active: true, reply: true };
        assert_eq!(schedule.take_due(0, true), Some(first));
        let mut now = 0;
        for _ in 0..BEATS_AFTER {
            assert_eq!(schedule.take_due(now + FAST_NS - 1, false), None);
            now += FAST_NS;
            let next_ns = schedule.take_due(now, false).map(|due| due.next_ns);
            assert_eq!(next_ns, Some(FAST_NS));
        }
        now += FAST_NS;
        let last = Due { next_ns: IDLE_NS, active: false, reply: false };
        assert_eq!(schedule.take_due(now, false), Some(last));
    }

    #[test]
    fn answers_are_at_least_a_millisecond_apart() {
        let mut schedule = BeatSchedule::new(0);
        assert!(schedule.take_due(IDLE_NS, false).is_some());
        let asked = IDLE_NS + ANSWERS_NS / 2;
        schedule.answer(asked);
        assert_eq!(schedule.due_at(asked), IDLE_NS + ANSWERS_NS);
        schedule.send_at_once();
        assert_eq!(schedule.due_at(asked), asked);
    }
}
