// SPDX-License-Identifier: Apache-2.0
//! From the links to the host: frames get their places, gaps are asked for or given up, and what is
//! in order is delivered.

use super::incoming::Arrival;
use super::{Engine, Mode, MS};
use crate::driver::{Out, Sink};
use crate::engine::send::TRIES;
use crate::reorder::{Inserted, Policy};
use crate::seq::Seq;
use crate::wire::{self, repeat, Broadcast, DataHead, Mac, Message, Tag, BOUNCED_PCP, CONTROL_VID};
use crate::Nanos;

/// How long a silent link may hold up frames: a bit more than the time between heartbeats. The
/// difference between the ways of the links comes on top of it, twice.
pub(super) const SKEW_NS: Nanos = 12 * MS;
/// The same when nothing is repeated. Then what was on a dead link is given up, so the link has to
/// be known as dead before.
const SKEW_UNREPAIRED_NS: Nanos = 35 * MS;
/// Silent links hold up frames no longer than this, whatever the ways are.
pub(super) const MAX_SKEW_NS: Nanos = 50 * MS;
/// A frame is asked for again after this time at the earliest.
const RETRY_NS: Nanos = 8 * MS;
/// A lost frame is given up after this time.
const GIVE_UP_NS: Nanos = 100 * MS;
/// How long all links have to deny what is believed of a peer's sequence. The difference between
/// the ways of the links comes on top of it, twice.
const DENIED_NS: Nanos = 20 * MS;
/// Links over which the same request to repeat goes out.
const REQUEST_LINKS: usize = 2;

