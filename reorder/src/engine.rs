// SPDX-License-Identifier: Apache-2.0
//! The helper's core: it takes frames of the host and of the links, and gives frames for both. Its
//! only clock is the time that is passed in.
//!
//! A process has one [`Engine`], which owns a `Peer` for every other host. What concerns all peers
//! (this host's NICs, what may be sent to it, memory) is in this file; `send`, `receive`, `beats`,
//! `control`, `report`, `greet`, `strategy`, `status` and `time` have a part of the engine each. A
//! `Peer` consists of its links and of `session`, `liveness`, `schedule`, `tx`, `rx` and
//! `channels`. A `Channel`, of which there is one for each job and one for the rest, consists of
//! `outgoing` and `incoming`.

mod addressing;
mod beats;
mod beside;
mod channel;
mod channels;
mod control;
mod greet;
mod incoming;
mod link;
mod liveness;
mod meter;
mod outgoing;
mod peer;
mod receive;
mod report;
mod rx;
mod schedule;
mod send;
mod session;
mod status;
mod strategy;
mod time;
mod tx;

use std::collections::{BTreeMap, HashMap};

use crate::beside::steering::Steering;
use crate::counters::Counters;
use crate::driver::{Driver, Sink};
use crate::grants::{GrantClass, GrantLink, Granter};
use crate::offload::vnet::VnetHdr;
use crate::sched::paced::NicBuckets;
use crate::sched::Bucket;
use crate::seq::Seq;
pub use crate::wire::Mode;
use crate::wire::{self, Mac, Tag, NO_LIMIT};
use crate::Nanos;

use addressing::Addressing;
use link::Link;
use peer::Peer;

pub(crate) const MS: Nanos = 1_000_000;
/// Time between heartbeats while there is data.
const FAST_NS: Nanos = 10 * MS;
/// Time between heartbeats while there is none.
const IDLE_NS: Nanos = 1000 * MS;
/// A turn is late if it comes this long after it was due.
const LATE_NS: Nanos = 2 * MS;
/// A frame that was repeated is not repeated again within this time.
const AGAIN_NS: Nanos = 2 * MS;
/// Traffic counts as going on for this long after its last frame.
const ACTIVE_NS: Nanos = 100 * MS;
/// The most peers. Of as many hosts, the generation of the newest control is known.
const MAX_PEERS: usize = 4096;

/// What does not change while the helper runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The host's own MAC. Behind a bridge the controller may tell it later.
    pub own: Option<Mac>,
    /// There is no bridge and no controller: the wire side consists of the NICs themselves.
    pub autonomous: bool,
    /// The longest frame on a NIC, with its Ethernet header, in bytes.
    pub longest: usize,
    /// Bytes that a frame takes on the medium in addition to its own.
    pub overhead: usize,
    /// UDP is delivered at once, in whatever order it arrives.
    pub udp_unordered: bool,
    /// Bytes of frames that may be held by all peers together.
    pub max_memory: usize,
    /// How long frames that were sent are kept for repeats.
    pub keep_ns: Nanos,
    /// How links share the traffic, until a controller says something else.
    pub mode: Mode,
    /// HBSPAN, for RI2N+ and RI2N++ without a controller.
    pub hbspan_ns: Nanos,
    /// The seed of the session numbers, which should be random.
    pub seed: u64,
    /// The first sequence of each session; any will do.
    pub first: Seq,
}

/// One of the host's own NICs.
#[derive(Debug, Clone)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its MAC; only known without a bridge.
    pub mac: Mac,
    /// Its rate in kbit/s.
    pub rate_kbps: u32,
    /// It has carrier.
    pub up: bool,
    /// Bytes of data from all peers in this HBSPAN and the last: R_jk.
    pub arrived: (u64, u64),
}

