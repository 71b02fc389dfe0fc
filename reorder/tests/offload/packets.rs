// SPDX-License-Identifier: Apache-2.0
//! TCP and UDP packets built by hand, with checksums worked out the slow way.

use ri2n_reorder::offload::vnet::{Gso, VnetHdr};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// The parts of a frame. The default is a TCP segment over IPv4.
#[derive(Clone, Debug)]
pub struct Packet {
    pub udp: bool,
    pub v6: bool,
    /// VLAN tag.
    pub tag: Option<u16>,
    /// The source port. Each has hosts of its own as well.
    pub flow: u8,
    /// ToS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IPv4 identification.
    pub id: u16,
    pub dont_fragment: bool,
    pub sequence: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// IPv4 options, or IPv6 extension headers (together with `next_header`).
    pub ip_options: Vec<u8>,
    /// The next header in the IPv6 header, if an extension header comes first.
    pub next_header: Option<u8>,
    pub tcp_options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Default for Packet {
    fn default() -> Self {
        Self {
            udp: false,
            v6: false,
            tag: None,
            flow: 1,
            tos: 0,
            ttl: 64,
            id: 1000,
            dont_fragment: true,
            sequence: 5000,
            ack: 77,
            flags: ACK,
            window: 501,
            ip_options: vec![],
            next_header: None,
            tcp_options: vec![],
            payload: vec![],
        }
    }
}

impl Packet {
    pub fn ip(&self) -> usize {
        14 + if self.tag.is_some() { 4 } else { 0 }
    }

    pub fn l4(&self) -> usize {
        self.ip() + if self.v6 { 40 } else { 20 } + self.ip_options.len()
    }

    pub fn protocol(&self) -> u8 {
        if self.udp {
            17
        } else {
            6
        }
    }

    fn addresses(&self) -> Vec<u8> {
        match self.v6 {
            true => [[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, self.flow], [0xfd; 16]]
                .concat(),
            false => vec![10, 0, 1, self.flow, 10, 0, 2, 1],
        }
    }

    /// The TCP or UDP header and the payload. The checksum is the pseudo-header's sum.
    fn partial_l4(&self) -> Vec<u8> {
        let mut bytes = [4000 + u16::from(self.flow), 5001].map(u16::to_be_bytes).concat();
        if self.udp {
            bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
        } else {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend(self.ack.to_be_bytes());
            bytes.extend([(5 + self.tcp_options.len() as u8 / 4) << 4, self.flags]);
            bytes.extend(self.window.to_be_bytes());
        }
        let place = bytes.len();
        bytes.extend([0, 0]);
        if !self.udp {
            bytes.extend([0, 0]);
            bytes.extend(&self.tcp_options);
        }
        bytes.extend(&self.payload);
        let pseudo = [
            self.addresses(),
            vec![0, self.protocol()],
            (bytes.len() as u16).to_be_bytes().to_vec(),
        ]
        .concat();
        bytes[place..place + 2].copy_from_slice(&slow_sum(&pseudo).to_be_bytes());
        bytes
    }

    fn with_l4(&self, l4: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, self.flow];
        if let Some(tag) = self.tag {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        let options = self.ip_options.len();
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 9]);
            frame.extend(((options + l4.len()) as u16).to_be_bytes());
            frame.extend([self.next_header.unwrap_or(self.protocol()), self.ttl]);
            frame.extend(self.addresses());
            frame.extend(&self.ip_options);
        } else {
            frame.extend([8, 0]);
            let mut ip = vec![0x45 + options as u8 / 4, self.tos];
            ip.extend(((20 + options + l4.len()) as u16).to_be_bytes());
            ip.extend(self.id.to_be_bytes());
            ip.extend([
                if self.dont_fragment { 0x40 } else { 0 },
                0,
                self.ttl,
                self.protocol(),
                0,
                0,
            ]);
            ip.extend(self.addresses());
            ip.extend(&self.ip_options);
            let checksum = !slow_sum(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend(ip);
        }
        frame.extend(l4);
        frame
    }

    /// The frame, complete.
    pub fn frame(&self) -> Vec<u8> {
        let mut l4 = self.partial_l4();
        let place = if self.udp { 6 } else { 16 };
        let checksum = match !slow_sum(&l4) {
            0 if self.udp => 0xffff,
            checksum => checksum,
        };
        l4[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
        self.with_l4(&l4)
    }

    /// The frame with a partial checksum, as a super-frame with segments of `gso_size` bytes.
    pub fn super_frame(&self, gso_size: u16) -> (VnetHdr, Vec<u8>) {
        let hdr = VnetHdr {
            needs_csum: true,
            gso: match (self.udp, self.v6) {
                (true, _) => Gso::Udp,
                (_, false) => Gso::TcpV4,
                (_, true) => Gso::TcpV6,
            },
            gso_size,
            csum_start: self.l4() as u16,
            csum_offset: if self.udp { 6 } else { 16 },
            ..VnetHdr::default()
        };
        (hdr, self.with_l4(&self.partial_l4()))
    }

    /// The next `sizes.len()` packets of the same flow. This one's headers come first, and the
    /// payloads have the given sizes.
    pub fn train(&self, sizes: &[usize]) -> Vec<Packet> {
        let mut next = self.clone();
        let mut train = vec![];
        for (index, &size) in sizes.iter().enumerate() {
            next.payload = pattern(size, index);
            train.push(next.clone());
            next.id = next.id.wrapping_add(1);
            next.sequence = next.sequence.wrapping_add(size as u32);
        }
        train
    }
}

/// `size` bytes that differ from place to place and for each `salt`.
pub fn pattern(size: usize, salt: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + at / 256 + salt * 7 + 1) as u8).collect()
}

/// RFC 1071 word for word.
pub fn slow_sum(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
