// SPDX-License-Identifier: Apache-2.0
//! A cluster in memory: engines, shaped links, switches with finite buffers, and faults. Time is
//! simulated, and chance follows a seed.

pub mod autonomous;
mod controller;
mod figure4;
pub mod jobs;
mod parts;
mod stalls;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ri2n_reorder::driver::{Driver, Out, Sink};
use ri2n_reorder::engine::{Engine, Mode, Settings};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{self, Mac, Tag, BOUNCED_PCP, ETHERNET, ETHERTYPE};
use ri2n_reorder::Nanos;

pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;
pub use figure4::{figure4, shares};
pub use parts::{Fault, Random, Received, Source};
use stalls::Input;

/// The rate of a link, unless a test gives another.
pub const LINK_BPS: u64 = 100_000_000;
const DELAY_NS: Nanos = 10_000;
const BUFFER_BYTES: usize = 131_072;
const MTU: usize = 1500;
/// A source without a rate has this many frames on the way. At 50 Mbit/s, its wait stays below
/// CoDel's 5 ms.
const WINDOW: u64 = 16;
/// The frames that a tap keeps.
const TAPPED: usize = 100;

/// A place where frames wait to be sent at a rate.
#[derive(Default)]
struct Port {
    rate_bps: u64,
    queue: VecDeque<(usize, u8, usize, u8, Vec<u8>)>,
    bytes: usize,
    busy: bool,
    drops: u64,
}

enum Event {
    Tick(usize),
    Sent(usize),
    Arrive { to: usize, port: u8, from: usize, frame: Vec<u8> },
    Source(usize),
    Wake(usize),
}

struct Outbox {
    wire: Vec<(Out, Vec<u8>)>,
    plain: Vec<Vec<u8>>,
}

impl Sink for Outbox {
    fn wire(&mut self, to: Out, frame: Vec<u8>) {
        self.wire.push((to, frame));
    }
    fn plain(&mut self, frame: Vec<u8>) {
        self.plain.push(frame);
    }
    fn recycle(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn done(&mut self, _buffer: Vec<u8>) {}
}

/// A NIC: host and port.
type Place = (usize, u8);

pub struct World {
    pub now: Nanos,
    pub engines: Vec<Option<Engine>>,
    /// The switch of each (host, port).
    nics: BTreeMap<(usize, u8), usize>,
    ports: Vec<Port>,
    out_port: BTreeMap<(usize, u8), usize>,
    in_port: BTreeMap<(usize, u8), usize>,
    pub faults: BTreeMap<(Place, Place), Fault>,
    events: BinaryHeap<Reverse<(Nanos, u64)>>,
    payloads: BTreeMap<u64, Event>,
    serial: u64,
    tick_at: Vec<Nanos>,
    pub sources: Vec<Source>,
    pub received: BTreeMap<(usize, usize), Received>,
    pub random: Random,
    pub to_slots: u64,
    pub settings: Settings,
    mode: Mode,
    generation: u32,
    plain_hosts: Vec<usize>,
    rates: BTreeMap<(usize, u8), u64>,
    rx_bytes: BTreeMap<(usize, u8), u64>,
    counters_at: Nanos,
    /// By how many ns each host's clock is ahead.
    pub clocks: Vec<i64>,
    /// Broadcasts that were delivered, by (from, host).
    pub broadcasts: BTreeMap<(usize, usize), u64>,
    /// The most frames that a source without a rate has on the way.
    pub window: u64,
    /// Until when a host has no CPU.
    stalled: Vec<Nanos>,
    /// What waits for a host that has no CPU.
    inputs: Vec<VecDeque<Input>>,
    /// Frames for which there was no room there.
    pub overruns: u64,
    /// The newest frames of helpers that arrived (host, port, frame), if a test wants them.
    pub tap: Option<VecDeque<(usize, u8, Vec<u8>)>>,
    /// Data frames that were sent, by (host, channel, link).
    pub carried: BTreeMap<(usize, u8, u8), u64>,
}

pub fn mac(host: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, host as u8 + 1])
}

impl World {
    /// A world. `hosts` has the (switch, rate) of each host's NICs, which are ports 1, 2, ...
    pub fn new(hosts: &[&[(usize, u64)]], mode: Mode, seed: u64) -> Self {
        Self::with(hosts, Self::usual(mode, seed))
    }

    /// The settings of a helper with a bridge.
    pub fn usual(mode: Mode, seed: u64) -> Settings {
        Settings {
            own: None,
            autonomous: false,
            longest: ETHERNET + MTU,
            overhead: 0,
            udp_unordered: false,
            max_memory: 64 << 20,
            keep_ns: 50 * MS,
            mode,
            hbspan_ns: 2 * S,
            seed,
            first: Seq(0),
        }
    }

