// SPDX-License-Identifier: Apache-2.0
//! How many packets a core handles in memory: the scheduler, the reorder buffer, both, and two
//! whole engines.
//!
//! `cargo run --release --example speed` prints a line of JSON per row, with the median of some
//! runs and their spread.

use std::hint::black_box;
use std::time::Instant;

use ri2n_reorder::driver::{Driver, Out, Sink};
use ri2n_reorder::engine::{Engine, Mode, Settings};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::reorder::{Inserted, Policy, ReorderBuffer};
use ri2n_reorder::ring::{Limits, Ring};
use ri2n_reorder::sched::{Paced, Queue, QueueSettings};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::Mac;
use ri2n_reorder::Nanos;

const FRAMES: u64 = 200_000;
const RUNS: usize = 11;
const BYTES: usize = 1_500;
const LINKS: u8 = 4;
/// 4 links of 10 Gbit/s.
const NS_PER_FRAME: Nanos = 310;
/// In the rows with reordering, the frames of one link arrive this many frames later than the
/// others.
const LATE: usize = 64;

fn main() {
    row("scheduler", || {
        let mut sender = Sending::new();
        (0..FRAMES).for_each(|_| _ = black_box(sender.next()));
    });
    row("reorder buffer, in order", || receive(in_order()));
    row("reorder buffer, one link late", || receive(one_link_late()));
    row("scheduler and reorder buffer, in order", || both(0));
    row("scheduler and reorder buffer, one link late", || both(LATE));
    for bytes in [64, BYTES] {
        let mut pair = Pair::new();
        row(&format!("two engines, frames of {bytes} bytes"), || pair.carry(FRAMES, bytes));
        assert!(
            pair.delivered as f64 > 0.99 * (RUNS as u64 * FRAMES) as f64,
            "{} arrived",
            pair.delivered
        );
    }
}

/// Measures `FRAMES` frames several times.
fn row(name: &str, mut run: impl FnMut()) {
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            run();
            FRAMES as f64 / begin.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let (low, median, high) = (rates[0], rates[RUNS / 2], rates[RUNS - 1]);
    println!(
        "{}",
        serde_json::json!({
            "what": name, "packets_per_s": median.round(),
            "lowest": low.round(), "highest": high.round(),
            "ns_per_packet": (1e10 / median).round() / 10.0,
        })
    );
}

/// The queue, the choice of the link, and the ring of one peer.
struct Sending {
    queue: Queue,
    paced: Paced,
    ring: Ring,
    now: Nanos,
    seq: Seq,
    spare: Vec<Vec<u8>>,
}

impl Sending {
    fn new() -> Self {
        let mut paced = Paced::new(BYTES);
        (0..LINKS).for_each(|link| paced.set(0, link, 10_000_000_000));
        Sending {
            queue: Queue::new(QueueSettings::default()),
            paced,
            ring: Ring::new(Limits { keep_ns: 50_000_000, min_ns: 2_000_000, max_bytes: 16 << 20 }),
            now: 0,
            seq: Seq(0),
            spare: vec![vec![0; BYTES]; 2],
        }
    }

    /// Takes one frame in and out. Returns its sequence and link. The peer acknowledges 64 frames
    /// at a time; heartbeats would acknowledge more.
    fn next(&mut self) -> (Seq, u8) {
        self.now += NS_PER_FRAME;
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.resize(BYTES, 0);
        let refused = self.queue.push(self.now, frame).is_err();
        let link = self.paced.pick(self.now, BYTES, (1 << LINKS) - 1, |_| true).unwrap_or(0);
        self.paced.spent(link, BYTES);
        let seq = self.seq;
        self.seq = seq.next();
        if let Some(frame) = self.queue.pop(self.now, drop).filter(|_| !refused) {
            self.ring.push(self.now, seq, link, frame);
        }
        if seq.0 % 64 == 63 {
            self.ring.ack(seq);
        }
        self.spare.extend(self.ring.reclaim());
        (seq, link)
    }
}

/// Takes frames as (sequence, link), and looks for gaps after every 64, as the engine does after
/// every batch.
struct Receiving {
    buffer: ReorderBuffer<[u8; 24]>,
    policy: Policy,
    ask: Vec<(Seq, u16)>,
    now: Nanos,
    arrived: u64,
    out: u64,
}

impl Receiving {
    fn new() -> Self {
        let ms = 1_000_000;
        Receiving {
            buffer: ReorderBuffer::new(16_384, 16 << 20),
            policy: Policy {
                skew_ns: 12 * ms,
                repair: true,
                repair_dead: true,
                retry_ns: 5 * ms,
                give_up_ns: 100 * ms,
                tries: 3,
            },
            ask: Vec::new(),
            now: 0,
            arrived: 0,
            out: 0,
        }
    }

