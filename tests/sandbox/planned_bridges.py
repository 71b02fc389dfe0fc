# SPDX-License-Identifier: Apache-2.0
"""Bridges with the rows that `plan_host` plans, in a private Open vSwitch without a controller.

`python -m tests.sandbox.planned_bridges` writes what such bridges say to fast/tests/bridges, for
the tests of `ri2n-fast`.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ri2n_lab.cluster.sandbox import PrivateOvs
from ri2n_sdn.apps.codec import add_flow, group_mod, message
from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.model import Fabric, Guest, Host
from ri2n_sdn.pipeline.jobs import NO_JOBS
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.pipeline.messages import Bucket, ToGroup, Wanted
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.weights.strategies import STRATEGIES
from tests.baseline.fabrics import Draw, drawn_fabric, shipped_fabric, with_helpers
from tests.baseline.rows import SLOTS, decided_jobs, slot_tables, some_jobs

__all__ = [
    "BRIDGE",
    "Case",
    "PlannedBridge",
    "drawn_cases",
    "fast_program",
    "named_cases",
    "read_plan",
]

BRIDGE = "br-ri2n"
FAST = Path(__file__).parents[2] / "target"
BRIDGES = Path(__file__).parents[2] / "fast" / "tests" / "bridges"
_HELLO, _BARRIER, _BARRIER_REPLY, _ERROR = 0, 20, 21, 1


class Case:
    """The rows and groups of one host, and the host."""

    def __init__(self, name: str, host: Host, wanted: Wanted) -> None:
        """`name` is for people."""
        self.name = name
        self.host = host
        self.wanted = wanted


def fast_program() -> Path | None:
    """The newest build of `ri2n-fast` in this tree or environment."""
    places = [FAST / "release", FAST / "debug", Path(sys.executable).parent]
    found = [place / "ri2n-fast" for place in places if (place / "ri2n-fast").exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def read_plan(program: Path, ovs: PrivateOvs, *more: str) -> dict[str, Any]:
    """What `ri2n-fast` makes of the bridge's rows."""
    words = [str(program), "plan", "--bridge", BRIDGE, "--rundir", str(ovs.folder), *more]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def named_cases() -> Iterator[Case]:
    """A host for each kind of rows."""
    flat = _each(shipped_fabric("fig4/h"), lambda host: replace(host, control_port=6653))
    yield _case("plain", flat)
    yield _case("vlan", shipped_fabric("vbft/vbft_2_2"))
    yield _case("helpers", with_helpers(flat))
    away = _each(with_helpers(flat), lambda host: replace(host, helper_up=False))
    yield _case("helpers away", away)
    classes = (TrafficClass("udp", 4791, 26), TrafficClass(None, None, 46))
    yield _case("by flows", replace(flat, by_flows=classes))
    yield _case("by flows, helpers", replace(with_helpers(flat), by_flows=classes))
    yield _case("placement", replace(flat, placement={"A": (80, 5201)}))
    guest = Guest(2001, "02:aa:00:00:00:01")
    yield _case("guests", _each(flat, lambda host: replace(host, guests=(guest,))))
    for name in ("exclusive", "paths", "isolated", "rated", "several"):
        yield _case(f"job {name}", flat, name)
        yield _case(f"job {name}, helpers", with_helpers(flat), name)


def drawn_cases(seeds: range) -> Iterator[Case]:
    """Hosts of drawn fabrics, with drawn jobs and slot tables."""
    for seed in seeds:
        draw = Draw(f"fast {seed}")
        fabric = drawn_fabric(draw)
        jobs = draw.one(list(some_jobs(fabric)))
        host = draw.one(sorted(fabric.hosts))
        yield _case(f"drawn {seed}", fabric, jobs, host, draw.one(list(STRATEGIES)))


def _each(fabric: Fabric, change: Callable[[Host], Host]) -> Fabric:
    return replace(fabric, hosts={name: change(host) for name, host in fabric.hosts.items()})


