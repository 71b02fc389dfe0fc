# SPDX-License-Identifier: Apache-2.0
"""host-nic and its lock: no user can hold it, and two do not change a file at the same time.

The test's own programs stand in for host-up and Open vSwitch (test_host_nic_file).
"""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from tests.waiting import LONG_S, wait_until

from .test_host_nic_file import Site

WORDS = ("retire", "eth1")
HOLD = 'flock -n "$1" sh -c "echo has it; exec cat"'


def prepared(folder: Path) -> tuple[Site, Path]:
    """A site, and the folder of its saved state, which is not the one of its host.conf."""
    site, state = Site(folder), folder / "root-only"
    site.config.write_text(site.text.replace(f"state-dir {folder}", f"state-dir {state}"))
    return site, state


def start(site: Site) -> subprocess.Popen[str]:
    """Run host-nic with `WORDS`."""
    return subprocess.Popen(
        [site.folder / "host-nic", "--config", site.config, *WORDS],
        env={"PATH": f"{site.folder / 'programs'}:/usr/bin:/bin:/usr/sbin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_user_who_holds_what_everybody_may_open_holds_nobody_up(tmp_path: Path) -> None:
    """/etc/ri2n can be opened by everybody, and whoever has opened it can lock it."""
    site, state = prepared(tmp_path)
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
        running = start(site)
        _, complained = running.communicate(timeout=LONG_S)
        assert running.returncode == 0, complained
        assert "nic\t-" in site.config.read_text()
        # Nobody else can open what root has locked.
        assert state.stat().st_mode & 0o777 == 0o700
    finally:
        for process in held:
            process.communicate()


def test_a_second_one_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    site, state = prepared(tmp_path)
    state.mkdir(mode=0o700)
    before = site.config.read_text()
    with (state / "host-nic.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        inode = (state / "host-nic.lock").stat().st_ino

        def waits() -> bool:
            """The kernel writes an arrow before who waits for a lock."""
            locks = Path("/proc/locks").read_text().splitlines()
            return any(" -> " in line and f":{inode} " in line for line in locks)

        second = start(site)
        wait_until(waits, lambda: Path("/proc/locks").read_text())
        assert site.config.read_text() == before
    _, complained = second.communicate(timeout=LONG_S)
    assert second.returncode == 0, complained
    assert "nic\t-" in site.config.read_text()
