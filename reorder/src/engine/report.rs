// SPDX-License-Identifier: Apache-2.0
//! The report to the controller: once a second, and soon after control was refused.

use super::{Engine, IDLE_NS, MS};
use crate::driver::{Out, Sink};
use crate::wire::report::{HEARD, MAX_ENTRIES, STRIPING, USABLE};
use crate::wire::{Report, ReportEntry};
use crate::Nanos;

/// After refused control, the report is sent within this time.
const SOON_NS: Nanos = 100 * MS;

impl Engine {
    /// Sends the report when it is due.
    pub(super) fn report(&mut self, now: Nanos, out: &mut dyn Sink) {
        if now < self.report_at {
            return;
        }
        self.report_at = now + IDLE_NS;
        let Some(own) = self.own.filter(|_| self.addressing.has_controller()) else { return };
        let mut entries = Vec::new();
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            let demand_kbps = peer.demand_kbps(now);
            let usable = peer.usable();
            let fastest = peer.links.iter().filter_map(|link| link.way_us).min().unwrap_or(0);
            for link in &peer.links {
                let flags = u8::from(link.hears) * HEARD
                    + u8::from(usable & link.bit() != 0) * USABLE
                    + u8::from(peer.is_striped()) * STRIPING;
                entries.push(ReportEntry {
                    peer: peer.mac,
                    link: link.number,
                    flags,
                    sent: link.sent_frames as u32,
                    received: link.received_frames as u32,
                    lost: link.lost as u32,
                    repeated: link.repeated as u32,
                    skew_us: link
                        .way_us
                        .map_or(0, |way| (way - fastest).clamp(0, i64::from(u32::MAX)) as u32),
                    rtt_us: link
                        .round_trip_ns
                        .map_or(0, |trip| (trip / 1000).min(u64::from(u32::MAX)) as u32),
                    rate_kbps: link.rate_kbps(),
                    demand_kbps,
                });
            }
        }
        let time_ms = (now.saturating_sub(self.began) / MS) as u32;
        // A report is sent without peers, too: a controller must learn from it why it is refused.
        let none: &[ReportEntry] = &[];
        for part in entries.chunks(MAX_ENTRIES).chain(entries.is_empty().then_some(none)) {
            let mut frame = out.recycle();
            let generation = self.newest_generation();
            Report { time_ms, mac: own, generation, entries: part.to_vec() }.encode(&mut frame);
            self.counters.reports_out += 1;
            out.wire(Out::Controller, frame);
        }
    }

    /// Lets the controller know soon that it is refused. Its clock may have been set back.
    pub(super) fn report_soon(&mut self, now: Nanos) {
        self.report_at = self.report_at.min(now + SOON_NS);
    }
}
