# SPDX-License-Identifier: Apache-2.0
"""What this machine knows of a process, a port and its clock."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Process",
    "clock_is_synchronised",
    "last_option",
    "listening",
    "meminfo",
    "process",
    "processes",
]

_LISTEN = "0A"
_TIME_ERROR = 5
_TIMEX_BYTES = 256  # more than a struct timex has; the kernel writes what it knows


@dataclass(frozen=True)
class Process:
    """A process. `uid` is the effective one; `groups` are all of its groups.

    `max_files` is None where there is no limit; `files` is None where it may not be seen.
    """

    pid: int
    argv: tuple[str, ...]
    uid: int
    groups: frozenset[int]
    resident_bytes: int
    files: int | None
    max_files: int | None
    sockets: frozenset[int] = frozenset()


def process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """The process with this number; None when there is none, or it may not be looked at."""
    folder = proc / str(pid)
    try:
        argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text(errors="replace").splitlines()
            if ":" in line
        )
        limits = (folder / "limits").read_text()
    except OSError:
        return None
    files, sockets = None, set[int]()
    try:
        files = 0
        for each in (folder / "fd").iterdir():
            files += 1
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", str(each.readlink()))
            except OSError:
                continue
            if found:
                sockets.add(int(found[1]))
    except OSError:
        files = None
    limit = re.search(r"^Max open files\s+(\S+)", limits, re.M)
    return Process(
        pid,
        tuple(argv),
        int(status["Uid"].split()[1]),
        frozenset({int(status["Gid"].split()[1]), *map(int, status.get("Groups", "").split())}),
        int(status.get("VmRSS", "0 kB").split()[0]) * 1024,
        files,
        int(limit[1]) if limit and limit[1].isdecimal() else None,
        frozenset(sockets),
    )


def processes(proc: Path = Path("/proc")) -> Iterator[Process]:
    """All processes that may be looked at."""
    for folder in proc.iterdir():
        if folder.name.isdecimal() and (found := process(int(folder.name), proc)) is not None:
            yield found


def last_option(argv: tuple[str, ...], option: str) -> str | None:
    """The last value of an option, `--option VALUE` or `--option=VALUE`; None when it has none."""
    found = None
    for at, word in enumerate(argv):
        if word == option and at + 1 < len(argv):
            found = argv[at + 1]
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found


def listening(port: int, proc: Path = Path("/proc")) -> dict[int, bool]:
    """The sockets that listen on a TCP port: inode -> whether for this machine alone."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            address, _, number = words[1].partition(":")
            if words[3] == _LISTEN and int(number, 16) == port:
                # 127.x.y.z and ::1, as the kernel writes them: words in this machine's order.
                local = (len(address) == 8 and address.endswith("7F")) or address == (
                    "00000000000000000000000001000000"
                )
                found[int(words[9])] = local
    return found


def meminfo(proc: Path = Path("/proc")) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = {}
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found[name] = int(value.split()[0]) * 1024
    return found


def clock_is_synchronised() -> bool | None:
    """Whether the kernel's clock is kept right by somebody (adjtimex); None: it cannot be known."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
