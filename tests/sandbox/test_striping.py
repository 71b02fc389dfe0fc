# SPDX-License-Identifier: Apache-2.0
"""Hosts with helpers under a live controller: stripes, and what helpers are told and report.

The helpers' ports are dummies, so the tests take the place of the helpers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.fabric.helper_links import number_pair
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.crc32c import crc32c
from tests.problem_texts import problem_texts
from tests.waiting import wait_until

from .frames import Capture, await_problems, ether, read_pcap, udp

WIRING = {"A": ["n0", "n1"], "B": ["n0", "n1"], "C": ["n0"]}  # C has no helper
PLAIN, WIRE = 101, 102
STRIPED, CONTROLLER_VLAN = 0x88B6, 4094
NUMBERS = number_pair([(1, 1, 0), (2, 2, 0)], {})
THIS_HOST, PEER, GONE = 1, 2, 3


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(WIRING, helpers="AB") as made:
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        counters = made.ask("status")["counters"]
        assert not [name for name in counters if "errors" in name], counters
        assert "Traceback" not in made.log()


@pytest.fixture(scope="module")
def spare_made() -> Iterator[Sandbox]:
    with Sandbox(WIRING, helpers="AB") as made:
        yield made


@pytest.fixture
def spare(spare_made: Sandbox) -> Iterator[Sandbox]:
    """A sandbox without a controller: each test starts its own, and finds bridges without rows."""
    yield spare_made
    spare_made.kill_controllers()
    for name in WIRING:
        spare_made.ovs.ofctl("del-flows", name)
        spare_made.ovs.ofctl("del-groups", name)


def tagged(frame: str, vid: int, priority: int = 0) -> str:
    return frame[:24] + f"8100{priority << 13 | vid:04x}" + frame[24:]


def stripe(sandbox: Sandbox, source: str, target: str, mark: int) -> str:
    """A data frame of a helper; the bridges do not look into it."""
    return ether(
        sandbox.mac(source),
        sandbox.mac(target),
        STRIPED,
        struct.pack("!BBI", 0x11, 0, mark) + bytes(60),
    )


class Tap:
    """What one of a host's helper ports is given from now on."""

    def __init__(self, sandbox: Sandbox, device: str) -> None:
        self._path = sandbox.capture(device)
        self._before = len(read_pcap(self._path))

    def new(self) -> list[str]:
        """The frames without control frames."""
        return [
            frame for frame in read_pcap(self._path)[self._before :] if frame[24:32] != "81000ffe"
        ]

    def control(self) -> list[bytes]:
        """The control frames, without their tag."""
        found = read_pcap(self._path)[self._before :]
        return [
            bytes.fromhex(frame[:24] + frame[32:]) for frame in found if frame[24:32] == "81000ffe"
        ]

    def expect(self, *frames: str) -> None:
        wait_until(
            lambda: self.new() == list(frames), lambda: f"{self._path.stem} was given {self.new()}"
        )


@contextmanager
def no_helper(sandbox: Sandbox, *hosts: str) -> Iterator[None]:
    for host in hosts:
        sandbox.run_helper(host, False)
    try:
        yield
    finally:
        for host in hosts:
            sandbox.run_helper(host, True)
        wait_until(lambda: pair(sandbox, "A", "B")["striped"], "it is not striped again")
        sandbox.wait_settled()


def pair(sandbox: Sandbox, source: str, target: str) -> dict[str, Any]:
    return next(
        p for p in sandbox.ask("status")["pairs"] if (p["src"], p["dst"]) == (source, target)
    )


def outputs(sandbox: Sandbox, host: str, flow: str) -> tuple[list[str], str]:
    """The ports of a frame's datapath actions in a trace, by interface name, and those actions."""
    text = sandbox.ovs.appctl("ofproto/trace", "--names", host, flow)
    actions = re.findall(r"Datapath actions: (.*)", text)[-1]
    return re.findall(rf"{host}-(?:plain|wire)|\b{host}\b", actions), actions


def test_helpers_are_seen_and_pairs_with_two_are_striped(sandbox: Sandbox) -> None:
    status = sandbox.ask("status")
    assert {host["name"]: (host["helper"] or {}).get("running") for host in status["hosts"]} == {
        "A": True,
        "B": True,
        "C": None,
    }
    assert {(p["src"], p["dst"]) for p in status["pairs"] if p["striped"]} == {
        ("A", "B"),
        ("B", "A"),
    }
    await_problems(sandbox)
    assert [len(host["nics"]) for host in status["hosts"]] == [2, 2, 1]  # the TAPs are no NICs
    assert [path["link"] for path in pair(sandbox, "A", "B")["paths"]] == [
        NUMBERS[1, 1, 0],
        NUMBERS[2, 2, 0],
    ]
    assert "both helpers run" in sandbox.ask("explain", src="A", dst="B")["reason"]
    assert "helpers" not in sandbox.ask("explain", src="A", dst="C")["reason"]


