// SPDX-License-Identifier: Apache-2.0
//! Real TCP is striped over two NICs, one of which is slower than said, and put in order again.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use crate::hosts::{devices, ifindex, local, nics, own, striped_plan, Other};
use crate::model::order::Holder;
use crate::model::{self, Frame, Segment};
use crate::namespace::{in_namespace, run, wait_for};
use crate::order::returned;
use crate::striping::now_ns;
use ri2n_fast::programs::Programs;
use ri2n_fast::sys::packet::PacketSocket;
use ri2n_wire::shared::{Flow, Given, Shared};

const SECOND: u64 = 1_000_000_000;
const BYTES: usize = 6_000_000;

/// What is sent.
pub fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8).collect()
}

/// What the helper says: both links have 1 Gbit/s.
fn lease(shared: &Shared) {
    let steer = &shared.steers()[0];
    for lane in &steer.lanes[..2] {
        lane.ns_per_kib.store(8192, Relaxed);
    }
    steer.overhead.store(24, Relaxed);
    steer.links.store(3, Relaxed);
    steer.until_ns.store(now_ns() + 3600 * SECOND, Relaxed);
}

/// A host's programs, with a lease.
pub fn start(host: u8) -> (Programs, Shared) {
    let mut programs = Programs::load("local", &devices()).unwrap();
    programs.apply(&striped_plan(host)).unwrap();
    programs.attach().unwrap();
    let shared = Shared::new(&programs.maps()).unwrap();
    lease(&shared);
    (programs, shared)
}

/// A helper that knows no losses.
fn hold(shared: &Shared, held: &PacketSocket, host: u8, ends: &AtomicBool) {
    let mut holders: BTreeMap<u32, Holder<Vec<u8>>> = BTreeMap::new();
    while !ends.load(SeqCst) {
        let Some(mut bytes) = held.receive().unwrap() else {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        };
        let macs: &[u8; 12] = bytes[..12].try_into().unwrap();
        match Given::read(macs, own(host)) {
            Some(Given::Early { flow, .. }) => {
                bytes[..6].copy_from_slice(&own(host));
                let segment = segment(&bytes);
                let holder = holders.entry(flow).or_default();
                holder.queue.push_back((segment, bytes));
                holder.read();
                let state = &shared.flows()[flow as usize];
                let expected = || state.word.load(SeqCst) as u32;
                while let Some((segment, bytes)) = holder.release(expected(), false) {
                    held.send(&bytes).unwrap();
                    returned(state, segment);
                }
                if let Some(least) = holder.least() {
                    state.least.store(least, Relaxed);
                }
            }
            Some(Given::Wake { peer }) => {
                assert_eq!(peer, own(3 - host));
                shared.steers()[0].awake_ns.store(now_ns() + 3600 * SECOND, Relaxed);
            }
            None => panic!("{bytes:x?}"),
        }
    }
}

fn segment(bytes: &[u8]) -> Segment {
    let frame = Frame { bytes: bytes.to_vec(), gso_size: 0, gso_segs: 0 };
    model::segment(&frame, &model::flow(&frame).unwrap()).unwrap()
}

/// A counter of the kernel's TCP.
pub fn tcp_counter(run: impl Fn(&str) -> String, name: &str) -> u64 {
    let text = run("cat /proc/net/netstat");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let place = lines[0].split_whitespace().position(|it| it == name).unwrap();
    lines[1].split_whitespace().nth(place).unwrap().parse().unwrap()
}

/// Segments that TCP itself had to put in order.
fn out_of_order(run: impl Fn(&str) -> String) -> u64 {
    tcp_counter(run, "TCPOFOQueue")
}

/// Makes a host's local port, and NICs that send each segment by itself.
pub fn prepare(run: impl Fn(&str) -> String, host: u8) {
    local(&run, host);
    // The test's helper has no header for what a frame leaves to the NIC.
    for device in ["local", "nic1", "nic2"] {
        run(&format!("ethtool -K {device} tx off gso off gro off"));
    }
}

