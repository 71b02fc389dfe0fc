//! From the links to the host: order restored, gaps asked for or given up, frames merged.

use std::collections::{BTreeSet, VecDeque};

use super::peer::Doubted;
use super::{Engine, Mode, MS};
use crate::belief::AGREE;
use crate::driver::{Out, Sink};
use crate::engine::send::TRIES;
use crate::reorder::{Inserted, Policy};
use crate::wire::{self, repeat, Broadcast, Data, Mac, Message, Tag, BOUNCED_PCP, CONTROL_VID};
use crate::Nanos;

/// How long silent links may hold up frames: a heartbeat's time, and twice the difference of the
/// ways. Without repair a dead link must be known as one before what was on it is given up.
const SKEW_NS: Nanos = 12 * MS;
const SKEW_UNREPAIRED_NS: Nanos = 35 * MS;
const MAX_SKEW_NS: Nanos = 50 * MS;
const RETRY_NS: Nanos = 8 * MS;
/// How long all links must contradict what is believed of a peer's sequence; and twice the
/// difference of the ways.
const DENIED_NS: Nanos = 20 * MS;
const GIVE_UP_NS: Nanos = 100 * MS;
/// When more frames than this wait, short ones leave the long buffers that they came in: memory is
/// counted by frames' lengths, and thousands that wait are either a very fast link's or somebody's
/// who wants to fill it.
const LOOSE_FRAMES: usize = 1024;

impl Engine {
    /// A frame from the wire side.
    pub(super) fn take_wire(
        &mut self,
        now: Nanos,
        tag: Option<Tag>,
        nic: u8,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        self.granter.managed(nic, frame.len());
        let from_controller = tag.is_some_and(|tag| tag.vid == CONTROL_VID);
        let bounced = tag.is_some_and(|tag| !from_controller && tag.pcp == BOUNCED_PCP);
        match wire::parse(&frame) {
            Err(error) => {
                self.counters.count_malformed(&error);
            }
            Ok(Message::Control(control)) if from_controller => self.take_control(now, control),
            Ok(Message::Control(_)) => self.counters.forged_control += 1,
            Ok(Message::Report(_)) => self.counters.forged_report += 1,
            Ok(_) if from_controller => self.counters.not_ours += 1,
            Ok(Message::Data(data)) if bounced => {
                // Its frame is needed whole.
                let Data { src, session, seq, .. } = data;
                return self.take_bounced(src, session, seq, frame, out);
            }
            Ok(_) if bounced => self.counters.bounced_in += 1,
            Ok(Message::Heartbeat(beat)) => self.take_beat(now, nic, &beat, out),
            Ok(Message::Repeat(request)) => match self.sender(request.src) {
                Some(number) => self.take_repeat(number, &request),
                None => self.counters.unknown_peer += 1,
            },
            Ok(Message::Broadcast(broadcast)) => {
                if self.is_new_broadcast(now, &broadcast) {
                    let group = broadcast.group;
                    let src = self.by_nic.get(&broadcast.src).map(|&number| self.peers[number].mac);
                    wire::unwrap(&mut frame);
                    wire::set_macs(&mut frame, group, src.unwrap_or_default());
                    self.deliver(frame, out);
                    return;
                }
            }
            Ok(Message::Data(data)) => {
                let Data { flags, link, session, seq, link_seq, src, .. } = data;
                if let Some(number) = self.data_peer(now, src, session, link, nic) {
                    self.take_data(
                        now,
                        number,
                        nic,
                        DataParts { flags, link, seq, link_seq },
                        frame,
                        out,
                    );
                    return;
                }
            }
        }
        out.done(frame);
    }

    /// The peer that a frame is from: by the host's MAC behind a bridge, else by its NIC's.
    fn sender(&self, src: Mac) -> Option<usize> {
        if self.settings.autonomous {
            self.by_nic.get(&src).copied()
        } else {
            self.peer_of(src)
        }
    }

    fn data_peer(
        &mut self,
        now: Nanos,
        src: Mac,
        session: u32,
        link: u8,
        nic: u8,
    ) -> Option<usize> {
        let Some(number) = self.sender(src) else {
            self.counters.unknown_peer += 1;
            return None;
        };
        let peer = &mut self.peers[number];
        if peer.theirs != session {
            self.counters.unknown_session += 1;
            if peer.theirs == 0 {
                peer.answer(now); // it may not know that we began anew
            }
            return None;
        }
        if peer.link(link).is_none_or(|link| link.own_port != nic) {
            self.counters.bad_link += 1;
            return None;
        }
        Some(number)
    }

