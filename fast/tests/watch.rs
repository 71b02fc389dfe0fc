// SPDX-License-Identifier: Apache-2.0
//! A watch beside a real Open vSwitch: what its rows say is done, and is done by it again when they
//! change, and nobody's death disturbs that.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ri2n_fast::openflow::message::{self, first};

use crate::namespace::{in_namespace, run, wait_for, DEADLINE};
use crate::open_vswitch::{Host, OWN, PEER};

const PINGS: u32 = 20;
/// Frames that a ping needs each way.
const EACH: u64 = PINGS as u64;
const BOTH: u64 = 2 * EACH;

/// Which frames of a ping pass beside the bridge.
#[derive(Debug, PartialEq)]
enum Beside {
    All,
    WhatComesIn,
    None,
}

/// Pings. All frames of one direction must go one way.
fn ping(host: &Host) -> Beside {
    try_ping(host).unwrap_or_else(|other| panic!("{other:?} of {PINGS} pings"))
}

/// Pings. The frames of rows, sent and arrived, where other frames were counted, too.
fn try_ping(host: &Host) -> Result<Beside, (u64, u64, u64)> {
    let (rows, (sent, arrived)) = (host.counted_by_rows(), host.carried());
    host.ping(PINGS);
    let by_rows = host.counted_by_rows() - rows;
    let (sent, arrived) = (host.carried().0 - sent, host.carried().1 - arrived);
    match (by_rows, sent, arrived) {
        (0, EACH, EACH) => Ok(Beside::All),
        (EACH, 0, EACH) => Ok(Beside::WhatComesIn),
        (BOTH, 0, 0) => Ok(Beside::None),
        other => Err(other),
    }
}

#[test]
fn rows_say_what_passes_beside_the_bridge() {
    in_namespace(|| {
        let mut host = Host::new();
        host.ping(PINGS);
        assert_eq!(host.counted_by_rows(), BOTH, "without a watch all goes by the rows");
        host.start_watch();
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);

        // A row of somebody else, that only some of the frames meet.
        host.add("table=10,priority=500,ip,nw_tos=32,actions=drop");
        host.await_peer("undecided");
        assert_eq!(ping(&host), Beside::WhatComesIn);
        host.add("table=0,priority=500,ip,nw_tos=32,actions=drop");
        wait_for("the bridge having all", || (ping(&host) == Beside::None).then_some(()));
        host.remove("table=10,priority=500,ip,nw_tos=32");
        host.remove("table=0,priority=500,ip,nw_tos=32");
        host.await_peer("carried");
        wait_for("the bridge having none", || (ping(&host) == Beside::All).then_some(()));

        // A group that is changed, and comes back.
        run("ovs-ofctl -O OpenFlow15 mod-group br-ri2n group_id=7,type=all");
        host.await_peer("unsupported");
        run("ovs-ofctl -O OpenFlow15 del-groups br-ri2n");
        run("ovs-ofctl -O OpenFlow15 del-flows br-ri2n");
        host.rows();
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);

        // Somebody who wants to see all frames.
        run("ovs-vsctl -- --id=@m create mirror name=m select_all=true output_vlan=77 \
             -- set bridge br-ri2n mirrors=@m");
        host.await_peer("undecided");
        run("ovs-vsctl clear bridge br-ri2n mirrors");
        host.await_peer("carried");
        // A spanning tree closes ports, and no row says so.
        run("ovs-vsctl set bridge br-ri2n stp_enable=true");
        host.await_peer("undecided");
        run("ovs-vsctl set bridge br-ri2n stp_enable=false");
        host.await_peer("carried");
        // The ports open one after the other.
        wait_for("an answer", || {
            let ping = ["-q", "-c", "1", "-W", "1", "10.0.0.2"];
            Command::new("ping").args(ping).output().unwrap().status.success().then_some(())
        });
        assert_eq!(ping(&host), Beside::All);
    });
}

#[test]
fn programs_of_a_killed_watch_go_on_for_a_while_and_another_takes_over() {
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        let rows = host.counted_by_rows();
        host.kill_watch();
        host.ping(PINGS);
        assert_eq!(host.counted_by_rows(), rows, "the programs go on");
        // Then the bridge has all again, and nothing is lost.
        wait_for("the bridge having all", || {
            let rows = host.counted_by_rows();
            host.ping(PINGS);
            (host.counted_by_rows() - rows == BOTH).then_some(())
        });
        host.start_watch();
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);
    });
}

