//! From the host to the links: segments, credit, repeats; and the slot table when a peer has no
//! helper.

use super::{Engine, Mode, ACTIVE_NS, FAST_NS};
use crate::driver::{Out, Sink};
use crate::offload::segment::{finish, segments_in};
use crate::offload::vnet::VnetHdr;
use crate::seq::Seq;
use crate::wire::{self, DataHead, Mac, Repeat, MAX_LINKS};
use crate::Nanos;

/// How often one frame is sent again.
pub(super) const TRIES: u8 = 5;
/// Frames of one peer in its turn.
const QUANTUM: usize = 2;
const ETHERNET: usize = 14;

impl Engine {
    /// Whether more frames should be read from the host: as long as there is memory for them. A TAP
    /// that is not read drops what its small ring does not hold, and tells nobody; the peers'
    /// queues tell TCP, flow by flow.
    pub(super) fn has_room(&self) -> bool {
        self.held < self.settings.max_memory
    }

    /// A frame of the host, with its offloads.
    pub(super) fn take_plain(
        &mut self,
        now: Nanos,
        header: &VnetHdr,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let Some(dst) =
            frame.first_chunk::<6>().map(|bytes| Mac(*bytes)).filter(|_| frame.len() >= ETHERNET)
        else {
            self.counters.truncated += 1;
            return out.done(frame);
        };
        let mut segments = std::mem::take(&mut self.segments);
        self.segment(header, frame, &mut segments, out);
        match self.peer_of(dst).filter(|&number| self.peers[number].is_reachable(now)) {
            Some(number) => self.queue(now, number, &mut segments, out),
            None if !self.settings.autonomous => {
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

    /// Cut a frame of the host into frames that fit the wire in their envelopes, with complete
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

    /// Frames for a peer wait for credit, and go when there is some.
    fn queue(
        &mut self,
        now: Nanos,
        number: usize,
        segments: &mut Vec<Vec<u8>>,
        out: &mut dyn Sink,
    ) {
        let peer = &mut self.peers[number];
        for segment in segments.drain(..) {
            peer.offered.count(now, segment.len() + wire::OVERHEAD);
            self.held += segment.len();
            peer.queue.push(now, segment, |refused| {
                self.counters.queue_full += 1;
                out.done(refused);
            });
        }
        // Sent at the end of the batch, when all peers take turns.
        peer.beat_now |= peer.sent_ns.is_none_or(|at| now.saturating_sub(at) >= ACTIVE_NS);
        peer.sent_ns = Some(now);
    }

    /// What was sent over links of a NIC that has no carrier any more goes out again over others,
    /// unless it is known to have arrived: the peer would ask for it, but later.
    pub(super) fn repeat_after(&mut self, number: usize, link: u8) {
        let peer = &mut self.peers[number];
        for seq in peer.ring.on_link(link) {
            if peer.ring.queue_for_repeat(seq) {
                peer.again.push_back(seq);
            }
        }
    }

    fn hand_to_slots(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        self.counters.to_slots += 1;
        out.wire(Out::Slots, frame);
    }

    /// Send what there is credit for, peers in turn.
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
                let peer = &self.peers[number];
                if !(peer.queue.is_empty() && peer.again.is_empty()) {
                    going |= self.pump_peer(now, number, QUANTUM, out) == QUANTUM;
                }
            }
        }
    }

    /// Send up to `most` frames to a peer; how many went.
    fn pump_peer(&mut self, now: Nanos, number: usize, most: usize, out: &mut dyn Sink) -> usize {
        let mut went = 0;
        while went < most {
            if !self.peers[number].is_reachable(now) {
                self.strand(number, out);
                break;
            }
            if self.peers[number].quiet {
                break; // what goes out now may find nobody, and there is time to see
            }
            let sent = if self.peers[number].again.is_empty() {
                self.send_next(now, number, out)
            } else {
                self.send_again(now, number, out)
            };
            if !sent {
                break;
            }
            went += 1;
        }
        went
    }

