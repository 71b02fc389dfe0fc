// SPDX-License-Identifier: Apache-2.0
//! An engine that a script of bytes drives, with frames, times and control as anybody might send
//! them, and what must hold then.
//!
//! The fuzz target `engine` runs scripts that it invents, and `tests/scripts.rs` runs the committed
//! ones and random ones.

use std::collections::VecDeque;

use ri2n_reorder::counters::Counters;
use ri2n_reorder::driver::{Driver, Out, Sink};
use ri2n_reorder::engine::{Engine, Mode, Settings};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{
    self, channels, repeat, Body, ChannelEntry, Control, DataHead, Heartbeat, Mac, Message, Nic,
    PeerChannel, PeerLink, Tag, CONTROL_VID, MAX_CHANNEL, MAX_LINKS, NO_LIMIT,
};
use ri2n_reorder::Nanos;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);
const MAX_MEMORY: usize = 256 << 10;
const LONGEST: usize = 1514;
const MODES: [Mode; 4] = [Mode::Paced, Mode::RoundRobin, Mode::Ri2nPlus, Mode::Ri2nPlusPlus];
/// The most steps that a script may take, which are more than it can have frames: none of it may be
/// an endless loop.
const MAX_STEPS: usize = 4096;
const MAX_TURNS: usize = 64;

/// Reads numbers from the script; zeros after its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// A number that is small or large, with one byte or with five.
    fn spread(&mut self) -> u32 {
        match self.u8() {
            small @ 0..=239 => u32::from(small),
            240..=247 => u32::from(self.u8()).wrapping_neg(),
            _ => self.u32(),
        }
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let length = usize::from(self.u16()) % (max + 1);
        let given = length.min(self.0.len());
        let mut bytes = self.0[..given].to_vec();
        self.0 = &self.0[given..];
        bytes.resize(length, 0);
        bytes
    }
}

/// Checks what the engine sends, and learns its session and data frames from it.
struct Checked {
    autonomous: bool,
    session: u32,
    sent: VecDeque<Vec<u8>>,
    delivered: u64,
}

impl Sink for Checked {
    fn wire(&mut self, to: Out, frame: Vec<u8>) {
        match to {
            Out::Slots => {
                // Frames of a channel have its tag.
                assert!(!self.autonomous && (14..=LONGEST + 4).contains(&frame.len()));
                return;
            }
            Out::Controller | Out::Link(..) | Out::Nic(_) => {
                assert!(frame.len() <= LONGEST.max(36 + 36 * 40))
            }
        }
        let message = wire::parse(&frame).expect("what it sends is valid");
        match (to, message) {
            (Out::Controller, Message::Report(_)) => assert!(!self.autonomous),
            (Out::Nic(_), Message::Heartbeat(beat)) => {
                assert!(self.autonomous && beat.link.is_none())
            }
            (Out::Link(number, _), Message::Heartbeat(beat)) => {
                assert_eq!(beat.link, Some(number));
                if beat.peer == PEER {
                    self.session = beat.session;
                }
            }
            (Out::Link(number, _), Message::Data(data)) => {
                assert_eq!(data.link, number);
                assert!(!self.autonomous || data.channel == 0);
                if self.sent.len() == 64 {
                    self.sent.pop_front();
                }
                self.sent.push_back(frame);
            }
            (Out::Link(..), Message::Repeat(_)) => {}
            (Out::Link(number, _), Message::Channels(said)) => {
                assert!(!self.autonomous && said.link == number);
            }
            (Out::Link(number, _), Message::Broadcast(broadcast)) => {
                assert!(self.autonomous && broadcast.link == number);
            }
            (to, message) => panic!("{message:?} to {to:?}"),
        }
    }

    fn plain(&mut self, frame: Vec<u8>) {
        assert!((14..=LONGEST).contains(&frame.len()));
        self.delivered += 1;
    }

    fn recycle(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn done(&mut self, _buffer: Vec<u8>) {}
}

/// The engine, and a peer that is made up.
struct Play<'a> {
    script: Script<'a>,
    now: Nanos,
    engine: Engine,
    out: Checked,
    /// The peer's session. What follows is what it would send next.
    remote_session: u32,
    next: u32,
    link_next: [u32; MAX_LINKS],
    beats: [u32; MAX_LINKS],
    generation: u32,
}

