# SPDX-License-Identifier: Apache-2.0
"""Problems and events: their codes are those of the tables, and their ids are unique and last."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.contract.events import EVENTS, Event
from ri2n_sdn.contract.problems import PROBLEMS, Problem
from ri2n_sdn.contract.refusals import answer_of, error_of, refusal
from ri2n_sdn.contract.said import SEVERITIES, Line, exit_code, worst_first
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.weights.losses import Loss
from tests.unit.commands import REPOSITORY
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.said_examples import all_events, all_problems, placeholders

# The calls that take a code, and the table that has it.
_TAKING = {
    **{"Problem": PROBLEMS, "contain_fault": PROBLEMS},
    **{"Event": EVENTS, "cluster.note": EVENTS, "self.note": EVENTS, "self._note": EVENTS},
    "_stand_back": EVENTS,
}
_SOURCES = [
    path
    for path in sorted((REPOSITORY / "ri2n_sdn").rglob("*.py"))
    if path.parent.name not in ("contract", "web", "gui", "rest", "cli")
]


def codes_in_calls() -> Iterator[tuple[str, str]]:
    """(call, code) of each call of the product that names a code."""
    for path in _SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                called = f".{ast.unparse(node.func)}"
                call = next((each for each in _TAKING if called.endswith(f".{each}")), None)
                for first in node.args[:1]:
                    if call and isinstance(first, ast.Constant) and isinstance(first.value, str):
                        yield call, first.value


def test_each_code_of_a_call_is_in_its_table() -> None:
    found = list(codes_in_calls())
    assert len(found) > 60
    assert [each for each in found if each[1] not in _TAKING[each[0]]] == []


def test_each_code_of_the_tables_is_said_somewhere() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in _SOURCES)
    made = {*re.findall(r'"(\w+)"', source)}
    # Of these, the last part is a job's state, or says that it is so in some VLANs alone.
    made |= {f"job_{state}" for state in ("installed", "waiting", "refused")}
    made |= {f"{code}_in_vlans" for code in made}
    assert {*PROBLEMS, *EVENTS} <= made


def test_codes_are_words_that_last_and_severities_are_known() -> None:
    for table in (PROBLEMS, EVENTS):
        for code, kind in table.items():
            assert re.fullmatch(r"[a-z]+(_[a-z]+)+", code), code
            assert kind.severity in SEVERITIES, code
    assert {kind.severity for kind in PROBLEMS.values()} == {"bad", "warning"}
    for code, kind in EVENTS.items():
        assert kind.advice == "" or kind.severity != "info", code


@pytest.mark.parametrize("said", [*all_problems(), *all_events()], ids=lambda said: said.code)
def test_a_document_has_the_code_and_the_sentence(said: Problem | Event) -> None:
    document = said.document()
    assert document.keys() == {"code", "subject", "severity", "args", "text", "advice"}
    kind = type(said).table[said.code]
    assert placeholders(kind).keys() <= document["subject"].keys() | document["args"].keys()
    assert not {"{", "}"} & {*document["text"], *document["advice"]}
    with pytest.raises(KeyError):
        type(said)("no_such_code").document()


def test_the_log_has_the_text_and_a_limit_for_each_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ri2n.cluster")
    cluster = cluster_of({"A": FakeChannel()})
    cluster.note("host_retired", {"host": "Z"}, by="carol")
    with cluster.contain_fault("rows_not_sent", cluster.members["A"]):
        raise ValueError("odd")
    event, fault = caplog.records
    assert event.getMessage() == cluster.events[0]["text"] == "Z is retired: carol has asked for it"
    (problem,) = problems_of(cluster)
    assert fault.getMessage() == problem.text and problem.id == "rows_not_sent:A"
    assert [record.__dict__["kind"] for record in caplog.records] == [
        *("host_retired", "rows_not_sent")
    ]


# ---- Ids


def test_an_id_is_the_code_the_subject_and_what_tells_it_apart() -> None:
    nic = {"host": "A", "nic": "eth0"}
    assert Problem("host_away", {"host": "A"}).id == "host_away:A"
    assert Problem("nic_no_link", nic).id == "nic_no_link:A:eth0"
    apart = Problem("pair_apart", {"host": "A"}, {"other": "B", "more": "not in the id"})
    assert apart.id == "pair_apart:A:B"
    assert Problem("no_host").id == "no_host"


@pytest.mark.parametrize(
    "odd", ["a/b", "a:b", "a b", "a~b", "a%2Fb", "ä", "?x=#", "\udc80", "..", ""]
)
def test_an_id_fits_into_an_address_and_is_of_one_name_alone(odd: str) -> None:
    found = Problem("cable_dead", {"cable": odd}).id
    assert quote(found, safe=":~@") == found and "/" not in found and found.isascii()
    others = ["a/b", "a:b", "a b", "a~b", "a~2Fb", "a%2Fb", "ä", "ab"]
    ids = {Problem("cable_dead", {"cable": each}).id for each in others if each != odd}
    assert found not in ids and len(ids) >= len(others) - 1


@pytest.mark.parametrize("problem", all_problems(), ids=lambda problem: problem.code)
def test_an_id_follows_from_the_subject_and_not_from_what_grows(problem: Problem) -> None:
    apart = type(problem).table[problem.code].apart
    grown = {name: value if name in apart else 9 for name, value in problem.args.items()}
    assert Problem(problem.code, problem.subject, grown).id == problem.id
    for name in problem.subject:
        other = {**problem.subject, name: "another"}
        assert Problem(problem.code, other, problem.args).id != problem.id
    for name in apart:
        assert Problem(problem.code, problem.subject, {**problem.args, name: "x"}).id != problem.id


def sick(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with several problems of each kind that may be there several times."""
    cluster = cluster_of({name: FakeChannel() for name in "ABCD"}, dead=[("B", 1), ("B", 2)])
    a, b, c, d = cluster.members.values()
    a.channel, b.mac, a.repairs, d.mac = None, a.mac, 3, c.mac
    c.taps = d.taps = {254: False, 255: False}
    c.faults = {"rows_not_sent": "x", "rows_not_planned": "x"}
    cluster.faults = {"not_reloaded": "x", "jobs_not_kept": "x"}
    lost = (Loss(("A:1>",), 0.07), Loss((">A:1",), 0.07), Loss(("A:2>", ">B:1"), 0.05))
    more = (Loss(("B:2>", ">C:1"), 0.04), Loss(("n1>n2",), 0.04))
    monkeypatch.setattr(cluster.measured, "losses", SimpleNamespace(losses=(*lost, *more)))
    for address in ("192.0.2.8", "192.0.2.9"):
        args = {"address": address, "other": "A", "other_address": "192.0.2.1"}
        cluster.refusals.note(f"A {address}", Problem("host_name_taken", {"host": "A"}, args))
        name = Problem("host_name_invalid", {}, {"address": address, "name": "?"})
        cluster.refusals.note(address, name)
    state = cluster.jobs
    state.faults = {"A": ("odd", "odd", "odder"), "B": ("odd",)}
    refused = {("A", "j1"): "no", ("A", "j2"): "no", ("B", "j1"): "no"}
    state.agreement = Agreement(refused=refused)
    cluster.topology_changed()
    return cluster