impl Engine {
    /// Takes a frame from the wire side.
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
            Ok(Message::Control(control)) if from_controller => {
                self.take_control(now, control, out)
            }
            Ok(Message::Control(_)) => self.counters.forged_control += 1,
            Ok(Message::Report(_)) => self.counters.forged_report += 1,
            Ok(_) if from_controller => self.counters.not_ours += 1,
            Ok(Message::Data(data)) if bounced => {
                let (src, head) = (data.src, data.head()); // the whole frame is needed then
                return self.take_bounced(src, &head, frame, out);
            }
            Ok(_) if bounced => self.counters.bounced_in += 1,
            Ok(Message::Heartbeat(beat)) => self.take_beat(now, nic, &beat, out),
            Ok(Message::Channels(said)) => self.take_channels(now, nic, &said, out),
            Ok(Message::Repeat(request)) => match self.addressing.sender(request.src, &self.by_mac)
            {
                Some(number) => self.take_repeat(number, &request),
                None => self.counters.unknown_peer += 1,
            },
            Ok(Message::Broadcast(broadcast)) => {
                if self.is_new_broadcast(now, &broadcast) {
                    let group = broadcast.group;
                    let src = self.addressing.owner(broadcast.src);
                    let src = src.map(|number| self.peers[number].mac);
                    wire::unwrap(&mut frame);
                    wire::set_macs(&mut frame, group, src.unwrap_or_default());
                    self.deliver(frame, out);
                    return;
                }
            }
            Ok(Message::Data(data)) => {
                let head = data.head();
                if let Some(from) = self.data_peer(now, data.src, &head, nic) {
                    self.take_data(now, from, nic, head, frame, out);
                    return;
                }
            }
        }
        out.done(frame);
    }

    /// The peer from which a data frame is that arrived by NIC `nic`, and the place of its channel,
    /// if the peer may send it there and in that channel.
    fn data_peer(
        &mut self,
        now: Nanos,
        src: Mac,
        head: &DataHead,
        nic: u8,
    ) -> Option<(usize, usize)> {
        let Some(number) = self.addressing.sender(src, &self.by_mac) else {
            self.counters.unknown_peer += 1;
            return None;
        };
        let peer = &mut self.peers[number];
        let Some(place) = peer.channels.place(head.channel) else {
            self.counters.unknown_channel += 1;
            peer.channels.refuse(head.channel);
            return None;
        };
        let remote = peer.session.remote();
        if remote != 0 && head.channel != 0 && peer.channels.at(place).mixed(remote) != head.session
        {
            self.counters.refused_tag += 1;
            peer.channels.refuse(head.channel);
            return None;
        }
        if remote == 0 || peer.channels.at(place).mixed(remote) != head.session {
            self.counters.unknown_session += 1;
            if remote == 0 {
                peer.beats.answer(now); // it may not know that we began anew
            }
            return None;
        }
        if peer.link(head.link).is_none_or(|link| link.own_port != nic) {
            self.counters.bad_link += 1;
            return None;
        }
        Some((number, place))
    }

    /// A data frame of a peer (its number) in one of its channels (its place), which arrived by NIC
    /// `nic`.
    fn take_data(
        &mut self,
        now: Nanos,
        (number, place): (usize, usize),
        nic: u8,
        head: DataHead,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let bytes = frame.len();
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        let mac = peer.mac;
        peer.session.data_arrived(now);
        if peer.rx.traffic_begins(now) {
            peer.beats.send_at_once();
            peer.liveness.speeds_up(now);
        }
        let arose = peer.hear(now, head.link);
        if let Some(link) = peer.link_mut(head.link) {
            self.counters.lost_on_links += u64::from(link.received(now, head.link_seq));
        }
        peer.rx.count(head.link, bytes);
        if let Some(nic) = self.nics.get_mut(&nic) {
            nic.arrived.0 += bytes as u64;
        }
        self.granter.arrived(mac, head.channel, bytes + self.settings.overhead);
        if head.flags & wire::data::MORE != 0 {
            self.grants_now |= self.granter.demand(now, mac, head.channel, f64::INFINITY);
        }
        self.counters.data_in += 1;
        self.counters.repeated_in += u64::from(head.flags & wire::data::REPEATED != 0);
        wire::unwrap(&mut frame);
        wire::set_macs(&mut frame, own, mac);
        let arrival = Arrival { head, bytes, frame };
        let channel = self.peers[number].channels.at(place);
        channel.carried.frames_in += 1;
        channel.carried.bytes_in += arrival.frame.len() as u64;
        channel.incoming.received(now);
        if channel.incoming.believes(now, head.seq) {
            self.place(now, number, place, arrival, out);
            self.settle_doubts(now, number, place, out);
        } else {
            self.counters.doubted += 1;
            let room = self.held < self.settings.max_memory;
            channel.incoming.doubt(now, arrival, room, |buffer| out.done(buffer));
        }
        if arose {
            self.tell_granter(number);
        }
    }

    /// Doubted frames get their places when their sequences are believed, and are dropped when that
    /// takes too long.
    pub(super) fn settle_doubts(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        out: &mut dyn Sink,
    ) {
        let mut from = 0;
        loop {
            let incoming = &mut self.peers[number].channels.at(place).incoming;
            let Some((arrival, believed)) = incoming.settle_doubt(now, &mut from) else { break };
            if believed {
                self.place(now, number, place, arrival, out);
            } else {
                out.done(arrival.frame);
            }
        }
    }

    /// Puts a frame where its sequence belongs, and delivers what is in order then.
    fn place(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        arrival: Arrival,
        out: &mut dyn Sink,
    ) {
        let full = self.held >= self.settings.max_memory;
        let bytes = arrival.bytes;
        let incoming = &mut self.peers[number].channels.at(place).incoming;
        let inserted = incoming.insert(now, arrival, full, |buffer| out.done(buffer));
        match inserted {
            Inserted::InOrder(frame) => {
                self.deliver(frame, out);
                self.deliver_in_order(number, place, out);
            }
            Inserted::Held => self.held += bytes,
            Inserted::Duplicate => self.counters.duplicate += 1,
            Inserted::Old => self.counters.old += 1,
            Inserted::FarAhead => self.counters.far_ahead += 1,
            Inserted::NoMemory => self.counters.no_memory += 1,
        }
        self.peers[number].channels.at(place).incoming.look_if_waiting(now);
    }

    fn deliver_in_order(&mut self, number: usize, place: usize, out: &mut dyn Sink) {
        while let Some(frame) = self.peers[number].channels.at(place).incoming.pop() {
            self.deliver(frame, out);
        }
    }

    /// Gives a frame to the host.
    pub(super) fn deliver(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        self.counters.plain_out += 1;
        out.plain(frame);
    }

    /// Decides which frames are lost, and asks for them or goes on without them.
    ///
    /// A frame is lost when all living links have delivered something newer. A silent link holds
    /// that decision up, but no longer than its heartbeat may take: the time between two, and twice
    /// the difference of the ways.
    pub(super) fn close_gaps(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) {
        let peer = &mut self.peers[number];
        if peer.channels.due_at().is_none_or(|at| at > now) {
            return;
        }
        let repair = self.mode == Mode::Paced;
        let trip = peer.links.iter().filter_map(|link| link.round_trip_ns).max().unwrap_or(0);
        let twice_skew_ns = 2 * peer.skew_ns();
        let silence_ns = if repair { SKEW_NS } else { SKEW_UNREPAIRED_NS };
        let policy = Policy {
            skew_ns: (silence_ns + twice_skew_ns).min(MAX_SKEW_NS),
            repair,
            repair_dead: true,
            retry_ns: (2 * trip).clamp(RETRY_NS, GIVE_UP_NS / 2),
            give_up_ns: GIVE_UP_NS,
            tries: TRIES,
        };
        let denied_ns = (DENIED_NS + twice_skew_ns).min(GIVE_UP_NS);
        for place in 0..peer.channels.len() {
            self.close_gaps_in(now, number, place, &policy, denied_ns, out);
        }
    }

    /// Does the same in one channel. Only the links that the peer uses for it say what is lost.
    fn close_gaps_in(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        policy: &Policy,
        denied_ns: Nanos,
        out: &mut dyn Sink,
    ) {
        let peer = &mut self.peers[number];
        let heard = peer.heard();
        let channel = peer.channels.at(place);
        if channel.incoming.due_at().is_none_or(|at| at > now) {
            return;
        }
        let live = heard & channel.remote_links();
        let mut ask = std::mem::take(&mut self.ask);
        ask.clear();
        if channel.incoming.resync(now, live, denied_ns) {
            self.counters.resyncs += 1;
        }
        self.counters.given_up += u64::from(channel.incoming.poll(now, live, policy, &mut ask));
        self.deliver_in_order(number, place, out);
        if !ask.is_empty() {
            self.request_repeats(number, place, &ask, out);
        }
        self.ask = ask;
    }

    /// Sends a request to repeat over two usable links at once. It is small, and a lost one costs
    /// the time until the next.
    fn request_repeats(
        &mut self,
        number: usize,
        place: usize,
        ask: &[(Seq, u16)],
        out: &mut dyn Sink,
    ) {
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        let usable = peer.usable();
        let channel = peer.channels.at(place);
        let channel_number = channel.number;
        let asked = channel.mixed(peer.session.remote());
        let links = peer.links.iter().filter(|link| usable & link.bit() != 0);
        for link in links.take(REQUEST_LINKS) {
            let mut frame = out.recycle();
            let (dst, src) = self.addressing.addresses(link, peer.mac, own, &self.nics);
            let asker = peer.session.own();
            repeat::write(dst, src, channel_number, asked, asker, ask.iter().copied(), &mut frame);
            self.counters.repeat_requests_out += 1;
            peer.tx.spend(link.number, frame.len() + self.settings.overhead);
            self.nic_buckets.spent(link.own_port, frame.len() + self.settings.overhead);
            out.wire(Out::Link(link.number, link.own_port), frame);
        }
    }

    /// Whether a broadcast was not seen before.
    fn is_new_broadcast(&mut self, now: Nanos, broadcast: &Broadcast<'_>) -> bool {
        let Some(number) = self.addressing.owner(broadcast.src) else {
            self.counters.unknown_peer += 1;
            return false;
        };
        let peer = &mut self.peers[number];
        if peer.session.remote() != broadcast.session {
            self.counters.unknown_session += 1;
            return false;
        }
        let fresh = peer.rx.is_new_broadcast(now, broadcast.number);
        self.counters.duplicate += u64::from(!fresh);
        fresh
    }
}