/// Runs a script to its end. Returns the counters.
pub fn run(bytes: &[u8]) -> Counters {
    let mut script = Script(bytes);
    let first = script.u8();
    let autonomous = first & 1 != 0;
    let settings = Settings {
        own: autonomous.then_some(OWN),
        autonomous,
        longest: LONGEST,
        overhead: 24,
        udp_unordered: first & 2 != 0,
        max_memory: MAX_MEMORY,
        keep_ns: 50_000_000,
        mode: MODES[usize::from(first >> 2 & 3)],
        hbspan_ns: 2_000_000_000,
        seed: u64::from(first),
        first: Seq(0),
    };
    let now = 1_000_000_000;
    let mut play = Play {
        script,
        now,
        engine: Engine::new(settings, now),
        out: Checked { autonomous, session: 0, sent: VecDeque::new(), delivered: 0 },
        remote_session: 7,
        next: if first & 16 != 0 { u32::MAX - 40 } else { 0 },
        link_next: [0; MAX_LINKS],
        beats: [0; MAX_LINKS],
        generation: 1,
    };
    play.begin();
    for _ in 0..MAX_STEPS {
        if play.script.0.is_empty() {
            break;
        }
        play.step();
        play.turn();
    }
    play.check_memory();
    // Whatever arrived, the engine serves a peer that begins anew.
    play.settle();
    play.engine.counters().clone()
}

