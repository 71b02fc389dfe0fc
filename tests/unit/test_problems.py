# SPDX-License-Identifier: Apache-2.0
"""What `ri2n status` shows as wrong, refused hosts included, and which hosts count as silent."""

from __future__ import annotations

import io
import json
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import connection, problems, refusals
from ri2n_sdn.apps.channel import Channel, Close
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.apps.refusals import REFUSED_S
from ri2n_sdn.cli import status as status_command
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.cli.views import status_view
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.said import Line
from ri2n_sdn.fabric.model import Guest
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.weights.losses import Loss
from tests.problem_texts import problem_texts
from tests.unit.app_turns import Clock, replace_time
from tests.unit.fake_hosts import FakeChannel, cluster_of, description, host_mac, member_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return replace_time(monkeypatch, cluster_module, refusals, connection, problems)


def two_hosts(config: ClusterConfig | None = None) -> Cluster:
    return cluster_of({"A": FakeChannel(), "B": FakeChannel()}, config)


def test_a_cluster_in_order_has_nothing_to_warn_of() -> None:
    assert problem_texts(two_hosts()) == []


# ---- Two hosts with the same MAC or name


@pytest.mark.parametrize(
    ("change", "labels", "mac"),
    [
        (lambda b: setattr(b, "mac", host_mac("A")), "A and B", host_mac("A")),
        (
            lambda b: setattr(b.ports[2], "mac", "04:00:00:00:41:01"),
            "A:eth0 and B:eth1",
            "04:00:00:00:41:01",
        ),
        (
            lambda b: setattr(b.ports[1], "mac", host_mac("A").upper()),
            "A and B:eth0",
            host_mac("A"),
        ),
    ],
)
def test_two_hosts_with_one_mac_are_both_named(change: Any, labels: str, mac: str) -> None:
    """A NIC's MAC address may change at any time, and a host that is away may return."""
    cluster = two_hosts()
    change(cluster.members["B"])
    assert problem_texts(cluster) == [f"{labels} have one MAC address, {mac}"]


def test_a_mac_behind_one_host_that_another_one_has() -> None:
    text = f"hosts: {{A: {{extra_macs: ['{host_mac('B')}']}}}}"
    warnings = problem_texts(two_hosts(parse_model(text, ClusterConfig, "cluster.yaml")))
    assert [line.partition(" have one")[0] for line in warnings] == ["A (extra_macs) and B"]
    cluster = two_hosts()
    cluster.members["A"].extra_macs = (host_mac("B"),)
    assert [line.partition(" have one")[0] for line in problem_texts(cluster)] == [
        "A (extra_macs) and B"
    ]
    cluster.members["A"].extra_macs, cluster.members["A"].guests = (), (Guest(2001, host_mac("B")),)
    assert [line.partition(" have one")[0] for line in problem_texts(cluster)] == [
        "A (extra_macs) and B"
    ]


@pytest.fixture(autouse=True)
def _no_wait_for_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PROOF_S", 0.05)


@pytest.fixture
def app(clock: Clock) -> ConnectionApp:
    app = ConnectionApp()
    app.cluster = two_hosts()
    return app


def knock(app: ConnectionApp, candidate: Member, address: str = "192.0.2.9") -> FakeChannel:
    """A host connects and has described itself."""
    channel = FakeChannel()
    channel.address = address
    candidate.channel = cast(Channel, channel)
    rival = app._rival(candidate)
    assert rival is not None
    app._contest(candidate, rival)
    return channel


def stranger(name: str, mac: str | None = None, nic: str | None = None, dpid: int = 0x99) -> Member:
    port = Port(1, "eth0", nic or "04:00:00:00:99:01", True, 10**8)
    return Member(name, dpid, mac or "06:00:00:00:99:00", "3.1.0", {1: port})


