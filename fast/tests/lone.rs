// SPDX-License-Identifier: Apache-2.0
//! Slow flows of other protocols than TCP pass beside the bridge, and none overtakes itself: the
//! program, run by the kernel at times of the test's choice, agrees with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::{Array, Map, MapData, MapInfo};
use aya::programs::{loaded_programs, ProgramInfo};

use crate::agree::{context, load, mtu, REDIRECTED, TO_THE_BRIDGE};
use crate::dice::Dice;
use crate::frames::{far_nic, own_nic, peer_mac, OWN};
use crate::model::lone::{whole, Lone, PLACES, SILENT_NS, SLOW, WINDOW_NS};
use crate::model::striping::{sent, Lane, Nics, Steer, Way};
use crate::model::{flow, hash, Frame};
use crate::namespace::{in_namespace, wait_for};
use crate::striping::{hold, is_time, now_ns, say};
use ri2n_fast::plan::{Arrival, Mac, Path, Plan, Source, Striped};
use ri2n_fast::programs::Programs;
use ri2n_fast::sys::bpf::test_run;
use ri2n_wire::shared::Shared;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// A step that the machine did not take in this time is taken again.
const STEP_NS: u64 = MS / 2;

/// `struct lone_flow`: key, five words of which the first four are times, two numbers.
type State = [u64; 7];
const TIMES: std::ops::Range<usize> = 1..5;

/// The flows that the programs know.
pub type Places = Array<MapData, State>;

/// What the kernel says of a program.
pub fn loaded(programs: &Programs, name: &str) -> ProgramInfo {
    let descriptor = programs.program(name).as_fd().as_raw_fd();
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
    let number = text.lines().find_map(|line| line.strip_prefix("prog_id:")).unwrap();
    let number: u32 = number.trim().parse().unwrap();
    loaded_programs().flatten().find(|it| it.id() == number).unwrap()
}

/// The programs' map.
pub fn places(programs: &Programs) -> Places {
    let maps = loaded(programs, "tx").map_ids().unwrap().unwrap();
    let is_it = |id: &u32| MapInfo::from_id(*id).unwrap().name_as_str() == Some("lone_flows");
    let map = MapData::from_id(maps.into_iter().find(is_it).unwrap()).unwrap();
    Array::try_from(Map::Array(map)).unwrap()
}

/// The places that matter for a frame.
fn of(frame: &Frame) -> BTreeSet<u32> {
    let keys = flow(frame).into_iter().flat_map(|flow| [hash(&flow), whole(&flow)]);
    keys.map(|key| (key % PLACES) as u32).collect()
}

/// Makes the places that matter for a frame free.
pub fn forget(places: &mut Places, frame: &Frame) {
    for place in of(frame) {
        places.set(place, [0; 7], 0).unwrap();
    }
}

const LINKS: [(u8, u32, Option<u16>); 4] =
    [(3, 1, None), (9, 2, None), (17, 5, Some(7)), (31, 1, None)];

/// Peer 0 with four links.
fn plan() -> Plan {
    let path = |(link, port, vlan): (u8, u32, Option<u16>)| Path {
        id: port << 22 | u32::from(link) << 12,
        port,
        source: own_nic(port),
        destination: far_nic(0, link),
        vlan,
    };
    let paths: BTreeMap<u8, Path> = LINKS.into_iter().map(|it| (it.0, path(it))).collect();
    let arrival = Arrival { port: 1, source: far_nic(0, 3), destination: own_nic(1), vlan: None };
    let source = Source { peer: peer_mac(0), lane: Some(3) };
    Plan {
        own: Some(OWN),
        striped: BTreeMap::from([(peer_mac(0), Striped { paths, others: true })]),
        arrivals: BTreeMap::from([(arrival, source)]),
        ..Plan::default()
    }
}

