// SPDX-License-Identifier: Apache-2.0
//! A watch beside a helper: how it gets the maps, what is held for it, and what follows from what it
//! writes into them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ri2n_fast::programs::segments::{self, Segments};
use ri2n_wire::handover::{socket_in, Connection};
use ri2n_wire::shared::Shared;
use rustix::net::{connect, send, socket, AddressFamily, SendFlags, SocketAddrUnix, SocketType};
use serde_json::Value;

use crate::namespace::{in_namespace, run, wait_for};
use crate::open_vswitch::Host;
use crate::watch::Controller;

const PEER_MAC: [u8; 6] = [6, 0, 0, 0, 0, 2];
const STATE: &str = "/run/ri2n-fast";
const HOLD: &str = "ri2n-hold";
const STATE_KIND: usize = 2;
const WHOLE: u32 = 65_536;

/// A helper's part of the handover.
struct Helper {
    connection: Connection,
    maps: Shared,
}

impl Helper {
    /// Connects as soon as there is somebody to connect to, and waits for the maps.
    fn connect() -> Helper {
        let path = socket_in(Path::new(STATE));
        let mut connection = wait_for("the socket", || Connection::new(&path).ok());
        let maps = wait_for("the maps", || connection.take().unwrap());
        Helper { connection, maps }
    }

    /// Connects while somebody else has the maps, who goes then.
    fn connect_after(other: OwnedFd) -> Helper {
        let mut connection = Connection::new(&socket_in(Path::new(STATE))).unwrap();
        drop(other);
        let maps = wait_for("the maps", || connection.take().unwrap());
        Helper { connection, maps }
    }

    /// Links 0 and 1 to the peer may carry for so long, at this rate.
    fn stripe(&self, seconds: u64, kbps: u64) {
        let place = wait_for("the peer's place", || self.maps.place_of(PEER_MAC));
        let steer = &self.maps.steers()[place];
        for lane in &steer.lanes[..2] {
            lane.ns_per_kib.store((8_192_000_000 / kbps) as u32, Relaxed);
        }
        steer.links.store(3, Relaxed);
        let until_ns = ri2n_fast::sys::now_ns() + seconds * 1_000_000_000;
        steer.until_ns.store(until_ns, Relaxed);
    }

    fn stop(&self) {
        let place = self.maps.place_of(PEER_MAC).unwrap();
        self.maps.steers()[place].until_ns.store(0, Relaxed);
    }
}

