// SPDX-License-Identifier: Apache-2.0
//! Frames of one peer that wait for credit: first in, first out. CoDel (RFC 8289) with ECN keeps
//! the queue short.

use std::collections::VecDeque;

use crate::Nanos;

/// How long and how large a queue may get.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Frames may wait for this long (ns) all the time.
    pub target_ns: Nanos,
    /// The wait must have been longer than `target_ns` for this long (ns) before the first frame is
    /// marked or dropped.
    pub interval_ns: Nanos,
    /// The most frames.
    pub max_frames: usize,
    /// The most bytes.
    pub max_bytes: usize,
    /// A queue with no more bytes than one full frame is never too long.
    pub full_frame: usize,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            target_ns: 5_000_000,
            interval_ns: 100_000_000,
            max_frames: 4_096,
            max_bytes: 8 << 20,
            full_frame: 1_514,
        }
    }
}

/// A queue of frames.
///
/// Invariants: there are never more frames or bytes than the settings say. `bytes` is the sum over
/// the frames. Frames leave in the order in which they arrived. CoDel takes frames from the head,
/// and never from a queue of one full frame's bytes.
#[derive(Debug)]
pub struct Queue {
    settings: QueueSettings,
    frames: VecDeque<(Nanos, Vec<u8>)>,
    bytes: usize,
    /// When the wait will have been too long for a whole interval; none while it is short enough.
    first_above: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
    drops: u64,
    marks: u64,
}

impl Queue {
    /// An empty queue.
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            frames: VecDeque::new(),
            bytes: 0,
            first_above: None,
            dropping: false,
            drop_next: 0,
            count: 0,
            last_count: 0,
            drops: 0,
            marks: 0,
        }
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size in bytes of the frame at the head.
    pub fn head_bytes(&self) -> Option<usize> {
        self.frames.front().map(|(_, frame)| frame.len())
    }

    /// Nanoseconds that it takes to send everything that waits at `rate_bps` bit/s; `Nanos::MAX` at
    /// rate 0.
    pub fn backlog_ns(&self, rate_bps: u64) -> Nanos {
        if self.bytes == 0 {
            return 0;
        }
        let bits = self.bytes as u128 * 8 * 1_000_000_000;
        bits.checked_div(u128::from(rate_bps))
            .map_or(Nanos::MAX, |ns| ns.min(u128::from(Nanos::MAX)) as Nanos)
    }

    /// Frames that were dropped since the queue was made, because they waited too long or the queue
    /// was full.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Frames that were marked (ECN, congestion experienced) instead of dropped.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Puts a frame (from its Ethernet header on) at the end. If the queue is full, gives it back,
    /// which counts as a drop.
    pub fn push(&mut self, now: Nanos, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.frames.len() >= self.settings.max_frames
            || self.bytes + frame.len() > self.settings.max_bytes
        {
            self.drops += 1;
            return Err(frame);
        }
        self.bytes += frame.len();
        self.frames.push_back((now, frame));
        Ok(())
    }

    /// Takes the frame that is to be sent now. Frames that CoDel drops before it go to `dropped`,
    /// for reuse.
    pub fn pop(&mut self, now: Nanos, mut dropped: impl FnMut(Vec<u8>)) -> Option<Vec<u8>> {
        let Some((mut frame, mut too_long)) = self.take(now) else {
            self.dropping = false;
            return None;
        };
        if !self.dropping {
            if too_long {
                // It drops again soon after the last time, so it goes on about where it was: the
                // senders have not changed much.
                let since = now.saturating_sub(self.drop_next);
                let again = self.count.saturating_sub(self.last_count);
                self.count =
                    if again > 1 && since < 16 * self.settings.interval_ns { again } else { 1 };
                self.last_count = self.count;
                self.dropping = true;
                self.drop_next = self.control_law(now);
                (frame, _) = self.punish(now, frame, &mut dropped)?;
            }
            return Some(frame);
        }
        if !too_long {
            self.dropping = false;
        }
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            let marked = self.marks;
            (frame, too_long) = self.punish(now, frame, &mut dropped)?;
            if self.marks > marked {
                self.drop_next = self.control_law(self.drop_next);
                break;
            }
            if too_long {
                self.drop_next = self.control_law(self.drop_next);
            } else {
                self.dropping = false;
            }
        }
        Some(frame)
    }

    /// Takes the oldest frame to make room, which counts as a drop.
    pub fn drop_head(&mut self) -> Option<Vec<u8>> {
        let (_, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len();
        self.drops += 1;
        Some(frame)
    }

    /// Takes everything, oldest first: the peer is gone.
    pub fn drain(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.bytes = 0;
        self.first_above = None;
        self.dropping = false;
        self.frames.drain(..).map(|(_, frame)| frame)
    }

    /// Marks `frame`, or drops it and takes the next one.
    fn punish(
        &mut self,
        now: Nanos,
        mut frame: Vec<u8>,
        dropped: &mut impl FnMut(Vec<u8>),
    ) -> Option<(Vec<u8>, bool)> {
        if mark_congestion(&mut frame) {
            self.marks += 1;
            return Some((frame, true));
        }
        self.drops += 1;
        dropped(frame);
        let next = self.take(now);
        if next.is_none() {
            self.dropping = false;
        }
        next
    }

    /// The head, and whether the wait has been too long for a whole interval.
    fn take(&mut self, now: Nanos) -> Option<(Vec<u8>, bool)> {
        let Some((since, frame)) = self.frames.pop_front() else {
            self.first_above = None;
            return None;
        };
        self.bytes -= frame.len();
        // After the clock was set back, waits look short until the frames from before are gone.
        if now.saturating_sub(since) < self.settings.target_ns
            || self.bytes <= self.settings.full_frame
        {
            self.first_above = None;
            return Some((frame, false));
        }
        let deadline = now.saturating_add(self.settings.interval_ns);
        // A deadline further away than an interval is from before the clock was set back.
        match self.first_above {
            Some(first) if first <= deadline => Some((frame, now >= first)),
            _ => {
                self.first_above = Some(deadline);
                Some((frame, false))
            }
        }
    }

    /// When the next frame is marked or dropped, after one was at `then`.
    fn control_law(&self, then: Nanos) -> Nanos {
        then.saturating_add(
            (self.settings.interval_ns as f64 / f64::from(self.count.max(1)).sqrt()) as Nanos,
        )
    }
}

/// Sets "congestion experienced" in the IPv4 or IPv6 header of a frame that begins with its
/// Ethernet header, with or without a VLAN tag. False if the packet cannot carry the mark: it is
/// not IP, or not ECN-capable.
pub fn mark_congestion(frame: &mut [u8]) -> bool {
    let (ethertype, ip) = match frame.get(12..14) {
        Some([0x81, 0x00]) => (frame.get(16..18), 18),
        other => (other, 14),
    };
    match ethertype {
        Some([0x08, 0x00]) => frame.get_mut(ip..ip + 20).is_some_and(mark_ipv4),
        Some([0x86, 0xdd]) => frame.get_mut(ip..ip + 40).is_some_and(mark_ipv6),
        _ => false,
    }
}

fn mark_ipv4(header: &mut [u8]) -> bool {
    if header[0] >> 4 != 4 || header[1] & 3 == 0 {
        return false;
    }
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= 3;
    let after = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m')
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    true
}

fn mark_ipv6(header: &mut [u8]) -> bool {
    if header[0] >> 4 != 6 || header[1] >> 4 & 3 == 0 {
        return false;
    }
    header[1] |= 0x30;
    true
}

#[cfg(test)]
mod tests;
