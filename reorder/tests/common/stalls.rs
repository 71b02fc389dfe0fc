// SPDX-License-Identifier: Apache-2.0
//! Hosts whose CPUs are busy with something else.

use super::{Event, Outbox, World};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::wire::Tag;
use ri2n_reorder::Nanos;

/// The most frames that wait for a host without CPU.
const QUEUE_FRAMES: usize = 1000;
/// Frames that are read at a time.
const BATCH: usize = 64;

/// What waits while a host has no CPU.
pub(super) enum Input {
    Wire(Option<Tag>, u8, Vec<u8>),
    Plain(Vec<u8>),
}

impl World {
    /// A host has no CPU for that long. What arrives waits in queues of bounded length.
    pub fn stall(&mut self, host: usize, span: Nanos) {
        self.stalled[host] = self.stalled[host].max(self.now + span);
        self.at(self.stalled[host], Event::Wake(host));
    }

    /// Whether a host has CPU now.
    pub fn has_cpu(&self, host: usize) -> bool {
        self.stalled[host] <= self.now
    }

    pub(super) fn wait_for_cpu(&mut self, host: usize, input: Input) {
        if self.inputs[host].len() < QUEUE_FRAMES {
            self.inputs[host].push_back(input);
        } else {
            self.overruns += 1;
        }
    }

    /// Does what the main loop does: it looks at what is due, reads a batch, and so on.
    pub(super) fn wake(&mut self, host: usize) {
        if !self.has_cpu(host) {
            return;
        }
        self.tick(host);
        while !self.inputs[host].is_empty() {
            for _ in 0..BATCH.min(self.inputs[host].len()) {
                let now = self.clock(host);
                let Some((input, engine)) =
                    self.inputs[host].pop_front().zip(self.engines[host].as_mut())
                else {
                    return;
                };
                let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
                match input {
                    Input::Wire(tag, nic, frame) => engine.on_wire(now, tag, nic, frame, &mut out),
                    Input::Plain(frame) => {
                        engine.on_plain(now, &VnetHdr::default(), frame, &mut out)
                    }
                }
                self.carry(host, out);
            }
            self.tick(host);
        }
    }
}
