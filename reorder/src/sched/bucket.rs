// SPDX-License-Identifier: Apache-2.0
//! A token bucket that loses no fraction of a byte and survives any clock.

use crate::Nanos;

/// Nano-bytes in a byte. At one byte per second a nanosecond is worth one nano-byte, so refilling
/// needs no division.
const NANO: i64 = 1_000_000_000;
/// The depth of the deepest bucket, in bytes. It keeps credit, and what is added to it, far inside
/// an `i64`.
const MAX_DEPTH: u64 = 1 << 32;

/// Credit in bytes that grows at a rate, up to a depth.
///
/// Invariants: `credit <= depth`, whatever the clock does. Only a clock that goes forward gives
/// credit. `credit > -(2^32)` bytes, so a debt is paid in bounded time at any rate but 0.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u64,
    /// Nanoseconds per nano-byte. Kept because the choice of a link would divide by the rate, once
    /// for each link and frame.
    pace: f64,
    depth: i64,
    credit: i64,
    last: Nanos,
}

impl Bucket {
    /// A full bucket of `depth` bytes that is refilled with `rate` bytes per second.
    pub fn new(now: Nanos, rate: u64, depth: u64) -> Self {
        let depth = nano(depth);
        Self { rate, pace: 1.0 / rate as f64, depth, credit: depth, last: now }
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Goes on with another rate (bytes per second) and depth (bytes). What was earned until `now`
    /// counts at the old rate.
    pub fn set(&mut self, now: Nanos, rate: u64, depth: u64) {
        self.refill(now);
        (self.rate, self.pace) = (rate, 1.0 / rate as f64);
        self.depth = nano(depth);
        self.credit = self.credit.min(self.depth);
    }

    /// Adds what was earned since the last call. A clock that was set back earns nothing, and earns
    /// again from there on.
    pub fn refill(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.last);
        self.last = now;
        let earned = i64::try_from(passed.saturating_mul(self.rate)).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(earned).min(self.depth);
    }

    /// Whether a frame may be sent now. Any credit at all will do: the frame may leave a debt.
    pub fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Pays for `bytes`.
    pub fn spend(&mut self, bytes: usize) {
        self.credit = (self.credit - nano(bytes as u64)).max(-nano(MAX_DEPTH));
    }

    /// Pays for `bytes` as far as there is credit: it makes no debt, and adds to none.
    pub fn use_up(&mut self, bytes: usize) {
        let rest = (self.credit - nano(bytes as u64)).max(0);
        self.credit = self.credit.min(rest);
    }

    /// When there will be credit: `now` if there is some, `Nanos::MAX` at rate 0. To be called
    /// after `refill(now)`.
    pub fn ready_at(&self, now: Nanos) -> Nanos {
        if self.has_credit() {
            return now;
        }
        let missing = (1 - self.credit) as u64;
        match self.rate {
            0 => Nanos::MAX,
            rate => now.saturating_add(missing.div_ceil(rate)),
        }
    }

    /// Nanoseconds at this rate until the bucket would be full, if `bytes` more were spent: the
    /// time that a link takes to carry what was put on it. `Nanos::MAX` at rate 0.
    pub fn time_to_full(&self, bytes: usize) -> Nanos {
        let missing = self.depth - self.credit + nano(bytes as u64);
        match (missing, self.rate) {
            (0, _) => 0,
            (_, 0) => Nanos::MAX,
            _ => (missing as f64 * self.pace) as Nanos,
        }
    }
}

