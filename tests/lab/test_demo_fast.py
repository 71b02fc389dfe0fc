# SPDX-License-Identifier: Apache-2.0
"""The fast path in a demo: on and off, before and after helpers, and where the kernel refuses it.

tests/lab/test_demo.py has the demo's own process, and all tries by their commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cli.demo_table import STREAMS
from ri2n_lab.cli.demo_traffic import Traffic
from ri2n_lab.cli.demo_tries import KEYS, Tries
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.namespaces import processes_in
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.taps import HOLD_TAP

from .conftest import await_true, controlled
from .fast_flows import Talk, Talker, await_in_force, beside, through
from .test_fast_striping import await_beside
from .test_lab import remains

SERVER, CLIENTS = "A", ["B", "C", "D"]
PAIRS = 12
FEW = 60
"""So many frames of ARP, neighbour discovery and probes may pass a bridge meanwhile."""

MOST = 8000

REFUSED = """#!/bin/bash
case $1 in
watch) exec sleep infinity ;;
status) echo '{"programs": "refused", "filter": "not_needed",
               "refused": {"code": "verifier", "text": "the verifier says no"}}' ;;
esac
"""


class Sent(Traffic):
    """The demo's traffic, of which only the wishes are known."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, SERVER, CLIENTS, STREAMS)
        self.changes: list[tuple[list[str], int]] = []

    def change(self, clients: list[str], streams: int) -> None:
        """Note who is to send."""
        self.changes.append((clients, streams))


def by_helper(lab: Lab, host: str) -> int:
    """How many frames with the helper's header a host's helper has sent and taken."""
    counters = lab.helpers.status(host)["counters"]
    return int(counters.get("data_in", 0)) + int(counters.get("data_out", 0))


