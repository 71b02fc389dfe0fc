// SPDX-License-Identifier: Apache-2.0
//! Two hosts, each a network namespace, with two NICs that lead to each other.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command};

use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

use crate::namespace::{run, wait_for};
use ri2n_fast::plan::{Arrival, Mac, Path, PathId, Peer, Plan, Source, Striped, SLOTS};
use ri2n_fast::programs::Device;

/// The VLAN of the second NIC's path.
pub const VLAN: u16 = 7;
/// The paths' numbers.
pub const PATHS: [PathId; 2] = [1 << 22 | 1 << 12, 2 << 22 | 2 << 12 | VLAN as u32];

/// A host's own MAC.
pub fn own(host: u8) -> Mac {
    [6, 0, 0, 0, 0, host]
}

/// The MAC of a host's NIC.
pub fn nic(host: u8, port: u8) -> Mac {
    [4, 0, 0, 0, host, port]
}

/// A MAC as text.
pub fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// What frames from the other host look like, by one of both NICs.
pub fn arrival(host: u8, port: u8) -> Arrival {
    Arrival {
        port: u32::from(port),
        source: nic(3 - host, port),
        destination: nic(host, port),
        vlan: (port == 2).then_some(VLAN),
    }
}

/// Host 1's or 2's plan, with both NICs for every other slot.
pub fn plan(host: u8) -> Plan {
    let paths = [1, 2].map(|port: u8| Path {
        id: PATHS[usize::from(port) - 1],
        port: u32::from(port),
        source: nic(host, port),
        destination: nic(3 - host, port),
        vlan: (port == 2).then_some(VLAN),
    });
    let slots: [u8; SLOTS] = std::array::from_fn(|slot| slot as u8 % 2);
    let peer = Peer { paths: paths.to_vec(), slots };
    let source = Source { peer: own(3 - host), lane: None };
    Plan {
        own: Some(own(host)),
        peers: BTreeMap::from([(own(3 - host), peer)]),
        arrivals: BTreeMap::from([1, 2].map(|port| (arrival(host, port), source.clone()))),
        ..Plan::default()
    }
}

/// The same plan with TCP striped over both NICs, the links 0 and 1.
pub fn striped_plan(host: u8) -> Plan {
    let mut plan = plan(host);
    let peer = plan.peers.remove(&own(3 - host)).unwrap();
    let paths = (0..).zip(peer.paths).collect();
    plan.striped.insert(own(3 - host), Striped { paths, others: true });
    for (arrival, source) in &mut plan.arrivals {
        source.lane = Some(arrival.port as u8 - 1);
    }
    plan
}

/// Both NICs.
pub fn devices() -> Vec<Device> {
    [1, 2].map(|port| Device { port, name: format!("nic{port}") }).to_vec()
}

/// The network namespace of the second host.
pub struct Other {
    process: Child,
    namespace: File,
}

impl Drop for Other {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Other {
    fn new() -> Self {
        let process = Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", process.id());
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        wait_for("a namespace", || {
            std::fs::read_link(&path).is_ok_and(|link| link != ours).then_some(())
        });
        Other { process, namespace: File::open(path).unwrap() }
    }

    /// Runs a program there.
    pub fn run(&self, line: &str) -> String {
        run(&format!("nsenter --net=/proc/{}/ns/net {line}", self.process.id()))
    }

    /// Moves the calling thread there.
    pub fn enter(&self) {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap();
    }
}

fn quiet(run: impl Fn(&str) -> String, device: &str) {
    run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
    run(&format!("ip link set {device} up"));
}

/// Makes the NICs of both hosts. Host 1 is the calling thread's namespace.
pub fn nics() -> Other {
    let other = Other::new();
    for port in [1, 2] {
        run(&format!(
            "ip link add nic{port} address {} type veth peer name nic{port} address {} netns {}",
            text(nic(1, port)),
            text(nic(2, port)),
            other.process.id()
        ));
        quiet(run, &format!("nic{port}"));
        quiet(|line| other.run(line), &format!("nic{port}"));
    }
    other
}

/// Makes a host's local port with addresses. What the programs leave comes out at `bridge`.
pub fn local(run: impl Fn(&str) -> String, host: u8) {
    run(&format!("ip link add local address {} type veth peer name bridge", text(own(host))));
    quiet(&run, "bridge");
    run("sysctl -qw net.ipv6.conf.local.accept_dad=0");
    run("ip link set local up");
    let peer = 3 - host;
    for (address, length, far) in [
        (format!("10.9.0.{host}"), 24, format!("10.9.0.{peer}")),
        (format!("fd09::{host}"), 64, format!("fd09::{peer}")),
    ] {
        run(&format!("ip addr add {address}/{length} dev local"));
        run(&format!("ip neigh add {far} lladdr {} dev local nud permanent", text(own(peer))));
    }
}

/// The kernel's number of a device of the calling thread's namespace.
pub fn ifindex(device: &str) -> u32 {
    run(&format!("ip -o link show {device}")).split(':').next().unwrap().parse().unwrap()
}