/// Sends from host 1 to host 2. Returns how many segments came out of order for TCP, and how many
/// the helper had.
fn send(other: &Other, is_ordered: bool) -> (u64, u64) {
    let before = out_of_order(|line| other.run(line));
    let (near, near_shared) = start(1);
    let early = std::thread::scope(|scope| {
        let far = scope.spawn(|| {
            other.enter();
            let (mut programs, shared) = start(2);
            if is_ordered {
                assert!(programs.set_hold(Some("hold")).unwrap());
            }
            let held = PacketSocket::open(ifindex("held")).unwrap();
            let ends = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| hold(&shared, &held, 2, &ends));
                let listener = TcpListener::bind("10.9.0.2:5000").unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert!(got == pattern(), "the stream has other bytes");
                // Also what TCP sent twice.
                let held = |flow: &Flow| flow.word.load(SeqCst) >> 32 != 0;
                wait_for("what is held", || (!shared.flows().iter().any(held)).then_some(()));
                ends.store(true, SeqCst);
            });
            let counts = programs.counts().unwrap();
            assert!(counts.dropped.values().all(|count| *count == 0), "{counts:?}");
            assert_eq!(counts.events["woken"], u64::from(is_ordered), "one copy is enough");
            let lanes = &shared.steers()[0].lanes[..2];
            let taken = lanes.iter().map(|lane| lane.frames_in.load(SeqCst)).sum::<u64>();
            (counts.events["early"], taken)
        });
        wait_for("a server", || other.run("ss -Htln").contains(":5000").then_some(()));
        let mut stream = TcpStream::connect("10.9.0.2:5000").unwrap();
        stream.write_all(&pattern()).unwrap();
        drop(stream);
        let (early, taken) = far.join().unwrap();
        let lanes = &near_shared.steers()[0].lanes[..2];
        let sent = lanes.iter().map(|lane| lane.frames_out.load(SeqCst));
        let sent: Vec<u64> = sent.collect();
        // The last acknowledgements may come when nobody counts any more.
        assert!(sent.iter().sum::<u64>() >= taken && taken > BYTES as u64 / 1500, "{taken}");
        assert!(sent.iter().all(|count| *count > BYTES as u64 / 1500 / 20), "{sent:?}");
        early
    });
    assert!(near.counts().unwrap().dropped.values().all(|count| *count == 0));
    (out_of_order(|line| other.run(line)) - before, early)
}

#[test]
fn tcp_over_two_links_comes_in_order() {
    in_namespace(|| {
        let other = nics();
        prepare(run, 1);
        prepare(|line| other.run(line), 2);
        other.run("ip link add hold type veth peer name held");
        for device in ["hold", "held"] {
            other.run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
            other.run(&format!("ip link set {device} up"));
        }
        // What is under way fits into the helper's socket.
        other.run("ip route replace 10.9.0.0/24 dev local window 40000");
        run("tc qdisc add dev nic2 root tbf rate 200mbit burst 20kb limit 20mb");
        let bridge = PacketSocket::open(ifindex("bridge")).unwrap();
        let (without, early) = send(&other, false);
        assert_eq!(early, 0);
        assert!(without > 100, "only {without} came in another order");
        let (with, early) = send(&other, true);
        assert!(early > 100, "the helper had {early}");
        assert!(with * 10 < without, "{with} and {without} came in another order");
        let left = std::iter::from_fn(|| bridge.receive().unwrap());
        assert_eq!(left.filter(|frame| frame[12..14] == [8, 0]).count(), 0);
    });
}

#[test]
fn a_ping_passes_beside_the_bridge_by_one_link() {
    in_namespace(|| {
        let other = nics();
        local(run, 1);
        local(|line| other.run(line), 2);
        let bridge = PacketSocket::open(ifindex("bridge")).unwrap();
        let (_near, shared) = start(1);
        let (programs, far_shared) = std::thread::scope(|scope| {
            let far = scope.spawn(|| {
                other.enter();
                start(2)
            });
            far.join().unwrap()
        });
        run("ping -q -c 30 -i 0.01 10.9.0.2");
        for shared in [&shared, &far_shared] {
            let lanes = &shared.steers()[0].lanes[..2];
            let mut out: Vec<u64> = lanes.iter().map(|it| it.frames_out.load(Relaxed)).collect();
            out.sort();
            assert_eq!(out, [0, 30]);
            let taken: u64 = lanes.iter().map(|lane| lane.frames_in.load(Relaxed)).sum();
            assert_eq!(taken, 30);
        }
        let left = std::iter::from_fn(|| bridge.receive().unwrap());
        assert_eq!(left.filter(|frame| frame[12..14] == [8, 0]).count(), 0);
        drop(programs);
    });
}
