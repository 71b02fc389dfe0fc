# SPDX-License-Identifier: Apache-2.0
"""`ri2n host` with a real controller: retired hosts are gone everywhere, replaced ones go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute
from tests.unit.commands import Ended, ri2n
from tests.waiting import LONG_S, wait_until

HOSTS = ("A", "B", "C", "D")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.spawn = execute
        # Nothing is declared, so that the controller knows hosts only from what it has seen.
        made.start_controller(strategy="max_min", config="")
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


def run(sandbox: Sandbox, *arguments: str) -> Ended:
    command, *rest = arguments
    return ri2n("host", command, "--socket", str(sandbox.socket), *rest)


def hosts(sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    listed = json.loads(run(sandbox, "ls", "--json").stdout)["hosts"]
    return {each["name"]: each for each in listed}


def goes(sandbox: Sandbox, name: str) -> None:
    """A host leaves: its bridge is deleted, as host-down does."""
    sandbox.ovs.vsctl("del-br", name)
    wait_until(lambda: not hosts(sandbox)[name]["connected"], f"{name} has not left")


def without_d(sandbox: Sandbox) -> None:
    """Bring the cluster to hosts A, B and C, also when other tests of this file have not run."""
    if "D" in hosts(sandbox):
        if hosts(sandbox)["D"]["connected"]:
            goes(sandbox, "D")
        assert run(sandbox, "retire", "D", "--yes", "--force").returncode == 0
    sandbox.wait_settled(hosts=3)


def rows(sandbox: Sandbox) -> str:
    """What the store has of hosts, networks and links."""
    target = f"unix:{sandbox.folder}/memory/db.sock"
    return "\n".join(
        sandbox.ovs.run("ovsdb-client", "dump", target, "ri2n", table)
        for table in ("Host", "Network", "Links")
    )


def test_a_host_that_is_connected_or_needed_is_not_retired(sandbox: Sandbox) -> None:
    ended = run(sandbox, "retire", "D", "--yes")
    assert ended.returncode == 2 and "is connected; run host-down" in ended.stderr
    sandbox.ask(
        "job_begin",
        job={"id": "j1", "user": "alice", "uid": 20001, "hosts": ["A", "C", "D"]}
        | {"policy": "shared"},
    )
    goes(sandbox, "D")
    assert hosts(sandbox)["D"]["jobs"] == ["j1"] and hosts(sandbox)["D"]["away_since_s"]
    for options in ([], ["--dry-run"]):
        ended = run(sandbox, "retire", "D", *options)
        assert ended.returncode == 2 and "j1 needs it" in ended.stderr
    dry = run(sandbox, "retire", "D", "--force", "--dry-run")
    assert dry.returncode == 0 and "would be forgotten: D with its NICs D-e0, D-e1" in dry.stdout
    ended = run(sandbox, "retire", "D", "--force")
    assert ended.returncode == 2 and "--yes is missing" in ended.stderr
    assert "D" in hosts(sandbox)
    shown = run(sandbox, "ls").stdout
    assert shown.index(" D ") < shown.index(" A ") and "away since" in shown


def test_a_retired_host_is_gone_from_status_and_store(sandbox: Sandbox) -> None:
    wait_until(lambda: "D-e0" in rows(sandbox), "the store does not get the NICs of D")
    assert any("D" in each["text"] for each in sandbox.ask("status")["problems"])
    sandbox.ask("job_end", id="j1")
    ended = run(sandbox, "retire", "D", "--yes", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["stored"] is True
    for text in ("D-e0", "D:1", '"D"', " D "):
        assert text not in rows(sandbox), rows(sandbox)
    status = sandbox.ask("status")
    assert {host["name"] for host in status["hosts"]} == set("ABC")
    assert not any("D" in problem["text"].split() for problem in status["problems"])
    again = run(sandbox, "retire", "D", "--yes")
    assert again.returncode == 0 and "nothing to do" in again.stdout
    # The next controller does not wait for it.
    sandbox.kill_controllers()
    sandbox.start_controller(strategy="max_min", config="")
    sandbox.wait_settled(hosts=3)
    assert set(hosts(sandbox)) == set("ABC")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "a b", 65536 * "x"])
def test_what_is_no_name_of_a_host_is_a_mistake(sandbox: Sandbox, name: str) -> None:
    """Not like a host that is retired already: there the command has nothing to do."""
    ended = run(sandbox, "retire", name, "--yes")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is not the name of a host" in ended.stderr
    assert ended.stderr.count("\n") == 1 and len(ended.stderr) < 200 and "\x1b" not in ended.stderr


@pytest.mark.long
def test_a_replaced_host_keeps_its_place(sandbox: Sandbox) -> None:
    without_d(sandbox)
    ended = run(sandbox, "replace", "C", "--yes")
    assert ended.returncode == 2 and "is connected" in ended.stderr
    ended = run(sandbox, "replace", "X", "--yes")
    assert ended.returncode == 2 and "no such host" in ended.stderr
    sandbox.ask(
        "job_begin",
        job={"id": "j2", "user": "alice", "uid": 20001, "hosts": ["A", "C"], "policy": "shared"},
    )
    goes(sandbox, "C")
    former = hosts(sandbox)["C"]["dpid"]
    ended = run(sandbox, "replace", "C", "--yes")
    assert ended.returncode == 2 and "j2 use it" in ended.stderr
    dry = run(sandbox, "replace", "C", "--force", "--dry-run")
    assert dry.returncode == 0 and "name C" in dry.stdout and "nic C-e1" in dry.stdout
    late = run(sandbox, "replace", "C", "--force", "--yes", "--wait", "0.1")
    assert late.returncode == 2 and "no other machine" in late.stderr

    waiting = started(sandbox, "replace", "C", "--force", "--yes")
    assert waiting.stdout is not None
    assert "gets the place of C" in waiting.stdout.readline()
    # Another machine, with other addresses, on the same networks.
    for network in ("n0", "n1"):
        index = int(network[1])
        sandbox.ovs.vsctl("--if-exists", "del-port", network, f"{network}-C-{index}")
    sandbox.ovs.vsctl(*sandbox.host_commands("C", 77, ["n0", "n1"])[1:])
    said, complained = waiting.communicate(timeout=LONG_S)
    assert waiting.returncode == 0, complained
    assert "C is there" in said
    now = hosts(sandbox)["C"]
    assert now["connected"] and now["dpid"] != former and now["jobs"] == ["j2"]
    status = sandbox.wait_settled(hosts=3)
    (new,) = [host for host in status["hosts"] if host["name"] == "C"]
    assert all(nic["network"] and nic["alive"] for nic in new["nics"])
    wait_until(lambda: f"{77:016x}" in rows(sandbox), lambda: rows(sandbox))
    assert former not in rows(sandbox)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
def test_a_roll_out_stops_at_the_host_that_is_worse_off(sandbox: Sandbox, tmp_path: Path) -> None:
    without_d(sandbox)
    log = tmp_path / "log"
    works = script(tmp_path / "works", f'echo "$1 $2" >> {log}; echo "seen $1"')
    options = ("rollout", "--calm", "0", "--settle", "60", "--yes")
    sandbox.ask(
        "job_begin",
        job={"id": "j3", "user": "alice", "uid": 20001, "hosts": ["A", "C"], "policy": "shared"},
    )
    ended = run(sandbox, *options, "--", works, "{host}", "at {address}")
    assert ended.returncode == 2 and "use it" in ended.stderr and "--skip A,C" in ended.stderr
    for job in sandbox.ask("job_list")["jobs"]:
        sandbox.ask("job_end", id=job["id"])
    dry = run(sandbox, *options, "--dry-run", "--batch", "50%", "--", works, "{host}")
    assert dry.returncode == 0 and dry.stdout.startswith("batch 1 of 3: A\n") and not log.exists()
    ended = run(sandbox, *options, "--batch", "2", "--", works, "{host}", "at {address}")
    assert ended.returncode == 0, ended.stderr
    lines = log.read_text().splitlines()
    assert {line.split()[0] for line in lines[:2]} == {"A", "B"} and lines[2].startswith("C at ")
    assert "A: seen A" in ended.stdout and "done: C (3 of 3)" in ended.stdout

    # The command for B fails; the one for C leaves a NIC without a link.
    fails = script(tmp_path / "fails", '[ "$1" != B ]')
    ended = run(sandbox, *options, "--", fails, "{host}")
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert "B: " in ended.stderr and "1 hosts are done; go on with --skip A" in ended.stderr
    env = " ".join(f"{name}={sandbox.folder}" for name in ("OVS_RUNDIR", "OVS_DBDIR"))
    breaks = script(
        tmp_path / "breaks", f'[ "$1" != C ] || env {env} ovs-vsctl --timeout=60 del-port C C-e1'
    )
    ended = run(
        *(sandbox, "rollout", "--calm", "2", "--settle", "4", "--yes", "--skip", "A"),
        *("--", breaks, "{host}"),
    )
    assert ended.returncode == 2 and "C: C-e1 does not work any more" in ended.stderr
    assert "1 hosts are done; go on with --skip B,A" in ended.stderr
    port = sandbox.link_commands("C", 2, "n1")
    sandbox.ovs.vsctl("--if-exists", "del-port", "n1", "n1-C-1", *port)
    sandbox.wait_settled(hosts=3)
    ended = run(sandbox, "rollout", "--yes", "--only", "X", "--", works)
    assert ended.returncode == 2 and "X: the controller knows no such host" in ended.stderr


def started(sandbox: Sandbox, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own, which has begun when its first line is there."""
    return subprocess.Popen(
        [
            *(sys.executable, "-u", "-m", "ri2n_sdn.cli.main", "host", *arguments),
            *("--socket", str(sandbox.socket)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
