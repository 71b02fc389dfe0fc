// SPDX-License-Identifier: Apache-2.0
//! TCP that comes over several links is put in order: the program, run by the kernel on frames that
//! do not exist, agrees with the model, and what goes up is in order.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Mutex;

use crate::agree::{context, load, REDIRECTED};
use crate::dice::Dice;
use crate::frames::{far_nic, own_nic, peer_mac, OWN};
use crate::model::order::{ahead, Holder, Place, Verdict};
use crate::model::{self, Frame, Segment};
use crate::namespace::{in_namespace, run};
use crate::striping::now_ns;
use ri2n_fast::plan::{Arrival, Mac, Path, Plan, Source, Striped};
use ri2n_fast::programs::Programs;
use ri2n_fast::sys::bpf::test_run;
use ri2n_wire::shared::{Flow, Given, Shared, FLOWS};

const LANES: [u8; 3] = [0, 7, 31];
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Peer 0 with three links, all of them to NIC 1.
fn plan() -> Plan {
    let path = |nic: u8| Path {
        id: 1 << 22 | u32::from(nic) << 12,
        port: 1,
        source: own_nic(1),
        destination: far_nic(0, nic),
        vlan: None,
    };
    let arrival =
        |nic| Arrival { port: 1, source: far_nic(0, nic), destination: own_nic(1), vlan: None };
    let source = |lane| Source { peer: peer_mac(0), lane: Some(lane) };
    let paths = (1..).zip(LANES).map(|(nic, lane)| (lane, path(nic))).collect();
    Plan {
        own: Some(OWN),
        striped: BTreeMap::from([(peer_mac(0), Striped { paths, others: false })]),
        arrivals: (1..).zip(LANES).map(|(nic, lane)| (arrival(nic), source(lane))).collect(),
        ..Plan::default()
    }
}

/// A connection: its ports, over IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tuple {
    ports: [u16; 2],
    is_ipv6: bool,
}

fn frame(tuple: Tuple, lane: u8, segment: Segment) -> Frame {
    let nic = 1 + LANES.iter().position(|one| *one == lane).unwrap() as u8;
    let length = segment.end.wrapping_sub(segment.start) as u16;
    let mut bytes = [&own_nic(1)[..], &far_nic(0, nic)[..]].concat();
    if tuple.is_ipv6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((20 + length).to_be_bytes());
        bytes.extend([6, 64]);
        bytes.extend([0xfd; 32]);
    } else {
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((40 + length).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    }
    bytes.extend(tuple.ports.map(u16::to_be_bytes).concat());
    bytes.extend(segment.start.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, segment.flags, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + usize::from(length), 0x5a);
    // A short frame is filled up.
    bytes.resize(bytes.len().max(60), 0);
    Frame { bytes, gso_size: 0, gso_segs: 0 }
}

fn hash(tuple: Tuple) -> u64 {
    let frame = frame(tuple, 0, data(0, 1));
    model::hash(&model::flow(&frame).unwrap())
}

fn data(start: u32, length: u32) -> Segment {
    Segment { start, end: start.wrapping_add(length), flags: ACK }
}

/// The programs, with a device for what comes early, and what they share with the helper.
struct Bench {
    programs: Programs,
    shared: Shared,
    ifindex: u32,
}

impl Bench {
    fn new() -> Self {
        let (mut programs, numbers) = load();
        run("ip tuntap add hold mode tap");
        programs.apply(&plan()).unwrap();
        assert_eq!(programs.left_out(), 0);
        assert!(programs.set_hold(Some("hold")).unwrap());
        let shared = Shared::new(&programs.maps()).unwrap();
        Bench { programs, shared, ifindex: numbers[&1] }
    }

    fn flow(&self, tuple: Tuple) -> &Flow {
        &self.shared.flows()[hash(tuple) as usize % FLOWS]
    }