    /// A world in which every host has these settings, except for what differs between hosts.
    pub fn with(hosts: &[&[(usize, u64)]], settings: Settings) -> Self {
        let (mode, seed) = (settings.mode, settings.seed);
        let mut world = World {
            now: S,
            engines: Vec::new(),
            nics: BTreeMap::new(),
            ports: Vec::new(),
            out_port: BTreeMap::new(),
            in_port: BTreeMap::new(),
            faults: BTreeMap::new(),
            events: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            serial: 0,
            tick_at: vec![Nanos::MAX; hosts.len()],
            sources: Vec::new(),
            received: BTreeMap::new(),
            random: Random(seed | 1),
            to_slots: 0,
            settings,
            mode,
            generation: 1,
            plain_hosts: Vec::new(),
            rates: BTreeMap::new(),
            rx_bytes: BTreeMap::new(),
            counters_at: S,
            clocks: vec![0; hosts.len()],
            broadcasts: BTreeMap::new(),
            window: WINDOW,
            stalled: vec![0; hosts.len()],
            inputs: hosts.iter().map(|_| VecDeque::new()).collect(),
            overruns: 0,
            tap: None,
            carried: BTreeMap::new(),
        };
        for (host, nics) in hosts.iter().enumerate() {
            for (at, (switch, rate_bps)) in nics.iter().enumerate() {
                let nic = (host, at as u8 + 1);
                world.nics.insert(nic, *switch);
                world.rates.insert(nic, *rate_bps);
                world.out_port.insert(nic, world.ports.len());
                world.ports.push(Port { rate_bps: *rate_bps, ..Port::default() });
                world.in_port.insert(nic, world.ports.len());
                world.ports.push(Port { rate_bps: *rate_bps, ..Port::default() });
            }
            world.engines.push(Some(world.new_engine(host, seed + host as u64 * 77)));
        }
        for host in 0..hosts.len() {
            world.configure(host);
        }
        world
    }

    fn new_engine(&self, host: usize, seed: u64) -> Engine {
        let own = self.settings.autonomous.then(|| mac(host));
        Engine::new(Settings { seed, own, ..self.settings.clone() }, self.clock(host))
    }

    /// The time as a host's clock shows it.
    pub fn clock(&self, host: usize) -> Nanos {
        self.now.saturating_add_signed(self.clocks[host])
    }

    /// Kills the helper of a host.
    pub fn kill(&mut self, host: usize) {
        self.engines[host] = None;
    }

    /// A new helper of a host begins.
    pub fn restart(&mut self, host: usize) {
        let seed = self.random.next();
        self.engines[host] = Some(self.new_engine(host, seed));
        self.generation += 1;
        self.configure(host);
    }

    pub fn engine(&mut self, host: usize) -> &mut Engine {
        self.engines[host].as_mut().unwrap()
    }

    /// Begins to send. Returns the number of the source.
    pub fn send(&mut self, from: usize, to: usize, pps: u64, size: usize) -> usize {
        self.send_in(0, from, to, pps, size)
    }

    /// Begins to send in a job's channel. Returns the number of the source.
    pub fn send_in(&mut self, channel: u8, from: usize, to: usize, pps: u64, size: usize) -> usize {
        let (seen, log) = (Received::default(), None);
        let source = Source { from, to, pps, size, on: true, channel, seen, log, next: 0 };
        self.sources.push(source);
        let number = self.sources.len() - 1;
        self.at(self.now, Event::Source(number));
        number
    }

    pub fn start(&mut self, source: usize) {
        self.sources[source].on = true;
        self.at(self.now, Event::Source(source));
    }

    pub fn stop(&mut self, source: usize) {
        self.sources[source].on = false;
    }