@pytest.mark.parametrize(
    ("flow", "to"),
    [
        ("in_port={LOCAL},dl_src={A},dl_dst={B},udp", ["A-plain"]),
        ("in_port={LOCAL},dl_src={A},dl_dst={B},dl_type=0x9999", ["A-plain"]),
        ("in_port={LOCAL},dl_src={A},dl_dst={B},dl_vlan=5,udp", []),
        ("in_port={LOCAL},dl_src={A},dl_dst={C},udp", []),
        ("in_port={LOCAL},dl_src={A},dl_dst={B},dl_type=0x88b6", []),
        ("in_port=101,dl_src={B},dl_dst={A},udp", ["A"]),
        ("in_port=101,dl_src={B},dl_dst=ff:ff:ff:ff:ff:ff,udp", ["A"]),
        ("in_port=101,dl_src={B},dl_dst={C},udp", []),
        ("in_port=101,dl_src={B},dl_dst={A},dl_type=0x88b5", []),
        ("in_port=102,dl_src={A},dl_dst={B},udp", []),
        ("in_port=102,dl_src={A},dl_dst={B},dl_vlan=40,dl_type=0x88b6", []),
        ("in_port=102,dl_src={A},dl_dst={C},dl_vlan=1,dl_type=0x88b6", []),
        ("in_port=102,dl_src={A},dl_dst={B},dl_vlan=1,udp", []),
    ],
)
def test_rows_for_the_host_and_its_taps(sandbox: Sandbox, flow: str, to: list[str]) -> None:
    """By a trace from A: which of its own ports a frame reaches.

    Wires are patch ports and not named here.
    """
    macs = {name: sandbox.mac(name) for name in WIRING}
    found, actions = outputs(sandbox, "A", flow.format(LOCAL="LOCAL", **macs))
    assert found == to, actions


def test_the_host_gives_its_helper_what_is_for_a_striped_peer(sandbox: Sandbox) -> None:
    tap, capture = Tap(sandbox, "A-plain"), Capture(sandbox)
    for_b = [udp(sandbox.mac("A"), sandbox.mac("B"), (1000 + i, 1)) for i in range(8)]
    for_c = [udp(sandbox.mac("A"), sandbox.mac("C"), (1000 + i, 2)) for i in range(8)]
    sandbox.receive("A", *for_b, *for_c)
    capture.expect({"C": for_c})
    tap.expect(*for_b)
    assert not capture.new("B")


@pytest.mark.parametrize("path", [(1, 1, 0), (2, 2, 0)])
def test_a_link_leads_to_the_other_helper_by_its_two_nics(sandbox: Sandbox, path: PathKey) -> None:
    number = NUMBERS[path]
    frames = [stripe(sandbox, "A", "B", i) for i in range(4)]
    tap, capture = Tap(sandbox, "B-wire"), Capture(sandbox)
    sandbox.receive("A-wire", *(tagged(frame, number + 1) for frame in frames))
    tap.expect(*(tagged(frame, path[1]) for frame in frames))
    assert not capture.new("B") and not capture.new("C")


def test_stripes_carry_the_nics_addresses_on_the_wire_and_are_counted(sandbox: Sandbox) -> None:
    text = sandbox.ovs.appctl(
        "ofproto/trace",
        "A",
        f"in_port=102,dl_src={sandbox.mac('A')},dl_dst={sandbox.mac('B')},"
        f"dl_vlan={NUMBERS[2, 2, 0] + 1},dl_type=0x88b6",
    )
    sets = re.findall(r"set_field:(\S+)->(eth_\w+)", text)
    macs = {name: sandbox.nic_mac(name, 2) for name in "AB"}
    assert sets == [
        *((macs["A"], "eth_src"), (macs["B"], "eth_dst")),
        *((sandbox.mac("B"), "eth_dst"), (sandbox.mac("A"), "eth_src")),
    ]

    def counted() -> bool:
        sandbox.receive("A-wire", tagged(stripe(sandbox, "A", "B", 7), NUMBERS[2, 2, 0] + 1))
        path = pair(sandbox, "A", "B")["paths"][1]
        return bool(path["tx_bps"] and path["rx_bps"])

    wait_until(counted, "stripes are not counted")