    /// Gives the programs a segment. Returns whether it went to the helper.
    fn give(&self, tuple: Tuple, lane: u8, segment: Segment) -> bool {
        let frame = frame(tuple, lane, segment);
        let context = context(self.ifindex, &frame);
        let ran = test_run(self.programs.program("rx"), &frame.bytes, &context).unwrap();
        assert_eq!(ran.returned, REDIRECTED);
        assert_eq!(ran.frame[12..], frame.bytes[12..]);
        let macs: &[u8; 12] = ran.frame[..12].try_into().unwrap();
        if *macs == *[OWN, peer_mac(0)].concat() {
            return false;
        }
        let place = (hash(tuple) % FLOWS as u64) as u32;
        let given = Given::Early { flow: place, lane, peer: peer_mac(0) };
        assert_eq!(Given::read(macs, OWN), Some(given));
        true
    }

    fn event(&self, name: &str) -> u64 {
        self.programs.counts().unwrap().events[name]
    }

    fn held(&self, tuple: Tuple) -> u32 {
        (self.flow(tuple).word.load(SeqCst) >> 32) as u32
    }

    fn expected(&self, tuple: Tuple) -> u32 {
        self.flow(tuple).word.load(SeqCst) as u32
    }
}

/// What the helper does after it has sent a frame up: the place of its connection is told.
pub fn returned(flow: &Flow, segment: Segment) {
    let told = flow.word.fetch_update(SeqCst, SeqCst, |word| {
        let (held, expected) = (word >> 32, word as u32);
        let next = if ahead(segment.end, expected) > 0 { segment.end } else { expected };
        Some((held.checked_sub(1)?) << 32 | u64::from(next))
    });
    told.expect("nothing comes back that was not held");
}

/// Another connection that has the same place.
fn neighbour(of: Tuple) -> Tuple {
    let same = |tuple: &Tuple| hash(*tuple) % FLOWS as u64 == hash(of) % FLOWS as u64;
    let other = |number: u32| Tuple { ports: [(number >> 8) as u16, number as u16], ..of };
    (0..1 << 24).map(other).find(|tuple| same(tuple) && *tuple != of).unwrap()
}

/// A random walk of segments of two connections with one place, each step compared with the model.
/// What matters of the clock is set before each step.
fn walk(bench: &Bench, dice: &mut Dice, steps: usize) -> BTreeMap<&'static str, u64> {
    let is_ipv6 = dice.below(2) == 0;
    let one = Tuple { ports: [dice.below(60_000) as u16, 5000], is_ipv6 };
    let tuples = [one, neighbour(one)];
    let flow = bench.flow(one);
    let mut place = Place {
        key: flow.key.load(Relaxed),
        expected: flow.word.load(Relaxed) as u32,
        least: flow.least.load(Relaxed),
        ..Place::default()
    };
    assert_eq!(bench.held(one), 0);
    let mut seen = BTreeMap::new();
    let mut far = 0u32.wrapping_sub(dice.below(1 << 20) as u32);
    for step in 0..steps {
        let is_idle = dice.below(30) == 0;
        let age = if is_idle { SECOND as i64 * 2 } else { -3600 * SECOND as i64 };
        flow.seen_ns.store(now_ns().wrapping_sub(age as u64), Relaxed);
        let tuple = if dice.below(40) == 0 { tuples[1] } else { tuples[0] };
        if dice.below(200) == 0 {
            far = dice.below(1 << 32) as u32;
        }
        let near = if dice.below(30) == 0 { far } else { place.expected };
        let offset = dice.of(&[0, 0, 0, 100, 1448, 60_000, 5 << 20]);
        let start = near.wrapping_add(offset).wrapping_sub(dice.of(&[0, 0, 1, 1448, 5 << 20]));
        let flags = ACK | dice.of(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, FIN, RST, SYN, SYN | FIN]);
        let length = dice.of(&[0, 1, 100, 1448, 1448, 1448, 3000]);
        let segment = Segment { flags, ..data(start, length) };
        let lane = dice.of(&LANES);
        let key = hash(tuple).max(1);
        let before = place.clone();
        let verdict = place.see(key, segment, lane, is_idle);
        let is_early = bench.give(tuple, lane, segment);
        let text = format!("{step}: {before:x?} {tuple:?} {segment:x?} {is_idle} {verdict:?}");
        assert_eq!(is_early, verdict == Verdict::Early, "{text}");
        let word = u64::from(place.held) << 32 | u64::from(place.expected);
        assert_eq!(flow.word.load(SeqCst), word, "{text} {place:x?}");
        assert_eq!(flow.key.load(Relaxed), place.key, "{text}");
        assert_eq!(flow.least.load(Relaxed), place.least, "{text}");
        let name = match verdict {
            Verdict::Up => "up",
            Verdict::Early => "early",
            Verdict::Crowded => "crowded",
            Verdict::Far => "far",
            Verdict::Full => "full",
        };
        *seen.entry(name).or_default() += 1;
        // The helper sends some of it up, in whatever order, and says what is lowest.
        if place.held > 0 && dice.below(4) == 0 {
            let end = place.expected.wrapping_add(dice.of(&[0, 500, 3000]));
            place.held -= 1;
            place.expected = end;
            returned(flow, Segment { start: end, end, flags: 0 });
        }
        if dice.below(4) == 0 {
            place.least = place.expected.wrapping_add(dice.of(&[1, 1448, 60_000]));
            flow.least.store(place.least, Relaxed);
        }
    }
    for _ in 0..place.held {
        returned(flow, data(place.expected, 0));
    }
    seen
}

