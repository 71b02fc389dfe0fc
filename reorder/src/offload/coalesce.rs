// SPDX-License-Identifier: Apache-2.0
//! Merges consecutive frames of a flow into super-frames for the TAP, as GRO does in the kernel.
//!
//! Frames are merged only if [`super::segment`] would cut the result into the same frames again:
//! with equal headers, contiguous TCP sequence numbers or UDP datagrams of one size, and right
//! checksums. Three things may differ afterwards: the IPv4 identification of packets that must not
//! be fragmented, which says nothing (RFC 6864); which of the two zeros of ones' complement a
//! checksum is; and the order of frames of **different** flows.

use super::checksum::{add, pseudo_header, sum};
use super::packet::{put_u16, Layout, TCP, UDP};
use super::vnet::{Gso, VnetHdr};

/// The most super-frames under construction. With one more flow, the oldest is handed on.
pub const MAX_FLOWS: usize = 8;
/// The most TCP segments in a super-frame: as many as [`super::segment`] cuts.
pub const MAX_TCP: usize = super::segment::MAX_SEGMENTS;
/// The most UDP datagrams in a super-frame: as many as every kernel accepts (`UDP_MAX_SEGMENTS` was
/// 64 before Linux 6.9).
pub const MAX_UDP: usize = 64;
/// Bytes of the longest IP packet. A super-frame has to be a little shorter.
const MAX_FRAME: usize = 65_535;
/// TCP segments with less payload are not merged: the kernel refuses to cut them
/// (`TCP_MIN_GSO_SIZE`).
const MIN_SEGMENT: usize = 8;
/// The most emptied buffers that are kept for [`Coalescer::reclaim`].
const MAX_SPARE: usize = 64;

const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// The bit of byte 6 of the IPv4 header that forbids fragments.
const DONT_FRAGMENT: u8 = 0x40;

/// What is merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The most bytes of a super-frame, counted from the destination MAC.
    pub max_frame: usize,
    /// Merge TCP segments.
    pub tcp: bool,
    /// Merge UDP datagrams. Only for kernels with USO (6.2).
    pub udp: bool,
}

impl Settings {
    /// Settings that merge nothing: each frame is handed on as it is.
    pub fn off() -> Self {
        Self { max_frame: 0, tcp: false, udp: false }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_frame: MAX_FRAME, tcp: true, udp: true }
    }
}

/// Frames that are being merged.
///
/// Invariants: at most one super-frame of a flow is held, and frames of a flow are handed on in the
/// order in which they were pushed. At most [`MAX_FLOWS`] super-frames of [`Settings::max_frame`]
/// bytes are held.
#[derive(Debug)]
pub struct Coalescer {
    settings: Settings,
    /// The oldest is first.
    held: Vec<Held>,
    spare: Vec<Vec<u8>>,
}

