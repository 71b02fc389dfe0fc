"""What host-up does with NICs: flows take turns on the way out, and floods are held back on the way in.

On the kernel datapath, in guests: netdev reads copies of frames, and nobody may change this machine's own settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from ri2n_sdn.fabric.topology import load_topology, parse_topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import Stream

from .conftest import EXACT, TOPOLOGIES
from .packets import flawless, reaches
from .prepared_host import Host

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(not EXACT, reason="needs a kernel of its own, with its datapath: tier kernel"),
]
WaitUntil = Callable[..., None]

FLOODED = """
name: flooded
switches: {n1: {port_buffer_bytes: 131072}, n2: {port_buffer_bytes: 131072}}
hosts:
  A: {nics: [{name: eth0, switch: n1, rate_bps: 100000000}, {name: eth1, switch: n2, rate_bps: 100000000}]}
  B: {nics: [{name: eth0, switch: n1, rate_bps: 100000000}, {name: eth1, switch: n2, rate_bps: 100000000}]}
  R: {managed: false, nics: [{name: eth0, switch: n1, rate_bps: 100000000}]}
"""
FLOOD_PPS, FLOOD_S = 20_000, 1.0
FLOOD_FRAMES = round(FLOOD_PPS * FLOOD_S)
# Ten frames every half millisecond: SOURCE and TARGET are MAC addresses, or "random".
FLOOD = """
import os, random, socket, sys, time
target, source, kind, pps, frames = *sys.argv[1:4], *map(int, sys.argv[4:])
own, chance = open("/sys/class/net/eth0/address").read().strip(), random.Random(1)
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); raw.bind(("eth0", 0))
mac = lambda text: bytes.fromhex(text.replace(":", ""))
start_s = time.monotonic()
for number in range(frames):
    if number % 10 == 0:
        time.sleep(max(0.0, start_s + number / pps - time.monotonic()))
    sender = b"\\x02" + chance.randbytes(5) if source == "random" else mac(own)
    raw.send((mac(target) + sender + bytes.fromhex(kind)).ljust(60, b"\\0"))
"""
BROADCAST = "ff:ff:ff:ff:ff:ff"


@pytest.fixture(scope="module")
def flooded() -> Iterator[Lab]:
    with Lab.create(parse_topology(FLOODED)) as lab:
        lab.start_controller()
        lab.wait_ready()
        yield lab


def dropped(lab: Lab, host: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(lab.host_script(host, "host-status", "--json", check=False).stdout)[
        "storm_drops"
    ]
    return found


def count(lab: Lab, host: str, pattern: str, *command: str) -> int:
    found = re.search(pattern, lab.exec(host, command).stdout)
    assert found is not None
    return int(found[1])


def given(lab: Lab, host: str) -> int:
    """Frames that the host's own port was given."""
    return count(lab, host, r"(\d+)", "cat", "/sys/class/net/br-ri2n/statistics/rx_packets")


def looked_up(lab: Lab, host: str) -> int:
    """Frames that ovs-vswitchd has looked at, because nothing was cached for them."""
    found = re.search(r"missed:(\d+)", lab.appctl(host, "dpctl/show"))
    assert found is not None
    return int(found[1])


def flood(lab: Lab, target: str, source: str, kind: str) -> None:
    """R floods while A and B talk, 1,000 packets/s each way, and lose nothing."""
    streams = [Stream(lab, a, b, pps=1000, seconds=FLOOD_S + 1, flows=64) for a, b in (("A", "B"), ("B", "A"))]
    words = [target, source, kind, str(FLOOD_PPS), str(FLOOD_FRAMES)]
    lab.exec("R", ["python3", "-c", FLOOD, *words], timeout_s=600)
    for stream in streams:
        flawless(stream.result())


def test_a_flood_of_broadcasts_costs_programs_a_thousand_a_second(flooded: Lab) -> None:
    before = {host: (dropped(flooded, host), given(flooded, host)) for host in "AB"}
    flood(flooded, BROADCAST, "own", "88b7")
    for host, (drops, frames) in before.items():
        # 1,000 at once and 1,000 a second; the stream has 2,000 packets.
        assert dropped(flooded, host)["broadcasts"] - drops["broadcasts"] >= FLOOD_FRAMES - 2_100
        assert given(flooded, host) - frames < 2_100 + 2_300
    reaches(flooded, "A", "R")


def test_a_flood_of_new_addresses_costs_the_switch_a_hundred_a_second(flooded: Lab) -> None:
    drops, looks = dropped(flooded, "A"), looked_up(flooded, "A")
    own = flooded.exec("A", ["cat", "/sys/class/net/br-ri2n/address"]).stdout.strip()
    flood(flooded, own, "random", "0800")
    assert dropped(flooded, "A")["new_sources"] - drops["new_sources"] >= FLOOD_FRAMES - 1_200
    assert looked_up(flooded, "A") - looks < 1_200 + 600
    reaches(flooded, "R", "A")


def test_a_flood_of_probes_is_held_back_and_no_nic_taken_for_dead(flooded: Lab) -> None:
    before = {host: dropped(flooded, host) for host in "AB"}
    flood(flooded, BROADCAST[:-2] + "fe", "own", "88b5")
    for host, drops in before.items():
        assert dropped(flooded, host)["probes"] - drops["probes"] >= FLOOD_FRAMES - 4_100
    reaches(flooded, "A", "B")


def test_without_nf_tables_it_goes_on_and_says_so(flooded: Lab) -> None:
    """The frames pass as before; a second run changes nothing; rules that were taken away come back."""
    up = flooded.host_up_arguments("A")
    said = flooded.host_script("A", "host-up", *up)
    assert "nothing to do" in said.stdout
    flooded.exec("A", ["nft", "flush", "ruleset"])
    status = flooded.host_script("A", "host-status", check=False).stdout
    assert "floods: no limit" in status
    flooded.host_script("A", "host-up", *up)
    assert dropped(flooded, "A")["broadcasts"] == 0


@pytest.fixture
def host() -> Iterator[Host]:
    """Host A of fig4/d before RI2N, on a kernel whose NICs have one queue for all unless somebody asks for another."""
    with Lab.create(load_topology(TOPOLOGIES / "fig4" / "d.yaml")) as lab:
        host = Host(lab)
        host.prepare()
        yield host


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
    assert qdiscs(host, "eth0") == own["eth0"]  # somebody's choice
    assert "nothing to do" in host.up("--nic", "eth7", "--nic", "eth8")
    host.script("host-down")
    assert {nic: qdiscs(host, nic) for nic in own} == own
