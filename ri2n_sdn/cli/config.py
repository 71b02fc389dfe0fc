# SPDX-License-Identifier: Apache-2.0
"""`ri2n check-config` and `ri2n config`: whether files are right, what they may hold, and settings.

`check-config` and `config schema` need neither a switch nor root.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ri2n_sdn.cli.common import EXIT_USER_ERROR, JsonOption, note, print_json
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.settings import list_settings, set_setting
from ri2n_sdn.errors import BadInput

__all__ = ["app", "check_config", "kind_of"]

app = Group("Settings of the controller that runs, and what cluster.yaml may hold.")
app.command("ls")(list_settings)
app.command("set")(set_setting)

# Keys that only one kind of file has. Both kinds have hosts, and may have switches.
TOPOLOGY_KEYS = {"name", "description"}
CLUSTER_KEYS = {"strategy", "slots", "hbspan_s", "striping", "by_flows"}


def check_config(
    file: Annotated[
        Path, typer.Argument(help="A cluster.yaml or a topology; its content shows which.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Read a file as the controller or the lab would, and say all errors in it.

    What fits together is looked at when each key is right.
    """
    from ri2n_sdn.fabric.yamlfile import WrongFile

    kind = kind_of(file)
    try:
        summary, warnings = _read(file, kind)
    except WrongFile as wrong:
        if as_json:
            print_json({"file": str(file), "kind": kind, "errors": wrong.errors})
        for error in wrong.errors:
            note(f"ri2n: {error}")
        return EXIT_USER_ERROR
    if as_json:
        print_json({"file": str(file), "kind": kind, "summary": summary, "warnings": warnings})
        return 0
    for warning in warnings:
        note(f"warning: {warning}")
    print(f"{file}: good {kind}: {summary}")
    return 0


def _read(file: Path, kind: str) -> tuple[str, list[str]]:
    """What is in a good file, and what is probably a mistake in it. Raises BadInput."""
    if kind == "topology":
        from ri2n_sdn.fabric.topology import load_topology

        topology = load_topology(file)
        warnings = topology.warnings()
        if topology.has_cables:
            from ri2n_sdn.vlan.build import topology_trees

            try:
                topology_trees(topology)
            except ValueError as error:
                raise BadInput(f"{file}: {error}") from None
        return f"{len(topology.hosts)} hosts, {len(topology.switches)} switches", warnings
    from ri2n_sdn.apps.config import load_cluster_config

    config = load_cluster_config(file)
    if any(switch.links for switch in config.switches.values()):
        # Only cables make trees, whose modules take long to import.
        from ri2n_sdn.apps.fat_tree import FatTree

        FatTree.read(config, file)
    return f"strategy {config.strategy}, {len(config.hosts)} hosts declared", []


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