def test_no_two_problems_of_a_cluster_have_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    found = problems_of(sick(monkeypatch))
    codes = Counter(problem.code for problem in found)
    assert {code for code, count in codes.items() if count > 1} >= {
        *("mac_shared", "one_of_links_loses", "host_name_taken", "host_name_invalid"),
        *("job_undeclared", "job_refused_at_host", "nic_cut", "helper_ports_wrong"),
    }
    assert len(found) > 25 and len({problem.id for problem in found}) == len(found)


# ---- How bad


def test_the_worst_comes_first_and_gives_the_exit_code() -> None:
    lines = [Line("info", "a"), Line("warning", "b"), Line("bad", "c", "d"), Line("bad", "e")]
    assert [line.text for line in worst_first(lines)] == ["c", "e", "b", "a"]
    assert [exit_code(lines[:count]) for count in range(4)] == [0, 0, 1, 2]
    assert [str(line) for line in lines[1:3]] == ["warning: b", "bad: c: d"]


@pytest.mark.parametrize(
    ("code", "args", "subject"),
    [
        ("job_exists", {"job": "j1"}, {"job": "j1"}),
        ("host_rows_unread", {"host": "n1", "why": "it is away"}, {"host": "n1"}),
        ("share_full", {"user": "eve", "most": 512, "what": "jobs"}, {"user": "eve"}),
        ("jobs_full", {"most": 512}, {}),
    ],
)
def test_a_refusal_says_what_it_is_about(
    code: str, args: dict[str, object], subject: dict[str, str]
) -> None:
    """A program needs no sentence to know it, on either side of the socket."""
    answer = answer_of(refusal(code, "id", **args))
    assert (answer["code"], answer["subject"], answer["args"]) == (code, subject, args)
    read = error_of(json.loads(json.dumps(answer)))
    assert (read.code, read.subject, read.values) == (code, subject, args)
