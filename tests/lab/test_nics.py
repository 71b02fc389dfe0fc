# SPDX-License-Identifier: Apache-2.0
"""What host-up does with NICs: leaving flows take turns, and arriving floods are limited.

The tests run on the kernel datapath, in guests: netdev reads copies of frames, and no test may
change this machine's own settings.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.inside import device_counters
from tests.topology_text import parse_topology

from .conftest import EXACT, controlled
from .floods import BROADCAST, FLOOD, FLOODED, PROBES, flood
from .packets import COUNT_BROADCASTS, SEND_BROADCASTS, reaches
from .prepared_host import SCRIPTS, Host, host_of_its_own

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(
        not EXACT, reason="needs a kernel of its own, with its datapath: tier kernel"
    ),
]

FLOOD_FRAMES = 20_000  # per second: for longer than it takes to call a NIC dead
SHORT_S, SHORT_FRAMES = 0.5, 10_000
STORM_DROPS = f". {SCRIPTS}/common.sh && . {SCRIPTS}/nics.sh && check_bridge_name && storm_drops"


@pytest.fixture(scope="module")
def flooded() -> Iterator[Lab]:
    with controlled(parse_topology(FLOODED)) as lab:
        yield lab


def dropped(lab: Lab, host: str) -> dict[str, int]:
    """How many frames the limits have dropped, by the function with which host-status counts them.

    host-status looks at much else: in a guest, that costs more than a flood.
    """
    said = lab.exec(host, ["bash", "-c", STORM_DROPS, "storm-drops"]).stdout
    return dict(zip(("broadcasts", "probes", "new_sources"), map(int, said.split()), strict=True))


def told(lab: Lab, host: str) -> dict[str, int]:
    """The same, as host-status says it."""
    found: dict[str, int] = json.loads(
        lab.host_script(host, "host-status", "--json", check=False).stdout
    )["storm_drops"]
    return found


def given(lab: Lab, host: str) -> int:
    """The frames that the host's own port was given."""
    return device_counters(lab.namespace(host))["br-ri2n"]["rx_packets"]


def looked_up(lab: Lab, host: str) -> int:
    """The frames that ovs-vswitchd has looked at, because nothing was cached for them."""
    found = re.search(r"missed:(\d+)", lab.appctl(host, "dpctl/show"))
    assert found is not None
    return int(found[1])


def fresh_limits(lab: Lab, host: str) -> None:
    """Make the limits as after host-up: no sender is known, and none has used up its burst."""
    lab.exec(host, ["nft", "flush", "ruleset"])
    lab.host_script(host, "host-up", *lab.host_up_arguments(host))


ND_SOLICITATION = (
    "86dd" + "6000000000083aff" + f"fe80{1:028x}" + f"ff02{1:028x}" + "8700000000000000"
)
FOR_ALL = {
    "broadcasts": (BROADCAST, "88b7"),
    "neighbour discovery": ("33:33:00:00:00:01", ND_SOLICITATION),
}


@pytest.mark.parametrize("kind", FOR_ALL)
def test_a_flood_of_what_all_hear_costs_programs_a_thousand_a_second(
    kind: str, flooded: Lab
) -> None:
    before = {host: (dropped(flooded, host), given(flooded, host)) for host in "AB"}
    flood(flooded, FOR_ALL[kind][0], "own", FOR_ALL[kind][1], seconds=SHORT_S)
    for host, (drops, frames) in before.items():
        # 1,000 at once and 1,000 per second are allowed; the stream has 1,000 packets.
        assert dropped(flooded, host)["broadcasts"] - drops["broadcasts"] >= SHORT_FRAMES - 1_600
        assert given(flooded, host) - frames < 1_600 + 1_300
    reaches(flooded, "A", "R")


