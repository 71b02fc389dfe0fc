# SPDX-License-Identifier: Apache-2.0
"""The requests of the transcripts: of each operation good ones, and ones that are refused."""

from __future__ import annotations

from typing import Any

__all__ = ["FAT", "FLAT", "LINES", "OF_USERS", "STANDS_BY", "Asked"]

Asked = tuple[str, dict[str, Any]]
"""(operation, arguments)."""

_ORDER = {"id": "o1", "user": "alice", "uid": 20001, "hosts": ["A", "C"]}
_BOBS = {"id": "o2", "user": "bob", "uid": 20002, "hosts": ["A", "C"]}
_RESERVED = {
    **{"id": "r1", "user": "alice", "hosts": ["A", "C"], "rate_bps": 10**7},
    **{"begin_s": 4e9, "end_s": 4.1e9},
}
_HASH = 64 * "a"


def _job(**changed: Any) -> Asked:
    policy = {} if "named" in changed else {"policy": "shared"}
    return "job_begin", {"job": {**_ORDER, **policy, **changed}}


def _reservation(**changed: Any) -> Asked:
    return "reserve_add", {"reservation": {**_RESERVED, **changed}}


def _explain(**arguments: Any) -> Asked:
    return "explain", arguments


def _flow(**flow: Any) -> Asked:
    return "explain", {"src": "A", "dst": "C", "flow": flow}


def _policy(name: Any, **policy: Any) -> Asked:
    return "policy_add", {"name": name, "policy": policy}


def _right(**right: Any) -> Asked:
    return "rights_set", {"right": right}


def _set(name: Any, value: Any) -> Asked:
    return "parameters_set", {"name": name, "value": value}


def _token(name: Any, **arguments: Any) -> Asked:
    return "token_add", {"name": name, **{"role": "viewer", "hash": _HASH, **arguments}}


LINES = (
    b"nonsense",
    b"[1]",
    b"{}",
    b'{"op": 5}',
    b'{"op": "none"}',
    b'{"op": "status", "as": {"user": "alice", "uid": 20001, "role": "user"}}',
    b'{"op": "job_show", "id": "a\\u0007b"}',
    b"[" * 100_000,
)
"""Lines that no operation understands."""