REFUSED = [
    (
        stranger("A"),
        "A at 192.0.2.9 refused: A at 192.0.2.1 has the same name",
        "give one of the two another name with host-up --name",
    ),
    (
        stranger("Z", mac=host_mac("B")),
        f"Z at 192.0.2.9 refused: B at 192.0.2.1 has the same MAC address {host_mac('B')}",
        "give one of the two another MAC address and run host-up there",
    ),
    (
        stranger("Q", nic="04:00:00:00:41:02"),
        "Q at 192.0.2.9 refused: A at 192.0.2.1 has the same MAC address 04:00:00:00:41:02",
        "give one of the two another MAC address and run host-up there",
    ),
    (
        stranger("D", dpid=ord("B")),
        "D at 192.0.2.9 refused: B at 192.0.2.1 has the same datapath ID",
        "give one of the two another MAC address and run host-up there",
    ),
]


@pytest.mark.parametrize(
    ("candidate", "text", "cure"), REFUSED, ids=[who.name for who, _, _ in REFUSED]
)
def test_a_host_that_is_refused_stands_in_status_with_what_to_do(
    app: ConnectionApp, clock: Clock, candidate: Member, text: str, cure: str
) -> None:
    channel = knock(app, candidate)
    assert channel.why_closed is not None
    assert channel.why_closed.text.startswith("another host has the same ")
    assert channel.why_closed.text.partition("has the ")[2] in text
    (warning,) = problem_texts(app.cluster)
    assert warning == f"{text}: {cure}"
    assert [event["text"] for event in app.cluster.events] == [warning]
    clock.now_s += REFUSED_S - 1
    assert problem_texts(app.cluster) == [warning]
    knock(app, candidate)  # The host goes on trying.
    clock.now_s += REFUSED_S - 1
    assert problem_texts(app.cluster) == [warning]
    clock.now_s += 2
    assert problem_texts(app.cluster) == []
    assert len(app.cluster.events) == 1 and app.cluster.counters["hosts_refused"] == 2


def test_a_refusal_is_noted_once_a_minute(app: ConnectionApp, clock: Clock) -> None:
    for _ in range(100):
        clock.now_s += 1
        knock(app, stranger("A"))
    assert len(app.cluster.events) == 2


def test_strangers_take_bounded_room(app: ConnectionApp) -> None:
    for number in range(1500):
        args = {"address": "192.0.2.9", "names": ["X"]}
        problem = Problem("host_certificate_foreign", {"host": f"h{number}"}, args)
        app.cluster.refusals.note(f"{number}", problem)
    *shown, more = problems_of(app.cluster)
    assert [each.subject["host"] for each in shown] == [f"h{n}" for n in range(1480, 1500)]
    assert (more.code, more.args) == ("more_hosts_refused", {"count": 980})


def test_a_host_that_is_let_in_is_no_longer_warned_of(app: ConnectionApp) -> None:
    again = member_of("B")
    knock(app, again)
    assert len(problem_texts(app.cluster)) == 1
    dead = cast(FakeChannel, app.cluster.members["B"].channel)

    def gone(message: Any) -> ConnectionError:
        dead.close(Close.SEND_FAILED)
        return ConnectionError("closed")

    dead.answer = gone
    assert not knock(app, again).closed and dead.closed
    assert app.cluster.members["B"] is again and problem_texts(app.cluster) == []


def test_an_impossible_name_is_refused_with_what_to_do(app: ConnectionApp) -> None:
    channel = FakeChannel()
    local = SimpleNamespace(
        port_no=0xFFFFFFFE,
        hw_addr="06:00:00:00:99:00",
        name=b"br",
        state=0,
        config=0,
        properties=[],
    )
    channel.datapath.ports = {0xFFFFFFFE: local}
    reply: Future[bytes] = Future()
    reply.set_result(description(b"two words"))
    app._described(cast(Channel, channel), reply)
    assert channel.why_closed is Close.BAD_NAME
    (warning,) = problem_texts(app.cluster)
    assert (
        warning
        == "192.0.2.1: refused, its name 'two words' is not valid: choose another with host-up "
        "--name"
    )


def test_status_shows_what_is_wrong_first(tmp_path: Path) -> None:
    cluster = two_hosts()
    cluster.members["B"].mac = host_mac("A")
    for member in cluster.members.values():
        member.ports[1].rx_bps, member.ports[1].tx_bps = 3e6, 5e6
    text = shown(answer_of(cluster, tmp_path))
    assert text.startswith(
        "bad: A and B have one MAC address, 06:00:00:00:41:00: give all but one of them another"
    )
    (row,) = (line for line in text.splitlines() if "A " in line and "eth0" in line)
    assert row.index("5.0 Mbit/s") < row.index("3.0 Mbit/s"), "sending, then receiving"


