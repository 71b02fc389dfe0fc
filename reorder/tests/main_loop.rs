// SPDX-License-Identifier: Apache-2.0
//! The main loop between real devices, with an engine that only passes frames on.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;

use crate::namespace::{in_namespace, ip, make_tap, make_veth, quiet, run, wait_for};
use ri2n_reorder::driver::{Driver, Out, Sink};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::options::Options;
use ri2n_reorder::run::devices::{Devices, Facts};
use ri2n_reorder::run::{Loop, Unmerged};
use ri2n_reorder::sys::interface::Interfaces;
use ri2n_reorder::sys::packet::{PacketSocket, Received, BATCH};
use ri2n_reorder::sys::signals::Signals;
use ri2n_reorder::sys::tap::Tap;
use ri2n_reorder::wire::{Tag, ETHERTYPE};
use ri2n_reorder::Nanos;

/// What the engine saw, and what it shall do.
#[derive(Default)]
struct Seen {
    tags: Vec<Option<Tag>>,
    counters: Vec<(u8, u64, bool)>,
    lengths: Vec<usize>,
    refuses: bool,
    to: Option<Out>,
    copies: usize,
}

/// Passes frames of the host to one port, and frames that arrive to the host.
#[derive(Clone)]
struct Passing(Rc<RefCell<Seen>>, Vec<(u8, String)>);

impl Driver for Passing {
    fn on_plain(&mut self, _: Nanos, _: &VnetHdr, frame: Vec<u8>, out: &mut dyn Sink) {
        let mut seen = self.0.borrow_mut();
        assert!(!seen.refuses, "the engine wants no frames");
        seen.lengths.push(frame.len());
        for _ in 0..seen.copies {
            let mut copy = out.recycle();
            assert!(copy.is_empty() && copy.capacity() >= 2048);
            copy.extend_from_slice(&frame);
            out.wire(seen.to.unwrap(), copy);
        }
        out.wire(seen.to.unwrap(), frame);
    }

    fn on_wire(&mut self, _: Nanos, tag: Option<Tag>, _: u8, frame: Vec<u8>, out: &mut dyn Sink) {
        if frame[12..14] != ETHERTYPE.to_be_bytes() {
            return out.done(frame); // what a bridge says of its own
        }
        self.0.borrow_mut().tags.push(tag);
        out.plain(frame);
    }

    fn on_tick(&mut self, now: Nanos, _: &mut dyn Sink) -> Nanos {
        now + 1_000_000
    }

    fn wants_plain(&mut self, _: Nanos) -> bool {
        !self.0.borrow().refuses
    }

    fn nic_renamed(&mut self, port: u8, name: &str) {
        self.1.iter_mut().filter(|nic| nic.0 == port).for_each(|nic| nic.1 = name.to_string());
    }

    fn nics(&self) -> &[(u8, String)] {
        &self.1
    }

    fn nic_counters(&mut self, _: Nanos, nic: u8, rx_bytes: u64, up: bool) {
        self.0.borrow_mut().counters.push((nic, rx_bytes, up));
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    fn goodbye(&mut self, _: Nanos, _: &mut dyn Sink) {}
}

struct Running {
    main_loop: Loop<Passing, Unmerged>,
    seen: Rc<RefCell<Seen>>,
    facts: Facts,
}

fn start(arguments: &str, nics: &[(u8, &str)], to: Out) -> Running {
    let words = std::iter::once("ri2n-reorder").chain(arguments.split_whitespace());
    let (devices, facts) = Devices::open(&Options::parse(words).unwrap()).unwrap();
    let seen = Rc::new(RefCell::new(Seen { to: Some(to), ..Seen::default() }));
    let driver =
        Passing(seen.clone(), nics.iter().map(|(port, name)| (*port, name.to_string())).collect());
    let main_loop = Loop::new(devices, driver, Unmerged, Signals::take().unwrap(), None).unwrap();
    Running { main_loop, seen, facts }
}

/// A frame to everybody, with the EtherType for which the test's sockets listen.
fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 2]].concat();
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.resize(length, number);
    frame
}

fn open(name: &str) -> PacketSocket {
    let interfaces = Interfaces::open().unwrap();
    wait_for("the carrier", || interfaces.is_up(name).then_some(()));
    PacketSocket::open(name, ETHERTYPE).unwrap()
}

fn send(socket: &PacketSocket, frame: &[u8]) {
    assert_eq!(socket.send(std::iter::once(frame)).unwrap(), 1);
}

/// Turns the loops until the socket has got `wanted` frames.
fn turn_until(loops: &mut [&mut Running], socket: &PacketSocket, wanted: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    wait_for("frames", || {
        loops.iter_mut().for_each(|running| assert!(running.main_loop.turn().unwrap()));
        let mut spare: Vec<_> = (0..BATCH).map(|_| Vec::with_capacity(70_000)).collect();
        match socket.receive(&mut spare, &mut got) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            _ => (got.len() >= wanted).then_some(()),
        }
    });
    got.into_iter().map(|Received { frame, .. }| frame).collect()
}

