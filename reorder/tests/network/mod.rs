// SPDX-License-Identifier: Apache-2.0
//! A server with some links of 100 Mbit/s, switches with 128 KB for each port, paced clients, and a
//! client that behaves like TCP.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ri2n_reorder::grants::{GrantLink, Granter, Settings};
use ri2n_reorder::sched::{Bucket, Paced};
use ri2n_reorder::Nanos;

pub const MS: Nanos = 1_000_000;
const LINK_BPS: f64 = 100e6;
const FRAME: usize = 1_514;
/// The time that a full frame takes on a link.
const FRAME_NS: Nanos = FRAME as u64 * 80;
const PORT_BUFFER: usize = 131_072;
/// The time of one way through cables and a switch.
const DELAY: Nanos = 20_000;
const HEARTBEAT: Nanos = 10 * MS;
/// The sender without a helper.
const FOREIGN: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client may have credit.
    Send(usize),
    /// A port of a switch has sent a frame.
    Sent(usize),
    /// A client's heartbeat arrives at the server.
    Tells(usize),
    /// The server's heartbeat arrives at a client.
    Granted(usize),
    /// The server looks at its counters.
    Update,
    /// The acknowledgement or the loss of a TCP segment becomes known.
    Acknowledged,
    Missed,
}

struct Client {
    links: Vec<u8>,
    paced: Paced,
    on: bool,
    dead: bool,
    /// What the application has to send, if that is not endless.
    demand_bps: f64,
    wants: Bucket,
    /// What something between the hosts lets through.
    elsewhere: Option<Bucket>,
    delivered: usize,
    planned: Nanos,
}

#[derive(Default)]
struct Port {
    frames: VecDeque<(usize, bool)>,
    received: u64,
}

#[derive(Default)]
struct Foreign {
    on: bool,
    port: usize,
    window: f64,
    in_flight: usize,
    recovers_until: Nanos,
    /// When its own NIC has sent everything that it was given.
    nic_free: Nanos,
    delivered: usize,
}

pub struct Network {
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    granter: Granter<usize>,
    clients: Vec<Client>,
    ports: Vec<Port>,
    foreign: Foreign,
    since: Nanos,
    dropped: usize,
    longest: usize,
}

