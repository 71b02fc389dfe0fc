// SPDX-License-Identifier: Apache-2.0
//! How much of a NIC's traffic comes from hosts without a helper: what the kernel counted, less
//! what helpers sent.

use super::Settings;
use crate::Nanos;

/// Samples that are closer together than this (ns) are too noisy.
const CLOSEST: Nanos = 4_000_000;
/// Time constants in ns. A sender that grows is noticed soon; one that pauses does not lose its
/// share at once.
const RISE: f64 = 20e6;
const FALL: f64 = 40e6;
/// Traffic below this part of the NIC's rate gets no room: it is broadcasts, and heartbeats of
/// others.
const IGNORED: f64 = 0.005;

/// With each sample, one part in this many of an excess that proved to be none is forgiven.
const FORGIVEN: i64 = 200;

/// Measures one NIC.
///
/// The kernel counts frames before the helper does. So the difference of the two, which should only
/// ever grow, jumps up by what waits in between, and falls again. Therefore a sample counts as no
/// more than the one after it, and only what exceeds all that was counted before is new. Noise of
/// some size then costs its size once, and not with each sample.
#[derive(Debug, Default)]
pub struct Foreign {
    managed: u64,
    total: u64,
    /// The time, and all bytes less those of helpers; the oldest sample first.
    samples: [Option<(Nanos, i64)>; 3],
    /// The difference up to which bytes were counted; none before the third sample.
    counted: Option<i64>,
    bps: f64,
}

impl Foreign {
    /// Counts a frame of a helper.
    pub fn managed(&mut self, bytes: u64) {
        self.managed = self.managed.wrapping_add(bytes);
    }

    /// Takes the kernel's count. If it went back, or the clock did, the measurement starts again.
    pub fn total(&mut self, now: Nanos, rx_bytes: u64) {
        let newest = self.samples[2].map(|(at, _)| at);
        if newest.is_some_and(|at| now < at) || rx_bytes < self.total {
            (self.samples, self.counted) = ([None; 3], None);
        } else if newest.is_some_and(|at| now - at < CLOSEST) {
            return;
        }
        self.total = rx_bytes;
        let sample = (now, rx_bytes.wrapping_sub(self.managed) as i64);
        let [_, first, second] = self.samples;
        self.samples = [first, second, Some(sample)];
        if let [Some((from, first)), Some((to, second)), Some((_, third))] = self.samples {
            let excess = second.min(third);
            let counted = self.counted.get_or_insert(first.min(excess));
            let new = excess.saturating_sub(*counted);
            *counted += if new > 0 { new } else { new / FORGIVEN };
            self.smooth((to - from) as f64, new.max(0) as f64);
        }
    }

    /// `bytes` arrived within `passed` ns.
    fn smooth(&mut self, passed: f64, bytes: f64) {
        let now_bps = bytes * 8e9 / passed;
        let constant = if now_bps > self.bps { RISE } else { FALL };
        self.bps += (now_bps - self.bps) * (1.0 - (-passed / constant).exp());
    }

    /// Bit/s, smoothed.
    pub fn bps(&self) -> f64 {
        self.bps
    }

    /// Bit/s for which this traffic competes on a NIC of `capacity_bps`. It may grow like a peer;
    /// too little traffic counts as none.
    pub fn wants(&self, capacity_bps: f64, settings: &Settings) -> f64 {
        if self.bps < IGNORED * capacity_bps {
            return 0.0;
        }
        self.bps * settings.growth + settings.floor * capacity_bps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const GIGABIT: f64 = 1e9;

    /// Runs 10 ms of traffic for each entry: bytes of helpers, bytes of others, and bytes of
    /// helpers that the helper has not read yet.
    fn run(
        foreign: &mut Foreign,
        begin: Nanos,
        intervals: impl IntoIterator<Item = (u64, u64, u64)>,
    ) {
        let (mut managed, mut total) = (foreign.managed, foreign.total);
        for (n, (own, other, unread)) in intervals.into_iter().enumerate() {
            managed += own;
            total += own + other;
            foreign.managed = managed.saturating_sub(unread);
            foreign.total(begin + n as u64 * 10 * MS, total);
        }
    }

    #[test]
    fn measures_what_helpers_did_not_send_and_forgets_it_in_100_ms() {
        let mut foreign = Foreign::default();
        run(&mut foreign, 0, [(500_000, 250_000, 0); 30]);
        assert!((foreign.bps() / 200e6 - 1.0).abs() < 0.05, "{}", foreign.bps());
        let settings = Settings::default();
        assert!((foreign.wants(GIGABIT, &settings) / 270e6 - 1.0).abs() < 0.05);
        run(&mut foreign, 300 * MS, [(500_000, 0, 0); 12]);
        assert!(foreign.bps() < 0.1 * 200e6, "{}", foreign.bps());
        run(&mut foreign, 420 * MS, [(500_000, 0, 0); 20]);
        assert_eq!(foreign.wants(GIGABIT, &settings), 0.0);
    }

    #[test]
    fn frames_that_wait_to_be_read_are_no_foreign_traffic() {
        let mut foreign = Foreign::default();
        // Up to 64 full frames that the kernel counted and the helper did not read yet, in no
        // order.
        let unread = (0..400u64).map(|n| (1_000_000, 0, n * 7_919 % 65 * 1_514));
        let mut worst = 0.0;
        for (n, interval) in unread.enumerate() {
            run(&mut foreign, n as u64 * 10 * MS, [interval]);
            foreign.managed += interval.2;
            worst = if n < 50 { 0.0 } else { f64::max(worst, foreign.bps()) };
        }
        assert!(worst < IGNORED * GIGABIT, "{worst}");
    }

    #[test]
    fn what_the_kernel_did_not_count_hides_no_foreign_traffic_for_long() {
        let mut foreign = Foreign::default();
        run(&mut foreign, 0, [(500_000, 0, 0); 10]);
        foreign.managed += 100_000_000;
        run(&mut foreign, 100 * MS, [(500_000, 0, 0); 2_000]);
        run(&mut foreign, 20_100 * MS, [(500_000, 250_000, 0); 30]);
        assert!((foreign.bps() / 200e6 - 1.0).abs() < 0.05, "{}", foreign.bps());
    }

    #[test]
    fn a_counter_or_a_clock_that_starts_again_measures_again() {
        let mut foreign = Foreign::default();
        run(&mut foreign, 1_000 * MS, [(0, 250_000, 0); 30]);
        let before = foreign.bps();
        foreign.total(1_300 * MS, 5);
        foreign.total(7, 5);
        foreign.total(8, u64::MAX);
        foreign.total(u64::MAX, u64::MAX);
        assert!((foreign.bps() - before).abs() < 1.0);
        foreign.total = 0;
        run(&mut foreign, 10 * MS, [(0, 125_000, 0); 40]);
        assert!((foreign.bps() / 100e6 - 1.0).abs() < 0.05, "{}", foreign.bps());
    }
}
