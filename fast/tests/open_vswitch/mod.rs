// SPDX-License-Identifier: Apache-2.0
//! A real Open vSwitch on the netdev datapath, a bridge whose rows are those of a host with two
//! NICs and one peer, the peer itself (a plain kernel that has its NICs' addresses), and a watch.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::namespace::{run, wait_for};

pub const OWN: &str = "06:00:00:00:00:01";
pub const PEER: &str = "06:00:00:00:00:02";
const BRIDGE: &str = "br-ri2n";
const RUNDIR: &str = "/run/openvswitch";

/// A host and its peer. All of it is in the test's namespaces, and ends with them.
pub struct Host {
    /// Kept, since a child that nobody holds is not waited for.
    _ovsdb: Child,
    vswitchd: Child,
    watch: Option<Child>,
}

/// A program that goes on.
fn start(line: &str) -> Child {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn start_vswitchd() -> Child {
    let child = start(&format!(
        "ovs-vswitchd unix:{RUNDIR}/db.sock --pidfile --log-file={RUNDIR}/ovs-vswitchd.log \
         -vconsole:off"
    ));
    wait_for("ovs-vswitchd", || {
        let text = fs::read_to_string(format!("{RUNDIR}/ovs-vswitchd.pid")).ok()?;
        (text.trim() == child.id().to_string()).then_some(())
    });
    child
}

impl Host {
    /// Builds all of it, but starts no watch.
    pub fn new() -> Host {
        // A folder /run of the test's own.
        run("mount -t tmpfs none /run");
        fs::create_dir(RUNDIR).unwrap();
        run("ip link set lo up");
        run("ip netns add peer");
        for nic in 1..=2 {
            run(&format!(
                "ip link add eth{nic} address 04:00:00:00:01:0{nic} type veth peer name eth{nic} \
                 address 04:00:00:00:02:0{nic} netns peer"
            ));
            run(&format!("ip link set eth{nic} up"));
            run(&format!("ip -n peer link set eth{nic} up"));
        }
        run("ip -n peer addr add 10.0.0.2/24 dev eth1");
        run("ip -n peer neigh add 10.0.0.1 lladdr 04:00:00:00:01:01 dev eth1");
        // What is sent to the second NIC is for the same host.
        run("ip netns exec peer sysctl -q -w net.ipv4.conf.all.rp_filter=0");
        run("ip netns exec peer sysctl -q -w net.ipv4.conf.eth2.rp_filter=0");

        run(&format!(
            "ovsdb-tool create {RUNDIR}/conf.db /usr/share/openvswitch/vswitch.ovsschema"
        ));
        let ovsdb = start(&format!(
            "ovsdb-server {RUNDIR}/conf.db --remote=punix:{RUNDIR}/db.sock -vconsole:off"
        ));
        wait_for("ovsdb-server", || fs::metadata(format!("{RUNDIR}/db.sock")).ok());
        run("ovs-vsctl --no-wait init");
        let host = Host { _ovsdb: ovsdb, vswitchd: start_vswitchd(), watch: None };
        run(&format!(
            "ovs-vsctl add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev \
             fail_mode=secure protocols=OpenFlow15 other_config:disable-in-band=true \
             other_config:hwaddr=\"{OWN}\""
        ));
        for nic in 1..=2 {
            run(&format!(
                "ovs-vsctl add-port {BRIDGE} eth{nic} -- set interface eth{nic} ofport_request={nic}"
            ));
        }
        host.address();
        host.rows();
        host
    }

    /// Gives the bridge's device the host's address, as it must be done for every new one.
    pub fn address(&self) {
        wait_for("the bridge's device", || {
            fs::metadata(format!("/sys/class/net/{BRIDGE}")).ok().or_else(|| {
                // sysfs may show another namespace's devices
                run("ip -o link")
                    .contains(&format!(" {BRIDGE}:"))
                    .then(|| fs::metadata("/").unwrap())
            })
        });
        run(&format!("ip link set {BRIDGE} up"));
        run(&format!("ip addr replace 10.0.0.1/24 dev {BRIDGE}"));
        run(&format!("ip neigh replace 10.0.0.2 lladdr {PEER} dev {BRIDGE}"));
    }

    /// The rows of a host, as the controller would install them.
    pub fn rows(&self) {
        let bucket = |slot: usize| {
            let nic = slot % 2 + 1;
            format!(
                ",bucket=bucket_id:{slot},weight:100,watch_port:{nic},\
                 actions=set_field:{:#x}->reg1,resubmit(,30)",
                nic << 22 | nic << 12
            )
        };
        let buckets: String = (0..64).map(bucket).collect();
        run(&format!(
            "ovs-ofctl -O OpenFlow15 add-group {BRIDGE} \
             group_id=7,type=select,selection_method=dp_hash{buckets}"
        ));
        self.add("table=0,priority=100,in_port=LOCAL,actions=resubmit(,10)");
        self.add(&format!("table=10,priority=100,dl_src={OWN},dl_dst={PEER},actions=group:7"));
        for nic in 1..=2 {
            let (ours, theirs) =
                (format!("04:00:00:00:01:0{nic}"), format!("04:00:00:00:02:0{nic}"));
            let path = nic << 22 | nic << 12;
            self.add(&format!("table=0,priority=100,in_port={nic},actions=resubmit(,1)"));
            self.add(&format!(
                "table=1,priority=195,in_port={nic},dl_dst={ours},\
                 actions=set_field:{OWN}->eth_dst,resubmit(,3)"
            ));
            self.add(&format!(
                "table=3,priority=100,in_port={nic},dl_src={theirs},\
                 actions=set_field:{PEER}->eth_src,LOCAL"
            ));
            self.add(&format!(
                "table=30,priority=100,reg1={path:#x},dl_dst={PEER},\
                 actions=set_field:{ours}->eth_src,set_field:{theirs}->eth_dst,output:{nic}"
            ));
        }
    }

    /// Rows of a host with a helper, for a peer that has one, too: TCP and all else goes to the
    /// helper while its device is there, and links 0 and 1 are the two NICs.
    pub fn helper_rows(&self) {
        run(&format!(
            "ovs-ofctl -O OpenFlow15 add-group {BRIDGE} group_id=8,type=ff,\
             bucket=watch_port:101,actions=output:101,bucket=watch_group:7,actions=group:7"
        ));
        self.add(&format!(
            "table=10,priority=110,in_port=LOCAL,dl_src={OWN},dl_dst={PEER},vlan_tci=0,\
             actions=group:8"
        ));
        for link in 0..2 {
            let nic = link + 1;
            self.add(&format!(
                "table=0,priority=110,in_port=102,dl_vlan={nic},dl_dst={PEER},dl_type=0x88b6,\
                 actions=strip_vlan,set_field:{:#x}->reg1,resubmit(,30)",
                nic << 22 | nic << 12
            ));
        }
        self.add(&format!("table=0,priority=100,in_port=101,dl_dst={OWN},actions=LOCAL"));
        self.add("table=0,priority=90,in_port=102,actions=resubmit(,10)");
    }

    /// The two devices of a helper in the bridge, held open by nobody but with a carrier: the ends
    /// of veths, whose other ends drop everything.
    pub fn helper_ports(&self) {
        for (number, name) in [(101, "plain"), (102, "wire")] {
            run(&format!("ip link add {name} type veth peer name {name}-end"));
            run(&format!("ip link set {name} up"));
            run(&format!("ip link set {name}-end up"));
            run(&format!(
                "ovs-vsctl add-port {BRIDGE} {name} -- set interface {name} ofport_request={number}"
            ));
        }
    }

    pub fn add(&self, row: &str) {
        run(&format!("ovs-ofctl -O OpenFlow15 add-flow {BRIDGE} {row}"));
    }

    pub fn remove(&self, row: &str) {
        run(&format!("ovs-ofctl -O OpenFlow15 --strict del-flows {BRIDGE} {row}"));
    }

    /// How many frames the rows have counted that count paths and sources.
    pub fn counted_by_rows(&self) -> u64 {
        run("ovs-appctl revalidator/purge");
        let text = run(&format!("ovs-ofctl -O OpenFlow15 dump-flows {BRIDGE}"));
        let counting =
            |line: &&str| [" table=3,", " table=30,"].iter().any(|table| line.contains(table));
        let packets = |line: &str| {
            let (_, rest) = line.split_once("n_packets=").unwrap();
            rest.split(',').next().unwrap().parse::<u64>().unwrap()
        };
        text.lines().filter(counting).map(packets).sum()
    }

    /// Sends so many echo requests, all of which must be answered.
    pub fn ping(&self, count: u32) {
        run(&format!("ping -q -c {count} -i 0.002 -W 10 10.0.0.2"));
    }

    pub fn start_watch(&mut self) {
        let program = env!("CARGO_BIN_EXE_ri2n-fast");
        self.watch = Some(start(&format!("{program} watch --bridge {BRIDGE}")));
    }

    /// Kills the watch, so that it can do nothing more.
    pub fn kill_watch(&mut self) {
        let mut watch = self.watch.take().unwrap();
        watch.kill().unwrap();
        watch.wait().unwrap();
    }

    /// Sends the watch a signal, such as STOP.
    pub fn signal_watch(&self, signal: &str) {
        run(&format!("kill -{signal} {}", self.watch.as_ref().unwrap().id()));
    }

    /// How the watch ended by itself.
    pub fn watch_ended(&mut self) -> std::process::ExitStatus {
        self.watch.take().unwrap().wait().unwrap()
    }

    /// Kills ovs-vswitchd and starts it again, without rows.
    pub fn replace_vswitchd(&mut self) {
        self.vswitchd.kill().unwrap();
        self.vswitchd.wait().unwrap();
        self.vswitchd = start_vswitchd();
    }

    /// What the watch says of itself; None: it does not answer.
    pub fn status(&self) -> Option<Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_ri2n-fast"))
            .args(["status", "--json"])
            .output()
            .unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until the peer is in this state, and all is in force.
    pub fn await_peer(&self, state: &str) {
        self.await_status(&format!("the peer being {state}"), |status| {
            let in_force = status["programs"] == "in_force" && status["filter"] == "in_force";
            in_force && status["states"][PEER] == state
        });
    }

    /// Waits until what the watch says of itself is right.
    pub fn await_status(&self, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || self.status().filter(&is_right))
    }

    /// How many frames the programs have sent and taken.
    pub fn carried(&self) -> (u64, u64) {
        let status = self.status().unwrap();
        let of = |way: &str| status[way]["packets"].as_u64().unwrap();
        (of("sent"), of("arrived"))
    }

    pub fn ovs_log(&self) -> PathBuf {
        PathBuf::from(format!("{RUNDIR}/ovs-vswitchd.log"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The namespace's end kills the others.
        if std::thread::panicking() {
            if let Ok(log) = fs::read_to_string(self.ovs_log()) {
                eprintln!("{}", log.lines().rev().take(10).collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