/// IPv4 to peer 0.
fn packet(protocol: u8, fragment: u16, ports: [u16; 2], payload: usize) -> Frame {
    let mut bytes = [&peer_mac(0)[..], &OWN[..], &[8, 0, 0x45, 0]].concat();
    bytes.extend((28 + payload as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend([0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 0x5a);
    // A short frame is filled up.
    bytes.resize(bytes.len().max(60), 0);
    Frame { bytes, gso_size: 0, gso_segs: 0 }
}

fn udp(ports: [u16; 2]) -> Frame {
    packet(17, 0, ports, 100)
}

fn ping() -> Frame {
    packet(1, 0, [0x0800, 0], 56)
}

/// Another flow that has the place of this key.
fn neighbour(key: u64) -> [u16; 2] {
    let key_of = |ports| hash(&flow(&udp(ports)).unwrap());
    let found = (1..1u32 << 24).map(|number| [(number >> 8) as u16, number as u16]);
    found
        .into_iter()
        .find(|ports| key_of(*ports) != key && key_of(*ports) % PLACES == key % PLACES)
        .unwrap()
}

/// The programs, at times that the test says.
struct Bench {
    programs: Programs,
    numbers: BTreeMap<u32, u32>,
    shared: Shared,
    plan: Plan,
    places: Places,
    /// What the places hold, by the test's times.
    states: BTreeMap<u32, State>,
    now: u64,
}

/// All links are usable and free, and 1,024 bytes take 1 ms. Times are seconds from now.
fn steer() -> Steer {
    let lane = |port| Lane { ns_per_kib: MS as u32, nic: port, ..Lane::default() };
    let mut lanes = vec![Lane::default(); 32];
    LINKS.into_iter().for_each(|(link, port, _)| lanes[usize::from(link)] = lane(port));
    Steer { until_ns: 3600, links: u64::MAX, lanes, ..Steer::default() }
}

impl Bench {
    fn new() -> Self {
        let (mut programs, numbers) = load();
        programs.apply(&plan()).unwrap();
        assert_eq!(programs.left_out(), 0);
        let shared = Shared::new(&programs.maps()).unwrap();
        let places = places(&programs);
        let now = 1_000_000 * SECOND;
        Bench { programs, numbers, shared, plan: plan(), places, states: BTreeMap::new(), now }
    }

    /// Sends a frame. What the helper says is in seconds from now. Returns the link, which the
    /// model has to name, too; None: to the bridge.
    fn send(&mut self, frame: &Frame, says: (&Steer, &Nics), model: &mut Lone) -> Option<u8> {
        let ahead = |time: u64, by: u64| if time == 0 { 0 } else { time.wrapping_add(by) };
        let places = of(frame);
        let (returned, out, real, after) = loop {
            let real = now_ns();
            for place in &places {
                let mut state = self.states.get(place).copied().unwrap_or_default();
                let moved = real.wrapping_sub(self.now);
                state[TIMES].iter_mut().for_each(|time| *time = ahead(*time, moved));
                self.places.set(*place, state, 0).unwrap();
            }
            let steers = BTreeMap::from([(peer_mac(0), says.0.clone())]);
            say(&self.shared, real, &steers, says.1);
            let before = self.out();
            let ran = test_run(self.programs.program("tx"), &frame.bytes, &context(0, frame));
            let after = now_ns();
            if after - real < STEP_NS {
                let now = self.out();
                let sent = now.into_iter().zip(before).filter(|(now, before)| now != before);
                let sent: Vec<u8> = sent.map(|((link, _), _)| link).collect();
                break (ran.unwrap().returned, sent, real, after);
            }
        };
        for place in places {
            let mut state = self.places.get(&place, 0).unwrap();
            for time in state[TIMES].iter_mut().filter(|time| **time != 0) {
                let since = (*time as i64 - real as i64).div_euclid(MS as i64) * MS as i64;
                *time = self.now.wrapping_add_signed(since);
            }
            self.states.insert(place, state);
        }
        // The model has the same by the test's time.
        let mut steer = says.0.clone();
        let at = |time: &mut u64| *time = ahead(*time * SECOND, self.now);
        at(&mut steer.until_ns);
        steer.lanes.iter_mut().for_each(|lane| at(&mut lane.free_ns));
        let mut nics = says.1.clone();
        nics.values_mut().for_each(|(free, _)| at(free));
        let steers = BTreeMap::from([(peer_mac(0), steer)]);
        let way = sent(&self.plan, frame, self.now, (&steers, &nics), model, mtu);
        match way {
            Way::Beside(chosen) => {
                assert_eq!((returned, &out[..]), (REDIRECTED, &[chosen.link][..]), "{frame:x?}");
                let lane = &self.shared.steers()[0].lanes[usize::from(chosen.link)];
                let free = lane.free_ns.load(Relaxed);
                assert!(is_time(free, real + chosen.lane_ns, real, real, after));
                if let Some(length) = chosen.nic_ns {
                    let nic = &self.shared.nics()[lane.nic.load(Relaxed) as usize];
                    let free = nic.free_ns.load(Relaxed);
                    assert!(is_time(free, real + length, real, real, after));
                }
                Some(chosen.link)
            }
            other => {
                assert_eq!(other, Way::Bridge);
                assert_eq!((returned, out.len()), (TO_THE_BRIDGE, 0), "{frame:x?}");
                None
            }
        }
    }

    /// What answers a frame comes by link 3.
    fn answer(&mut self, frame: &Frame, model: &mut Lone) {
        let mut answer = frame.clone();
        let swapped = |bytes: &[u8], half: usize| [&bytes[half..], &bytes[..half]].concat();
        answer.bytes[..12].copy_from_slice(&[own_nic(1), far_nic(0, 3)].concat());
        answer.bytes[26..34].copy_from_slice(&swapped(&frame.bytes[26..34], 4));
        if flow(frame).unwrap().source_port != 0 {
            answer.bytes[34..38].copy_from_slice(&swapped(&frame.bytes[34..38], 2));
        }
        let key = hash(&flow(frame).unwrap());
        let place = (key % PLACES) as u32;
        let state = self.states.get(&place).copied().unwrap_or_default();
        self.places.set(place, state, 0).unwrap();
        let context = context(self.numbers[&1], &answer);
        let ran = test_run(self.programs.program("rx"), &answer.bytes, &context).unwrap();
        assert_eq!(ran.returned, REDIRECTED);
        self.states.insert(place, self.places.get(&place, 0).unwrap());
        model.answered(key);
    }

    fn out(&self) -> Vec<(u8, u64)> {
        let lanes = (0..).zip(&self.shared.steers()[0].lanes);
        lanes.map(|(link, lane)| (link, lane.frames_out.load(Relaxed))).collect()
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now += ms * MS;
    }
}

/// What was sent: when, which flow, which flow as fragments name it, and by which link. Or what was
/// answered.
#[derive(Debug)]
struct Sent {
    at: u64,
    is_answer: bool,
    key: u64,
    whole: u64,
    link: Option<u8>,
}

/// No packet passes within 100 ms after one of its flow, or a fragment of what may be its flow,
/// went to the bridge. And no flow has more than its share.
fn check_laws(all: &[Sent]) {
    let passes = |one: &Sent| one.link.is_some() && !one.is_answer;
    for (place, one) in all.iter().enumerate().filter(|(_, one)| passes(one)) {
        let since = |length: u64| {
            let before = all[..place].iter().rev();
            before.take_while(move |it| one.at - it.at < length)
        };
        let is_own = |it: &&Sent| it.key == one.key || it.key == one.whole;
        let overtaken = since(SILENT_NS).filter(is_own).find(|it| it.link.is_none());
        assert!(overtaken.is_none(), "{one:?} overtakes {overtaken:?}");
        let passed = since(WINDOW_NS).filter(|it| it.key == one.key);
        let passed = passed.take_while(|it| !it.is_answer).count();
        assert!(passed < 2 * SLOW as usize, "{one:?} is the {passed}th");
    }
}

/// A random walk over time. Returns how many frames passed.
fn walk(bench: &mut Bench, dice: &mut Dice, steps: usize) -> usize {
    let first = [1000 + dice.below(60_000) as u16, 5000];
    let key = hash(&flow(&udp(first)).unwrap());
    let fragments = packet(17, 0x2000, first, 100);
    let of_fragments = neighbour(hash(&flow(&fragments).unwrap()));
    let frames = [
        udp(first),
        udp(first),
        udp([first[0], 5001]),
        udp(neighbour(key)),
        ping(),
        packet(1, 0x2000, [0, 0], 56),
        packet(132, 0, first, 60),
        // Too long for some of the links, or for all.
        packet(17, 0, first, 1400),
        packet(17, 0, first, 3000),
        Frame { gso_size: 50, ..udp(first) },
        fragments,
        udp(of_fragments),
    ];
    // Most are of flows that behave.
    let weights = [0, 0, 0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 6, 6, 6, 7, 11, 11];
    let (mut steer_, mut nics) = (steer(), Nics::new());
    bench.states.clear();
    let (mut model, mut all) = (Lone::default(), Vec::new());
    let mut pace: &[u64] = &[1];
    for step in 0..steps {
        if step % 40 == 0 {
            pace =
                dice.of(&[&[0, 0, 0, 1, 1, 2, 8], &[5, 8, 20, 40], &[20, 60, 99, 100, 101, 250]]);
        }
        bench.pass_ms(dice.of(pace));
        if dice.below(25) == 0 {
            steer_.links = dice.of(&[u64::MAX, u64::MAX, 1 << 3 | 1 << 9, 1 << 17, 1 << 31 | 1, 0]);
        }
        if dice.below(25) == 0 {
            let (link, ..) = dice.of(&LINKS);
            let rate = dice.of(&[1, 4, 5, 16, 20, 0]) * 10_000;
            steer_.lanes[usize::from(link)].ns_per_kib = rate;
        }
        steer_.lanes.iter_mut().for_each(|lane| lane.free_ns = 0);
        if dice.below(40) == 0 {
            steer_.lanes[usize::from(dice.of(&LINKS).0)].free_ns = 10;
        }
        nics.clear();
        if dice.below(3) == 0 {
            let free = if dice.below(10) == 0 { 10 } else { 0 };
            nics.insert(dice.of(&[1, 2, 5]), (free, dice.of(&[1000, 1000, 0])));
        }
        steer_.until_ns = if dice.below(60) == 0 { 0 } else { 3600 };
        let frame = match dice.below(25) {
            0 => dice.of(&[5, 8, 9, 10]),
            _ => dice.of(&weights),
        };
        let frame = &frames[frame];
        let link = bench.send(frame, (&steer_, &nics), &mut model);
        let flow = flow(frame).unwrap();
        let (at, key, whole) = (bench.now, hash(&flow), whole(&flow));
        all.push(Sent { at, is_answer: false, key, whole, link });
        // A helper's frames have other headers, so no fragment and nothing long comes so.
        if !flow.is_fragment && frame.gso_size == 0 && dice.below(3) == 0 {
            bench.answer(frame, &mut model);
            all.push(Sent { at, is_answer: true, key, whole, link: Some(3) });
        }
    }
    check_laws(&all);
    all.iter().filter(|it| it.link.is_some() && !it.is_answer).count()
}

fn walks(count: u64, steps: usize) {
    let mut bench = Bench::new();
    let mut passed = 0;
    for seed in 0..count {
        passed += walk(&mut bench, &mut Dice::new(seed), steps);
    }
    let share = passed * 100 / (count as usize * steps);
    assert!((15..85).contains(&share), "{share} % passed");
}

#[test]
fn every_packet_goes_where_the_model_says_and_overtakes_none() {
    in_namespace(|| walks(20, 1000));
}

#[test]
#[ignore = "millions of packets take minutes"]
fn every_packet_goes_where_the_model_says_and_overtakes_none_for_long() {
    in_namespace(|| walks(1000, 2000));
}

#[test]
fn a_flow_that_is_too_fast_is_the_helpers_until_it_was_silent() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let (steer, nics, mut model) = (steer(), Nics::new(), Lone::default());
        let mut send = |bench: &mut Bench, ms: u64| {
            bench.pass_ms(ms);
            bench.send(&ping(), (&steer, &nics), &mut model)
        };
        let link = send(&mut bench, 0);
        assert!(link.is_some());
        for _ in 1..SLOW {
            assert_eq!(send(&mut bench, 1), link, "it keeps its link");
        }
        assert_eq!(send(&mut bench, 0), None);
        for ms in [0, 1, 8, 50, 99, 99] {
            assert_eq!(send(&mut bench, ms), None, "{ms} ms are no silence");
        }
        assert_eq!(send(&mut bench, 100), link);
        for _ in 0..100 {
            assert_eq!(send(&mut bench, 2), link, "four in 8 ms");
        }
    });
}

