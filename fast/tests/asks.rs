// SPDX-License-Identifier: Apache-2.0
//! Beside a process with packet sockets on the NICs, as ovs-vswitchd has: every frame comes either
//! there or to the local port, once.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::frames::{arriving, far_nic, own_nic, plan, OWN, PORTS};
use crate::hosts::{self, ifindex};
use crate::model;
use crate::namespace::{in_namespace, run, wait_for};
use ri2n_fast::plan::{Arrival, Exception, Plan, Source, SLOTS};
use ri2n_fast::programs::{Device, Programs};
use ri2n_fast::sys::packet::PacketSocket;

/// A NIC, what is at its other end, and a TAP as the local port.
struct Bridge {
    programs: Programs,
    wire: PacketSocket,
    /// Stands for Open vSwitch's socket on the NIC.
    switch: Option<PacketSocket>,
    local: PacketSocket,
}

/// Where a frame came out.
#[derive(Debug, PartialEq)]
enum Out {
    Switch(Vec<u8>),
    Local(Vec<u8>),
}

fn packet_socket(device: &str) -> PacketSocket {
    PacketSocket::open(ifindex(device)).unwrap()
}

impl Bridge {
    fn new() -> Self {
        run("ip tuntap add local mode tap");
        run("ip link add nic mtu 9000 type veth peer name wire mtu 9000");
        for device in ["local", "nic", "wire"] {
            run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
            run(&format!("ip link set {device} up"));
        }
        let nic = Device { port: 1, name: "nic".to_owned() };
        let mut programs = Programs::load("local", &[nic]).unwrap();
        programs.attach().unwrap();
        assert!(programs.needs_filters());
        Bridge {
            programs,
            wire: packet_socket("wire"),
            switch: Some(packet_socket("nic")),
            local: packet_socket("local"),
        }
    }

    fn set_filters(&mut self) {
        let sockets = self.programs.filter_sockets(std::process::id()).unwrap();
        assert_eq!(sockets, usize::from(self.switch.is_some()));
    }

    fn send(&self, frame: &[u8]) {
        self.wire.send(frame).unwrap();
    }

    /// What has come out, if anything.
    fn out(&self) -> Option<Out> {
        let switch = self.switch.as_ref().and_then(|socket| socket.receive().unwrap());
        switch.map(Out::Switch).or_else(|| self.local.receive().unwrap().map(Out::Local))
    }

    fn next(&self) -> Out {
        wait_for("a frame", || self.out())
    }
}

fn tagged(frame: &[u8], vlan: Option<u16>) -> Vec<u8> {
    let tag = vlan.map(|vlan| [&[0x81, 0x00][..], &vlan.to_be_bytes()].concat());
    [&frame[..12], &tag.unwrap_or_default(), &frame[12..]].concat()
}

/// All arrivals come by the one NIC.
fn by_one_nic(mut plan: Plan) -> Plan {
    let by_one = |arrival| Arrival { port: 1, destination: own_nic(1), ..arrival };
    let arrivals = std::mem::take(&mut plan.arrivals).into_iter();
    plan.arrivals = arrivals.map(|(arrival, source)| (by_one(arrival), source)).collect();
    plan
}

