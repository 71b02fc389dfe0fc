// SPDX-License-Identifier: Apache-2.0
//! One engine, its time, and the peers that a test plays. Everything that the engine sent is kept.

use ri2n_reorder::driver::{Driver, Out, Sink};
use ri2n_reorder::engine::{Engine, Mode, Settings};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{
    self, repeat, Body, Control, DataHead, Heartbeat, Mac, Message, Nic, PeerLink, Report, Tag,
    CONTROL_VID, NO_LIMIT,
};
use ri2n_reorder::Nanos;

pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;
pub const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const LINKS: u8 = 2;
pub const REMOTE_SESSION: u32 = 77;
/// The most peers, as the engine has it.
pub const MAX_PEERS: u32 = 4096;

/// What an engine sent.
#[derive(Default)]
pub struct Seen {
    pub heartbeats: usize,
    pub requests: usize,
    pub data: Vec<Vec<u8>>,
    /// Frames about channels.
    pub said: Vec<Vec<u8>>,
    pub plain: Vec<Vec<u8>>,
    /// Frames that went to the slot table.
    pub slots: Vec<Vec<u8>>,
    /// Reports to the controller.
    pub reports: Vec<Report>,
}

impl Sink for Seen {
    fn wire(&mut self, to: Out, frame: Vec<u8>) {
        match to {
            Out::Controller => match wire::parse(&frame).unwrap() {
                Message::Report(report) => return self.reports.push(report),
                other => panic!("{other:?}"),
            },
            Out::Slots => return self.slots.push(frame),
            Out::Link(..) | Out::Nic(_) => {}
        }
        match wire::parse(&frame).unwrap() {
            Message::Heartbeat(_) => self.heartbeats += 1,
            Message::Repeat(_) => self.requests += 1,
            Message::Data(_) => self.data.push(frame),
            Message::Channels(_) => self.said.push(frame),
            other => panic!("{other:?}"),
        }
    }
    fn plain(&mut self, frame: Vec<u8>) {
        self.plain.push(frame);
    }
    fn recycle(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn done(&mut self, _buffer: Vec<u8>) {}
}

/// The engine, its time, and the peers that the test plays.
pub struct Host {
    pub engine: Engine,
    pub now: Nanos,
    pub seen: Seen,
    pub beats: u32,
    pub sent: u32,
}

pub fn peer(number: u32) -> Mac {
    let [_, high, middle, low] = number.to_be_bytes();
    Mac([2, 0, 1, high, middle, low])
}

pub fn settings() -> Settings {
    Settings {
        own: None,
        autonomous: false,
        longest: 1514,
        overhead: 0,
        udp_unordered: false,
        max_memory: 64 << 20,
        keep_ns: 50 * MS,
        mode: Mode::Paced,
        hbspan_ns: 2 * S,
        seed: 5,
        first: Seq(0),
    }
}

impl Host {
    pub fn new(settings: Settings) -> Self {
        let mut host = Self {
            engine: Engine::new(settings, S),
            now: S,
            seen: Seen::default(),
            beats: 0,
            sent: 0,
        };
        host.this_host(1, Mode::Paced);
        host
    }

    /// Tells the host its own NICs, and a mode.
    pub fn this_host(&mut self, generation: u32, mode: Mode) {
        let nics = (1..=LINKS).map(|port| Nic {
            port,
            up: true,
            rate_kbps: 1_000_000,
            name: format!("eth{port}"),
        });
        self.control(generation, OWN, Body::ThisHost { mode, nics: nics.collect() });
    }

    pub fn control(&mut self, generation: u32, mac: Mac, body: Body) {
        let mut frame = Vec::new();
        Control { generation, mac, body }.encode(&mut frame);
        self.wire(CONTROL_VID, frame);
    }

    pub fn tell_of(&mut self, generation: u32, mac: Mac, stripe: bool) {
        self.tell_rates(generation, mac, stripe, [1_000_000; LINKS as usize]);
    }

    /// Does the same as `tell_of`, with these rates (kbit/s) of the links.
    pub fn tell_rates(
        &mut self,
        generation: u32,
        mac: Mac,
        stripe: bool,
        rates_kbps: [u32; LINKS as usize],
    ) {
        self.tell_links(generation, mac, stripe, &rates_kbps);
    }

    /// Does the same as `tell_of`, with this many links only.
    pub fn tell_of_first(&mut self, generation: u32, mac: Mac, links: usize) {
        self.tell_links(generation, mac, true, &[1_000_000; LINKS as usize][..links]);
    }

