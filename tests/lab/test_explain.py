# SPDX-License-Identifier: Apache-2.0
"""`explain` names the NIC that the wire shows: to the command, to REST and on the page alike.

The hosts' connections to the controller have other addresses than their traffic, as on a real
cluster.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from ri2n_sdn.contract.operations import EXPLAIN
from ri2n_sdn.web.app import build
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.gui.explain_views import nics_of, request_of
from ri2n_sdn.web.settings import WebSettings
from ri2n_sdn.web.who import Who
from tests.topology_text import parse_topology
from tests.unit.commands import ri2n
from tests.unit.web_app import run, serving

from .conftest import PATIENCE_S, WaitUntil, await_true, replace_controller
from .connections import PORT, Client, Program, serve
from .test_jobs import ALICE, BOB, NICS, THREE, begin, end_all

BY_FLOWS_PORT, PLAIN_PORT = 5900, 6000
NUMBERS = {"tcp": 6, "udp": 17}
# A and B have helpers, C and D have none.
NICS_OF_A: Any = THREE["hosts"]["A"]  # type: ignore[index]
MIXED = {**THREE, "hosts": {name: {**NICS_OF_A, "helper": name in "AB"} for name in "ABCD"}}

SEND = """
import json, socket, sys
for family, source, sport, target, dport, count, size in json.load(sys.stdin):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.bind((source, sport))
    for _ in range(count):
        s.sendto(bytes(size), (target, dport))
"""
# By which NICs the packets of each flow leave a host, those within frames of helpers, too.
WATCH = """
import json, select, socket, struct, sys
sockets, seen = {}, {}
for nic in sys.argv[1:]:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: nothing may be missed
    s.bind((nic, 3))
    s.setblocking(False)
    sockets[s] = nic

def flow_of(frame):
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\\x88\\xb6" and packet[0] & 15 == 1:
        kind, packet = frame[34:36], frame[36:]
    if kind == b"\\x08\\x00":
        family, protocol, ends, at = socket.AF_INET, packet[9], (12, 16, 20), 4 * (packet[0] & 15)
    elif kind == b"\\x86\\xdd":
        family, protocol, ends, at = socket.AF_INET6, packet[6], (8, 24, 40), 40
    else:
        return None
    if protocol not in (6, 17):
        return None
    source, target = (socket.inet_ntop(family, packet[a:b]) for a, b in zip(ends, ends[1:]))
    sport, dport = struct.unpack_from("!HH", packet, at)
    return json.dumps([protocol, source, sport, target, dport])

print("ready", flush=True)
while True:
    readable, _, _ = select.select([*sockets, sys.stdin], [], [])
    for s in sockets:
        while True:
            try:
                frame, source = s.recvfrom(200)
            except BlockingIOError:
                break
            flow = flow_of(frame) if source[2] == socket.PACKET_OUTGOING else None
            if flow is not None:
                seen.setdefault(flow, set()).add(sockets[s])
    if sys.stdin in readable:
        if not sys.stdin.readline():
            break
        print(json.dumps([[json.loads(flow), sorted(nics)] for flow, nics in seen.items()]),
              flush=True)
        seen = {}
"""


@dataclass(frozen=True)
class Question:
    """One flow from a host to another, and the job whose packets it has, if any."""

    src: str
    dst: str
    proto: str
    sport: int
    dport: int
    ipv6: bool
    job: str = ""

    def ends(self, lab: Lab) -> tuple[str, str]:
        """The addresses that its packets have."""
        of = lab.address6 if self.ipv6 else lab.address
        return of(self.src), of(self.dst)

    def on_the_wire(self, lab: Lab) -> tuple[object, ...]:
        """What the packets are known by."""
        source, target = self.ends(lab)
        return NUMBERS[self.proto], source, self.sport, target, self.dport

    def named(self, lab: Lab) -> dict[str, str]:
        """The address that must be named so that IPv6 is meant; the other one follows from it."""
        return {"dst_ip": self.ends(lab)[1]} if self.ipv6 else {}


@pytest.fixture(scope="module")
def lab(reorder_program: Path) -> Iterator[Lab]:
    with Lab.create(parse_topology(json.dumps(MIXED)), helpers=True) as made:
        config = made.run_dir / "explained.yaml"
        config.write_text(
            f"{made.cluster_file.read_text()}\n"
            f"by_flows: [{{proto: udp, port: {BY_FLOWS_PORT}}}]\n"
            f"placement: [{{hosts: [C], ports: [{PORT}]}}]\n"
        )
        made.start_controller(config=config, strategy="round_robin")
        made.wait_ready()
        yield made


def send(
    lab: Lab, questions: Iterable[Question], user: int = 0, count: int = 2, size: int = 40
) -> None:
    """Send datagrams of some flows, all from one host and of one user."""
    asked = list(questions)
    text = json.dumps(
        [
            [10 if each.ipv6 else 2, source, each.sport, target, each.dport, count, size]
            for each in asked
            for source, target in (each.ends(lab),)
        ]
    )
    (host,) = {each.src for each in asked}
    argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable]
    lab.exec(host, [*argv, "-c", SEND], input=text, timeout_s=PATIENCE_S)


class Wire:
    """By which NICs packets leave the hosts."""

    def __init__(self, lab: Lab, hosts: str) -> None:
        self._watchers = {host: Program(lab, host, WATCH, *NICS) for host in hosts}

    def seen(self) -> dict[tuple[str, tuple[object, ...]], set[str]]:
        """(host, flow) -> NICs, since it was asked last."""
        for each in self._watchers.values():
            each.tell("report")
        return {
            (host, tuple(flow)): set(nics)
            for host, each in self._watchers.items()
            for flow, nics in each.answer()
        }


# ---- Three that ask


def own_nics(answer: Any) -> set[str]:
    """The sender's NICs that an answer names: of the flow, or where helpers send its packets."""
    path = answer["path"]
    return {each["own"] for each in ([path] if path is not None else answer["links"])}


