# SPDX-License-Identifier: Apache-2.0
"""host-down ends the jobs of the host, and leaves nothing of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import ovs

from .prepared_host import HOST, SCRIPTS, Host, host_of_its_own


@pytest.fixture
def host() -> Iterator[Host]:
    with host_of_its_own() as made:
        yield made


@pytest.mark.parametrize("switch", ["runs", "bridge deleted"])
def test_host_down_ends_all_jobs(host: Host, switch: str) -> None:
    before = host.snapshot()
    host.up()
    begin = [str(SCRIPTS / "job-begin"), "--db", ovs.database(host.folder), "--hosts", "A,B"]
    host.run(*begin, "--id", "one", "--user", "20001", "--max-rate", "1G")
    host.run(*begin, "--id", "two", "--user", "20002")
    assert "ri2n_jobs" in host.run("nft", "list", "ruleset").stdout
    assert not [text for text in host.problems() if "nobody's" in text]
    if switch == "bridge deleted":
        host.lab.vsctl(HOST, "del-br", "br-ri2n")
    host.script("host-down")
    assert host.snapshot() == before
    assert not (host.folder / "ri2n-jobs" / "br-ri2n").exists()


def test_without_a_controller_frames_of_a_job_leave_under_the_hosts_own_address(host: Host) -> None:
    """No frame with a class is on the wire, and one that came from there is dropped."""
    host.up()
    mac = host.lab.vsctl(HOST, "get", "bridge", "br-ri2n", "other_config:hwaddr").strip().strip('"')
    frame = "dl_src=02:52:4a:00:00:05,dl_dst=0e:00:00:00:00:01"

    def trace(port: str) -> str:
        argv = ["ovs-appctl", "ofproto/trace", "br-ri2n", f"in_port={port},{frame}"]
        return host.run("env", f"OVS_RUNDIR={host.folder}", *argv).stdout

    sent = trace("LOCAL").rpartition("Datapath actions:")[2]
    assert f"set(eth(src={mac}))" in sent.replace("dst=0e:00:00:00:00:01,", "") and "," in sent
    assert trace("1").rpartition("Datapath actions:")[2].strip() == "drop"
