// SPDX-License-Identifier: Apache-2.0
//! The parts of a simulated network.

use super::{Nanos, World};

/// A deterministic stream of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn chance(&mut self, percent: f64) -> bool {
        percent > 0.0 && (self.next() % 1_000_000) as f64 / 10_000.0 < percent
    }
}

/// What is wrong with a link, from one NIC (host, port) to another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    pub blackhole: bool,
    pub loss_percent: f64,
    pub duplicate_percent: f64,
    pub corrupt_percent: f64,
    pub delay_ns: Nanos,
}

/// What a host sends to another.
pub struct Source {
    pub from: usize,
    pub to: usize,
    /// Frames per second; 0: as many as the helper takes.
    pub pps: u64,
    pub size: usize,
    pub on: bool,
    /// The channel of its frames; 0 for no job.
    pub channel: u8,
    /// Its frames that were delivered.
    pub seen: Received,
    /// When they were delivered, and how many bytes they had, if a test wants to know.
    pub log: Option<Vec<(Nanos, usize)>>,
    pub(super) next: u64,
}

/// Frames that a helper delivered.
#[derive(Default, Debug, Clone)]
pub struct Received {
    pub frames: u64,
    pub bytes: u64,
    pub lost: u64,
    pub out_of_order: u64,
    pub duplicates: u64,
    pub longest_gap_ns: Nanos,
    pub last_ns: Nanos,
    pub(super) next: u64,
}

impl Received {
    /// A frame with number `count` of its source was delivered.
    pub(super) fn take(&mut self, now: Nanos, count: u64, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
        if self.last_ns > 0 {
            self.longest_gap_ns = self.longest_gap_ns.max(now - self.last_ns);
        }
        self.last_ns = now;
        if count < self.next {
            self.out_of_order += 1;
        } else {
            self.lost += count - self.next;
            self.next = count + 1;
        }
    }

    /// Begins to count anew. Sequences go on.
    fn clear(&mut self, now: Nanos) {
        *self = Received { next: self.next, last_ns: now, ..Received::default() };
    }
}

impl Source {
    /// bit/s of its frames that were delivered since `clear`, which was `since` ns ago.
    pub fn rate_bps(&self, since: Nanos) -> f64 {
        self.seen.bytes as f64 * 8e9 / since as f64
    }

    /// The most bit/s that were delivered over any time of one second.
    pub fn highest_bps(&self) -> f64 {
        let log = self.log.as_deref().unwrap_or_default();
        let (mut first, mut bytes, mut most) = (0, 0, 0);
        for (at, size) in log {
            bytes += size;
            while at - log[first].0 > super::S {
                bytes -= log[first].1;
                first += 1;
            }
            most = most.max(bytes);
        }
        most as f64 * 8.0
    }
}

impl World {
    /// Frames that switches and NICs dropped for lack of room.
    pub fn drops(&self) -> u64 {
        self.ports.iter().map(|port| port.drops).sum()
    }

    /// Begins to count anew. Sequences go on.
    pub fn clear(&mut self) {
        self.carried.clear();
        for source in &mut self.sources {
            source.seen.clear(self.now);
        }
        for seen in self.received.values_mut() {
            seen.clear(self.now);
        }
    }

    /// bit/s of frames with payload that `to` received from `from` since `clear`, which was `since`
    /// ns ago.
    pub fn rate_bps(&self, from: usize, to: usize, since: Nanos) -> f64 {
        self.received.get(&(from, to)).map_or(0.0, |seen| seen.bytes as f64 * 8e9 / since as f64)
    }
}
