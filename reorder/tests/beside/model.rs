// SPDX-License-Identifier: Apache-2.0
//! A sender, links with losses, the program `rx`, the helper's device, and a stack that takes what
//! comes up. Everything happens in single steps, in a random order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

use ri2n_reorder::beside::order::{Early, Order};
use ri2n_reorder::beside::segment::{ahead, Segment};
use ri2n_reorder::Nanos;
use ri2n_wire::shared::Flow;

pub const MS: Nanos = 1_000_000;

/// xorshift
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A segment on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub flow: usize,
    pub lane: usize,
    pub start: u32,
    pub length: u32,
    /// Which one of all that were sent.
    pub number: usize,
}

impl Sent {
    pub fn end(&self) -> u32 {
        self.start.wrapping_add(self.length)
    }
}

/// `rx` in the middle of a segment, after the word was changed.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// The link's end has to be noted, then the frame goes to the device.
    Counted(Sent),
    /// The same, and the frame goes straight up.
    Passed(Sent),
}

/// What has come up: number, flow and when the helper had it, if it came by the helper.
#[derive(Clone, Copy, Debug)]
pub struct Up {
    pub sent: Sent,
    pub held_ns: Option<Nanos>,
}

pub struct Rules {
    /// One of so many frames is lost on a link; 0: none.
    pub loss: u64,
    /// One of so many frames is dropped between `rx` and the helper; 0: none.
    pub drop: u64,
    /// One of so many frames comes twice; 0: none.
    pub twice: u64,
    /// Frames that may wait on a link.
    pub depth: usize,
    /// What goes straight up is up in the moment of the decision. Otherwise another CPU may be
    /// faster with what follows, which nobody prevents.
    pub at_once: bool,
}

pub struct Host<'a> {
    pub now: Nanos,
    pub dice: Dice,
    pub rules: Rules,
    pub flows: &'a [Flow],
    pub keys: Vec<u64>,
    next: Vec<u32>,
    pub sent: usize,
    links: Vec<VecDeque<Sent>>,
    doing: Vec<Option<Doing>>,
    /// What `rx` gave and the helper has not read.
    pub device: VecDeque<Sent>,
    pub up: Vec<Up>,
    pub lost: usize,
    pub dropped: usize,
    pub copies: usize,
}

/// What the helper holds: the segment, and since when.
pub type Item = (Sent, Nanos);

impl<'a> Host<'a> {
    pub fn new(
        seed: u64,
        flows: &'a [Flow],
        count: usize,
        links: usize,
        rules: Rules,
        first: u32,
    ) -> Self {
        let host = Host {
            now: 1000 * MS,
            dice: Dice(seed | 1),
            rules,
            flows,
            keys: (1..=count as u64).map(|key| key << 40 | 7).collect(),
            next: vec![first; count],
            sent: 0,
            links: vec![VecDeque::new(); links],
            doing: vec![None; links],
            device: VecDeque::new(),
            up: Vec::new(),
            lost: 0,
            dropped: 0,
            copies: 0,
        };
        for (flow, key) in host.flows.iter().zip(&host.keys) {
            flow.key.store(*key, SeqCst);
            flow.word.store(u64::from(first), SeqCst);
        }
        host
    }

    /// The sender sends a segment of some flow over some link.
    pub fn send(&mut self) {
        let lane = self.dice.roll(self.links.len() as u64) as usize;
        if self.links[lane].len() >= self.rules.depth {
            return;
        }
        let flow = self.dice.roll(self.next.len() as u64) as usize;
        let start = self.next[flow];
        let length = 1 + self.dice.roll(3000) as u32;
        self.next[flow] = start.wrapping_add(length);
        let sent = Sent { flow, lane, start, length, number: self.sent };
        self.sent += 1;
        if self.rules.loss > 0 && self.dice.roll(self.rules.loss) == 0 {
            self.lost += 1;
            return;
        }
        self.links[lane].push_back(sent);
        if self.rules.twice > 0 && self.dice.roll(self.rules.twice) == 0 {
            self.copies += 1;
            self.links[lane].push_back(sent);
        }
    }

