# SPDX-License-Identifier: Apache-2.0
"""The socket of the web process: who may do what there, and requests that make no sense."""

from __future__ import annotations

import copy
import grp
import json
import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ri2n_sdn.apps import local_api
from ri2n_sdn.apps.asker import ROOT, Speaker, give_to_group, speaker_of
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.local_vlans import Leases
from ri2n_sdn.apps.watching import Watcher
from ri2n_sdn.client import call, web_socket_of
from ri2n_sdn.contract.choices import ROLES
from ri2n_sdn.contract.operations import OPERATIONS, READING, Operation
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.unit.fake_hosts import FakeChannel, cluster_of, member_of
from tests.unit.refused import refused

ALICE = {"user": "alice", "uid": 20001, "role": "user"}
BOB = {"user": "bob", "uid": 20002, "role": "user"}
OWN = {"job_begin", "job_end", "job_move", "reserve_add", "reserve_remove"}
"""What a user may do, besides what everybody may."""

VIEWER = {"user": "guest", "uid": None, "role": "viewer"}
ADMIN = {"user": "carol", "uid": 20003, "role": "admin"}
ORDER = {
    **{"id": "o1", "user": "alice", "uid": 20001, "hosts": ["A", "B"]},
    **{"policy": "paths", "paths": ["n1"], "end_s": 3.9e9},
}
RESERVATION = {
    **{"id": "r1", "user": "alice", "hosts": ["A", "B"], "rate_bps": 10**7},
    **{"begin_s": 4e9, "end_s": 4.1e9},
}


def made(folder: Path, group: str | None = None) -> LocalApi:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()}, ClusterConfig())
    cluster.socket_path = folder / "controller.sock"
    return LocalApi(cluster, web_group=group)


@pytest.fixture(scope="module")
def running() -> Iterator[LocalApi]:
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder, closing(made(Path(folder))) as api:
        yield api


@pytest.fixture
def api() -> Iterator[LocalApi]:
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder, closing(made(Path(folder))) as api:
        yield api


def one_line(answer: dict[str, Any]) -> None:
    assert answer["ok"] or (
        "\n" not in answer["error"]
        and answer["error"].isprintable()
        and answer["kind"] != "internal"
    ), answer
    assert isinstance(answer.get("watcher"), Watcher) or json.dumps(answer)


def ask(api: LocalApi, op: str, who: object = VIEWER, **values: Any) -> dict[str, Any]:
    request = json.dumps({"op": op, "as": who, **values}).encode()
    answer = api.answer(request, None, web=True)
    one_line(answer)
    return answer


# What each operation is tried with: all of these would do something if they were allowed.
TRIED: dict[str, dict[str, Any]] = {
    "explain": {"src": "A", "dst": "B"},
    "strategy": {"name": "round_robin"},
    "vlan_table": {"owner": "x", "pairs": []},
    "parameters_set": {"name": "hysteresis", "value": 0.2},
    "host_retire": {"name": "Z"},
    "token_add": {"name": "t9", "role": "admin", "hash": 64 * "9"},
    "token_remove": {"name": "t1"},
    "job_begin": {"job": {**ORDER, "id": "o9"}},
    "job_end": {"id": "o1"},
    "job_move": {"id": "o1", "job": {"policy": "paths", "paths": ["n2"]}},
    "job_show": {"id": "o1"},
    "reserve_add": {"reservation": {**RESERVATION, "id": "r9", "begin_s": 4.2e9, "end_s": 4.3e9}},
    "reserve_remove": {"id": "r1"},
    "rights_set": {"right": {"user": "guest", "policies": ["shared"]}},
    "rights_remove": {"user": "bob"},
    "policy_add": {"name": "p9", "policy": {"policy": "exclusive"}},
    "policy_show": {"name": "p1"},
    "policy_remove": {"name": "p1"},
}


def operations(api: LocalApi) -> list[str]:
    """The names of all operations of the web socket."""
    return list(api._operations(Leases(), Speaker("x", None, "admin").asker(), True, True))


def filled(api: LocalApi) -> None:
    """Something of every kind, so that there is something to change."""
    api._cluster.members["Z"] = member_of("Z")  # it is away
    assert ask(api, "job_begin", ALICE, job=ORDER)["ok"]
    assert ask(api, "reserve_add", ALICE, reservation=RESERVATION)["ok"]
    assert ask(api, "token_add", ADMIN, name="t1", role="viewer", hash=64 * "1")["ok"]
    assert ask(api, "policy_add", ADMIN, name="p1", policy={"policy": "exclusive"})["ok"]
    assert ask(api, "rights_set", ADMIN, right={"user": "*", "policies": ["paths", "exclusive"]})[
        "ok"
    ]
    assert ask(api, "rights_set", ADMIN, right={"user": "bob", "policies": ["shared"]})["ok"]


