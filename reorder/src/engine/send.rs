// SPDX-License-Identifier: Apache-2.0
//! From the host to the links: segments, credit and repeats. Frames for a peer without a helper go
//! to the slot table.

use super::channel::Channel;
use super::{Engine, Mode};
use crate::driver::{Out, Sink};
use crate::offload::segment::{finish, segments_in};
use crate::offload::vnet::VnetHdr;
use crate::seq::Seq;
use crate::wire::{self, DataHead, Mac, Repeat, MAX_CHANNEL, MAX_LINKS};
use crate::Nanos;

/// How often a frame is sent again at most.
pub(super) const TRIES: u8 = 5;
/// Frames that a peer may send in its turn.
const QUANTUM: usize = 2;
/// Credit is looked for again after this time at the earliest.
const MIN_WAIT_NS: Nanos = 1000;

impl Engine {
    /// Whether more frames should be read from the host: as long as there is memory for them.
    ///
    /// A TAP that nobody reads drops what its small ring does not hold, and tells nobody. The
    /// peers' queues, in contrast, tell TCP to slow down, flow by flow.
    pub(super) fn has_room(&self) -> bool {
        self.held < self.settings.max_memory
    }

    /// Takes a frame of the host, with its offloads.
    ///
    /// Behind a bridge, a tag with the number of a channel says to which job the frame belongs.
    pub(super) fn take_plain(
        &mut self,
        now: Nanos,
        header: &VnetHdr,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let mut header = *header;
        let channel =
            if self.addressing.has_controller() { take_tag(&mut header, &mut frame) } else { 0 };
        let Some(dst) = frame
            .first_chunk::<6>()
            .map(|bytes| Mac(*bytes))
            .filter(|_| frame.len() >= wire::ETHERNET)
        else {
            self.counters.truncated += 1;
            return out.done(frame);
        };
        let mut segments = std::mem::take(&mut self.segments);
        self.segment(&header, frame, &mut segments, out);
        match self.peer_of(dst).filter(|&number| self.peers[number].is_reachable(now)) {
            Some(number) => self.queue(now, number, channel, &mut segments, out),
            None if self.addressing.has_slot_table() => {
                segments.drain(..).for_each(|segment| self.hand_to_slots(channel, segment, out))
            }
            None if dst.is_multicast() => {
                segments.drain(..).for_each(|segment| self.broadcast(segment, out))
            }
            None => {
                self.counters.unknown_peer += 1;
                segments.drain(..).for_each(|segment| out.done(segment));
            }
        }
        self.segments = segments;
    }

    /// Cuts a frame of the host into frames that fit the wire in their envelopes, with complete
    /// checksums.
    fn segment(
        &mut self,
        header: &VnetHdr,
        mut frame: Vec<u8>,
        segments: &mut Vec<Vec<u8>>,
        out: &mut dyn Sink,
    ) {
        let longest = self.settings.longest - wire::OVERHEAD;
        let done = if header.is_gso() {
            let cut = segments_in(header, &frame, longest, &mut || out.recycle(), &mut |segment| {
                segments.push(segment)
            });
            out.done(frame);
            cut.map(|_| ())
        } else {
            let done = finish(header, &mut frame, longest);
            match done {
                Ok(()) => segments.push(frame),
                Err(_) => out.done(frame),
            }
            done
        };
        if let Err(error) = done {
            self.counters.count(error.counter());
        }
    }

    /// Frames for a peer wait in their channel for credit, and leave when there is some. What is of
    /// a channel that is not known goes as what is of no job.
    fn queue(
        &mut self,
        now: Nanos,
        number: usize,
        channel: u8,
        segments: &mut Vec<Vec<u8>>,
        out: &mut dyn Sink,
    ) {
        let peer = &mut self.peers[number];
        let place = peer.channels.place(channel).unwrap_or_else(|| {
            self.counters.unclassed += segments.len() as u64;
            0
        });
        let Channel { out: outgoing, carried, .. } = peer.channels.at(place);
        for segment in segments.drain(..) {
            self.held += segment.len();
            outgoing.enqueue(now, segment, |refused| {
                self.counters.queue_full += 1;
                carried.drops += 1;
                out.done(refused);
            });
        }
        // The frames leave at the end of the batch, when all peers take turns.
        if peer.tx.traffic_begins(now) {
            peer.beats.send_at_once();
        }
    }

    /// A frame goes to the slot table, with the tag of the channel with which it came.
    fn hand_to_slots(&mut self, channel: u8, mut frame: Vec<u8>, out: &mut dyn Sink) {
        if channel > 0 {
            wire::push_tag(&mut frame, channel.into(), 0);
        }
        self.counters.to_slots += 1;
        out.wire(Out::Slots, frame);
    }

