# SPDX-License-Identifier: Apache-2.0
"""Commands that only ask a controller, and the help, load no module that takes long to import."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.unit.test_cli_client import answering, listener

HEAVY = (
    *("fastapi", "matplotlib", "nicegui", "numpy", "os_ken", "ovs", "pyroute2"),
    *("scipy", "uvicorn", "yaml"),
)
"""What only commands need that compute, draw, serve or read files. Typer itself uses pydantic."""

ANSWER = {
    **{"ok": True, "uptime_s": 1.0, "pairs": [], "jobs": [], "tokens": []},
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
words = {HEAVY!r}
found = {{}}
for argv in json.loads(sys.argv[1]):
    sys.argv = ["ri2n", *argv]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    found[" ".join(argv[:2])] = [word for word in words if word in sys.modules]
print(json.dumps(found))
"""


def test_help_and_questions_load_nothing_heavy() -> None:
    """Monitoring and job managers run them again and again, perhaps on each host at once."""
    with listener(answering(json.dumps(ANSWER).encode() + b"\n")) as path:
        at = ["--socket", str(path)]
        commands = [
            *(["--version"], ["--help"], ["vlan", "--help"], ["bench", "--help"]),
            *(["status", *at], ["status", "--json", *at], ["job", "ls", *at]),
            *(["token", "ls", *at], ["job", "end", "j1", *at]),
        ]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(commands)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == "", done.stderr
    assert json.loads(done.stdout) == {" ".join(argv[:2]): [] for argv in commands}


def test_a_command_loads_no_other_command() -> None:
    """The help loads all of them, and so does the answer to a command that is not there."""
    code = """
import contextlib, io, sys
from ri2n_sdn.cli.main import main
for argv in (["status", "--help"], ["lab", "--help"], ["wrong"]):
    sys.argv = ["ri2n", *argv]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main()
    found = [name for name in ("status", "vlan", "job") if f"ri2n_sdn.cli.{name}" in sys.modules]
    print(argv[0], *found, *[name for name in ("ri2n_lab", "ri2n_parallel") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [
            "status status",
            "lab status ri2n_lab",
            "wrong status vlan job ri2n_lab ri2n_parallel",
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
