// SPDX-License-Identifier: Apache-2.0
//! What arrives from a peer in whatever channel: how much of it by which link, and broadcasts.

use std::collections::{BTreeSet, VecDeque};

use super::{ACTIVE_NS, MS};
use crate::Nanos;

/// Bytes of data that arrived by one link: R_ijk.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    link: u8,
    /// In the HBSPAN that goes on.
    bytes: u64,
    /// In the one before.
    last_bytes: u64,
}

/// The receiving side of a pair, as far as it is the same for all channels.
#[derive(Debug, Default)]
pub(super) struct Rx {
    /// When data last arrived.
    received_ns: Option<Nanos>,
    broadcasts: Broadcasts,
    arrived: Vec<Arrived>,
}

impl Rx {
    /// A new session of the peer begins.
    pub(super) fn begin(&mut self) {
        self.broadcasts = Broadcasts::default();
    }

    /// Data arrives. True if none did for a while: the peer has to hear of it then.
    pub(super) fn traffic_begins(&mut self, now: Nanos) -> bool {
        self.received_ns.replace(now).is_none_or(|at| now.saturating_sub(at) >= ACTIVE_NS)
    }

    /// Whether data arrived within `span_ns`.
    pub(super) fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.received_ns.is_some_and(|at| now.saturating_sub(at) < span_ns)
    }

    /// Counts bytes of data that arrived by a link.
    pub(super) fn count(&mut self, link: u8, bytes: usize) {
        let bytes = bytes as u64;
        match self.arrived.iter_mut().find(|arrived| arrived.link == link) {
            Some(arrived) => arrived.bytes += bytes,
            None => self.arrived.push(Arrived { link, bytes, last_bytes: 0 }),
        }
    }

    /// Bytes of data that arrived by a link in the last HBSPAN: R_ijk.
    pub(super) fn last_bytes(&self, link: u8) -> u64 {
        self.arrived.iter().find(|arrived| arrived.link == link).map_or(0, |it| it.last_bytes)
    }

    /// Whether data arrived by a link in this HBSPAN or the last.
    pub(super) fn has_traffic(&self, link: u8) -> bool {
        self.arrived.iter().any(|it| it.link == link && it.bytes + it.last_bytes > 0)
    }

    /// The next HBSPAN begins.
    pub(super) fn end_span(&mut self) {
        for arrived in &mut self.arrived {
            (arrived.bytes, arrived.last_bytes) = (0, arrived.bytes);
        }
    }

    /// Whether a broadcast with this number was not seen before.
    pub(super) fn is_new_broadcast(&mut self, now: Nanos, number: u16) -> bool {
        self.broadcasts.take(now, number)
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            received_ns,
            broadcasts: _, // forgets what lies in the future
            arrived: _,
        } = self;
        *received_ns = received_ns.map(|at| at.min(now));
    }
}

/// Copies of a broadcast arrive within this time of each other.
const COPIES_NS: Nanos = 100 * MS;
/// Broadcasts that are remembered.
const MAX_RECENT: usize = 4096;

/// The broadcasts that arrived lately: each arrives by every link, and counts once.
///
/// A number says nothing but that it was seen, so a wrong one spoils at most its own broadcast, for
/// `COPIES_NS`.
///
/// Invariant: `seen` has exactly the numbers in `recent`.
#[derive(Debug, Default)]
struct Broadcasts {
    recent: VecDeque<(Nanos, u16)>,
    seen: BTreeSet<u16>,
}

impl Broadcasts {
    /// Whether broadcast `number` was not seen.
    fn take(&mut self, now: Nanos, number: u16) -> bool {
        let old = |&(at, _): &(Nanos, u16)| now.saturating_sub(at) >= COPIES_NS || at > now;
        while self.recent.front().is_some_and(old) || self.recent.len() >= MAX_RECENT {
            let Some((_, gone)) = self.recent.pop_front() else { break };
            self.seen.remove(&gone);
        }
        let fresh = self.seen.insert(number);
        if fresh {
            self.recent.push_back((now, number));
        }
        fresh
    }
}
