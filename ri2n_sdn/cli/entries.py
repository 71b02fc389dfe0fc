# SPDX-License-Identifier: Apache-2.0
"""What `ri2n --help` shows of each command, and in which module the command is.

The sentence here stands in the list of all commands, so it is short. `ri2n COMMAND --help` shows
the text of the command itself.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COPY", "JOBS", "LOOK", "OTHERS", "OWN", "RUN", "SHOWN", "TRY", "TYPES", "Entry"]

LOOK = "See what is there"
RUN = "Run and change it"
JOBS = "Jobs of users"
TYPES = "Networks of many switches"
TRY = "Try it on this machine"
COPY = "Copy over several links"
OTHERS = "Others"


SHOWN = {
    LOOK: "explain",
    RUN: "strategy",
    JOBS: "job",
    TYPES: "vlan",
    COPY: "cp",
    TRY: "demo",
}
"""The command under each heading whose example stands there."""


class Entry(NamedTuple):
    """What the help shows of a command, without its module."""

    kind: str
    """Under which heading it stands."""
    line: str
    example: str


OWN: dict[str, tuple[str, Entry]] = {
    "status": (
        "status:status",
        Entry(LOOK, "what is wrong, then hosts, NICs and pairs", "ri2n status"),
    ),
    "top": ("top:top", Entry(LOOK, "the same live, with keys", "ri2n top pairs --sort sent")),
    "events": (
        "events:events",
        Entry(LOOK, "what has happened, newest last", "ri2n events -f --at-least warning"),
    ),
    "explain": (
        "status:explain",
        Entry(
            LOOK,
            "which NIC a flow takes, and why",
            "ri2n explain A B --proto tcp --sport 40001 --dport 5201",
        ),
    ),
    # cli.rollout adds its command to the group of cli.host.
    "host": ("rollout:app", Entry(LOOK, "hosts, their coming and going", "ri2n host show A")),
    "doctor": (
        "doctor:doctor",
        Entry(LOOK, "check this machine, and say what to do", "ri2n doctor"),
    ),
    "support-bundle": (
        "bundle:support_bundle",
        Entry(LOOK, "all that finds a fault, in one file without secrets", "ri2n support-bundle"),
    ),
    "controller": (
        "controller:controller",
        Entry(RUN, "run the controller", "ri2n controller --listen 10.0.0.1:6653 --web"),
    ),
    "web": (
        "web:web",
        Entry(RUN, "run REST, the GUI and metrics", "ri2n web --listen 127.0.0.1:8080"),
    ),
    "reload": (
        "controller:reload",
        Entry(RUN, "have the controller read its files again", "ri2n reload"),
    ),
    "strategy": (
        "settings:strategy",
        Entry(RUN, "how weights are computed; change it", "ri2n strategy max_min"),
    ),
    "config": (
        "config:app",
        Entry(
            RUN, "settings of the controller, and cluster.yaml", "ri2n config set hbspan_max_s 2"
        ),
    ),
    "check-config": (
        "config:check_config",
        Entry(RUN, "find all errors of a file", "ri2n check-config /etc/ri2n/cluster.yaml"),
    ),
    "store": ("store:app", Entry(RUN, "what survives a restart", "ri2n store show")),
    "token": (
        "token:app",
        Entry(RUN, "who may use REST and the GUI", "ri2n token add grafana --role viewer"),
    ),
    "job": (
        "job:app",
        Entry(JOBS, "begin, end and list jobs", "ri2n job begin j1 --hosts A,B --policy exclusive"),
    ),
    "reserve": ("reserve:reservations", Entry(JOBS, "paths for later jobs", "ri2n reserve ls")),
    "policy": ("policy:app", Entry(JOBS, "policies with names", "ri2n policy ls")),
    "rights": ("reserve:rights", Entry(JOBS, "what users may ask for", "ri2n rights ls")),
    "slurm": ("slurm:app", Entry(JOBS, "what Slurm wants to know", "ri2n slurm topology")),
    "vlan": (
        "vlan:app",
        Entry(TYPES, "a spanning tree for each VLAN ID", "ri2n vlan plan vbft_2_2"),
    ),
}
"""Of each command or group of commands: its module in this folder with its name there, and what the
help shows of it."""