/// The helper without its devices.
pub struct Engine {
    settings: Settings,
    counters: Counters,
    own: Option<Mac>,
    mode: Mode,
    began: Nanos,
    nics: BTreeMap<u8, Nic>,
    nic_buckets: NicBuckets,
    granter: Granter<Mac>,
    peers: Vec<Peer>,
    by_mac: HashMap<Mac, usize>,
    addressing: Addressing,
    /// The generation of the newest control about each peer, and about peers that are gone: at most
    /// `MAX_PEERS` in all.
    generations: HashMap<Mac, u32>,
    host_generation: u32,
    /// Kept for its memory.
    segments: Vec<Vec<u8>>,
    ask: Vec<(Seq, u16)>,
    greetings: u32,
    /// Credit for looking at hosts that are not known.
    newcomers: Bucket,
    nic_names: Vec<(u8, String)>,
    /// The peer whose turn it is to send.
    turn: usize,
    grants_at: Nanos,
    grants_now: bool,
    report_at: Nanos,
    greet_at: Nanos,
    span_at: Nanos,
    /// What leaves now is not within a guaranteed rate: TCP beside the bridge has its part.
    yields: bool,
    /// NICs for which TCP beside the bridge waits, a bit for each port.
    busy_nics: u64,
    /// When there will be credit for a frame that waits.
    credit_at: Option<Nanos>,
    sessions: u64,
    last: Nanos,
    /// When the next turn is due.
    due: Nanos,
    /// When a turn last was late.
    excused_ns: Nanos,
    /// Bytes that all peers hold, summed up every turn.
    held: usize,
    ended: bool,
}

impl Engine {
    /// A helper that knows no other host yet.
    pub fn new(settings: Settings, now: Nanos) -> Self {
        Engine {
            own: settings.own,
            mode: settings.mode,
            began: now,
            counters: Counters::default(),
            nics: BTreeMap::new(),
            nic_buckets: NicBuckets::new(settings.longest + settings.overhead),
            granter: Granter::new(Default::default()),
            peers: Vec::new(),
            by_mac: HashMap::new(),
            addressing: Addressing::new(&settings),
            generations: HashMap::new(),
            host_generation: 0,
            segments: Vec::new(),
            ask: Vec::new(),
            greetings: 0,
            newcomers: Bucket::new(now, greet::NEWCOMERS_PER_S, greet::NEWCOMERS),
            nic_names: Vec::new(),
            turn: 0,
            grants_at: now,
            grants_now: false,
            report_at: now + IDLE_NS,
            greet_at: now,
            span_at: now + settings.hbspan_ns,
            yields: false,
            busy_nics: 0,
            credit_at: None,
            sessions: settings.seed,
            last: now,
            due: Nanos::MAX,
            excused_ns: 0,
            held: 0,
            ended: false,
            settings,
        }
    }

    /// Gives the helper a NIC, or changes it. Without a controller somebody else calls this;
    /// otherwise the controller's frames do.
    pub fn set_nic(
        &mut self,
        now: Nanos,
        port: u8,
        name: &str,
        mac: Mac,
        rate_kbps: u32,
        up: bool,
    ) {
        let rate_bps = f64::from(rate_kbps) * 1e3;
        self.nic_buckets.set(now, port, rate_bps as u64);
        self.granter.set_nic(port, if up { rate_bps } else { 0.0 });
        if self.nics.get(&port).is_some_and(|old| old.rate_kbps != rate_kbps) {
            // Heartbeats say what may be sent.
            self.peers.iter_mut().for_each(|peer| peer.beats.send_at_once());
        }
        let nic = Nic { name: name.into(), mac, rate_kbps, up, arrived: (0, 0) };
        self.nics
            .entry(port)
            .and_modify(|old| {
                old.name.clone_from(&nic.name);
                old.mac = nic.mac;
                old.rate_kbps = nic.rate_kbps;
                old.up = nic.up;
            })
            .or_insert(nic);
        self.nic_names = self.nics.iter().map(|(port, nic)| (*port, nic.name.clone())).collect();
        self.grants_now = true;
    }

    /// Counters of everything that arrived, was sent, or was dropped.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The number of the peer with that MAC.
    fn peer_of(&self, mac: Mac) -> Option<usize> {
        self.by_mac.get(&mac).copied()
    }

    /// Adds a peer, which must not be there.
    fn add_peer(&mut self, now: Nanos, mac: Mac) -> usize {
        self.sessions = self
            .sessions
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let session = ((self.sessions >> 32) as u32).max(1);
        let striped = !self.addressing.has_controller();
        self.peers.push(Peer::new(now, mac, session, striped, &self.settings));
        let number = self.peers.len() - 1;
        self.by_mac.insert(mac, number);
        number
    }

    /// Forgets a peer. The last one gets its number.
    fn remove_peer(&mut self, mac: Mac) {
        let Some(number) = self.by_mac.remove(&mac) else { return };
        self.granter.remove_peer(mac);
        self.peers.swap_remove(number);
        self.addressing.remove_peer(number, self.peers.len());
        if let Some(moved) = self.peers.get(number) {
            self.by_mac.insert(moved.mac, number);
        }
        self.grants_now = true;
    }

