# SPDX-License-Identifier: Apache-2.0
"""host-up makes the bridge and moves the addresses, a second run changes nothing, all is undone."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from ri2n_lab.cluster import ovs

from .conftest import WaitUntil
from .prepared_host import HOST, WAIT_S, Host, host

__all__ = ["host"]


@pytest.mark.parametrize("deleted", [False, True], ids=["", "after the bridge was deleted"])
def test_addresses_and_routes_move_and_come_back(host: Host, deleted: bool) -> None:
    before = host.snapshot()
    host.up()
    if deleted:  # somebody else deleted it, and with it the addresses and routes
        host.lab.vsctl(HOST, "del-br", "br-ri2n")
        host.up()
    addresses = host.run("ip", "-o", "addr", "show", "dev", "br-ri2n", "scope", "global").stdout
    for address in ("10.77.0.1/24 brd 10.77.0.255", "10.78.0.1/24", "10.79.0.1/30", "fd77::1/64"):
        assert address in addresses
    for nic in ("eth0", "eth1"):
        # Not even a link-local address is left.
        assert host.run("ip", "-o", "addr", "show", "dev", nic).stdout == ""
    routes = host.run("sh", "-c", "ip route; ip -6 route").stdout
    for route in (
        "default via 10.77.0.2 dev br-ri2n",
        "10.90.0.0/16 via 10.78.0.9 dev br-ri2n metric 50",
        "10.91.0.0/16 dev br-ri2n",
        "10.89.0.0/16 via 10.91.0.5 dev br-ri2n",  # by a gateway that the route before leads to
        "default via fd77::2 dev br-ri2n",
        "fd90::/64 dev br-ri2n metric 77",
    ):
        assert route in routes
    assert "dev eth" not in routes
    assert host.answers("B", "A")
    assert host.answers("A", host.lab.address6("C"), "-6")
    host.script("host-down")
    assert host.snapshot() == before
    assert "nothing to undo" in host.script("host-down").stdout


def test_a_nic_that_was_down_is_down_again(host: Host) -> None:
    host.run("ip", "link", "set", "eth1", "down")
    before = host.snapshot()
    assert ",UP" not in host.run("ip", "-o", "link", "show", "dev", "eth1").stdout
    host.up()
    assert ",UP" in host.run("ip", "-o", "link", "show", "dev", "eth1").stdout, (
        "it is used as all others are"
    )
    host.script("host-down")
    assert host.snapshot() == before


def test_the_bridge_is_as_it_must_be(host: Host) -> None:
    host.up()

    def column(table: str, record: str, name: str) -> str:
        return host.lab.vsctl(HOST, "get", table, record, name).strip().strip('"')

    assert column("bridge", "br-ri2n", "fail_mode") == "secure"
    assert column("bridge", "br-ri2n", "other_config:disable-in-band") == "true"
    assert column("bridge", "br-ri2n", "other_config:dp-desc") == "A"
    assert column("bridge", "br-ri2n", "protocols") == "[OpenFlow15]"
    assert column("interface", "eth0", "ofport") == "1"
    assert column("interface", "eth1", "ofport") == "2"
    assert column("interface", "br-ri2n", "mtu") == "1500"
    assert column("Open_vSwitch", ".", "other_config:max-revalidator") == "250"
    mac = column("interface", "br-ri2n", "mac_in_use")
    assert mac == "06:00:00:00:01:01"  # that of the first NIC, locally administered
    assert "hidden" not in host.lab.appctl(HOST, "bridge/dump-flows", "br-ri2n")
    assert "NORMAL" not in host.lab.appctl(HOST, "bridge/dump-flows", "br-ri2n")
    limits = host.lab.vsctl(HOST, "--columns=flow_limit,overflow_policy", "list", "Flow_Table")
    assert "4096" in limits
    assert "evict" in limits
    flows = host.flows()
    assert len(flows) > 10
    assert all(re.search(r"cookie=0x5249[0-9a-f]{12},|, table=248,", flow) for flow in flows)


def test_a_second_run_changes_nothing(host: Host) -> None:
    host.up()
    assert host.answers("B", "A")
    before, flows = host.snapshot(), host.flows()
    durations = host.lab.ofctl(HOST, "dump-flows", "br-ri2n", "table=253")
    assert "nothing to do" in host.up()
    assert "nothing to do" in host.up("--dry-run")
    assert host.snapshot() == before
    assert host.flows() == flows
    age = r"duration=([0-9.]+)s"
    then = [float(value) for value in re.findall(age, durations)]
    now = [
        float(value)
        for value in re.findall(age, host.lab.ofctl(HOST, "dump-flows", "br-ri2n", "table=253"))
    ]
    # The flows were not installed again.
    assert all(new > old for old, new in zip(then, now, strict=True))


def test_the_first_controller_empties_the_tables_and_they_are_filled_again(host: Host) -> None:
    nics = ["--nic", "eth0", "--nic", "eth1", "--name", "A", "--datapath", host.lab.datapath]
    host.script("host-up", *nics)
    flows = host.flows()
    assert len(flows) > 10
    host.up()
    assert "10.255.0.1" in host.lab.vsctl(HOST, "get-controller", "br-ri2n")
    assert host.flows() == flows
    host.script("host-up", *nics, "--controller", "tcp:10.255.0.9:6653")
    assert host.lab.vsctl(HOST, "get-controller", "br-ri2n").split() == ["tcp:10.255.0.9:6653"]
    assert host.flows() == flows


def test_foreign_flows_are_left_alone(host: Host) -> None:
    host.up()
    host.lab.ofctl(
        HOST,
        "add-flow",
        "br-ri2n",
        "cookie=0x77,table=0,priority=99,in_port=1,dl_type=0x88b5,actions=drop",
    )
    host.up("--extra-mac", "02:aa:00:00:00:01")
    assert "cookie=0x77" in host.lab.ofctl(HOST, "dump-flows", "br-ri2n")
    assert sum("02:aa:00:00:00:01" in flow for flow in host.flows()) == 2


def test_dry_run_changes_nothing_and_tells_it(host: Host) -> None:
    before = host.snapshot()
    output = host.up("--dry-run", "--confirm", "5")
    assert host.snapshot() == before
    for part in (
        "add-br br-ri2n",
        "disable-in-band=true",
        "add-flows br-ri2n",
        "ip addr replace 10.77.0.1/24",
        "host-down",
    ):
        assert part in output
    assert (
        output.index("disable-in-band")
        < output.index("tcp:10.255.0.1:6653")
        < output.index("add-flows")
    )
    host.up()
    before = host.snapshot()
    assert "ovs-vsctl del-br br-ri2n" in host.script("host-down", "--dry-run").stdout
    assert host.snapshot() == before


def test_with_json_all_that_is_said_is_an_event_and_a_dry_run_is_none(host: Host) -> None:
    before = host.snapshot()

    def events(script: str, *arguments: str) -> list[tuple[str, str]]:
        done = host.script(script, *arguments, "--log-format", "json")
        assert done.stdout == "", done
        said = [json.loads(line) for line in done.stderr.splitlines()]
        assert {event["logger"] for event in said} == {f"ri2n.{script}"}
        return [(event["level"], event["message"]) for event in said]

    up = [*host.up_arguments, "--skip-missing", "--nic", "eth9"]
    said = events("host-up", *up)
    assert ("warning", "--nic eth9: there is no such NIC: going on without it") in said
    assert said[-1][0] == "info" and said[-1][1].startswith("br-ri2n: up as A with eth0 eth1")
    assert (host.state / "br-ri2n" / "log").read_text() == "RI2N_LOG_FORMAT=json\n"
    done = host.script("host-down", "--dry-run", "--log-format", "json")
    assert "ovs-vsctl del-br br-ri2n" in done.stdout and done.stderr == ""
    host.up()
    assert not (host.state / "br-ri2n" / "log").exists(), "the last host-up chose text"
    assert events("host-down") == [("info", "br-ri2n: removed, the NICs are as before")]
    assert host.snapshot() == before


def test_flows_come_back_after_vswitchd_restarted(host: Host, wait_until: WaitUntil) -> None:
    host.up()
    flows = host.flows()
    folder = host.lab.run_dir / HOST
    pid = int((folder / "ovs-vswitchd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: not Path(f"/proc/{pid}/ns/net").exists(), "ovs-vswitchd does not die", WAIT_S
    )
    host.run(
        "ovs-vswitchd", ovs.database(folder), "--pidfile", "--detach", "--log-file", "-vconsole:off"
    )
    assert host.flows() == []
    host.up()
    assert host.flows() == flows
    assert host.answers("A", host.lab.address("C"))
    assert "tbf" in host.run("tc", "qdisc", "show", "dev", "eth0").stdout
