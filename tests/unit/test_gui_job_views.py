# SPDX-License-Identifier: Apache-2.0
"""The page of jobs: who may do what, what is shown of jobs, and what its forms ask for."""

from __future__ import annotations

from typing import Any

import pytest

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.web.gui.job_views import (
    PolicyForm,
    history_rows,
    job_actions,
    job_row,
    jobs_found,
    order_request,
    owns,
    policy_request,
    policy_rows,
    reservation_request,
    reservation_rows,
    right_request,
    right_rows,
    route_rows,
)
from ri2n_sdn.web.who import Who
from tests.unit.refused import refused
from tests.unit.web_state import NOW_S, cluster_state

VIEWER, ADMIN = Who("anonymous", "viewer"), Who("carol", "admin")
ALICE, BOB = Who("t1", "user", "alice"), Who("t2", "user", "bob")


def job_rows(state: Documents, who: Who, now_s: float, search: str = "") -> list[Any]:
    return [job_row(job, who, now_s) for job in jobs_found(state, search)]


def test_a_job_of_an_old_state_was_so() -> None:
    job = cluster_state()["jobs"]["j1"]
    assert job_row(job, VIEWER, NOW_S, old=True)["state"] == "was installed"
    waits: Any = {**job, "state": "waiting", "why": "no host"}
    assert job_row(waits, VIEWER, NOW_S, old=True)["state"] == "was waiting: no host"


def test_who_may_change_a_job() -> None:
    job = cluster_state()["jobs"]["j1"]
    assert [owns(who, job) for who in (VIEWER, ALICE, BOB, ADMIN)] == [False, True, False, True]
    assert not owns(Who("alice", "user"), job), "a token is not a user because of its name"
    assert not owns(Who("alice", "viewer", "alice"), job), "a viewer owns nothing"


def test_what_may_be_done_with_a_job() -> None:
    job = cluster_state()["jobs"]["j1"]
    assert job_actions(job, VIEWER) == [] == job_actions(job, BOB)
    assert job_actions(job, ALICE) == ["move", "end"]
    moved: Any = {
        **job,
        "source": "host",
        "moved": {"by": "carol", "at_s": NOW_S, "declared": None},
    }
    assert job_actions(moved, ALICE) == ["move", "back"], "its hosts end what they have begun"


def test_jobs_with_a_problem_come_first_and_a_search_finds_hosts_users_and_states() -> None:
    state = cluster_state(hosts=8, jobs=4)
    state["jobs"]["j3"] |= {"state": "refused", "why": "no lane is free"}
    rows = job_rows(state, ADMIN, NOW_S)
    assert [row["id"] for row in rows] == ["j3", "j1", "j2", "j4"]
    assert rows[0]["bad"] and rows[0]["state"] == "refused: no lane is free"
    assert rows[1]["paths"] == "paths: n0" and rows[1]["actions"] == "details move end"
    assert rows[1]["until"].endswith("UTC (in 1 h)") and rows[1]["id_href"] == "/?job=j1"
    state["jobs"]["j1"] |= {"policy": "exclusive", "paths": [], "lanes": ["n0/12", "n1"]}
    assert job_rows(state, ADMIN, NOW_S)[1]["paths"] == "exclusive (has n0/12, n1)"
    found = {
        search: [row["id"] for row in job_rows(state, VIEWER, NOW_S, search)]
        for search in ("alice", "BOB", "h0003", "refused", "bob h0007", "nothing")
    }
    assert found == {
        **{"alice": ["j3", "j1"], "BOB": ["j2", "j4"], "h0003": ["j2"]},
        **{"refused": ["j3"], "bob h0007": ["j4"], "nothing": []},
    }


def test_a_job_on_many_hosts_names_some() -> None:
    state = cluster_state(hosts=9, jobs=1)
    state["jobs"]["j1"] |= {"hosts": sorted(state["hosts"]), "end_s": None}
    row = job_rows(state, VIEWER, NOW_S)[0]
    assert row["hosts"] == "h0001, h0002, h0003 and 6 more"
    assert row["until"] == "until somebody ends it" and row["actions"] == "details"


def test_reservations_policies_rights_and_history() -> None:
    state = cluster_state(reservations=2)
    rows = reservation_rows(state, ALICE, NOW_S)
    assert [(row["id"], row["actions"], row["rates"]) for row in rows] == [
        ("r1", "remove", "400 Mbit/s"),
        ("r2", "remove", "400 Mbit/s"),
    ]
    assert rows[0]["state"] == "to come"
    assert reservation_rows(state, BOB, NOW_S + 7201)[0]["state"] == "holds its paths now"
    assert not reservation_rows(state, BOB, NOW_S)[0]["actions"]
    assert [(row["id"], row["actions"]) for row in policy_rows(state, ADMIN)] == [
        ("quiet", "remove")
    ]
    assert [row["user"] for row in right_rows(state, VIEWER)] == ["alice", "everybody else"]
    assert right_rows(state, ADMIN)[0]["rate"] == "1.00 Gbit/s"
    assert right_rows(state, ADMIN)[0]["actions"] == "change remove"
    ended: Any = {**state["jobs"]["j1"], "why": "alice has ended it"}
    assert history_rows([ended], "ended it")[0]["why"] == "alice has ended it"
    assert history_rows([ended], "h0009") == []


def test_routes_of_a_job() -> None:
    route: Any = {
        **{"src": "A", "dst": "B", "dscp": None, "own": "eth0", "peer": "eth1"},
        **{"network": "n1", "vlan": 12, "alive": False},
    }
    row = route_rows([route])[0]
    assert (row["dscp"], row["way"], row["network"]) == ("any", "eth0 to eth1", "n1, VLAN 12")
    assert row["alive"] == "dead"