FLAT: list[Asked] = [
    ("status", {}),
    ("status", {"pairs": False}),
    ("status", {"pairs": "x"}),
    ("events", {}),
    ("events", {"since": 1}),
    ("events", {"since": "x"}),
    # Why packets go where they go.
    _explain(src="A", dst="C"),
    _explain(src="A", dst="B"),
    _explain(src="A", dst="Z"),
    _explain(src="C", dst="far"),
    _explain(src="far", dst="A"),
    _explain(src="A", dst="A"),
    _explain(src="A", dst="B", job="j1"),
    _explain(src="A", dst="C", job="j1"),
    _explain(src="A", dst="B", job="none"),
    _explain(src="A", dst="B", job="j1", dscp=10),
    _explain(src="A", dst="B", dscp=10),
    _explain(src="A", dst="B", job="j1", dscp=64),
    _explain(src="A", dst="B", job=5),
    _flow(protocol=6, sport=40000, dport=22),
    _flow(protocol=17, sport=40000, dport=5201, src_ip="10.0.0.1", dst_ip="10.0.0.3"),
    _flow(protocol=6, sport=1, dport=2, src_ip="10.0.0.1", dst_ip="10.0.0.3", hash="portable"),
    _flow(protocol=1, datapath="system"),
    _flow(protocol=6, src_ip="10.0.0.1", dst_ip="fd77::1"),
    _flow(protocol=6, sport=40000, dport=22, dst_ip="10.1.0.3"),
    _flow(protocol=6, src_ip="fd77::1"),
    _flow(protocol=6, src_ip="ten"),
    _flow(protocol=256),
    _flow(protocol=6, sport=65536),
    _flow(protocol=6, hash="other"),
    _flow(protocol=6, datapath="other"),
    _flow(sport=3),
    _explain(src="A", dst="B", flow={"protocol": 6, "sport": 5, "dport": 22}),
    _explain(src="A", dst="E", flow={"protocol": 6, "sport": 5, "dport": 22}),
    _explain(src="A", dst="Z", flow={"protocol": 6, "sport": 5, "dport": 22}),
    _explain(src="A", dst="C", flow="x"),
    # Pairs.
    ("pairs", {}),
    ("pairs", {"active": True}),
    ("pairs", {"active": False, "limit": 1, "offset": 1}),
    ("pairs", {"sort": "rate", "host": "A"}),
    ("pairs", {"src": "A", "dst": "C", "sort": "dst"}),
    ("pairs", {"host": "far"}),
    ("pairs", {"host": 5}),
    ("pairs", {"active": 1}),
    ("pairs", {"sort": "size"}),
    ("pairs", {"sort": "rate", "descending": False}),
    ("pairs", {"limit": 501}),
    ("pairs", {"offset": -1}),
    ("pairs", {"more": 1}),
    # VLANs where there are none.
    ("traffic", {}),
    ("vlan_tables", {}),
    ("vlan_tables", {"owner": 5}),
    ("vlan_check", {}),
    ("vlan_table", {"owner": "x", "pairs": []}),
    ("vlan_table", {"owner": "", "pairs": []}),
    ("vlan_table", {"owner": "x", "pairs": 5}),
    # Settings.
    ("strategy", {"name": "round_robin"}),
    ("strategy", {"name": "none"}),
    ("strategy", {"name": 5}),
    ("parameters", {}),
    _set("hysteresis", 0.2),
    _set("hbspan_min_s", 0.5),
    _set("hbspan_min_s", 10),
    _set("loss_min_packets", 20),
    _set("loss_min_packets", 20.5),
    _set("strategy", "max_min"),
    _set("strategy", "none"),
    _set("hysteresis", 7),
    _set("hysteresis", "7"),
    _set("hysteresis", True),
    _set("slots", 128),
    _set("none", 1),
    _set(None, 1),
    # Hosts.
    ("host_list", {}),
    ("host_retire", {"name": "A"}),
    ("host_retire", {"name": "D"}),
    ("host_retire", {"name": "Z", "dry_run": True}),
    ("host_retire", {"name": "far"}),
    ("host_retire", {"name": "no host/"}),
    ("host_retire", {"name": 5}),
    ("host_retire", {"name": "Z", "force": 1}),
    ("host_retire", {"name": "Z", "more": 1}),
    # Tokens.
    _token("t1"),
    _token("t2", role="user", user="alice", hash=64 * "b", days=30),
    _token("t3"),
    _token("t1", hash=64 * "c"),
    _token("t3", role="user", hash=64 * "c"),
    _token("t3", role="none"),
    _token("t3", hash="abc"),
    _token("t3", hash=64 * "c", days=0),
    _token("t3", hash=64 * "c", user="no\nname"),
    _token("no name"),
    _token("t3", more=1),
    ("token_list", {}),
    ("token_remove", {"name": "t1"}),
    ("token_remove", {"name": "t1"}),
    ("token_remove", {"name": 5}),
    # Named policies.
    _policy("p1", policy="exclusive", min_rate_bps=10**6),
    _policy("p2", policy="paths", paths=["n3"], tables=[{"dscp": 10, "paths": ["n2"]}]),
    _policy("p1", policy="shared"),
    _policy("shared", policy="exclusive"),
    _policy("no name", policy="exclusive"),
    _policy(5, policy="exclusive"),
    _policy("p3", policy="none"),
    _policy("p3", policy="paths"),
    _policy("p3", policy="shared", max_rate_bps=-1),
    _policy("p3", policy="shared", user="alice"),
    _policy("p3", policy="isolated", services=["10.0.0.9:tcp:2049"]),
    _policy("p4", policy="isolated", services=["tcp:10.0.0.9:2049"]),
    ("policy_add", {"name": "p3", "policy": "exclusive"}),
    ("policy_list", {}),
    ("policy_show", {"name": "p2"}),
    ("policy_show", {"name": "none"}),
    ("policy_show", {}),
    # Jobs.
    _job(policy="paths", paths=["n3"], end_s=3.9e9),
    _job(policy="paths", paths=["n3"], end_s=3.9e9),
    _job(policy="isolated"),
    _job(id="o3", named="p2", end_s=3.9e9),
    _job(id="o5", end_s=3.9e9, max_rate_bps=10**8),
    _job(id="o4", named="p1", policy="shared"),
    _job(id="o4", named="none"),
    _job(id="o4", named=5),
    _job(id="o4", policy="exclusive", paths=["n1", "n2"]),
    _job(id="o4", policy="exclusive", min_rate_bps=10**12),
    _job(id="o4", policy="isolated"),
    _job(id="o4", hosts=["A", "far"]),
    _job(id="o4", hosts=["A", "A"]),
    _job(id="o4", hosts=[]),
    _job(id="o4", hosts="A"),
    _job(id="o4", begin_s=2.0, end_s=1.0),
    _job(id="o4", begin_s=1.0, end_s=2.0),
    _job(id="o4", end_s="soon"),
    _job(id="o4", begin_s=-1),
    _job(id="no id"),
    _job(id=5),
    _job(id="o4", user=""),
    _job(id="o4", uid=-1),
    _job(id="o4", uid=2**33),
    _job(id="o4", uid="20001"),
    _job(id="o4", policy="none"),
    _job(id="o4", paths=["no/path/"]),
    _job(id="o4", paths=["n9"], policy="paths"),
    _job(id="o4", tables=[{"dscp": 64, "paths": ["n1"]}]),
    _job(id="o4", services=["tcp:10.0.0.9:0"], policy="isolated"),
    _job(id="o4", max_rate_bps=0),
    _job(id="o4", v=1),
    _job(id="o4", more=1),
    _job(id="j1"),
    ("job_begin", {"job": "o4"}),
    ("job_begin", {}),
    ("job_list", {}),
    ("job_show", {"id": "o1"}),
    ("job_show", {"id": "j1"}),
    ("job_show", {"id": "none"}),
    ("job_show", {"id": 5}),
    ("job_show", {"id": "no id"}),
    ("job_move", {"id": "o1", "job": {"policy": "shared"}}),
    ("job_move", {"id": "o1", "back": True}),
    ("job_move", {"id": "o1", "job": {"policy": "paths", "paths": ["n9"]}}),
    ("job_move", {"id": "j1", "job": {"policy": "shared"}}),
    ("job_move", {"id": "j1", "job": {"policy": "shared", "max_rate_bps": 5}}),
    ("job_move", {"id": "j1", "job": {"policy": "shared", "uid": 5, "user": "bob"}}),
    ("job_move", {"id": "j1", "back": True, "job": {}}),
    ("job_move", {"id": "j1", "back": True}),
    ("job_move", {"id": "j1", "back": True}),
    ("job_move", {"id": "j1", "back": 1}),
    ("job_move", {"id": "j1", "job": "shared"}),
    ("job_move", {"id": "none", "job": {}}),
    ("job_end", {"id": "j1"}),
    ("job_end", {"id": "none"}),
    ("job_end", {"id": "o3"}),
    ("job_end", {"id": "o5"}),
    ("job_end", {}),
    ("job_history", {}),
    ("job_history", {"user": "alice", "limit": 1}),
    ("job_history", {"user": "nobody"}),
    ("job_history", {"limit": 0}),
    ("job_history", {"user": 5}),
    # Reservations.
    _reservation(),
    _reservation(),
    _reservation(id="r2", named="p1", begin_s=4.2e9, end_s=4.3e9, rate_bps=None),
    _reservation(id="r3", end_s=None),
    _reservation(id="r3", rate_bps=1.5),
    _reservation(id="r3", rate_bps=10**12),
    _reservation(id="r3", policy="shared"),
    _reservation(id="r3", begin_s=4e9, end_s=3.9e9),
    _reservation(id="r3", hosts=["far"]),
    _reservation(id="@r3"),
    ("reserve_add", {"reservation": "r3"}),
    ("reserve_list", {}),
    ("reserve_remove", {"id": "r2"}),
    ("reserve_remove", {"id": "r2"}),
    ("reserve_remove", {}),
    # Rights.
    _right(user="alice", policies=["shared", "paths"], max_rate_bps=10**9, max_hosts=4),
    _right(user="*", policies=["shared"], reserve=True),
    _right(user="alice", policies=["none"]),
    _right(user="alice", policies="shared"),
    _right(user="alice", max_hosts="4"),
    _right(user="alice", max_hosts=0),
    _right(user="alice", reserve=1),
    _right(user=5),
    _right(user="alice", more=1),
    ("rights_set", {"right": "alice"}),
    ("rights_list", {}),
    ("rights_remove", {"user": "alice"}),
    ("rights_remove", {"user": "alice"}),
    ("rights_remove", {"user": 5}),
    # What has become of it.
    ("host_retire", {"name": "Z"}),
    ("policy_remove", {"name": "p1"}),
    ("policy_remove", {"name": "p1"}),
    ("policy_remove", {"name": 5}),
    ("host_list", {}),
    ("status", {"pairs": False}),
    ("events", {}),
    ("audit", {}),
    ("reload", {}),
    ("reload", {}),
]
"""What root asks a controller of hosts on two networks; the second reload finds a mistake."""