    /// Gives a peer these links. What is known of a link that was there before stays.
    fn set_links(&mut self, now: Nanos, number: usize, wanted: Vec<Link>) {
        let peer = &mut self.peers[number];
        let mut links = Vec::with_capacity(wanted.len());
        for mut link in wanted {
            let same = |old: &Link| {
                (old.number, old.own_port, old.peer_port)
                    == (link.number, link.own_port, link.peer_port)
            };
            link.own_up = self.nics.get(&link.own_port).is_none_or(|nic| nic.up);
            link.next_sequence = peer.tx.link_sequence(link.number);
            if let Some(old) = peer.links.iter().find(|old| same(old)) {
                let (configured, peer_nic) = (link.configured, link.peer_nic);
                link = old.clone();
                link.configured = configured;
                link.peer_nic = peer_nic;
            }
            links.push(link);
        }
        links.sort_by_key(|link| link.number);
        for old in &peer.links {
            peer.tx.keep_link_sequence(old);
            if !links.iter().any(|link| link.number == old.number) {
                peer.channels.link_gone(old.number);
                peer.tx.remove_link(old.number);
            }
        }
        peer.links = links;
        peer.beats.send_at_once();
        self.tell_granter(number);
        self.set_rates(now, number);
    }

    /// Tells the granter what the grants to a peer depend on: its links into our NICs, and what it
    /// says it may send over each.
    ///
    /// Our own limit counts for the other direction only: on the way here, the frames of a link may
    /// cross other cables.
    fn tell_granter(&mut self, number: usize) {
        let peer = &self.peers[number];
        let links = peer.links.iter().map(|link| GrantLink {
            link: link.number,
            own_nic: link.own_port,
            remote_nic: link.peer_port,
            limit_bps: if link.hears { f64::from(link.limit_kbps) * 1e3 } else { 0.0 },
        });
        self.granter.set_peer(peer.mac, links.collect());
        self.tell_classes(number);
    }

    /// Tells the granter which classes a peer sends, over which links, and what is set aside for
    /// them.
    ///
    /// Rates of jobs are those of the host's frames. On a link, each has the helper's header and
    /// what the medium adds. So what is set aside is enough for frames of half the greatest length.
    fn tell_classes(&mut self, number: usize) {
        let peer = &self.peers[number];
        let added = (wire::OVERHEAD + self.settings.overhead) as f64;
        let factor = 1.0 + 2.0 * added / self.settings.longest.max(1) as f64;
        let classes = peer.channels.iter().map(|channel| GrantClass {
            class: channel.number,
            links: channel.remote_links(),
            guarantee_bps: f64::from(channel.rates().min_in_kbps) * 1e3 * factor,
        });
        self.granter.set_classes(peer.mac, &classes.collect::<Vec<_>>());
        self.grants_now = true;
    }

    /// Sets rates and weights of a peer's links, from what was granted and configured.
    ///
    /// Links that may carry nothing are a reserve, since a path table has another way for the
    /// traffic. When all others are dead, they share the rates of those, for the half second until
    /// the controller, which knows the cables, says otherwise.
    fn set_rates(&mut self, now: Nanos, number: usize) {
        let peer = &mut self.peers[number];
        let usable = peer.usable();
        let (mut alive_kbps, mut dead_kbps) = (0u32, 0u32);
        for link in &peer.links {
            let of = if usable & link.bit() != 0 { &mut alive_kbps } else { &mut dead_kbps };
            *of = of.saturating_add(link.rate_kbps());
        }
        let inherited_kbps =
            if alive_kbps == 0 { dead_kbps / usable.count_ones().max(1) } else { 0 };
        for link in &peer.links {
            let own = self.nics.get(&link.own_port).map_or(NO_LIMIT, |nic| nic.rate_kbps);
            let heir = usable & link.bit() != 0;
            let rate = link.rate_kbps().max(if heir { inherited_kbps } else { 0 }).min(own);
            peer.tx.set_rate(now, link.number, u64::from(rate) * 1000);
            peer.tx.set_weight(link.number, link.configured.weight);
        }
    }

    /// Decides anew what may be sent to us: every few milliseconds while there is traffic, or at
    /// once.
    fn renew_grants(&mut self, now: Nanos) {
        if !self.grants_now && now < self.grants_at {
            return;
        }
        self.grants_at = now + FAST_NS;
        if self.granter.update(now) && self.grants_now {
            for peer in &mut self.peers {
                if peer.is_active(now, ACTIVE_NS) {
                    peer.beats.send_at_once();
                }
            }
        }
        self.grants_now = false;
    }

    fn count_held(&mut self) {
        self.held = self.peers.iter().map(Peer::held_bytes).sum();
    }