fn walks(count: u64) {
    let bench = Bench::new();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..count {
        for (name, times) in walk(&bench, &mut Dice::new(seed), 2000) {
            *seen.entry(name).or_default() += times;
        }
    }
    for name in ["early", "crowded", "far"] {
        assert!(seen[name] > 10, "{seen:?}");
        assert_eq!(bench.event(name), seen[name]);
    }
    assert_eq!(bench.event("contended"), 0);
}

#[test]
fn every_segment_goes_where_the_model_says() {
    in_namespace(|| walks(40));
}

#[test]
#[ignore = "millions of segments take minutes"]
fn every_segment_goes_where_the_model_says_for_long() {
    in_namespace(|| walks(4000));
}

/// A stream cut into pieces, which come over three lanes, each of which keeps its order.
fn pieces(dice: &mut Dice, first: u32, count: usize) -> Vec<Segment> {
    let mut start = first;
    let cut = |_| {
        let piece = data(start, dice.of(&[1, 500, 1448, 1448, 2896]));
        start = piece.end;
        piece
    };
    (0..count).map(cut).collect()
}

/// Lets one stream through, by chance, with a helper that reads late. Without losses what goes up
/// is in order.
fn stream(bench: &Bench, dice: &mut Dice, loses: bool) {
    let tuple = Tuple { ports: [dice.below(60_000) as u16, 5001], is_ipv6: dice.below(2) == 0 };
    let flow = bench.flow(tuple);
    // Another stream that had the place was long ago.
    flow.seen_ns.store(now_ns() - 2 * SECOND, Relaxed);
    for lane in &flow.lanes {
        lane.store(0, Relaxed);
    }
    let first = 0u32.wrapping_sub(dice.below(400_000) as u32);
    let all = pieces(dice, first, 200);
    assert!(!bench.give(tuple, LANES[0], all[0]), "the first one is in order");
    let mut up = vec![all[0]];
    let mut lanes: [Vec<Segment>; 3] = Default::default();
    for piece in &all[1..] {
        if !(loses && dice.below(20) == 0) {
            lanes[dice.below(3)].insert(0, *piece);
        }
    }
    let mut holder: Holder<()> = Holder::default();
    let mut highest = BTreeMap::new();
    while holder.count() > 0 || lanes.iter().any(|lane| !lane.is_empty()) {
        let number = dice.below(3);
        if let Some(piece) = lanes[number].pop() {
            let end = piece.end;
            if bench.give(tuple, LANES[number], piece) {
                holder.queue.push_back((piece, ()));
            } else {
                up.push(piece);
            }
            highest.insert(LANES[number], end);
            let mark = flow.lanes[usize::from(LANES[number])].load(Relaxed);
            assert_eq!((mark >> 32) as u32, end);
            let age = ((now_ns() / MS) as u32).wrapping_sub(mark as u32);
            assert!(age < 60_000, "marked {age} ms ago");
        }
        if dice.below(3) > 0 {
            holder.read();
        }
        let over = lanes.iter().all(Vec::is_empty) && holder.queue.is_empty();
        while let Some((piece, ())) = holder.release(bench.expected(tuple), over) {
            up.push(piece);
            returned(flow, piece);
        }
        if let Some(least) = holder.least() {
            flow.least.store(least, Relaxed);
        }
        assert_eq!(bench.held(tuple) as usize, holder.count());
    }
    assert_eq!(bench.held(tuple), 0);
    if loses {
        up.sort_by_key(|piece| piece.start.wrapping_sub(first));
        up.dedup();
        assert!(up.len() > 100 && up.iter().all(|piece| all.contains(piece)));
    } else {
        assert_eq!(up, all);
    }
}