def answer_of(cluster: Cluster, folder: Path) -> Any:
    cluster.socket_path = folder / "controller.sock"
    api = LocalApi(cluster)
    try:
        return dict(json.loads(json.dumps(api.answer(b'{"op": "status"}\n'))))
    finally:
        api.close()


def shown(answer: Any) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(status_view(answer, 1.5e9))
    return console.export_text()


def test_of_a_host_that_is_away_nothing_is_claimed(tmp_path: Path) -> None:
    """What is known about it may be hours old."""
    cluster = cluster_of({"A": FakeChannel(), "B": None})
    for member in cluster.members.values():
        member.ports[1].rx_bps = member.ports[1].tx_bps = 3e6
    answer = answer_of(cluster, tmp_path)
    here, away = answer["hosts"]
    assert (here["nics"][0]["up"], here["nics"][0]["alive"], here["nics"][0]["rx_bps"]) == (
        True,
        True,
        3e6,
    )
    changing = ("up", "alive", "tx_bps", "rx_bps")
    assert [nic[key] for nic in away["nics"] for key in changing] == [None] * 8
    text = shown(answer)
    (row,) = (line for line in text.splitlines() if "B (away)" in line)
    assert "yes" not in row and "3.0 Mbit/s" not in row
    assert (
        text.splitlines()[0].rstrip()
        == "bad: B is not connected: run host-status there: it says why"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda cluster: None, 0),
        (lambda cluster: setattr(cluster.members["A"].ports[1], "up", False), 1),
        (lambda cluster: setattr(cluster.members["A"], "channel", None), 2),
    ],
)
def test_the_exit_code_of_status_is_for_monitoring(
    change: Any,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = two_hosts()
    change(cluster)
    cluster.topology_changed()
    answer = answer_of(cluster, tmp_path)
    monkeypatch.setattr(status_command, "call", lambda *_: answer)
    assert status_command.status(Asked(tmp_path / "any.sock")) == code
    assert status_command.status(Asked(tmp_path / "any.sock", as_json=True)) == code
    assert capsys.readouterr().out


def test_the_json_of_a_controller_of_before_is_shown_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message about another version tells people to use `--json`."""
    monkeypatch.setattr(
        status_command, "call", lambda *_: {"ok": True, "warnings": ["A is not connected"]}
    )
    assert status_command.status(Asked(tmp_path / "any.sock", as_json=True)) == 0
    assert "A is not connected" in capsys.readouterr().out


# ---- The other problems


def test_nics_that_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = two_hosts()
    alive = {("B", 1): (False, True), ("B", 2): (True, False)}
    monkeypatch.setattr(cluster.wiring, "alive", lambda nic: alive.get(nic, (True, True)))
    cluster.members["A"].ports[1].up = False
    cluster.topology_changed()
    texts = [
        "B: none of its NICs works, so its peers cannot reach it",
        "A:eth0 has no link",
        "B:eth0: nothing that it sends arrives",
        "B:eth1: nothing arrives at it",
    ]
    assert problem_texts(cluster) == texts
    alive["B", 1] = (False, False)
    cluster.topology_changed()
    assert (
        problem_texts(cluster)[2]
        == "B:eth0: nothing arrives at it, and nothing that it sends arrives"
    )
    cluster.members["B"].channel = None  # a host that is away may be in order again
    cluster.topology_changed()
    assert problem_texts(cluster) == ["B is not connected", "A:eth0 has no link"]


def test_cables_that_lose_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = two_hosts()
    lost = [Loss(("A:1>",), 0.2), Loss((">B:2",), 0.071), Loss(("n1>n2", ">A:2", "Z:9>"), 0.05)]
    monkeypatch.setattr(cluster.measured, "losses", SimpleNamespace(losses=lost))
    assert problem_texts(cluster) == [
        "20% of packets are lost in what A:eth0 sends",
        "7% of packets are lost in what B:eth1 receives",
        "5% of packets are lost in one of: n1>n2, what A:eth1 receives, Z:9>",
    ]


def test_a_controller_that_nobody_has_found() -> None:
    cluster = Cluster(ClusterConfig(), "max_min", Path("/nonexistent/controller.sock"))
    assert [str(Line.of(problem.document())) for problem in problems_of(cluster)] == [
        "warning: no host has connected: run host-up --controller on the hosts"
    ]


def test_hosts_that_are_away_or_have_never_come() -> None:
    config = parse_model(
        "{hosts: {C: {}}, placement: [{hosts: [D]}]}", ClusterConfig, "cluster.yaml"
    )
    cluster = cluster_of({"A": FakeChannel(), "B": None}, config)
    assert problem_texts(cluster) == [
        "B is not connected",
        "C is in cluster.yaml but has never connected",
        "D is in cluster.yaml but has never connected",
    ]


def test_many_hosts_that_reach_nobody_do_not_fill_the_screen() -> None:
    cluster = Cluster(ClusterConfig(), "max_min", Path("/nonexistent/controller.sock"))
    cluster.members = {
        f"x{number}": Member(f"x{number}", number, host_mac("A"), "", {}) for number in range(10)
    }
    pairs = [text for text in problem_texts(cluster) if "no common network" in text]
    assert len(pairs) == 21 and pairs[-1] == "25 more pairs of hosts have no common network"


def test_nics_and_hosts_that_reach_nobody() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()}, nics=1)
    cluster.members["A"].ports.update(member_of("A", 3).ports)
    assert problem_texts(cluster) == [
        "network n2 has a single NIC, A:eth1",
        "network n3 has a single NIC, A:eth2",
    ]
    del cluster.members["A"].ports[1]
    cluster.topology_changed()
    assert problem_texts(cluster)[0] == "A and B have no common network"


@pytest.mark.parametrize(
    ("taps", "warning"),
    [
        ({}, []),
        ({101: True, 102: True}, []),
        ({101: True, 102: False}, ["A: its helper does not run"]),
        ({101: True}, ["A: its helper cannot be used: the ports of its TAPs have wrong numbers"]),
    ],
)
def test_a_helper_that_is_of_no_use(taps: dict[int, bool], warning: list[str]) -> None:
    cluster = two_hosts()
    cluster.members["A"].taps = taps
    assert problem_texts(cluster) == warning
    without = two_hosts(ClusterConfig(striping="off"))
    without.members["A"].taps = taps
    assert problem_texts(without) == []


def test_wiring_that_is_not_as_declared() -> None:
    def declared(a: str, b: str) -> Cluster:
        text = f"hosts: {{A: {{nics: {a}}}, B: {{nics: {b}}}, C: {{nics: {b}}}}}"
        config = parse_model(text, ClusterConfig, "cluster.yaml")
        return cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()}, config)

    right, wrong = (
        "{eth0: {network: x}, eth1: {network: y}}",
        "{eth0: {network: y}, eth1: {network: x}}",
    )
    assert problem_texts(declared(right, right)) == []
    assert problem_texts(declared(wrong, right)) == [
        "A:eth0: declared on y, but found on n1 with NICs of x",
        "A:eth1: declared on x, but found on n2 with NICs of y",
        "A:eth1: cut off from the rest of x",
        "A:eth0: cut off from the rest of y",
    ]


def test_hosts_that_matter_to_nobody() -> None:
    """They are neither in cluster.yaml nor on a network with others: their places may be taken."""
    config = parse_model("hosts: {A: {}}", ClusterConfig, "cluster.yaml")
    cluster = cluster_of({name: FakeChannel() for name in "ABCDE"}, config)
    alone = {("A", 1): "n7", ("D", 1): "n8", ("D", 2): "n8", ("B", 1): "n1", ("C", 2): "n1"}
    cast(Any, cluster.wiring).network = alone.get
    assert [member.name for member in cluster.expendable()] == ["D", "E"]
    assert [cluster.matters(cluster.members[name]) for name in "ABCDE"] == [
        True,
        True,
        True,
        False,
        False,
    ]
