# SPDX-License-Identifier: Apache-2.0
"""Labs with helpers: they are started, killed, asked and ended, with Open vSwitch or alone.

A program takes the place of the real helper.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.namespaces import processes_in
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.taps import PLAIN_TAP, WIRE_TAP
from ri2n_sdn.fabric.topology import Topology, load_topology

from .conftest import TOPOLOGIES, WaitUntil
from .test_lab import all_answered, carrier, remains

FAKE_HELPER = Path(__file__).with_name("fake_helper.py")


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RI2N_REORDER", str(FAKE_HELPER))


def d_without(host: str) -> Topology:
    """Figure 4 (d) where one host has no helper."""
    topology = load_topology(TOPOLOGIES / "fig4" / "d.yaml")
    spec = topology.hosts[host].model_copy(update={"helper": False})
    return topology.model_copy(update={"hosts": {**topology.hosts, host: spec}})


def test_a_lab_with_helpers_and_a_host_without(wait_until: WaitUntil) -> None:
    with Lab.create(d_without("B"), helpers=True) as lab:
        helpers = lab.helpers
        assert helpers.hosts == ["A", "C"]
        for host in helpers.hosts:
            status = helpers.status(host)
            assert status["taps"] == 2
            assert (status["overhead"], status["mtu_wire"], status["gro"]) == (
                "0",
                "1500",
                "on" if lab.datapath == "system" else "off",
            )
            assert helpers.pid(host) == status["pid"]
            assert (
                lab.exec(host, ["cat", f"/sys/class/net/{PLAIN_TAP}/tx_queue_len"]).stdout == "82\n"
            )
        rows = json.loads(lab.host_script("A", "host-doctor", "--json", check=False).stdout)[
            "findings"
        ]
        found = {row["check"]: (row["verdict"], row["seen"]) for row in rows}
        assert found["helper"] == ("ok", "running")
        assert PLAIN_TAP not in found["NICs"][1]
        assert lab.exec("B", ["ip", "link", "show", PLAIN_TAP], check=False).returncode == 1
        for question in (helpers.status, helpers.pid, helpers.start, helpers.kill):
            with pytest.raises(BadInput, match="B' has no helper"):
                question("B")
        assert all_answered(lab, "A", "C", 5) and all_answered(lab, "A", "B", 5)
        with pytest.raises(NotAvailable, match="runs already"):
            helpers.start("A")

        pid = helpers.pid("A")
        helpers.kill("A")
        wait_until(lambda: not carrier(lab, "A", WIRE_TAP), "the TAP keeps its carrier")
        assert helpers.pid("A") is None
        assert all_answered(lab, "A", "C", 5)
        with pytest.raises(NotAvailable, match="does not answer"):
            helpers.status("A")
        again = Lab.load(lab.name).helpers  # as another process would do it
        child = again.start("A")
        assert again.status("A")["pid"] != pid
        helpers.stop("A")
        assert child.wait() == 0  # it was asked to end, not killed
        helpers.stop("A")
        assert helpers.restart("A").pid == helpers.status("A")["pid"]
        assert helpers.pid("C") is not None
    assert remains(lab.name) == []


def test_one_that_does_not_start_says_why_and_leaves_nothing() -> None:
    topology = load_topology(TOPOLOGIES / "fig4" / "b.yaml")
    lab = Lab.create(topology, helpers=True, helper_options=["--fail"])
    with pytest.raises(NotAvailable, match="did not start: ri2n-reorder: asked to fail"):
        lab.up()
    assert remains(lab.name) == []


def test_alone_without_open_vswitch() -> None:
    topology = d_without("B")
    with Lab.create(topology, software="autonomous") as lab:
        assert lab.has_helpers
        status = lab.helpers.status("A")
        assert (status["autonomous"], status["wire"], status["plain"]) == (
            True,
            "eth0=100000000,eth1=100000000",
            PLAIN_TAP,
        )
        devices = {
            entry["ifname"]: entry
            for entry in json.loads(lab.exec("A", ["ip", "-j", "addr"]).stdout)
        }
        assert [
            entry["local"]
            for entry in devices[PLAIN_TAP]["addr_info"]
            if entry["scope"] == "global"
        ] == [
            lab.address("A"),
            lab.address6("A"),
        ]
        assert devices[PLAIN_TAP]["mtu"] == 1478
        assert devices["eth0"]["addr_info"] == devices["eth1"]["addr_info"] == []
        assert devices["eth0"]["flags"].count("UP") == 1
        assert lab.address("B") in lab.exec("B", ["ip", "addr", "show", "dev", "eth0"]).stdout
        assert processes_in([lab.namespace("A")]) == [lab.helpers.pid("A")]
        with pytest.raises(BadInput, match="has no Open vSwitch"):
            lab.vsctl("A", "show")
    assert remains(lab.name) == []


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = load_topology(TOPOLOGIES / "fig4" / "b.yaml")
    with pytest.raises(BadInput, match="'ovs': has no helpers"):
        Lab.create(topology, software="ovs", helpers=True)
    monkeypatch.setenv("RI2N_REORDER", "/nonexistent/reorder")
    with pytest.raises(
        NotAvailable, match="RI2N_REORDER=/nonexistent/reorder: there is no such program"
    ):
        Lab.create(topology, helpers=True)
    assert Lab.create(topology).helpers.hosts == []


@pytest.mark.parametrize("software", ["ri2n", "autonomous"])
def test_the_helper_itself(
    reorder_program: Path, software: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RI2N_REORDER", str(reorder_program))
    with Lab.create(
        load_topology(TOPOLOGIES / "fig4" / "b.yaml"), software=software, helpers=True
    ) as lab:
        assert [type(lab.helpers.status(host)) for host in lab.hosts] == [dict] * len(lab.hosts)
        lab.helpers.kill("A")
        lab.helpers.restart("A")
        if software == "ri2n":  # without a controller, by the start-up flows
            assert all_answered(lab, "A", "B", 5)
        lab.helpers.stop("B")
        assert lab.helpers.pid("B") is None
    assert remains(lab.name) == []