#[test]
fn under_a_bridge_ports_are_tags() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        make_tap("peer");
        let mut helper = start("--plain plain --wire wire", &[], Out::Slots);
        assert_eq!(helper.facts, Facts::default());
        // The kernel's bridge hands on frames with their tags; the other TAP shows them.
        let peer = Tap::open("peer", false, false).unwrap();
        ip("link add bridge type bridge");
        ["wire", "peer"].iter().for_each(|name| ip(&format!("link set {name} master bridge")));
        quiet("bridge");
        // Ports with carrier forward as soon as the bridge is up, others later.
        let interfaces = Interfaces::open().unwrap();
        wait_for("the ports", || {
            (interfaces.is_up("wire") && interfaces.is_up("peer")).then_some(())
        });
        ip("link set bridge up");
        wait_for("the bridge", || interfaces.is_up("bridge").then_some(()));
        let host = open("plain");

        let ports = [
            (Out::Slots, None),
            (Out::Link(0, 1), Some([0x81, 0, 0, 1])),
            (Out::Link(63, 7), Some([0x81, 0, 0, 64])),
            (Out::Controller, Some([0x81, 0, 0x0f, 0xfe])),
        ];
        for (port, tag) in ports {
            helper.seen.borrow_mut().to = Some(port);
            send(&host, &frame(1, 1000));
            let mut got = Vec::with_capacity(2048);
            let got_tag = wait_for("the frame", || {
                helper.main_loop.turn().unwrap();
                peer.read_tagged(&mut got).ok().filter(|_| got[12..14] == ETHERTYPE.to_be_bytes())
            });
            assert!(got_tag == tag && got == frame(1, 1000), "{port:?}: {got_tag:?}");
        }
        helper.seen.borrow_mut().to = Some(Out::Link(64, 1));
        send(&host, &frame(3, 100));
        wait_for("the drop", || {
            helper.main_loop.turn().unwrap();
            (helper.main_loop.status()["io"]["no_such_port"] == 1).then_some(())
        });

        for tci in [5, 7 << 13 | 62, 4094] {
            let [high, low] = u16::to_be_bytes(tci);
            peer.write_tagged([0x81, 0, high, low], &frame(4, 1514)).unwrap();
        }
        peer.write(&[0; 10], &frame(5, 60)).unwrap();
        let got = turn_until(&mut [&mut helper], &host, 4);
        assert!(got == [frame(4, 1514), frame(4, 1514), frame(4, 1514), frame(5, 60)]);
        let tag = |vid, pcp| Some(Tag { vid, pcp });
        assert_eq!(helper.seen.borrow().tags, [tag(5, 0), tag(62, 7), tag(4094, 0), None]);
        ip("link delete wire");
        let end = wait_for("the end", || helper.main_loop.turn().err());
        assert!(end.0.starts_with("TAP wire is gone"), "{end}");
    });
}

#[test]
fn without_credit_the_host_waits_in_its_tap() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let mut helper = start("--plain plain --wire wire --gro off", &[], Out::Slots);
        let (host, bridge) = (open("plain"), open("wire"));
        helper.seen.borrow_mut().refuses = true;
        (0..100).for_each(|i| send(&host, &frame(i, 100)));
        (0..20).for_each(|_| assert!(helper.main_loop.turn().unwrap()));
        assert!(helper.seen.borrow().lengths.is_empty(), "no frame was read");
        helper.seen.borrow_mut().refuses = false;
        assert!(
            turn_until(&mut [&mut helper], &bridge, 100)
                == (0..100).map(|i| frame(i, 100)).collect::<Vec<_>>()
        );
        // A TAP that goes away meanwhile is noticed as soon as it is used.
        helper.seen.borrow_mut().refuses = true;
        helper.main_loop.turn().unwrap();
        ip("link delete plain");
        helper.main_loop.turn().unwrap();
        helper.seen.borrow_mut().refuses = false;
        assert!(wait_for("the end", || helper.main_loop.turn().err())
            .0
            .starts_with("TAP plain is gone"));
    });
}