OF_USERS: list[Asked] = [
    ("status", {}),
    _job(id="u1", policy="shared", end_s=3.9e9),
    _job(id="u2", policy="exclusive"),
    _job(**{**_BOBS, "id": "u3"}),
    ("job_move", {"id": "j1", "job": {"policy": "shared"}}),
    ("job_move", {"id": "u1", "job": {"policy": "isolated"}}),
    ("job_end", {"id": "j1"}),
    ("job_end", {"id": "u1"}),
    _reservation(id="ur"),
    ("reserve_remove", {"id": "none"}),
    _right(user="alice", policies=["isolated"]),
    ("rights_remove", {"user": "alice"}),
    _policy("up", policy="shared"),
    ("policy_remove", {"name": "p1"}),
    ("job_history", {}),
]
"""What users ask, at the socket for all users and through the web process."""

FAT: list[Asked] = [
    ("status", {}),
    ("vlan_tables", {}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "C", 102], ["C", "A", 102]]}),
    ("vlan_table", {"owner": "y", "pairs": [["A", "D", 102]], "lease": True}),
    ("vlan_tables", {"owner": "x"}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "C", 999]]}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "C", "x"]]}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "far", 102]]}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "C", 102], ["A", "C", 102]]}),
    ("vlan_table", {"owner": "x", "pairs": [["A", "C"]]}),
    ("vlan_table", {"owner": "x", "pairs": []}),
    ("vlan_table", {"owner": "x", "pairs": []}),
    ("explain", {"src": "A", "dst": "C"}),
    ("pairs", {"src": "A", "dst": "C"}),
    ("traffic", {}),
    ("host_list", {}),
    ("vlan_check", {}),
    ("events", {}),
]
"""What root asks a controller whose hosts are on several switches."""

STANDS_BY: list[Asked] = [
    ("status", {}),
    _job(hosts=["A", "B"]),
    _reservation(hosts=["A", "B"]),
    _right(user="alice", policies=["shared"]),
    _policy("p1", policy="exclusive"),
    _token("t1"),
    ("host_retire", {"name": "Z"}),
    ("events", {}),
    ("audit", {}),
]
"""What root asks a controller that stands by and whose store is away."""
