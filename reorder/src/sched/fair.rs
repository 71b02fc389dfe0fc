// SPDX-License-Identifier: Apache-2.0
//! Frames of one peer that wait for credit, by flow. Each flow has its own CoDel queue, and the
//! flows take turns (RFC 8290).
//!
//! The kernel's fq_codel cannot do this: a TAP takes frames from its queueing discipline at once,
//! and drops what its ring does not hold. So nothing ever waits in the queueing discipline.

use std::collections::VecDeque;

use super::queue::{Queue, QueueSettings};
use crate::Nanos;

/// Flows are told apart by a hash with this many values.
const FLOWS: usize = 256;
/// Bytes that a flow sends in its turn.
const QUANTUM: i64 = 1514;

/// One peer's frames.
///
/// Invariants: a flow is once in `fresh` or `old` exactly when its queue is not empty, or was not
/// yet found empty in its turn. `frames` and `bytes` are the sums over all flows, and within the
/// limits. Within a flow, frames leave in the order in which they arrived.
#[derive(Debug)]
pub struct FairQueue {
    settings: QueueSettings,
    flows: Vec<Option<Flow>>,
    /// Flows that began lately go first: this keeps the wait of a lone packet short.
    fresh: VecDeque<usize>,
    old: VecDeque<usize>,
    frames: usize,
    bytes: usize,
    drops: u64,
    marks: u64,
}

#[derive(Debug)]
struct Flow {
    queue: Queue,
    credit: i64,
    listed: bool,
}

impl FairQueue {
    /// An empty queue. `settings` hold for each flow, and the limits for all of them together, too.
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            flows: Vec::new(),
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            frames: 0,
            bytes: 0,
            drops: 0,
            marks: 0,
        }
    }

    /// Bytes that may wait from the next frame on. If more wait now, the next frame makes room.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.settings.max_bytes = max_bytes;
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frames that were dropped, because they waited too long or the queue was full.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Frames that were marked (ECN, congestion experienced) instead of dropped.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Puts a frame at the end of its flow. If there is no room, the longest flow loses its oldest
    /// frame, which goes to `dropped`.
    pub fn push(&mut self, now: Nanos, frame: Vec<u8>, mut dropped: impl FnMut(Vec<u8>)) {
        if self.flows.is_empty() {
            self.flows.resize_with(FLOWS, || None);
        }
        let place = flow_of(&frame);
        while self.frames > 0
            && (self.frames >= self.settings.max_frames
                || self.bytes + frame.len() > self.settings.max_bytes)
        {
            let Some(paid) = self.shorten() else { break };
            dropped(paid);
        }
        let flow = self.flows[place].get_or_insert_with(|| Flow {
            queue: Queue::new(self.settings.clone()),
            credit: 0,
            listed: false,
        });
        let bytes = frame.len();
        match flow.queue.push(now, frame) {
            Ok(()) => {
                self.frames += 1;
                self.bytes += bytes;
                if !flow.listed {
                    flow.listed = true;
                    flow.credit = QUANTUM;
                    self.fresh.push_back(place);
                }
            }
            Err(refused) => {
                self.drops += 1;
                dropped(refused);
            }
        }
    }

    /// Size in bytes of the next frame.
    pub fn head_bytes(&mut self) -> Option<usize> {
        let place = self.turn()?;
        self.flows[place].as_ref()?.queue.head_bytes()
    }

    /// Takes the next frame. Frames that CoDel drops before it go to `dropped`.
    pub fn pop(&mut self, now: Nanos, mut dropped: impl FnMut(Vec<u8>)) -> Option<Vec<u8>> {
        while let Some(place) = self.turn() {
            let Some(flow) = self.flows[place].as_mut() else { continue };
            let (marks, before) = (flow.queue.marks(), flow.queue.bytes());
            let (mut gone, mut frames) = (0, 0);
            let found = flow.queue.pop(now, |frame| {
                gone += 1;
                frames += 1;
                dropped(frame);
            });
            self.bytes -= before - flow.queue.bytes();
            self.drops += gone;
            self.marks += flow.queue.marks() - marks;
            self.frames -= frames + usize::from(found.is_some());
            if let Some(frame) = found {
                flow.credit -= frame.len() as i64;
                return Some(frame);
            }
        }
        None
    }

    /// Takes everything, flow by flow, each in order: the peer is gone.
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::with_capacity(self.frames);
        for flow in self.flows.iter_mut().flatten() {
            all.extend(flow.queue.drain());
            flow.listed = false;
        }
        self.fresh.clear();
        self.old.clear();
        (self.frames, self.bytes) = (0, 0);
        all
    }

    /// The flow whose turn it is; it has something to send.
    fn turn(&mut self) -> Option<usize> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh { &mut self.fresh } else { &mut self.old };
            let place = *list.front()?;
            let Some(flow) = self.flows[place].as_mut() else {
                list.pop_front();
                continue;
            };
            if flow.queue.is_empty() {
                list.pop_front();
                // A flow that was fresh stays for a round. Otherwise it could be fresh again at
                // once, and starve the others.
                if is_fresh && !self.old.is_empty() {
                    self.old.push_back(place);
                } else {
                    self.flows[place] = None;
                }
            } else if flow.credit <= 0 {
                flow.credit += QUANTUM;
                list.pop_front();
                self.old.push_back(place);
            } else {
                return Some(place);
            }
        }
    }

    /// Takes the oldest frame of the flow that holds the most bytes.
    fn shorten(&mut self) -> Option<Vec<u8>> {
        let longest = self.flows.iter_mut().flatten().max_by_key(|flow| flow.queue.bytes())?;
        let frame = longest.queue.drop_head()?;
        self.frames -= 1;
        self.bytes -= frame.len();
        self.drops += 1;
        Some(frame)
    }
}

