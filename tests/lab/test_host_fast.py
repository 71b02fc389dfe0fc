# SPDX-License-Identifier: Apache-2.0
"""host-up --fast on a lab's host: what is asked for is in force, or it is said; all is undone.

The program is a stand-in that writes down how it is called. tests/lab/test_fast_path.py has the
real one.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from .prepared_host import HOST, Host, host

__all__ = ["host"]

NICS = ("--nic", "eth0", "--nic", "eth1", "--name", HOST)
WHOLE = ("--bridge br-ri2n --nic eth0 --nic eth1 --state", "--rundir")
STATUS = {
    "pid": 7,
    "bridge": "br-ri2n",
    "programs": "in_force",
    "devices": [
        {"name": "br-ri2n", "attached": True},
        {"attached": True, "name": "eth0"},
        {"attached": True, "name": "eth1"},
    ],
    "filter": "in_force",
    "order": "none",
    "plan_age_ms": 2500,
    "peers": {
        **{"carried": 3, "striped_tcp": 4, "striped": 1, "undecided": 0, "unsupported": 2},
        "too_many": 0,
    },
}


class FastHost:
    """A host, and a stand-in for ri2n-fast whose answers are files."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.program = folder / "ri2n-fast"
        self.program.write_text(
            "#!/bin/bash\n"
            f'bridge=$(ovs-vsctl list-br); echo "$* [$bridge]" >>{folder}/calls\n'
            f'cat "{folder}/$1" 2>/dev/null; exit "$(cat "{folder}/$1.code" 2>/dev/null || echo 0)"'
        )
        self.program.chmod(0o755)
        self.file = host.state / "br-ri2n" / "fast"

    def answers(self, command: str, text: str, code: int = 0) -> None:
        """From now on the program answers a command so."""
        (self.folder / command).write_text(f"{text}\n")
        (self.folder / f"{command}.code").write_text(f"{code}\n")

    def calls(self, command: str) -> list[str]:
        """How a command was called since the last question, with the bridges there were then."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.partition(" ")[2] for line in lines if line.split(" ")[0] == command]

    def script(
        self, name: str, *words: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a host script with that program."""
        environment = {"RI2N_FAST": str(self.program)}
        return self.host.run(*self.host.command(name, *words, environment=environment), check=check)

    def up(self, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run host-up without a controller."""
        where = ("--datapath", self.host.lab.datapath)
        return self.script("host-up", *NICS, *where, *more, check=check)

    def found(self) -> list[dict[str, str]]:
        """What host-doctor finds about the fast path."""
        done = self.script("host-doctor", "--json", check=False)
        findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        return [finding for finding in findings if finding["check"] == "fast path"]


@pytest.fixture
def fast(host: Host, tmp_path: Path) -> FastHost:
    return FastHost(host, tmp_path)


def test_what_is_asked_for_may_start_and_is_taken_out_of_force_again(fast: FastHost) -> None:
    before = fast.host.snapshot()
    said = fast.up("--fast")
    assert "fast" not in said.stderr
    assert fast.calls("probe") and not fast.calls("unload")
    assert fast.file.read_text() == "RI2N_FAST_OPTIONS=--bridge br-ri2n\n"
    assert "nothing to do" in fast.up("--fast").stdout
    # Without it, the service may not start again before it is ended.
    fast.up()
    (call,) = fast.calls("unload")
    assert all(part in call for part in WHOLE) and call.endswith("[br-ri2n]")
    assert not list(fast.file.parent.glob("fast*"))
    assert "nothing to do" in fast.up().stdout and not fast.calls("unload")
    fast.up("--fast")
    fast.script("host-down")
    # It goes while the bridge is there, which then carries everything.
    (call,) = fast.calls("unload")
    assert all(part in call for part in WHOLE) and call.endswith("[br-ri2n]")
    assert fast.host.snapshot() == before


def test_a_kernel_that_refuses_is_said_in_one_line_and_the_host_goes_on(fast: FastHost) -> None:
    fast.answers("probe", "the verifier says no", 1)
    said = fast.up("--fast")
    assert said.stderr == (
        "host-up: warning: --fast: all goes through Open vSwitch: the verifier says no\n"
    )
    # The service tells the controller, which it can only where it starts.
    assert fast.file.exists() and fast.host.is_up
    refused = {"code": "verifier", "text": "the verifier says no"}
    fast.answers("status", json.dumps({**STATUS, "programs": "refused", "refused": refused}))
    (finding,) = fast.found()
    assert (finding["verdict"], finding["advice"]) == ("warning", "the verifier says no")


def test_a_program_that_is_missing_is_said(fast: FastHost) -> None:
    fast.program.rename(fast.program.with_name("elsewhere"))
    said = fast.up("--fast")
    assert said.stderr == (
        f"host-up: warning: --fast: {fast.program} is not there, install it; all goes through Open"
        " vSwitch\n"
    )
    (finding,) = fast.found()
    assert finding["seen"] == "the fast path is not installed"
    assert fast.script("host-down").returncode == 0


def test_a_word_that_is_neither_yes_nor_no(fast: FastHost, tmp_path: Path) -> None:
    config = tmp_path / "host.conf"
    config.write_text("nic eth0\nfast perhaps\n")
    done = fast.script("host-up", "--config", str(config), check=False)
    assert done.returncode == 2
    assert done.stderr == "host-up: fast perhaps: must be yes or no\n"


def test_a_dry_run_tells_it_and_changes_nothing(fast: FastHost) -> None:
    said = fast.up("--fast", "--dry-run").stdout
    assert f"echo 'RI2N_FAST_OPTIONS=--bridge br-ri2n' > {fast.file}" in said.splitlines()
    assert not fast.file.exists()
    fast.up("--fast")
    fast.calls("probe")
    assert f"{fast.program} unload --bridge br-ri2n " in fast.up("--dry-run").stdout
    assert fast.file.exists() and not fast.calls("unload")


def test_what_was_not_finished_is_finished_by_the_next_run(fast: FastHost) -> None:
    """Whoever takes it out of force may be killed, or fail."""
    fast.up("--fast")
    fast.answers("unload", "the kernel is busy", 1)
    assert fast.up(check=False).returncode == 1
    assert not fast.file.exists() and fast.file.with_name("fast.ending").exists()
    done = fast.script("host-down", check=False)
    assert done.returncode == 1 and not fast.host.is_up
    fast.answers("unload", "")
    fast.calls("unload")
    fast.script("host-down")
    assert len(fast.calls("unload")) == 1
    # As where it is wanted again.
    fast.up("--fast")
    fast.answers("unload", "the kernel is busy", 1)
    fast.up(check=False)
    fast.up("--fast")
    assert fast.file.exists() and not fast.file.with_name("fast.ending").exists()
    fast.answers("unload", "")
    fast.calls("unload")


def test_a_nic_that_leaves_loses_its_program_alone(fast: FastHost) -> None:
    fast.up("--fast")
    where = ("--datapath", fast.host.lab.datapath)
    fast.script("host-up", *NICS[:2], "--name", HOST, *where, "--fast")
    assert fast.calls("unload") == ["--nic eth1 [br-ri2n]"]
    fast.script("host-down")


def test_the_doctor_says_what_is_in_force(fast: FastHost) -> None:
    fast.up()
    (finding,) = fast.found()
    assert (finding["verdict"], finding["seen"]) == ("ok", "not asked for")
    assert '"fast": null' in fast.script("host-status", "--json", check=False).stdout
    fast.up("--fast")
    fast.answers("status", json.dumps(STATUS, separators=(",", ":")))
    (finding,) = fast.found()
    seen = "on br-ri2n, eth0, eth1; peers: 3 carried, 4 striped tcp, 1 striped, 2 unsupported"
    assert (finding["verdict"], finding["seen"]) == ("ok", seen)
    status = json.loads(fast.script("host-status", "--json", check=False).stdout)
    assert status["fast"] == {
        "state": "in_force",
        "devices": ["br-ri2n", "eth0", "eth1"],
        "filter": "in_force",
        "order": "none",
        "plan_age_ms": 2500,
        "peers": STATUS["peers"],
    }
    text = fast.script("host-status", check=False).stdout
    assert (
        "  fast path: in force, peers: 3 carried, 4 striped tcp, 1 striped, 2 unsupported\n" in text
    )
    assert "fast" not in "".join(line for line in text.splitlines() if line[:1] != " ")


TC, SCRIPT = "fast/src/programs/tc.rs", "ovs-host-scripts/fast.sh"
RESTART = "systemctl restart ri2n-fast, and see journalctl -u ri2n-fast"


AILING: list[tuple[dict[str, object] | None, str, str]] = [
    (None, "warning", "the fast path does not run"),
    ({"programs": "no_device"}, "warning", "the programs of the fast path are not in force"),
    (
        {"devices": [{"name": "eth0", "attached": True}, {"name": "eth1", "attached": False}]},
        *("warning", "eth1 has no program of the fast path"),
    ),
    (
        {"filter": "missing"},
        *(
            "warning",
            "Open vSwitch's sockets have no filter: it gets a copy of each frame beside it",
        ),
    ),
]


def test_the_doctor_says_what_is_not(fast: FastHost) -> None:
    fast.up("--fast")
    for said, verdict, seen in AILING:
        if said is None:
            fast.answers("status", "", 1)
        else:
            fast.answers("status", json.dumps({**STATUS, **said}))
        (finding,) = fast.found()
        assert (finding["verdict"], finding["seen"], finding["advice"]) == (verdict, seen, RESTART)
    status = fast.script("host-status", check=False)
    assert f"{verdict}: {seen}: {RESTART}" in status.stdout.splitlines()


def test_the_doctor_names_the_rules_that_are_bypassed(fast: FastHost) -> None:
    fast.up("--fast")
    fast.answers("status", json.dumps(STATUS))
    run = fast.host.run
    run("nft", "add", "table", "inet", "site")
    run("nft", "add", "table", "netdev", "site")
    hook = "{ type filter hook ingress devices = { eth0, eth1 } priority 0; }"
    run("nft", "add", "chain", "netdev", "site", "every", hook)
    run("tc", "qdisc", "replace", "dev", "eth1", "clsact")
    for priority in ("10", "21043"):
        rule = ("protocol", "ip", "bpf", "bytecode", "1,6 0 0 0", "flowid", "1:1")
        run("tc", "filter", "add", "dev", "eth1", "ingress", "pref", priority, *rule)
    found = fast.found()
    assert [finding["verdict"] for finding in found] == ["warning"] * 3
    beside = "what passes beside the bridge does not meet"
    assert [finding["seen"] for finding in found] == [
        f"eth0: {beside} table netdev site",
        f"eth1: {beside} table netdev site",
        f"eth1: {beside} tc filter 21043",
    ]
    run("tc", "qdisc", "del", "dev", "eth1", "clsact")
    run("nft", "delete", "table", "netdev", "site")
    (finding,) = fast.found()
    assert finding["verdict"] == "ok"


def test_the_priority_of_the_programs_has_one_number() -> None:
    root = Path(__file__).parents[2]
    (rust,) = re.findall(r"PRIORITY: u16 = (0x[0-9a-f]+);", (root / TC).read_text("utf-8"))
    (shell,) = re.findall(r"FAST_PRIORITY=(\d+)", (root / SCRIPT).read_text("utf-8"))
    assert int(rust, 16) == int(shell)
