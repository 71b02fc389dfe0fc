// SPDX-License-Identifier: Apache-2.0
//! The engine's time: when something is due next, and a clock that was set back.

use super::{Engine, ACTIVE_NS, IDLE_NS, LATE_NS};
use crate::Nanos;

impl Engine {
    /// Notices a clock that was set back, and corrects every time that is kept.
    ///
    /// The clock is monotonic, so this should not happen; but if it does, nothing may stop for
    /// long. Whatever keeps times has a `settle_clock`, which names all of its fields: whoever
    /// adds one has to say there what becomes of it.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        if now < self.last {
            self.counters.clock_jumps += 1;
            self.set_clock_back(now);
        }
        self.last = now;
    }

    fn set_clock_back(&mut self, now: Nanos) {
        let Self {
            peers,
            grants_at,
            report_at,
            greet_at,
            span_at,
            excused_ns,
            last: _,        // set by the caller
            due: _,         // set at the end of this turn
            credit_at: _,   // set in this turn
            began: _,       // reports say 0 until then
            nic_buckets: _, // token buckets go on from where the clock is
            newcomers: _,   // the same
            granter: _,     // sees by itself what lies in the future
            settings: _,
            counters: _,
            own: _,
            mode: _,
            nics: _,
            by_mac: _,
            addressing: _,
            generations: _,
            host_generation: _,
            segments: _,
            ask: _,
            greetings: _,
            nic_names: _,
            turn: _,
            yields: _,
            busy_nics: _,
            grants_now: _,
            sessions: _,
            held: _,
            ended: _,
        } = self;
        for at in [grants_at, report_at, greet_at, span_at] {
            *at = (*at).min(now + IDLE_NS);
        }
        *excused_ns = (*excused_ns).min(now);
        for peer in peers {
            peer.settle_clock(now);
        }
    }

    /// Called before anything else. If this process gets its CPU later than it was due, whatever
    /// arrived meanwhile is still unread, so silence in that time says nothing.
    pub(super) fn wake_up(&mut self, now: Nanos) {
        let late_ns = now.saturating_sub(self.due);
        if late_ns < LATE_NS {
            return;
        }
        self.counters.late += 1;
        self.due = now;
        self.excused_ns = now;
        for peer in &mut self.peers {
            peer.excuse(now, late_ns);
        }
    }

    /// When something is due next. It also becomes the time by which lateness is measured.
    pub(super) fn deadline(&mut self, now: Nanos) -> Nanos {
        let mut next = now + IDLE_NS;
        let mut sooner = |at: Nanos| next = next.min(at);
        sooner(self.report_at);
        sooner(self.span_at);
        if self.addressing.greets() {
            sooner(self.greet_at);
        }
        let mut active = false;
        for peer in &self.peers {
            sooner(peer.beats.due_at(now));
            peer.channels.due_at().into_iter().for_each(&mut sooner);
            peer.channels.strands_at().into_iter().for_each(&mut sooner);
            peer.session.due_at().into_iter().for_each(&mut sooner);
            let interval_ns = peer.beat_interval_ns();
            let deaths = peer.links.iter().filter_map(|link| peer.dies_at(link, interval_ns));
            deaths.for_each(&mut sooner);
            active |= peer.is_active(now, ACTIVE_NS);
        }
        if active {
            sooner(self.grants_at);
        }
        self.credit_at.into_iter().for_each(&mut sooner);
        self.due = next.max(now + 1);
        self.due
    }
}
