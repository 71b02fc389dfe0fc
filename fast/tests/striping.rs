// SPDX-License-Identifier: Apache-2.0
//! The program that stripes TCP, and lets slow flows of other protocols pass, run by the kernel on
//! frames that do not exist, agrees with the model.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::agree::{add, agree, can_run, context, counted, ifindex, load, mtu, REDIRECTED};
use crate::frames::{self, far_nic, own_nic, peer_mac, OWN};
use crate::lone;
use crate::model::lone::Lone;
use crate::model::striping::{sent, Lane, Nics, Steer, Way, FRESH};
use crate::model::{flow, Frame};
use crate::namespace::{in_namespace, run, wait_for};
use ri2n_fast::plan::{Mac, Path, Plan, Striped};
use ri2n_fast::programs::Programs;
use ri2n_fast::sys::bpf::test_run;
pub use ri2n_fast::sys::now_ns;
use ri2n_fast::sys::packet::PacketSocket;
use ri2n_wire::shared::{self, Shared, LANES};

const SECOND: u64 = 1_000_000_000;
/// A step that the machine did not take in this time is no step: what was fresh may be stale.
const STEP_NS: u64 = 10_000_000;

/// Never ahead, or so far ahead that it does not matter which one of two moments "now" is. In
/// seconds; 0: it is past.
fn free() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 10..1000u64]
}

fn rate() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 8 => 1..10_000u32, 4 => 10_000..10_000_000u32]
}

fn lane() -> impl Strategy<Value = Lane> {
    let skew = prop_oneof![2 => Just(0u32), 1 => 0..5_000_000u32];
    let nic = prop_oneof![8 => 0..4u32, 1 => 60..70u32, 1 => any::<u32>()];
    (rate(), skew, nic, free(), age()).prop_map(|(ns_per_kib, skew_ns, nic, free_ns, heard)| Lane {
        ns_per_kib,
        skew_ns,
        nic,
        free_ns,
        heard,
    })
}

/// Before how many units of 1,024 ns a lane brought something: fresh for as long as a step takes,
/// or stale, also by a clock that is behind or has come round.
fn age() -> impl Strategy<Value = u32> {
    let fresh = FRESH - 2 * (STEP_NS >> 10) as u32 + 1000;
    prop_oneof![1 => 0..fresh, 2 => FRESH..3 * FRESH, 1 => FRESH..u32::MAX - 1_000_000]
}

/// All times are seconds from now, but for when lanes brought something.
fn steer() -> impl Strategy<Value = Steer> {
    let until = prop_oneof![6 => Just(3600u64), 1 => Just(0u64)];
    let links = prop_oneof![2 => Just(u64::MAX), 2 => any::<u64>(), 1 => Just(0u64)];
    let limit = prop_oneof![1 => Just(0u32), 1 => 1_000_000..SECOND as u32 * 4];
    // A peer all of whose links are busy, too. What no socket sent is not refused.
    let least = prop_oneof![2 => Just(0u64), 1 => Just(10u64)];
    (until, links, 0..60u32, limit, vec(lane(), LANES), least).prop_map(
        |(until_ns, links, overhead, limit_ns, mut lanes, least)| {
            for lane in &mut lanes {
                lane.free_ns = lane.free_ns.max(least);
            }
            Steer { until_ns, links, overhead, limit_ns, lanes }
        },
    )
}

fn nics() -> impl Strategy<Value = Nics> {
    proptest::collection::btree_map(prop_oneof![0..4u32, 60..64u32], (free(), rate()), 0..5)
}