    fn take_data(
        &mut self,
        now: Nanos,
        number: usize,
        nic: u8,
        data: DataParts,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let bytes = frame.len();
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        let mac = peer.mac;
        let first = peer.come_ns.is_none_or(|at| now.saturating_sub(at) >= super::ACTIVE_NS);
        peer.come_ns = Some(now);
        peer.theirs_heard = now;
        if first {
            peer.beat_now = true;
            peer.fast_since = now;
        }
        let arose = peer.hear(now, data.link);
        if let Some(link) = peer.links.iter_mut().find(|link| link.number == data.link) {
            self.counters.lost_on_links += u64::from(link.came(now, data.link_seq, bytes));
        }
        match peer.arrived.iter_mut().find(|entry| entry.0 == data.link) {
            Some(entry) => entry.1 += bytes as u64,
            None => peer.arrived.push((data.link, bytes as u64, 0)),
        }
        if let Some(nic) = self.nics.get_mut(&nic) {
            nic.arrived.0 += bytes as u64;
        }
        self.granter.arrived(mac, bytes + self.settings.overhead);
        if data.flags & wire::data::MORE != 0 {
            self.grants_now |= self.granter.demand(now, mac, f64::INFINITY);
        }
        self.counters.data_in += 1;
        self.counters.repeated_in += u64::from(data.flags & wire::data::REPEATED != 0);
        wire::unwrap(&mut frame);
        wire::set_macs(&mut frame, own, mac);
        let peer = &mut self.peers[number];
        if peer.position.data(now, peer.reorder.end(), data.seq.next()) {
            self.place(now, number, data, bytes, frame, out);
            self.settle_doubts(now, number, out);
        } else {
            self.doubt(now, number, data, bytes, frame, out);
        }
        if arose {
            self.tell_granter(number);
        }
    }

    /// A frame whose number is not believed waits for others that agree; not for long, and few of
    /// them.
    fn doubt(
        &mut self,
        now: Nanos,
        number: usize,
        data: DataParts,
        bytes: usize,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        self.counters.doubted += 1;
        let room = self.held < self.settings.max_memory;
        let doubted = &mut self.peers[number].doubted;
        if doubted.len() + 1 >= usize::from(AGREE) {
            out.done(doubted.remove(0).frame);
        }
        if room {
            doubted.push(Doubted { since: now, data, bytes, frame });
        } else {
            out.done(frame);
        }
    }

    /// Frames that were doubted get their places when their numbers are believed, and go when that
    /// takes too long.
    pub(super) fn settle_doubts(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) {
        let mut at = 0;
        while let Some(doubted) = self.peers[number].doubted.get(at) {
            let (seq, old) =
                (doubted.data.seq.next(), now.saturating_sub(doubted.since) >= GIVE_UP_NS);
            let peer = &mut self.peers[number];
            let fits = peer.position.fits(peer.reorder.end(), seq);
            if !fits && !old {
                at += 1;
                continue;
            }
            let Doubted { data, bytes, frame, .. } = peer.doubted.remove(at);
            if fits {
                self.place(now, number, data, bytes, frame, out);
            } else {
                out.done(frame);
            }
        }
    }

    /// A frame of the host, from a peer, goes where its number belongs.
    fn place(
        &mut self,
        now: Nanos,
        number: usize,
        data: DataParts,
        bytes: usize,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let repeated = data.flags & wire::data::REPEATED != 0;
        let full = self.held >= self.settings.max_memory;
        let peer = &mut self.peers[number];
        let inserted = if data.flags & wire::data::UNORDERED != 0 {
            // It need not wait, so it needs no memory. Only what has its place taken may be
            // delivered: else it would be asked for, and be delivered a second time.
            match peer.reorder.mark(now, data.seq, data.link, repeated) {
                Inserted::InOrder(()) | Inserted::Held => Inserted::InOrder(frame),
                Inserted::Duplicate => Inserted::Duplicate,
                Inserted::Old => Inserted::Old,
                Inserted::FarAhead => Inserted::FarAhead,
                Inserted::NoMemory => Inserted::NoMemory,
            }
        } else if full && data.seq != peer.reorder.next() {
            Inserted::NoMemory
        } else {
            if peer.reorder.held() >= LOOSE_FRAMES && frame.capacity() / 4 > frame.len() {
                let short = frame.as_slice().into();
                out.done(std::mem::replace(&mut frame, short));
            }
            peer.reorder.insert(now, data.seq, data.link, repeated, bytes, frame)
        };
        match inserted {
            Inserted::InOrder(frame) => {
                self.deliver(frame, out);
                while let Some(frame) = self.peers[number].reorder.pop() {
                    self.deliver(frame, out);
                }
            }
            Inserted::Held => self.held += bytes,
            Inserted::Duplicate => self.counters.duplicate += 1,
            Inserted::Old => self.counters.old += 1,
            Inserted::FarAhead => self.counters.far_ahead += 1,
            Inserted::NoMemory => self.counters.no_memory += 1,
        }
        if self.peers[number].reorder.is_waiting() {
            self.peers[number].gap_at = Some(now);
        }
    }