def test_what_the_helper_delivers_and_hands_back(sandbox: Sandbox) -> None:
    capture, taps = (
        Capture(sandbox),
        [Tap(sandbox, f"{host}-{tap}") for host in "AB" for tap in ("plain", "wire")],
    )
    delivered = [udp(sandbox.mac("B"), sandbox.mac("A"), (2000 + i, 1)) for i in range(4)]
    sandbox.receive("A-plain", *delivered)
    back = [udp(sandbox.mac("A"), sandbox.mac("B"), (2000 + i, 1)) for i in range(16)]
    sandbox.receive("A-wire", *back)
    capture.expect({"A": delivered, "B": back})
    assert [tap.new() for tap in taps] == [[], [], [], []]


def test_without_its_own_helper_a_host_uses_the_slot_table_at_once(sandbox: Sandbox) -> None:
    capture = Capture(sandbox)
    sandbox.run_helper("A", False)
    try:
        frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (3000 + i, 1)) for i in range(16)]
        sandbox.ovs.appctl("revalidator/purge")
        sandbox.receive("A", *frames)
        capture.expect({"B": frames})
        wait_until(lambda: not pair(sandbox, "A", "B")["striped"], "the controller does not notice")
        assert "A: its helper does not run" in problem_texts(sandbox.ask("status"))
    finally:
        sandbox.run_helper("A", True)
    wait_until(lambda: pair(sandbox, "A", "B")["striped"], "it is not striped again")
    sandbox.wait_settled()


@pytest.mark.parametrize("path", [(1, 1, 0), (2, 2, 0)])
def test_a_frame_for_a_dead_helper_comes_back_marked(sandbox: Sandbox, path: PathKey) -> None:
    tap, capture = Tap(sandbox, "A-wire"), Capture(sandbox)
    frames = [stripe(sandbox, "A", "B", 100 + i) for i in range(3)]
    with no_helper(sandbox, "B"):
        sandbox.ovs.appctl("revalidator/purge")
        sandbox.receive("A-wire", *(tagged(frame, NUMBERS[path] + 1) for frame in frames))
        swapped = [frame[12:24] + frame[:12] + frame[24:] for frame in frames]
        tap.expect(*(tagged(frame, path[0], 7) for frame in swapped))
        # The frames are not given to B's kernel either, and B is not striped to any more.
        assert not capture.new("B") and not capture.new("C")
        wait_until(lambda: not pair(sandbox, "A", "B")["striped"], "the controller does not notice")
        sandbox.wait_settled()
        plain = [udp(sandbox.mac("A"), sandbox.mac("B"), (4000 + i, 1)) for i in range(8)]
        sandbox.receive("A", *plain)
        capture.expect({"B": plain})


def test_with_both_helpers_dead_nothing_goes_in_a_circle(sandbox: Sandbox) -> None:
    with no_helper(sandbox, "A", "B"):
        sandbox.ovs.appctl("revalidator/purge")
        text = sandbox.ovs.appctl(
            "ofproto/trace",
            "n0",
            f"in_port=n0-A-0,dl_src={sandbox.nic_mac('A', 1)},"
            f"dl_dst={sandbox.nic_mac('B', 1)},dl_type=0x88b6",
        )
        assert text.count('bridge("B")') == 1 and text.count('bridge("A")') == 1, text
        assert "too deep" not in text


def test_odd_frames_from_the_wire_reach_nobody(sandbox: Sandbox) -> None:
    taps, capture = [Tap(sandbox, f"{host}-wire") for host in "AB"], Capture(sandbox)
    b, a = sandbox.nic_mac("B", 1), sandbox.nic_mac("A", 1)
    body = bytes(60)
    odd = [
        tagged(ether(a, b, STRIPED, body), 1),
        tagged(ether(a, b, STRIPED, body), CONTROLLER_VLAN),
        tagged(ether(a, b, STRIPED, body), 0, 7),
        ether(a, "ff:ff:ff:ff:ff:ff", STRIPED, body),
        ether("03:00:00:00:00:01", b, STRIPED, body),
        ether("02:00:09:09:09:09", b, STRIPED, body),
        ether(a, sandbox.mac("B"), STRIPED, body),
    ]
    last = ether(a, b, STRIPED, body)
    sandbox.receive("A-wire", *odd)  # a helper may not send such frames either
    for frame in (*odd, last):
        sandbox.ovs.ofctl(
            "packet-out", "n0", f"in_port=n0-A-0 packet={frame} actions=output:n0-B-0"
        )
    wait_until(lambda: taps[1].new(), "not even the last frame arrives")
    assert taps[1].new() == [tagged(ether(sandbox.mac("A"), sandbox.mac("B"), STRIPED, body), 1)]
    assert not taps[0].new() and not capture.new("B")


