//! From the host to the links: segments, credit and repeats. Frames for a peer without a helper go
//! to the slot table.

use super::{Engine, Mode};
use crate::driver::{Out, Sink};
use crate::offload::segment::{finish, segments_in};
use crate::offload::vnet::VnetHdr;
use crate::seq::Seq;
use crate::wire::{self, DataHead, Mac, Repeat, MAX_LINKS};
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
    pub(super) fn take_plain(
        &mut self,
        now: Nanos,
        header: &VnetHdr,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let Some(dst) = frame
            .first_chunk::<6>()
            .map(|bytes| Mac(*bytes))
            .filter(|_| frame.len() >= wire::ETHERNET)
        else {
            self.counters.truncated += 1;
            return out.done(frame);
        };
        let mut segments = std::mem::take(&mut self.segments);
        self.segment(header, frame, &mut segments, out);
        match self.peer_of(dst).filter(|&number| self.peers[number].is_reachable(now)) {
            Some(number) => self.queue(now, number, &mut segments, out),
            None if self.addressing.has_slot_table() => {
                segments.drain(..).for_each(|segment| self.hand_to_slots(segment, out))
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

    /// Frames for a peer wait for credit, and leave when there is some.
    fn queue(
        &mut self,
        now: Nanos,
        number: usize,
        segments: &mut Vec<Vec<u8>>,
        out: &mut dyn Sink,
    ) {
        let peer = &mut self.peers[number];
        for segment in segments.drain(..) {
            self.held += segment.len();
            peer.tx.enqueue(now, segment, |refused| {
                self.counters.queue_full += 1;
                out.done(refused);
            });
        }
        // The frames leave at the end of the batch, when all peers take turns.
        if peer.tx.traffic_begins(now) {
            peer.beats.send_at_once();
        }
    }

    fn hand_to_slots(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        self.counters.to_slots += 1;
        out.wire(Out::Slots, frame);
    }

    /// Sends the frames for which there is credit. Peers take turns.
    pub(super) fn pump(&mut self, now: Nanos, out: &mut dyn Sink) {
        let peers = self.peers.len();
        self.credit_at = None;
        if peers == 0 {
            return;
        }
        self.turn = (self.turn + 1) % peers;
        let mut going = true;
        while going {
            going = false;
            for at in 0..peers {
                let number = (self.turn + at) % peers;
                if self.peers[number].tx.has_frames() {
                    going |= self.pump_peer(now, number, QUANTUM, out) == QUANTUM;
                }
            }
        }
    }

    /// Sends up to `max` frames to a peer. Returns how many left.
    fn pump_peer(&mut self, now: Nanos, number: usize, max: usize, out: &mut dyn Sink) -> usize {
        let mut left = 0;
        while left < max {
            if !self.peers[number].is_reachable(now) {
                self.strand(number, out);
                break;
            }
            if self.peers[number].liveness.is_quiet() {
                break; // frames that leave now may find nobody, and there is time to see
            }
            let sent = match self.peers[number].tx.next_repeat() {
                Some(seq) => self.send_again(now, number, seq, out),
                None => self.send_next(now, number, out),
            };
            if !sent {
                break;
            }
            left += 1;
        }
        left
    }

    /// The link that carries the next frame of `bytes`: if there is another one, none of those in
    /// `not`. While there is no credit it is none, and the engine knows when to look again.
    fn choose(&mut self, now: Nanos, number: usize, bytes: usize, not: u64) -> Option<u8> {
        let peer = &mut self.peers[number];
        let usable = peer.usable();
        if usable == 0 {
            return None;
        }
        let wanted = if usable & !not == 0 { usable } else { usable & !not };
        let mut ports = [0u8; MAX_LINKS];
        for link in &peer.links {
            ports[usize::from(link.number)] = link.own_port;
        }
        match peer.tx.choose(now, self.mode, bytes, wanted, &ports, &mut self.nic_buckets) {
            Ok(link) => Some(link),
            Err(at) => {
                let at = at.max(now + MIN_WAIT_NS);
                self.credit_at = Some(self.credit_at.map_or(at, |old| old.min(at)));
                None
            }
        }
    }

    /// Sends the frame that waits first, for the first time. False if it has to wait.
    fn send_next(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) -> bool {
        let Some(head) = self.peers[number].tx.queue.head_bytes() else { return false };
        let Some(link) =
            self.choose(now, number, head + wire::OVERHEAD + self.settings.overhead, 0)
        else {
            return false;
        };
        let counters = &mut self.counters;
        let peer = &mut self.peers[number];
        let queue = &mut peer.tx.queue;
        let (drops, marks) = (queue.drops(), queue.marks());
        let frame = queue.pop(now, |dropped| out.done(dropped));
        counters.queue_drops += queue.drops() - drops;
        counters.queue_marks += queue.marks() - marks;
        let Some(mut frame) = frame else { return false };
        let mut flags = 0;
        if peer.tx.has_more(now) {
            flags |= wire::data::MORE;
        }
        if self.settings.udp_unordered && is_udp(&frame) {
            flags |= wire::data::UNORDERED;
        }
        let (session, seq) = (peer.session.own(), peer.tx.take_sequence());
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        wire::wrap(&mut frame, &DataHead { flags, link, session, seq, link_seq });
        let ring = &mut peer.tx.ring;
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
        true
    }

    /// Sends frame `seq` again, unless it is kept no more. False if it has to wait.
    fn send_again(&mut self, now: Nanos, number: usize, seq: Seq, out: &mut dyn Sink) -> bool {
        let peer = &mut self.peers[number];
        let kept = peer.tx.ring.get(seq).map(|entry| (entry.frame.len(), entry.link));
        let Some((bytes, last)) = kept else {
            peer.tx.end_repeat();
            return true;
        };
        let Some(link) = self.choose(now, number, bytes + self.settings.overhead, 1 << last) else {
            return false;
        };
        let peer = &mut self.peers[number];
        peer.tx.end_repeat();
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        let Some(entry) = peer.tx.ring.take_for_repeat(seq, now, TRIES) else { return true };
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
        true
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
        self.counters.wire_out += 1;
        out.wire(Out::Link(link_number, own_port), frame);
    }

    /// The peer asks for frames again.
    pub(super) fn take_repeat(&mut self, number: usize, request: &Repeat<'_>) {
        self.counters.repeat_requests_in += 1;
        let peer = &mut self.peers[number];
        if request.session != peer.session.own() || request.asker != peer.session.remote() {
            self.counters.unknown_session += 1;
            return;
        }
        for (first, frames) in request.ranges.iter() {
            self.counters.repeat_not_there += peer.tx.repeat(first, frames);
        }
    }

    /// One of our own data frames came back: its receiver has no helper now. The host's frame goes
    /// to the slot table.
    pub(super) fn take_bounced(
        &mut self,
        src: Mac,
        session: u32,
        seq: Seq,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        self.counters.bounced_in += 1;
        let Some(number) =
            self.peer_of(src).filter(|&number| self.peers[number].session.own() == session)
        else {
            self.counters.unknown_session += 1;
            return;
        };
        let (mac, own) = (self.peers[number].mac, self.own.unwrap_or_default());
        let peer = &mut self.peers[number];
        peer.session.helper_is_gone();
        peer.tx.forget_repeats();
        // A frame that was repeated already may have arrived, and must not arrive twice.
        if peer.tx.ring.forget(seq) {
            wire::unwrap(&mut frame);
            wire::set_macs(&mut frame, mac, own);
            self.hand_to_slots(frame, out);
        }
        self.strand(number, out);
    }

    /// The peer cannot be striped to. What waits for it goes to the slot table, in order, or is
    /// dropped where there is none. What is to be repeated stays, should a link come back in time.
    pub(super) fn strand(&mut self, number: usize, out: &mut dyn Sink) {
        for frame in self.peers[number].tx.queue.drain() {
            if self.addressing.has_slot_table() {
                self.hand_to_slots(frame, out);
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

/// Whether an unwrapped frame is UDP. A fragment of UDP counts too: its parts must not wait either.
fn is_udp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&17),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17),
        _ => false,
    }
}
