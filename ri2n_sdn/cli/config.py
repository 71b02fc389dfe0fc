# SPDX-License-Identifier: Apache-2.0
"""`ri2n check-config` and `ri2n config schema`: whether files are right, and what they may hold.

Neither needs a switch or root.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ri2n_sdn.cli.common import JsonOption, note, print_json
from ri2n_sdn.cli.options import Group
from ri2n_sdn.errors import BadInput

__all__ = ["app", "check_config", "kind_of"]

app = Group("What cluster.yaml may hold.")

# Keys that only one kind of file has. Both kinds have hosts, and may have switches.
TOPOLOGY_KEYS = {"name", "description"}
CLUSTER_KEYS = {"strategy", "slots", "hbspan_s", "striping", "by_flows"}


def check_config(
    file: Annotated[
        Path, typer.Argument(help="A cluster.yaml or a topology; its content shows which.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Read a file as the controller or the lab would, and say the first error in it."""
    kind = kind_of(file)
    warnings: list[str] = []
    if kind == "topology":
        from ri2n_sdn.fabric.topology import load_topology
        from ri2n_sdn.vlan.build import topology_trees

        topology = load_topology(file)
        warnings = topology.warnings()
        try:
            topology_trees(topology)
        except ValueError as error:
            raise BadInput(f"{file}: {error}") from None
        summary = f"{len(topology.hosts)} hosts, {len(topology.switches)} switches"
    else:
        from ri2n_sdn.apps.config import load_cluster_config
        from ri2n_sdn.apps.fat_tree import FatTree

        config = load_cluster_config(file)
        FatTree.read(config, file)
        summary = f"strategy {config.strategy}, {len(config.hosts)} hosts declared"
    if as_json:
        print_json({"file": str(file), "kind": kind, "summary": summary, "warnings": warnings})
        return
    for warning in warnings:
        note(f"warning: {warning}")
    print(f"{file}: good {kind}: {summary}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors that complete and check the file.

    The schema knows keys, types and limits. `check-config` also knows what fits together.
    """
    from ri2n_sdn.apps.schema import cluster_schema

    print(json.dumps(cluster_schema(), indent=2))


def kind_of(file: Path) -> str:
    """The kind of a file by its keys: `topology` or `cluster.yaml`.

    A file that cannot be read counts as a topology: the reader of topologies names the error.
    """
    import yaml

    try:
        data: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return "topology"
    if data is None:  # Only a cluster.yaml may have nothing but comments.
        return "cluster.yaml"
    keys = set(data) if isinstance(data, dict) else TOPOLOGY_KEYS
    if keys & TOPOLOGY_KEYS and not keys & CLUSTER_KEYS:
        return "topology"
    if keys & CLUSTER_KEYS or "switches" not in keys:
        return "cluster.yaml"
    hosts = data["hosts"].values() if isinstance(data.get("hosts"), dict) else ()
    has_cluster_nics = any(
        isinstance(host, dict) and isinstance(host.get("nics"), dict) for host in hosts
    )
    return "cluster.yaml" if has_cluster_nics else "topology"