    /// A frame for the host.
    pub(super) fn deliver(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        self.counters.plain_out += 1;
        out.plain(frame);
    }

    /// Decide what is lost: ask for it, or go on without it.
    pub(super) fn close_gaps(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) {
        let peer = &mut self.peers[number];
        if peer.gap_at.is_none_or(|at| at > now) {
            return;
        }
        let repair = self.mode == Mode::Paced;
        let trip = peer.links.iter().filter_map(|link| link.round_trip_ns).max().unwrap_or(0);
        let ways = peer.links.iter().filter(|link| link.hears).filter_map(|link| link.way_us);
        let skew_us = ways.clone().max().unwrap_or(0) - ways.min().unwrap_or(0);
        let policy = Policy {
            skew_ns: (if repair { SKEW_NS } else { SKEW_UNREPAIRED_NS }
                + 2000 * skew_us.max(0) as u64)
                .min(MAX_SKEW_NS),
            repair,
            repair_dead: true,
            retry_ns: (2 * trip).clamp(RETRY_NS, GIVE_UP_NS / 2),
            give_up_ns: GIVE_UP_NS,
            tries: TRIES,
        };
        let mut ask = std::mem::take(&mut self.ask);
        ask.clear();
        let live = peer.heard();
        let wait_ns = (DENIED_NS + 2000 * skew_us.max(0) as u64).min(GIVE_UP_NS);
        if let Some(to) = peer.position.denied(now, live, wait_ns) {
            // The peer is where it says, however far that is from what was believed.
            self.counters.resyncs += 1;
            peer.reorder.withdraw(to);
        }
        let polled = peer.reorder.poll(now, live, &policy, &mut ask);
        peer.gap_at = polled.next.map(|at| at.max(now + 1));
        self.counters.given_up += u64::from(polled.lost);
        while let Some(frame) = self.peers[number].reorder.pop() {
            self.deliver(frame, out);
        }
        if !ask.is_empty() {
            self.ask_again(number, &ask, out);
        }
        self.ask = ask;
    }

    /// Send a request to repeat over every link that works: it is small, and a lost one costs a
    /// retry.
    fn ask_again(&mut self, number: usize, ask: &[(crate::seq::Seq, u16)], out: &mut dyn Sink) {
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        let usable = peer.usable();
        for link in peer.links.iter().filter(|link| usable & link.bit() != 0).take(2) {
            let mut frame = out.recycle();
            let (dst, src) = if self.settings.autonomous {
                (link.peer_nic, self.nics.get(&link.own_port).map_or(own, |nic| nic.mac))
            } else {
                (peer.mac, own)
            };
            repeat::write(dst, src, peer.theirs, peer.session, ask.iter().copied(), &mut frame);
            self.counters.repeat_requests_out += 1;
            peer.paced.spent(link.number, frame.len() + self.settings.overhead);
            self.nic_buckets.spent(link.own_port, frame.len() + self.settings.overhead);
            out.wire(Out::Link(link.number, link.own_port), frame);
        }
    }

    /// Whether a broadcast was not seen before.
    fn is_new_broadcast(&mut self, now: Nanos, broadcast: &Broadcast<'_>) -> bool {
        let Some(number) = self.by_nic.get(&broadcast.src).copied() else {
            self.counters.unknown_peer += 1;
            return false;
        };
        let peer = &mut self.peers[number];
        if peer.theirs != broadcast.session {
            self.counters.unknown_session += 1;
            return false;
        }
        let fresh = peer.broadcasts.take(now, broadcast.number);
        self.counters.duplicate += u64::from(!fresh);
        fresh
    }
}

/// What of a data frame's head is needed when the frame itself is on its way.
#[derive(Clone, Copy)]
pub(super) struct DataParts {
    flags: u8,
    link: u8,
    seq: crate::seq::Seq,
    link_seq: crate::seq::Seq,
}

/// The broadcasts that came in lately: each comes over every link, and counts once.
///
/// Nothing is concluded from a number but that it was seen, so a wrong one spoils at most itself,
/// for `COPIES_NS`.
#[derive(Debug, Default)]
pub struct Broadcasts {
    recent: VecDeque<(Nanos, u16)>,
    seen: BTreeSet<u16>,
}

/// Copies of a broadcast come within this time; more than this many are not remembered.
const COPIES_NS: Nanos = 100 * MS;
const COPIES: usize = 4096;

impl Broadcasts {
    /// Whether broadcast `number` was not seen.
    fn take(&mut self, now: Nanos, number: u16) -> bool {
        let old = |&(at, _): &(Nanos, u16)| now.saturating_sub(at) >= COPIES_NS || at > now;
        while self.recent.front().is_some_and(old) || self.recent.len() >= COPIES {
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