#[test]
fn questions_pass_as_fast_as_their_answers_come() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let (steer, nics, mut model) = (steer(), Nics::new(), Lone::default());
        for frame in [ping(), udp([1000, 53])] {
            for _ in 0..10 * SLOW {
                assert!(bench.send(&frame, (&steer, &nics), &mut model).is_some());
                bench.answer(&frame, &mut model);
            }
        }
        // Those of another flow answer nothing.
        for _ in 0..SLOW {
            assert!(bench.send(&udp([1000, 54]), (&steer, &nics), &mut model).is_some());
            bench.answer(&udp([1000, 55]), &mut model);
        }
        assert_eq!(bench.send(&udp([1000, 54]), (&steer, &nics), &mut model), None);
    });
}

#[test]
fn flows_are_spread_over_the_links_that_are_not_slow() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let mut steer = steer();
        steer.lanes[31].ns_per_kib = 4 * MS as u32 + 1;
        steer.lanes[17].ns_per_kib = 4 * MS as u32;
        let mut model = Lone::default();
        let mut used: BTreeMap<u8, u32> = BTreeMap::new();
        for port in 0..300 {
            bench.pass_ms(100);
            let link = bench.send(&udp([port, 1]), (&steer, &Nics::new()), &mut model).unwrap();
            *used.entry(link).or_default() += 1;
        }
        assert_eq!(used.keys().copied().collect::<Vec<_>>(), [3, 9, 17]);
        assert!(used.values().all(|count| *count > 60), "{used:?}");
        // A link that is not usable any more is left at once.
        let gone = bench.send(&ping(), (&steer, &Nics::new()), &mut model).unwrap();
        steer.links = !(1 << gone);
        let next = bench.send(&ping(), (&steer, &Nics::new()), &mut model).unwrap();
        assert_ne!(gone, next);
    });
}