class Room:
    """A lab with what can be tried in it, and conversations of all clients with the server."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.traffic = lab, Sent(lab)
        self.tries = Tries(lab, SERVER, CLIENTS, STREAMS, self.traffic)
        self._server = Talker(lab, SERVER)
        self._talks = [
            Talk(lab, client, SERVER, each=2, most=MOST, pause_s=0.02) for client in CLIENTS
        ]

    def end(self) -> None:
        """End the conversations."""
        for talk in self._talks:
            talk.end()
        self._server.end()

    def talk(self, more: int) -> None:
        """Return when each conversation has had so many more rounds, of which every byte is right.

        None of them has been interrupted.
        """
        for each in self._talks:
            each.go_on(more)

    def is_on(self, name: str) -> bool:
        """What the page says."""
        (found,) = [each["on"] for each in self.tries.described() if each["name"] == name]
        return bool(found)

    def passes_beside(self) -> None:
        """Frames pass beside all bridges, and next to nothing through them.

        A machine that is too busy to tell the programs in time what holds lets the bridges, or the
        helpers, have the frames for a moment. So this holds soon, and not at every moment.
        """
        lab = self.lab
        self.talk(3)  # addresses and neighbours are known now
        # The helpers' own frames go through the bridges, and the longer it takes, the more of them.
        count = by_helper if self.is_on("helpers") else through
        found: dict[str, tuple[int, int]] = {}

        def is_so() -> bool:
            before = {host: (count(lab, host), beside(lab, host)) for host in lab.hosts}
            self.talk(20)
            for host, (was_through, was_beside) in before.items():
                found[host] = count(lab, host) - was_through, beside(lab, host) - was_beside
            return all(those < FEW and these > 20 * 4 for those, these in found.values())

        await_true(is_so, lambda: f"(through, beside): {found}", 60)

    def passes_through(self) -> None:
        """Frames pass through all bridges, and nothing of the fast path is left."""
        lab = self.lab
        for host in lab.hosts:
            nics = [nic.name for nic in lab.topology.hosts[host].nics]
            filters = f"for d in {' '.join(nics)} br-ri2n; do tc filter show dev $d ingress; done;"
            filters += "tc filter show dev br-ri2n egress; tc qdisc show | grep clsact;"
            filters += f"ip -br link show dev {HOLD_TAP} 2>/dev/null; true"
            assert lab.exec(host, ["bash", "-c", filters]).stdout == "", host
            programs = [
                Path(f"/proc/{pid}/comm").read_text() for pid in processes_in([lab.namespace(host)])
            ]
            assert programs and "ri2n-fast\n" not in programs
        before = {host: through(lab, host) for host in lab.hosts}
        self.talk(20)
        for host, was in before.items():
            assert through(lab, host) > was + 20 * 4, host

    def await_told(self, state: str | None) -> None:
        """Wait until the controller says that state of all fast paths; None: there are none."""

        def told() -> list[Any]:
            hosts = call(self.lab.controller_socket, "status")["state"]["hosts"].values()
            return [(host["fast"] or {}).get("state") for host in hosts]

        await_true(lambda: told() == [state] * 4, lambda: str(told()))

    def doctors_are_content(self) -> None:
        """host-doctor finds nothing wrong with helper or fast path of any host."""

        def wrong() -> list[str]:
            found = []
            for host in self.lab.hosts:
                said = self.lab.host_script(host, "host-doctor", "--json", check=False).stdout
                found += [
                    f"{host}: {row['seen']}"
                    for row in json.loads(said)["findings"]
                    if row["check"] in ("helper", "fast path") and row["verdict"] != "ok"
                ]
            return found

        await_true(lambda: not wrong(), lambda: str(wrong()), timeout_s=30)


@pytest.fixture
def room(fast_program: Path) -> Iterator[Room]:
    with controlled("fig4/h") as lab:
        made = Room(lab)
        yield made
        made.end()
    assert remains(lab.name) == []


def test_it_is_on_and_off_and_on_while_traffic_goes_on(room: Room) -> None:
    assert KEYS[-1] == "fast" and not room.is_on("fast")
    for _ in range(2):
        said = room.tries.do("fast")
        assert f"packets of {PAIRS} of {PAIRS} pairs pass beside the bridges" in said
        assert all(f"`ri2n {word}" in said for word in ("status", "host show C", "explain C A"))
        assert room.is_on("fast")
        await_in_force(room.lab)
        room.passes_beside()
        room.await_told("in_force")
        said = room.tries.do("fast")
        assert "off" in said and said.endswith("all packets go through the bridges")
        assert not room.is_on("fast")
        room.passes_through()
        room.await_told(None)
    room.tries.do("fast")
    assert room.traffic.changes == []  # the lab goes while all of it is on


def test_the_kernel_refuses_and_all_is_as_before_and_what_is_cut_stays_cut(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ri2n-fast"
    program.write_text(REFUSED)
    program.chmod(0o755)
    room.tries.do("cut")
    carrier = ["cat", "/sys/class/net/eth1/flags"]
    cut = room.lab.exec("C", carrier).stdout
    with monkeypatch.context() as patched:
        patched.setenv("RI2N_FAST", str(program))
        answer = room.tries.answer(b'{"op": "try", "name": "fast"}\n')
        assert not answer["ok"] and "the verifier says no" in answer["error"]
    assert not room.is_on("fast") and not room.lab.has_fast
    for host in room.lab.hosts:
        assert not (room.lab.run_dir / host / "state" / "br-ri2n" / "fast").exists()
    room.passes_through()
    with monkeypatch.context() as patched:
        patched.setenv("RI2N_FAST", str(tmp_path / "absent"))
        about = room.tries.described()[KEYS.index("fast")]["about"]
        assert "ri2n-fast is not there: this first runs `./dev setup`" in about
        with pytest.raises(NotAvailable, match="there is no such program"):
            room.lab.add_fast_paths()
    room.tries.do("fast")
    assert room.lab.exec("C", carrier).stdout == cut
    room.passes_beside()
    room.tries.do("cut")
    assert room.lab.exec("C", carrier).stdout != cut
    room.passes_beside()


@pytest.mark.parametrize("first", ["helpers", pytest.param("fast", marks=pytest.mark.long)])
def test_both_work_together_whichever_comes_first(
    room: Room, reorder_program: Path, first: str
) -> None:
    second = {"helpers": "fast", "fast": "helpers"}[first]
    room.tries.do(first)
    said = room.tries.do(second)
    assert f"TCP of {PAIRS} of {PAIRS} pairs is striped beside the bridges" in said
    await_beside(room.lab)
    room.passes_beside()
    room.doctors_are_content()
    assert room.traffic.changes == [(["C"], 1)]  # by the helpers alone

    assert room.tries.do("fast").endswith("through the bridges and the helpers")
    assert not room.lab.has_fast and all(map(room.lab.helpers.pid, room.lab.hosts))
    room.lab.wait_ready()
    room.passes_through()
    room.doctors_are_content()

    room.tries.do("fast")
    await_beside(room.lab)
    said = room.tries.do("helpers")
    assert f"packets of {PAIRS} of {PAIRS} pairs pass beside the bridges" in said
    room.passes_beside()
    assert f"TCP of {PAIRS} of {PAIRS}" in room.tries.do("helpers")
    await_beside(room.lab)