/// Rows that forbid something are walls, also while nobody tells the programs of them.
#[test]
fn rows_are_obeyed_while_the_watch_stands_still() {
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);
        host.signal_watch("STOP");
        for table in [0, 10] {
            host.add(&format!("table={table},priority=500,ip,actions=drop"));
        }
        let ping_once = ["ping", "-q", "-c", "1", "-W", "1", "10.0.0.2"];
        let passes =
            || Command::new(ping_once[0]).args(&ping_once[1..]).output().unwrap().status.success();
        wait_for("the rows being obeyed", || (!passes()).then_some(()));
        assert!((0..3).all(|_| !passes()), "the wall is not whole");
        // What it hears first when it goes on is old.
        host.signal_watch("CONT");
        host.await_peer("undecided");
        assert!(!passes());
        for table in [0, 10] {
            host.remove(&format!("table={table},priority=500,ip"));
        }
        host.await_peer("carried");
        wait_for("the bridge having none", || (ping(&host) == Beside::All).then_some(()));
    });
}

/// Some frames to the host are Open vSwitch's own: those of a tunnel that ends in it.
#[test]
fn a_tunnel_that_ends_in_open_vswitch_has_its_frames() {
    in_namespace(|| {
        let mut host = Host::new();
        run("ip -n peer link add tunnel type vxlan id 7 remote 10.0.0.1 local 10.0.0.2 \
             dstport 4789 dev eth1");
        run("ip -n peer addr add 10.1.0.2/24 dev tunnel");
        run("ip -n peer link set tunnel up");
        host.start_watch();
        host.await_peer("carried");
        run("ovs-vsctl add-br inside -- set bridge inside datapath_type=netdev");
        wait_for("the inner bridge", || {
            run("ip -o link").contains(" inside:").then(|| run("ip link set inside up"))
        });
        run("ovs-vsctl add-port inside tunnel -- set interface tunnel type=vxlan options:key=7 \
             options:remote_ip=10.0.0.2");
        run("ip -n peer neigh add 10.1.0.1 lladdr 02:00:00:00:00:01 dev tunnel");
        let came = || run("ovs-appctl dpctl/dump-flows netdev@ovs-netdev").contains("tnl_pop(");
        assert!(!came());
        wait_for("a frame through the tunnel", || {
            // Nobody has that address.
            let ping = "netns exec peer ping -q -c 1 -W 0.1 10.1.0.1".split(' ');
            assert!(!Command::new("ip").args(ping).output().unwrap().status.success());
            came().then_some(())
        });
        // Its kernel asks for routers now and then: a frame that finds no tunnel here is answered.
        run("ip -n peer link del tunnel");
        run("ovs-vsctl del-port inside tunnel");
        host.await_peer("carried");
        wait_for("the bridge having none", || (try_ping(&host) == Ok(Beside::All)).then_some(()));
    });
}

#[test]
fn a_new_vswitchd_is_followed() {
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        host.replace_vswitchd();
        host.address();
        wait_for("a plan without rows", || {
            let status = host.status()?;
            (status["programs"] == "in_force" && status["states"].as_object()?.is_empty())
                .then_some(())
        });
        host.rows();
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);
    });
}

#[test]
fn a_nic_without_a_carrier_is_left_by_all_slots() {
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        let paths = || {
            let output =
                Command::new(env!("CARGO_BIN_EXE_ri2n-fast")).arg("plan").output().unwrap();
            let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            plan["peers"][PEER]["paths"].as_array().unwrap().len()
        };
        assert_eq!(paths(), 2);
        run("ip -n peer link set eth2 down");
        wait_for("one path", || (paths() == 1).then_some(()));
        // Every flow finds the peer by the other NIC. Each ping is a flow of its own.
        wait_for("pings by one NIC", || {
            let ping = "ping -q -c 1 -W 1 10.0.0.2".split(' ').collect::<Vec<_>>();
            let pinged =
                |_| Command::new(ping[0]).args(&ping[1..]).output().unwrap().status.success();
            (0..8).all(pinged).then_some(())
        });
        run("ip -n peer link set eth2 up");
        wait_for("two paths", || (paths() == 2).then_some(()));
        host.await_peer("carried");
        assert_eq!(ping(&host), Beside::All);
    });
}

#[test]
fn an_unload_ends_the_watch_and_leaves_nothing() {
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        let unload = format!("{} unload --bridge br-ri2n", env!("CARGO_BIN_EXE_ri2n-fast"));
        run(&unload);
        assert!(host.watch_ended().success());
        for device in ["eth1", "eth2", "br-ri2n"] {
            assert!(!run(&format!("tc qdisc show dev {device}")).contains("clsact"), "{device}");
        }
        let rows = host.counted_by_rows();
        host.ping(PINGS);
        assert_eq!(host.counted_by_rows() - rows, BOTH);
        run(&unload);
    });
}

#[test]
fn a_bridge_has_one_watch() {
    let second = || {
        let folder = format!("/tmp/ri2n-fast-second-{}", std::process::id());
        let program = env!("CARGO_BIN_EXE_ri2n-fast");
        let arguments = ["watch", "--bridge", "br-ri2n", "--state", &folder];
        let ended = Command::new(program).args(arguments).output().unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        (ended.status.success(), String::from_utf8(ended.stderr).unwrap())
    };
    in_namespace(|| {
        let mut host = Host::new();
        host.start_watch();
        host.await_peer("carried");
        let pid = host.status().unwrap()["pid"].as_u64().unwrap();
        for _ in 0..2 {
            let (success, said) = second();
            assert!(!success);
            let why = format!("another ri2n-fast, process {pid}, watches the bridge br-ri2n");
            assert!(said.contains(&why), "{said}");
        }
        assert_eq!(ping(&host), Beside::All);
    });
}