/// The flow to which a frame belongs: by addresses, protocol and ports of IP packets, by the
/// EtherType of others.
fn flow_of(frame: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match frame.get(12..14) {
        Some([0x08, 0x00]) if frame.len() >= 34 => {
            mix(&frame[26..34]);
            mix(&frame[23..24]);
            let header = usize::from(frame[14] & 15) * 4;
            let is_first = frame[20] & 0x1f == 0 && frame[21] == 0;
            if is_first && matches!(frame[23], 6 | 17 | 132) {
                mix(frame.get(14 + header..18 + header).unwrap_or_default());
            }
        }
        Some([0x86, 0xdd]) if frame.len() >= 54 => {
            mix(&frame[22..54]);
            mix(&frame[20..21]);
            if matches!(frame[20], 6 | 17 | 132) {
                mix(frame.get(54..58).unwrap_or_default());
            }
        }
        Some(ethertype) => mix(ethertype),
        None => {}
    }
    (hash ^ hash >> 32) as usize % FLOWS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(port: u16, length: usize, mark: u8) -> Vec<u8> {
        let mut frame = vec![0; length.max(60)];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[23] = 17;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[50] = mark;
        frame
    }

    fn port(frame: &[u8]) -> u16 {
        u16::from_be_bytes([frame[34], frame[35]])
    }

    /// Ports whose flows are told apart.
    fn ports() -> Vec<u16> {
        let mut found: Vec<u16> = Vec::new();
        for port in 1..200 {
            if found
                .iter()
                .all(|other| flow_of(&packet(*other, 60, 0)) != flow_of(&packet(port, 60, 0)))
            {
                found.push(port);
            }
        }
        found
    }

    #[test]
    fn a_lone_packet_does_not_wait_behind_a_bulk_flow() {
        let ports = ports();
        let mut queue = FairQueue::new(QueueSettings::default());
        for _ in 0..100 {
            queue.push(0, packet(ports[0], 1514, 0), |_| panic!("dropped"));
        }
        queue.pop(0, drop).unwrap();
        queue.push(0, packet(ports[1], 98, 0), |_| panic!("dropped"));
        assert!(
            (0..2).any(|_| port(&queue.pop(0, drop).unwrap()) == ports[1]),
            "among the next two"
        );
    }

    #[test]
    fn a_lower_limit_counts_from_the_next_frame_on() {
        let mut queue = FairQueue::new(QueueSettings::default());
        for _ in 0..100 {
            queue.push(0, packet(1, 1000, 0), |_| panic!("dropped"));
        }
        queue.set_max_bytes(10_000);
        assert_eq!(queue.bytes(), 100_000);
        let mut dropped = 0;
        queue.push(0, packet(1, 1000, 0), |_| dropped += 1);
        assert_eq!((dropped, queue.bytes(), queue.len()), (91, 10_000, 10));
    }

    #[test]
    fn flows_share_bytes_whatever_their_frames() {
        let ports = ports();
        let mut queue = FairQueue::new(QueueSettings::default());
        for _ in 0..2000 {
            queue.push(0, packet(ports[0], 1514, 0), |_| panic!("dropped"));
            queue.push(0, packet(ports[1], 200, 0), |_| panic!("dropped"));
        }
        let mut sent = [0; 2];
        for _ in 0..1000 {
            let frame = queue.pop(0, drop).unwrap();
            sent[usize::from(port(&frame) == ports[1])] += frame.len();
        }
        assert!(sent[0].abs_diff(sent[1]) < 4000, "{sent:?}");
    }

    #[test]
    fn a_flow_that_empties_its_queue_and_comes_back_takes_no_more_than_its_turn() {
        let ports = ports();
        let mut queue = FairQueue::new(QueueSettings::default());
        for _ in 0..2000 {
            queue.push(0, packet(ports[0], 200, 0), |_| panic!("dropped"));
        }
        let mut sent = [0; 2];
        let mut waits = false;
        for _ in 0..1000 {
            let frame = queue.pop(0, drop).unwrap();
            let other = port(&frame) == ports[1];
            sent[usize::from(other)] += frame.len();
            waits &= !other;
            // As soon as the flow's queue is seen empty, which is when a frame of the first flow
            // leaves, it gets another frame.
            if !other && !waits {
                queue.push(0, packet(ports[1], 1514, 0), |_| panic!("dropped"));
                waits = true;
            }
        }
        assert!(sent[0].abs_diff(sent[1]) < 4000, "{sent:?}");
    }

    #[test]
    fn the_longest_flow_pays_for_room() {
        let ports = ports();
        let mut queue =
            FairQueue::new(QueueSettings { max_frames: 10, ..QueueSettings::default() });
        for _ in 0..20 {
            queue.push(0, packet(ports[0], 1000, 0), drop);
        }
        queue.push(0, packet(ports[1], 100, 0), |frame| assert_eq!(port(&frame), ports[0]));
        assert_eq!((queue.len(), queue.drops()), (10, 11));
        assert!(queue.drain().iter().any(|frame| port(frame) == ports[1]));
    }

    #[test]
    fn the_bytes_of_all_flows_together_are_bounded() {
        let ports = ports();
        let mut queue =
            FairQueue::new(QueueSettings { max_bytes: 10_000, ..QueueSettings::default() });
        for n in 0..20 {
            queue.push(0, packet(ports[n % 4], 1000, 0), drop);
            assert!(queue.bytes() <= 10_000, "{}", queue.bytes());
        }
        assert_eq!((queue.len(), queue.drops()), (10, 10), "no flow alone has that many");
    }

    proptest! {
        /// Compared with what was pushed: order within flows, the sums, and that nothing is left
        /// behind.
        #[test]
        fn nothing_is_lost_or_overtaken(
            steps in prop::collection::vec((0u16..8, 60usize..1514, any::<bool>()), 1..400),
        ) {
            let mut queue = FairQueue::new(QueueSettings::default());
            let mut waiting: Vec<VecDeque<(usize, u8)>> = vec![VecDeque::new(); 8];
            let mut count = [0u8; 8];
            for (flow, length, push) in steps {
                if push {
                    let mark = &mut count[usize::from(flow)];
                    *mark = mark.wrapping_add(1);
                    waiting[usize::from(flow)].push_back((length, *mark));
                    queue.push(0, packet(flow, length, *mark), |_| panic!("dropped"));
                } else if let Some(frame) = queue.pop(0, |_| panic!("dropped")) {
                    let expected = waiting[usize::from(port(&frame))].pop_front();
                    prop_assert_eq!(expected, Some((frame.len(), frame[50])));
                } else {
                    prop_assert!(waiting.iter().all(VecDeque::is_empty));
                }
                let held: usize = waiting.iter().map(VecDeque::len).sum();
                let bytes: usize = waiting.iter().flatten().map(|frame| frame.0).sum();
                prop_assert_eq!(
                    (queue.len(), queue.bytes(), queue.is_empty()),
                    (held, bytes, held == 0)
                );
            }
        }
    }
}