# ---- the controller and its helpers


def by_kind_and_mac(frames: list[bytes]) -> dict[tuple[int, str], list[bytes]]:
    """Control frames by kind and by the host that they are about."""
    found: dict[tuple[int, str], list[bytes]] = {}
    for frame in frames:
        assert frame[12:16] == bytes.fromhex("88b63400")
        found.setdefault((frame[20], frame[26:32].hex(":")), []).append(frame)
    return found


def test_helpers_are_told_their_nics_and_links_again_and_again(sandbox: Sandbox) -> None:
    tap = Tap(sandbox, "A-wire")
    own, peer = (THIS_HOST, sandbox.mac("A")), (PEER, sandbox.mac("B"))
    wait_until(
        lambda: all(len(by_kind_and_mac(tap.control()).get(key, ())) >= 2 for key in (own, peer)),
        "too few control frames",
    )
    frames = by_kind_and_mac(tap.control())
    # The helper may also be told that a stranger is gone, whom a report has named.
    assert {key for key in frames if key[0] != GONE or key[1] in map(sandbox.mac, WIRING)} == {
        own,
        peer,
    }
    host, links = frames[own][0], frames[peer][0]
    assert host[21] == 2 and host[32] == 0  # two NICs, paced
    assert [host[36 + 24 * i] for i in range(2)] == [1, 2]
    assert links[21] == 2 and links[32] == 1  # two links, stripe
    assert [tuple(links[36 + 20 * i : 40 + 20 * i]) for i in range(2)] == [
        (0, 1, 1, 1),
        (1, 2, 2, 1),
    ]
    weights = [struct.unpack_from("!I", links, 48 + 20 * i)[0] for i in range(2)]
    assert sum(weights) == 1_000_000


def test_a_helper_that_starts_again_is_told_all_at_once(spare: Sandbox) -> None:
    never = "import ri2n_sdn.apps.striping as striping; striping._REPEAT_S = 1e9"
    tap, wanted = Tap(spare, "A-wire"), {(THIS_HOST, spare.mac("A")), (PEER, spare.mac("B"))}
    spare.start_controller(strategy="max_min", before=never)
    spare.wait_settled()
    wait_until(lambda: wanted <= set(by_kind_and_mac(tap.control())), "it is told nothing")
    with no_helper(spare, "A"):
        wait_until(lambda: not pair(spare, "A", "B")["striped"], "the controller does not notice")
        again = Tap(spare, "A-wire")
    wait_until(
        lambda: wanted <= set(by_kind_and_mac(again.control())),
        "it is told nothing when it starts again",
    )


def report(mac: str, peer: str, link: int, *, time_ms: int = 5000) -> str:
    """A report about one helper link, as in docs/wire-format.md."""
    raw = [bytes.fromhex(text.replace(":", "")) for text in (mac, peer)]
    kind, head = b"\x35\x00", struct.pack("!BBI", 1, 0, time_ms) + raw[0] + bytes(4)
    entry = raw[1] + struct.pack("!BB8I", link, 7, 11, 12, 13, 14, 1500, 250, 90_000, 0xFFFFFFFF)
    checksum = crc32c(STRIPED.to_bytes(2, "big") + kind + head + entry).to_bytes(4, "big")
    return tagged(
        ether(mac, "02:52:49:32:4e:01", STRIPED, kind + checksum + head + entry), CONTROLLER_VLAN
    )


def test_a_report_is_shown(sandbox: Sandbox) -> None:
    found: list[object] = []  # what was shown first, since it is shown for some seconds only

    def shown() -> bool:
        sandbox.receive("A-wire", report(sandbox.mac("A"), sandbox.mac("B"), 1))
        found[:] = [pair(sandbox, "A", "B")["paths"][1]["helper"]]
        return found[0] is not None

    wait_until(shown, "the report is not shown")
    assert found[0] == {
        "heard": True,
        "usable": True,
        "striping": True,
        "sent": 11,
        "received": 12,
        "lost": 13,
        "repeated": 14,
        "skew_s": 0.0015,
        "rtt_s": 0.00025,
        "rate_bps": 90_000_000,
        "demand_bps": None,
    }
    assert pair(sandbox, "B", "A")["paths"][1]["helper"] is None
    helper = next(host["helper"] for host in sandbox.ask("status")["hosts"] if host["name"] == "A")
    assert helper["report_age_s"] < 5 and helper["running_s"] == 5.0


