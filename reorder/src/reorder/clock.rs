// SPDX-License-Identifier: Apache-2.0
//! A clock that never goes back, made from one that may.

use crate::Nanos;

/// A longer step counts as this much. Nothing that is timed here lasts as long, and the sum cannot
/// overflow.
const LONGEST_STEP_NS: Nanos = 3_600_000_000_000;

/// Counts the time that passed.
///
/// A step backwards counts as nothing, and the time after it counts again. So a clock that jumps
/// does not stall a timer, and fires one early by no more than its own step forward.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    last: Nanos,
    passed: Nanos,
}

impl Clock {
    /// The time that has passed, given what the outer clock shows now.
    pub fn read(&mut self, now: Nanos) -> Nanos {
        self.passed += now.saturating_sub(self.last).min(LONGEST_STEP_NS);
        self.last = now;
        self.passed
    }

    /// The last `ns` before `now` do not count.
    pub fn skip(&mut self, now: Nanos, ns: Nanos) {
        self.last = self.last.saturating_add(ns).min(now.max(self.last));
    }

    /// What this clock showed when it was last read.
    pub fn passed(&self) -> Nanos {
        self.passed
    }

    /// What the outer clock will show when this one shows `at`.
    pub fn outer(&self, at: Nanos) -> Nanos {
        self.last.saturating_add(at.saturating_sub(self.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_back_does_not_stop_it() {
        let mut clock = Clock::default();
        clock.read(1_000);
        assert_eq!(clock.read(1_500), 1_500);
        assert_eq!(clock.read(20), 1_500);
        assert_eq!(clock.read(30), 1_510);
        assert_eq!(clock.outer(1_600), 120);
        assert_eq!(clock.outer(7), 30);
    }

    #[test]
    fn absurd_steps_do_not_overflow() {
        let mut clock = Clock::default();
        let mut last = 0;
        for turn in 0..1_000 {
            let passed = clock.read(if turn % 2 == 0 { Nanos::MAX } else { 0 });
            assert!(passed >= last);
            last = passed;
        }
        clock.read(Nanos::MAX);
        assert_eq!(clock.outer(Nanos::MAX), Nanos::MAX);
    }
}