def _case(
    name: str, fabric: Fabric, jobs: str = "none", host: str = "", strategy: str = "max_min"
) -> Case:
    host = host or min(fabric.hosts)
    planned, of_jobs = decided_jobs(fabric, some_jobs(fabric)[jobs])
    tables = slot_tables(fabric, strategy, name)
    own = {to: slots for (sender, to), slots in tables.items() if sender == host}
    wanted = plan_host(planned, host, own, SLOTS, of_jobs.get(host, NO_JOBS))
    return Case(name, planned.hosts[host], wanted)


class PlannedBridge:
    """A bridge whose rows are those of a case. Ports of NICs without a carrier are down."""

    def __init__(self, ovs: PrivateOvs, case: Case) -> None:
        """Make the bridge in the place of the last one."""
        self.ovs = ovs
        self.case = case
        host = case.host
        self.ovs.vsctl("--if-exists", "del-br", BRIDGE)
        words = ["add-br", BRIDGE, "--"]
        words += ["set", "bridge", BRIDGE, "fail_mode=secure", "datapath_type=dummy"]
        words += ["protocols=OpenFlow15", "other_config:disable-in-band=true"]
        words += [f'other_config:hwaddr="{host.mac}"']
        ports = [(f"p{nic.port}", nic.port) for nic in host.nics]
        if host.helper:
            ports += [("plain", PLAIN_PORT), ("wire", WIRE_PORT)]
        ports += [(f"g{guest.port}", guest.port) for guest in host.guests]
        for name, number in ports:
            words += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name]
            words += ["type=dummy", f"ofport_request={number}"]
        self.ovs.vsctl(*words)
        down = [f"p{nic.port}" for nic in host.nics if not nic.up]
        down += ["plain", "wire"] if host.helper and not host.helper_up else []
        for name in down:
            self.ovs.appctl("netdev-dummy/set-admin-state", name, "down")
        self._install(case.wanted)

    def _install(self, wanted: Wanted) -> None:
        # Groups name groups, so those that are named come first.
        messages = [message(_HELLO, b"", 1)]
        rest = list(wanted.groups.values())
        known: set[int] = set()
        while rest:
            ready = [group for group in rest if _named(group.buckets) <= known] or rest
            messages += [group_mod(0, group, 2) for group in ready]
            known |= {group.group_id for group in ready}
            rest = [group for group in rest if group.group_id not in known]
        messages += [add_flow(flow, 3) for flow in wanted.flows.values()]
        messages.append(message(_BARRIER, b"", 4))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.ovs.folder / f"{BRIDGE}.mgmt"))
            connection.sendall(b"".join(messages))
            stream = connection.makefile("rb")
            while head := stream.read(8):
                body = stream.read(int.from_bytes(head[2:4], "big") - 8)
                assert head[1] != _ERROR, f"{self.case.name}: {body.hex()}"
                if head[1] == _BARRIER_REPLY:
                    return
        raise AssertionError("the bridge closed the connection")

    def port_numbers(self) -> dict[str, int]:
        """The bridge's port number of each port of the datapath, by the latter's number."""
        text = self.ovs.appctl("dpif/show")
        inside = text[text.index(f"{BRIDGE}:") :]
        pairs = re.findall(r"^ +(\S+) (\d+)/(\d+):", inside, re.MULTILINE)
        return {
            datapath: 0xFFFFFFFE if name == BRIDGE else int(number)
            for name, number, datapath in pairs
        }

    def trace(self, flow: str) -> str:
        """What the datapath would do with a frame."""
        text = self.ovs.appctl("ofproto/trace", BRIDGE, flow)
        found = re.search(r"^Datapath actions: (.*)$", text, re.MULTILINE)
        assert found, text
        return found[1]


def _named(buckets: Sequence[Bucket]) -> set[int]:
    actions = (action for bucket in buckets for action in bucket.actions)
    watched = {bucket.watch_group for bucket in buckets if bucket.watch_group is not None}
    return watched | {action.group_id for action in actions if isinstance(action, ToGroup)}


def _write() -> None:
    BRIDGES.mkdir(exist_ok=True)
    program = fast_program()
    assert program, "cargo build -p ri2n-fast"
    with PrivateOvs() as ovs:
        for case in named_cases():
            PlannedBridge(ovs, case)
            file = BRIDGES / f"{case.name.replace(', ', '-').replace(' ', '-')}.bin"
            read_plan(program, ovs, "--save", str(file))


if __name__ == "__main__":
    _write()