impl Network {
    pub fn new(links: u8, clients: &[&[u8]]) -> Self {
        let mut granter = Granter::new(Settings::default());
        (0..links).for_each(|nic| granter.set_nic(nic, LINK_BPS));
        let clients: Vec<Client> = clients
            .iter()
            .map(|links| {
                let mut paced = Paced::new(FRAME);
                links.iter().for_each(|&link| paced.set(0, link, 0));
                let wants = Bucket::new(0, 0, 1);
                Client {
                    links: links.to_vec(),
                    paced,
                    on: false,
                    dead: false,
                    demand_bps: f64::INFINITY,
                    wants,
                    elsewhere: None,
                    delivered: 0,
                    planned: Nanos::MAX,
                }
            })
            .collect();
        let ports = (0..links).map(|_| Port::default()).collect();
        let mut network = Self {
            now: 0,
            events: BinaryHeap::new(),
            number: 0,
            granter,
            clients,
            ports,
            foreign: Foreign::default(),
            since: 0,
            dropped: 0,
            longest: 0,
        };
        for client in 0..network.clients.len() {
            let link = |&nic: &u8| GrantLink {
                link: nic,
                own_nic: nic,
                remote_nic: nic,
                limit_bps: LINK_BPS,
            };
            network
                .granter
                .set_peer(client, network.clients[client].links.iter().map(link).collect());
            network.plan(1_300_000 * (client as u64 + 1), Event::Tells(client));
        }
        network.plan(0, Event::Update);
        network
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Frames that switches dropped so far.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The most bytes that waited in one switch port.
    pub fn longest_queue(&self) -> usize {
        self.longest
    }

    /// `client` has endless data from now on.
    pub fn start(&mut self, client: usize) {
        self.start_at(client, f64::INFINITY);
    }

    /// `client` sends `demand_bps` from now on.
    pub fn start_at(&mut self, client: usize, demand_bps: f64) {
        let now = self.now;
        let of = &mut self.clients[client];
        of.on = true;
        of.demand_bps = demand_bps;
        of.wants = Bucket::new(now, (demand_bps.min(1e12) / 8.0) as u64, FRAME as u64);
        self.plan(now, Event::Send(client));
    }

    pub fn stop(&mut self, client: usize) {
        self.clients[client].on = false;
    }

    /// `client` sends nothing any more, not even heartbeats.
    pub fn kill(&mut self, client: usize) {
        self.clients[client].on = false;
        self.clients[client].dead = true;
    }

    /// Something lets through no more than `bps` of the data of `client`.
    pub fn hold_up(&mut self, client: usize, bps: f64) {
        let bucket = Bucket::new(self.now, (bps.min(1e12) / 8.0) as u64, 4 * FRAME as u64);
        self.clients[client].elsewhere = bps.is_finite().then_some(bucket);
    }

    pub fn start_foreign(&mut self, port: usize) {
        self.foreign = Foreign { on: true, port, window: 10.0, ..Foreign::default() };
        self.send_foreign();
    }

    pub fn stop_foreign(&mut self) {
        self.foreign.on = false;
    }

    /// Measures from now on.
    pub fn forget(&mut self) {
        self.since = self.now;
        self.foreign.delivered = 0;
        self.clients.iter_mut().for_each(|client| client.delivered = 0);
    }

    /// What was delivered from `client`, in links.
    pub fn share(&self, client: usize) -> f64 {
        self.in_links(self.clients[client].delivered)
    }

    pub fn foreign_share(&self) -> f64 {
        self.in_links(self.foreign.delivered)
    }

    pub fn run(&mut self, until: Nanos) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = at;
            self.handle(event);
        }
        self.now = until;
    }

    fn in_links(&self, bytes: usize) -> f64 {
        bytes as f64 * 8e9 / (self.now - self.since) as f64 / LINK_BPS
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send(client) => self.send(client),
            Event::Sent(port) => self.sent(port),
            Event::Tells(client) => {
                let of = &self.clients[client];
                if !of.dead {
                    let wanted = if of.on { of.demand_bps } else { 0.0 };
                    let granted: f64 = of.paced.rate_bps(u64::MAX) as f64;
                    self.tell(client, if wanted > granted { f64::INFINITY } else { wanted });
                }
                self.plan(self.now + HEARTBEAT, Event::Tells(client));
            }
            Event::Granted(client) => {
                for place in 0..self.clients[client].links.len() {
                    let link = self.clients[client].links[place];
                    let grant = self.granter.grant(client, link).unwrap_or(0.0);
                    self.clients[client].paced.set(self.now, link, grant as u64);
                }
                self.send(client);
            }
            Event::Update => {
                for (nic, port) in self.ports.iter().enumerate() {
                    self.granter.nic_total(self.now, nic as u8, port.received);
                }
                self.granter.update(self.now);
                self.announce();
                self.plan(self.now + HEARTBEAT, Event::Update);
            }
            Event::Acknowledged => {
                self.foreign.in_flight -= 1;
                self.foreign.window += 1.0 / self.foreign.window;
                self.send_foreign();
            }
            Event::Missed => {
                self.foreign.in_flight -= 1;
                if self.now > self.foreign.recovers_until {
                    self.foreign.window = (self.foreign.window / 2.0).max(2.0);
                    self.foreign.recovers_until = self.now + 12 * MS;
                }
                self.send_foreign();
            }
        }
    }

    /// The server hears what a client wants to send.
    fn tell(&mut self, client: usize, demand_bps: f64) {
        if self.granter.demand(self.now, client, 0, demand_bps) && self.granter.update(self.now) {
            self.announce();
        }
    }

    fn announce(&mut self) {
        (0..self.clients.len())
            .for_each(|client| self.plan(self.now + 2 * DELAY, Event::Granted(client)));
    }

    fn send(&mut self, client: usize) {
        let now = self.now;
        loop {
            let of = &mut self.clients[client];
            of.wants.refill(now);
            if !of.on || !of.wants.has_credit() {
                break;
            }
            if let Some(elsewhere) = &mut of.elsewhere {
                elsewhere.refill(now);
                if !elsewhere.has_credit() {
                    break;
                }
                elsewhere.spend(FRAME);
            }
            let Some(link) = of.paced.pick(now, FRAME, u64::MAX, |_| true) else { break };
            of.paced.spent(link, FRAME);
            of.wants.spend(FRAME);
            let more = of.wants.has_credit() && of.paced.next_ready(now, u64::MAX, |_| now) > now;
            self.enqueue(usize::from(link), client, more);
        }
        let of = &mut self.clients[client];
        if of.on {
            let mut at = of.paced.next_ready(now, u64::MAX, |_| now).max(of.wants.ready_at(now));
            at = at.max(of.elsewhere.as_ref().map_or(0, |bucket| bucket.ready_at(now)));
            // One timer is enough: an earlier one replaces a later one.
            if at != Nanos::MAX && at.max(now + 1) < of.planned.max(now + 1) || of.planned <= now {
                of.planned = at.max(now + 1).min(now + 1_000 * MS);
                let at = of.planned;
                self.plan(at, Event::Send(client));
            }
        }
    }

    fn enqueue(&mut self, port: usize, from: usize, more: bool) {
        let waiting = self.ports[port].frames.len() * FRAME;
        self.longest = self.longest.max(waiting);
        if waiting + FRAME > PORT_BUFFER {
            self.dropped += 1;
            if from == FOREIGN {
                self.plan(self.now + 11 * MS, Event::Missed);
            }
            return;
        }
        self.ports[port].frames.push_back((from, more));
        if self.ports[port].frames.len() == 1 {
            self.plan(self.now + FRAME_NS, Event::Sent(port));
        }
    }

    fn sent(&mut self, port: usize) {
        let Some((from, more)) = self.ports[port].frames.pop_front() else { return };
        self.ports[port].received += FRAME as u64;
        if !self.ports[port].frames.is_empty() {
            self.plan(self.now + FRAME_NS, Event::Sent(port));
        }
        if from == FOREIGN {
            self.foreign.delivered += FRAME;
            self.plan(self.now + 2 * DELAY, Event::Acknowledged);
            return;
        }
        self.clients[from].delivered += FRAME;
        self.granter.managed(port as u8, FRAME);
        self.granter.arrived(from, 0, FRAME);
        if more {
            self.tell(from, f64::INFINITY);
        }
    }

    fn send_foreign(&mut self) {
        while self.foreign.on && (self.foreign.in_flight as f64) < self.foreign.window.floor() {
            // Its own NIC takes a frame's time for each frame. The sender may be ahead of it by up
            // to one frame.
            if self.foreign.nic_free > self.now + FRAME_NS {
                break;
            }
            self.foreign.nic_free = self.foreign.nic_free.max(self.now) + FRAME_NS;
            self.foreign.in_flight += 1;
            self.enqueue(self.foreign.port, FOREIGN, false);
        }
    }
}
