# SPDX-License-Identifier: Apache-2.0
"""The controller and Open vSwitch together.

Networks are found, and every frame goes where it should, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from tests.waiting import wait_until

from .frames import Capture, arp, await_problems, ether, read_pcap, slot_hops, udp

HOSTS = ("A", "B", "C", "D")
STRANGER = "02:00:09:09:09:09"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}, {"R": "n0"}) as made:
        made.start_controller(config="hbspan_s: {min: 0.1, max: 0.2}\n" + made.declared())
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()
        assert not [name for name in made.ask("status")["counters"] if "errors" in name]


def nics_of_networks(status: dict[str, Any]) -> set[frozenset[str]]:
    return {frozenset(network["nics"]) for network in status["networks"]}


def test_networks_are_found(sandbox: Sandbox) -> None:
    status = sandbox.ask("status")
    assert nics_of_networks(status) == {
        frozenset(f"{name}:{name}-e{i}" for name in HOSTS) for i in (0, 1)
    }
    await_problems(sandbox)
    for host in status["hosts"]:
        assert host["mac"] == sandbox.mac(host["name"])
        assert [nic["mac"] for nic in host["nics"]] == [
            sandbox.nic_mac(host["name"], port) for port in (1, 2)
        ]
    assert all(path["alive"] for pair in status["pairs"] for path in pair["paths"])


def test_each_slot_sends_by_its_path_under_the_nics_addresses(sandbox: Sandbox) -> None:
    slots = sandbox.ask("explain", src="A", dst="C")["slots"]
    assert len(slots) == 64 and set(map(tuple, slots)) == {
        ("A-e0", "C-e0", None),
        ("A-e1", "C-e1", None),
    }
    macs = {
        f"{name}-e{port - 1}": sandbox.nic_mac(name, port) for name in ("A", "C") for port in (1, 2)
    }
    buckets = set()
    for hops in slot_hops(sandbox, "A", "C", 64):
        leaves, network, arrives = hops
        assert leaves.bucket is not None
        own, peer, _ = slots[leaves.bucket]
        buckets.add(leaves.bucket)
        assert leaves.sets == [("eth_src", macs[own]), ("eth_dst", macs[peer])]
        assert leaves.outputs == [str(int(own[-1]) + 1)]
        assert network.bridge == f"n{own[-1]}"
        assert arrives.bridge == "C" and arrives.outputs == ["LOCAL"]
        assert dict(arrives.sets) == {"eth_dst": sandbox.mac("C"), "eth_src": sandbox.mac("A")}
    assert buckets == set(range(64))


@pytest.mark.parametrize("kind", ["IPv4", "IPv6", "non-IP"])
def test_every_pair_gets_every_frame_once_and_unchanged(sandbox: Sandbox, kind: str) -> None:
    capture = Capture(sandbox)
    wanted: dict[str, list[str]] = {name: [] for name in HOSTS}
    for source, target in permutations(HOSTS, 2):
        macs = sandbox.mac(source), sandbox.mac(target)
        if kind == "non-IP":
            frames = [ether(*macs, 0x9999, bytes([i])) for i in range(8)]
        else:
            frames = [udp(*macs, (5000 + i, 6000), ipv6=kind == "IPv6") for i in range(8)]
        sandbox.receive(source, *frames)
        wanted[target] += frames
    capture.expect(wanted)


@pytest.mark.parametrize("group", ["ff:ff:ff:ff:ff:ff", "01:00:5e:01:02:03", "33:33:00:00:00:99"])
def test_broadcast_and_multicast_arrive_once_everywhere_else(sandbox: Sandbox, group: str) -> None:
    capture = Capture(sandbox)
    wanted: dict[str, list[str]] = {name: [] for name in (*HOSTS, "R")}
    for source in HOSTS:
        frame = udp(sandbox.mac(source), group, (7, 8))
        sandbox.receive(source, frame)
        for name in wanted.keys() - {source}:
            wanted[name].append(frame)
    capture.expect(wanted)


@contextmanager
def dead_port(sandbox: Sandbox, host: str, nic: int) -> Iterator[None]:
    """The switch's port of a NIC drops everything, in both directions."""
    place = f"n{nic}", f"n{nic}-{host}-{nic}"
    try:
        for setting in ("no-receive", "no-forward"):
            sandbox.ovs.ofctl("mod-port", *place, setting)
        sandbox.ovs.appctl("revalidator/purge")  # cached flows would go on for a moment
        yield
    finally:
        for setting in ("receive", "forward"):
            sandbox.ovs.ofctl("mod-port", *place, setting)