/// Writes what the helper says, as of this moment. Returns it with times by the clock.
pub fn say(
    shared: &Shared,
    now: u64,
    steers: &BTreeMap<Mac, Steer>,
    nics: &Nics,
) -> (BTreeMap<Mac, Steer>, Nics) {
    let at = |seconds: u64| if seconds == 0 { 0 } else { now + seconds * SECOND };
    let (mut steers, mut nics) = (steers.clone(), nics.clone());
    for (mac, steer) in &mut steers {
        let place = &shared.steers()[shared.place_of(*mac).unwrap()];
        steer.until_ns = at(steer.until_ns);
        place.until_ns.store(steer.until_ns, Relaxed);
        place.links.store(steer.links, Relaxed);
        place.overhead.store(steer.overhead, Relaxed);
        place.limit_ns.store(steer.limit_ns, Relaxed);
        for (lane, there) in steer.lanes.iter_mut().zip(&place.lanes) {
            lane.free_ns = at(lane.free_ns);
            lane.heard = ((now >> 10) as u32).wrapping_sub(lane.heard);
            there.heard.store(lane.heard, Relaxed);
            there.free_ns.store(lane.free_ns, Relaxed);
            there.ns_per_kib.store(lane.ns_per_kib, Relaxed);
            there.skew_ns.store(lane.skew_ns, Relaxed);
            there.nic.store(lane.nic, Relaxed);
        }
    }
    for (place, there) in (0..).zip(shared.nics()) {
        let known = nics.get_mut(&place);
        let (free, rate) = known.map_or((0, 0), |(free, rate)| {
            *free = at(*free);
            (*free, *rate)
        });
        there.free_ns.store(free, Relaxed);
        there.ns_per_kib.store(rate, Relaxed);
    }
    (steers, nics)
}

/// What the programs count for each lane that was ever used: frames and bytes that left.
fn carried(shared: &Shared, plan: &Plan) -> BTreeMap<(Mac, u8), (u64, u64)> {
    let mut carried = BTreeMap::new();
    for mac in plan.striped.keys() {
        for (link, lane) in (0..).zip(&shared.steers()[shared.place_of(*mac).unwrap()].lanes) {
            let count = (lane.frames_out.load(Relaxed), lane.bytes_out.load(Relaxed));
            carried.insert((*mac, link), count);
        }
    }
    carried
}

/// Whether a time is this one, which the model had from `model_now`, if it is one that goes with
/// the clock.
pub fn is_time(time: u64, wanted: u64, start: u64, model_now: u64, after: u64) -> bool {
    if start == model_now {
        (wanted..=wanted + (after - model_now)).contains(&time)
    } else {
        time == wanted
    }
}

