// SPDX-License-Identifier: Apache-2.0
//! The programs, run by the kernel on frames that do not exist, agree with the model.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::frames::{self, PORTS};
use crate::model::{self, Flow, Frame};
use crate::namespace::{in_namespace, run};
use ri2n_fast::programs::{Count, Counts, Device, Programs};
use ri2n_fast::sys::bpf::{test_run, Ran};

pub const TO_THE_BRIDGE: u32 = 0;
pub const REDIRECTED: u32 = 7;
const MTUS: [usize; 3] = [1500, 1280, 9000];

/// The kernel's `struct __sk_buff` of a frame that comes in by an interface.
pub fn context(ifindex: u32, frame: &Frame) -> [u8; 192] {
    let mut bytes = [0; 192];
    for (at, number) in [(40, ifindex), (164, frame.gso_segs), (176, frame.gso_size)] {
        bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

fn name(port: u32) -> String {
    format!("nic{port}")
}

pub fn mtu(port: u32) -> usize {
    MTUS[PORTS.iter().position(|one| *one == port).unwrap()]
}

pub fn ifindex(name: &str) -> u32 {
    run(&format!("ip -o link show {name}")).split(':').next().unwrap().parse().unwrap()
}

/// Loads programs for a local port and NICs, which it makes.
pub fn load() -> (Programs, BTreeMap<u32, u32>) {
    run("ip link add local type veth peer name host");
    let mut devices = Vec::new();
    for port in PORTS {
        let name = name(port);
        run(&format!("ip link add {name} mtu {} type veth peer name far{port}", mtu(port)));
        devices.push(Device { port, name });
    }
    let numbers = PORTS.map(|port| (port, ifindex(&name(port))));
    (Programs::load("local", &devices).unwrap(), BTreeMap::from(numbers))
}

pub fn add(sum: &mut Count, count: Count) {
    sum.packets += count.packets;
    sum.bytes += count.bytes;
}

/// What was counted, without the zeros.
pub fn counted(programs: &Programs) -> Counts {
    let mut counts = programs.counts().unwrap();
    counts.sent.retain(|_, count| *count != Count::default());
    counts.arrived.retain(|_, count| *count != Count::default());
    counts
}

/// Compares on this many plans, with 2,500 frames of each direction for each.
fn compare(plans: u32) {
    let (programs, numbers) = load();
    let programs = RefCell::new(programs);
    let (all, passed) = (Cell::new(0), Cell::new(0));
    let many = (frames::plan(), vec(frames::sent(), 2500), vec(frames::arriving(), 2500));
    let config = Config { cases: plans, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&many, |(plan, sent, arriving)| {
            let mut programs = programs.borrow_mut();
            let before = programs.slot_counts().unwrap();
            programs.apply(&plan).unwrap();
            prop_assert_eq!(programs.left_out(), 0);
            let mut expected = counted(&programs);
            let mut by_slot = programs.slot_counts().unwrap();
            for (peer, bytes) in before {
                prop_assert_eq!(by_slot[&peer], bytes, "counters go on when an entry moves");
            }
            for frame in sent.iter().filter(|frame| can_run(frame)) {
                let ran = test_run(programs.program("tx"), &frame.bytes, &context(0, frame));
                let wanted = model::sent(&plan, frame, mtu);
                if let Some(passes) = &wanted {
                    let (peer, path, slot) = &passes.by;
                    by_slot.get_mut(peer).unwrap()[*slot] += passes.count.bytes;
                    add(expected.sent.entry((*peer, path.id)).or_default(), passes.count);
                    passed.set(passed.get() + 1);
                }
                agree(ran.unwrap(), frame, wanted.map(|passes| passes.frame))?;
            }
            for (port, frame) in arriving.iter().filter(|(_, frame)| can_run(frame)) {
                let context = context(numbers[port], frame);
                let ran = test_run(programs.program("rx"), &frame.bytes, &context);
                let wanted = model::arrived(&plan, frame, *port, None);
                if let Some(passes) = &wanted {
                    add(expected.arrived.entry(passes.by.clone()).or_default(), passes.count);
                    passed.set(passed.get() + 1);
                }
                agree(ran.unwrap(), frame, wanted.map(|passes| passes.frame))?;
            }
            all.set(all.get() + sent.len() + arriving.len());
            prop_assert_eq!(counted(&programs), expected);
            prop_assert_eq!(programs.slot_counts().unwrap(), by_slot);
            Ok(())
        })
        .unwrap();
    // A test in which nearly nothing passes, or everything, would show nothing.
    let share = passed.get() * 100 / all.get();
    assert!((10..90).contains(&share), "{share} % of the frames passed");
}

/// The kernel refuses to run a program on a frame that ends within its IP header.
pub fn can_run(frame: &Frame) -> bool {
    let least = match frame.bytes[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 15,
    };
    frame.bytes.len() >= least
}

pub fn agree(ran: Ran, frame: &Frame, wanted: Option<Vec<u8>>) -> Result<(), TestCaseError> {
    match wanted {
        Some(bytes) => {
            prop_assert_eq!(ran.returned, REDIRECTED, "{:x?}", frame);
            prop_assert_eq!(ran.frame, bytes);
        }
        None => {
            prop_assert_eq!(ran.returned, TO_THE_BRIDGE, "{:x?}", frame);
            prop_assert_eq!(&ran.frame, &frame.bytes);
        }
    }
    Ok(())
}

#[test]
fn programs_do_what_the_model_does() {
    in_namespace(|| compare(20));
}

#[test]
#[ignore = "ten million frames take minutes"]
fn programs_do_what_the_model_does_for_long() {
    in_namespace(|| compare(2000));
}

#[test]
fn the_hash_is_the_documented_one() {
    let text = include_str!("hashes.json");
    let cases: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let port = |key: &str| case[key].as_u64().unwrap() as u16;
        let address = |key: &str| match case[key].as_str().unwrap().parse().unwrap() {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        let protocol = case["protocol"].as_u64().unwrap() as u8;
        let has_ports = [6, 17, 132].contains(&protocol);
        let flow = Flow {
            addresses: [address("source"), address("destination")].concat(),
            protocol,
            source_port: if has_ports { port("sport") } else { 0 },
            destination_port: if has_ports { port("dport") } else { 0 },
            headers: 0,
            upper: (0, 0),
            is_fragment: false,
        };
        assert_eq!(format!("{:#018x}", model::hash(&flow)), case["hash"].as_str().unwrap());
        assert_eq!(model::hash(&flow) >> 58, case["slot"].as_u64().unwrap());
    }
}