/// Waits for the bridge's connection, as a controller does.
pub struct Controller(JoinHandle<TcpStream>);

/// A controller's connection to the bridge.
pub struct Reports {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Controller {
    /// Makes the bridge connect, and gives it its rows again: a bridge that gets its first
    /// controller loses them, a bit later.
    pub fn of(host: &Host) -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accept = move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream.write_all(&message::hello()).unwrap();
            stream
        };
        let controller = Controller(thread::spawn(accept));
        run(&format!("ovs-vsctl set-controller br-ri2n tcp:127.0.0.1:{port}"));
        wait_for("the connection", || {
            run("ovs-vsctl get controller br-ri2n is_connected").contains("true").then_some(())
        });
        run("ovs-ofctl -O OpenFlow15 del-groups br-ri2n");
        host.rows();
        controller
    }

    pub fn connect(self) -> Reports {
        Reports { stream: self.0.join().unwrap(), bytes: Vec::new() }
    }
}

impl Reports {
    /// The next report, and its kind.
    pub fn next(&mut self) -> (usize, Vec<u8>) {
        const PACKET_IN: u8 = 10;
        let mut head = [0; 6].to_vec();
        head.extend(mac(OWN));
        head.extend([0x88, 0xb6, 1]);
        let mut buffer = [0; 4096];
        loop {
            while let Some(length) = first(&self.bytes).unwrap() {
                let message: Vec<u8> = self.bytes.drain(..length).collect();
                let at = message.windows(head.len()).position(|it| it == head);
                if let (PACKET_IN, Some(at)) = (message[1], at) {
                    return (usize::from(message[at + head.len()]), message[at..].to_vec());
                }
            }
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the bridge closed the connection");
            self.bytes.extend(&buffer[..read]);
        }
    }

    /// The last report of each kind, as soon as there is one of each, and a peer's slots.
    fn of_each_kind(mut self) -> [Vec<u8>; 3] {
        const SLOTS: usize = 3;
        let mut found = [const { None }; 3];
        while found.iter().any(Option::is_none) {
            let (kind, report) = self.next();
            if kind != SLOTS || report.windows(6).any(|it| it == mac(PEER)) {
                found[kind - 1] = Some(report);
            }
        }
        found.map(Option::unwrap)
    }
}

fn mac(text: &str) -> Vec<u8> {
    text.split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect()
}

#[test]
fn a_controller_gets_reports_by_the_bridge() {
    in_namespace(|| {
        let mut host = Host::new();
        let controller = Controller::of(&host);
        host.start_watch();
        host.await_peer("carried");
        host.ping(PINGS);
        let [counts, state, slots] = controller.connect().of_each_kind();
        assert!(counts.windows(6).any(|it| it == mac(PEER)));
        let mut carried = mac(PEER);
        carried.extend([0, 0]);
        assert!(state.windows(8).any(|it| it == carried));
        assert!(slots.windows(8).any(|it| it == carried), "its record begins with as many zeros");
    });
}

/// The digest of the obeyed rows in a report of the state.
fn obeyed(report: &[u8]) -> u64 {
    u64::from_be_bytes(report[46..54].try_into().unwrap())
}

#[test]
fn a_controller_hears_which_of_its_rows_are_obeyed() {
    const STATE: usize = 2;
    const OF_ROW: u64 = 0x1234_5678_9abc;
    in_namespace(|| {
        let mut host = Host::new();
        let controller = Controller::of(&host);
        host.start_watch();
        host.await_peer("carried");
        let mut reports = controller.connect();
        let started = Instant::now();
        let mut until = |wanted: &dyn Fn(u64) -> bool| loop {
            let (kind, report) = reports.next();
            assert!(started.elapsed() < DEADLINE, "the last report: {report:x?}");
            if kind == STATE && wanted(obeyed(&report)) {
                return obeyed(&report);
            }
        };
        let before = until(&|it| it != 0);
        assert_eq!(before >> 48, 0x5232);
        let row = "table=10,priority=501,udp,tp_dst=7";
        host.add(&format!("cookie={:#x},{row},actions=drop", 0x5232 << 48 | OF_ROW));
        until(&|it| it == before ^ OF_ROW);
        // Rows of others do not count.
        host.add(&format!("cookie={:#x},{row},nw_tos=32,actions=drop", OF_ROW + 1));
        host.remove(&format!("{row},nw_tos=0/0"));
        until(&|it| it == before);
    });
}