impl Coalescer {
    /// A coalescer that holds nothing yet.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings { max_frame: settings.max_frame.min(MAX_FRAME), ..settings };
        Self { settings, held: Vec::with_capacity(MAX_FLOWS), spare: Vec::new() }
    }

    /// Takes a complete frame. Hands on what the frame completes or must not overtake, and keeps
    /// the frame only if the flow's next one might be merged with it.
    pub fn push(&mut self, frame: Vec<u8>, out: &mut impl FnMut(VnetHdr, Vec<u8>)) {
        if !self.settings.tcp && !self.settings.udp {
            return out(VnetHdr::default(), frame);
        }
        let Some(piece) = Piece::read(&frame) else {
            // The flow is not known: this is a fragment, or ARP.
            self.flush(out);
            return out(VnetHdr::default(), frame);
        };
        if let Some(at) = self.held.iter().position(|held| held.is_of_flow(&piece, &frame)) {
            match self.held[at].merge(&piece, &frame, self.settings.max_frame) {
                Merge::More => return self.keep(frame),
                Merge::Complete => {
                    self.held.remove(at).hand_on(out);
                    return self.keep(frame);
                }
                Merge::Refused => self.held.remove(at).hand_on(out),
            }
        }
        if !piece.may_begin(&self.settings) {
            return out(VnetHdr::default(), frame);
        }
        if self.held.len() == MAX_FLOWS {
            self.held.remove(0).hand_on(out);
        }
        self.held.push(Held::new(piece, frame));
    }

    /// Hands on everything that is held, the oldest first. To be called at the end of each batch.
    pub fn flush(&mut self, out: &mut impl FnMut(VnetHdr, Vec<u8>)) {
        for held in self.held.drain(..) {
            held.hand_on(out);
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The buffer of a frame that was merged into another, for reuse.
    pub fn reclaim(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }
}

/// The fields of a TCP or UDP frame that matter here.
#[derive(Debug)]
struct Piece {
    layout: Layout,
    /// Where the payload begins.
    payload: usize,
    /// Payload bytes.
    size: usize,
    /// TCP sequence number; 0 in UDP.
    sequence: u32,
    /// TCP flags; 0 in UDP.
    flags: u8,
    /// IPv4 identification; 0 in IPv6.
    id: u16,
    /// Nothing in its headers forbids merging it.
    mergeable: bool,
}

impl Piece {
    /// Reads a frame. `None` if it has no whole TCP or UDP header over IP without fragments.
    fn read(frame: &[u8]) -> Option<Self> {
        let layout = Layout::find(frame).ok()?;
        let payload = layout.payload(frame).ok()?;
        let Layout { ip, l4, .. } = layout;
        let size = frame.len() - payload;
        let whole = !layout.has_options() && layout.end == frame.len();
        let id = if layout.v6 { 0 } else { u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]) };
        let (sequence, flags, mergeable) = if layout.protocol == TCP {
            let sequence =
                u32::from_be_bytes([frame[l4 + 4], frame[l4 + 5], frame[l4 + 6], frame[l4 + 7]]);
            let flags = frame[l4 + 13];
            (sequence, flags, flags & !PSH == ACK && size >= MIN_SEGMENT)
        } else {
            let length = usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
            let checksum = [frame[l4 + 6], frame[l4 + 7]];
            (0, 0, length == frame.len() - l4 && checksum != [0, 0] && size > 0)
        };
        Some(Self { layout, payload, size, sequence, flags, id, mergeable: whole && mergeable })
    }

    /// Whether frames that follow might be merged with it.
    fn may_begin(&self, settings: &Settings) -> bool {
        let wanted = if self.layout.protocol == TCP { settings.tcp } else { settings.udp };
        let room = self.payload + 2 * self.size <= settings.max_frame;
        self.mergeable && wanted && room && self.flags & PSH == 0
    }

    /// Whether the checksums of IPv4's header and of the packet are right.
    fn is_valid(&self, frame: &[u8]) -> bool {
        let Layout { ip, l4, v6, protocol, .. } = self.layout;
        let pseudo =
            pseudo_header(self.layout.addresses(frame), protocol, (frame.len() - l4) as u16);
        (v6 || sum(&frame[ip..l4]) == 0xffff) && add(pseudo, sum(&frame[l4..])) == 0xffff
    }
}

enum Merge {
    /// It was merged, and the next one may be as well.
    More,
    /// It was merged, and was the last one.
    Complete,
    /// It was not merged.
    Refused,
}

/// A super-frame under construction.
///
/// Invariants: `first.mergeable` holds. While `count` is 1, the frame is as it arrived. Otherwise
/// all its checksums were right, `verified` is set, and only the payload and PSH have changed
/// since.
#[derive(Debug)]
struct Held {
    first: Piece,
    frame: Vec<u8>,
    count: usize,
    /// The TCP sequence number that may come next.
    sequence: u32,
    /// The last IPv4 identification, and by how much the second one was higher than the first.
    id: u16,
    id_step: Option<u16>,
    /// The first frame's checksums are right.
    verified: bool,
}

impl Held {
    fn new(first: Piece, frame: Vec<u8>) -> Self {
        let sequence = first.sequence.wrapping_add(first.size as u32);
        Self { id: first.id, first, frame, count: 1, sequence, id_step: None, verified: false }
    }

    fn is_of_flow(&self, piece: &Piece, frame: &[u8]) -> bool {
        let (a, b) = (&self.first.layout, &piece.layout);
        a.v6 == b.v6
            && a.protocol == b.protocol
            && self.frame[a.l4..a.l4 + 4] == frame[b.l4..b.l4 + 4]
            && a.addresses(&self.frame) == b.addresses(frame)
    }

