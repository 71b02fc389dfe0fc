# SPDX-License-Identifier: Apache-2.0
"""What `ri2n doctor` checks of the controller's machine itself: disk, memory, clock, kernel."""

from __future__ import annotations

import os
import platform
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ri2n_sdn import __version__
from ri2n_sdn.certificates import certificate_times
from ri2n_sdn.cli.examined import ANSWER_S, Examined, Row, number_in
from ri2n_sdn.cli.machine import clock_is_synchronised, meminfo

__all__ = ["MIN_OVS", "certificate", "clock", "disk", "kernel", "key", "memory", "versions"]

MIN_OVS = (2, 17)
# A certificate is renewed in this time before it ends.
RENEW = timedelta(days=30)
# The store's file is small; but ovsdb-server writes it anew beside the old one.
MIN_FREE_BYTES, FEW_FREE_BYTES = 10 << 20, 200 << 20
FEW_MEMORY_BYTES = 256 << 20
FULL = 0.8


def disk(seen: Examined) -> Iterator[Row]:
    """Room for the store and the sockets."""
    folder = seen.state_dir
    for path in {folder or Path("/var"), seen.socket.parent}:
        at = next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))
        found = os.statvfs(at)
        free, text = found.f_bavail * found.f_frsize, f"{at}: "
        if found.f_flag & os.ST_RDONLY:
            yield "bad", f"{text}is mounted read-only", "look at the kernel's log; mount it again"
        elif free < FEW_FREE_BYTES or (found.f_files and not found.f_favail):
            full = free < MIN_FREE_BYTES or (found.f_files and not found.f_favail)
            text += f"{free >> 20} MiB and {found.f_favail} files are free"
            yield "bad" if full else "warning", text, "make room: nothing is remembered without it"
        else:
            yield "ok", f"{text}{free >> 20} MiB are free", ""


def memory(seen: Examined) -> Iterator[Row]:
    """The memory that is left."""
    memory = meminfo(seen.proc)
    free, total = memory.get("MemAvailable", 0), memory["MemTotal"]
    text = f"{free >> 20} of {total >> 20} MiB are available"
    if seen.running is not None:
        text += f"; the controller has {seen.running.resident_bytes >> 20} MiB"
    few = free < min(FEW_MEMORY_BYTES, total // 10)
    advice = "end other programs, or give this machine more memory"
    yield ("warning", text, advice) if few else ("ok", text, "")


def clock(seen: Examined) -> Iterator[Row]:
    """Whether the time is right."""
    synchronised = clock_is_synchronised()
    if seen.now.year < 2024:
        text = f"the clock says {seen.now:%Y-%m-%d}"
        yield "bad", text, "set it; certificates and epochs need it"
    elif synchronised is False:
        yield (
            "warning",
            "nobody keeps this machine's clock right",
            "apt install chrony: reservations, certificates and two controllers need the time",
        )
    else:
        word = "synchronised" if synchronised else "not known whether synchronised"
        yield "ok", f"{seen.now:%Y-%m-%d %H:%M:%S} UTC, {word}", ""


def versions(seen: Examined) -> Iterator[Row]:
    """The programs and packages that the controller needs."""
    there = []
    for package in ("os-ken", "numpy", "scipy", "ovs", "pydantic", "PyYAML", "typer", "rich"):
        try:
            there.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield "bad", f"the Python package {package} is missing", "install RI2N again"
    python = ".".join(map(str, sys.version_info[:3]))
    yield "ok", f"ri2n {__version__}, Python {python}, {', '.join(there)}", ""
    if seen.option("--store") is not None:
        return
    program = shutil.which("ovsdb-server")
    if program is None:
        yield "bad", "ovsdb-server is missing", "apt install openvswitch-common"
        return
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
    )
    first = (done.stdout.splitlines() or [""])[0]
    number = number_in(first)
    old = number is None or number < MIN_OVS
    advice = "install Open vSwitch 2.17 or newer"
    yield ("bad", first or "ovsdb-server does not run", advice) if old else ("ok", first, "")


def kernel(seen: Examined) -> Iterator[Row]:
    """Limits of the kernel that a large cluster may reach."""

    def setting(name: str) -> int | None:
        try:
            return int((seen.proc / "sys" / name).read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    hosts = len(seen.hosts)
    backlog = setting("net/core/somaxconn")
    neighbours = setting("net/ipv4/neigh/default/gc_thresh3")
    tracked = setting("net/netfilter/nf_conntrack_count")
    may = setting("net/netfilter/nf_conntrack_max")
    late = backlog is not None and backlog < min(hosts, 1024)
    few = neighbours is not None and neighbours < 2 * hosts
    full = tracked is not None and may and tracked > FULL * may
    if late:
        text = f"net.core.somaxconn is {backlog}: hosts connect late"
        yield "warning", text, "sysctl -w net.core.somaxconn=4096"
    if few:
        text = f"net.ipv4.neigh.default.gc_thresh3 is {neighbours}, too few for {hosts} hosts"
        yield "warning", text, f"sysctl -w net.ipv4.neigh.default.gc_thresh3={8 * hosts}"
    if full:
        text = f"{tracked} of {may} connections are tracked by the firewall"
        yield "warning", text, "sysctl -w net.netfilter.nf_conntrack_max: raise it"
    if not (late or few or full):
        yield "ok", f"{platform.release()}, its limits are wide enough for {hosts} hosts", ""


def certificate(path: Path, now: datetime) -> Iterator[Row]:
    """Whether a certificate is valid, and for how long."""
    renew = "make a new one, put it in its place, and run ri2n reload"
    try:
        begin, end = certificate_times(path)
    except OSError as error:
        yield "bad", f"{path}: {error.strerror}", "give it back, or correct the option"
    except ValueError as error:
        yield "bad", f"{path}: {error}", renew
    else:
        days = (end - now).days
        if now > end:
            yield "bad", f"{path}: has ended on {end:%Y-%m-%d}", renew
        elif now < begin:
            text = f"{path}: is valid only from {begin:%Y-%m-%d %H:%M} UTC on"
            yield "bad", text, "set this machine's clock right, or wait"
        elif end - now < RENEW:
            yield "warning", f"{path}: ends in {days} days, on {end:%Y-%m-%d}", renew
        else:
            yield "ok", f"{path}: until {end:%Y-%m-%d}", ""


def key(cert: Path, key: Path) -> Iterator[Row]:
    """Whether a private key is private, and fits its certificate."""
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
    except OSError as error:
        yield "bad", f"{key}: {error.strerror}", "give it back, or correct the option"
        return
    if mode & 0o004:
        yield "bad", f"{key}: all users can read this private key", f"chmod 600 {key}; make another"
        return

    def refuse() -> str:
        raise ValueError("it has a passphrase, which nobody can type in here")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, refuse)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        yield "bad", f"{key}: does not fit {cert}: {reason}", "give both files of one pair"
    except OSError as error:
        yield "warning", f"{key}: {error.strerror}", "run ri2n doctor as root"
    else:
        yield "ok", f"{key}: {mode:04o}, fits its certificate", ""
