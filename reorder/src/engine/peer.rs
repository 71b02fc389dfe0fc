//! What is known of one other host: its session and ours, the links to it, what waits for credit,
//! what may be repeated.

use std::collections::VecDeque;

use super::link::Link;
use super::receive::{Broadcasts, DataParts};
use crate::belief::Position;
use crate::reorder::ReorderBuffer;
use crate::ring::Ring;
use crate::sched::fair::FairQueue;
use crate::sched::paced::Paced;
use crate::sched::weighted::Weighted;
use crate::seq::Seq;
use crate::wire::{Mac, MAX_LINKS};
use crate::Nanos;

/// A frame for the host itself, with what its headers say of it.
pub type Delivery = Vec<u8>;

/// A session that was heard beside the current one, until it is sure which one is the peer's.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Its number.
    pub session: u32,
    /// When it was first heard.
    pub since: Nanos,
}

/// A frame that waits until its number is believed.
pub struct Doubted {
    /// When it came in.
    pub since: Nanos,
    /// What its head said.
    pub(super) data: DataParts,
    /// Its length on the wire.
    pub bytes: usize,
    /// The host's frame.
    pub frame: Delivery,
}

/// Another host.
pub struct Peer {
    /// Its own MAC.
    pub mac: Mac,
    /// Our session to it; never 0.
    pub session: u32,
    /// When it was first heard of.
    pub met_ns: Nanos,
    /// Its session to us, 0 when none is known.
    pub theirs: u32,
    /// When something of its session last came in.
    pub theirs_heard: Nanos,
    /// Another session that claims to be its.
    pub candidate: Option<Candidate>,
    /// When to ask that session again.
    pub ask_at: Option<Nanos>,
    /// It knows our session, so that data may be sent.
    pub knows_us: bool,
    /// The controller (or nobody, without one) wants frames striped.
    pub stripe: bool,
    /// It asked to hand its frames to the slot table: it stops.
    pub holds: bool,
    /// It has no helper until one says something: a frame of ours came back, or nothing was to be
    /// striped to it.
    pub gone: bool,
    /// Links in order of their numbers.
    pub links: Vec<Link>,

    // sending
    /// Sequence of the next data frame.
    pub next: Seq,
    /// Where the link sequences of links that are gone stopped.
    pub link_sequences: [Seq; MAX_LINKS],
    /// Sequence of the next heartbeat, over whichever link.
    pub next_heartbeat: Seq,
    /// Frames that wait for credit.
    pub queue: FairQueue,
    /// Sequences that are to be sent again, oldest request first.
    pub again: VecDeque<Seq>,
    /// What was sent and is not yet known to have arrived.
    pub ring: Ring,
    /// Rates per link.
    pub paced: Paced,
    /// Weights per link.
    pub weighted: Weighted,
    /// The link that the next frame takes by weight, until its NIC has time.
    pub chosen: Option<u8>,
    /// When something last waited for credit.
    pub short_ns: Option<Nanos>,
    /// When data was last sent.
    pub sent_ns: Option<Nanos>,
    /// Bytes from the host in the current measuring time, when that began, and its rate before.
    pub offered: Meter,
    /// Sequence of the next broadcast.
    pub next_broadcast: u16,

    // receiving
    /// Frames that came early.
    pub reorder: ReorderBuffer<Delivery>,
    /// Where it is in its sequence, as far as that is believed.
    pub position: Position,
    /// Frames that came with numbers which are not believed yet; one less than is needed to believe
    /// them.
    pub doubted: Vec<Doubted>,
    /// When data last came in.
    pub come_ns: Option<Nanos>,
    /// When its heartbeats last became more frequent.
    pub fast_since: Nanos,
    /// When the reorder buffer must be looked at.
    pub gap_at: Option<Nanos>,
    /// Broadcasts that came in.
    pub broadcasts: Broadcasts,
    /// Bytes in this HBSPAN and the last, by link: R_ijk.
    pub arrived: Vec<(u8, u64, u64)>,

    /// Rounds of its heartbeats that were heard on any link, or as much time with other frames.
    pub round: u32,
    /// When the last one began.
    pub round_ns: Nanos,
    /// No link says anything: it is late, or gone. What is for it waits.
    pub quiet: bool,
    /// When a link could last be sent over.
    pub usable_ns: Nanos,
    /// When the next heartbeats are due.
    pub beat_at: Nanos,
    /// When the last ones went out.
    pub beat_ns: Nanos,
    /// Heartbeats go out at once.
    pub beat_now: bool,
    /// The next heartbeats ask for an answer.
    pub ask_reply: bool,
    /// Fast heartbeats after the end of traffic.
    pub beats_left: u8,
    /// Nothing was heard from it since; it is forgotten in the end (without a controller).
    pub silent_since: Nanos,
    /// At the last HBSPAN, by link: data frames sent, and those that arrived.
    pub span_sent: Vec<(u8, u64, u32)>,
}

/// Measures a rate over tens of milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    bytes: u64,
    since: Nanos,
    rate_bps: f64,
}