    /// Sends the frames for which there is credit: first those for which there is a guaranteed
    /// rate.
    pub(super) fn pump(&mut self, now: Nanos, out: &mut dyn Sink) {
        self.credit_at = None;
        if self.peers.is_empty() {
            return;
        }
        self.turn = (self.turn + 1) % self.peers.len();
        if self.peers.iter().any(|peer| peer.channels.has_guarantees()) {
            self.pump_all(now, true, out);
        }
        self.pump_all(now, false, out);
    }

    /// Peers take turns to send. `guaranteed`: only within the guaranteed rates of their channels.
    fn pump_all(&mut self, now: Nanos, guaranteed: bool, out: &mut dyn Sink) {
        self.yields = !guaranteed;
        let peers = self.peers.len();
        let mut going = true;
        while going {
            going = false;
            for at in 0..peers {
                let number = (self.turn + at) % peers;
                let channels = &self.peers[number].channels;
                if channels.has_frames() && (!guaranteed || channels.has_guarantees()) {
                    going |= self.pump_peer(now, number, guaranteed, out) == QUANTUM;
                }
            }
        }
    }

    /// Sends up to `QUANTUM` frames to a peer. Returns how many left.
    fn pump_peer(
        &mut self,
        now: Nanos,
        number: usize,
        guaranteed: bool,
        out: &mut dyn Sink,
    ) -> usize {
        let mut left = 0;
        while left < QUANTUM {
            if !self.peers[number].is_reachable(now) {
                self.strand(number, out);
                break;
            }
            if self.peers[number].liveness.is_quiet() {
                break; // frames that leave now may find nobody, and there is time to see
            }
            if !self.send_one(now, number, guaranteed, out) {
                break;
            }
            left += 1;
        }
        left
    }

    /// Sends one frame to a peer, of the channel whose turn it is. One that has to wait for its
    /// links does not hold up the others. False if all have to wait.
    fn send_one(
        &mut self,
        now: Nanos,
        number: usize,
        guaranteed: bool,
        out: &mut dyn Sink,
    ) -> bool {
        if self.peers[number].channels.len() == 1 {
            return self.send_from(now, number, 0, out).is_some();
        }
        let mut tried = 0;
        loop {
            let found = self.peers[number].channels.next_sender(now, guaranteed, tried);
            let place = match found {
                Ok(place) => place,
                Err(at) => {
                    at.into_iter().for_each(|at| self.look_again(now, at));
                    return false;
                }
            };
            if let Some(bytes) = self.send_from(now, number, place, out) {
                self.peers[number].channels.sent(place, bytes, guaranteed);
                return true;
            }
            tried |= 1 << place;
        }
    }

    /// Sends one frame of the channel at `place`. Returns its length as the host sees it (0 if
    /// there is none any more); none if it has to wait.
    fn send_from(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        out: &mut dyn Sink,
    ) -> Option<usize> {
        match self.peers[number].channels.at(place).out.next_repeat() {
            Some(seq) => self.send_again(now, number, place, seq, out),
            None => self.send_next(now, number, place, out),
        }
    }

    /// There may be credit at `at`.
    fn look_again(&mut self, now: Nanos, at: Nanos) {
        let at = at.max(now + MIN_WAIT_NS);
        self.credit_at = Some(self.credit_at.map_or(at, |old| old.min(at)));
    }

    /// The link that carries the next frame of `bytes` of a channel: if there is another one, none
    /// of those in `not`. While there is no credit it is none, and the engine knows when to look
    /// again.
    fn choose(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        bytes: usize,
        not: u64,
    ) -> Option<u8> {
        let peer = &mut self.peers[number];
        let allowed = peer.channels.at(place).links();
        let usable = peer.usable() & allowed;
        if usable == 0 {
            return None;
        }
        let wanted = if usable & !not == 0 { usable } else { usable & !not };
        let mut ports = [0u8; MAX_LINKS];
        for link in &peer.links {
            ports[usize::from(link.number)] = link.own_port;
        }
        let outgoing = &mut peer.channels.at(place).out;
        let nics = &mut self.nic_buckets;
        let found = if self.mode == Mode::Paced {
            peer.tx.choose_paced(now, bytes, wanted, &ports, nics)
        } else {
            let chosen = &mut outgoing.chosen;
            peer.tx.choose_weighted(now, bytes, wanted, &ports, nics, chosen)
        };
        match found {
            Ok(link) => Some(link),
            Err(at) => {
                outgoing.is_short(now);
                self.look_again(now, at);
                None
            }
        }
    }