    /// Which link carries the next frame of `bytes`; none while there is no credit (noted then).
    fn choose(&mut self, now: Nanos, number: usize, bytes: usize, not: u64) -> Option<u8> {
        let mode = self.mode;
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
        let buckets = &mut self.nic_buckets;
        buckets.refill(now);
        let ready = |link: u8| buckets.ready(ports[usize::from(link)]);
        let found = if mode == Mode::Paced {
            peer.paced.pick(now, bytes, wanted, ready)
        } else {
            // Weights say which link, its NIC says when: what goes out faster is dropped by the
            // NIC's queue.
            let chosen = peer.chosen.filter(|link| wanted & (1 << link) != 0);
            peer.chosen = chosen.or_else(|| peer.weighted.pick(bytes, wanted));
            peer.chosen.filter(|link| ready(*link)).inspect(|_| peer.chosen = None)
        };
        if found.is_none() {
            peer.short_ns = Some(now);
            let nic_at = |link: u8| buckets.ready_at(now, ports[usize::from(link)]);
            // By weight the link is chosen already, and no other one's NIC is waited for.
            let at = match peer.chosen {
                Some(link) if mode != Mode::Paced => nic_at(link),
                _ => peer.paced.next_ready(now, wanted, nic_at),
            };
            let at = at.max(now + 1000);
            self.credit_at = Some(self.credit_at.map_or(at, |old| old.min(at)));
        }
        found
    }

    fn send_next(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) -> bool {
        let Some(head) = self.peers[number].queue.head_bytes() else { return false };
        let Some(link) =
            self.choose(now, number, head + wire::OVERHEAD + self.settings.overhead, 0)
        else {
            return false;
        };
        let counters = &mut self.counters;
        let peer = &mut self.peers[number];
        let (drops, marks) = (peer.queue.drops(), peer.queue.marks());
        let frame = peer.queue.pop(now, |dropped| out.done(dropped));
        counters.queue_drops += peer.queue.drops() - drops;
        counters.queue_marks += peer.queue.marks() - marks;
        let Some(mut frame) = frame else { return false };
        let mut flags = 0;
        if !peer.queue.is_empty()
            || peer.short_ns.is_some_and(|at| now.saturating_sub(at) < FAST_NS)
        {
            flags |= wire::data::MORE;
        }
        if self.settings.udp_unordered && is_udp(&frame) {
            flags |= wire::data::UNORDERED;
        }
        let seq = peer.next;
        let session = peer.session;
        peer.next = seq.next();
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        wire::wrap(&mut frame, &DataHead { flags, link, session, seq, link_seq });
        if self.held < self.settings.max_memory {
            let mut kept = out.recycle();
            kept.clear();
            kept.extend_from_slice(&frame);
            self.held += kept.len();
            peer.ring.push(now, seq, link, kept);
        }
        while let Some(buffer) = peer.ring.reclaim() {
            out.done(buffer);
        }
        counters.data_out += 1;
        self.put(now, number, link, frame, out);
        true
    }

