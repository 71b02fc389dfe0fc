# SPDX-License-Identifier: Apache-2.0
"""`ri2n job`, `reserve` and `rights` as a user runs them: tables, JSON, and one line per error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import Ri2nError
from tests.unit.commands import Ended, ri2n
from tests.unit.fake_hosts import FakeChannel, cluster_of


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """The socket of a controller that knows hosts A and B on two networks."""
    cluster = cluster_of({name: FakeChannel() for name in "AB"})
    cluster.socket_path = tmp_path / "c.sock"
    with closing(LocalApi(cluster)):
        yield cluster.socket_path


def asked(socket: Path, *words: str) -> Ended:
    return ri2n(*words, "--socket", str(socket))


NO_HOST = partial(refusal, "host_unknown", "hosts", host="Z", known=["A", "B"])
NO_JOB = partial(refusal, "no_such_job", name="j9")
BEGIN = ("job", "begin", "j1", "--hosts", "A,B", "--user", "20001", "--policy", "exclusive")


def test_a_job_is_ordered_shown_moved_and_ended(socket: Path) -> None:
    done = asked(socket, *BEGIN, "--min-rate", "10M", "--max-rate", "20M", "--until", "+2h")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "j1: waiting: no host has begun it yet\n"
    (listed,) = json.loads(asked(socket, "job", "ls", "--json").stdout)
    assert (listed["id"], listed["uid"], listed["policy"]) == ("j1", 20001, "exclusive")
    assert (listed["min_rate_bps"], listed["max_rate_bps"]) == (10**7, 2 * 10**7)
    table = asked(socket, "job", "ls").stdout
    assert "at least 10.0 Mbit/s, at most 20.0 Mbit/s" in table and "A, B" in table
    shown = asked(socket, "job", "show", "j1").stdout
    assert "B: has not begun it" in shown and "ordered at" in shown
    moved = asked(socket, "job", "move", "j1", "--policy", "shared")
    assert moved.returncode == 0, moved
    assert json.loads(asked(socket, "job", "show", "j1", "--json").stdout)["policy"] == "shared"
    assert asked(socket, "job", "end", "j1").stdout == "j1: ended\n"
    assert asked(socket, "job", "ls").stdout == "no jobs\n"
    assert "has ended it" in asked(socket, "job", "history").stdout
    assert json.loads(asked(socket, "job", "history", "--json").stdout)[0]["id"] == "j1"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            (*BEGIN[:-1], "mine"),
            partial(refusal, "value_not_one_of", "--policy", value="'mine'", choices=KINDS),
        ),
        ((*BEGIN, "--min-rate", "fast"), "--min-rate"),
        ((*BEGIN, "--max-rate", "0"), "--max-rate"),
        ((*BEGIN, "--until", "yesterday"), "--until"),
        ((*BEGIN, "--table", "99=net1"), "--table"),
        ((*BEGIN, "--service", "here"), "--service"),
        ((*BEGIN, "--paths", "a b"), "--paths"),
        (("job", "begin", "j1", "--hosts", "A,A"), "--hosts"),
        (
            ("job", "begin", "j1", "--hosts", "A,Z"),
            partial(refusal, "host_unknown", "hosts", host="Z", known=["A", "B"]),
        ),
        (("job", "begin", "../j", "--hosts", "A"), "id"),
        (("job", "begin", "j1", "--hosts", "A", "--user", "nobody-at-all"), "no such user"),
        ((*BEGIN, "--min-rate", "900G"), "min_rate 900G is more than A can carry"),
        (("job", "end", "j9"), NO_JOB),
        (("job", "show", "j9"), NO_JOB),
        (("job", "move", "j9", "--policy", "shared"), NO_JOB),
        (("reserve", "add", "r", "--hosts", "A,B"), "give --end or --for"),
        (("reserve", "add", "r", "--hosts", "A,B", "--for", "soon"), "--for"),
        (("reserve", "add", "r", "--hosts", "A,B", "--begin", "+2h", "--end", "+1h"), "end"),
        (("reserve", "rm", "r9"), partial(refusal, "no_such_reservation", name="r9")),
        (("rights", "set", "alice", "--policies", "all"), "--policies"),
        (("rights", "rm", "alice"), "alice"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    socket: Path, words: tuple[str, ...], fault: str | Callable[[], Ri2nError]
) -> None:
    done = asked(socket, *words)
    assert done.returncode == 2 and not done.stdout, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (fault if isinstance(fault, str) else str(fault())) in done.stderr, done.stderr
    for listed in (("job", "ls"), ("reserve", "ls"), ("rights", "ls")):
        assert json.loads(asked(socket, *listed, "--json").stdout) == []


def test_paths_are_reserved_for_a_time(socket: Path) -> None:
    reserve = ("reserve", "add", "r1", "--hosts", "A,B", "--user", "20001", "--rate", "10M")
    done = asked(socket, *reserve, "--begin", "2999-01-01T10:00", "--for", "2h")
    assert done.stdout == "r1: reserved from 2999-01-01T10:00:00Z to 2999-01-01T12:00:00Z\n", done
    assert "10.0 Mbit/s" in asked(socket, "reserve", "ls").stdout
    other = asked(
        socket,
        *("reserve", "add", "r2", "--hosts", "A,B", "--user", "20002"),
        *("--begin", "2999-01-01T11:00", "--for", "2h"),
    )
    assert other.returncode == 2 and "r1" in other.stderr and "20001" in other.stderr, other
    assert asked(socket, "reserve", "rm", "r1").stdout == "r1: removed\n"
    assert asked(socket, "reserve", "ls").stdout == "no reservations\n"


def test_rights_are_set_listed_and_removed(socket: Path) -> None:
    words = ("rights", "set", "alice", "--policies", "shared,paths", "--max-rate", "1G")
    assert asked(socket, *words, "--reserve").stdout == "alice: shared, paths\n"
    table = asked(socket, "rights", "ls").stdout
    assert "paths, shared" in table and "1.0 Gbit/s" in table and "yes" in table
    assert asked(socket, "rights", "rm", "alice").stdout == "alice: removed\n"


def test_explain_names_the_job(socket: Path) -> None:
    done = ri2n("explain", "A", "B", "--job", "j9", "--socket", str(socket))
    assert done.returncode == 2 and str(refusal("no_job_runs", "job", job="j9")) in done.stderr
    done = ri2n("explain", "A", "B", "--dscp", "10", "--socket", str(socket))
    assert done.returncode == 2 and "--dscp: only with --job" in done.stderr