#[test]
fn what_others_wait_for_is_the_helpers() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let (free, nics, mut model) = (steer(), Nics::new(), Lone::default());
        let link = bench.send(&ping(), (&free, &nics), &mut model).unwrap();
        let mut busy = free.clone();
        busy.lanes[usize::from(link)].free_ns = 1;
        assert_eq!(bench.send(&ping(), (&busy, &nics), &mut model), None);
        bench.pass_ms(99);
        assert_eq!(bench.send(&ping(), (&free, &nics), &mut model), None);
        bench.pass_ms(100);
        assert_eq!(bench.send(&ping(), (&free, &nics), &mut model), Some(link));
        let port = free.lanes[usize::from(link)].nic;
        let nics = Nics::from([(port, (1, 1000))]);
        assert_eq!(bench.send(&ping(), (&free, &nics), &mut model), None);
    });
}

#[test]
fn nothing_but_tcp_passes_where_the_plan_says_so() {
    in_namespace(|| {
        let mut bench = Bench::new();
        bench.plan.striped.get_mut(&peer_mac(0)).unwrap().others = false;
        bench.programs.apply(&bench.plan).unwrap();
        let (steer, nics, mut model) = (steer(), Nics::new(), Lone::default());
        assert_eq!(bench.send(&ping(), (&steer, &nics), &mut model), None);
        bench.plan = plan();
        bench.programs.apply(&bench.plan).unwrap();
        bench.pass_ms(99);
        assert_eq!(bench.send(&ping(), (&steer, &nics), &mut model), None, "not so soon");
        bench.pass_ms(100);
        assert!(bench.send(&ping(), (&steer, &nics), &mut model).is_some());
    });
}

