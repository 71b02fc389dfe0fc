# SPDX-License-Identifier: Apache-2.0
"""The faults of a lab: their kinds, and what they do to each NIC and switch port."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ri2n_lab.cluster.ovs import port_mod
from ri2n_lab.cluster.plan import CableEnd, SwitchPort, cable_ends, switch_ports
from ri2n_lab.cluster.run import in_namespace, ip_batch, run
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = ["KINDS", "ON_HOSTS", "SETS_DOWN", "Fault", "apply_faults", "check_fault", "same_place"]

ON_HOSTS = ("nic_down", "peer_nic_down", "loss", "control")
"""Kinds that need nothing of a switch."""

SETS_DOWN = ("nic_down", "peer_nic_down")
"""Kinds that set a host's NIC down."""

CONTROL_NIC = "mgmt0"
"""A managed host's NIC on the control network."""

KINDS = ("nic_down", "peer_nic_down", "blackhole", "switch_down", "cable", "loss", "control")


@dataclass(frozen=True)
class Fault:
    """One fault of a NIC, a switch, the cable in a switch's port, or a host's control link.

    A NIC is named by `host` and `nic`, a cable by `switch` and `port`. `loss_percent` is only for
    the kind "loss".
    """

    kind: str
    host: str | None = None
    nic: str | None = None
    switch: str | None = None
    loss_percent: float | None = None
    port: int | None = None


@dataclass(frozen=True)
class _Effect:
    """What all faults together do to one NIC and its switch port."""

    nic_up: bool
    port_dead: bool
    loss_percent: float


def check_fault(
    topology: Topology,
    kind: str,
    *,
    host: str | None,
    nic: str | None,
    switch: str | None,
    loss: float | None,
    port: int | None = None,
) -> Fault:
    """The fault that these arguments mean.

    Raises BadInput when the kind, or what the kind needs, is missing or does not exist in the
    topology, or when the loss is not a percentage above 0 and up to 100.
    """
    if kind not in KINDS:
        raise BadInput(f"fault {kind!r}: must be one of {', '.join(KINDS)}")
    if kind == "switch_down":
        if switch not in topology.switches:
            raise BadInput(f"switch {switch!r}: the topology has {', '.join(topology.switches)}")
        return Fault(kind, switch=switch)
    if kind == "cable":
        ports = [end.number for end in cable_ends(topology) if end.switch == switch]
        if port not in ports:
            listed = ", ".join(map(str, ports)) or "none"
            raise BadInput(f"port {port} of switch {switch!r}: cables are in ports {listed}")
        return Fault(kind, switch=switch, port=port)
    if host not in topology.hosts:
        raise BadInput(f"host {host!r}: the topology has {', '.join(topology.hosts)}")
    if kind == "control":
        if not topology.hosts[host].managed:
            raise BadInput(f"host {host!r}: is not managed, so it has no control link")
        return Fault(kind, host)
    names = [spec.name for spec in topology.hosts[host].nics]
    if nic not in names:
        raise BadInput(f"NIC {nic!r}: host {host} has {', '.join(names)}")
    if kind != "loss":
        return Fault(kind, host, nic)
    if loss is None or not 0 < loss <= 100:
        raise BadInput(f"loss {loss}: must be a percentage above 0 and up to 100")
    return Fault(kind, host, nic, loss_percent=float(loss))


def same_place(one: Fault, other: Fault) -> bool:
    """Whether two faults have the same kind and place, so that one replaces the other."""
    return (one.kind, one.host, one.nic, one.switch, one.port) == (
        other.kind,
        other.host,
        other.nic,
        other.switch,
        other.port,
    )


def apply_faults(
    topology: Topology,
    switch_folder: Path,
    namespace: Callable[[str], str],
    before: Sequence[Fault],
    after: Sequence[Fault],
) -> None:
    """Change the links from what the faults `before` mean to what the faults `after` mean.

    Links that mean the same before and after are not touched. `switch_folder` is the folder of the
    switches' Open vSwitch; `namespace` gives the namespace of a host, or of "sw".
    """
    ports = switch_ports(topology)
    changes = [(port, _effect(port, before), _effect(port, after)) for port in ports]
    ends = [(end, _end_dead(end, before), _end_dead(end, after)) for end in cable_ends(topology)]
    for switch in topology.switches:
        for dead in (True, False):
            turned = [  # ports to turn dead, or alive again: (number, MAC)
                (port.number, port.mac)
                for port, old, new in changes
                if port.switch == switch
                and old.port_dead != new.port_dead
                and new.port_dead is dead
            ]
            turned += [
                (end.number, end.mac)
                for end, was, now in ends
                if end.switch == switch and was != now and now is dead
            ]
            if turned:
                port_mod(switch_folder, switch, turned, dead=dead)
    for port, old, new in changes:
        if old.nic_up != new.nic_up:
            ip_batch(
                [f"link set {port.nic.name} {'up' if new.nic_up else 'down'}"], namespace(port.host)
            )
        if old.loss_percent != new.loss_percent:
            _set_loss(namespace(port.host), port.nic.name, new.loss_percent)
            _set_loss(namespace("sw"), port.device, new.loss_percent)
    cut_before, cut_after = (
        {fault.host for fault in faults if fault.kind == "control"} for faults in (before, after)
    )
    for host in cut_before ^ cut_after:
        assert host is not None
        state = "down" if host in cut_after else "up"
        ip_batch([f"link set {CONTROL_NIC} {state}"], namespace(host))


def _end_dead(end: CableEnd, faults: Sequence[Fault]) -> bool:
    """Whether the switch port at this end of a cable drops everything."""
    return any(
        fault.switch == end.switch and (fault.kind == "switch_down" or fault.port == end.number)
        for fault in faults
    )


def _effect(port: SwitchPort, faults: Sequence[Fault]) -> _Effect:
    """What the faults together do to the NIC and the switch port of one link."""
    faults_here = [
        fault
        for fault in faults
        if (fault.switch == port.switch and fault.port is None)
        or (fault.host, fault.nic) == (port.host, port.nic.name)
    ]
    kinds = {fault.kind for fault in faults_here}
    return _Effect(
        nic_up=not kinds & {*SETS_DOWN},
        port_dead=bool(kinds & {"blackhole", "switch_down"}),
        loss_percent=max((fault.loss_percent or 0.0 for fault in faults_here), default=0.0),
    )


def _set_loss(namespace: str, device: str, percent: float) -> None:
    command = [sys.executable, "-m", "ri2n_lab.traffic.lossy", device, str(percent)]
    run(in_namespace(namespace, command))