def test_an_order_of_a_user_is_for_the_user_alone() -> None:
    form = ("o1", "h0001, h0002", "bob", "", "+2h")
    uid_of = {"alice": 20001, "bob": 20002}.get
    asked = order_request(*form, policy=PolicyForm(), who=ALICE, now_s=NOW_S, uid_of=uid_of)
    assert asked == {
        **{"id": "o1", "user": "alice", "uid": 20001, "hosts": ["h0001", "h0002"]},
        **{"policy": "shared", "end_s": NOW_S + 7200},
    }
    quiet = PolicyForm(named="quiet")
    asked = order_request(*form, policy=quiet, who=ADMIN, now_s=NOW_S, uid_of=uid_of)
    assert (asked["user"], asked["uid"], asked["named"]) == ("bob", 20002, "quiet")
    assert "policy" not in asked
    form = ("o1", "h0001, h0002", "bob", "77", "+2h")
    assert order_request(*form, policy=PolicyForm(), who=ADMIN, now_s=NOW_S)["uid"] == 77


@pytest.mark.parametrize(
    ("change", "field", "code", "values"),
    [
        ({"name": ""}, "Name", "missing", {}),
        ({"name": "a b"}, "Name", "name_form", {"value": "'a b'"}),
        ({"hosts": " , "}, "Hosts", "hosts_missing", {}),
        ({"hosts": "A,A"}, "Hosts", "twice", {"what": "'A'"}),
        ({"user": ""}, "User", "missing", {}),
        ({"user": "nobody-here"}, "Uid", "uid_missing", {"user": "'nobody-here'"}),
        ({"uid": "-1"}, "Uid", "not_whole_number", {}),
        ({"until": "tomorrow"}, "Ends", "time_form", {"value": "'tomorrow'"}),
        ({"until": "2001-01-01"}, "Ends", "not_later_than_now", {}),
    ],
)
def test_a_form_says_which_field_is_wrong(
    change: dict[str, str], field: str, code: str, values: dict[str, str]
) -> None:
    form = {"name": "o1", "hosts": "A,B", "user": "bob", "uid": "", "until": "", **change}
    uid_of, policy = {"bob": 20002}.get, PolicyForm()
    with refused(code, field, **values):
        order_request(**form, policy=policy, who=ADMIN, now_s=NOW_S, uid_of=uid_of)


def test_a_policy_of_a_form() -> None:
    form = PolicyForm(
        **{"kind": "isolated", "paths": "n0 n1", "tables": "10=n0\n\n46 = n1,n0\n"},
        **{"services": "10.0.0.9/tcp/2049", "min_rate": "400M", "max_rate": "2.5G"},
    )
    assert policy_request(form) == {
        **{"policy": "isolated", "paths": ["n0", "n1"], "services": ["10.0.0.9/tcp/2049"]},
        "tables": [{"dscp": 10, "paths": ["n0"]}, {"dscp": 46, "paths": ["n1", "n0"]}],
        **{"min_rate_bps": 400_000_000, "max_rate_bps": 2_500_000_000},
    }


@pytest.mark.parametrize(
    ("change", "field", "code", "values"),
    [
        ({"kind": "free"}, "Policy", "value_not_one_of", {"value": "'free'"}),
        ({"kind": "paths"}, "Paths", "paths_missing", {}),
        ({"tables": "64=n1"}, "Tables", "tables_form", {"high": 63}),
        ({"tables": "n1"}, "Tables", "tables_form", {}),
        ({"min_rate": "fast"}, "At least", "rate_form", {"value": "'fast'"}),
        ({"max_rate": "0"}, "At most", "rate_too_high", {"value": "'0'", "most": "1000000G"}),
        ({"min_rate": "2G", "max_rate": "1G"}, "At least", "least_above_most", {}),
    ],
)
def test_a_policy_that_cannot_be(
    change: dict[str, Any], field: str, code: str, values: dict[str, Any]
) -> None:
    with refused(code, field, **values):
        policy_request(PolicyForm(**change))


def test_a_reservation_of_a_form() -> None:
    of: Any = {"policy": PolicyForm(kind="exclusive"), "who": ADMIN, "now_s": NOW_S}
    asked = reservation_request("r9", "A,B", "bob", "+1h", "+2h", "400M", **of)
    assert asked == {
        **{"id": "r9", "user": "bob", "hosts": ["A", "B"], "policy": "exclusive"},
        **{"begin_s": NOW_S + 3600, "end_s": NOW_S + 7200, "rate_bps": 400_000_000},
    }
    assert reservation_request("r9", "A,B", "bob", "", "+2h", "", **of)["begin_s"] == NOW_S
    for ends, code in (("", "end_missing"), ("+30m", "not_later_than_begin")):
        with refused(code, "Ends"):
            reservation_request("r9", "A", "bob", "+1h", ends, "", **of)


def test_rights_of_a_form() -> None:
    asked = right_request("alice", ["paths", "shared"], "0", "8", True)
    assert asked == {
        **{"user": "alice", "policies": ["shared", "paths"], "max_rate_bps": 0},
        **{"max_hosts": 8, "reserve": True},
    }
    assert right_request("*", ["shared"], "", "", False)["max_rate_bps"] is None
    for form, field, code in (
        (("", (), "", "", False), "User", "everybody_missing"),
        (("a", (), "", "many", False), "Most hosts", "not_whole_or_no_limit"),
        (("a", (), "many", "", False), "Highest rate", "rate_form"),
    ):
        with refused(code, field):
            right_request(*form)