/// Compares on this many plans, with 2,500 frames for each.
fn compare(plans: u32) {
    let (programs, _) = load();
    let programs = RefCell::new(programs);
    let shared = Shared::new(&programs.borrow().maps()).unwrap();
    let places = RefCell::new(lone::places(&programs.borrow()));
    let (all, passed, alone) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let many = (frames::plan_with(0.7), vec(steer(), 4), nics(), vec(frames::sent(), 2500));
    let config = Config { cases: plans, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&many, |(plan, steers, nics, sent_frames)| {
            let mut programs = programs.borrow_mut();
            programs.apply(&plan).unwrap();
            prop_assert_eq!(programs.left_out(), 0);
            let peers = (0..).map(peer_mac).zip(steers);
            let steers: BTreeMap<_, _> =
                peers.filter(|(mac, _)| plan.striped.contains_key(mac)).collect();
            let mut expected = counted(&programs);
            let mut lanes = carried(&shared, &plan);
            let to_striped = |frame: &&Frame| {
                let to = frame.bytes.get(..6).unwrap_or_default();
                plan.striped.keys().any(|mac| mac == to)
            };
            for frame in sent_frames.iter().filter(to_striped).filter(|frame| can_run(frame)) {
                let now = now_ns();
                let (steers, nics) = say(&shared, now, &steers, &nics);
                // No flow was ever seen.
                lone::forget(&mut places.borrow_mut(), frame);
                let says = (&steers, &nics);
                let way = sent(&plan, frame, now, says, &mut Lone::default(), mtu);
                let ran = test_run(programs.program("tx"), &frame.bytes, &context(0, frame));
                let (ran, after) = (ran.unwrap(), now_ns());
                if after - now > STEP_NS {
                    return Err(TestCaseError::reject("the machine is busy"));
                }
                let is_tcp = flow(frame).is_some_and(|flow| flow.protocol == 6);
                all.set(all.get() + u32::from(is_tcp));
                match way {
                    Way::Bridge => agree(ran, frame, None)?,
                    Way::Beside(chosen) => {
                        let (mac, count) = (chosen.passes.by, chosen.passes.count);
                        agree(ran, frame, Some(chosen.passes.frame))?;
                        let place = &shared.steers()[shared.place_of(mac).unwrap()];
                        let lane = &place.lanes[usize::from(chosen.link)];
                        let is = |time: u64, length: u64| {
                            let wanted = chosen.start_ns + length;
                            is_time(time, wanted, chosen.start_ns, now, after)
                        };
                        prop_assert!(is(lane.free_ns.load(Relaxed), chosen.lane_ns));
                        if let Some(length) = chosen.nic_ns {
                            let nic = &shared.nics()[lane.nic.load(Relaxed) as usize];
                            prop_assert!(is(nic.free_ns.load(Relaxed), length));
                        }
                        let tag = if chosen.path.vlan.is_some() { 4 } else { 0 };
                        let carried = lanes.get_mut(&(mac, chosen.link)).unwrap();
                        carried.0 += count.packets;
                        carried.1 += count.bytes + tag * count.packets;
                        add(expected.sent.entry((mac, chosen.path.id)).or_default(), count);
                        let counter = if is_tcp { &passed } else { &alone };
                        counter.set(counter.get() + 1);
                    }
                }
            }
            prop_assert_eq!(counted(&programs), expected);
            prop_assert_eq!(carried(&shared, &plan), lanes);
            Ok(())
        })
        .unwrap();
    let share = passed.get() * 100 / all.get();
    assert!((5..90).contains(&share), "{share} % of TCP passed");
    assert!(alone.get() > passed.get() / 10, "only {} of others passed", alone.get());
}

#[test]
fn every_packet_takes_the_link_that_the_model_says() {
    in_namespace(|| compare(20));
}

#[test]
#[ignore = "millions of frames take minutes"]
fn every_packet_takes_the_link_that_the_model_says_for_long() {
    in_namespace(|| compare(2000));
}

/// Two links to peer 0, by the NICs 1 and 2.
fn two_links() -> Plan {
    let path = |port: u32| Path {
        id: port << 22 | 1 << 12,
        port,
        source: own_nic(port),
        destination: far_nic(0, port as u8),
        vlan: None,
    };
    let paths = BTreeMap::from([(3, path(1)), (9, path(2))]);
    let striped = BTreeMap::from([(peer_mac(0), Striped { paths, others: true })]);
    Plan { own: Some(OWN), striped, ..Plan::default() }
}

/// The programs with two links to peer 0.
fn with_two_links() -> (Programs, Shared) {
    let (mut programs, _) = load();
    programs.apply(&two_links()).unwrap();
    let shared = Shared::new(&programs.maps()).unwrap();
    (programs, shared)
}

/// The helper lets these links to peer 0 be used for an hour. 1,024 bytes take so many ns.
fn grant<'a>(shared: &'a Shared, rates: &[(usize, u32)]) -> &'a shared::Steer {
    let steer = &shared.steers()[0];
    steer.links.store(rates.iter().map(|(link, _)| 1 << link).sum(), Relaxed);
    steer.until_ns.store(now_ns() + 3600 * SECOND, Relaxed);
    for (lane, rate) in rates {
        steer.lanes[*lane].ns_per_kib.store(*rate, Relaxed);
    }
    steer
}

