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
    **{"ok": True, "settled": True, "strategy": "max_min", "hbspan_s": 0.25, "uptime_s": 1.0},
    **{"pid": 1, "hosts": [], "networks": [], "problems": [], "counters": {}, "pairs": []},
    **{"slots_moved": 0, "jobs": [], "tokens": []},
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
