// SPDX-License-Identifier: Apache-2.0
//! One other host: the sessions, the links to it, and what goes each way.

use super::beside::PeerBeside;
use super::channel::in_kbps;
use super::channels::Channels;
use super::link::Link;
use super::liveness::Liveness;
use super::rx::Rx;
use super::schedule::BeatSchedule;
use super::session::Session;
use super::tx::Tx;
use super::{Settings, IDLE_NS};
use crate::wire::Mac;
use crate::Nanos;

/// Another host.
///
/// Each part keeps its own invariants and corrects its own times; what needs several of them is
/// here.
///
/// Invariant: `links` are in order of their numbers, and no number comes twice.
pub(super) struct Peer {
    /// Its own MAC.
    pub(super) mac: Mac,
    /// Which sessions count.
    pub(super) session: Session,
    /// When it was heard.
    pub(super) liveness: Liveness,
    /// When heartbeats to it are due.
    pub(super) beats: BeatSchedule,
    /// The links to it.
    pub(super) links: Vec<Link>,
    /// What goes to it, in whatever channel.
    pub(super) tx: Tx,
    /// What arrives from it, in whatever channel.
    pub(super) rx: Rx,
    /// The frames of no job, and of each job, in both directions.
    pub(super) channels: Channels,
    /// TCP that goes beside the bridge.
    pub(super) beside: PeerBeside,
}

impl Peer {
    /// A peer without links. `session`: our session to it, not 0. `striped`: frames for it are
    /// striped unless a controller says otherwise.
    pub(super) fn new(
        now: Nanos,
        mac: Mac,
        session: u32,
        striped: bool,
        settings: &Settings,
    ) -> Self {
        Peer {
            mac,
            session: Session::new(session, striped),
            liveness: Liveness::new(now),
            beats: BeatSchedule::new(now),
            links: Vec::new(),
            tx: Tx::new(settings),
            rx: Rx::default(),
            channels: Channels::new(settings),
            beside: PeerBeside::default(),
        }
    }

    /// The link with that number.
    pub(super) fn link(&self, number: u8) -> Option<&Link> {
        self.links.iter().find(|link| link.number == number)
    }

    /// The link with that number.
    pub(super) fn link_mut(&mut self, number: u8) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.number == number)
    }

    /// A frame of the peer arrived by link `number`; true if that link was not heard before.
    pub(super) fn hear(&mut self, now: Nanos, number: u8) -> bool {
        if self.liveness.hear(now) {
            self.links.iter_mut().for_each(|link| link.is_missed(now));
        }
        let round = self.liveness.round();
        self.link_mut(number).is_some_and(|link| link.heard(now, round))
    }

    /// How often the peer says something on at least one link, as it promises. Links that were
    /// silent before are measured by it.
    pub(super) fn beat_interval_ns(&self) -> Nanos {
        let heard = self.links.iter().filter(|link| link.hears);
        heard.map(|link| link.interval_ns).min().unwrap_or(IDLE_NS)
    }

    /// When a link counts as dead unless something arrives by it; `interval_ns` is
    /// [`beat_interval_ns`](Self::beat_interval_ns).
    pub(super) fn dies_at(&self, link: &Link, interval_ns: Nanos) -> Option<Nanos> {
        let fastest =
            self.links.iter().filter(|link| link.hears).filter_map(|link| link.way_us).min();
        link.dies_at(
            self.liveness.fast_since_ns(),
            interval_ns,
            self.liveness.round(),
            fastest.unwrap_or(0),
        )
    }

    /// Finds out whether the peer is silent on all links.
    pub(super) fn look(&mut self, now: Nanos, interval_ns: Nanos) {
        let since = self.liveness.fast_since_ns();
        let mut silent =
            self.links.iter().filter_map(|link| link.silent_at(since, interval_ns)).peekable();
        let quiet = silent.peek().is_some() && silent.all(|at| at <= now);
        self.liveness.look(now, quiet, self.usable() != 0);
    }

    /// Links on which the peer is heard, a bit each.
    pub(super) fn heard(&self) -> u64 {
        self.links.iter().filter(|link| link.hears).fold(0, |set, link| set | link.bit())
    }

    /// Links over which data may be sent, a bit each: those heard in both directions.
    pub(super) fn usable(&self) -> u64 {
        self.links
            .iter()
            .filter(|link| link.own_up && link.hears && link.heard_by_peer)
            .fold(0, |set, link| set | link.bit())
    }

    /// The difference between the ways of the fastest and the slowest link on which the peer is
    /// heard.
    pub(super) fn skew_ns(&self) -> Nanos {
        let ways = self.links.iter().filter(|link| link.hears).filter_map(|link| link.way_us);
        let skew_us = ways.clone().max().unwrap_or(0) - ways.min().unwrap_or(0);
        1000 * skew_us.max(0) as Nanos
    }

    /// Whether data goes to the peer's helper; otherwise it goes to the slot table.
    pub(super) fn is_striped(&self) -> bool {
        self.session.is_open() && self.usable() != 0
    }

    /// Whether frames for the peer wait for its links.
    ///
    /// For a moment they wait even without any link. A process that gets no CPU looks like dead
    /// links, and what went by the slot table would overtake what waits.
    pub(super) fn is_reachable(&self, now: Nanos) -> bool {
        let works = self.usable() != 0 && !self.liveness.is_quiet();
        self.session.is_open() && (works || self.liveness.is_waited_for(now))
    }

    /// Whether there was data in one of the directions within `span_ns`.
    pub(super) fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        self.tx.is_active(now, span_ns)
            || self.channels.has_frames()
            || self.rx.is_active(now, span_ns)
    }

    /// kbit/s that the host would send to the peer; `NO_LIMIT` if that is more than is granted.
    pub(super) fn demand_kbps(&mut self, now: Nanos) -> u32 {
        in_kbps(self.channels.demand_bps(now))
    }

    /// Bytes in queues and buffers.
    pub(super) fn held_bytes(&self) -> usize {
        self.channels.held_bytes()
    }

    /// This process had no CPU for `late_ns` until `now`: silence in that time was its own.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.channels.excuse(now, late_ns);
        self.links.iter_mut().for_each(|link| link.excuse(now, late_ns));
        self.liveness.excuse(now, late_ns);
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self { session, liveness, beats, links, tx, rx, channels, beside, mac: _ } = self;
        session.settle_clock(now);
        liveness.settle_clock(now);
        beats.settle_clock(now);
        for link in links {
            link.settle_clock(now, liveness.round());
        }
        tx.settle_clock(now);
        rx.settle_clock(now);
        channels.settle_clock(now);
        beside.settle_clock(now);
    }
}
