"""host-nic and its lock: no user can hold it, and two do not change a file at the same time.

The test's own programs stand in for host-up and Open vSwitch (test_host_nic_file).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.waiting import LONG_S

from .test_host_nic_file import Site

HOLD = 'flock -n "$1" sh -c "echo has it; exec cat"'


def test_a_user_who_holds_what_everybody_may_open_holds_nobody_up(tmp_path: Path) -> None:
    """/etc/ri2n can be opened by everybody, and whoever has opened it can lock it."""
    site = Site(tmp_path)
    state = tmp_path / "root-only"
    site.config.write_text(site.text.replace(f"state-dir {tmp_path}", f"state-dir {state}"))
    held = [
        subprocess.Popen(
            ["sh", "-c", HOLD, "sh", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for path in (tmp_path, site.config)
    ]
    try:
        for process in held:
            assert process.stdout is not None and process.stdout.readline() == "has it\n"
        done = subprocess.run(
            [tmp_path / "host-nic", "--config", site.config, "retire", "eth1"],
            env={"PATH": f"{tmp_path / 'programs'}:/usr/bin:/bin:/usr/sbin"},
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "nic\t-" in site.config.read_text()
        # Nobody else can open what root has locked.
        assert state.stat().st_mode & 0o777 == 0o700
    finally:
        for process in held:
            process.communicate()