def test_a_helper_that_stops_reporting_gets_nothing_until_it_reports_again(spare: Sandbox) -> None:
    """Its ports keep their carrier.

    The other helper's reports come as often as this test can make them.
    """
    spare.start_controller(before="import ri2n_sdn.apps.silence as silence; silence.SILENT_S = 2.5")
    spare.wait_settled()

    def reports(*hosts: str) -> list[str]:
        for host in hosts:
            spare.receive(
                f"{host}-wire", report(spare.mac(host), spare.mac("B" if host == "A" else "A"), 0)
            )
        return [
            line
            for line in problem_texts(spare.ask("status"))
            if "helper has reported nothing" in line
        ]

    wait_until(
        lambda: any(line.startswith("A's") for line in reports("B")), "the silence is not noticed"
    )
    wait_until(lambda: not pair(spare, "A", "B")["striped"], "it is striped")
    spare.wait_settled()
    frames = [udp(spare.mac("A"), spare.mac("B"), (8000 + i, 1)) for i in range(8)]
    capture, taps = Capture(spare), [Tap(spare, f"{host}-plain") for host in "AB"]
    spare.receive("A", *frames)
    capture.expect({"B": frames})
    back = [udp(spare.mac("B"), spare.mac("A"), (8000 + i, 1)) for i in range(8)]
    spare.receive("B", *back)
    capture.expect({"A": back, "B": frames})
    assert not taps[0].new() and not taps[1].new()
    wait_until(
        lambda: not reports("A", "B") and pair(spare, "A", "B")["striped"],
        "it is not striped again",
    )


def test_reports_of_others_and_garbage_are_counted(sandbox: Sandbox) -> None:
    def dropped(why: str) -> int:
        return int(sandbox.ask("status")["counters"].get(f"dropped_report_{why}", 0))

    for why, frame in (
        ("of_stranger", report(sandbox.mac("B"), sandbox.mac("A"), 0)),
        ("malformed", report(sandbox.mac("A"), sandbox.mac("B"), 200)),
        (
            "malformed",
            tagged(ether(sandbox.mac("A"), sandbox.mac("B"), STRIPED, b"\x15"), CONTROLLER_VLAN),
        ),
    ):
        before = dropped(why)
        sandbox.receive("A-wire", frame)
        wait_until(
            lambda why=why, before=before: dropped(why) == before + 1,  # type: ignore[misc]
            f"{why} is not counted",
        )


def test_a_peer_that_nobody_knows_is_declared_gone(sandbox: Sandbox) -> None:
    """An earlier controller may have told the helper about it."""
    tap, stranger = Tap(sandbox, "A-wire"), "02:00:00:00:77:77"

    def said() -> bool:
        sandbox.receive("A-wire", report(sandbox.mac("A"), stranger, 0))
        return (GONE, stranger) in by_kind_and_mac(tap.control())

    wait_until(said, "the helper is not told")


def test_a_restarted_controller_changes_nothing(spare: Sandbox) -> None:
    """It reads the rows and groups of striped pairs as what they are.

    It has a memory of its own. In the others' memory a helper may be silent, and it never reports.
    """
    memory = ("--state-dir", str(spare.folder / "striped"))
    spare.start_controller(strategy="max_min", extra=memory)
    assert spare.wait_settled()["counters"]["group_mods"] > 0
    spare.kill_controllers()
    frames = [udp(spare.mac("A"), spare.mac("B"), (6000 + i, 1)) for i in range(4)]
    tap = Tap(spare, "A-plain")
    spare.receive("A", *frames)
    tap.expect(*frames)  # this needs no controller
    spare.start_controller(strategy="max_min", extra=memory)
    counters = spare.wait_settled()["counters"]
    assert counters.get("flow_mods", 0) == 0 and counters.get("group_mods", 0) == 0, counters


def test_striping_can_be_turned_off(spare: Sandbox) -> None:
    spare.start_controller(config="striping: off\n" + spare.declared())
    spare.wait_settled()
    capture = Capture(spare)
    frames = [udp(spare.mac("A"), spare.mac("B"), (7000 + i, 1)) for i in range(8)]
    spare.receive("A", *frames)
    capture.expect({"B": frames})
    assert not [host for host in spare.ask("status")["hosts"] if host["helper"]]