    fn tell_links(&mut self, generation: u32, mac: Mac, stripe: bool, rates_kbps: &[u32]) {
        let links = (0..LINKS).zip(rates_kbps).map(|(number, &rate_kbps)| PeerLink {
            number,
            own_port: number + 1,
            peer_port: number + 1,
            alive: true,
            rate_kbps,
            limit_kbps: NO_LIMIT,
            weight_ppm: 500_000,
        });
        self.control(generation, mac, Body::Peer { stripe, beside: false, links: links.collect() });
    }

    pub fn wire(&mut self, vid: u16, frame: Vec<u8>) {
        self.engine.on_wire(self.now, Some(Tag { vid, pcp: 0 }), 0, frame, &mut self.seen);
    }

    /// Gives the engine heartbeats of a peer, over all links.
    pub fn beat(&mut self, mac: Mac, session: u32) {
        self.beat_as(mac, session, |_| {});
    }

    /// Does the same as `beat`, with something changed in each heartbeat.
    pub fn beat_as(&mut self, mac: Mac, session: u32, change: impl Fn(&mut Heartbeat)) {
        let ours = self.session_of(mac);
        for link in 0..LINKS {
            let mut beat = Heartbeat {
                dst: OWN,
                src: mac,
                link: Some(link),
                session,
                peer_session: ours,
                seq: Seq(self.beats),
                next_within_ms: 1000,
                hears: (1 << LINKS) - 1,
                grant_kbps: NO_LIMIT,
                limit_kbps: NO_LIMIT,
                own: mac,
                peer: OWN,
                ..Heartbeat::default()
            };
            self.beats += 1;
            change(&mut beat);
            let mut frame = Vec::new();
            beat.encode(&mut frame);
            self.wire(u16::from(link) + 1, frame);
        }
    }

    pub fn data(&mut self, mac: Mac, seq: u32, flags: u8, payload: usize) {
        let mut frame = vec![0; 14 + payload];
        frame[14..18].copy_from_slice(&seq.to_be_bytes());
        let head = DataHead {
            channel: 0,
            flags,
            link: 0,
            session: REMOTE_SESSION,
            seq: Seq(seq),
            link_seq: Seq(seq),
        };
        wire::wrap(&mut frame, &head);
        wire::set_macs(&mut frame, OWN, mac);
        self.wire(1, frame);
    }

    pub fn ask_again(&mut self, mac: Mac, frames: u16) {
        self.ask_as(REMOTE_SESSION, mac, frames);
    }

    /// Gives the engine a request of a session of the peer, which wants the first `frames` frames
    /// again.
    pub fn ask_as(&mut self, session: u32, mac: Mac, frames: u16) {
        let mut frame = Vec::new();
        repeat::write(OWN, mac, 0, self.session_of(mac), session, [(Seq(0), frames)], &mut frame);
        self.wire(1, frame);
    }

    /// Gives the engine a frame of its own that comes back from a peer without a helper.
    pub fn bounce(&mut self, mac: Mac, mut frame: Vec<u8>) {
        wire::set_macs(&mut frame, OWN, mac);
        let tag = Tag { vid: 1, pcp: wire::BOUNCED_PCP };
        self.engine.on_wire(self.now, Some(tag), 0, frame, &mut self.seen);
    }

    /// Gives the engine frames of the host for a peer.
    pub fn send(&mut self, mac: Mac, frames: usize) {
        for _ in 0..frames {
            let frame =
                [&mac.0[..], &OWN.0, &[0x90, 0], &self.sent.to_be_bytes(), &[0; 1000]].concat();
            self.sent += 1;
            self.engine.on_plain(self.now, &VnetHdr::default(), frame, &mut self.seen);
        }
    }

    /// Lets time pass, with turns when the engine wants them.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            let next = self.engine.on_tick(self.now, &mut self.seen);
            if next > end {
                break;
            }
            self.now = next;
        }
        self.now = end;
    }

    pub fn described(&self, mac: Mac) -> Option<serde_json::Value> {
        let status = self.engine.status();
        let mac = mac.to_string();
        status["peers"].as_array().unwrap().iter().find(|peer| peer["mac"] == mac.as_str()).cloned()
    }

    pub fn session_of(&self, mac: Mac) -> u32 {
        self.described(mac).unwrap()["session"].as_u64().unwrap() as u32
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.engine.counters().iter().find(|entry| entry.0 == name).unwrap().1
    }
}

/// A host with a peer to which frames are striped.
pub fn with_peer(settings: Settings) -> Host {
    let mut host = Host::new(settings);
    host.tell_of(10, peer(1), true);
    host.beat(peer(1), REMOTE_SESSION);
    host.run(MS);
    assert_eq!(host.described(peer(1)).unwrap()["striped"], true);
    host
}
