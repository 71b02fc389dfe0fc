//! The engine's time: when something is due next, and a clock that was set back.

use super::{Engine, ACTIVE_NS, IDLE_NS};
use crate::Nanos;

impl Engine {
    /// A clock that was set back (it should not be: it is monotonic) must not stop anything for long.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        if now < self.last {
            self.counters.clock_jumps += 1;
            let due = [&mut self.grants_at, &mut self.report_at, &mut self.greet_at, &mut self.span_at];
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
                for link in &mut peer.links {
                    if link.hears {
                        link.heard(now);
                    }
                }
            }
        }
        self.last = now;
    }

    /// When something is due next.
    pub(super) fn deadline(&self, now: Nanos) -> Nanos {
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
            let deaths = peer.links.iter().filter_map(|link| link.dies_at(peer.fast_since, interval_ns));
            deaths.for_each(&mut sooner);
            active |= peer.is_active(now, ACTIVE_NS);
        }
        if active {
            sooner(self.grants_at);
        }
        self.credit_at.into_iter().for_each(&mut sooner);
        next.max(now + 1)
    }
}