    /// `rx` does one step of what came by some link. False if there is nothing.
    pub fn receive(&mut self) -> bool {
        let lanes = self.links.len();
        let first = self.dice.roll(lanes as u64) as usize;
        for lane in (0..lanes).map(|at| (at + first) % lanes) {
            match self.doing[lane].take() {
                Some(doing) => self.finish(doing),
                None => {
                    let Some(sent) = self.links[lane].pop_front() else { continue };
                    let doing = self.judge(sent);
                    if matches!(doing, Doing::Passed(_)) && self.rules.at_once {
                        self.up.push(Up { sent, held_ns: None });
                    }
                    // The rest follows within a microsecond, mostly before anybody else acts.
                    match self.dice.roll(8) {
                        0 => self.doing[lane] = Some(doing),
                        _ => self.finish(doing),
                    }
                }
            }
            return true;
        }
        false
    }

    fn finish(&mut self, doing: Doing) {
        match doing {
            Doing::Counted(sent) => {
                self.note(&sent);
                if self.rules.drop > 0 && self.dice.roll(self.rules.drop) == 0 {
                    self.dropped += 1;
                } else {
                    self.device.push_back(sent);
                }
            }
            Doing::Passed(sent) => {
                self.note(&sent);
                if !self.rules.at_once {
                    self.up.push(Up { sent, held_ns: None });
                }
            }
        }
    }

    fn note(&self, sent: &Sent) {
        let ms = (self.now / MS) as u32;
        let lane = &self.flows[sent.flow].lanes[sent.lane];
        let end = (lane.load(SeqCst) >> 32) as u32;
        if lane.load(SeqCst) == 0 || ahead(end, sent.end()) > 0 {
            lane.store(u64::from(sent.end()) << 32 | u64::from(ms), SeqCst);
        }
    }

    /// The rules of `rx`.
    fn judge(&self, sent: Sent) -> Doing {
        let flow = &self.flows[sent.flow];
        let word = flow.word.load(SeqCst);
        let (held, expected) = ((word >> 32) as u32, word as u32);
        if ahead(expected, sent.end()) <= 0 {
            return Doing::Passed(sent);
        }
        let below = ahead(sent.end(), flow.least.load(SeqCst)) > 0;
        if ahead(expected, sent.start) <= 0 && (held == 0 || below) {
            flow.word.store(u64::from(held) << 32 | u64::from(sent.end()), SeqCst);
            return Doing::Passed(sent);
        }
        if ahead(expected, sent.start) > 4 << 20 || held >= 4096 {
            return Doing::Passed(sent);
        }
        flow.word.store(u64::from(held + 1) << 32 | u64::from(expected), SeqCst);
        Doing::Counted(sent)
    }

    /// The helper reads one frame. Meanwhile `rx` goes on.
    pub fn read(&mut self, order: &mut Order<Item>, hold_ns: Nanos) -> bool {
        let Some(sent) = self.device.pop_front() else { return false };
        let segment = Segment { key: self.keys[sent.flow], start: sent.start, end: sent.end() };
        let early = Early {
            place: sent.flow as u32,
            segment: Some(segment),
            bytes: sent.length as usize,
            hold_ns,
        };
        let (now, flows) = (self.now, self.flows);
        order.take(now, flows, early, (sent, now), &mut |item| self.write(item));
        true
    }

    /// The helper looks at what it holds. Returns when it wants to look again.
    pub fn look(&mut self, order: &mut Order<Item>) -> Nanos {
        let (now, flows, drained) = (self.now, self.flows, self.device.is_empty());
        order.look(now, flows, drained, &mut |item| self.write(item))
    }

    pub fn write(&mut self, (sent, since_ns): Item) {
        // `rx` runs on other CPUs.
        for _ in 0..self.dice.roll(3) {
            self.receive();
        }
        self.up.push(Up { sent, held_ns: Some(self.now - since_ns) });
        for _ in 0..self.dice.roll(3) {
            self.receive();
        }
    }

    /// Frames that `rx` counted and the helper has not read.
    pub fn on_the_way(&self) -> usize {
        let counted = |doing: &&Option<Doing>| matches!(doing, Some(Doing::Counted(_)));
        self.device.len() + self.doing.iter().filter(counted).count()
    }

    pub fn held(&self) -> Vec<u32> {
        let held = |flow: &Flow| (flow.word.load(SeqCst) >> 32) as u32;
        self.flows[..self.keys.len()].iter().map(held).collect()
    }
}