/// How long frames wait when all links of a peer fell silent.
const PATIENCE_NS: Nanos = 200_000_000;
const METER_NS: Nanos = 10_000_000;
/// A little less than the time between its heartbeats while there is data.
const ROUND_NS: Nanos = 9_000_000;
/// Answers to heartbeats that ask for one, and to strangers, are at least so far apart.
const ANSWERS_NS: Nanos = 1_000_000;

impl Meter {
    /// Count bytes.
    pub fn count(&mut self, now: Nanos, bytes: usize) {
        self.turn(now);
        self.bytes += bytes as u64;
    }

    /// Bits per second, over the last tens of milliseconds.
    pub fn rate_bps(&mut self, now: Nanos) -> f64 {
        self.turn(now);
        self.rate_bps
    }

    /// The clock was set back.
    pub fn set_back(&mut self, now: Nanos) {
        self.since = self.since.min(now);
    }

    fn turn(&mut self, now: Nanos) {
        let over = now.saturating_sub(self.since);
        if over >= METER_NS {
            let measured = self.bytes as f64 * 8e9 / over as f64;
            // What ended is forgotten at once, what began is believed at once; in between it is
            // smoothed.
            self.rate_bps =
                if over > 4 * METER_NS { measured } else { 0.5 * (measured + self.rate_bps) };
            self.bytes = 0;
            self.since = now;
        }
    }
}

impl Peer {
    /// The link of that number.
    pub fn link(&self, number: u8) -> Option<&Link> {
        self.links.iter().find(|link| link.number == number)
    }

    /// The link of that number.
    pub fn link_mut(&mut self, number: u8) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.number == number)
    }

    /// Something of it came in by link `number`; true if that link was not heard before.
    pub fn hear(&mut self, now: Nanos, number: u8) -> bool {
        if now.saturating_sub(self.round_ns) >= ROUND_NS || now < self.round_ns {
            self.round = self.round.wrapping_add(1);
            self.round_ns = now;
            self.links.iter_mut().for_each(|link| link.is_missed(now));
        }
        let round = self.round;
        self.link_mut(number).is_some_and(|link| link.heard(now, round))
    }

    /// When each link counts as dead unless something comes in by it.
    pub fn dies_at(&self, link: &Link, interval_ns: Nanos) -> Option<Nanos> {
        let fastest =
            self.links.iter().filter(|link| link.hears).filter_map(|link| link.way_us).min();
        link.dies_at(self.fast_since, interval_ns, self.round, fastest.unwrap_or(0))
    }

    /// Whether all links that were heard are silent.
    pub fn is_quiet(&self, now: Nanos, interval_ns: Nanos) -> bool {
        let mut heard = self
            .links
            .iter()
            .filter_map(|link| link.silent_at(self.fast_since, interval_ns))
            .peekable();
        heard.peek().is_some() && heard.all(|at| at <= now)
    }

    /// Links on which the peer is heard.
    pub fn heard(&self) -> u64 {
        self.links.iter().filter(|link| link.hears).fold(0, |set, link| set | link.bit())
    }

    /// Links over which data may be sent: heard in both directions.
    pub fn usable(&self) -> u64 {
        self.links
            .iter()
            .filter(|link| link.own_up && link.hears && link.heard_by_peer)
            .fold(0, |set, link| set | link.bit())
    }

    /// Whether data goes to its helper (else to the slot table).
    pub fn is_striped(&self) -> bool {
        self.stripe && self.knows_us && !self.holds && !self.gone && self.usable() != 0
    }

    /// Whether frames for it wait for its links: for a moment without any, too, since a process
    /// that gets no CPU looks like dead links, and what went by the slot table would overtake what
    /// waits.
    pub fn is_reachable(&self, now: Nanos) -> bool {
        let talks = self.stripe && self.knows_us && !self.holds && !self.gone;
        talks
            && (self.usable() != 0 && !self.quiet
                || now.saturating_sub(self.usable_ns) < PATIENCE_NS)
    }

    /// Heartbeats are to go out as an answer: at once, unless some just did, since each goes over
    /// all links and whoever makes us answer need not be the peer.
    pub fn answer(&mut self, now: Nanos) {
        self.beat_at = self.beat_at.min((self.beat_ns + ANSWERS_NS).max(now));
    }

    /// Nothing is to be repeated any more.
    pub fn forget_repeats(&mut self) {
        for seq in self.again.drain(..) {
            self.ring.unqueue(seq);
        }
    }

    /// Whether there was data in one of the directions within `span_ns`.
    pub fn is_active(&self, now: Nanos, span_ns: Nanos) -> bool {
        let recent = |at: Option<Nanos>| at.is_some_and(|at| now.saturating_sub(at) < span_ns);
        recent(self.sent_ns)
            || recent(self.come_ns)
            || !self.queue.is_empty()
            || !self.again.is_empty()
    }

    /// Bytes that it holds in queues and buffers.
    pub fn held_bytes(&self) -> usize {
        let doubted: usize = self.doubted.iter().map(|doubted| doubted.bytes).sum();
        self.queue.bytes() + self.ring.bytes() + self.reorder.bytes() + doubted
    }
}