    fn send_again(&mut self, now: Nanos, number: usize, out: &mut dyn Sink) -> bool {
        let Some(&seq) = self.peers[number].again.front() else { return false };
        let peer = &mut self.peers[number];
        let Some((bytes, last)) = peer.ring.get(seq).map(|entry| (entry.frame.len(), entry.link))
        else {
            peer.again.pop_front();
            return true;
        };
        let Some(link) = self.choose(now, number, bytes + self.settings.overhead, 1 << last) else {
            return false;
        };
        let peer = &mut self.peers[number];
        peer.again.pop_front();
        let link_seq = peer.link(link).map_or(Seq(0), |link| link.next_sequence);
        let Some(entry) = peer.ring.take_for_repeat(seq, now, TRIES) else { return true };
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

    /// A frame in its envelope goes out over a link, and is paid for.
    fn put(
        &mut self,
        now: Nanos,
        number: usize,
        number_of_link: u8,
        mut frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        let own = self.own.unwrap_or_default();
        let peer = &mut self.peers[number];
        peer.sent_ns = Some(now);
        let mac = peer.mac;
        let Some(link) = peer.links.iter_mut().find(|link| link.number == number_of_link) else {
            return;
        };
        let bytes = frame.len() + self.settings.overhead;
        link.next_sequence = link.next_sequence.next();
        link.sent_frames += 1;
        link.sent_bytes += frame.len() as u64;
        if self.settings.autonomous {
            let src = self.nics.get(&link.own_port).map_or(own, |nic| nic.mac);
            wire::set_macs(&mut frame, link.peer_nic, src);
        } else {
            wire::set_macs(&mut frame, mac, own);
        }
        let own_port = link.own_port;
        if self.mode == Mode::Paced {
            peer.paced.spent(number_of_link, bytes);
        }
        self.nic_buckets.spent(own_port, bytes);
        self.counters.wire_out += 1;
        out.wire(Out::Link(number_of_link, own_port), frame);
    }

    /// The peer asks for frames again.
    pub(super) fn take_repeat(&mut self, number: usize, request: &Repeat<'_>) {
        self.counters.repeat_requests_in += 1;
        let peer = &mut self.peers[number];
        if request.session != peer.session || request.asker != peer.theirs {
            self.counters.unknown_session += 1;
            return;
        }
        for (first, frames) in request.ranges.iter() {
            // Whoever asks for a thousand frames that never were costs no more than who asks for
            // one.
            let there = peer.ring.within(first, frames);
            self.counters.repeat_not_there += u64::from(frames) - there.len() as u64;
            for seq in there.map(|ahead| first.add(ahead)) {
                if peer.ring.queue_for_repeat(seq) {
                    peer.again.push_back(seq);
                }
            }
        }
    }

    /// One of our own data frames came back: its receiver has no helper now. The host's frame goes
    /// by the slot table.
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
            self.peer_of(src).filter(|&number| self.peers[number].session == session)
        else {
            self.counters.unknown_session += 1;
            return;
        };
        let (mac, own) = (self.peers[number].mac, self.own.unwrap_or_default());
        self.peers[number].gone = true;
        self.peers[number].forget_repeats();
        // What was taken from the ring by a request before must not arrive twice.
        if self.peers[number].ring.forget(seq) {
            wire::unwrap(&mut frame);
            wire::set_macs(&mut frame, mac, own);
            self.hand_to_slots(frame, out);
        }
        self.strand(number, out);
    }

    /// The peer cannot be striped to: what waits goes by the slot table, in order (or is dropped,
    /// without a bridge). What was to be repeated is, should a link come back in time.
    pub(super) fn strand(&mut self, number: usize, out: &mut dyn Sink) {
        for frame in self.peers[number].queue.drain() {
            if self.settings.autonomous {
                self.counters.unreachable += 1;
            } else {
                self.hand_to_slots(frame, out);
            }
        }
    }

    /// The helper ends: peers stop sending to it, and everything that waits goes by the slot table.
    pub(super) fn hand_over(&mut self, now: Nanos, out: &mut dyn Sink) {
        for number in 0..self.peers.len() {
            self.strand(number, out);
            self.peers[number].beat_now = true;
        }
        self.send_beats(now, out);
    }

    /// Without a bridge: a broadcast or multicast goes to every peer over every usable link but one
    /// copy counts.
    fn broadcast(&mut self, frame: Vec<u8>, out: &mut dyn Sink) {
        for peer in &mut self.peers {
            let usable = peer.usable();
            let number = peer.next_broadcast;
            peer.next_broadcast = number.wrapping_add(1);
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
                    peer.session,
                    number,
                );
                self.counters.wire_out += 1;
                out.wire(Out::Link(link.number, link.own_port), copy);
            }
        }
        out.done(frame);
    }
}

/// Whether an unwrapped frame is UDP (a fragment too: its parts must not wait either).
fn is_udp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&17),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17),
        _ => false,
    }
}