def everything(api: LocalApi) -> Any:
    """All that an operation could change."""
    cluster = api._cluster
    book = cluster.jobs.book
    return copy.deepcopy(
        (
            *(dict(book.orders), dict(book.reservations), dict(book.rights), dict(book.policies)),
            *(book.history, api._tokens.documents(), cluster.loop.settings),
            *(cluster.loop.strategy_name, cluster.measured.losses.settings, list(cluster.events)),
        )
    )


def test_a_viewer_can_change_nothing_by_any_operation(api: LocalApi) -> None:
    filled(api)
    before = everything(api)
    refused = set()
    for name in operations(api):
        answer = ask(api, name, VIEWER, **TRIED.get(name, {}))
        if isinstance(watcher := answer.get("watcher"), Watcher):
            api._watching.leave(watcher)
        assert everything(api) == before, name
        if not answer["ok"] and answer["code"] == "role_too_low":
            refused.add(name)
    assert refused == set(operations(api)) - READING
    assert operations(api) == list(OPERATIONS)


def test_what_a_viewer_is_refused_an_admin_may_do(api: LocalApi) -> None:
    """So the operations above were refused because of the role, and not for another reason."""
    filled(api)
    last = ["job_end", "token_remove", "reserve_remove", "rights_remove", "policy_remove"]
    others = set(operations(api)) - READING - {"vlan_table", *last}
    for name in [*sorted(others), *last]:
        before = everything(api)
        assert ask(api, name, ADMIN, **TRIED.get(name, {}))["ok"], name
        assert name in ("reload", "token_list", "audit") or everything(api) != before, name


def test_a_user_may_change_what_is_his_own_and_nothing_else(api: LocalApi) -> None:
    filled(api)
    before = everything(api)
    for name in operations(api):
        if name == "watch":
            continue
        answer = ask(api, name, BOB, **TRIED.get(name, {}))
        assert everything(api) == before, name
        if name not in READING:
            assert not answer["ok"], name
    for name in OWN:
        answer = ask(api, name, BOB, **TRIED[name])
        assert (answer["code"], answer["args"]["asker"]) == ("not_yours", "bob"), name
    assert ask(api, "job_end", ALICE, id="o1")["ok"]
    assert ask(api, "reserve_remove", ALICE, id="r1")["ok"]