def test_broadcasts_of_others_do_not_go_with_those_of_a_flood(flooded: Lab) -> None:
    drops = dropped(flooded, "B")["broadcasts"]
    sender = flooded.address("A")
    receiver = flooded.popen(
        "B", [sys.executable, "-c", COUNT_BROADCASTS, sender], stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
    words = [BROADCAST, "own", "88b7", "20000", str(SHORT_FRAMES)]
    flooding = flooded.popen("R", [sys.executable, "-c", FLOOD, *words])
    flooded.exec("A", [sys.executable, "-c", SEND_BROADCASTS])
    got = json.loads(receiver.communicate(timeout=600)[0])
    assert {who: sorted(each) for who, each in got.items()} == {sender: sorted(map(str, range(50)))}
    assert flooding.wait(timeout=600) == 0
    assert dropped(flooded, "B")["broadcasts"] - drops >= SHORT_FRAMES - 1_600


def test_a_thousand_hosts_that_begin_at_once_are_no_flood(flooded: Lab) -> None:
    """Each host has two addresses, its own and its NIC's, from which nothing has arrived yet.

    All of them ask for the same address.
    """
    fresh_limits(flooded, "A")
    before, frames = dropped(flooded, "A"), given(flooded, "A")
    flood(flooded, BROADCAST, "random", "88b7", seconds=0.1)
    assert dropped(flooded, "A") == before
    assert given(flooded, "A") - frames >= 2_000


def test_a_flood_of_new_addresses_costs_the_switch_a_hundred_a_second(flooded: Lab) -> None:
    fresh_limits(flooded, "A")
    drops, looks = dropped(flooded, "A"), looked_up(flooded, "A")
    own = flooded.exec("A", ["cat", "/sys/class/net/br-ri2n/address"]).stdout.strip()
    flood(flooded, own, "random", "0800", seconds=SHORT_S)
    assert dropped(flooded, "A")["new_sources"] - drops["new_sources"] >= SHORT_FRAMES - 4_100
    assert looked_up(flooded, "A") - looks < 4_100 + 600
    assert told(flooded, "A") == dropped(flooded, "A")
    reaches(flooded, "R", "A")


@pytest.mark.parametrize("kind", ["88b5", "8100006588b5"], ids=["untagged", "with a tag"])
def test_a_flood_of_probes_is_held_back_and_no_nic_taken_for_dead(kind: str, flooded: Lab) -> None:
    before = {host: dropped(flooded, host) for host in "AB"}
    flood(flooded, PROBES, "own", kind)
    for host, drops in before.items():
        assert dropped(flooded, host)["probes"] - drops["probes"] >= FLOOD_FRAMES - 4_100
    reaches(flooded, "A", "B")


def test_without_nf_tables_it_goes_on_and_says_so(flooded: Lab) -> None:
    """The frames pass as before, and a second run changes nothing.

    Rules that were removed come back.
    """
    up = flooded.host_up_arguments("A")
    said = flooded.host_script("A", "host-up", *up)
    assert "nothing to do" in said.stdout
    flooded.exec("A", ["nft", "flush", "ruleset"])
    status = flooded.host_script("A", "host-status", check=False).stdout
    assert "floods: no limit" in status
    assert all(
        f"warning: NIC {nic} takes floods as they come: run host-up again" in status
        for nic in ("eth0", "eth1")
    )
    flooded.host_script("A", "host-up", *up)
    assert dropped(flooded, "A")["broadcasts"] == 0


@pytest.fixture
def host() -> Iterator[Host]:
    """Host A of fig4/d before RI2N, on a kernel whose NICs have one queue for all by default."""
    with host_of_its_own() as made:
        yield made


def qdiscs(host: Host, nic: str) -> list[str]:
    return host.run("tc", "qdisc", "show", "dev", nic).stdout.splitlines()


def test_a_nic_with_one_queue_for_all_gets_one_per_flow_and_the_old_one_back(host: Host) -> None:
    host.run("ip", "tuntap", "add", "eth7", "mode", "tap")
    host.run("ip", "tuntap", "add", "eth8", "mode", "tap", "multi_queue")
    for nic in ("eth7", "eth8"):
        host.run("ip", "link", "set", nic, "up")
    own = {nic: qdiscs(host, nic) for nic in ("eth0", "eth7", "eth8")}
    assert own["eth7"][0].startswith("qdisc pfifo_fast 0: root"), own
    host.up("--nic", "eth7", "--nic", "eth8")
    assert qdiscs(host, "eth7")[0].startswith("qdisc fq_codel 5249: root")
    assert all("fq_codel" in line or "mq 5249: root" in line for line in qdiscs(host, "eth8"))
    assert qdiscs(host, "eth0") == own["eth0"]  # somebody chose it
    assert "nothing to do" in host.up("--nic", "eth7", "--nic", "eth8")
    host.script("host-down")
    assert {nic: qdiscs(host, nic) for nic in own} == own
