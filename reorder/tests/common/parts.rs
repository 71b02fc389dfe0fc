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
    pub(super) next: u64,
}

/// The frames of one host that another one's helper delivered.
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

impl World {
    /// Frames that switches and NICs dropped for lack of room.
    pub fn drops(&self) -> u64 {
        self.ports.iter().map(|port| port.drops).sum()
    }

    /// Begins to count anew. Sequences go on.
    pub fn clear(&mut self) {
        for seen in self.received.values_mut() {
            *seen = Received { next: seen.next, last_ns: self.now, ..Received::default() };
        }
    }

    /// bit/s of frames with payload that `to` received from `from` since `clear`, which was `since`
    /// ns ago.
    pub fn rate_bps(&self, from: usize, to: usize, since: Nanos) -> f64 {
        self.received.get(&(from, to)).map_or(0.0, |seen| seen.bytes as f64 * 8e9 / since as f64)
    }
}
