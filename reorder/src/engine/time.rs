//! The engine's time: when something is due next, and a clock that was set back.

use super::{Engine, ACTIVE_NS, IDLE_NS, LATE_NS};
use crate::Nanos;

impl Engine {
    /// A clock that was set back (it should not be: it is monotonic) must not stop anything for
    /// long.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        if now < self.last {
            self.counters.clock_jumps += 1;
            let due =
                [&mut self.grants_at, &mut self.report_at, &mut self.greet_at, &mut self.span_at];
            for at in due {
                *at = (*at).min(now + IDLE_NS);
            }
            for peer in &mut self.peers {
                peer.beat_at = now;
                peer.fast_since = now;
                peer.theirs_heard = peer.theirs_heard.min(now);
                peer.silent_since = peer.silent_since.min(now);
                peer.beat_ns = peer.beat_ns.min(now);
                peer.ask_at = peer.ask_at.map(|_| now);
                if let Some(candidate) = &mut peer.candidate {
                    candidate.since = candidate.since.min(now);
                }
                peer.gap_at = peer.gap_at.map(|_| now);
                peer.usable_ns = peer.usable_ns.min(now);
                let past = [&mut peer.short_ns, &mut peer.sent_ns, &mut peer.come_ns];
                past.into_iter().for_each(|at| *at = at.map(|at| at.min(now)));
                peer.offered.set_back(now);
                peer.position.set_back(now);
                peer.doubted.iter_mut().for_each(|doubted| doubted.since = doubted.since.min(now));
                let round = peer.round;
                for link in &mut peer.links {
                    if link.hears {
                        link.heard(now, round);
                    }
                }
            }
        }
        self.last = now;
    }

    /// Called first of all: if this process gets its CPU later than it was due, whatever came
    /// meanwhile waits for it unread, and no silence in that time says anything.
    pub(super) fn wake_up(&mut self, now: Nanos) {
        let late_ns = now.saturating_sub(self.due);
        if late_ns < LATE_NS {
            return;
        }
        self.counters.late += 1;
        self.due = now;
        self.excused_ns = now;
        for peer in &mut self.peers {
            peer.reorder.excuse(now, late_ns);
            peer.links.iter_mut().for_each(|link| link.excuse(now, late_ns));
            // Patience with a silent peer is not used up by that either.
            peer.usable_ns = peer.usable_ns.saturating_add(late_ns).min(now);
            peer.doubted
                .iter_mut()
                .for_each(|doubted| doubted.since = doubted.since.saturating_add(late_ns).min(now));
        }
    }

    /// When something is due next.
    pub(super) fn deadline(&mut self, now: Nanos) -> Nanos {
        let mut next = now + IDLE_NS;
        let mut sooner = |at: Nanos| next = next.min(at);
        sooner(self.report_at);
        sooner(self.span_at);
        if self.settings.autonomous {
            sooner(self.greet_at);
        }
        let mut active = false;
        for peer in &self.peers {
            sooner(if peer.beat_now { now } else { peer.beat_at });
            peer.gap_at.into_iter().for_each(&mut sooner);
            peer.ask_at.into_iter().for_each(&mut sooner);
            let interval_ns = self.their_interval(peer);
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
