# SPDX-License-Identifier: Apache-2.0
"""A name, a rate or a time is the same for every program that reads it, in whatever language."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ri2n_sdn.contract import choices, limits, names, units
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.check import check_job
from ri2n_sdn.jobs.declaration import read_declaration
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.web.gui.words import rate_of_field, time_of_field
from ri2n_sdn.web.rest import models
from tests.contract_files import FILES, RATES

from .commands import REPOSITORY
from .contract_readers import BEGIN_S, Reader, plugin, scripts

NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "job": (("7", "a:b.c_d-e", "x" * 64), ("", ".a", "x" * 65, "a/b", "a@b", "a\n", "é", "a b")),
    "user": (
        ("alice", "_x", "host$", "DOM\\alice", "a@b.c", "a+b", "u" * 64 + "$"),
        ("", "-a", "\\a", "a$b", "u" * 65, "a b", "a:b", "a\n", 'a"', "é", "a/b"),
    ),
    "host": (("n1", "n-1.x_y", "x" * 63), ("", "-n", "x" * 64, "n1@b", "n1:eth0", "n\n", "ñ")),
    "path": (
        ("net1", "net1/12", "net1/0", "vlan:4094", "vlan:0012", "A:eth1", "vlan", "vlan/12", "a@b"),
        (
            *("", "net1/", "net1/4095", "vlan:", "vlan:4095", "vlan:abc", "vlan:00012", "A:"),
            *("net1/00012", "a/b", "A:b:c", "-a", "a b", "net1\n", "x" * 64, "A:" + "x" * 64, "é"),
        ),
    ),
    "uid": (("0", "1000", "4294967294"), ("4294967295", "00", "-1", "9" * 11, "1.0", "٤")),
}
"""What each kind of names accepts, and what it refuses."""

TIMES: Mapping[str, float | None] = {
    "+2h": BEGIN_S + 7200.0,
    "2h": BEGIN_S + 7200.0,
    "+90": BEGIN_S + 90.0,
    "15min": BEGIN_S + 900.0,
    "+007d": BEGIN_S + 604_800.0,
    "1790000000": 1_790_000_000.0,
    "253402300799": limits.MAX_TIME_S,
    **dict.fromkeys(("253402300800", "+999999999999d", "2w", "+-1", "1 h", "+", "h", "9" * 16)),
}
"""Times that the scripts take, too, in seconds since 1970; None: they are refused."""

_PIECES = (
    *("a", "Z", "0", "7", "12", "4094", "4095", "999999999", "9" * 16, "x" * 31, "x" * 62),
    *(".", "-", "_", "@", "+", ":", "/", "\\", "$", "'", '"', " ", "\n", "é", "٤", "vlan:", "vlan"),
    *("k", "M", "G", "bit/s", "s", "m", "min", "h", "d", "2.5G", "400M", "1000000G", "2h"),
)
_KINDS = ("job", "user", "uid", "host", "path", "rate", "time")
_TEXT = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join)


def python(kind: str, text: str) -> int | bool:
    """How the controller reads a text: the number, or True; False is a refusal."""
    try:
        return _PYTHON[kind](text)
    except BadInput as error:
        assert str(error).isprintable()
        return False


def _uid(text: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]*", text):
        raise BadInput(f"uid: {shown(text)} is no number")
    check_job(Job("a", "u", int(text), ("A",), Policy(), begin_s=0.0, end_s=None, source="host"))
    return int(text)


def _time(text: str) -> int | bool:
    """As the scripts, which take no dates, and no end that is not after the begin."""
    if not re.fullmatch(rf"[0-9]{{1,15}}|{units.DURATION}", text):
        raise BadInput("the scripts take no dates")
    end_s = units.parse_time(text, BEGIN_S)
    return int(end_s) if end_s > BEGIN_S else False


_PYTHON: Mapping[str, Callable[[str], int | bool]] = {
    "job": lambda text: bool(names.job_id(text)),
    "user": lambda text: bool(names.user_name(text)),
    "host": lambda text: bool(names.host_name(text)),
    "path": lambda text: bool(names.path_name(text)),
    "uid": _uid,
    "rate": units.parse_rate,
    "time": _time,
}
_REST = {
    "job": TypeAdapter(models._Id),
    "user": TypeAdapter(models._User),
    "host": TypeAdapter(models._HostName),
}


def rest(kind: str, text: str) -> bool:
    """Whether a body of a REST request may hold a name."""
    try:
        _REST[kind].validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.fixture(scope="module")
def spank(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing, so Slurm's plugin cannot be compiled")
    return plugin(tmp_path_factory.mktemp("spank"))


def _said(value: int | bool) -> str:
    """A value as a Reader answers."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _agree(asked: list[tuple[str, str]], spank: Reader) -> None:
    """Whether all readers read texts alike."""
    wanted = [python(kind, text) for kind, text in asked]
    for reader, kinds in ((scripts(), _KINDS), (spank, ("path", "rate"))):
        of_it = [
            (pair, value) for pair, value in zip(asked, wanted, strict=True) if pair[0] in kinds
        ]
        answers = reader([pair for pair, _ in of_it])
        for (pair, value), answer in zip(of_it, answers, strict=True):
            assert answer == _said(value), (pair, value)
    for (kind, text), value in zip(asked, wanted, strict=True):
        if kind in _REST:
            assert rest(kind, text) == value, (kind, text)