/// A connection by somebody who is no helper.
fn connected() -> OwnedFd {
    let stranger = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = socket_in(Path::new(STATE));
    connect(&stranger, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    stranger
}

fn hold_device() {
    run(&format!("ip tuntap add {HOLD} mode tap vnet_hdr"));
    run(&format!("ip link set {HOLD} up"));
}

fn host() -> Host {
    let host = Host::new();
    host.helper_ports();
    host.helper_rows();
    host
}

fn await_order(host: &Host, order: &str, lacks: Value) {
    host.await_status(&format!("the order {order}, lacking {lacks}"), |status| {
        status["order"] == order && status["order_lacks"] == lacks
    });
}

/// The number in what `ip` says of the bridge's device.
fn gso_max_size() -> u32 {
    gso_max_size_of("br-ri2n")
}

fn gso_max_size_of(device: &str) -> u32 {
    let text = run(&format!("ip -d -o link show {device}"));
    let (_, rest) = text.split_once("gso_max_size ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn order_is_kept_as_long_as_a_helper_is_ready_and_its_device_is_there() {
    in_namespace(|| {
        let mut host = host();
        hold_device();
        host.start_watch();
        host.await_peer("striped");
        await_order(&host, "none", "helper".into());
        assert!(!run(&format!("tc qdisc show dev {HOLD}")).contains("clsact"));

        let first = Helper::connect();
        await_order(&host, "none", "helper".into());
        first.connection.ready().unwrap();
        await_order(&host, "ready", Value::Null);
        assert!(run(&format!("tc filter show dev {HOLD} ingress")).contains("ri2n-fast"));

        // A second one waits until the first is gone.
        let mut second = Connection::new(&socket_in(Path::new(STATE))).unwrap();
        assert!(second.take().unwrap().is_none());
        drop(first);
        let maps = wait_for("the maps", || second.take().unwrap());
        await_order(&host, "none", "helper".into());
        let second = Helper { connection: second, maps };
        second.connection.ready().unwrap();
        await_order(&host, "ready", Value::Null);

        // A device that is removed, and comes back as another one.
        run(&format!("ip link del {HOLD}"));
        await_order(&host, "none", "device".into());
        hold_device();
        await_order(&host, "ready", Value::Null);
        assert!(run(&format!("tc filter show dev {HOLD} ingress")).contains("ri2n-fast"));

        // Whoever says something else is not ready, and whoever goes is forgotten.
        drop(second);
        await_order(&host, "none", "helper".into());
        for said in [&b"READY"[..], b"read", b"", &[b'r'; 9000]] {
            let stranger = connected();
            let _ = send(&stranger, said, SendFlags::NOSIGNAL);
            let waiting = Helper::connect_after(stranger);
            await_order(&host, "none", "helper".into());
            drop(waiting);
        }

        let fourth = Helper::connect();
        fourth.connection.ready().unwrap();
        await_order(&host, "ready", Value::Null);
        host.kill_watch();
        wait_for("the end of the connection", || (!fourth.connection.is_open()).then_some(()));
        host.start_watch();
        let next = Helper::connect();
        next.connection.ready().unwrap();
        await_order(&host, "ready", Value::Null);

        run(&format!("{} unload --bridge br-ri2n", env!("CARGO_BIN_EXE_ri2n-fast")));
        assert!(host.watch_ended().success());
        assert!(!run(&format!("tc qdisc show dev {HOLD}")).contains("clsact"));
        assert!(!socket_in(Path::new(STATE)).exists());
    });
}

#[test]
fn a_watch_without_the_device_says_what_is_missing() {
    in_namespace(|| {
        let mut host = host();
        host.start_watch();
        host.await_peer("striped");
        let helper = Helper::connect();
        helper.connection.ready().unwrap();
        await_order(&host, "none", "device".into());
        hold_device();
        await_order(&host, "ready", Value::Null);
        let text = run(&format!("{} status", env!("CARGO_BIN_EXE_ri2n-fast")));
        assert!(text.contains("put in order by the helper"), "{text}");
    });
}

#[test]
fn a_peer_is_striped_beside_the_bridge_while_the_helper_says_so() {
    in_namespace(|| {
        let mut host = host();
        host.start_watch();
        host.await_peer("striped");
        let helper = Helper::connect();
        helper.connection.ready().unwrap();
        assert_eq!(gso_max_size(), WHOLE);

        helper.stripe(60, 100_000);
        host.await_peer("striped_tcp");
        let bound = segments::size(100_000, 1500);
        let status = host.await_status("the bound", |status| status["gso_max_size"] == bound);
        let (all, tcp) = (&status["peers"]["striped"], &status["peers"]["striped_tcp"]);
        assert_eq!((all, tcp), (&0.into(), &1.into()));
        assert_eq!(gso_max_size(), bound);
        helper.stripe(60, 400_000);
        let other = segments::size(400_000, 1500);
        host.await_status("another bound", |status| status["gso_max_size"] == other);

        // Rows come before what the helper says: this one keeps some of TCP in the bridge.
        host.add("table=10,priority=500,tcp,nw_tos=32,actions=drop");
        host.await_peer("striped");
        host.remove("table=10,priority=500,tcp,nw_tos=32");
        host.await_peer("striped_tcp");

        helper.stop();
        host.await_peer("striped");
        host.await_status("no bound", |status| status["gso_max_size"].is_null());
        assert_eq!(gso_max_size(), WHOLE);

        // A lease ends by itself.
        helper.stripe(1, 100_000);
        host.await_peer("striped_tcp");
        host.await_peer("striped");
    });
}

#[test]
fn the_size_of_pieces_is_given_back() {
    in_namespace(|| {
        let mut host = host();
        let unload = format!("{} unload --bridge br-ri2n", env!("CARGO_BIN_EXE_ri2n-fast"));
        let bound = segments::size(100_000, 1500);
        // What somebody had set before.
        run("ip link set br-ri2n gso_max_size 40000");
        host.start_watch();
        let helper = Helper::connect();
        helper.stripe(600, 100_000);
        wait_for("the bound", || (gso_max_size() == bound).then_some(()));
        run(&unload);
        assert!(host.watch_ended().success());
        assert_eq!(gso_max_size(), 40_000);

        // The next watch, and an unload without a watch, know nothing of that.
        host.start_watch();
        let helper = Helper::connect();
        helper.stripe(600, 100_000);
        wait_for("the bound", || (gso_max_size() == bound).then_some(()));
        host.kill_watch();
        host.start_watch();
        wait_for("the whole size", || (gso_max_size() == WHOLE).then_some(()));
        let helper = Helper::connect();
        helper.stripe(600, 100_000);
        wait_for("the bound", || (gso_max_size() == bound).then_some(()));
        host.kill_watch();
        run(&unload);
        assert_eq!(gso_max_size(), WHOLE);
    });
}

#[test]
fn a_size_stays_while_it_is_nearly_right_and_leases_may_come_again() {
    in_namespace(|| {
        run("ip link add local gso_max_size 50000 type veth peer name far");
        let start = Instant::now();
        let mut segments = Segments::of("local", start).unwrap();
        let mut bound = |slowest_kbps: Option<u64>, after_ms: u64| {
            let now = start + Duration::from_millis(after_ms);
            let bound = segments.bound(slowest_kbps, now).unwrap();
            (bound, gso_max_size_of("local"))
        };
        let first = segments::size(400_000, 1500);
        assert_eq!(bound(None, 0), (None, 50_000));
        assert_eq!(bound(Some(400_000), 1), (Some(first), first));
        // Up to a fifth more or less.
        assert_eq!(bound(Some(470_000), 2), (Some(first), first));
        assert_eq!(bound(Some(330_000), 3), (Some(first), first));
        let less = segments::size(300_000, 1500);
        assert_eq!(bound(Some(300_000), 4), (Some(less), less));
        // As much as it was at most.
        assert_eq!(bound(Some(10_000_000), 5), (None, 50_000));
        assert_eq!(bound(Some(400_000), 6), (Some(first), first));
        assert_eq!(bound(None, 5_000), (Some(first), first));
        assert_eq!(bound(None, 5_006), (None, 50_000));
        // What somebody else sets stays, as soon as nobody is striped.
        assert_eq!(bound(Some(400_000), 6_000), (Some(first), first));
        run("ip link set local gso_max_size 30000");
        assert_eq!(bound(None, 20_000), (None, 30_000));
        // A device that is made anew.
        assert_eq!(bound(Some(100_000), 21_000).0, Some(segments::size(100_000, 1500)));
        run("ip link del local");
        assert_eq!(segments.bound(Some(100_000), start).unwrap(), None);
        run("ip link add local type veth peer name far");
        let again = segments.bound(Some(100_000), start).unwrap();
        assert_eq!(again, Some(gso_max_size_of("local")));
        segments.give_back().unwrap();
        assert_eq!(gso_max_size_of("local"), WHOLE);
    });
}

#[test]
fn the_controller_hears_at_once_of_order_and_of_what_is_striped() {
    in_namespace(|| {
        let mut host = host();
        hold_device();
        let controller = Controller::of(&host);
        host.helper_rows();
        host.start_watch();
        host.await_peer("striped");
        let helper = Helper::connect();
        helper.connection.ready().unwrap();
        helper.stripe(600, 100_000);
        let mut reports = controller.connect();
        let mut await_state = |order: u8, code: u8| {
            let peer = [&PEER_MAC[..], &[code, 0]].concat();
            while {
                let (kind, report) = reports.next();
                let says = report[40] == order && report.windows(8).any(|it| it == peer);
                kind != STATE_KIND || !says
            } {}
        };
        await_state(1, 5);
        drop(helper);
        await_state(0, 5);
    });
}

#[test]
fn pieces_are_a_quarter_of_a_millisecond_of_the_slowest_link() {
    assert_eq!(segments::size(1_000_000, 1500), 31_250 + 400);
    assert_eq!(segments::size(100_000, 1500), 3_125 + 400);
    assert_eq!(segments::size(10_000, 1500), 1500 + 400);
    assert_eq!(segments::size(10_000, 9000), 9000 + 400);
    assert_eq!(segments::size(10_000_000, 1500), WHOLE);
    assert_eq!(segments::size(u64::MAX, 1500), WHOLE);
    assert_eq!(segments::size(0, u32::MAX), WHOLE);
}
