# SPDX-License-Identifier: Apache-2.0
"""The controller's local operations: what a request has, and what answers it.

Whatever stands in OPERATIONS can be asked for at a socket of the controller, and nothing else. An
operation's type names the document that answers it. Programs that only ask load no documents, which
may take as long as all the rest of a short command.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias

from typing_extensions import TypeVar

from ri2n_sdn.contract.choices import Role

if TYPE_CHECKING:
    from ri2n_sdn.contract import answers, documents

Answer = TypeVar("Answer", default=dict[str, Any])
_Asked = ParamSpec("_Asked")

Request: TypeAlias = Mapping[str, object]
"""A request as it came. Whoever carries it out looks at each value before its use."""


@dataclass(frozen=True)
class Operation(Generic[Answer]):
    """An operation: its name, and the keys that a request may have; `Answer` is its document.

    `needs` is the role that a user of the web process must have at least. A request has the
    operation's name under `op` as well, and an answer an `ok`.
    """

    name: str
    needs: Role = "admin"
    keys: tuple[str, ...] = ()

    def by(self, run: Callable[_Asked, Answer]) -> tuple[str, Callable[_Asked, Answer]]:
        """The operation's name, with what carries it out."""
        return self.name, run

    def strange(self, request: Collection[str]) -> set[str]:
        """The keys of a request that it may not have."""
        return {*request} - {"op", "as", *self.keys}


# The operations. Those of the role `viewer` change nothing, and those of `user` act on what is the
# user's own.

STATUS: Operation[answers.Status] = Operation("status", "viewer", ("pairs",))
EXPLAIN: Operation[answers.Explained] = Operation(
    "explain", "viewer", ("src", "dst", "flow", "job", "dscp")
)
STRATEGY: Operation[answers.Nothing] = Operation("strategy", "admin", ("name",))
EVENTS: Operation[answers.Events] = Operation("events", "viewer", ("since",))
RELOAD: Operation[answers.Reloaded] = Operation("reload")
VLAN_TABLE: Operation[answers.TableOwners] = Operation(
    "vlan_table", "admin", ("owner", "pairs", "lease")
)
TRAFFIC: Operation[answers.Traffic] = Operation("traffic", "viewer")
VLAN_CHECK: Operation[documents.VlanCheck] = Operation("vlan_check", "viewer")
VLAN_TABLES: Operation[answers.VlanTables] = Operation("vlan_tables", "viewer", ("owner",))
WATCH: Operation[answers.WatchBegins] = Operation("watch", "viewer")
PAIRS: Operation[answers.PairsPage] = Operation(
    "pairs",
    "viewer",
    ("host", "src", "dst", "active", "sort", "descending", "offset", "limit"),
)
PARAMETERS: Operation[answers.Parameters] = Operation("parameters", "viewer")
PARAMETERS_SET: Operation[answers.ParameterSet] = Operation(
    "parameters_set", "admin", ("name", "value")
)
AUDIT: Operation[answers.AuditTrail] = Operation("audit")
HOST_LIST: Operation[answers.KnownHosts] = Operation("host_list", "viewer")
HOST_RETIRE: Operation[answers.Retired] = Operation(
    "host_retire", "admin", ("name", "dry_run", "force")
)
TOKEN_ADD: Operation[answers.OneToken] = Operation(
    "token_add", "admin", ("name", "role", "user", "days", "hash")
)
TOKEN_LIST: Operation[answers.AllTokens] = Operation("token_list")
TOKEN_REMOVE: Operation[answers.Nothing] = Operation("token_remove", "admin", ("name",))
JOB_BEGIN: Operation[answers.BegunJob] = Operation("job_begin", "user", ("job",))
JOB_END: Operation[answers.Nothing] = Operation("job_end", "user", ("id",))
JOB_MOVE: Operation[answers.OneJob] = Operation("job_move", "user", ("id", "job", "back"))
JOB_LIST: Operation[answers.AllJobs] = Operation("job_list", "viewer")
JOB_SHOW: Operation[answers.ShownJob] = Operation("job_show", "viewer", ("id",))
JOB_HISTORY: Operation[answers.EndedJobs] = Operation("job_history", "viewer", ("user", "limit"))
RESERVE_ADD: Operation[answers.OneReservation] = Operation("reserve_add", "user", ("reservation",))
RESERVE_LIST: Operation[answers.AllReservations] = Operation("reserve_list", "viewer")
RESERVE_REMOVE: Operation[answers.Nothing] = Operation("reserve_remove", "user", ("id",))
RIGHTS_SET: Operation[answers.OneRight] = Operation("rights_set", "admin", ("right",))
RIGHTS_LIST: Operation[answers.AllRights] = Operation("rights_list", "viewer")
RIGHTS_REMOVE: Operation[answers.Nothing] = Operation("rights_remove", "admin", ("user",))
POLICY_ADD: Operation[answers.OnePolicy] = Operation("policy_add", "admin", ("name", "policy"))
POLICY_LIST: Operation[answers.AllPolicies] = Operation("policy_list", "viewer")
POLICY_SHOW: Operation[answers.OnePolicy] = Operation("policy_show", "viewer", ("name",))
POLICY_REMOVE: Operation[answers.Nothing] = Operation("policy_remove", "admin", ("name",))

OPERATIONS: dict[str, Operation[Any]] = {
    each.name: each for each in tuple(globals().values()) if isinstance(each, Operation)
}
"""All operations by name, in the order in which a refusal lists them."""

READING = frozenset(name for name, each in OPERATIONS.items() if each.needs == "viewer")
"""The operations of every role: they change nothing."""
