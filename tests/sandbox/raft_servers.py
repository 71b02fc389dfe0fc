# SPDX-License-Identifier: Apache-2.0
"""A RAFT cluster of three ovsdb-servers for tests, whose members talk over unix sockets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ri2n_sdn.store.link import SCHEMA
from tests.waiting import LONG_S, wait_until

from .store_servers import Server

__all__ = ["leader", "raft_cluster", "status", "tool"]

NAMES = ("s1", "s2", "s3")


def tool(*argv: str) -> str:
    """What a command prints, whether it fails or not."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)
    return done.stdout


@contextmanager
def raft_cluster(folder: Path) -> Iterator[dict[str, Server]]:
    """Three running servers of one store, by their names; they are ended at the end."""
    members = {name: Server(folder / f"{name}.db") for name in NAMES}
    address = {name: f"unix:{folder}/{name}.raft" for name in NAMES}
    try:
        for name, server in members.items():
            if name == NAMES[0]:
                made = ["create-cluster", str(server.database), str(SCHEMA), address[name]]
            else:
                made = ["join-cluster", str(server.database), "ri2n", address[name], address["s1"]]
            subprocess.run(["ovsdb-tool", *made], check=True)
            server.start()
        wait_until(lambda: all(status(each) for each in members.values()), "they do not join")
        yield members
    finally:
        for server in members.values():
            server.kill()


def status(server: Server) -> str:
    """The role of a server in its cluster; empty before it has one."""
    said = tool(
        "ovs-appctl", "-t", str(server.database.with_suffix(".ctl")), "cluster/status", "ri2n"
    )
    joined = "Status: cluster member" in said
    role = next((line.split()[1] for line in said.splitlines() if line.startswith("Role:")), "")
    return role if joined and role in ("leader", "follower") else ""


def leader(servers: Mapping[str, Server]) -> str:
    """The name of the leader, once there is one."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [name for name, server in servers.items() if status(server) == "leader"]
        return len(found) == 1

    wait_until(look, "there is no leader")
    return found[0]
