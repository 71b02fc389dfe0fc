"""A cluster on one machine:

namespaces, one real Open vSwitch per host, shaped links, a control network, faults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from ri2n_lab.cluster import ovs, plan, state
from ri2n_lab.cluster.control import await_ready
from ri2n_lab.cluster.faults import ON_HOSTS, Fault, apply_faults, check_fault, same_place
from ri2n_lab.cluster.helpers import (
    Helpers,
    address_mtu,
    autonomous_commands,
    find_program,
    host_up_options,
)
from ri2n_lab.cluster.namespaces import add_namespaces, namespace_exists, remove_namespaces
from ri2n_lab.cluster.run import CommandFailed, in_namespace, ip_batch, run
from ri2n_lab.cluster.sockets import widen_packet_sockets
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.shipped import host_script

__all__ = ["Lab"]

ETC_NETNS = Path("/etc/netns")
PROGRAMS = ("ip", "tc", "ethtool", "nft", "bash", "sysctl")
EXEC_TIMEOUT_S = 60.0
SCRIPT_TIMEOUT_S = 300.0  # hundreds of processes, at 50 to 100 ms each in user-mode Linux
SOCKET_BYTES = 16 << 20
SEGMENT_HERE = "tso off gso off gro off"
SOFTWARE = ("ri2n", "ovs", "none", "autonomous")
OVS_ON_HOSTS = ("ri2n", "ovs")
SWITCHES = ("ovs", "linux-bridge")
OFFLOADS_OFF = "tso off gso off gro off tx off rx off"


class Lab:
    """One lab. `Lab.create` or `Lab.load`, then `up`.

    `with Lab.create(t) as lab:` does up and, always, down.
    """

    def __init__(self, lab_state: state.LabState) -> None:
        self._state = lab_state
        self.name = lab_state.name
        self.topology = Topology.model_validate(lab_state.topology)
        self.run_dir: Path = state.run_dir(self.name)
        self._children: list[subprocess.Popen[Any]] = []

    # ---- making and finding labs

    @classmethod
    def create(
        cls,
        topology: Topology,
        name: str | None = None,
        *,
        datapath: str = "auto",
        software: str = "ri2n",
        helpers: bool = False,
        helper_options: Sequence[str] = (),
        userspace_tso: bool = False,
        switches: str = "ovs",
    ) -> Lab:
        """A lab of `topology`, not up yet and with nothing made.

        `datapath`: "netdev", "system" or "auto" (system where the kernel has Open vSwitch).
        `software` of the managed hosts: "ri2n" (Open vSwitch and host-up), "ovs" (an Open vSwitch
        without a bridge), "none", or "autonomous" (ri2n-reorder alone, without Open vSwitch and
        controller); without host-up a host's address is on its first NIC, or with "autonomous" on
        the helper's TAP. `helpers`: ri2n-reorder runs on the hosts besides Open vSwitch;
        `helper_options` are further options for all of them. `userspace_tso` is Open vSwitch's own
        for netdev. `switches` with cables between them: bridges of Open vSwitch, "ovs", or of the
        kernel, "linux-bridge". Raises NotAvailable without root, Open vSwitch or another program,
        and when the name is taken; BadInput for a bad name.
        """
        if os.geteuid() != 0:
            raise NotAvailable("a lab needs root: use sudo")
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise NotAvailable(
                    f"{program} is missing: apt install iproute2 ethtool nftables procps"
                )
        ovs.check_ovs()
        if datapath == "auto":
            datapath = "system" if ovs.has_kernel_datapath() else "netdev"
        if datapath not in ("system", "netdev"):
            raise BadInput(f"datapath {datapath!r}: must be auto, system or netdev")
        if software not in SOFTWARE:
            raise BadInput(f"software {software!r}: must be one of {', '.join(SOFTWARE)}")
        if software == "autonomous":
            helpers = True
        plan.check_size(topology)
        if switches not in SWITCHES:
            raise BadInput(f"switches {switches!r}: must be one of {', '.join(SWITCHES)}")
        if switches != "ovs" and not plan.cable_ends(topology):
            raise BadInput(
                f"switches {switches!r}: topology {topology.name} has no cables between switches"
            )
        if helpers and software not in ("ri2n", "autonomous"):
            raise BadInput(f"software {software!r}: has no helpers")
        if helpers:
            find_program()
        name = state.check_name(name or state.fresh_name(topology.name))
        if (state.run_dir(name) / "state.json").exists():
            raise NotAvailable(f"lab {name!r} exists already: `ri2n lab down {name}` removes it")
        return cls(
            state.LabState(
                name=name,
                owner=state.owner(),
                phase="making",
                pid=os.getpid(),
                created_s=time.time(),
                datapath=datapath,
                software=software,
                topology=topology.model_dump(mode="json"),
                faults=[],
                helpers=helpers,
                helper_options=list(helper_options),
                userspace_tso=userspace_tso,
                switches=switches,
            )
        )

    @classmethod
    def load(cls, name: str) -> Lab:
        """The lab of this name, made by any process; NotAvailable when there is none."""
        return cls(state.read_state(name))

    @classmethod
    def all(cls) -> list[Lab]:
        """Every lab on this machine."""
        return [cls(found) for found in state.all_states()]

    @classmethod
    def all_mine(cls) -> list[Lab]:
        """The labs this user made, also those whose maker crashed."""
        return [lab for lab in cls.all() if lab.owner == state.owner()]

    # ---- up and down

    def up(self, progress: Callable[[str], None] | None = None) -> None:
        """Make everything; on any error, and on Ctrl-C, what was made is removed again."""
        tell = progress or (lambda _: None)
        with state.locked(self.name):
            if (self.run_dir / "state.json").exists():
                raise NotAvailable(
                    f"lab {self.name!r} exists already: `ri2n lab down {self.name}` removes it"
                )
            taken = [name for name in self._state.namespaces if namespace_exists(name)]
            if taken:
                raise NotAvailable(
                    f"namespace {taken[0]} exists already: choose another name for the lab"
                )
            state.write_state(self._state)
            try:
                tell("namespaces and links")
                self._make_namespaces()
                tell("Open vSwitch")
                self._start_ovs()
                tell("hosts")
                self._host_up()
                self._widen_sockets()
                if self.has_helpers:
                    tell("helpers")
                    _parallel(self.helpers.start, self.helpers.hosts)
                self._write_cluster_file()
                self._set(phase="up")
            except BaseException:
                self._remove()
                raise
        tell("up")

    def down(self) -> None:
        """Remove what `up` made, whatever state it is in, and nothing else. Twice is no error."""
        with state.locked(self.name):
            if (self.run_dir / "state.json").exists():
                with suppress(NotAvailable):
                    self._state = state.read_state(self.name)
                self._set(phase="removing")
            self._remove()

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    # ---- what is in it

    @property
    def owner(self) -> str:
        """The user who made it."""
        return self._state.owner

    @property
    def phase(self) -> str:
        """'making', 'up' or 'removing'.

        Anything but 'up' with no process at work is the rest of a crash.
        """
        return self._state.phase

    @property
    def created_s(self) -> float:
        """When it was made, Unix time."""
        return self._state.created_s

    @property
    def datapath(self) -> str:
        """'netdev' or 'system'."""
        return self._state.datapath

    @property
    def software(self) -> str:
        """What runs on managed hosts: 'ri2n', 'ovs', 'none' or 'autonomous'."""
        return self._state.software

    @property
    def has_helpers(self) -> bool:
        """Whether ri2n-reorder belongs on its hosts, but for those whose topology says `helper:

        false`.
        """
        return self._state.helpers

    @property
    def helpers(self) -> Helpers:
        """Start, stop, kill and ask the helpers."""
        return Helpers(self, self._state.helper_options)

    @property
    def hosts(self) -> list[str]:
        """All hosts, in the order of the topology.

        `topology.managed_hosts()` leaves plain ones out.
        """
        return list(self.topology.hosts)

    @property
    def controller_address(self) -> str:
        """Where the hosts look for their controller, on the control network."""
        return plan.CONTROLLER_ADDRESS

    @property
    def controller_socket(self) -> Path:
        """The controller's local API."""
        return self.run_dir / "controller.sock"

    @property
    def cluster_file(self) -> Path:
        """cluster.yaml with the declared rates and wiring, for the controller."""
        return self.run_dir / "cluster.yaml"

    def namespace(self, host: str) -> str:
        """The namespace of a host, or of "mgmt" (the controller's) or "sw" (the switches').

        BadInput otherwise.
        """
        if host not in self.topology.hosts and host not in ("mgmt", "sw"):
            raise BadInput(
                f"host {host!r}: lab {self.name} has {', '.join(self.hosts)}, mgmt and sw"
            )
        return f"ri2n-{self.name}-{host}"

    def address(self, host: str) -> str:
        """The host's IPv4 address."""
        return self.topology.address(host)

    def address6(self, host: str) -> str:
        """The host's IPv6 address."""
        return self.topology.address6(host)

    # ---- running things in it

    def exec(
        self,
        host: str,
        argv: Sequence[str],
        *,
        check: bool = True,
        timeout_s: float = EXEC_TIMEOUT_S,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end; CommandFailed when it fails (with `check`) or takes
        too long.

        OVS tools talk to that host's own Open vSwitch, and host names resolve.
        """
        command = in_namespace(self.namespace(host), argv)
        return run(
            command, check=check, timeout_s=timeout_s, stdin=input, env=self.environment(host)
        )

    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a command on a host (or "mgmt"); `down` ends it. Keywords are
        subprocess.Popen's.
        """
        kwargs.setdefault("env", self.environment(host))
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        child = subprocess.Popen(in_namespace(self.namespace(host), argv), **kwargs)
        self._children.append(child)
        return child

    def environment(self, host: str) -> dict[str, str]:
        """The environment of commands on a host."""
        return ovs.environment(self.run_dir / host)

    def ofctl(self, host: str, *args: str, input: str | None = None) -> str:
        """What `ovs-ofctl -O OpenFlow15 ARGS` prints, asked of the host's own OVS.

        CommandFailed on errors.
        """
        return self._ovs_tool(host, ["ovs-ofctl", "-O", "OpenFlow15", *args], input)

    def vsctl(self, host: str, *args: str) -> str:
        """What `ovs-vsctl ARGS` prints, asked of the host's own OVS; CommandFailed on errors."""
        return self._ovs_tool(host, ["ovs-vsctl", "--timeout=20", *args])

    def appctl(self, host: str, *args: str) -> str:
        """What `ovs-appctl ARGS` prints, asked of the host's own ovs-vswitchd.

        CommandFailed on errors.
        """
        return self._ovs_tool(host, ["ovs-appctl", "--timeout=20", *args])

    def host_script(
        self, host: str, script: str, *args: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run host-up, host-down, host-status or host-doctor on a host, with the lab's database
        and state folder.
        """
        folder = self.run_dir / host
        common = ["--db", ovs.database(folder), "--state-dir", str(folder / "state")]
        command = [str(host_script(script)), *common, *args]
        return self.exec(host, command, check=check, timeout_s=SCRIPT_TIMEOUT_S)

    def host_up_arguments(self, host: str) -> list[str]:
        """The options with which `up` calls host-up on a host."""
        nics = [word for nic in self.topology.hosts[host].nics for word in ("--nic", nic.name)]
        target = f"tcp:{self.controller_address}:6653"
        helper = host_up_options(self.topology, host) if host in self.helpers.hosts else []
        if self.has_helpers and not helper:
            helper = ["--mtu", str(address_mtu())]  # what it sends must fit those with one
        return [*nics, "--name", host, "--controller", target, "--datapath", self.datapath, *helper]

    # ---- faults

    def fault(
        self,
        kind: str,
        *,
        host: str | None = None,
        nic: str | None = None,
        switch: str | None = None,
        port: int | None = None,
        loss: float | None = None,
    ) -> None:
        """Make a fault, on top of those there are.

        nic_down, peer_nic_down: host and nic; the NIC is set down, so the switch port loses its
        carrier. blackhole: host and nic; the NIC's switch port drops everything, both ways, and
        keeps its carrier. loss: host, nic and loss in percent; the link drops that share of frames
        at random, both ways. switch_down: switch; every port of it is a blackhole. cable: switch
        and port; the cable to another switch in that port carries nothing, both ways. control:
        host; its NIC on the control network is set down, so the controller and it cannot hear each
        other. BadInput for anything that does not exist.
        """
        new = check_fault(
            self.topology, kind, host=host, nic=nic, switch=switch, loss=loss, port=port
        )
        self._change_faults(lambda now: [*[old for old in now if not same_place(old, new)], new])

    def restore(
        self,
        kind: str,
        *,
        host: str | None = None,
        nic: str | None = None,
        switch: str | None = None,
        port: int | None = None,
    ) -> None:
        """End one fault; one that is not there is no error."""
        gone = check_fault(
            self.topology, kind, host=host, nic=nic, switch=switch, loss=100.0, port=port
        )
        self._change_faults(lambda now: [old for old in now if not same_place(old, gone)])

    def restore_all(self) -> None:
        """End all faults."""
        self._change_faults(lambda _: [])

    def faults(self) -> list[Fault]:
        """The faults there are, oldest first; also those that another process made."""
        return [Fault(**entry) for entry in state.read_state(self.name).faults]

    def kill_switch(self, host: str) -> None:
        """Kill a host's ovs-vswitchd; it and then host-up are started again, as by their units."""
        ovs.kill_switch(self.run_dir / host, self.namespace(host))
        self.host_script(host, "host-up", *self.host_up_arguments(host))
        self._widen_sockets()

    # ---- the controller

    def start_controller(
        self, *, strategy: str = "max_min", config: Path | None = None, extra: Sequence[str] = ()
    ) -> subprocess.Popen[Any]:
        """Start `ri2n controller` on the control network.

        Its output goes to controller.log in `run_dir`.
        """
        argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller"]
        argv += [
            "--listen",
            f"{self.controller_address}:6653",
            "--socket",
            str(self.controller_socket),
        ]
        argv += ["--config", str(config or self.cluster_file), "--strategy", strategy, *extra]
        with (self.run_dir / "controller.log").open("ab") as log:
            return self.popen("mgmt", argv, stdout=log, stderr=subprocess.STDOUT)

    def wait_ready(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """Wait until the controller knows all managed hosts and networks and has settled; return
        its status.

        NotAvailable, with what is missing and the end of its log, when that takes longer than
        `timeout_s`.
        """
        return await_ready(
            self.topology, self.controller_socket, self.run_dir / "controller.log", timeout_s
        )

    # ---- how it is made

    def _set(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        state.write_state(self._state)

    def _make_namespaces(self) -> None:
        names = {host: self.namespace(host) for host in ("sw", "mgmt", *self.hosts)}
        with state.locked(
            ""
        ):  # the first `ip netns add` after boot remounts /run/netns: not twice at once
            for name in names.values():
                folder = ETC_NETNS / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "hosts").write_text(plan.hosts_file(self.topology))
            add_namespaces(names.values())
        _parallel(self._prepare_namespace, names)
        ip_batch(plan.link_commands(self.topology, names))
        _parallel(self._configure_namespace, names)

    def _prepare_namespace(self, host: str) -> None:
        """Sysctls, before there is any device that would speak IPv6 on its own."""
        fabric = host in self.topology.hosts
        off = 0 if fabric else 1
        settings = [f"net.ipv6.conf.{which}.disable_ipv6={off}" for which in ("all", "default")]
        settings += ["net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0"]
        run(in_namespace(self.namespace(host), ["sysctl", "-qw", *settings]))
        if fabric:
            # What TCP remembers of a destination would make a measurement depend on those before
            # it.
            run(
                in_namespace(
                    self.namespace(host), ["sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"]
                )
            )
            # Refused in a namespace where the machine's tcp_allowed_congestion_control lacks cubic;
            # programs that measure ask for cubic themselves (root may), so that changes no figure.
            cubic = ["sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic"]
            run(in_namespace(self.namespace(host), cubic), check=False)

    def _configure_namespace(self, host: str) -> None:
        namespace = self.namespace(host)
        links, queues = ["link set lo up"], []
        devices: list[str] = []
        cables: list[str] = []
        if host == "sw":
            for port in plan.switch_ports(self.topology):
                queues += plan.switch_queue(
                    port.device, port.nic.rate_bps, self.topology.switches[port.switch]
                )
                devices.append(port.device)
            for end in plan.cable_ends(self.topology):
                queues += plan.switch_queue(
                    end.device, end.rate_bps, self.topology.switches[end.switch]
                )
                cables.append(end.device)
        elif host == "mgmt":
            links += [
                "link add control type bridge forward_delay 0 mcast_snooping 0",
                "link set control up",
            ]
            links.append(f"addr add {plan.CONTROLLER_ADDRESS}/24 dev control")
            links += [
                f"link set m-{name} master control up" for name in self.topology.managed_hosts()
            ]
        else:
            spec = self.topology.hosts[host]
            for nic in spec.nics:
                queues += plan.nic_queue(nic, self.datapath)
                devices.append(nic.name)
            if self.software == "autonomous" and host in self.helpers.hosts:
                links += autonomous_commands(self.topology, host)
                quiet = [f"net.ipv6.conf.{nic.name}.disable_ipv6=1" for nic in spec.nics]
                run(in_namespace(namespace, ["sysctl", "-qw", *quiet]))
            else:
                # On the first NIC, as on a host before RI2N: host-up moves them to the bridge.
                links.append(f"addr add {self.address(host)}/24 brd + dev {spec.nics[0].name}")
                links.append(f"addr add {self.address6(host)}/64 dev {spec.nics[0].name} nodad")
                if self.has_helpers and (not spec.managed or self.software == "autonomous"):
                    links.append(f"link set {spec.nics[0].name} mtu {address_mtu()}")
            if spec.managed:
                links += [
                    f"addr add {plan.management_address(self.topology, host)}/24 dev mgmt0",
                    "link set mgmt0 up",
                ]
                run(
                    in_namespace(namespace, ["sysctl", "-qw", "net.ipv6.conf.mgmt0.disable_ipv6=1"])
                )
        offloads = "".join(f"ethtool -K {device} {OFFLOADS_OFF}\n" for device in devices + cables)
        run(in_namespace(namespace, ["bash", "-e"]), stdin=offloads)  # before a device is up
        ip_batch([*links, *(f"link set {device} up" for device in devices)], namespace)
        ip_batch(queues, namespace, "tc")

    def _start_ovs(self) -> None:
        template = self.run_dir / "template.db"
        ovs.make_template(template, userspace_tso=self._state.userspace_tso)
        where = self.topology.managed_hosts() if self.software in OVS_ON_HOSTS else []
        with_ovs = self._state.switches == "ovs"
        where += ["sw"] if with_ovs else []
        _parallel(
            lambda host: ovs.start(self.run_dir / host, self.namespace(host), template), where
        )
        if with_ovs:
            self._add_bridges()
        self._wire_switches()

    def _add_bridges(self) -> None:
        """The switches, as bridges of one Open vSwitch, with all their ports."""
        # linux-noop: otherwise OVS removes the ports' TBF as it takes them.
        args = ["--", "--id=@noop", "create", "QoS", "type=linux-noop"]
        for switch in self.topology.switches:
            args += [
                "--",
                "add-br",
                switch,
                "--",
                "set",
                "bridge",
                switch,
                f"datapath_type={self.datapath}",
            ]
        to_hosts = [
            (port.switch, port.device, port.number) for port in plan.switch_ports(self.topology)
        ]
        to_switches = [
            (end.switch, end.device, end.number) for end in plan.cable_ends(self.topology)
        ]
        for switch, device, number in to_hosts + to_switches:
            args += ["--", "add-port", switch, device]
            args += ["--", "set", "interface", device, f"ofport_request={number}"]
            args += ["--", "set", "port", device, "qos=@noop"]
        self.vsctl("sw", *args)

    def _wire_switches(self) -> None:
        """Where switches have cables between them: configure each by the file that an operator
        would use.

        The cables have no carrier up to then, since without VLANs they are circles.
        """
        ends = plan.cable_ends(self.topology)
        if not ends:
            return
        folder = self.run_dir / "switches"
        folder.mkdir()
        file = folder / "topology.yaml"
        file.write_text(yaml.safe_dump(self.topology.model_dump(mode="json"), sort_keys=False))
        argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "vlan", "switch-config", str(file)]
        run(
            [
                *argv,
                "--vendor",
                self._state.switches,
                "-o",
                str(folder),
                "--port-format",
                "{switch}-{port}",
            ]
        )
        for switch in self.topology.switches:
            try:
                self.exec("sw", ["bash", str(folder / f"{switch}.sh")])
            except CommandFailed as error:
                if self._state.switches != "ovs" and "not supported" in str(error):
                    raise NotAvailable(
                        "this kernel's bridges know no VLANs (CONFIG_BRIDGE_VLAN_FILTERING)"
                    ) from None
                raise
        ip_batch([f"link set {end.device} up" for end in ends], self.namespace("sw"))

    def _host_up(self) -> None:
        if self.software != "ri2n":
            return
        hosts = self.topology.managed_hosts()
        _parallel(
            lambda host: self.host_script(host, "host-up", *self.host_up_arguments(host)), hosts
        )
        if self.datapath == "system":
            # A shaped link counts frames, so they must be frames before they reach it.
            _parallel(
                lambda host: self.exec(host, ["ethtool", "-K", "br-ri2n", *SEGMENT_HERE.split()]),
                hosts,
            )

    def _widen_sockets(self) -> None:
        """On netdev, let queues fill at the links and not at ovs-vswitchd's one socket for
        sending.
        """
        if self.datapath != "netdev" or self.software != "ri2n":
            return
        # A first frame out of every host, which its switch forwards, makes all those sockets exist.
        frame = f"ffffffffffff{'020000000001'}88b6" + "00" * 46
        for host in self.topology.managed_hosts():
            self.ofctl(
                host, "packet-out", "br-ri2n", f"in_port=LOCAL packet={frame} actions=output:1"
            )
        for host in (
            *(["sw"] if self._state.switches == "ovs" else []),
            *self.topology.managed_hosts(),
        ):
            pid = int((self.run_dir / host / "ovs-vswitchd.pid").read_text())
            switch_ports = len(plan.switch_ports(self.topology)) + len(
                plan.cable_ends(self.topology)
            )
            ports = switch_ports if host == "sw" else len(self.topology.hosts[host].nics)
            ports += 2 if host in self.helpers.hosts else 0  # its TAPs
            deadline_s = time.monotonic() + 5.0
            while (
                widen_packet_sockets(pid, SOCKET_BYTES) <= ports and time.monotonic() < deadline_s
            ):
                time.sleep(0.01)

    def _write_cluster_file(self) -> None:
        self.cluster_file.write_text(
            yaml.safe_dump(plan.cluster_config(self.topology), sort_keys=False)
        )

    def _remove(self) -> None:
        remove_namespaces(self._state.namespaces)
        with state.locked(""):
            for name in self._state.namespaces:
                shutil.rmtree(ETC_NETNS / name, ignore_errors=True)
            with suppress(OSError):
                ETC_NETNS.rmdir()  # only when empty
        for child in self._children:
            # it lived in a namespace and is dead, unless it has left that for one of its own
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self._children.clear()
        state.remove_folder(self.name)

    def _change_faults(self, change: Callable[[list[Fault]], list[Fault]]) -> None:
        with state.locked(self.name):
            self._state = state.read_state(self.name)
            if self.phase != "up":
                raise NotAvailable(f"lab {self.name!r} is not up")
            before = [Fault(**entry) for entry in self._state.faults]
            after = change(before)
            if self._state.switches != "ovs" and any(fault.kind not in ON_HOSTS for fault in after):
                raise BadInput(
                    f"only switches of Open vSwitch can have faults, those of lab {self.name} "
                    "cannot"
                )
            self._set(faults=[vars(entry) for entry in after])
            apply_faults(self.topology, self.run_dir / "sw", self.namespace, before, after)

    def _ovs_tool(self, host: str, argv: list[str], input: str | None = None) -> str:
        self.namespace(host)  # an unknown host is BadInput
        if host != "sw" and (
            self.software not in OVS_ON_HOSTS or host not in self.topology.managed_hosts()
        ):
            raise BadInput(f"host {host!r} has no Open vSwitch")
        return run(argv, env=self.environment(host), stdin=input).stdout


def _parallel(function: Callable[[str], object], hosts: Iterable[str]) -> None:
    """Call `function` for all hosts at once; the first error is raised when all have ended."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(function, host) for host in hosts]
    for future in futures:
        future.result()
