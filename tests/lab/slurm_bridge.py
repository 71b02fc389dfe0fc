# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster on plain namespaces with one bridge, for tests that need no lab."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ri2n_lab.cluster.namespaces import add_namespaces, remove_namespaces
from ri2n_lab.cluster.run import ip_batch
from ri2n_lab.cluster.state import locked
from ri2n_lab.traffic.slurm import Node, SlurmCluster

from .conftest import TOPOLOGIES

SCRIPTS = TOPOLOGIES.parent / "ovs-host-scripts"
USERS = {"alice": 20001, "bob": 20002}


def build_plugin(folder: Path) -> Path:
    """Build spank_ri2n.so as docs/jobs-slurm.md says, without any warning."""
    program = folder / "spank_ri2n.so"
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"),
            *("-o", str(program), str(SCRIPTS / "slurm" / "spank_ri2n.c")),
        ],
        check=True,
    )
    return program


@contextmanager
def bridged(count: int) -> Iterator[tuple[Node, list[Node]]]:
    """A head and `count` nodes, joined by a bridge of the kernel in the head's namespace."""
    unique = uuid.uuid4().hex[:6]
    head = Node(f"h{unique}", f"ri2n-slurm-{unique}-h", "10.76.0.254")
    nodes = [
        Node(f"n{unique}x{i}", f"ri2n-slurm-{unique}-{i}", f"10.76.0.{i}")
        for i in range(1, count + 1)
    ]
    names = [node.namespace for node in (head, *nodes)]
    try:
        with locked(""):
            add_namespaces(names)
        lines = ["link set lo up", "link add br0 type bridge", "link set br0 up"]
        lines.append(f"addr add {head.address}/24 dev br0")
        for i, node in enumerate(nodes):
            lines.append(f"link add p{i} type veth peer name eth0 netns {node.namespace}")
            lines.append(f"link set p{i} master br0 up")
        ip_batch(lines, head.namespace)
        for node in nodes:
            own = ["link set lo up", f"addr add {node.address}/24 dev eth0", "link set eth0 up"]
            ip_batch(own, node.namespace)
        yield head, nodes
    finally:
        remove_namespaces(names)


@contextmanager
def slurm_of(
    head: Node,
    nodes: list[Node],
    node_files: Mapping[str, str],
    plugin: Path,
    settings: str = "",
    one_tree: bool = False,
) -> Iterator[SlurmCluster]:
    """A running cluster with RI2N's prolog, epilog and plugin from this checkout."""
    scripts = SCRIPTS / "slurm"
    cluster = SlurmCluster(
        head,
        nodes,
        USERS,
        settings=f"Prolog={scripts}/prolog\nEpilog={scripts}/epilog\n{settings}",
        plugins="required {folder}/spank_ri2n.so state-dir={folder}/state",
        node_files=node_files,
        one_tree=one_tree,
    )
    shutil.copy(plugin, cluster.folder / "spank_ri2n.so")
    with cluster:
        yield cluster