/// Makes the helper's device. What the programs leave for the helper comes out at the other end.
pub fn hold() -> PacketSocket {
    run("ip link add hold type veth peer name held");
    for device in ["hold", "held"] {
        run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        run(&format!("ip link set {device} up"));
    }
    PacketSocket::open(ifindex("held")).unwrap()
}

/// TCP to peer 0 with so many bytes of payload.
fn frame(payload: usize) -> Frame {
    let mut bytes = [&peer_mac(0)[..], &OWN[..], &[8, 0, 0x45, 0]].concat();
    bytes.extend((40 + payload as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 90, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 0x5a);
    // A short frame is filled up.
    bytes.resize(bytes.len().max(60), 0);
    Frame { bytes, gso_size: 0, gso_segs: 0 }
}

fn run_one(programs: &Programs, frame: &Frame) -> u32 {
    test_run(programs.program("tx"), &frame.bytes, &context(0, frame)).unwrap().returned
}

#[test]
fn links_are_used_by_their_rates() {
    in_namespace(|| {
        let (programs, shared) = with_two_links();
        assert_eq!(shared.place_of(peer_mac(0)), Some(0));
        assert_eq!(programs.striping().len(), 0, "nobody asked for it");
        assert_eq!(programs.slowest_kbps(), None);
        let steer = &shared.steers()[0];
        steer.links.store(1 << 3 | 1 << 9 | 1 << 20, Relaxed);
        // So slow that the clock does not matter: 1 s and 3 s for a frame.
        let rates = [(3, SECOND as u32), (9, 3 * SECOND as u32)];
        for (lane, rate) in rates {
            steer.lanes[lane].ns_per_kib.store(rate, Relaxed);
        }
        assert_eq!(run_one(&programs, &frame(970)), 0, "there is no lease");
        steer.until_ns.store(now_ns() + 3600 * SECOND, Relaxed);
        assert_eq!(programs.striping().into_iter().collect::<Vec<_>>(), [peer_mac(0)]);
        // 8,192 bits in 3 s.
        assert_eq!(programs.slowest_kbps(), Some(2));
        for _ in 0..400 {
            assert_eq!(run_one(&programs, &frame(970)), REDIRECTED);
        }
        let sent = rates.map(|(lane, _)| steer.lanes[lane].frames_out.load(Relaxed));
        assert_eq!(sent, [300, 100]);
        // A link that carries next to nothing does not count.
        steer.lanes[3].ns_per_kib.store(81_920, Relaxed);
        steer.lanes[9].ns_per_kib.store(819_200, Relaxed);
        assert_eq!(programs.slowest_kbps(), Some(10_000));
        steer.lanes[9].ns_per_kib.store(8_192_000, Relaxed);
        assert_eq!(programs.slowest_kbps(), Some(100_000));
        // The links of which nobody knows a way do not count, either.
        steer.links.store(1 << 20, Relaxed);
        assert_eq!((programs.striping().len(), programs.slowest_kbps()), (0, None));
        assert_eq!(run_one(&programs, &frame(970)), 0);
    });
}

#[test]
fn a_nic_is_shared_by_all_its_links() {
    in_namespace(|| {
        let (programs, shared) = with_two_links();
        let steer = grant(&shared, &[(3, SECOND as u32), (9, SECOND as u32)]);
        for (lane, nic) in [(3, 1), (9, 2)] {
            steer.lanes[lane].nic.store(nic, Relaxed);
        }
        // Somebody else fills NIC 1 for a day.
        shared.nics()[1].ns_per_kib.store(1000, Relaxed);
        shared.nics()[1].free_ns.store(now_ns() + 86_400 * SECOND, Relaxed);
        for _ in 0..10 {
            assert_eq!(run_one(&programs, &frame(970)), REDIRECTED);
        }
        assert_eq!(steer.lanes[9].frames_out.load(Relaxed), 10);
    });
}

#[test]
fn what_no_socket_of_this_host_sent_is_not_refused() {
    in_namespace(|| {
        let (programs, shared) = with_two_links();
        let steer = grant(&shared, &[(3, 1)]);
        steer.limit_ns.store(1, Relaxed);
        steer.lanes[3].free_ns.store(now_ns() + 1000 * SECOND, Relaxed);
        for payload in [0, 1, 970] {
            assert_eq!(run_one(&programs, &frame(payload)), REDIRECTED);
        }
        let events = programs.counts().unwrap().events;
        assert_eq!((steer.refused.load(Relaxed), events["refused"], events["twice"]), (0, 0, 0));
    });
}

#[test]
fn an_acknowledgement_takes_the_link_that_was_heard_last() {
    in_namespace(|| {
        let (programs, shared) = with_two_links();
        // Link 3 is always free, as one that is dead is. On link 9 it takes 1 s.
        let steer = grant(&shared, &[(3, 1), (9, SECOND as u32)]);
        let flags = |flags: u8, payload: usize| {
            let mut frame = frame(payload);
            frame.bytes[47] = flags;
            frame
        };
        // How many of them take link 9, heard so many units of 1,024 ns ago.
        let by_the_heard = |frame: &Frame, ages: [u32; 2]| loop {
            let (start, lane) = (now_ns(), &steer.lanes[9].frames_out);
            let before = lane.load(Relaxed);
            for (lane, age) in [3, 9].into_iter().zip(ages) {
                let heard = ((start >> 10) as u32).wrapping_sub(age);
                steer.lanes[lane].heard.store(heard, Relaxed);
            }
            assert_eq!(run_one(&programs, frame), REDIRECTED);
            if now_ns() - start < STEP_NS {
                break lane.load(Relaxed) - before;
            }
        };
        let (ack, psh, fin, syn, rst) = (0x10, 0x18, 0x11, 2, 4);
        for (frame, ages, wanted) in [
            (flags(ack, 0), [FRESH, 0], 1),
            (flags(ack, 0), [5000, 4000], 1),
            (flags(ack, 0), [4000, 5000], 0),
            (flags(ack, 0), [2 * FRESH, FRESH], 0),
            (flags(ack, 0), [FRESH, 0u32.wrapping_sub(FRESH)], 0),
            (flags(fin, 0), [FRESH, 0], 1),
            (flags(syn, 0), [FRESH, 0], 0),
            (flags(rst, 0), [FRESH, 0], 0),
            (flags(psh, 1), [FRESH, 0], 0),
        ] {
            assert_eq!(by_the_heard(&frame, ages), wanted, "{ages:?} {:x?}", frame.bytes);
        }
    });
}

#[test]
fn a_helper_that_sleeps_gets_a_copy() {
    in_namespace(|| {
        let (mut programs, shared) = with_two_links();
        let held = hold();
        let copies = || std::iter::from_fn(|| held.receive().unwrap()).collect::<Vec<_>>();
        let steer = grant(&shared, &[(3, 1)]);
        let wakes = |programs: &Programs| programs.counts().unwrap().events["woken"];
        run_one(&programs, &frame(100));
        assert_eq!((wakes(&programs), steer.awake_ns.load(Relaxed)), (0, 0), "nobody is there");

        assert!(programs.set_hold(Some("hold")).unwrap());
        let before = now_ns();
        assert_eq!(run_one(&programs, &frame(100)), REDIRECTED);
        let next = steer.awake_ns.load(Relaxed);
        assert!((before + 20_000_000..=now_ns() + 20_000_000).contains(&next));
        let copy = wait_for("a copy", || held.receive().unwrap());
        assert_eq!(copy, frame(100).bytes, "as the host sent it");
        steer.awake_ns.store(now_ns() + 3600 * SECOND, Relaxed);
        assert_eq!(run_one(&programs, &frame(100)), REDIRECTED);
        assert_eq!((wakes(&programs), copies().len()), (1, 0), "it is awake");
    });
}