#[test]
fn a_ping_wakes_the_helper_so_that_a_dead_link_is_found() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let held = hold();
        assert!(bench.programs.set_hold(Some("hold")).unwrap());
        let (steer, nics, mut model) = (steer(), Nics::new(), Lone::default());
        assert!(bench.send(&ping(), (&steer, &nics), &mut model).is_some());
        let copy = wait_for("a copy", || held.receive().unwrap());
        assert_eq!(copy, ping().bytes, "as the host sent it");
        let awake = &bench.shared.steers()[0].awake_ns;
        awake.store(now_ns() + 3600 * SECOND, Relaxed);
        let woken = |bench: &Bench| bench.programs.counts().unwrap().events["woken"];
        let before = woken(&bench);
        assert!(bench.send(&ping(), (&steer, &nics), &mut model).is_some());
        assert_eq!(woken(&bench), before, "it is awake");
    });
}

#[test]
fn lanes_count_packets_of_all_protocols() {
    in_namespace(|| {
        let (mut programs, numbers) = load();
        programs.apply(&plan()).unwrap();
        let shared = Shared::new(&programs.maps()).unwrap();
        let lane = &shared.steers()[0].lanes[3];
        let macs: [Mac; 2] = [own_nic(1), far_nic(0, 3)];
        for (count, mut frame) in (1..).zip([ping(), udp([1, 2])]) {
            frame.bytes[..12].copy_from_slice(&macs.concat());
            let context = context(numbers[&1], &frame);
            let ran = test_run(programs.program("rx"), &frame.bytes, &context).unwrap();
            assert_eq!(ran.returned, REDIRECTED);
            assert_eq!(ran.frame[..12], [OWN, peer_mac(0)].concat());
            // A helper that compares both ends would take it for lost.
            assert_eq!(lane.frames_in.load(Relaxed), count);
        }
        assert_eq!(lane.bytes_in.load(Relaxed), (98 + 142) as u64);
    });
}