    fn at(&mut self, when: Nanos, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((when, self.serial)));
        self.payloads.insert(self.serial, event);
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        for host in 0..self.engines.len() {
            self.tick(host);
        }
        while let Some(Reverse((when, serial))) = self.events.peek().copied() {
            if when > end {
                break;
            }
            self.events.pop();
            self.now = when.max(self.now);
            let Some(event) = self.payloads.remove(&serial) else { continue };
            match event {
                Event::Tick(host) => {
                    if self.tick_at[host] <= self.now {
                        self.tick(host);
                    }
                }
                Event::Sent(port) => self.sent(port),
                Event::Arrive { to, port, from, frame } => self.arrive(to, port, from, frame),
                Event::Source(number) => self.source(number),
                Event::Wake(host) => self.wake(host),
            }
        }
        self.now = end;
    }

    fn tick(&mut self, host: usize) {
        if !self.has_cpu(host) {
            return;
        }
        let now = self.clock(host);
        let Some(engine) = self.engines[host].as_mut() else { return };
        if now >= self.counters_at + 10 * MS {
            self.counters_at = now;
        }
        let counts: Vec<(u8, u64)> = self
            .rx_bytes
            .iter()
            .filter(|entry| entry.0 .0 == host)
            .map(|entry| (entry.0 .1, *entry.1))
            .collect();
        for (port, bytes) in counts {
            engine.nic_counters(now, port, bytes, true);
        }
        let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
        let next = engine.on_tick(now, &mut out);
        self.tick_later(host, next);
        self.carry(host, out);
        self.feed(host);
    }

    /// A host has to be asked again at `next` by its own clock.
    fn tick_later(&mut self, host: usize, next: Nanos) {
        let next = self.now + next.saturating_sub(self.clock(host)).max(1000);
        self.tick_at[host] = next;
        self.at(next, Event::Tick(host));
    }

    /// Lets sources send that send as much as they can. They are a window ahead of what was
    /// received.
    fn feed(&mut self, host: usize) {
        for number in 0..self.sources.len() {
            let source = &self.sources[number];
            if source.from != host || source.pps != 0 || !source.on || !self.has_cpu(host) {
                continue;
            }
            let now = self.clock(host);
            let mut some = false;
            let (next, received) = (source.next, source.seen.next);
            let mut room = self.window.saturating_sub(next - received.min(next));
            while room > 0
                && self.engines[host].as_mut().is_some_and(|engine| engine.wants_plain(now))
            {
                self.emit(number);
                some = true;
                room -= 1;
            }
            if some {
                // Frames that were taken set a new deadline.
                let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
                let Some(engine) = self.engines[host].as_mut() else { return };
                let next = engine.on_tick(now, &mut out);
                self.tick_later(host, next);
                self.carry(host, out);
            }
        }
    }

    fn source(&mut self, number: usize) {
        let source = &self.sources[number];
        if !source.on {
            return;
        }
        if source.pps == 0 {
            self.feed(source.from);
            return;
        }
        let next = self.now + S / source.pps;
        let from = source.from;
        self.emit(number);
        self.at(next, Event::Source(number));
        self.tick(from);
    }

    fn emit(&mut self, number: usize) {
        let source = &mut self.sources[number];
        let (from, to, size, count) = (source.from, source.to, source.size, source.next);
        let channel = source.channel;
        source.next += 1;
        let mut frame = vec![0u8; size];
        frame[..6].copy_from_slice(&mac(to).0);
        frame[6..12].copy_from_slice(&mac(from).0);
        frame[12..14].copy_from_slice(&[0x90, 0x00]);
        frame[14..22].copy_from_slice(&count.to_be_bytes());
        frame[22] = number as u8;
        if channel > 0 && self.engines[from].is_some() {
            wire::push_tag(&mut frame, channel.into(), 0);
        }
        let now = self.clock(from);
        if !self.has_cpu(from) {
            self.wait_for_cpu(from, Input::Plain(frame));
        } else if let Some(engine) = self.engines[from].as_mut() {
            let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
            engine.on_plain(now, &VnetHdr::default(), frame, &mut out);
            self.carry(from, out);
        } else if let Some(link) = self.links(from, to).first().copied() {
            self.enqueue_out(from, link.1, to, link.2, frame);
        }
    }

    fn carry(&mut self, host: usize, out: Outbox) {
        for (to, frame) in out.wire {
            match to {
                _ if self.settings.autonomous => self.by_nics(host, to, frame),
                Out::Link(link, own_port) => {
                    let dst = frame[5] as usize - 1;
                    if frame[14] & 15 == 1 {
                        *self.carried.entry((host, frame[20], link)).or_default() += 1;
                    }
                    let links = self.links(host, dst);
                    // The controller may number them in another way.
                    let by_port = || links.iter().find(|entry| entry.1 == own_port);
                    let found = links
                        .iter()
                        .find(|entry| (entry.0, entry.1) == (link, own_port))
                        .or_else(by_port);
                    let peer_port = found.map_or(0, |entry| entry.2);
                    self.enqueue_out(host, own_port, dst, peer_port, frame);
                }
                Out::Slots => self.to_slots += 1,
                Out::Controller | Out::Nic(_) => {}
            }
        }
        for frame in out.plain {
            self.delivered(host, &frame);
        }
    }

    fn delivered(&mut self, host: usize, frame: &[u8]) {
        if frame[..6] == Mac::BROADCAST.0 {
            *self.broadcasts.entry((frame[11] as usize - 1, host)).or_default() += 1;
            return;
        }
        assert_eq!(frame[..6], mac(host).0, "delivered with the host's own MAC");
        assert_eq!(frame[12..14], [0x90, 0x00]);
        let from = frame[11] as usize - 1;
        let count = u64::from_be_bytes(frame[14..22].try_into().unwrap());
        self.received.entry((from, host)).or_default().take(self.now, count, frame.len());
        let source = &mut self.sources[usize::from(frame[22])];
        source.seen.take(self.now, count, frame.len());
        if let Some(log) = &mut source.log {
            log.push((self.now, frame.len()));
        }
        for number in 0..self.sources.len() {
            if self.sources[number].to == host
                && self.sources[number].from == from
                && self.sources[number].pps == 0
            {
                self.at(self.now, Event::Source(number));
            }
        }
    }

    fn enqueue_out(&mut self, host: usize, port: u8, to: usize, to_port: u8, frame: Vec<u8>) {
        let at = self.out_port[&(host, port)];
        self.enqueue(at, (to, to_port, host, port, frame));
    }

    fn enqueue(&mut self, at: usize, item: (usize, u8, usize, u8, Vec<u8>)) {
        let port = &mut self.ports[at];
        port.bytes += item.4.len();
        port.queue.push_back(item);
        while port.bytes > BUFFER_BYTES {
            if let Some(old) = port.queue.pop_front() {
                port.bytes -= old.4.len();
                port.drops += 1;
            }
        }
        if !port.busy {
            self.serve(at);
        }
    }

    fn serve(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let Some(item) = port.queue.front() else {
            port.busy = false;
            return;
        };
        port.busy = true;
        let took = item.4.len() as u64 * 8 * S / port.rate_bps;
        self.at(self.now + took, Event::Sent(at));
    }

    fn sent(&mut self, at: usize) {
        let Some((to, to_port, from, from_port, mut frame)) = self.ports[at].queue.pop_front()
        else {
            self.ports[at].busy = false;
            return;
        };
        self.ports[at].bytes -= frame.len();
        self.serve(at);
        if at == self.out_port[&(from, from_port)] {
            // The frame is at the switch, and goes to the switch's port to the receiver next.
            let fault =
                self.faults.get(&((from, from_port), (to, to_port))).copied().unwrap_or_default();
            if fault.blackhole
                || self.random.chance(fault.loss_percent)
                || !self.nics.contains_key(&(to, to_port))
            {
                return;
            }
            if self.random.chance(fault.corrupt_percent) {
                let place = (self.random.next() as usize) % frame.len().clamp(1, 40);
                frame[place] ^= 1 << (self.random.next() % 8);
            }
            if self.random.chance(fault.duplicate_percent) {
                self.enqueue(
                    self.in_port[&(to, to_port)],
                    (to, to_port, from, from_port, frame.clone()),
                );
            }
            self.enqueue(self.in_port[&(to, to_port)], (to, to_port, from, from_port, frame));
            return;
        }
        let fault =
            self.faults.get(&((from, from_port), (to, to_port))).copied().unwrap_or_default();
        self.at(
            self.now + DELAY_NS + fault.delay_ns,
            Event::Arrive { to, port: to_port, from, frame },
        );
    }

    fn arrive(&mut self, to: usize, port: u8, from: usize, frame: Vec<u8>) {
        *self.rx_bytes.entry((to, port)).or_default() += frame.len() as u64;
        if frame[12..14] != ETHERTYPE.to_be_bytes() {
            self.delivered(to, &frame);
            return;
        }
        if let Some(tap) = &mut self.tap {
            tap.truncate(TAPPED);
            tap.push_front((to, port, frame.clone()));
        }
        if self.engines[to].is_some() {
            let tag = (!self.settings.autonomous).then_some(Tag { vid: u16::from(port), pcp: 0 });
            self.wire_in(to, tag, port, frame);
        } else if self.settings.autonomous {
            // Nobody takes the frame.
        } else if self.engines[from].is_some() && !self.plain_hosts.contains(&to) {
            // The bridge sends back, once, what its helper does not take.
            let Some(link) = self.links(from, to).into_iter().find(|link| link.2 == port) else {
                return;
            };
            let mut back = frame;
            wire::set_macs(&mut back, mac(from), mac(to));
            self.wire_in(
                from,
                Some(Tag { vid: u16::from(link.1), pcp: BOUNCED_PCP }),
                link.1,
                back,
            );
        }
    }

    pub fn wire_in(&mut self, host: usize, tag: Option<Tag>, nic: u8, frame: Vec<u8>) {
        let now = self.clock(host);
        if !self.has_cpu(host) {
            return self.wait_for_cpu(host, Input::Wire(tag, nic, frame));
        }
        let Some(engine) = self.engines[host].as_mut() else { return };
        let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
        engine.on_wire(now, tag, nic, frame, &mut out);
        self.carry(host, out);
        self.tick(host);
    }
}

pub fn world(hosts: &[Vec<(usize, u64)>], mode: Mode, seed: u64) -> World {
    let hosts: Vec<&[(usize, u64)]> = hosts.iter().map(Vec::as_slice).collect();
    World::new(&hosts, mode, seed)
}