    /// Sends the frame that waits first, for the first time. Returns its length as the host sees
    /// it; none if it has to wait.
    fn send_next(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        out: &mut dyn Sink,
    ) -> Option<usize> {
        let head = self.peers[number].channels.at(place).out.queue.head_bytes()?;
        let bytes = head + wire::OVERHEAD + self.settings.overhead;
        let link = self.choose(now, number, place, bytes, 0)?;
        let counters = &mut self.counters;
        let peer = &mut self.peers[number];
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        let session = peer.session.own();
        let channel = peer.channels.at(place);
        let queue = &mut channel.out.queue;
        let (drops, marks) = (queue.drops(), queue.marks());
        let frame = queue.pop(now, |dropped| out.done(dropped));
        counters.queue_drops += queue.drops() - drops;
        counters.queue_marks += queue.marks() - marks;
        channel.carried.drops += queue.drops() - drops;
        let mut frame = frame?;
        let bytes = frame.len();
        let mut flags = 0;
        if channel.has_more(now) {
            flags |= wire::data::MORE;
        }
        if self.settings.udp_unordered && is_udp(&frame) {
            flags |= wire::data::UNORDERED;
        }
        let (session, seq) = (channel.mixed(session), channel.out.take_sequence());
        let head = DataHead { channel: channel.number, flags, link, session, seq, link_seq };
        wire::wrap(&mut frame, &head);
        channel.out.sent(now);
        channel.carried.frames_out += 1;
        channel.carried.bytes_out += bytes as u64;
        let ring = &mut channel.out.ring;
        if self.held < self.settings.max_memory {
            let mut kept = out.recycle();
            kept.clear();
            kept.extend_from_slice(&frame);
            self.held += kept.len();
            ring.push(now, seq, link, kept);
        }
        while let Some(buffer) = ring.reclaim() {
            out.done(buffer);
        }
        counters.data_out += 1;
        self.put(now, number, link, frame, out);
        Some(bytes)
    }

    /// Sends frame `seq` again, unless it is kept no more. Returns its length as the host sees it,
    /// 0 if it is not sent; none if it has to wait.
    fn send_again(
        &mut self,
        now: Nanos,
        number: usize,
        place: usize,
        seq: Seq,
        out: &mut dyn Sink,
    ) -> Option<usize> {
        let outgoing = &mut self.peers[number].channels.at(place).out;
        let kept = outgoing.ring.get(seq).map(|entry| (entry.frame.len(), entry.link));
        let Some((bytes, last)) = kept else {
            outgoing.end_repeat();
            return Some(0);
        };
        let link = self.choose(now, number, place, bytes + self.settings.overhead, 1 << last)?;
        let peer = &mut self.peers[number];
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        let outgoing = &mut peer.channels.at(place).out;
        outgoing.end_repeat();
        let Some(entry) = outgoing.ring.take_for_repeat(seq, now, TRIES) else { return Some(0) };
        entry.link = link;
        let mut frame = out.recycle();
        frame.clear();
        frame.extend_from_slice(&entry.frame);
        wire::rewrite(&mut frame, link, link_seq, wire::data::REPEATED);
        self.counters.repeated_out += 1;
        if let Some(link) = peer.link_mut(link) {
            link.repeated += 1;
        }
        self.put(now, number, link, frame, out);
        Some(bytes - wire::OVERHEAD)
    }

    /// A frame in its envelope leaves over a link, and uses up credit.
    fn put(
        &mut self,
        now: Nanos,
        number: usize,
        link_number: u8,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        peer.tx.sent(now);
        let mac = peer.mac;
        let Some(link) = peer.links.iter_mut().find(|link| link.number == link_number) else {
            return;
        };
        let bytes = frame.len() + self.settings.overhead;
        link.next_sequence = link.next_sequence.next();
        link.sent_frames += 1;
        let (dst, src) = self.addressing.addresses(link, mac, own, &self.nics);
        wire::set_macs(&mut frame, dst, src);
        let own_port = link.own_port;
        if self.mode == Mode::Paced {
            peer.tx.spend(link_number, bytes);
        }
        self.nic_buckets.spent(own_port, bytes);
        if self.yields {
            self.share_beside(now, number, link_number, own_port, bytes);
        }
        self.counters.wire_out += 1;
        out.wire(Out::Link(link_number, own_port), frame);
    }

    /// The peer asks for frames again.
    pub(super) fn take_repeat(&mut self, number: usize, request: &Repeat<'_>) {
        self.counters.repeat_requests_in += 1;
        let peer = &mut self.peers[number];
        let own = peer.session.own();
        let Some(place) = peer.channels.place(request.channel) else {
            self.counters.unknown_channel += 1;
            return;
        };
        let channel = peer.channels.at(place);
        if request.session != channel.mixed(own) || request.asker != peer.session.remote() {
            self.counters.unknown_session += 1;
            return;
        }
        for (first, frames) in request.ranges.iter() {
            self.counters.repeat_not_there += channel.out.repeat(first, frames);
        }
    }

