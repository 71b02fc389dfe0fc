// SPDX-License-Identifier: Apache-2.0
//! Measures a rate.

use super::MS;
use crate::Nanos;

const METER_NS: Nanos = 10 * MS;

/// Measures a rate over some tens of milliseconds.
///
/// Invariant: `bytes` were counted since `since_ns`; `rate_bps` is of the time before that.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    bytes: u64,
    since_ns: Nanos,
    rate_bps: f64,
}

impl Meter {
    /// Counts bytes.
    pub(super) fn count(&mut self, now: Nanos, bytes: usize) {
        self.measure(now);
        self.bytes += bytes as u64;
    }

    /// Bits per second, over the last tens of milliseconds.
    pub(super) fn rate_bps(&mut self, now: Nanos) -> f64 {
        self.measure(now);
        self.rate_bps
    }

    fn measure(&mut self, now: Nanos) {
        let passed_ns = now.saturating_sub(self.since_ns);
        if passed_ns >= METER_NS {
            let measured = self.bytes as f64 * 8e9 / passed_ns as f64;
            // After a pause the new rate counts alone: traffic that begins or ends is seen at
            // once. Otherwise the rate is smoothed.
            self.rate_bps =
                if passed_ns > 4 * METER_NS { measured } else { 0.5 * (measured + self.rate_bps) };
            self.bytes = 0;
            self.since_ns = now;
        }
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self { since_ns, bytes: _, rate_bps: _ } = self;
        *since_ns = (*since_ns).min(now);
    }
}
