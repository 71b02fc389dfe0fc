# SPDX-License-Identifier: Apache-2.0
"""Operations of the local interface on named policies.

Whoever orders a job or makes a reservation may name a policy in place of writing it out. What is
kept is the policy itself, not its name: a job goes on as it was ordered when the named policy is
removed, or made anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ri2n_sdn.apps.asker import Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.contract.answers import AllPolicies, Nothing, OnePolicy
from ri2n_sdn.contract.documents import NamedPolicy
from ri2n_sdn.contract.names import policy_name
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.jobs.declaration import read_order
from ri2n_sdn.jobs.model import Policy
from ri2n_sdn.jobs.text import policy_document

__all__ = [
    "add_policy",
    "list_policies",
    "remove_policy",
    "show_policy",
    "spelled_out",
]

_POLICY_KEYS = ("policy", "paths", "tables", "services", "min_rate_bps", "max_rate_bps")
# What an order has beside a policy. A named policy has none of it.
_NOBODY: Mapping[str, Any] = {"id": "policy", "user": "root", "uid": 0, "hosts": ["any"]}


def spelled_out(book: JobBook, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A request with the policy that it names under `named` in place of the name.

    Raises BadInput when there is no such policy, or when the request also says what it must be.
    """
    if "named" not in asked:
        return dict(asked)
    policy = _find(book, asked["named"], "named")
    rest = {key: value for key, value in asked.items() if key != "named"}
    both = [key for key in _POLICY_KEYS if key in rest]
    if both:
        raise refusal("policy_said_twice", "named", keys=both)
    return {**rest, **policy_document(policy)}


def add_policy(cluster: Cluster, asker: Asker, request: Mapping[str, Any]) -> OnePolicy:
    """Give a policy a name. Only root may do so."""
    asker.check_root("policies")
    name = _name(request.get("name"), "name")
    asked = request.get("policy")
    if not isinstance(asked, dict):
        raise refusal("not_object", "policy")
    for key in asked:
        if key not in _POLICY_KEYS:
            raise refusal("unknown_key", "policy", name=shown(key))
    order = {**_NOBODY, "begin_s": 0, "v": 1, "order": True, "source": "order", **asked}
    policy = read_order(json.dumps(order).encode()).policy
    cluster.jobs.book.add_policy(name, policy)
    return {"policy": _document(name, policy)}


def list_policies(cluster: Cluster) -> AllPolicies:
    """All named policies in the order of their names."""
    policies = cluster.jobs.book.policies
    return {"policies": [_document(*each) for each in sorted(policies.items())]}


def show_policy(cluster: Cluster, request: Mapping[str, Any]) -> OnePolicy:
    """One named policy. Raises BadInput when there is none of the name."""
    name = request.get("name")
    return {"policy": _document(str(name), _find(cluster.jobs.book, name, "name"))}


def remove_policy(cluster: Cluster, asker: Asker, request: Mapping[str, Any]) -> Nothing:
    """Remove a named policy. Only root may do so. Jobs and reservations keep what they have."""
    asker.check_root("policies")
    cluster.jobs.book.remove_policy(_name(request.get("name"), "name"))
    return {}


def _name(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise refusal("not_policy_name", key)
    return policy_name(value, key)


def _find(book: JobBook, value: object, key: str) -> Policy:
    name = _name(value, key)
    policy = book.policies.get(name)
    if policy is None:
        raise refusal("policy_unknown", key, policy=name)
    return policy


def _document(name: str, policy: Policy) -> NamedPolicy:
    return {"name": name, **policy_document(policy)}