/// `bytes` in nano-bytes.
fn nano(bytes: u64) -> i64 {
    bytes.min(MAX_DEPTH) as i64 * NANO
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn begins_full_and_lets_one_frame_leave_a_debt() {
        let mut bucket = Bucket::new(0, 1_000, 10);
        bucket.spend(9);
        assert!(bucket.has_credit());
        bucket.spend(1_000);
        assert!(!bucket.has_credit());
        // There are 999 bytes of debt, and a billionth of a byte more.
        assert_eq!(bucket.ready_at(0), 999_000_001);
        bucket.refill(999_000_000);
        assert!(!bucket.has_credit());
        bucket.refill(999_000_001);
        assert!(bucket.has_credit());
    }

    #[test]
    fn a_clock_that_jumps_gives_no_burst_and_no_stall() {
        let mut bucket = Bucket::new(1 << 60, 1_000_000, 6_000);
        bucket.spend(7_000);
        bucket.refill(5); // back by decades
        assert_eq!(bucket.ready_at(5), 5 + 1_000_001);
        bucket.refill(1_000_006);
        assert!(bucket.has_credit());
        bucket.refill(Nanos::MAX);
        assert_eq!(bucket.time_to_full(0), 0);
        bucket.spend(6_000);
        assert!(!bucket.has_credit());
    }

    #[test]
    fn rate_zero_never_gets_ready_and_starts_when_it_is_given_a_rate() {
        let mut bucket = Bucket::new(0, 0, 100);
        bucket.spend(200);
        bucket.refill(u64::MAX / 2);
        assert_eq!(bucket.ready_at(u64::MAX / 2), Nanos::MAX);
        assert_eq!(bucket.time_to_full(1), Nanos::MAX);
        let now = u64::MAX / 2;
        bucket.set(now, 1_000, 100);
        assert_eq!(bucket.ready_at(now), now + 100_000_001);
    }

    proptest! {
        /// To the byte, never more is sent than the rate allows, plus the depth and one frame.
        #[test]
        fn never_more_than_rate_and_depth(
            rate in 1u64..2_000_000_000,
            frames in prop::collection::vec((0u64..2_000_000, 60usize..1_514), 1..200),
        ) {
            let depth = 6_056;
            let mut bucket = Bucket::new(0, rate, depth);
            let (mut now, mut sent) = (0u64, 0u64);
            for (wait, bytes) in frames {
                now += wait;
                bucket.refill(now);
                if bucket.has_credit() {
                    bucket.spend(bytes);
                    sent += bytes as u64;
                }
                let allowed =
                    u128::from(now) * u128::from(rate) / 1_000_000_000 + u128::from(depth) + 1_514;
                prop_assert!(u128::from(sent) <= allowed, "{sent} sent, {allowed} allowed");
            }
        }

        /// A sender that always has something gets exactly the whole rate, however often the bucket
        /// is looked at.
        #[test]
        fn gets_the_whole_rate(
            rate in 1_000u64..1_000_000_000,
            steps in prop::collection::vec(1u64..100_000, 50..300),
        ) {
            let mut bucket = Bucket::new(0, rate, 10_000);
            let (mut now, mut sent) = (0u64, 0u64);
            for step in steps {
                let until = now + step;
                while bucket.ready_at(now) <= until {
                    now = bucket.ready_at(now);
                    bucket.refill(now);
                    bucket.spend(1_000);
                    sent += 1_000;
                }
                now = until;
                bucket.refill(now);
            }
            let earned = u128::from(now) * u128::from(rate) / 1_000_000_000 + 10_000;
            prop_assert!(u128::from(sent) + 1 >= earned, "{sent} sent of {earned}");
        }

        #[test]
        fn any_order_of_times_and_sizes_is_survived(
            ops in prop::collection::vec(
                (any::<u64>(), any::<u64>(), any::<u64>(), any::<usize>()),
                1..50,
            ),
        ) {
            let mut bucket = Bucket::new(0, 1, 1);
            for (now, rate, depth, bytes) in ops {
                bucket.set(now, rate, depth);
                prop_assert!(
                    bucket.time_to_full(0) == 0 || bucket.credit < bucket.depth || rate == 0
                );
                bucket.spend(bytes);
                let ready = bucket.ready_at(now);
                prop_assert!(ready >= now);
                if ready != Nanos::MAX {
                    bucket.refill(ready);
                    prop_assert!(bucket.has_credit() || depth == 0);
                }
            }
        }
    }
}