#[test]
fn without_losses_nothing_goes_up_in_another_order() {
    in_namespace(|| {
        let bench = Bench::new();
        let mut dice = Dice::new(1);
        for _ in 0..150 {
            stream(&bench, &mut dice, false);
        }
        assert!(bench.event("early") > 1000);
        assert_eq!((bench.event("crowded"), bench.event("contended")), (0, 0));
    });
}

#[test]
fn with_losses_nothing_stays() {
    in_namespace(|| {
        let bench = Bench::new();
        let mut dice = Dice::new(2);
        for _ in 0..100 {
            stream(&bench, &mut dice, true);
        }
    });
}

const ONE: Tuple = Tuple { ports: [40_000, 5000], is_ipv6: false };

#[test]
fn flags_and_forged_segments_do_no_harm() {
    in_namespace(|| {
        let bench = Bench::new();
        let give =
            |start, length, flags| bench.give(ONE, 7, Segment { flags, ..data(start, length) });
        assert!(!give(1000, 100, ACK));
        assert_eq!(bench.expected(ONE), 1100);
        assert!(!give(5 << 20, 100, ACK), "far ahead");
        assert!(!give(0u32.wrapping_sub(5 << 20), 100, ACK), "far behind");
        assert_eq!(bench.event("far"), 2);
        assert!(!give(2000, 100, ACK | RST), "a reset");
        assert!(!give(2000, 0, ACK | FIN), "an end, or an acknowledgement");
        assert!(!give(900, 150, ACK), "old");
        assert_eq!((bench.held(ONE), bench.expected(ONE)), (0, 1100));
        assert!(give(2000, 100, ACK | FIN), "the last data");
        assert!(!give(1, 0, SYN), "a connection that begins while the helper holds some of it");
        assert_eq!((bench.held(ONE), bench.expected(ONE)), (1, 1100));
        assert!(give(1100, 900, ACK), "it ends the gap");
        returned(bench.flow(ONE), data(1100, 900));
        returned(bench.flow(ONE), data(2000, 100));
        assert!(!give(70_000, 0, SYN), "begins anew");
        assert_eq!((bench.held(ONE), bench.expected(ONE)), (0, 70_001));
        assert!(bench.flow(ONE).lanes.iter().all(|lane| lane.load(Relaxed) == 0));
        assert!(!give(70_001, 100, ACK));
        assert!(give(70_201, 100, ACK));
    });
}

#[test]
fn so_much_is_held_and_no_more() {
    in_namespace(|| {
        let bench = Bench::new();
        assert!(!bench.give(ONE, 0, data(0, 1)));
        let early = |number: u32| bench.give(ONE, 7, data(10 + number, 1));
        assert!((0..4096).all(early));
        assert!(!early(4096) && bench.held(ONE) == 4096);
        assert_eq!(bench.event("full"), 1);
        let other = neighbour(ONE);
        bench.flow(ONE).seen_ns.store(0, Relaxed);
        assert!(!bench.give(other, 0, data(0, 1)));
        assert_eq!(bench.event("crowded"), 1, "a place that holds something is not given away");
    });
}

