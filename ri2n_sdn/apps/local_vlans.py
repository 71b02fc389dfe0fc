# SPDX-License-Identifier: Apache-2.0
"""Operations of the local interface on VLANs: programs' path tables, traffic, and the check."""

from __future__ import annotations

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.fat_tree import FatTree
from ri2n_sdn.contract.answers import TableOwners, Traffic, VlanTable, VlanTableOf, VlanTables
from ri2n_sdn.contract.operations import Request
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.fabric.model import PairKey

__all__ = ["Leases", "set_table", "tables", "traffic"]

_MAX_OWNER = 64


class Leases:
    """The path tables that one connection holds: they end when the connection ends.

    A table that another connection has set since is no longer held by this one.
    """

    def held(self, cluster: Cluster) -> list[str]:
        """The owners of the tables that are held."""
        with cluster.lock:
            leased = {} if cluster.fat_tree is None else cluster.fat_tree.leased
            return [owner for owner, holder in leased.items() if holder is self]

    def end(self, cluster: Cluster) -> None:
        """Clear the tables, because the connection has ended."""
        with cluster.lock:
            for owner in self.held(cluster):
                _clear(cluster, owner)


def set_table(cluster: Cluster, request: Request, leases: Leases) -> TableOwners:
    """Set the path table of the request's `owner`, or clear it when `pairs` is empty.

    `pairs` is a list of [sender, receiver, VLAN ID]. With `lease`, the table ends when the
    connection ends. Raises BadInput, and then changes nothing, when the request is wrong.
    """
    owner, rows, lease = request.get("owner"), request.get("pairs"), request.get("lease", False)
    if not isinstance(owner, str) or not 0 < len(owner) <= _MAX_OWNER or not owner.isprintable():
        raise refusal("owner_form", "owner", most=_MAX_OWNER)
    if not isinstance(rows, list) or not isinstance(lease, bool):
        raise refusal("pairs_form", "pairs")
    with cluster.lock:
        tree = _tree(cluster)
        table: dict[PairKey, int] = {}
        hosts = cluster.fabric().hosts
        for row in rows:
            if (
                not isinstance(row, list)
                or len(row) != 3
                or not all(isinstance(name, str) for name in row[:2])
            ):
                raise refusal("pairs_form", "pairs")
            sender, receiver, vlan = row
            for name in (sender, receiver):
                if name not in hosts:
                    raise refusal("host_not_there", "pairs", host=name)
            if (sender, receiver) in table or sender == receiver:
                raise refusal("pair_twice", "pairs", src=sender, dst=receiver)
            table[sender, receiver] = vlan if isinstance(vlan, int) else -1
        if rows:
            try:
                tree.set_table(owner, table)
            except ValueError as error:
                raise refusal("table_wrong", "pairs", why=str(error)) from None
            tree.leased.pop(owner, None)
            if lease:
                tree.leased[owner] = leases
            cluster.note("path_table_set", owner=owner, pairs=len(table))
            cluster.topology_changed()
        else:
            _clear(cluster, owner)
        return {"owners": tree.adaptive.tables}


def tables(cluster: Cluster, request: Request) -> VlanTables:
    """The programs' path tables, the newest last; with the rows of the one of `owner`.

    There are none where no links between switches are declared.
    """
    owner = request.get("owner")
    if owner is not None and not isinstance(owner, str):
        raise refusal("not_program_name", "owner")
    with cluster.lock:
        tree = cluster.fat_tree
        if tree is None:
            return {"tables": []}
        found: list[VlanTable | VlanTableOf] = []
        for name, table in tree.adaptive.rows.items():
            of: VlanTableOf = {
                "owner": name,
                "pairs": len(table),
                "leased": name in tree.leased,
            }
            rows = [(*pair, vlan) for pair, vlan in sorted(table.items())]
            found.append({**of, "rows": rows} if name == owner else of)
        return {"tables": found}


def traffic(cluster: Cluster) -> Traffic:
    """The bytes that each pair has sent since the controller began, as last counted."""
    with cluster.lock:
        return {
            "hosts": sorted(cluster.members),
            "pairs": [
                (*pair, count)
                for pair, count in sorted(cluster.measured.sent_bytes.items())
                if count
            ],
            "hbspan_s": cluster.measured.hbspan_s,
        }


def _clear(cluster: Cluster, owner: str) -> None:
    tree = _tree(cluster)
    tree.leased.pop(owner, None)
    if tree.clear_table(owner):
        cluster.note("path_table_ended", owner=owner)
        cluster.topology_changed()


def _tree(cluster: Cluster) -> FatTree:
    if cluster.fat_tree is None:
        raise refusal("no_switch_links", "switches")
    return cluster.fat_tree
