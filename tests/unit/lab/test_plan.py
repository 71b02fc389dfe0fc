# SPDX-License-Identifier: Apache-2.0
"""Names, numbers and faults of a lab, computed without making one.

Besides, the controller's API is asked over a socket.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import plan
from ri2n_lab.cluster.control import await_ready
from ri2n_lab.cluster.faults import Fault, check_fault, same_place
from ri2n_lab.cluster.state import check_name, fresh_name
from ri2n_lab.traffic.lossy import loss_program
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.switches import SwitchSpec
from ri2n_sdn.fabric.topology import NicSpec, Topology, load_topology
from tests.topology_text import parse_topology

TOPOLOGIES = Path(__file__).resolve().parents[3] / "topologies"


@pytest.fixture
def mixed() -> Topology:
    return load_topology(TOPOLOGIES / "mixed.yaml")


def test_ports_and_macs_are_unique_and_short(mixed: Topology) -> None:
    ports = plan.switch_ports(mixed)
    nics = [(host, nic.name) for host, spec in mixed.hosts.items() for nic in spec.nics]
    assert sorted((port.host, port.nic.name) for port in ports) == sorted(nics)
    assert len({port.device for port in ports}) == len(ports)
    assert all(len(port.device) <= 15 for port in ports)
    macs = [port.mac for port in ports] + [plan.nic_mac(mixed, host, nic) for host, nic in nics]
    assert len(set(macs)) == len(macs)
    # Like MACs of bought NICs, they are unicast and not locally administered.
    assert all(int(mac[:2], 16) & 3 == 0 for mac in macs)


def test_long_names_still_fit() -> None:
    topology = parse_topology(
        "name: t\nswitches: {switch01: }\n"
        "hosts: {Abcdefgh: {nics: [{name: enp101s0f1np0, switch: switch01, rate_bps: 1000}]}}"
    )
    assert [port.device for port in plan.switch_ports(topology)] == ["switch01-1"]


def test_control_addresses_are_free_of_the_controllers(mixed: Topology) -> None:
    addresses = [plan.management_address(mixed, host) for host in mixed.hosts]
    assert len({*addresses, plan.CONTROLLER_ADDRESS}) == len(mixed.hosts) + 1


def test_queues_on_netdev() -> None:
    (nic,) = plan.nic_queue(NicSpec(name="x", switch="s0", rate_bps=100_000_000), "netdev")
    words = nic.split()
    assert words[words.index("burst") + 1] == "10000"
    (slow,) = plan.nic_queue(NicSpec(name="x", switch="s0", rate_bps=1_000_000), "netdev")
    words = slow.split()
    assert int(words[words.index("burst") + 1]) >= 2 * 1514  # a whole frame must fit
    shaper, buffer = plan.switch_queue("x", 100_000_000, SwitchSpec())
    words = shaper.split()
    assert words[words.index("limit") + 1] == "131072"
    assert buffer.endswith("pfifo_head_drop limit 86")


def test_queues_on_the_kernel_datapath() -> None:
    rate, jitter = plan.nic_queue(NicSpec(name="x", switch="s0", rate_bps=100_000_000), "system")
    for line, rate_bps in ((rate, "100000000bit"), (jitter, "10000000000bit")):
        words = line.split()
        assert (words[words.index("rate") + 1], words[words.index("limit") + 1]) == (
            rate_bps,
            "1000",
        )
    assert "parent 1:1" in jitter
    assert "delay 60.560us 60.560us" in jitter  # 0 to 121 us: the time of a full frame at this rate
    *_, tiny = plan.switch_queue(
        "x", 100_000_000, SwitchSpec(port_buffer_bytes=3_100, drop="newest")
    )
    assert tiny.endswith("pfifo limit 2")


@pytest.mark.parametrize("datapath", ["netdev", "system"])
def test_a_fair_queue_is_one_per_flow_behind_the_rate(datapath: str) -> None:
    nic = NicSpec(name="x", switch="s0", rate_bps=100_000_000, queue_frames=500, queue="fair")
    rate, queue = plan.nic_queue(nic, datapath)
    assert "root handle 1: tbf rate 100000000bit" in rate
    assert queue == "qdisc add dev x parent 1:1 handle 10: fq_codel limit 500"


def test_lab_names() -> None:
    assert re.fullmatch(r"d-[0-9a-f]{6}", fresh_name("d"))
    for bad in ("", "-x", "a/b", "..", "A", "x" * 25):
        with pytest.raises(BadInput):
            check_name(bad)


def fault(topology: Topology, kind: str, **where: Any) -> Fault:
    """`check_fault`, where arguments may be left out."""
    return check_fault(
        topology, kind, **{"host": None, "nic": None, "switch": None, "loss": None, **where}
    )


def test_faults_name_their_place(mixed: Topology) -> None:
    one = fault(mixed, "loss", host="A", nic="eth0", loss=5)
    other = fault(mixed, "loss", host="A", nic="eth0", loss=50.5)
    assert same_place(one, other)
    assert not same_place(one, fault(mixed, "blackhole", host="A", nic="eth0"))
    assert fault(mixed, "switch_down", switch="s1") == Fault("switch_down", switch="s1")
    assert fault(mixed, "control", host="A") == Fault("control", "A")
    for wrong in ({"host": "R"}, {"host": "Q"}, {}):
        with pytest.raises(BadInput):
            fault(mixed, "control", **wrong)
    for wrong in (
        {"host": "Q", "nic": "eth0"},
        {"host": "A"},
        {"host": "A", "nic": "eth4"},
        {"switch": "s1"},
    ):
        with pytest.raises(BadInput):
            fault(mixed, "nic_down", **wrong)
    for loss in (None, 0, -1, 101):
        with pytest.raises(BadInput, match="percentage"):
            fault(mixed, "loss", host="A", nic="eth0", loss=loss)


def test_loss_program_threshold() -> None:
    code = loss_program(25)
    assert len(code) % 8 == 0
    assert struct.unpack_from("=I", code, 12)[0] == 2**30
    assert struct.unpack_from("=I", loss_program(100), 12)[0] == 2**32 - 1


class FakeController:
    """A local API that answers every request with `status`."""

    def __init__(self, path: Path) -> None:
        self.status: dict[str, Any] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rwb") as stream:
                if json.loads(stream.readline())["op"] == "stop":
                    return
                stream.write(json.dumps(self.status).encode() + b"\n")

    def close(self, path: Path) -> None:
        """End the thread."""
        with pytest.raises(NotAvailable):
            call(path, "stop")
        self._thread.join()
        self._listener.close()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[FakeController]:
    fake = FakeController(tmp_path / "c.sock")
    yield fake
    fake.close(tmp_path / "c.sock")


def test_ready_means_all_of_it(controller: FakeController, tmp_path: Path) -> None:
    topology = load_topology(TOPOLOGIES / "fig4" / "a.yaml")
    path, log = tmp_path / "c.sock", tmp_path / "log"
    log.write_text("first\nlast words\n")

    def nic(network: str | None) -> dict[str, Any]:
        return {"name": "eth0", "up": True, "network": network}

    def host(name: str, network: str | None = "n1", connected: bool = True) -> dict[str, Any]:
        return {"name": name, "connected": connected, "nics": [nic(network)]}

    def why() -> str:
        with pytest.raises(NotAvailable) as error:
            await_ready(topology, path, log, 0.0)
        return str(error.value)

    controller.status = {"ok": False, "error": "starting"}
    assert "starting" in why()
    assert "last words" in why()
    controller.status = {
        "ok": True,
        "settled": True,
        "hosts": [host("A"), host("B", connected=False)],
    }
    assert "not connected: B" in why()
    controller.status = {"ok": True, "settled": True, "hosts": [host("A"), host("B", None)]}
    assert "network not known of B:eth0" in why()
    controller.status = {"ok": True, "settled": False, "hosts": [host("A"), host("B")]}
    assert "not settled" in why()
    controller.status["settled"] = True
    paths: list[dict[str, Any]] = [{"helper": None}, {"helper": {"usable": False}}]
    controller.status["pairs"] = [{"src": "A", "dst": "B", "striped": True, "paths": paths}]
    assert "no link yet: A -> B" in why()
    paths[0]["helper"] = {"usable": True}
    assert await_ready(topology, path, log, 0.0) == controller.status


def test_too_many_hosts_for_a_lab() -> None:
    hosts = "".join(
        f"  h{n}: {{nics: [{{name: eth0, switch: s0, rate_bps: 1}}]}}\n" for n in range(254)
    )
    topology = parse_topology(f"name: t\nswitches: {{s0: }}\nhosts:\n{hosts}")
    with pytest.raises(BadInput, match="topology t: 254 hosts, a lab has 253 at most"):
        plan.check_size(topology)