#[test]
fn two_helpers_without_a_bridge() {
    in_namespace(|| {
        make_veth("a0", "b0");
        make_veth("a1", "b1");
        let line = |host: &str| {
            format!("--autonomous --wire {host}0=1G,{host}1 --plain {host} --mtu-wire 1400")
        };
        let mut a = start(&line("a"), &[(0, "a0"), (1, "a1")], Out::Nic(1));
        let mut b = start(&line("b"), &[(0, "b0"), (1, "b1")], Out::Link(9, 1));
        let interfaces = Interfaces::open().unwrap();
        let nics = &a.facts.nics;
        assert_eq!(
            (nics[0].rate_bps, nics[1].rate_bps),
            (1_000_000_000, 10_000_000_000),
            "one rate was given, the other one is the veth's own"
        );
        assert_eq!((nics[1].port, nics[1].mac), (1, interfaces.mac("a1").unwrap()));
        assert_eq!(
            (a.facts.own_mac, interfaces.mtu("a").unwrap()),
            (Some(interfaces.mac("a").unwrap()), 1378)
        );
        ["a", "b"].iter().for_each(|name| quiet(name));
        let (host_a, host_b) = (open("a"), open("b"));
        let sent: Vec<_> = (0..200).map(|i| frame(i, 60 + 5 * usize::from(i))).collect();
        sent.iter().for_each(|frame| send(&host_a, frame));
        assert!(turn_until(&mut [&mut a, &mut b], &host_b, 200) == sent, "over the NICs, in order");
        sent.iter().for_each(|frame| send(&host_b, frame));
        assert!(turn_until(&mut [&mut a, &mut b], &host_a, 200) == sent, "and back");

        let bytes: u64 = sent.iter().map(|frame| frame.len() as u64).sum();
        let counted = |seen: &Seen| {
            seen.counters.iter().any(|entry| entry.0 == 1 && entry.1 >= bytes && entry.2)
        };
        wait_for("the NIC's counters", || {
            b.main_loop.turn().unwrap();
            counted(&b.seen.borrow()).then_some(())
        });

        // A NIC that was away is used again, even if another one has its name now.
        ip("link delete a1");
        make_veth("a1", "b1");
        wait_for("a frame over the new NIC", || {
            let _ = host_a.send(std::iter::once(&frame(1, 100)[..]));
            a.main_loop.turn().unwrap();
            b.main_loop.turn().unwrap();
            let mut got = Vec::new();
            host_b.receive(&mut vec![Vec::with_capacity(2048)], &mut got).is_ok().then_some(())
        });
    });
}

#[test]
fn a_nic_that_is_renamed_or_made_anew_under_another_name_is_used_on() {
    in_namespace(|| {
        make_veth("a0", "b0");
        let mut a = start("--autonomous --wire a0=1G --plain a", &[(0, "a0")], Out::Nic(0));
        quiet("a");
        let host = open("a");
        let other = open("b0");
        let mac = Interfaces::open().unwrap().mac("a0").unwrap();
        let is_up = |a: &Running| a.seen.borrow().counters.last().is_some_and(|last| last.2);
        wait_for("the NIC's state", || {
            a.main_loop.turn().unwrap();
            is_up(&a).then_some(())
        });
        ip("link set a0 down");
        ip("link set a0 name uplink");
        ip("link set uplink up");
        wait_for("the NIC's state under its new name", || {
            a.seen.borrow_mut().counters.clear();
            let _ = host.send(std::iter::once(&frame(1, 100)[..]));
            a.main_loop.turn().unwrap();
            is_up(&a).then_some(())
        });
        assert!(
            a.main_loop.status()["io"]["wire"]["uplink"].is_object(),
            "{}",
            a.main_loop.status()
        );
        send(&host, &frame(2, 100));
        turn_until(&mut [&mut a], &other, 1);

        // Here another NIC has its MAC, as after a driver was loaded again.
        drop(other);
        ip("link delete uplink");
        make_veth("c0", "d0");
        let text = mac.map(|byte| format!("{byte:02x}")).join(":");
        ip("link set c0 down");
        ip(&format!("link set c0 address {text}"));
        ip("link set c0 up");
        let other = open("d0");
        wait_for("a frame over the NIC with that MAC", || {
            let _ = host.send(std::iter::once(&frame(3, 100)[..]));
            a.main_loop.turn().unwrap();
            let mut got = Vec::new();
            other.receive(&mut vec![Vec::with_capacity(2048)], &mut got).is_ok().then_some(())
        });
    });
}

#[test]
fn what_a_slow_nic_cannot_take_is_bounded_and_counted() {
    in_namespace(|| {
        make_veth("a0", "b0");
        run("tc", "qdisc add dev a0 root tbf rate 8kbit burst 3000 limit 100000000");
        let mut a = start("--autonomous --wire a0=1G --plain a", &[], Out::Link(0, 0));
        let host = open("a");
        a.seen.borrow_mut().copies = 100;
        let written =
            |value: &serde_json::Value, key: &str| value["io"]["wire"]["a0"][key].as_u64().unwrap();
        let status = wait_for("a full NIC", || {
            let _ = host.send(std::iter::once(&frame(1, 1400)[..]));
            a.main_loop.turn().unwrap();
            let status = a.main_loop.status();
            (written(&status, "full") > 100).then_some(status)
        });
        let handed = 101 * a.seen.borrow().lengths.len() as u64;
        let waiting = handed - written(&status, "full") - written(&status, "written");
        assert!((1..=256).contains(&waiting), "{waiting} wait: {status}");
    });
}
