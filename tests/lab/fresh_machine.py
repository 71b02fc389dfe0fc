# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 on which nothing was ever installed, for tests of set-up as a newcomer has it.

It is a root directory of its own with a copy of this checkout, and without caches of apt, pip, uv
and cargo. Its processes see no others. It has this machine's network, because it installs from
package registries.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["FreshMachine", "Run", "bare_debian"]

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
CLONE = "/root/clone"
KEPT = re.compile(r"(PIP|UV)_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE")
"""Variables that say how this machine reaches registries."""

FILES = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"),
    *("/usr/local/share/ca-certificates", "/etc/apt/apt.conf.d"),
)
"""Files and folders that say so, where they exist."""

ENTER = """set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/disk,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
shift 2
# Whoever enters this mount namespace must find this root, so a chroot alone is not enough.
pivot_root . .
umount -l .
cd /
exec "$@"
"""


def bare_debian() -> Path:
    """The smallest Debian, made once and kept in the cache; skips where it cannot be made."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    made = base / "ri2n" / f"{SUITE}-minbase"
    if not made.exists():
        if shutil.which("mmdebstrap") is None:
            pytest.skip("needs mmdebstrap: apt install mmdebstrap")
        made.parent.mkdir(parents=True, exist_ok=True)
        new = made.with_name(f"{made.name}.{os.getpid()}")
        # What it mounts is seen by nobody else, and goes with it if it is killed.
        argv = ["unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=minbase"]
        done = subprocess.run(
            [*argv, SUITE, str(new), MIRROR], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(new, ignore_errors=True)
            pytest.skip(f"a Debian cannot be made here: {done.stderr[-500:]}")
        new.rename(made)
    return made


@dataclass
class Run:
    """A command on the machine: its lines, and after how many seconds each came."""

    started_s: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    code: int = -1

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def when(self, pattern: str) -> tuple[float, re.Match[str]]:
        """When the first line came that matches, and the match."""
        for at_s, line in self.lines:
            if found := re.search(pattern, line):
                return at_s, found
        raise AssertionError(f"no line has {pattern}:\n{self.text}")


class FreshMachine:
    """A copy of a bare Debian with this checkout in `CLONE`, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Make it. It takes no space but for what changes on it."""
        self._lower, self._folder = bare_debian(), folder
        for name in ("disk", "work", "root"):
            (folder / name).mkdir(parents=True)
        for file in map(Path, FILES):
            if file.exists():
                inside = self.path(str(file))
                inside.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if file.is_dir() else shutil.copy
                copy(file, inside)
        clone = self.path(CLONE)
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for each in names.split("\0"):
            if each and (ROOT / each).is_file():
                (clone / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / each, clone / each)

    def path(self, name: str) -> Path:
        """Where a file of the machine is, if it has changed since the machine was made."""
        return self._folder / "disk" / name.lstrip("/")

    def argv(self, *command: str) -> list[str]:
        """What runs a command in the checkout on the machine, as root."""
        variables = [
            f"{name}={value}" for name, value in os.environ.items() if KEPT.fullmatch(name)
        ]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = ["env", "-i", "HOME=/root", f"PATH={path}", "TERM=dumb", *variables]
        inside = ["bash", "-c", f'cd {CLONE} && exec "$@"', "-", *command]
        alone = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        enter = [*alone, "bash", "-c", ENTER, "-", str(self._lower), str(self._folder)]
        return [*enter, *environment, *inside]

    def run(self, *command: str, watch: dict[str, object] | None = None) -> Run:
        """Run a command, and write down when it said what."""
        before = os.times()
        run = Run()
        with subprocess.Popen(
            self.argv(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                run.lines.append((time.monotonic() - run.started_s, line.rstrip()))
                for pattern, answer in (watch or {}).items():
                    found = re.search(pattern, line)
                    if found is not None and callable(answer):
                        answer(found)
        after = os.times()
        run.seconds, run.code = time.monotonic() - run.started_s, process.returncode
        run.cpu_s = sum(after[2:4]) - sum(before[2:4])
        return run

    def packages(self) -> set[str]:
        """All packages that dpkg knows on the machine, with their states."""
        said = self.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n")
        assert said.code == 0, said.text
        return set(said.text.splitlines())

    def megabytes(self, *names: str) -> int:
        """How large files of the machine are, together."""
        paths = [str(self.path(name)) for name in names]
        said = subprocess.run(["du", "-smc", *paths], capture_output=True, text=True, check=True)
        return int(said.stdout.splitlines()[-1].split()[0])
