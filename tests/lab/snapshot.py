# SPDX-License-Identifier: Apache-2.0
"""A machine inside this one, and what is on it: to find whatever a command leaves behind.

The machine has namespaces of its own for processes, mounts and networks, so other programs of this
machine change nothing in it, and nothing in it outlives it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pytest

__all__ = ["QuietMachine"]

MAKE = """set -e
mount --make-rprivate /
while umount --recursive --lazy /run/netns 2>/dev/null; do :; done   # namespaces of this machine
mount -t tmpfs tmpfs /run
mkdir /run/etc /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work etc /etc
mkdir -p /etc/netns
mount -t tmpfs tmpfs /etc/netns
mkdir -p /run/netns
mount --bind /run/netns /run/netns   # as the first `ip netns add` leaves it
mount --make-shared /run/netns
ip link set lo up
echo ready
exec cat >/dev/null   # ends with the test
"""

LOOK = r"""
import json, os, pathlib, subprocess
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
def settings():
    for folder, _, files in os.walk("/proc/sys/net"):
        for name in files:
            try:
                yield f"{folder}/{name}={pathlib.Path(folder, name).read_text().strip()}"
            except OSError:
                pass
def processes():
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if words := (entry / "cmdline").read_bytes():
                    yield words.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                pass
labs = pathlib.Path("/run/ri2n-lab")
mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
print(json.dumps({
    "namespaces": sorted(os.listdir("/run/netns")),
    "names": sorted(str(path) for path in pathlib.Path("/etc/netns").glob("*")),
    "links": [line.split(" qlen")[0] for line in said("ip", "-o", "link")],
    "addresses": said("ip", "-o", "addr"),
    "routes": said("ip", "route", "show", "table", "all")
    + said("ip", "-6", "route", "show", "table", "all"),
    "rules": said("ip", "rule") + said("ip", "-6", "rule"),
    "nft": said("nft", "list", "ruleset"),
    "mounts": sorted(" ".join(line.split()[3:5]) for line in mounts),
    "settings": sorted(settings()),
    # One lock that all labs share stays for ever, and the rate of the last demo's links.
    "labs": sorted({*os.listdir(labs)} - {".lock-", ".demo-rate"}) if labs.is_dir() else [],
    "temporary": sorted(str(path) for path in pathlib.Path("/tmp").glob("ri2n-demo*")),
    "processes": sorted(processes()),
}))
"""

FIND = r"""
import os, re, sys
for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
    try:
        words = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ").decode()
    except OSError:
        continue
    if int(pid) != os.getpid() and re.search(sys.argv[1], words):
        print(pid)
        break
"""


class QuietMachine:
    """`with QuietMachine() as machine:` run commands in it, and compare what is on it.

    Skips the test where this machine allows no such namespaces.
    """

    def __enter__(self) -> QuietMachine:
        argv = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net"]
        self._keeper = subprocess.Popen(
            [*argv, "bash", "-c", MAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        if (line := self._keeper.stdout.readline()) != "ready\n":
            self._end()
            pytest.skip(f"no namespaces for a machine in this one: {line.strip()}")
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text()
        self._first = children.split()[0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def start(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in it. `options` are those of Popen.

        It feels all signals, also where those who run the tests ignore some, as under nohup.
        """
        line = ["env", "--default-signal=HUP,INT,QUIT", "nsenter", f"--target={self._first}"]
        line += ["--pid", "--mount", "--net", "--", *argv]
        clean = {name: value for name, value in os.environ.items() if name != "RI2N_SOCKET"}
        return subprocess.Popen(
            line, text=True, **{"stdin": subprocess.DEVNULL, "env": clean, **options}
        )

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it to its end."""
        with self.start(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def snapshot(self) -> dict[str, list[str]]:
        """What is on it."""
        done = self.run("/usr/bin/python3", "-c", LOOK)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[str]] = json.loads(done.stdout)
        return found

    def pid_of(self, pattern: str) -> str:
        """The pid, in it, of the first process whose command line has `pattern`; "" without one."""
        done = self.run("/usr/bin/python3", "-c", FIND, pattern)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _end(self) -> None:
        pipes: list[IO[str] | None] = [self._keeper.stdin, self._keeper.stdout]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        self._keeper.kill()  # and with it, by --kill-child, everything inside
        self._keeper.wait()