impl Play<'_> {
    /// The state from which most scripts test something: two NICs, and a peer with two links that
    /// are heard in both directions.
    fn begin(&mut self) {
        if self.out.autonomous {
            for port in 1..=2 {
                self.engine.set_nic(
                    self.now,
                    port,
                    "eth",
                    Mac([2, 0, 0, 9, 0, port]),
                    100_000,
                    true,
                );
            }
            self.turn();
            for port in 1..=2 {
                self.greet(PEER, port, u16::from(port) - 1);
            }
        } else {
            self.this_host(2);
            self.peer(PEER, &[(0, 1, 1), (1, 2, 2)]);
        }
        self.turn();
        for link in self.both() {
            self.beat(link, 8, 0, 0);
        }
        self.turn();
    }

    /// The numbers of the two links.
    fn both(&self) -> [u8; 2] {
        if self.out.autonomous {
            [0, 9]
        } else {
            [0, 1]
        }
    }

    fn step(&mut self) {
        let kind = self.script.u8();
        let link = self.link(kind >> 4 & 1);
        match kind & 15 {
            0 => self.now += Nanos::from(self.script.u8()) * 10_000,
            1 => self.now += Nanos::from(self.script.u16()) * 100_000,
            2 => self.now = self.now.saturating_sub(Nanos::from(self.script.u32()) * 100),
            3 => {
                let (flags, next, expected) =
                    (self.script.u8() & 15, self.script.spread(), self.script.spread());
                self.beat(link, flags, next, expected);
            }
            4 => {
                let (flags, ahead, size) =
                    (self.script.u8() & 7, self.script.spread(), self.script.u16() % 1400);
                self.data(link, flags, ahead, usize::from(size));
            }
            5 => {
                let count = self.script.u8();
                (0..=count).for_each(|_| self.data(link, 0, 0, 1000));
            }
            6 => {
                let (count, dst) =
                    (self.script.u8() & 63, if kind & 16 == 0 { PEER } else { OTHER });
                (0..=count).for_each(|_| self.plain(dst, VnetHdr::default(), &[0x55; 1300]));
            }
            7 => {
                let Ok(header) = VnetHdr::parse(&self.script.bytes(VnetHdr::LEN)) else { return };
                let frame = self.script.bytes(4000);
                self.plain(PEER, header, &frame);
            }
            8 => {
                let ranges: Vec<(Seq, u16)> = (0..self.script.u8() % 128 + 1)
                    .map(|_| (Seq(self.script.spread()), self.script.u16() % 1024 + 1))
                    .collect();
                let mut frame = Vec::new();
                let (src, dst) = self.ends(link);
                repeat::write(
                    dst,
                    src,
                    0,
                    self.out.session,
                    self.remote_session,
                    ranges,
                    &mut frame,
                );
                self.wire(link, 0, frame);
            }
            9 => {
                // One of its own frames comes back.
                let Some(mut frame) = self.out.sent.pop_back() else { return };
                wire::set_macs(&mut frame, OWN, PEER);
                self.wire(link, wire::BOUNCED_PCP, frame);
            }
            10 => {
                let tag = self.script.u16();
                let mut frame = self.script.bytes(1600);
                if kind & 32 != 0 {
                    wire::seal(&mut frame);
                }
                let tag = (!self.out.autonomous)
                    .then_some(Tag { vid: tag & 0xfff, pcp: (tag >> 13) as u8 });
                self.engine.on_wire(self.now, tag, kind >> 4 & 1, frame, &mut self.out);
            }
            11 => {
                let mut links: Vec<(u8, u8, u8)> = (0..self.script.u8() & 3)
                    .map(|_| {
                        (self.script.u8() & 3, self.script.u8() % 3 + 1, self.script.u8() % 3 + 1)
                    })
                    .collect();
                links.sort_unstable();
                links.dedup_by_key(|link| link.0);
                self.peer(if kind & 16 == 0 { PEER } else { OTHER }, &links);
            }
            12 if self.out.autonomous => {
                let mac = Mac([2, 0, 0, 0, 0, self.script.u8()]);
                let position = self.script.u16();
                self.greet(mac, 1 + (kind >> 4 & 1), position & 15);
            }
            12 => match self.script.u8() & 7 {
                0 => self.control(PEER, Body::Gone),
                1 => {
                    let nics = self.script.u8() & 3;
                    self.this_host(nics);
                }
                2 => self.generation = self.generation.wrapping_add(self.script.spread()),
                4 => self.tell_channels(),
                5 => self.say(link),
                6 => {
                    let (channel, tag) = (self.script.u8() & 63, self.script.u8());
                    let (ahead, size) = (self.script.spread(), self.script.u16() % 1400);
                    let session = self.remote_session ^ u32::from(tag);
                    self.data_in(channel, session, link, 0, ahead, usize::from(size));
                }
                7 => {
                    let (vid, count) = (self.script.u8(), self.script.u8() & 63);
                    let tag = wire::Tag { vid: vid.into(), pcp: 0 }.to_bytes();
                    let frame = [&PEER.0[..], &OWN.0, &tag, &[0x90, 0], &[0x55; 1300]].concat();
                    for _ in 0..=count {
                        let header = VnetHdr::default();
                        self.engine.on_plain(self.now, &header, frame.clone(), &mut self.out);
                    }
                }
                _ => self.control(OWN, Body::Peer { stripe: true, beside: false, links: vec![] }),
            },
            13 => {
                let bytes = u64::from(self.script.u32());
                self.engine.nic_counters(self.now, 1 + (kind >> 4 & 1), bytes, kind & 32 == 0);
            }
            14 => {
                // The peer begins anew, as far as this script plays it.
                self.remote_session = self.remote_session.wrapping_add(1).max(1);
                (self.next, self.link_next, self.beats) = (0, [0; MAX_LINKS], [0; MAX_LINKS]);
                self.beat(link, 0, 0, 0);
            }
            _ => {
                assert!(!self.engine.status().is_null());
                self.engine.wants_plain(self.now);
                self.check_memory();
            }
        }
    }

    fn link(&self, which: u8) -> u8 {
        self.both()[usize::from(which)]
    }

    /// Does everything that is due, and lets time pass until something is due next. Time never
    /// stays where it is.
    fn turn(&mut self) {
        let next = self.engine.on_tick(self.now, &mut self.out);
        assert!(next > self.now, "due at {next}, now {}", self.now);
    }

    fn check_memory(&self) {
        let held = self.engine.status()["held_bytes"].as_u64().unwrap_or(u64::MAX);
        assert!(held <= MAX_MEMORY as u64, "{held} bytes are held");
    }

    /// The peer's MAC and the host's, as a link's frames have them.
    fn ends(&self, link: u8) -> (Mac, Mac) {
        let port = 1 + u8::from(link == self.both()[1]);
        if self.out.autonomous {
            (Mac([2, 0, 0, 8, PEER.0[5], port]), Mac([2, 0, 0, 9, 0, port]))
        } else {
            (PEER, OWN)
        }
    }

    fn wire(&mut self, link: u8, pcp: u8, frame: Vec<u8>) {
        let port = 1 + u8::from(link == self.both()[1]);
        let tag = (!self.out.autonomous).then_some(Tag { vid: u16::from(port), pcp });
        self.engine.on_wire(self.now, tag, port, frame, &mut self.out);
    }

    fn plain(&mut self, dst: Mac, header: VnetHdr, payload: &[u8]) {
        let frame = [&dst.0[..], &OWN.0, &[0x90, 0], payload].concat();
        self.engine.on_plain(self.now, &header, frame, &mut self.out);
    }

    fn data(&mut self, link: u8, flags: u8, ahead: u32, size: usize) {
        self.data_in(0, self.remote_session, link, flags, ahead, size);
    }

    /// The controller tells of channels, which need not be the ones that the peer speaks of.
    fn tell_channels(&mut self) {
        let mut channels: Vec<PeerChannel> = (0..self.script.u8() & 7)
            .map(|_| PeerChannel {
                number: self.script.u8() % MAX_CHANNEL + 1,
                tag: u32::from(self.script.u8()),
                links: u64::from(self.script.u8()).max(1),
                max_kbps: self.script.spread().max(1),
                min_kbps: 0,
                min_in_kbps: u32::from(self.script.u16()),
            })
            .collect();
        channels.sort_by_key(|channel| channel.number);
        channels.dedup_by_key(|channel| channel.number);
        channels.iter_mut().for_each(|channel| channel.min_kbps = channel.max_kbps / 2);
        self.control(PEER, Body::Channels { first: 1, last: MAX_CHANNEL, channels });
    }

    /// The peer says something of a channel, after its last heartbeat or not.
    fn say(&mut self, link: u8) {
        let entry = ChannelEntry {
            channel: self.script.u8() % MAX_CHANNEL + 1,
            tag: u32::from(self.script.u8()),
            flags: self.script.u8() & 3,
            links: u64::from(self.script.u8()),
            next: Seq(self.script.spread()),
            expected: Seq(self.script.spread()),
            demand_kbps: self.script.spread(),
        };
        let beat = self.beats[usize::from(link)].wrapping_sub(1 + (self.script.u8() & 1) as u32);
        let mut frame = Vec::new();
        let (src, dst) = self.ends(link);
        let session = self.remote_session;
        channels::write(dst, src, link, session, Seq(beat), &[entry], &mut frame);
        self.wire(link, 0, frame);
    }

    fn data_in(&mut self, channel: u8, session: u32, link: u8, flags: u8, ahead: u32, size: usize) {
        let at = usize::from(link);
        let seq = Seq(self.next.wrapping_add(ahead));
        if flags & wire::data::REPEATED == 0 {
            self.next = seq.0.wrapping_add(1);
        }
        let mut frame = vec![0x66; 14 + size];
        let link_seq = Seq(self.link_next[at]);
        wire::wrap(&mut frame, &DataHead { channel, flags, link, session, seq, link_seq });
        self.link_next[at] = self.link_next[at].wrapping_add(1);
        let (src, dst) = self.ends(link);
        wire::set_macs(&mut frame, dst, src);
        self.wire(link, 0, frame);
    }

    fn beat(&mut self, link: u8, flags: u8, next: u32, expected: u32) {
        let at = usize::from(link);
        let (src, dst) = self.ends(link);
        let beat = Heartbeat {
            dst,
            src,
            flags: flags & 7,
            link: Some(link),
            session: self.remote_session,
            peer_session: self.out.session,
            seq: Seq(self.beats[at]),
            time_us: (self.now / 1000) as u32,
            next_within_ms: if flags & 8 == 0 { 10 } else { 1000 },
            hears: self.both().iter().fold(0, |set, link| set | 1 << link),
            next: Seq(self.next.wrapping_add(next)),
            link_next: Seq(self.link_next[at]),
            expected: Seq(expected),
            grant_kbps: 50_000,
            limit_kbps: NO_LIMIT,
            demand_kbps: 1000,
            own: PEER,
            peer: OWN,
            ..Heartbeat::default()
        };
        self.beats[at] = self.beats[at].wrapping_add(1);
        let mut frame = Vec::new();
        beat.encode(&mut frame);
        self.wire(link, 0, frame);
    }

    fn greet(&mut self, mac: Mac, port: u8, position: u16) {
        let greeting = Heartbeat {
            dst: Mac::BROADCAST,
            src: Mac([2, 0, 0, 8, mac.0[5], port]),
            session: 5,
            cnt: position,
            limit_kbps: 100_000,
            next_within_ms: 1000,
            own: mac,
            ..Heartbeat::default()
        };
        let mut frame = Vec::new();
        greeting.encode(&mut frame);
        self.engine.on_wire(self.now, None, port, frame, &mut self.out);
    }

    fn control(&mut self, mac: Mac, body: Body) {
        let mut frame = Vec::new();
        Control { generation: self.generation, mac, body }.encode(&mut frame);
        self.engine.on_wire(
            self.now,
            Some(Tag { vid: CONTROL_VID, pcp: 0 }),
            0,
            frame,
            &mut self.out,
        );
    }

    fn this_host(&mut self, nics: u8) {
        let nic = |port| Nic { port, up: true, rate_kbps: 100_000, name: format!("eth{port}") };
        let mode = MODES[usize::from(self.script.u8() & 3)];
        self.control(OWN, Body::ThisHost { mode, nics: (1..=nics).map(nic).collect() });
    }

    fn peer(&mut self, mac: Mac, links: &[(u8, u8, u8)]) {
        let link = |&(number, own_port, peer_port): &(u8, u8, u8)| PeerLink {
            number,
            own_port,
            peer_port,
            alive: true,
            rate_kbps: 100_000,
            limit_kbps: NO_LIMIT,
            weight_ppm: 500_000,
        };
        self.control(
            mac,
            Body::Peer { stripe: true, beside: false, links: links.iter().map(link).collect() },
        );
    }

    /// The engine goes on for a second by its own deadlines, and does not wake for nothing.
    fn settle(&mut self) {
        let end = self.now + 1_000_000_000;
        let mut turns = 0;
        while self.now < end {
            self.turn();
            self.now = self.engine.on_tick(self.now, &mut self.out);
            turns += 1;
            assert!(
                turns < 100 * MAX_TURNS,
                "{turns} turns, {} ns before the end of an idle second",
                end - self.now
            );
        }
        self.check_memory();
    }
}