    fn merge(&mut self, piece: &Piece, frame: &[u8], max_frame: usize) -> Merge {
        let max_count = if piece.layout.protocol == UDP { MAX_UDP } else { MAX_TCP };
        let id_step = piece.id.wrapping_sub(self.id);
        let fits = piece.mergeable
            && piece.size <= self.first.size
            && self.frame.len() + piece.size <= max_frame;
        if !fits || !self.has_headers_of(piece, frame) || !self.may_step(id_step, piece, frame) {
            return Merge::Refused;
        }
        self.verified = self.verified || self.first.is_valid(&self.frame);
        if !self.verified || !piece.is_valid(frame) {
            return Merge::Refused;
        }
        self.frame.extend_from_slice(&frame[piece.payload..]);
        self.count += 1;
        self.sequence = self.sequence.wrapping_add(piece.size as u32);
        self.id = piece.id;
        self.id_step = Some(id_step);
        let pushed = piece.flags & PSH != 0;
        if pushed {
            self.frame[piece.layout.l4 + 13] |= PSH;
        }
        let full = self.frame.len() + self.first.size > max_frame || self.count == max_count;
        if pushed || full || piece.size < self.first.size {
            Merge::Complete
        } else {
            Merge::More
        }
    }

    /// Whether all fields are equal that are not a length, a checksum, an identification, PSH or
    /// the TCP sequence number. The latter must be the next one.
    fn has_headers_of(&self, piece: &Piece, frame: &[u8]) -> bool {
        let Layout { ip, l4, v6, protocol, .. } = piece.layout;
        if self.first.layout.ip != ip || self.first.payload != piece.payload {
            return false;
        }
        let same = |from: usize, to: usize| self.frame[from..to] == frame[from..to];
        let same_ip = if v6 {
            same(0, ip + 4) && same(ip + 6, ip + 40)
        } else {
            same(0, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, ip + 20)
        };
        let same_tcp = || {
            self.sequence == piece.sequence
                && same(l4, l4 + 4)
                && same(l4 + 8, l4 + 13)
                && same(l4 + 14, l4 + 16)
                && same(l4 + 18, piece.payload)
        };
        same_ip && if protocol == TCP { same_tcp() } else { same(l4, l4 + 4) }
    }

    /// Whether the IPv4 identification goes on as it must: it rises by one each time or, where
    /// nothing may be fragmented, stays.
    fn may_step(&self, step: u16, piece: &Piece, frame: &[u8]) -> bool {
        if piece.layout.v6 {
            return true;
        }
        let dont_fragment = frame[piece.layout.ip + 6] & DONT_FRAGMENT != 0;
        (step == 1 || (step == 0 && dont_fragment))
            && self.id_step.is_none_or(|before| before == step)
    }

    fn hand_on(mut self, out: &mut impl FnMut(VnetHdr, Vec<u8>)) {
        if self.count == 1 {
            return out(VnetHdr::default(), self.frame);
        }
        let Layout { ip, l4, v6, protocol, .. } = self.first.layout;
        let frame = &mut self.frame;
        let length = frame.len();
        if v6 {
            put_u16(frame, ip + 4, (length - ip - 40) as u16);
        } else {
            put_u16(frame, ip + 2, (length - ip) as u16);
            put_u16(frame, ip + 10, 0);
            let checksum = !sum(&frame[ip..l4]);
            put_u16(frame, ip + 10, checksum);
        }
        let l4_length = (length - l4) as u16;
        if protocol == UDP {
            put_u16(frame, l4 + 4, l4_length);
        }
        let offset = self.first.layout.checksum_offset();
        let partial = pseudo_header(self.first.layout.addresses(frame), protocol, l4_length);
        put_u16(frame, l4 + offset, partial);
        let gso = match (protocol, v6) {
            (UDP, _) => Gso::Udp,
            (_, false) => Gso::TcpV4,
            (_, true) => Gso::TcpV6,
        };
        let hdr = VnetHdr {
            needs_csum: true,
            data_valid: false,
            gso,
            ecn: false,
            hdr_len: self.first.payload as u16,
            gso_size: self.first.size as u16,
            csum_start: l4 as u16,
            csum_offset: offset as u16,
        };
        out(hdr, self.frame);
    }
}