/// A datagram from a peer's NIC.
fn datagram(number: u32) -> Vec<u8> {
    let mut frame = [&own_nic(1)[..], &far_nic(0, 1)[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend([0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

/// The plan that takes `datagram`.
fn plan_of_one() -> Plan {
    let (source, destination) = (far_nic(0, 1), own_nic(1));
    let arrival = Arrival { port: 1, source, destination, vlan: None };
    let source = Source { peer: [6, 0, 0, 0, 1, 0], lane: None };
    Plan { own: Some(OWN), arrivals: [(arrival, source)].into(), ..Plan::default() }
}

fn is_local(out: &Out) -> bool {
    matches!(out, Out::Local(_))
}

#[test]
fn each_frame_comes_to_one_of_both() {
    in_namespace(|| {
        let mut bridge = Bridge::new();
        bridge.set_filters();
        let mut runner = TestRunner::deterministic();
        let vlan =
            proptest::option::weighted(0.3, prop_oneof![1 => 1..=4094u16, 1 => any::<u16>()]);
        let many = (plan(), vec((arriving(), vlan, any::<bool>()), 500));
        let (mut local, mut tags) = (0, 0);
        for _ in 0..10 {
            let (plan, frames) = many.new_tree(&mut runner).unwrap().current();
            let plan = by_one_nic(plan);
            bridge.programs.apply(&plan).unwrap();
            for ((_, mut frame), vlan, expected) in frames {
                if PORTS.iter().any(|port| frame.bytes[..6] == own_nic(*port)) {
                    frame.bytes[..6].copy_from_slice(&own_nic(1));
                }
                // Half of the frames look like what is expected, at least at first.
                let arrival =
                    plan.arrivals.keys().nth(frame.bytes.len() % plan.arrivals.len().max(1));
                let vlan = match arrival.filter(|_| expected) {
                    Some(arrival) => {
                        frame.bytes[6..12].copy_from_slice(&arrival.source);
                        // Of any priority.
                        arrival.vlan.map(|id| vlan.unwrap_or(0) & 0xf000 | id)
                    }
                    None => vlan,
                };
                let id = vlan.map(|vlan| vlan & 0xfff);
                // A tag inside is one, too, and the kernel drops what ends behind a tag.
                let has_tag =
                    [[0x81, 0x00], [0x88, 0xa8]].iter().any(|tag| frame.bytes[12..14] == *tag);
                if has_tag || frame.bytes.len() < 16 {
                    continue;
                }
                bridge.send(&tagged(&frame.bytes, vlan));
                let wanted = match id {
                    Some(0) => None,
                    id => model::arrived(&plan, &frame, 1, id),
                };
                local += usize::from(wanted.is_some());
                tags += usize::from(wanted.is_some() && id.is_some());
                let wanted = match wanted {
                    Some(passes) => Out::Local(passes.frame),
                    None => Out::Switch(frame.bytes.clone()),
                };
                assert_eq!(bridge.next(), wanted, "{:x?} in VLAN {vlan:?}", frame.bytes);
            }
        }
        assert_eq!(bridge.out(), None);
        assert!(local > 500 && tags > 100, "only {local} frames were taken, {tags} with a tag");
    });
}

#[test]
fn a_socket_without_the_filter_gets_every_frame() {
    in_namespace(|| {
        // Sockets are given back to processes of this name.
        std::fs::write("/proc/self/comm", "ovs-vswitchd").unwrap();
        let mut bridge = Bridge::new();
        bridge.programs.apply(&plan_of_one()).unwrap();
        let mut numbers = 0..;
        let mut come = |bridge: &Bridge, local: bool| {
            for number in numbers.by_ref().take(50) {
                bridge.send(&datagram(number));
                assert_eq!(is_local(&bridge.next()), local, "{number}");
            }
            assert_eq!(bridge.out(), None);
        };
        come(&bridge, false);
        bridge.set_filters();
        come(&bridge, true);
        bridge.set_filters();
        come(&bridge, true);
        // ovs-vswitchd starts anew.
        bridge.switch = None;
        bridge.set_filters();
        bridge.switch = Some(packet_socket("nic"));
        come(&bridge, false);
        bridge.set_filters();
        come(&bridge, true);
        // Another ri2n-fast takes over.
        let nics = [Device { port: 1, name: "nic".to_owned() }];
        let mut next = Programs::load("local", &nics).unwrap();
        next.apply(&plan_of_one()).unwrap();
        next.attach().unwrap();
        let last = std::mem::replace(&mut bridge.programs, next);
        come(&bridge, false);
        bridge.set_filters();
        drop(last);
        come(&bridge, true);
        Programs::unload("local", &nics).unwrap();
        come(&bridge, false);
    });
}

#[test]
fn what_holds_no_longer_comes_to_the_switch() {
    in_namespace(|| {
        let mut bridge = Bridge::new();
        bridge.programs.apply(&plan_of_one()).unwrap();
        bridge.set_filters();
        let soon_ns = ri2n_fast::sys::now_ns() + 50_000_000;
        for (until_ns, local) in [(u64::MAX, true), (0, false), (u64::MAX, true), (soon_ns, false)]
        {
            bridge.programs.hold_until(until_ns).unwrap();
            if until_ns == soon_ns {
                // Nobody is there to see to it.
                wait_for("the end", || {
                    (ri2n_fast::sys::now_ns() > soon_ns + 20_000_000).then_some(())
                });
            }
            for number in 0..50 {
                bridge.send(&datagram(number));
                assert_eq!(is_local(&bridge.next()), local, "{until_ns}");
            }
            assert_eq!(bridge.out(), None);
        }
    });
}

#[test]
fn a_program_that_somebody_removed_is_missed() {
    in_namespace(|| {
        let mut bridge = Bridge::new();
        bridge.programs.apply(&plan_of_one()).unwrap();
        bridge.set_filters();
        run("tc filter del dev nic ingress");
        // On each CPU the filter waits for some frames.
        let lost = 8 * std::thread::available_parallelism().unwrap().get();
        for number in 0..lost + 50 {
            bridge.send(&datagram(number as u32));
        }
        for _ in 0..50 {
            assert!(!is_local(&bridge.next()));
        }
        bridge.programs.attach().unwrap();
        // What was still asked for is taken, and no frame more is lost.
        wait_for("a frame beside the bridge", || {
            while bridge.out().is_some() {}
            bridge.send(&datagram(0));
            is_local(&bridge.next()).then_some(())
        });
    });
}

/// Numbers of frames of which each must come out once.
#[derive(Default)]
struct Tally {
    sent: AtomicU32,
    received: AtomicU32,
    changed: AtomicBool,
}

impl Tally {
    /// Sends until the changes are done, with at most 50 frames on the way.
    fn send(&self, send: impl Fn(u32)) {
        let mut number = 0;
        while !self.changed.load(Relaxed) {
            if number - self.received.load(Relaxed) < 50 {
                send(number);
                number += 1;
                self.sent.store(number, Relaxed);
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until some more frames have come.
    fn wait(&self) {
        let before = self.received.load(Relaxed);
        let more = || (self.received.load(Relaxed) > before + 100).then_some(());
        wait_for("more frames", more);
    }

    /// Takes frames, by number, until all that were sent are there. Fails if one comes twice.
    fn receive(&self, next: impl Fn() -> Option<u32>) {
        let mut seen = BTreeSet::new();
        wait_for("the last frame", || {
            while let Some(number) = next() {
                assert!(seen.insert(number), "frame {number} comes twice");
                self.received.store(seen.len() as u32, Relaxed);
            }
            let all = self.changed.load(Relaxed) && self.sent.load(Relaxed) as usize == seen.len();
            all.then_some(())
        });
        assert_eq!(next(), None, "frames that nobody sent");
    }
}

/// The number at the end of a frame.
fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap())
}

#[test]
fn no_frame_is_lost_or_comes_twice_while_arrivals_change() {
    in_namespace(|| {
        let mut bridge = Bridge::new();
        bridge.set_filters();
        let tally = Tally::default();
        let Bridge { programs, wire, switch, local } = &mut bridge;
        let switch = switch.as_ref().unwrap();
        let (by_switch, by_local) = (Cell::new(0), Cell::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| tally.send(|number| wire.send(&datagram(number)).unwrap()));
            scope.spawn(|| {
                let with = plan_of_one();
                let mut except = with.clone();
                let (source_port, destination_port) = (Some(0x1000), None);
                except.exceptions = vec![Exception { protocol: 17, source_port, destination_port }];
                let without = Plan { arrivals: BTreeMap::new(), ..with.clone() };
                for _ in 0..30 {
                    for plan in [&with, &without, &with, &except, &Plan::default()] {
                        programs.apply(plan).unwrap();
                        tally.wait();
                    }
                }
                tally.changed.store(true, Relaxed);
            });
            tally.receive(|| {
                let frame = switch.receive().unwrap();
                by_switch.set(by_switch.get() + u32::from(frame.is_some()));
                let other = || {
                    let frame = local.receive().unwrap();
                    by_local.set(by_local.get() + u32::from(frame.is_some()));
                    frame
                };
                frame.or_else(other).map(|frame| number(&frame))
            });
        });
        assert!(by_switch.get() > 0 && by_local.get() > 0, "{by_switch:?} {by_local:?}");
    });
}

#[test]
fn no_frame_goes_wrong_while_peers_change() {
    in_namespace(|| {
        let other = hosts::nics();
        hosts::local(run, 1);
        run("sysctl -qw net.ipv6.conf.local.disable_ipv6=1");
        let mut programs = Programs::load("local", &hosts::devices()).unwrap();
        programs.attach().unwrap();
        let out = packet_socket("local");
        let bridge = packet_socket("bridge");
        let tally = Tally::default();
        let ways = Cell::new([0; 3]);
        std::thread::scope(|scope| {
            let far = scope
                .spawn(|| {
                    other.enter();
                    ["nic1", "nic2"].map(packet_socket)
                })
                .join()
                .unwrap();
            scope.spawn(|| {
                let send = |number: u32| {
                    let mut frame = datagram(number);
                    frame[..6].copy_from_slice(&hosts::own(2));
                    frame[6..12].copy_from_slice(&hosts::own(1));
                    frame[34..36].copy_from_slice(&(number as u16).to_be_bytes());
                    out.send(&frame).unwrap();
                };
                tally.send(send);
            });
            scope.spawn(|| {
                let both = hosts::plan(1);
                let slots = |slots: u8| {
                    let mut plan = both.clone();
                    plan.peers.get_mut(&hosts::own(2)).unwrap().slots = [slots; SLOTS];
                    plan
                };
                let (first, second) = (slots(0), slots(1));
                for _ in 0..30 {
                    for plan in [&both, &first, &second, &Plan::default(), &first] {
                        programs.apply(plan).unwrap();
                        tally.wait();
                    }
                }
                tally.changed.store(true, Relaxed);
            });
            tally.receive(|| {
                let sockets = [&far[0], &far[1], &bridge];
                let (way, frame) = (0..).zip(sockets).find_map(|(way, socket)| {
                    socket.receive().unwrap().map(|frame| (way, frame))
                })?;
                let macs = match way {
                    2 => [hosts::own(2), hosts::own(1)],
                    way => [hosts::nic(2, way as u8 + 1), hosts::nic(1, way as u8 + 1)],
                };
                assert_eq!(frame[..12], macs.concat(), "by way {way}");
                let mut counts = ways.get();
                counts[way] += 1;
                ways.set(counts);
                Some(number(&frame))
            });
        });
        assert!(ways.get().iter().all(|count| *count > 0), "{ways:?}");
    });
}