    /// When memory gets short, drops frames that were kept long enough.
    ///
    /// Otherwise they are dropped when their peer is sent to again, so those of dead peers would
    /// stay for ever.
    fn make_room(&mut self, now: Nanos, out: &mut dyn Sink) {
        if self.held < self.settings.max_memory - self.settings.max_memory / 4 {
            return;
        }
        for peer in &mut self.peers {
            for channel in peer.channels.iter_mut() {
                channel.out.ring.expire(now);
                while let Some(buffer) = channel.out.ring.reclaim() {
                    out.done(buffer);
                }
            }
        }
        self.count_held();
    }

    /// A NIC of ours lost its carrier, or has it again.
    fn carrier(&mut self, port: u8, up: bool) {
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            let mut gone = Vec::new();
            for link in
                peer.links.iter_mut().filter(|link| link.own_port == port && link.own_up != up)
            {
                link.own_up = up;
                if !up {
                    peer.channels.link_gone(link.number);
                    gone.push(link.number);
                }
                peer.beats.send_at_once();
            }
            // The peer would ask for what was sent over these links, but only later.
            for link in gone {
                peer.channels.repeat_link(link);
            }
        }
    }

    /// Does everything that is due. Returns when something is due next.
    fn turn(&mut self, now: Nanos, out: &mut dyn Sink) -> Nanos {
        self.settle_clock(now);
        if self.addressing.greets() {
            self.greet(now, out);
        }
        self.renew_weights(now);
        for number in 0..self.peers.len() {
            self.check_links(now, number);
            self.strand_stuck(now, number, out);
            self.close_gaps(now, number, out);
        }
        self.renew_grants(now);
        self.send_beats(now, out);
        self.pump(now, out);
        self.report(now, out);
        self.count_held();
        self.make_room(now, out);
        self.deadline(now)
    }
}

impl Driver for Engine {
    fn on_plain(&mut self, now: Nanos, header: &VnetHdr, frame: Vec<u8>, out: &mut dyn Sink) {
        self.wake_up(now);
        self.counters.plain_in += 1;
        self.take_plain(now, header, frame, out);
    }

    fn on_wire(
        &mut self,
        now: Nanos,
        tag: Option<Tag>,
        nic: u8,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    ) {
        self.wake_up(now);
        self.counters.wire_in += 1;
        // Behind a bridge no NIC has port 0, nor one above 255.
        let nic = tag.map_or(nic, |tag| u8::try_from(tag.vid).unwrap_or(0));
        self.take_wire(now, tag, nic, frame, out);
    }

    fn on_tick(&mut self, now: Nanos, out: &mut dyn Sink) -> Nanos {
        self.wake_up(now);
        self.counters.wakes += 1;
        self.turn(now, out)
    }

    fn take_beside(&mut self, now: Nanos, steering: &mut Steering) -> bool {
        self.look_beside(now, steering)
    }

    fn tell_beside(&mut self, now: Nanos, steering: &mut Steering) {
        self.steer_beside(now, steering);
    }

    fn woken(&mut self, now: Nanos, peer: Mac) {
        self.traffic_beside(now, peer);
    }

    fn own(&self) -> Option<Mac> {
        self.own
    }

    fn patience_ns(&self, peer: Mac) -> Nanos {
        self.patience_beside(peer)
    }

    fn wants_plain(&mut self, _now: Nanos) -> bool {
        self.has_room()
    }

    fn nic_counters(&mut self, now: Nanos, port: u8, rx_bytes: u64, up: bool) {
        let Some(nic) = self.nics.get_mut(&port) else { return };
        if nic.up != up {
            nic.up = up;
            let rate_bps = f64::from(nic.rate_kbps) * 1e3;
            self.granter.set_nic(port, if up { rate_bps } else { 0.0 });
        }
        // The controller may have said so first.
        self.carrier(port, up);
        self.granter.nic_total(now, port, rx_bytes);
    }

    fn nic_renamed(&mut self, port: u8, name: &str) {
        if let Some(nic) = self.nics.get_mut(&port) {
            nic.name = name.into();
        }
        self.nic_names = self.nics.iter().map(|(port, nic)| (*port, nic.name.clone())).collect();
    }

    fn nics(&self) -> &[(u8, String)] {
        &self.nic_names
    }

    fn status(&self) -> serde_json::Value {
        self.described()
    }

    fn goodbye(&mut self, now: Nanos, out: &mut dyn Sink) {
        self.ended = true;
        self.hand_over(now, out);
    }
}