def by_command(lab: Lab, asked: Question) -> Any:
    """What `ri2n explain` answers; it knows of no lab."""
    flow = {"--proto": asked.proto, "--sport": str(asked.sport), "--dport": str(asked.dport)}
    flow |= {f"--{key.replace('_', '-')}": text for key, text in asked.named(lab).items()}
    flow |= {"--job": asked.job} if asked.job else {}
    words = [word for pair in flow.items() for word in pair]
    socket = str(lab.controller_socket)
    done = ri2n("explain", asked.src, asked.dst, *words, "--socket", socket, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_web(lab: Lab, questions: list[Question]) -> tuple[list[set[str]], list[set[str]]]:
    """The sender's NICs of each flow, as REST and as the GUI's page names them."""

    async def ask() -> tuple[list[set[str]], list[set[str]]]:
        feed = Feed(lab.controller_socket)
        rest, page = [], []
        async with serving(build(feed, WebSettings(gui=False, requests_per_s=1e6))) as client:
            while not feed.connected:
                await feed.changed(feed.seq, PATIENCE_S)
            for each in questions:
                typed = {"src": each.src, "dst": each.dst, "protocol": each.proto}
                typed |= {"sport": str(each.sport), "dport": str(each.dport)} | each.named(lab)
                job = {"job": each.job} if each.job else {}
                answer = await client.get("/api/v1/explain", params={**typed, **job})
                assert answer.status_code == 200, answer.text
                rest.append(own_nics(answer.json()))
                wanted = request_of(**typed, job=each.job)
                shown = await feed.request(EXPLAIN, Who("somebody", "viewer"), **wanted)
                page.append({nic.nic for nic in nics_of(shown) if nic.host == each.src})
        return rest, page

    return run(ask())


def all_say(lab: Lab, questions: list[Question]) -> list[set[str]]:
    """The sender's NICs of each flow, which all three name."""
    answers = [by_command(lab, each) for each in questions]
    command = [own_nics(answer) for answer in answers]
    rest, page = by_web(lab, questions)
    assert command == rest == page
    return command


# ---- The tests


def flows(src: str, dst: str, dport: int, first: int, count: int, job: str = "") -> list[Question]:
    """So many UDP flows of each IP version, each with a port of its own."""
    return [
        Question(src, dst, "udp", first + number, dport, ipv6, job)
        for ipv6 in (False, True)
        for number in range(count)
    ]


def test_of_a_hundred_flows_all_name_the_nic_on_the_wire(lab: Lab) -> None:
    """Flows of everybody, of a job, of a class that helpers do not get, and to plain hosts."""
    begin(lab, "one", ALICE, "CD", "--policy", "paths", "--paths", "eth0,eth1")
    wire = Wire(lab, "AC")
    groups = {
        "everybody": (flows("C", "D", PLAIN_PORT, 20_000, 20), 0),
        "a job": (flows("C", "D", PLAIN_PORT, 21_000, 15, job="one"), ALICE),
        "by_flows": (flows("A", "B", BY_FLOWS_PORT, 22_000, 10), 0),
        "no helper there": (flows("A", "D", PLAIN_PORT, 23_000, 10), 0),
    }
    for questions, user in groups.values():
        send(lab, questions, user)
    every = [each for questions, _ in groups.values() for each in questions]
    assert len(every) >= 100
    shown: dict[Question, set[str]] = {each: set() for each in every}

    def all_seen() -> bool:
        seen = wire.seen()
        for each, nics in shown.items():
            nics |= seen.get((each.src, each.on_the_wire(lab)), set())
        return all(shown.values())

    await_true(all_seen, lambda: f"never seen: {[each for each in every if not shown[each]]}")
    said = dict(zip(every, all_say(lab, every), strict=True))
    assert all_seen()  # with what came since then
    wrong = [(each, shown[each], said[each]) for each in every if shown[each] != said[each]]
    assert not wrong, wrong
    for name, (questions, _) in groups.items():
        used = set().union(*(shown[each] for each in questions))
        assert used == ({"eth0", "eth1"} if name == "a job" else {*NICS}), (name, used)
    end_all(lab)


def test_of_placed_connections_all_name_the_nic_on_the_wire(
    lab: Lab, wait_until: WaitUntil
) -> None:
    serve(lab, "C")
    client, wire = Client(lab, "D"), Wire(lab, "CD")
    count = 6
    client.open(lab.address("C"), count)
    ports = client.open(lab.address6("C"), count)
    there = [
        Question("D", "C", "tcp", port, PORT, number >= count) for number, port in enumerate(ports)
    ]
    back = [Question("C", "D", "tcp", PORT, each.sport, each.ipv6) for each in there]

    def wrong() -> list[tuple[Question, object]]:
        wire.seen()
        client.start_talk(8000, 8000)
        client.end_talk()
        seen = wire.seen()
        return [
            (each, seen.get((each.src, each.on_the_wire(lab))))
            for each, nics in zip([*there, *back], all_say(lab, [*there, *back]), strict=True)
            if seen.get((each.src, each.on_the_wire(lab))) != nics
        ]

    # A client's host follows a moment after the controller has placed a connection.
    last: list[object] = []

    def none_wrong() -> bool:
        last[:] = wrong()
        return not last

    wait_until(none_wrong, lambda: str(last))
    by = [by_command(lab, each)["placed"]["row"] for each in (there[0], back[0])]
    assert by == ["followed", "placed"]
    client.close()


def test_packet_by_packet_the_links_on_the_wire_are_those_of_the_answer(
    lab: Lab, wait_until: WaitUntil
) -> None:
    """Of everybody, with and without a job that has links for itself, and of that job."""
    wire = Wire(lab, "A")
    everybody = [Question("A", "B", "udp", 30_000, PLAIN_PORT, ipv6) for ipv6 in (False, True)]
    of_job = [Question("A", "B", "udp", 30_001, PLAIN_PORT, ipv6, "two") for ipv6 in (False, True)]

    def await_equal(questions: list[Question], user: int, nics: set[str]) -> None:
        shown: list[set[str]] = []

        def equal() -> bool:
            assert all_say(lab, questions) == [nics] * len(questions)
            wire.seen()
            send(lab, questions, user, count=200, size=1000)
            seen = wire.seen()
            shown[:] = [seen.get((each.src, each.on_the_wire(lab)), set()) for each in questions]
            return shown == [nics] * len(questions)

        wait_until(equal, lambda: f"{shown}, not {nics}")

    await_equal(everybody, 0, {*NICS})
    begin(lab, "two", BOB, "AB", "--policy", "exclusive", "--paths", "eth0,eth1")
    await_equal(of_job, BOB, {"eth0", "eth1"})
    await_equal(everybody, 0, {"eth2"})
    end_all(lab)
    await_equal(everybody, 0, {*NICS})


def test_a_host_with_several_addresses_is_asked_about_and_a_new_controller_knows_them(
    lab: Lab,
) -> None:
    asked = Question("C", "D", "udp", 1, 2, False)
    before = own_nics(by_command(lab, asked))
    replace_controller(lab, lab.run_dir / "explained.yaml")
    assert own_nics(by_command(lab, asked)) == before
    state = call(lab.controller_socket, "status")["state"]["hosts"]["D"]
    assert state["addresses"] == [lab.address("D"), lab.address6("D")] and state["address"]
    assert state["address"] not in state["addresses"]
    further = "10.77.9.9"
    words = ["explain", "C", "D", "--proto", "udp", "--sport", "1", "--dport", "2"]
    words += ["--socket", str(lab.controller_socket)]

    def change(verb: str, refused: bool) -> None:
        lab.exec("D", ["ip", "addr", verb, f"{further}/16", "dev", "br-ri2n"])
        lab.host_script("D", "host-up", *lab.host_up_arguments("D"))
        await_true(
            lambda: ri2n(*words).returncode == (2 if refused else 0), lambda: str(ri2n(*words))
        )

    async def problem() -> Any:
        feed = Feed(lab.controller_socket)
        async with serving(build(feed, WebSettings(gui=False))) as client:
            while not feed.connected:
                await feed.changed(feed.seq, PATIENCE_S)
            return (
                await client.get("/api/v1/explain?src=C&dst=D&protocol=udp&sport=1&dport=2")
            ).json()

    change("add", refused=True)
    try:
        said = ri2n(*words).stderr
        assert all(part in said for part in (further, lab.address("D"), "--dst-ip")), said
        found = run(problem())
        assert (found["status"], found["code"]) == (422, "address_ambiguous"), found
        assert [each["where"] for each in found["errors"]] == ["query.dst_ip"]
        assert set(found["args"]["addresses"]) == {further, lab.address("D")}
        assert ri2n(*words, "--dst-ip", further).returncode == 0
    finally:
        change("del", refused=False)