@pytest.mark.parametrize("dead", [0, 1])
def test_arp_and_then_broadcast_are_taken_from_the_other_nic(sandbox: Sandbox, dead: int) -> None:
    request = arp(sandbox.mac("A"), "10.77.0.1", "10.77.0.2")
    capture = Capture(sandbox)
    shouts: list[str] = []

    def heard() -> bool:
        shouts.append(udp(sandbox.mac("A"), "ff:ff:ff:ff:ff:ff", (dead, len(shouts))))
        sandbox.receive("A", shouts[-1])
        return any(capture.new("B")[shout] for shout in shouts)

    with dead_port(sandbox, "B", dead):
        # These frames are sent at once: the controller does not know of the change yet.
        sandbox.receive("A", request)
        wait_until(lambda: capture.new("B")[request], "ARP is lost with one dead port")
        assert capture.new("B")[request] == 1
        wait_until(
            lambda: not alive(sandbox, "B", dead), "the controller does not notice the dead port"
        )
        wait_until(heard, "broadcast is not taken from the other NIC")
    wait_until(lambda: alive(sandbox, "B", dead), "it does not notice that the port works again")
    sandbox.wait_settled()
    assert max(capture.new("B")[shout] for shout in shouts) == 1
    assert not capture.new("A")


def alive(sandbox: Sandbox, host: str, nic: int) -> bool:
    hosts = {entry["name"]: entry for entry in sandbox.ask("status")["hosts"]}
    return bool(hosts[host]["nics"][nic]["alive"])


def test_slots_of_a_dead_path_go_to_the_live_one(sandbox: Sandbox) -> None:
    with dead_port(sandbox, "D", 1):
        wait_until(
            lambda: (
                {tuple(slot) for slot in sandbox.ask("explain", src="A", dst="D")["slots"]}
                == {("A-e0", "D-e0", None)}
            ),
            lambda: f"A still sends to D by {sandbox.ask('explain', src='A', dst='D')['paths']}",
        )
        sandbox.wait_settled()
        capture = Capture(sandbox)
        frames = {
            name: [udp(sandbox.mac(name), sandbox.mac("D"), (9000 + i, 1)) for i in range(32)]
            for name in "ABC"
        }
        for name, sent in frames.items():
            sandbox.receive(name, *sent)
        capture.expect({"D": [frame for sent in frames.values() for frame in sent]})
    wait_until(
        lambda: (
            len({tuple(slot) for slot in sandbox.ask("explain", src="A", dst="D")["slots"]}) == 2
        ),
        "the restored path is not used",
    )
    sandbox.wait_settled()


def test_own_frames_are_dropped_when_they_come_back(sandbox: Sandbox) -> None:
    capture = Capture(sandbox)
    own = [sandbox.mac("A"), sandbox.nic_mac("A", 1), sandbox.nic_mac("A", 2)]
    looped = [udp(mac, "ff:ff:ff:ff:ff:ff", (3, 4)) for mac in own]
    looped += [udp(mac, sandbox.mac("A"), (3, 4)) for mac in own]
    last = udp(STRANGER, "ff:ff:ff:ff:ff:ff", (5, 6))
    sandbox.receive("R", *looped, last)
    wait_until(lambda: capture.new("A")[last], "not even the last frame arrives")
    assert capture.new("A") == Counter({last: 1})
    # The switch now has A's addresses at the wrong port; A's own frames correct that.
    sandbox.receive("A", udp(sandbox.mac("A"), "ff:ff:ff:ff:ff:ff", (5, 7)))


