# SPDX-License-Identifier: Apache-2.0
"""What hosts declare and the controller answers: round trips, and whatever else may come."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.declaration import (
    MAX_FAILURE,
    MAX_NOTE_BYTES,
    Answer,
    Declaration,
    Failure,
    read_declaration,
    read_failure,
    read_order,
    write_answer,
    write_order,
)
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Service
from tests.unit.job_notes import declaration_note, read_answer

FULL: dict[str, object] = {
    "v": 1,
    "id": "slurm-14",
    "class": 3,
    "user": "alice",
    "uid": 20001,
    "hosts": ["n1", "n2"],
    "policy": "exclusive",
    "paths": ["net1"],
    "tables": [{"dscp": 10, "paths": ["net2"]}],
    "min_rate_bps": 400000000,
    "max_rate_bps": 800000000,
    "begin_s": 1790000000,
    "end_s": 1790003600,
    "source": "host",
}
FAILED: dict[str, object] = {"v": 1, "id": "slurm-14", "failed": True, "why": "no class is left"}
JOB = Job(
    "slurm-14",
    "alice",
    20001,
    ("n1", "n2"),
    Policy(
        "exclusive",
        (PathTable(None, ("net1",)), PathTable(10, ("net2",))),
        (),
        400000000,
        800000000,
    ),
    1790000000.0,
    1790003600.0,
)
ISOLATED = replace(
    JOB,
    policy=Policy(
        "isolated", (), (Service("10.0.0.9", "tcp", 2049), Service("fd77::9", "udp", 53))
    ),
)


def note(**changes: object) -> bytes:
    document = {**FULL, **{key.rstrip("_"): value for key, value in changes.items()}}
    return json.dumps({k: v for k, v in document.items() if v != "absent"}).encode()


def test_a_declaration_says_what_the_contract_says() -> None:
    assert read_declaration("n1", note() + bytes(7)) == Declaration("n1", 3, JOB)
    minimal = note(
        paths="absent",
        tables="absent",
        min_rate_bps="absent",
        max_rate_bps="absent",
        end_s="absent",
        source="absent",
        policy="shared",
    )
    assert read_declaration("n2", minimal).job == replace(JOB, policy=Policy(), end_s=None)


@pytest.mark.parametrize("job", [JOB, ISOLATED, replace(JOB, end_s=None, begin_s=1790000000.25)])
def test_what_is_written_is_read_back(job: Job) -> None:
    declared = Declaration("n1", 63, job)
    written = declaration_note(declared)
    assert read_declaration("n1", written + bytes(5)) == declared
    assert declaration_note(read_declaration("n1", written)) == written
    order = replace(job, source="order")
    assert read_order(write_order(order)) == order
    with pytest.raises(BadInput, match="unknown key 'order'"):
        read_declaration("n1", note(order=True))


def test_hosts_and_policies_that_are_written_in_another_order_are_equal() -> None:
    other = note(hosts=["n2", "n1"], paths=["net3", "net1", "net3"])
    first = note(paths=["net1", "net3"])
    assert read_declaration("n1", other) == read_declaration("n1", first)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"v": 2}, "v: Input should be less than or equal to 1"),
        ({"v": True}, "v: Input should be a valid integer"),
        ({"id": "absent"}, "id: is missing"),
        ({"id": "-x"}, "id: '-x' must be 1 to 64 letters"),
        ({"id": "a\nb"}, "id: 'a\\nb' must be"),
        ({"id": "a\n"}, "id: 'a\\n' must be"),
        ({"id": "x" * 300}, "id: String should have at most 256 characters"),
        ({"class_": 0}, "class: Input should be greater than or equal to 1"),
        ({"class_": 64}, "class: Input should be less than or equal to 63"),
        ({"class_": True}, "class: Input should be a valid integer"),
        ({"class_": "3"}, "class: Input should be a valid integer"),
        ({"user": ""}, "user: '' is not the name of a user"),
        ({"user": "a b"}, "user: 'a b' is not"),
        ({"uid": -1}, "uid: '-1' must be from 0"),
        ({"uid": 2**32 - 1}, "uid: '4294967295' must be"),
        ({"uid": 10**40}, "uid: "),
        ({"hosts": []}, "hosts: there is none"),
        ({"hosts": ["n2"]}, "hosts: the host that declares the job is not among them"),
        ({"hosts": ["n1", "n1"]}, "hosts: n1 is there twice"),
        ({"hosts": ["n1", "a/b"]}, "hosts: 'a/b' is not the name of a host"),
        ({"hosts": "n1"}, "hosts: Input should be a valid list"),
        ({"policy": "all"}, "policy: 'all' must be one of shared, paths, exclusive, isolated"),
        ({"policy": "shared"}, "paths: policy shared has no paths of its own"),
        ({"policy": "paths", "paths": [], "tables": []}, "paths: policy paths must name"),
        ({"paths": ["a b"]}, "paths: 'a b' must be NETWORK"),
        ({"paths": ["net1/4095"]}, "paths: 'net1/4095': a VLAN is at most 4094"),
        ({"paths": ["net1"] * 2000}, "paths: List should have at most 1024"),
        ({"paths": [f"net{i}" for i in range(65)]}, "paths: there are more than 64 names"),
        ({"tables": [{"dscp": 64, "paths": ["a"]}]}, "tables: a DSCP is a number"),
        ({"tables": [{"dscp": 10, "paths": []}]}, "tables: DSCP 10 names no paths"),
        ({"tables": [{"dscp": 1, "paths": ["a"]}] * 2}, "tables: DSCP 1 is there twice"),
        ({"tables": [{"dscp": 1, "paths": ["a"], "x": 1}]}, "unknown key tables[0].'x'"),
        ({"tables": [{"dscp": None, "paths": ["a"]}]}, "tables[0].dscp: Input should be"),
        ({"services": ["10.0.0.9/tcp/1"]}, "services: policy exclusive has none"),
        ({"services": ["10.0.0.9"]}, "services: '10.0.0.9' must be ADDRESS/tcp/PORT"),
        ({"min_rate_bps": 0}, "min_rate_bps: '0' must be from 1"),
        ({"min_rate_bps": 1.5}, "min_rate_bps: Input should be a valid integer"),
        ({"min_rate_bps": 800000001}, "min_rate_bps: 800000.001k is above max_rate_bps 800M"),
        ({"begin_s": "now"}, "begin_s: Input should be a valid number"),
        ({"begin_s": True}, "begin_s: Input should be a valid number"),
        ({"begin_s": -1}, "begin_s: '-1.0' is not between"),
        ({"end_s": 1790000000}, "end_s: 2026-09-21T14:13:20Z is not after the start 2026-09-21"),
        ({"source": "me"}, "source: 'me' must be one of host, order"),
        ({"why\n\x1b": 1}, "unknown key 'why\\n\\x1b'"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(changes: dict[str, object], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_declaration("n1", note(**changes))
    assert str(caught.value).startswith(f"declaration of n1: {line}")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", "the note is not JSON"),
        (bytes(100), "the note is not JSON"),
        (b"\xff\xfe", "the note is not UTF-8 text"),
        (b"[" * MAX_NOTE_BYTES, "the note is nested too deep"),
        (b'{"a":' * 3000, "the note is nested too deep"),
        (b" " * (MAX_NOTE_BYTES + 1), "the note has 16385 bytes, more than 16384"),
        (b"[]", "the note is not a mapping of keys, it is list"),
        (b"9" * 5000, "the note is not JSON: a number is too long"),
        (b'{"v":1,"v":1}', "key 'v' is there twice"),
        (b'{"begin_s":NaN}', "NaN is no number"),
        (b'{"begin_s":-Infinity}', "-Infinity is no number"),
        (note().replace(b"1790003600", b"1e999"), "end_s: Input should be a finite number"),
        (note().replace(b'"n2"', b'"\\ud800"'), "hosts[1]: Input should be a valid string"),
    ],
)
def test_bytes_that_are_no_declaration_are_refused_in_one_line(raw: bytes, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_declaration("n1", raw)
    assert str(caught.value).startswith(f"declaration of n1: {line}")
    assert str(caught.value).isprintable()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["n1", "net1", "exclusive", "10.0.0.9/tcp/2049", "order"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    _reads_or_refuses(raw)


@given(st.dictionaries(st.sampled_from([*FULL, "services", "order", "x\n"]), VALUES, max_size=4))
def test_any_values_of_keys_are_read_or_refused(changes: dict[str, object]) -> None:
    _reads_or_refuses(json.dumps({**FULL, **changes}).encode())


@given(st.dictionaries(st.sampled_from(["v", "id", "failed", "why", "x\n"]), VALUES, max_size=5))
def test_any_values_of_a_failed_order_are_read_or_refused(changes: dict[str, object]) -> None:
    _reads_or_refuses(json.dumps({**FAILED, **changes}).encode())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"v": 2}, "v: Input should be less than or equal to 1"),
        ({"id": "a b"}, "id: 'a b' must be"),
        ({"failed": False}, "failed: Input should be True"),
        ({"why": ""}, "why: String should have at least 1 character"),
        ({"why": "x" * 201}, "why: String should have at most 200 characters"),
        ({"why": "a\nb"}, "why: must be one line of printable ASCII"),
        ({"why": "\x1b[2J"}, "why: must be one line of printable ASCII"),
        ({"why": "\u202etxet"}, "why: must be one line of printable ASCII"),
        ({"why": ["full"]}, "why: Input should be a valid string"),
        ({"class": 1}, "unknown key 'class'"),
    ],
)
def test_a_failed_order_is_read_strictly(changes: dict[str, object], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_failure("n1", json.dumps({**FAILED, **changes}).encode())
    assert str(caught.value).startswith(f"failed order of n1: {line}")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def failure_note(failure: Failure) -> bytes:
    """The note that host-watch writes about it."""
    return json.dumps({**FAILED, "id": failure.id, "why": failure.why}).encode()


def test_a_failed_order_is_read_as_it_was_written() -> None:
    failure = Failure("n1", "slurm-14", "x" * MAX_FAILURE)
    assert read_failure("n1", failure_note(failure) + bytes(5)) == failure


@given(st.data())
def test_any_changed_byte_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([note(), json.dumps(FAILED).encode()])))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _reads_or_refuses(bytes(raw))


def _reads_or_refuses(raw: bytes) -> None:
    of_host = (lambda raw: read_declaration("n1", raw), lambda raw: read_failure("n1", raw))
    for read in (*of_host, read_order):
        try:
            found = read(raw)
        except BadInput as error:
            assert str(error).isprintable() and len(str(error)) < 400
            continue
        if isinstance(found, Failure):
            assert read_failure("n1", failure_note(found)) == found
            assert found.why.isprintable() and found.why.isascii()
        if isinstance(found, Declaration):
            assert read_declaration("n1", declaration_note(found)) == found


def test_an_order_that_is_too_long_is_refused_by_the_writer() -> None:
    hosts = tuple(f"{'n' * 40}{number}" for number in range(1000))
    with pytest.raises(BadInput, match=r"slurm-14: its declaration has .* bytes, more than 16384"):
        write_order(replace(JOB, hosts=hosts))


def test_answers() -> None:
    for state in ("installed", "waiting", "refused"):
        answer = Answer("slurm-14", state, "net1 at n1 belongs to somebody")
        assert read_answer(write_answer(answer) + bytes(3)) == answer
    odd = read_answer(write_answer(Answer("a", "refused", "two\nlines\x1b[0m " + "x" * 5000)))
    assert odd.why.startswith("two lines [0m xxx") and len(odd.why) == 400
