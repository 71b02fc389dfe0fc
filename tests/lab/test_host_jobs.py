"""host-down ends the jobs of the host, and leaves nothing of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab, ovs
from ri2n_sdn.fabric.topology import load_topology

from .conftest import TOPOLOGIES
from .prepared_host import HOST, SCRIPTS, Host


@pytest.fixture
def host() -> Iterator[Host]:
    with Lab.create(load_topology(TOPOLOGIES / "fig4" / "d.yaml")) as lab:
        made = Host(lab)
        made.prepare()
        yield made


@pytest.mark.parametrize("switch", ["runs", "bridge deleted"])
def test_host_down_ends_all_jobs(host: Host, switch: str) -> None:
    before = host.snapshot()
    host.up()
    begin = [str(SCRIPTS / "job-begin"), "--db", ovs.database(host.folder), "--hosts", "A,B"]
    host.run(*begin, "--id", "one", "--user", "20001", "--max-rate", "1G")
    host.run(*begin, "--id", "two", "--user", "20002")
    assert "ri2n_jobs" in host.run("nft", "list", "ruleset").stdout
    if switch == "bridge deleted":
        host.lab.vsctl(HOST, "del-br", "br-ri2n")
    host.script("host-down")
    assert host.snapshot() == before
    assert not (host.folder / "ri2n-jobs" / "br-ri2n").exists()
