# SPDX-License-Identifier: Apache-2.0
"""Make the parts of a lab: namespaces, links, Open vSwitches and switches."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml

from ri2n_lab.cluster import ovs, plan, state
from ri2n_lab.cluster.helpers import address_mtu, autonomous_commands
from ri2n_lab.cluster.inside import write_settings
from ri2n_lab.cluster.lab_base import OVS_ON_HOSTS, LabBase
from ri2n_lab.cluster.namespaces import add_namespaces
from ri2n_lab.cluster.run import CommandFailed, in_namespace, in_parallel, ip_batch, run
from ri2n_lab.cluster.sockets import widen_packet_sockets
from ri2n_sdn.errors import NotAvailable

__all__ = ["ETC_NETNS", "OFFLOADS_OFF", "make_namespaces", "start_ovs", "widen_sockets"]

ETC_NETNS = Path("/etc/netns")
SOCKET_BYTES = 16 << 20
OFFLOADS_OFF = "tso off gso off gro off tx off rx off"


# ---- namespaces and links


def make_namespaces(lab: LabBase) -> None:
    """Make all namespaces of a lab, and their devices with addresses and shapers.

    In a lab whose switches are cables, the namespace of the switches has no device.
    """
    names = {host: lab.namespace(host) for host in ("sw", "mgmt", *lab.hosts)}
    # The first `ip netns add` after boot remounts /run/netns, which two must not do at once.
    with state.locked(""):
        for name in names.values():
            folder = ETC_NETNS / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(plan.hosts_file(lab.topology))
        add_namespaces(names.values())
    in_parallel(lambda host: _prepare_namespace(lab, host), names)
    ip_batch(plan.link_commands(lab.topology, names, direct=lab.switches == "cable"))
    in_parallel(lambda host: _configure_namespace(lab, host), names)


def _prepare_namespace(lab: LabBase, host: str) -> None:
    """Write the sysctls, before there is any device that would speak IPv6 on its own."""
    namespace = lab.namespace(host)
    on_fabric = host in lab.topology.hosts
    off = 0 if on_fabric else 1
    settings = [f"net/ipv6/conf/{which}/disable_ipv6={off}" for which in ("all", "default")]
    settings += ["net/ipv6/conf/all/accept_dad=0", "net/ipv6/conf/default/accept_dad=0"]
    write_settings(namespace, *settings)
    if on_fabric:
        # TCP remembers what it measured of a destination. Without this setting, a measurement
        # would depend on those before it.
        write_settings(namespace, "net/ipv4/tcp_no_metrics_save=1")
        # The kernel refuses this in a namespace where the machine's
        # tcp_allowed_congestion_control lacks cubic. No figure depends on it: programs that
        # measure ask for cubic themselves, which root may.
        with suppress(NotAvailable):
            write_settings(namespace, "net/ipv4/tcp_congestion_control=cubic")


def _configure_namespace(lab: LabBase, host: str) -> None:
    """Give the devices of a namespace their addresses and shapers, and set them up.

    Cables between switches stay down until `_wire_switches`.
    """
    namespace = lab.namespace(host)
    links, queues = ["link set lo up"], []
    devices: list[str] = []
    cables: list[str] = []
    if host == "sw":
        for port in plan.switch_ports(lab.topology) if lab.switches != "cable" else ():
            queues += plan.switch_queue(
                port.device, port.nic.rate_bps, lab.topology.switches[port.switch]
            )
            devices.append(port.device)
        for end in plan.cable_ends(lab.topology):
            queues += plan.switch_queue(end.device, end.rate_bps, lab.topology.switches[end.switch])
            cables.append(end.device)
    elif host == "mgmt":
        links += [
            "link add control type bridge forward_delay 0 mcast_snooping 0",
            "link set control up",
            f"addr add {plan.CONTROLLER_ADDRESS}/24 dev control",
        ]
        links += [f"link set m-{name} master control up" for name in lab.topology.managed_hosts()]
    else:
        spec = lab.topology.hosts[host]
        for nic in spec.nics:
            queues += plan.nic_queue(nic, lab.datapath)
            devices.append(nic.name)
        if lab.software == "autonomous" and host in lab.helpers.hosts:
            links += autonomous_commands(lab.topology, host)
            write_settings(
                namespace, *(f"net/ipv6/conf/{nic.name}/disable_ipv6=1" for nic in spec.nics)
            )
        else:
            # The addresses are on the first NIC, as on a host before RI2N: host-up moves them to
            # the bridge.
            links.append(f"addr add {lab.address(host)}/24 brd + dev {spec.nics[0].name}")
            links.append(f"addr add {lab.address6(host)}/64 dev {spec.nics[0].name} nodad")
            if lab.has_helpers and (not spec.managed or lab.software == "autonomous"):
                links.append(f"link set {spec.nics[0].name} mtu {address_mtu()}")
        if spec.managed:
            links += [
                f"addr add {plan.management_address(lab.topology, host)}/24 dev mgmt0",
                "link set mgmt0 up",
            ]
            write_settings(namespace, "net/ipv6/conf/mgmt0/disable_ipv6=1")
    # The offloads are switched off before a device is up, so no frame meets them.
    offloads = "".join(f"ethtool -K {device} {OFFLOADS_OFF}\n" for device in devices + cables)
    run(in_namespace(namespace, ["bash", "-e"]), stdin=offloads)
    ip_batch([*links, *(f"link set {device} up" for device in devices)], namespace)
    ip_batch(queues, namespace, "tc")


# ---- Open vSwitches and switches


def start_ovs(lab: LabBase, *, userspace_tso: bool) -> None:
    """Start the hosts' Open vSwitches, and make the switches with their ports and cables.

    `userspace_tso` is that of `Lab.create`.
    """
    template = lab.run_dir / "template.db"
    ovs.make_template(template, userspace_tso=userspace_tso)
    places = lab.topology.managed_hosts() if lab.software in OVS_ON_HOSTS else []
    if lab.switches == "ovs":
        places = [*places, "sw"]
    in_parallel(lambda host: ovs.start(lab.run_dir / host, lab.namespace(host), template), places)
    if lab.switches == "ovs":
        _add_bridges(lab)
    _wire_switches(lab)


def _add_bridges(lab: LabBase) -> None:
    """Make the switches, as bridges of one Open vSwitch, with all their ports."""
    # With any other type than linux-noop, OVS removes the ports' TBF as it takes them.
    args = ["--", "--id=@noop", "create", "QoS", "type=linux-noop"]
    for switch in lab.topology.switches:
        args += ["--", "add-br", switch]
        args += ["--", "set", "bridge", switch, f"datapath_type={lab.datapath}"]
    ports = [(port.switch, port.device, port.number) for port in plan.switch_ports(lab.topology)]
    ports += [(end.switch, end.device, end.number) for end in plan.cable_ends(lab.topology)]
    for switch, device, number in ports:
        args += ["--", "add-port", switch, device]
        args += ["--", "set", "interface", device, f"ofport_request={number}"]
        args += ["--", "set", "port", device, "qos=@noop"]
    lab.vsctl("sw", *args)


def _wire_switches(lab: LabBase) -> None:
    """Configure switches that have cables between them, then set the cables up.

    Each switch gets the file that an operator would use. The cables have no carrier until then:
    without VLANs they form circles.
    """
    ends = plan.cable_ends(lab.topology)
    if not ends:
        return
    folder = lab.run_dir / "switches"
    folder.mkdir()
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(lab.topology.model_dump(mode="json"), sort_keys=False))
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "vlan", "switch-config", str(file)]
    argv += ["--vendor", lab.switches, "-o", str(folder), "--port-format", "{switch}-{port}"]
    run(argv)
    for switch in lab.topology.switches:
        try:
            lab.exec("sw", ["bash", str(folder / f"{switch}.sh")])
        except CommandFailed as error:
            if lab.switches != "ovs" and "not supported" in str(error):
                raise NotAvailable(
                    "this kernel's bridges know no VLANs (CONFIG_BRIDGE_VLAN_FILTERING)"
                ) from None
            raise
    ip_batch([f"link set {end.device} up" for end in ends], lab.namespace("sw"))


def widen_sockets(lab: LabBase) -> None:
    """On netdev, give each ovs-vswitchd larger socket buffers: see `ri2n_lab.cluster.sockets`.

    Queues then fill at the links, and not at the one socket by which ovs-vswitchd sends. A lab
    without host-up, or on the kernel datapath, is left as it is.
    """
    if lab.datapath != "netdev" or lab.software != "ri2n":
        return
    # A socket for sending exists only once a frame was sent: every host sends a first frame, and
    # its switch forwards it.
    frame = f"ffffffffffff{'020000000001'}88b6" + "00" * 46
    managed_hosts = lab.topology.managed_hosts()
    for host in managed_hosts:
        lab.ofctl(host, "packet-out", "br-ri2n", f"in_port=LOCAL packet={frame} actions=output:1")
    count_at_switches = len(plan.switch_ports(lab.topology)) + len(plan.cable_ends(lab.topology))
    for host in (*(["sw"] if lab.switches == "ovs" else []), *managed_hosts):
        pid = int((lab.run_dir / host / "ovs-vswitchd.pid").read_text())
        ports = count_at_switches if host == "sw" else len(lab.topology.hosts[host].nics)
        ports += 2 if host in lab.helpers.hosts else 0  # the helper's TAPs
        deadline_s = time.monotonic() + 5.0
        while widen_packet_sockets(pid, SOCKET_BYTES) <= ports and time.monotonic() < deadline_s:
            time.sleep(0.01)
