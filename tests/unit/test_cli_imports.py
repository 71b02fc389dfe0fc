# SPDX-License-Identifier: Apache-2.0
"""Commands that only ask a controller, and the help, load no module that takes long to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_cli_client import answering, listener

HEAVY = (
    *("fastapi", "matplotlib", "nicegui", "numpy", "os_ken", "ovs", "pyroute2", "rich"),
    *("scipy", "uvicorn", "yaml"),
)
"""What only commands need that compute, draw, serve or read files. Typer itself uses pydantic."""

MOST = 400
"""So many modules at most: a command that asks a controller has 330, of which Typer has 200."""

ANSWER = {
    **{"ok": True, "uptime_s": 1.0, "pairs": [], "jobs": [], "tokens": [], "hosts": []},
    **{"events": [], "name": "slots", "value": 64, "why": [], "kind": "plain", "policies": []},
    "parameters": [{"name": "strategy", "value": "max_min", "choices": ["max_min"]}],
    "state": {
        "controller": {
            **{"settled": True, "in_charge": True, "strategy": "max_min", "hbspan_s": 0.25}
        },
        **{"hosts": {}, "rates": {}, "problems": {}, "counters": {}},
    },
}
"""What the controller answers, whatever it is asked."""

PROGRAM = f"""
import contextlib, io, json, sys
from ri2n_sdn.cli.main import main
sys.argv = ["ri2n", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(json.dumps([[word for word in {HEAVY!r} if word in sys.modules], len(sys.modules)]))
"""

ASKS = "--socket"
"""Where this stands in a command, the controller's socket comes after it."""

COMMANDS: list[tuple[str, set[str]]] = [
    ("--version", set()),
    ("--help", set()),
    (f"status {ASKS}", {"rich"}),
    (f"status --json {ASKS}", set()),
    (f"explain A B --json {ASKS}", set()),
    (f"host ls {ASKS}", {"rich"}),
    (f"host ls --json {ASKS}", set()),
    (f"job ls --json {ASKS}", set()),
    (f"job end j1 {ASKS}", set()),
    (f"policy ls --json {ASKS}", set()),
    (f"token ls --json {ASKS}", set()),
    (f"strategy {ASKS}", set()),
    (f"strategy max_min {ASKS}", set()),
    (f"config set slots 64 {ASKS}", set()),
    (f"events {ASKS}", set()),
    ("status --lab nosuch", set()),
    ("lab down nosuch", {"yaml"}),
    ("vlan --help", {"rich"}),
    ("bench --help", {"rich"}),
    ("check-config CLUSTER", {"yaml"}),
    ("check-config topologies/fig4/d.yaml", {"yaml"}),
    ("config schema", {"yaml"}),
]
"""Commands, each with the heavy packages that it needs."""


@pytest.mark.parametrize(("command", "needs"), COMMANDS, ids=[each for each, _ in COMMANDS])
def test_a_command_loads_what_it_needs(command: str, needs: set[str], tmp_path: Path) -> None:
    """Monitoring and job managers run them again and again, perhaps on each host at once."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("hosts: {A: {nics: {eth0: {rate_bps: 1000}}}}\n", encoding="utf-8")
    with listener(answering(json.dumps(ANSWER).encode() + b"\n")) as path:
        words = command.replace("CLUSTER", str(cluster)).split()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words, *([str(path)] if ASKS in words else [])],
            env={**os.environ, "RI2N_LAB_ROOT": "/nonexistent/ri2n-labs"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    loaded, count = json.loads(done.stdout)
    assert set(loaded) == needs
    assert count < MOST or needs, count


def test_a_command_loads_no_other_command() -> None:
    """Nor does the help, nor the answer to a command that is not there."""
    code = """
import contextlib, io, sys
from ri2n_sdn.cli.main import main
for argv in (["status", "--help"], ["lab", "--help"], ["--help"], ["wrong"]):
    sys.argv = ["ri2n", *argv]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main()
    found = [name for name in ("status", "vlan", "job") if f"ri2n_sdn.cli.{name}" in sys.modules]
    print(argv[0], *found, *[name for name in ("ri2n_lab.cli.lab", "ri2n_lab.cluster.lab",
                                               "ri2n_parallel", "ri2n_parallel.cli.commands")
                             if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [
            *("status status", "lab status ri2n_lab.cli.lab"),
            *(f"{word} status ri2n_lab.cli.lab ri2n_parallel" for word in ("--help", "wrong")),
        ],
    )


def test_a_controller_loads_only_what_it_needs() -> None:
    """Hosts may wait for a controller that starts anew.

    Of OpenFlow it loads the one version that it speaks. It imports scipy later (apps/solver.py).
    """
    code = """
import gc, sys
from ri2n_sdn.imports import imports_that_stay
with imports_that_stay():
    import ri2n_sdn.apps.launcher
others = ("fastapi", "matplotlib", "nicegui", "oslo_config", "pbr", "rich", "scipy")
print([name for name in others if name in sys.modules])
print(*sorted(name for name, module in sys.modules.items() if name.startswith("os_ken.")
              and ("packet" in name or "_parser" in name) and hasattr(module, "__file__")))
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [
            "[]",
            "os_ken.lib.packet.ether_types os_ken.lib.packet.in_proto "
            "os_ken.ofproto.ofproto_parser os_ken.ofproto.ofproto_v1_5_parser",
            "True True",
        ],
    )