def test_vectors(spank: Reader) -> None:
    asked: dict[tuple[str, str], int | bool] = {}
    for kind, (good, bad) in NAMES.items():
        asked |= {(kind, text): int(text) if kind == "uid" else True for text in good}
        asked |= {(kind, text): False for text in bad}
    asked |= {("rate", text): rate_bps or False for text, rate_bps in RATES.items()}
    asked |= {("time", text): int(end_s or 0) for text, end_s in TIMES.items()}
    for (kind, text), value in asked.items():
        assert python(kind, text) == value, (kind, text)
    # To a script, an empty text says that an option is not given.
    _agree([pair for pair in asked if pair[1]], spank)


@pytest.mark.parametrize("user", ["alice", "DOM\\alice", "a\\\\n$", "host-1$"])
def test_a_user_of_a_host_is_the_same_for_the_controller(user: str) -> None:
    (declared,) = scripts()([("known", user)])
    job = read_declaration("A", bytes.fromhex(declared)).job
    assert (job.user, job.uid, job.begin_s) == (user, 1000, BEGIN_S)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(st.tuples(st.sampled_from(_KINDS), _TEXT), min_size=150, max_size=300),
    rates=st.lists(st.integers(1, limits.MAX_RATE_BPS), min_size=20, max_size=20),
)
def test_all_programs_read_alike(
    texts: list[tuple[str, str]], rates: list[int], spank: Reader
) -> None:
    # Commas separate names, and only a script takes a part of a second.
    texts = [(kind, text) for kind, text in texts if not (kind == "time" and "." in text)]
    _agree([*texts, *(("rate", units.exact_rate(rate_bps)) for rate_bps in rates)], spank)


@given(_TEXT)
def test_a_field_of_a_page_is_read_as_an_option_is(text: str) -> None:
    if any(each.isspace() for each in text):
        return
    for of_field, of_option in (
        (lambda: rate_of_field(text, "x"), lambda: units.parse_rate(text, "x")),
        (lambda: time_of_field(text, BEGIN_S, "x"), lambda: units.parse_time(text, BEGIN_S, "x")),
    ):
        answers: list[object] = []
        for read in (of_field, of_option):
            try:
                answers.append(read())
            except BadInput as error:
                answers.append(str(error))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_for_other_languages_follow_from_the_contract(file: Path) -> None:
    assert file.read_text() == FILES[file](), "run python -m tests.contract_files"


def test_the_plugin_has_the_limits_of_the_contract() -> None:
    text = (REPOSITORY / "ovs-host-scripts" / "slurm" / "spank_ri2n.c").read_text()
    for name in ("MAX_RATE_BPS", "MAX_VLAN", "MAX_DSCP"):
        found = re.search(rf"^#define {name} ([0-9]+)", text, re.M)
        assert found and int(found[1]) == getattr(limits, name), name
    kinds = re.search(r"POLICIES\[\] = \{(.*?)\}", text)
    assert kinds and json.loads(f"[{kinds[1]}]") == list(choices.KINDS)


# ---- One definition

ONCE = {
    "a job's id": re.escape(names.JOB_ID),
    "a host's name": re.escape(names.HOST_NAME),
    "a host's name, in another order": re.escape("[A-Za-z0-9][A-Za-z0-9._-]{0,62}"),
    "a user's name": r"\[A-Za-z0-9_\.@\+[\\-]+\]\{0,63\}",
    "a word of a path": re.escape(names.PATH_WORD),
    "a token's name": re.escape(names.TOKEN_NAME),
    "a rate": r"\[?kMG\]?\?",
    "a duration": r"s\|m\|min\|h\|d",
    "the greatest rate": r"10 ?\*\* ?15|\b1(000|_000){5}\b|1e15",
    "the greatest uid": r"2 ?\*\* ?32 ?- ?2|4_?294_?967_?294",
    "the last time": r"253_?402_?300_?799",
    "the roles": r"viewer[\"'|, ]+user[\"'|, ]+admin",
    "the kinds of policies": r"shared[\"'|, ]+paths[\"'|, ]+exclusive[\"'|, ]+isolated",
    "how a bridge hashes": r"portable[\"', ]+sse42",
    "a token bucket": r"min\([^)\n]*(burst|BURST)",
    "escapes of what is not printable": r"isprintable\(\) else (ascii|\" \")",
    "a function that reads a rate": r"def parse_rate\(",
    "a function that reads a time": r"def parse_(time|end|duration)\(",
    "the units of rates that are shown": r"\(1e9, \"G(bit/s)?\"\), \(1e6",
}
"""What is written once, and how it is recognised."""


def sources() -> Mapping[str, str]:
    """The product's code in Python and bash, but for the contract and what follows from it."""
    files = [
        path
        for folder, pattern in (("ri2n_sdn", "*.py"), ("ovs-host-scripts", "*"))
        for path in (REPOSITORY / folder).rglob(pattern)
        if path.is_file() and path.suffix not in (".c", ".pyc")
        if path not in FILES and path.parent.name != "contract"
    ]
    return {str(path.relative_to(REPOSITORY)): path.read_text() for path in files}


@pytest.mark.parametrize("fact", ONCE)
def test_a_fact_of_the_contract_is_written_nowhere_else(fact: str) -> None:
    found = [
        f"{name}: {hit[0]}"
        for name, text in sources().items()
        for hit in re.finditer(ONCE[fact], text)
    ]
    assert found == []


@pytest.mark.parametrize("fact", ONCE)
def test_a_fact_is_recognised_where_it_stands(fact: str) -> None:
    folder = REPOSITORY / "ri2n_sdn" / "contract"
    if fact != "a host's name, in another order":
        assert any(re.search(ONCE[fact], path.read_text()) for path in folder.glob("*.py"))
