// SPDX-License-Identifier: Apache-2.0
//! When a peer was heard, and how long it may be silent.

use super::MS;
use crate::Nanos;

/// Frames for a peer wait for this long when all links to it fell silent.
const PATIENCE_NS: Nanos = 200 * MS;
/// A little less than the time between a peer's heartbeats while there is data.
const ROUND_NS: Nanos = 9 * MS;

/// When a peer was heard on whichever link.
///
/// A helper sends a heartbeat over all links at the same time: one round. So a link on which
/// nothing arrived in several rounds is dead, while a peer that is silent on all links is late
/// itself, and nothing can be said about its links. Frames other than heartbeats begin rounds
/// too, one in each `ROUND_NS`: the peer is awake then.
///
/// Invariant: `round` only grows (it wraps round), at most once in `ROUND_NS`.
#[derive(Debug)]
pub(super) struct Liveness {
    /// When the peer was first heard of.
    met_ns: Nanos,
    /// Rounds of the peer that were heard on any link.
    round: u32,
    /// When the last round began.
    round_ns: Nanos,
    /// No link says anything: the peer is late, or gone, and what is for it waits.
    quiet: bool,
    /// When there last was a link to send over.
    usable_ns: Nanos,
    /// When the peer's heartbeats last became more frequent.
    fast_since_ns: Nanos,
    /// Since when nothing was heard from the peer. Without a controller it is forgotten in the end.
    silent_since_ns: Nanos,
}

impl Liveness {
    pub(super) fn new(now: Nanos) -> Self {
        Liveness {
            met_ns: now,
            round: 0,
            round_ns: 0,
            quiet: false,
            usable_ns: 0,
            fast_since_ns: now,
            silent_since_ns: now,
        }
    }

    /// When the peer was first heard of.
    pub(super) fn met_ns(&self) -> Nanos {
        self.met_ns
    }

    /// The number of the round that is going on.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// A frame of the peer arrived; true if a round begins with it.
    pub(super) fn hear(&mut self, now: Nanos) -> bool {
        let begins = now.saturating_sub(self.round_ns) >= ROUND_NS || now < self.round_ns;
        if begins {
            self.round = self.round.wrapping_add(1);
            self.round_ns = now;
        }
        begins
    }

    /// Whether no link says anything, as was found last.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Every turn: whether all links are `quiet`, and whether one is `usable`.
    pub(super) fn look(&mut self, now: Nanos, quiet: bool, usable: bool) {
        self.quiet = quiet;
        if usable && !quiet {
            self.usable_ns = now;
        }
    }

    /// Whether frames still wait for a peer whose links are all silent.
    pub(super) fn is_waited_for(&self, now: Nanos) -> bool {
        now.saturating_sub(self.usable_ns) < PATIENCE_NS
    }

    /// The peer's heartbeats are more frequent from now on, so links that were silent have to show
    /// themselves.
    pub(super) fn speeds_up(&mut self, now: Nanos) {
        self.fast_since_ns = now;
    }

    /// When the peer's heartbeats last became more frequent.
    pub(super) fn fast_since_ns(&self) -> Nanos {
        self.fast_since_ns
    }

    /// The last link fell silent, or a greeting arrived: the time to forgetting the peer begins.
    pub(super) fn silent_from(&mut self, now: Nanos) {
        self.silent_since_ns = now;
    }

    /// How long nothing was heard, if all links are silent.
    pub(super) fn silent_for(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.silent_since_ns)
    }

    /// This process had no CPU for `late_ns` until `now`: that uses up no patience with the peer.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.usable_ns = self.usable_ns.saturating_add(late_ns).min(now);
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            usable_ns,
            fast_since_ns,
            silent_since_ns,
            met_ns,
            round: _,
            round_ns: _, // `hear` sees that it lies in the future
            quiet: _,
        } = self;
        *usable_ns = (*usable_ns).min(now);
        *fast_since_ns = now;
        *silent_since_ns = (*silent_since_ns).min(now);
        *met_ns = (*met_ns).min(now);
    }
}
