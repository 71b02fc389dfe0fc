# SPDX-License-Identifier: Apache-2.0
"""What is in a lab, and commands on its hosts: the part of `Lab` that changes nothing in it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ri2n_lab.cluster import ovs, owners, plan, state
from ri2n_lab.cluster.fast_paths import FastPaths, find_fast_program
from ri2n_lab.cluster.helpers import Helpers, address_mtu, host_up_options
from ri2n_lab.cluster.inside import device_counters
from ri2n_lab.cluster.run import in_namespace, run
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.shipped import host_script

__all__ = ["OVS_ON_HOSTS", "LabBase"]

EXEC_TIMEOUT_S = 60.0
SCRIPT_TIMEOUT_S = 300.0  # hundreds of processes, at 50 to 100 ms each in user-mode Linux
OVS_ON_HOSTS = ("ri2n", "ovs")
"""Kinds of software with which managed hosts have an Open vSwitch."""


class LabBase:
    """A lab, whoever made it: what is in it, and how to run commands on its hosts."""

    def __init__(self, lab_state: state.LabState) -> None:
        self._state = lab_state
        self.name = lab_state.name
        self.topology = Topology.model_validate(lab_state.topology)
        self.run_dir: Path = state.run_dir(self.name)
        self._children: list[subprocess.Popen[Any]] = []
        # The descriptor of the lock by which this process owns the lab (`owners.hold`).
        self._hold: int | None = None

    # ---- what is in it

    @property
    def owner(self) -> str:
        """The user who made it."""
        return self._state.owner

    @property
    def phase(self) -> str:
        """'making', 'up' or 'removing'.

        A lab that is not 'up', and at which no process works, is what a crash left.
        """
        return self._state.phase

    @property
    def unowned(self) -> bool:
        """Whether the lab is what a crash left: it was not made to stay, and its process ended."""
        return owners.is_unowned(self._state)

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
    def switches(self) -> str:
        """What its switches are: 'ovs', 'linux-bridge' or 'cable'."""
        return self._state.switches

    @property
    def has_helpers(self) -> bool:
        """Whether ri2n-reorder belongs on its hosts.

        Hosts for which the topology says `helper: false` have none.
        """
        return self._state.helpers

    @property
    def helpers(self) -> Helpers:
        """The helpers of the lab, to start, stop, kill and ask them."""
        return Helpers(self, self._state.helper_options)

    @property
    def has_fast(self) -> bool:
        """Whether ri2n-fast belongs on its managed hosts."""
        return self._state.fast

    @property
    def fast_paths(self) -> FastPaths:
        """The fast paths of the lab, to start, stop, kill and ask them."""
        return FastPaths(self)

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts, in the order of the topology.

        `topology.managed_hosts()` has the managed ones alone.
        """
        return list(self.topology.hosts)

    @property
    def controller_address(self) -> str:
        """The address on the control network at which the hosts look for their controller."""
        return plan.CONTROLLER_ADDRESS

    @property
    def controller_socket(self) -> Path:
        """The socket of the controller's local API."""
        return state.controller_socket(self.name)

    @property
    def cluster_file(self) -> Path:
        """The file cluster.yaml for the controller, with the declared rates and wiring."""
        return self.run_dir / "cluster.yaml"

    def namespace(self, host: str) -> str:
        """The namespace of a host, of "mgmt" (the controller) or of "sw" (the switches).

        Raises BadInput for any other name.
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

    def nic_counters(self, host: str, counter: str) -> dict[str, int]:
        """What the kernel has counted at each NIC of a host, by the NIC's name.

        `counter` is "rx_bytes", "rx_packets", "tx_bytes" or "tx_packets". No process is started, so
        a test may ask often. Raises NotAvailable when the lab is not up.
        """
        found = device_counters(self.namespace(host))
        return {nic.name: found[nic.name][counter] for nic in self.topology.hosts[host].nics}

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
        """Run a command on a host to its end.

        OVS tools talk to that host's own Open vSwitch, and host names resolve. Raises CommandFailed
        when the command takes longer than `timeout_s`, and, with `check`, when it fails.
        """
        command = in_namespace(self.namespace(host), argv)
        return run(
            command, check=check, timeout_s=timeout_s, stdin=input, env=self.environment(host)
        )

    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a command on a host (or "mgmt"); `down` ends it.

        The keywords are those of subprocess.Popen.
        """
        kwargs.setdefault("env", self.environment(host))
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        child = subprocess.Popen(in_namespace(self.namespace(host), argv), **kwargs)
        self._children.append(child)
        return child

    def environment(self, host: str) -> dict[str, str]:
        """The environment of commands on a host."""
        environment = ovs.environment(self.run_dir / host)
        if self.has_fast:
            environment["RI2N_FAST"] = str(find_fast_program())  # for the host scripts
        return environment

    def ofctl(self, host: str, *args: str, input: str | None = None) -> str:
        """Run `ovs-ofctl -O OpenFlow15 ARGS` for the host's own OVS, and return what it prints.

        Raises CommandFailed on errors.
        """
        return self._ovs_tool(host, ["ovs-ofctl", "-O", "OpenFlow15", *args], input)

    def vsctl(self, host: str, *args: str) -> str:
        """Run `ovs-vsctl ARGS` for the host's own OVS, and return what it prints.

        Raises CommandFailed on errors.
        """
        return self._ovs_tool(host, ["ovs-vsctl", "--timeout=20", *args])

    def appctl(self, host: str, *args: str) -> str:
        """Run `ovs-appctl ARGS` for the host's own ovs-vswitchd, and return what it prints.

        Raises CommandFailed on errors.
        """
        return self._ovs_tool(host, ["ovs-appctl", "--timeout=20", *args])

    def host_script(
        self, host: str, script: str, *args: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run host-up, host-down, host-status or host-doctor on a host.

        The script uses the lab's database and state folder of that host.
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
            # What this host sends must also fit the hosts that have a helper.
            helper = ["--mtu", str(address_mtu())]
        more = [*helper, *(["--fast"] if self.has_fast else [])]
        return [*nics, "--name", host, "--controller", target, "--datapath", self.datapath, *more]

    # ---- how it is done

    def _ovs_tool(self, host: str, argv: list[str], input: str | None = None) -> str:
        self.namespace(host)  # raises BadInput for an unknown host
        if host != "sw" and (
            self.software not in OVS_ON_HOSTS or host not in self.topology.managed_hosts()
        ):
            raise BadInput(f"host {host!r} has no Open vSwitch")
        return run(argv, env=self.environment(host), stdin=input).stdout