    /// One of our own data frames came back: its receiver has no helper now. The host's frame goes
    /// to the slot table.
    pub(super) fn take_bounced(
        &mut self,
        src: Mac,
        head: &DataHead,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        self.counters.bounced_in += 1;
        let found = self.peer_of(src).and_then(|number| {
            let peer = &mut self.peers[number];
            let place = peer.channels.place(head.channel)?;
            let ours = peer.channels.at(place).mixed(peer.session.own()) == head.session;
            ours.then_some((number, place))
        });
        let Some((number, place)) = found else {
            self.counters.unknown_session += 1;
            return;
        };
        let (mac, own) = (self.peers[number].mac, self.own.unwrap_or_default());
        let peer = &mut self.peers[number];
        peer.session.helper_is_gone();
        peer.channels.forget_repeats();
        // A frame that was repeated already may have arrived, and must not arrive twice.
        if peer.channels.at(place).out.ring.forget(head.seq) {
            wire::unwrap(&mut frame);
            wire::set_macs(&mut frame, mac, own);
            self.hand_to_slots(head.channel, frame, out);
        }
        self.strand(number, out);
    }

    /// The peer cannot be striped to. What waits for it goes to the slot table, in order, or is
    /// dropped where there is none. What is to be repeated stays, should a link come back in time.
    pub(super) fn strand(&mut self, number: usize, out: &mut dyn Sink) {
        for place in 0..self.peers[number].channels.len() {
            let channel = self.peers[number].channels.at(place);
            let (frames, of) = (channel.out.queue.drain(), channel.number);
            self.strand_frames(of, frames, out);
        }
    }

    /// What waited too long in a channel that can send nothing goes to the slot table.
    pub(super) fn strand_stuck(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) {
        let peer = &mut self.peers[number];
        let usable = peer.usable();
        for place in 0..peer.channels.len() {
            let channel = self.peers[number].channels.at(place);
            channel.look(now, usable);
            if channel.strands_at().is_some_and(|at| at <= now) {
                let (frames, of) = (channel.out.queue.drain(), channel.number);
                self.strand_frames(of, frames, out);
            }
        }
    }

    /// Frames of a channel that cannot be striped go to the slot table, or are dropped where there
    /// is none.
    pub(super) fn strand_frames(&mut self, channel: u8, frames: Vec<Vec<u8>>, out: &mut dyn Sink) {
        for frame in frames {
            if self.addressing.has_slot_table() {
                self.hand_to_slots(channel, frame, out);
            } else {
                self.counters.unreachable += 1;
            }
        }
    }

    /// The helper ends. Peers are told to stop sending to it, and everything that waits goes to the
    /// slot table.
    pub(super) fn hand_over(&mut self, now: Nanos, out: &mut dyn Sink) {
        for number in 0..self.peers.len() {
            self.strand(number, out);
            self.peers[number].beats.send_at_once();
        }
        self.send_beats(now, out);
    }

    /// Sends a broadcast or multicast to every peer over every usable link; the peer delivers one
    /// copy. Only without a bridge.
    fn broadcast(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        for peer in &mut self.peers {
            let usable = peer.usable();
            let number = peer.tx.take_broadcast_sequence();
            for link in peer.links.iter().filter(|link| usable & link.bit() != 0) {
                let Some(nic) = self.nics.get(&link.own_port) else { continue };
                let mut copy = out.recycle();
                copy.clear();
                copy.extend_from_slice(&frame);
                wire::wrap_broadcast(
                    &mut copy,
                    link.peer_nic,
                    nic.mac,
                    link.number,
                    peer.session.own(),
                    number,
                );
                self.counters.wire_out += 1;
                out.wire(Out::Link(link.number, link.own_port), copy);
            }
        }
        out.done(frame);
    }
}

/// Takes the tag of a channel off a frame of the host, and makes the header fit what is left.
/// Returns the channel's number; 0 if there is no such tag.
fn take_tag(header: &mut VnetHdr, frame: &mut Vec<u8>) -> u8 {
    let channel = wire::read_tag(frame).and_then(|tag| u8::try_from(tag.vid).ok()).unwrap_or(0);
    if channel == 0 || channel > MAX_CHANNEL {
        return 0;
    }
    wire::pop_tag(frame);
    for at in [&mut header.csum_start, &mut header.hdr_len] {
        *at = at.saturating_sub(wire::TAG_LENGTH as u16);
    }
    channel
}

/// Whether an unwrapped frame is UDP. A fragment of UDP counts too: its parts must not wait either.
fn is_udp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&17),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17),
        _ => false,
    }
}