def test_a_user_without_a_uid_is_looked_up(api: LocalApi, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    order = {**ORDER, "user": "nobody", "uid": nobody.pw_uid}
    who: dict[str, Any] = {"user": "nobody", "uid": None, "role": "user"}
    assert ask(api, "job_begin", who, job=order)["ok"]
    stranger = {"user": "no-such-user", "uid": None, "role": "user"}
    order = {**ORDER, "id": "o2", "user": "no-such-user"}
    answer = ask(api, "job_begin", stranger, job=order)
    assert (answer["code"], answer["args"]["asker"]) == ("not_yours", "no-such-user")
    for who in (
        {"user": "root", "uid": None, "role": "user"},
        {"user": "alice", "uid": 0, "role": "user"},
    ):
        assert ask(api, "job_list", who)["code"] == "uid_is_root"


@pytest.mark.parametrize(
    ("who", "key"),
    [
        *((who, "as") for who in (None, "alice", {}, {"user": "alice", "role": "admin"})),
        ({**ALICE, "more": 1}, "as"),
        ({**ALICE, "user": 5}, "as.user"),
        ({**ALICE, "user": ""}, "as.user"),
        ({**ALICE, "user": "a\nb"}, "as.user"),
        ({**ALICE, "uid": -1}, "as.uid"),
        ({**ALICE, "uid": True}, "as.uid"),
        ({**ALICE, "uid": 2**32}, "as.uid"),
        ({**ALICE, "uid": 1.0}, "as.uid"),
        ({**ALICE, "role": "root"}, "as.role"),
        ({**ALICE, "role": ["admin"]}, "as.role"),
        ({**ALICE, "role": None}, "as.role"),
    ],
)
def test_a_request_must_say_for_whom_it_is(running: LocalApi, who: object, key: str) -> None:
    answer = ask(running, "status", who)
    assert (answer["kind"], answer["key"]) == ("bad_input", key), answer
    assert (answer["code"] == "as_not_object") == (key == "as"), answer


def test_only_the_web_process_may_ask_for_others(running: LocalApi) -> None:
    for everything in (True, False):
        line = json.dumps({"op": "job_list", "as": ADMIN}).encode()
        answer = running.answer(line, None, ROOT, everything)
        assert (answer["code"], answer["key"]) == ("as_not_here", "as")


def test_the_sockets_owner_and_group(api: LocalApi) -> None:
    path = web_socket_of(api._cluster.socket_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert call(path, "status", who=VIEWER)["hosts"]
    with refused("as_not_object", "as"):
        call(path, "status")
    group = next(each for each in grp.getgrall() if each.gr_gid == os.getgid()).gr_name
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        with closing(made(Path(folder), group)) as other:
            status = web_socket_of(other._cluster.socket_path).stat()
            assert (status.st_mode & 0o777, status.st_gid) == (0o660, os.getgid())
            assert other._cluster.socket_path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(NotAvailable, match="--web-group no-such-group: there is no such group"):
            made(Path(folder), "no-such-group")


def test_a_hardened_service_needs_no_privilege_for_its_own_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its filter of system calls refuses chown, and others' groups are not known to it."""

    def refused(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "s"
    path.touch()
    own = grp.getgrgid(path.stat().st_gid).gr_name
    other = next(each.gr_name for each in grp.getgrall() if each.gr_name != own)
    monkeypatch.setattr(os, "chown", refused)
    give_to_group(path, own)
    assert path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(NotAvailable, match=f"--web-group {other}: .*: Operation not permitted"):
        give_to_group(path, other)


def test_the_web_process_cannot_take_all_of_the_controllers_connections(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_api, "_MAX_WEB_CONNECTIONS", 3)
    path = web_socket_of(api._cluster.socket_path)
    connections = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    answers = []
    try:
        for connection in connections:
            connection.connect(str(path))
            connection.sendall(json.dumps({"op": "events", "as": VIEWER}).encode() + b"\n")
            answers.append(json.loads(connection.makefile("rb").readline()))
    finally:
        for connection in connections:
            connection.close()
    assert [answer["ok"] for answer in answers] == [True, True, True, False]
    assert answers[3]["code"] == "connections_full"
    assert call(api._cluster.socket_path, "status")["ok"], "the first socket has places of its own"


# ---- Nonsense

leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    st.sampled_from(["A", "B", "o1", "watch", "rate", "admin", "\ud800", "\x1b[31m", "a\nb"]),
    st.sampled_from([10**400, -1, 2**63, 1e308]),
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["user", "uid", "role", "id", "hosts", "policy", "name", "x"]), inner
        )
    ),
    max_leaves=6,
)
OPS = ("pairs", "parameters_set", "token_add", "token_remove", "parameters", "token_list")
KEYS = ("name", "value", "role", "user", "days", "hash", "host", "src", "dst", "active", "sort")
keys = st.sampled_from([*KEYS, "descending", "offset", "limit", "x", "as"])
speakers = st.sampled_from([VIEWER, ALICE, ADMIN])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(OPS), speakers | anything, st.dictionaries(keys, anything, max_size=4))
def test_no_request_is_answered_by_more_than_a_line(
    running: LocalApi, op: str, who: object, values: dict[str, Any]
) -> None:
    for web in (True, False):
        request = {"as": who, **values, "op": op} if web else {**values, "op": op}
        one_line(running.answer(json.dumps(request).encode(), None, web=web))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(anything | st.dictionaries(st.sampled_from(["op", "as"]), anything))
def test_what_is_no_request_is_refused(running: LocalApi, request_: object) -> None:
    for web in (True, False):
        answer = running.answer(json.dumps(request_).encode(), None, web=web)
        one_line(answer)
        if isinstance(watcher := answer.get("watcher"), Watcher):
            running._watching.leave(watcher)
        elif not isinstance(request_, dict) or "op" not in request_:
            assert not answer["ok"]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused(running: LocalApi, noise: bytes) -> None:
    for line in (noise, b"[" * 5000 + noise, b'{"op":' + noise + b"}"):
        one_line(running.answer(line, None, web=True))


def test_garbage_on_the_socket_ends_nothing(running: LocalApi) -> None:
    path = web_socket_of(running._cluster.socket_path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(120.0)
        connection.connect(str(path))
        lines = connection.makefile("rb")
        for noise in (b"\xff\xfe\n", b"GET / HTTP/1.1\r\n", b"{}\n", b"\n", b"null\n"):
            connection.sendall(noise)
            assert json.loads(lines.readline())["ok"] is False
    assert call(path, "status", who=VIEWER)["ok"]


def test_a_viewer_is_nobody_and_never_root() -> None:
    for viewer in (Speaker("root", 0, "viewer"), Speaker("alice", 20001, "viewer")):
        assert viewer.asker().uid == -1


def test_roles_include_each_other() -> None:
    allowed = []
    for role in ROLES:
        may = set()
        for operation in OPERATIONS:
            try:
                Speaker("x", 5, role).check(operation)
                may.add(operation)
            except BadInput:
                continue
        allowed.append(may)
    assert allowed[0] < allowed[1] < allowed[2] and allowed[0] == READING
    assert allowed[1] - allowed[0] == OWN
    assert Operation("new").needs == "admin"


@given(anything)
def test_a_speaker_is_checked(said: object) -> None:
    try:
        speaker = speaker_of({"as": said})
    except BadInput as error:
        assert str(error).startswith("as")
        return
    assert speaker.role in ROLES and speaker.user