    fn take(&mut self, (seq, link): (Seq, u8)) {
        self.now += NS_PER_FRAME;
        // A frame is handed on as its buffer's pointer, length and room.
        if let Inserted::InOrder(frame) =
            self.buffer.insert(self.now, seq, link, false, BYTES, [0; 24])
        {
            black_box(frame);
            self.out += 1;
        }
        while let Some(frame) = self.buffer.pop() {
            black_box(frame);
            self.out += 1;
        }
        self.arrived += 1;
        if self.arrived % 64 == 0 && self.buffer.is_waiting() {
            self.buffer.poll(self.now, (1 << LINKS) - 1, &self.policy, &mut self.ask);
        }
    }
}

fn in_order() -> impl Iterator<Item = (Seq, u8)> {
    (0..FRAMES as u32).map(|at| (Seq(at), (at % u32::from(LINKS)) as u8))
}

/// Frames as (sequence, link). Those of link 3 arrive `LATE` frames of that link later.
fn one_link_late() -> impl Iterator<Item = (Seq, u8)> {
    let late = LATE as u32 * u32::from(LINKS);
    in_order().filter_map(move |(seq, link)| {
        if link == 3 {
            (seq.0 >= late).then(|| (Seq(seq.0 - late), link))
        } else {
            Some((seq, link))
        }
    })
}

fn receive(frames: impl Iterator<Item = (Seq, u8)>) {
    let mut receiving = Receiving::new();
    frames.for_each(|frame| receiving.take(frame));
    assert!(
        receiving.ask.is_empty() && receiving.out + 2 * LATE as u64 * 4 > FRAMES,
        "{}",
        receiving.out
    );
}

/// Sends and takes each frame. Those of link 3 arrive `late` frames of that link later.
fn both(late: usize) {
    let mut sending = Sending::new();
    let mut receiving = Receiving::new();
    let mut on_the_way = std::collections::VecDeque::with_capacity(late + 1);
    for _ in 0..FRAMES {
        let frame = sending.next();
        if frame.1 != 3 {
            receiving.take(frame);
            continue;
        }
        on_the_way.push_back(frame);
        if on_the_way.len() > late {
            on_the_way.drain(..1).for_each(|frame| receiving.take(frame));
        }
    }
    assert!(
        receiving.ask.is_empty() && receiving.out + 2 * LATE as u64 * 4 > FRAMES,
        "{}",
        receiving.out
    );
}

/// Two helpers without a controller, joined by two wires that take no time.
struct Pair {
    engines: [Engine; 2],
    boxes: [Outbox; 2],
    now: Nanos,
    delivered: u64,
}

#[derive(Default)]
struct Outbox {
    wire: Vec<(u8, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    plain: u64,
}

impl Sink for Outbox {
    fn wire(&mut self, to: Out, frame: Vec<u8>) {
        if let Out::Link(_, port) | Out::Nic(port) = to {
            self.wire.push((port, frame));
        }
    }
    fn plain(&mut self, frame: Vec<u8>) {
        self.plain += 1;
        self.done(frame);
    }
    fn recycle(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(2048))
    }
    fn done(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < 1024 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

impl Pair {
    fn new() -> Self {
        let now = 1_000_000_000;
        let engines = [0, 1].map(|host: u8| {
            let settings = Settings {
                own: Some(Mac([2, 0, 0, 0, 0, host])),
                autonomous: true,
                longest: 1_514,
                overhead: 24,
                udp_unordered: false,
                max_memory: 64 << 20,
                keep_ns: 50_000_000,
                mode: Mode::Paced,
                hbspan_ns: 2_000_000_000,
                seed: u64::from(host) + 1,
                first: Seq(0),
            };
            let mut engine = Engine::new(settings, now);
            for port in 0..2 {
                engine.set_nic(now, port, "nic", Mac([2, 1, 0, 0, host, port]), 40_000_000, true);
            }
            engine
        });
        let mut pair = Pair { engines, boxes: Default::default(), now, delivered: 0 };
        (0..200).for_each(|_| pair.turn(10_000_000));
        pair
    }

    /// Lets time pass, and takes everything that is on the wires.
    fn turn(&mut self, span: Nanos) {
        self.now += span;
        for host in 0..2 {
            self.engines[host].on_tick(self.now, &mut self.boxes[host]);
            let mut sent = std::mem::take(&mut self.boxes[host].wire);
            let other = 1 - host;
            for (port, frame) in sent.drain(..) {
                self.engines[other].on_wire(self.now, None, port, frame, &mut self.boxes[other]);
            }
            self.boxes[host].wire = sent;
            self.delivered += std::mem::take(&mut self.boxes[other].plain);
            // Buffers end up at the receiver. The sender's device would have given them back.
            while self.boxes[host].spare.len() < 256 {
                let Some(buffer) = self.boxes[other].spare.pop() else { break };
                self.boxes[host].spare.push(buffer);
            }
        }
    }

    /// Sends frames in batches of 64, at a rate that the links have.
    fn carry(&mut self, frames: u64, bytes: usize) {
        for _ in 0..frames / 64 {
            for _ in 0..64 {
                let mut frame = self.boxes[0].recycle();
                frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x90, 0]);
                frame.resize(bytes.min(1_492), 0);
                self.engines[0].on_plain(self.now, &VnetHdr::default(), frame, &mut self.boxes[0]);
            }
            self.turn(64 * NS_PER_FRAME);
        }
    }
}
