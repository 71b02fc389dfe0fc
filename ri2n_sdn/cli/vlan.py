# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan`: networks of many cheap switches, in which each spanning tree has a VLAN ID."""

from __future__ import annotations

import threading
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ri2n_sdn.cli.common import JsonOption, console, note, print_json
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, table
from ri2n_sdn.cli.vlan_assign import assign
from ri2n_sdn.cli.vlan_config import switch_config
from ri2n_sdn.cli.vlan_live import check, record, release, use
from ri2n_sdn.contract.choices import PATH_TABLES
from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology_file

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology
    from ri2n_sdn.vlan.large import Generated
    from ri2n_sdn.vlan.plan import NetworkPlan, Plan

__all__ = ["app", "plan"]

# A command that takes longer says what it is doing.
SLOW_S = 2.0
# The table for people names so many roots.
MAX_NAMES = 8

app = Group("Networks of many cheap switches: a spanning tree for each VLAN ID.")

for command in (assign, use, release, record, check):
    app.command()(command)
app.command("switch-config")(switch_config)

TableName = Enum("TableName", {name: name for name in PATH_TABLES}, type=str)  # type: ignore[misc]


@app.command()
def plan(
    topology: Annotated[
        str, typer.Argument(help="A file, or the name of a shipped one (vbft_4_4, ft-4096).")
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, max=MAX_VLAN, help="VLAN IDs that the switches can take.")
    ] = None,
    mac_table: Annotated[
        int | None,
        typer.Option(min=1, help="(address, VLAN) entries that each switch can remember."),
    ] = None,
    per_pair: Annotated[
        int | None, typer.Option(min=1, max=64, help="VLANs that a pair of hosts may use.")
    ] = None,
    table: Annotated[TableName | None, typer.Option(help="Which VLANs a pair uses.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a network's trees, their VLAN IDs, and what they demand of cables and switches.

    It shows how evenly the trees use the cables, and how many addresses switches must remember.
    """
    from ri2n_sdn.vlan.plan import make_plan

    path = find_topology_file(topology)
    source = _load_plannable(path)
    given = {
        "limit": limit,
        "mac_table": mac_table,
        "per_pair": per_pair,
        "table": table and table.value,
    }
    spec = source.vlans.model_copy(
        update={key: value for key, value in given.items() if value is not None}
    )
    graph = source.graph
    said = f"planning {path.stem}: {len(graph.names)} switches, {len(graph.ends)} cables"
    slow = threading.Timer(SLOW_S, note, [said])
    slow.daemon = True
    slow.start()
    try:
        made = make_plan(source, spec)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    finally:
        slow.cancel()
    if as_json:
        print_json(asdict(made))
    else:
        _show(made)


def _load_plannable(path: Path) -> Topology | Generated:
    """Read a topology, or generate what a file with `generate:` describes. Raises BadInput."""
    import yaml

    from ri2n_sdn.fabric.topology import load_topology
    from ri2n_sdn.vlan.large import load_generated

    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        # The reader of topologies names the error.
        data = None
    if isinstance(data, dict) and "generate" in data:
        return load_generated(path)
    return load_topology(path)


def _show(made: Plan) -> None:
    screen = console()
    first, last = made.vlans[0], made.vlans[-1]
    ids = ", ".join(map(str, made.vlans))
    if len(made.vlans) > 1 and made.vlans == tuple(range(first, last + 1)):
        ids = f"{first} to {last}"
    screen.print(
        f"{made.name}: VLAN IDs: {len(made.vlans)} of at most {made.limit} ({ids}),"
        f" untagged at hosts: {first}; table {made.table}, VLANs a pair uses: "
        f"{made.per_pair}"
    )
    rows = [_row(network, made) for network in made.networks]
    screen.print(table(map(Column, rows[0]), rows, show_edge=False))
    for text in made.notes:
        screen.print(f"note: {text}")


def _row(network: NetworkPlan, made: Plan) -> dict[str, object]:
    """The row of a network, by the headings of its columns."""
    roots = ", ".join(network.roots[:MAX_NAMES]) + (
        ", ..." if len(network.roots) > MAX_NAMES else ""
    )
    uses = f"{network.uses_min} to {network.uses_max}" if network.uses_max else "-"
    if network.unused_cables:
        uses += f", {network.unused_cables} unused"
    entries = (
        f"{'' if made.mac_exact else 'at most '}{network.mac_entries} of {made.mac_table} "
        f"({network.mac_switch})"
    )
    switches = " + ".join(map(str, network.switches))
    return {
        "network": network.name,
        "switches": switches + ("" if network.levelled else " (no levels)"),
        "hosts": network.hosts,
        "trees": network.trees,
        "roots": roots,
        "cables": network.cables,
        "uses of a cable": uses,
        "longest path": f"{network.longest_way} cables" if network.longest_way else "-",
        "MAC table": entries,
    }