def test_a_host_without_open_vswitch_is_reached_and_learned(sandbox: Sandbox) -> None:
    router = sandbox.mac("R")
    for name in HOSTS:
        sandbox.ovs.ofctl("del-flows", name, "table=11,cookie=0/0")
        assert router not in sandbox.ovs.ofctl("dump-flows", name, "table=11")
    sandbox.ovs.appctl("revalidator/purge")
    before = [udp(sandbox.mac(name), router, (10, i)) for i, name in enumerate(HOSTS)]
    capture = Capture(sandbox)
    for name, frame in zip(HOSTS, before, strict=True):
        sandbox.receive(name, frame)
    capture.expect({"R": before})  # it is not known yet: once into every network
    hello = arp(router, "10.77.0.9", "10.77.0.1")
    capture = Capture(sandbox)
    sandbox.receive("R", hello)
    capture.expect({name: [hello] for name in HOSTS})
    after = [udp(sandbox.mac(name), router, (11, i)) for i, name in enumerate(HOSTS)]
    capture = Capture(sandbox)
    for name, frame in zip(HOSTS, after, strict=True):
        sandbox.receive(name, frame)
        assert f"dl_dst={router}" in sandbox.ovs.ofctl("dump-flows", name, "table=11")
    capture.expect({"R": after})
    answers = {name: [udp(router, sandbox.mac(name), (12, 1))] for name in HOSTS}
    capture = Capture(sandbox)
    sandbox.receive("R", *(frame for frames in answers.values() for frame in frames))
    capture.expect(answers)


@contextmanager
def moved(sandbox: Sandbox) -> Iterator[Path]:
    """R is plugged into the second network; the capture of what it is given there.

    Afterwards it is back, and heard.
    """
    path = sandbox.capture("R2")
    sandbox.ovs.vsctl(*("del-port", "n0", "R", "--", "add-port", "n1", "R2"), *dummy("R2", path))
    try:
        yield path
    finally:
        sandbox.ovs.vsctl(
            *("del-port", "n1", "R2", "--", "add-port", "n0", "R"),
            *dummy("R", sandbox.capture("R")),
        )
        speak(sandbox, "R", "10.77.0.8")


def dummy(device: str, path: Path) -> tuple[str, ...]:
    return "--", "set", "interface", device, "type=dummy", f"options:tx_pcap={path}"


def speak(sandbox: Sandbox, device: str, address: str) -> None:
    """R says who it is, and all hosts hear it."""
    capture, hello = Capture(sandbox), arp(sandbox.mac("R"), address, "10.77.0.1")
    sandbox.receive(device, hello)
    capture.expect({name: [hello] for name in HOSTS})


def test_a_plain_host_that_moves_is_followed(sandbox: Sandbox) -> None:
    router = sandbox.mac("R")
    speak(sandbox, "R", "10.77.0.9")

    def arrives(name: str) -> bool:
        # A cached flow may send the first frames to where the host was before.
        frame = udp(sandbox.mac(name), router, (13, next(number)))
        sandbox.receive(name, frame)
        return any(other[12:24] == frame[12:24] for other in read_pcap(path))

    number = count(1)
    with moved(sandbox) as path:
        speak(sandbox, "R2", "10.77.0.9")
        for name in HOSTS:
            wait_until(partial(arrives, name), f"{name} does not reach the host that moved")
        frames = [frame for frame in read_pcap(path) if frame[:12] == router.replace(":", "")]
        assert len(frames) >= len(HOSTS)
        assert not [frame for frame, times in Counter(frames).items() if times > 1]


def test_nothing_changes_while_nothing_happens(sandbox: Sandbox) -> None:
    """Counters of messages do not change over several rounds, except those of probes."""
    before = sandbox.wait_settled()["counters"]
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("cycles", 0) >= before["cycles"] + 10,
        "there are no cycles",
    )
    after = sandbox.ask("status")["counters"]
    unwanted = ("flow_mods", "group_mods", "switch_errors", "slots_moved")
    assert {name: after.get(name, 0) - before.get(name, 0) for name in unwanted} == dict.fromkeys(
        unwanted, 0
    )