#[test]
fn lanes_count_what_comes_whether_or_not_anybody_puts_it_in_order() {
    in_namespace(|| {
        let mut bench = Bench::new();
        assert!(!bench.give(ONE, 7, data(0, 100)));
        assert!(bench.give(ONE, 7, data(200, 100)));
        assert!(bench.programs.set_hold(None).is_ok_and(|is_there| !is_there));
        let flow = bench.flow(ONE);
        let state = || (flow.word.load(Relaxed), flow.seen_ns.load(Relaxed));
        let before = state();
        assert!(!bench.give(ONE, 7, data(400, 100)), "there is nobody to give it to");
        assert!(!bench.give(ONE, 31, data(500, 0)));
        assert_eq!(state(), before, "the place is the helper's alone");
        let lanes = &bench.shared.steers()[0].lanes;
        let count =
            |lane: usize| (lanes[lane].frames_in.load(Relaxed), lanes[lane].bytes_in.load(Relaxed));
        assert_eq!((count(7), count(31), count(0)), ((3, 462), (1, 60), (0, 0)));
        assert!(bench.programs.set_hold(Some("nobody")).is_ok_and(|is_there| !is_there));
        assert_eq!(bench.programs.notes(), ["there is no device nobody"]);
        assert!(!bench.give(ONE, 7, data(400, 100)));
    });
}

#[test]
fn what_the_helper_gives_back_goes_to_the_host() {
    in_namespace(|| {
        let bench = Bench::new();
        let inject = |to: Mac| {
            let mut frame = frame(ONE, 0, data(0, 100));
            frame.bytes[..6].copy_from_slice(&to);
            let ran = test_run(bench.programs.program("inj"), &frame.bytes, &context(0, &frame));
            let ran = ran.unwrap();
            assert_eq!(ran.frame, frame.bytes);
            ran.returned
        };
        assert_eq!(inject(OWN), REDIRECTED);
        for other in [peer_mac(0), [0xff; 6], [2, 0, 0, 0, 0, 0]] {
            assert_eq!(inject(other), 2);
        }
        assert_eq!(bench.programs.counts().unwrap().dropped["stray"], 3);
    });
}

#[test]
fn cpus_and_the_helper_at_the_same_time_lose_nothing() {
    in_namespace(|| {
        let bench = Bench::new();
        let mut dice = Dice::new(3);
        let all = pieces(&mut dice, 0u32.wrapping_sub(400_000), 20_000);
        assert!(!bench.give(ONE, LANES[0], all[0]));
        let (queue, up) = (Mutex::new(Vec::new()), Mutex::new(vec![all[0]]));
        let flow = bench.flow(ONE);
        std::thread::scope(|scope| {
            let lanes = [0, 1].map(|number| {
                let (bench, all, queue, up) = (&bench, &all, &queue, &up);
                scope.spawn(move || {
                    for piece in all[1..].iter().skip(number).step_by(2) {
                        let is_early = bench.give(ONE, LANES[number], *piece);
                        let to = if is_early { queue } else { up };
                        to.lock().unwrap().push(*piece);
                    }
                })
            });
            let mut holder: Holder<()> = Holder::default();
            loop {
                let over = lanes.iter().all(|lane| lane.is_finished());
                for piece in queue.lock().unwrap().drain(..) {
                    holder.queue.push_back((piece, ()));
                }
                while !holder.queue.is_empty() {
                    holder.read();
                }
                while let Some((piece, ())) = holder.release(bench.expected(ONE), over) {
                    up.lock().unwrap().push(piece);
                    returned(flow, piece);
                }
                if let Some(least) = holder.least() {
                    flow.least.store(least, Relaxed);
                }
                if over && holder.count() == 0 {
                    break;
                }
            }
        });
        assert_eq!(bench.held(ONE), 0);
        let mut up = up.into_inner().unwrap();
        up.sort_by_key(|piece| piece.start.wrapping_sub(all[0].start));
        assert!(up == all, "every piece goes up once");
        assert!(bench.event("early") > 0);
    });
}
