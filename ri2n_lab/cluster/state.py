# SPDX-License-Identifier: Apache-2.0
"""The state folder of labs: which labs exist, who made them, one lock per lab.

The state of a lab is written before anything of the lab is made, so a crash leaves nothing that is
not recorded.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = [
    "Busy",
    "LabState",
    "all_states",
    "check_name",
    "controller_socket",
    "fresh_name",
    "locked",
    "owner",
    "read_state",
    "run_dir",
    "sweep",
    "write_state",
]

ROOT = Path(os.environ.get("RI2N_LAB_ROOT", "/run/ri2n-lab"))
LOCK_WAIT_S = 30.0
LOCK = ".lock-"


class Busy(NotAvailable):
    """Another process is working on the lab."""


@dataclass(frozen=True)
class LabState:
    """What is recorded of one lab.

    All its namespaces, devices and files can be named from `name` and its topology.
    """

    name: str
    owner: str
    phase: str  # "making", "up" or "removing"
    pid: int  # of the process that is making it
    created_s: float  # Unix time
    datapath: str
    topology: dict[str, Any]
    faults: list[dict[str, Any]]
    software: str = "ri2n"
    helpers: bool = False  # whether ri2n-reorder runs on the hosts
    helper_options: list[str] = field(default_factory=list)
    fast: bool = False  # whether ri2n-fast runs on the hosts
    userspace_tso: bool = False  # whether Open vSwitch takes super-packets on netdev
    switches: str = "ovs"  # what the switches are: "ovs", "linux-bridge" or "cable"
    # Whether the lab stays without a process that owns it (`owners`). So does one that another
    # version has recorded.
    stays: bool = True

    @property
    def namespaces(self) -> list[str]:
        """The names of all namespaces of the lab, also of those that are not made yet."""
        return [f"ri2n-{self.name}-{host}" for host in ("sw", "mgmt", *self.topology["hosts"])]


def owner() -> str:
    """The user for whom labs are made: the one who called sudo, else this process's own."""
    uid = int(os.environ.get("SUDO_UID") or os.getuid())
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def check_name(name: str) -> str:
    """Return `name`, a valid name of a lab.

    Raises BadInput unless it is 1 to 24 of a-z, 0-9 and '-', and begins with a letter or digit.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,23}", name):
        raise BadInput(
            f"lab name {name!r}: must be 1 to 24 of a-z, 0-9 and '-', and not begin with '-'"
        )
    return name


def fresh_name(topology_name: str) -> str:
    """A new name, made of the topology's name and a random number."""
    return f"{topology_name.strip('-') or 'lab'}-{secrets.token_hex(3)}"


def run_dir(name: str) -> Path:
    """The folder of the lab."""
    return ROOT / name


def controller_socket(name: str) -> Path:
    """The socket of the lab's controller."""
    return run_dir(name) / "controller.sock"


def read_state(name: str) -> LabState:
    """The state of the lab `name`; NotAvailable when there is none or its file is damaged."""
    path = run_dir(check_name(name)) / "state.json"
    try:
        return LabState(**json.loads(path.read_text()))
    except FileNotFoundError:
        raise NotAvailable(
            f"there is no lab {name!r}: `ri2n lab ls` shows those that exist"
        ) from None
    except (ValueError, TypeError) as error:
        raise NotAvailable(f"{path}: is damaged ({error})") from None


def write_state(state: LabState) -> None:
    """Replace the state file in one step, so that a crash leaves the old one or the new one."""
    folder = run_dir(state.name)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "state.json.new"
    with draft.open("w") as file:
        json.dump(vars(state), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "state.json")


def all_states() -> list[LabState]:
    """The state of every lab on this machine, sorted by name.

    A folder without a state file is no lab: nothing of one was made yet.
    """
    states = []
    for path in sorted(ROOT.glob("*/state.json")):
        try:
            states.append(read_state(path.parent.name))
        except (BadInput, NotAvailable):
            continue
    return states


def remove_folder(name: str) -> None:
    """Delete the lab's folder.

    The state file is deleted last: as long as anything is left, the state file names it.
    """
    folder = run_dir(name)
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.name == "state.json":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Delete lab folders without a state file: their process died before it made anything else.

    Files of locks that nobody holds go, too. A folder or a lock that a process works with stays. A
    lab in a guest has a record of its own, guest.json, and `ri2n_lab.guests.labs` sweeps it.
    """
    folders = {folder.name for folder in ROOT.glob("*/") if not _has_record(folder)}
    locks = {path.name.removeprefix(LOCK) for path in ROOT.glob(f"{LOCK}?*")}
    for name in sorted(folders | locks):
        if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,23}", name):
            with suppress(Busy), locked(name, wait_s=0.0):
                if not _has_record(run_dir(name)):
                    remove_folder(name)


def _has_record(folder: Path) -> bool:
    return any((folder / record).exists() for record in ("state.json", "guest.json"))


@contextmanager
def locked(name: str, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the working lock `name`: a lab's, or "" for what all labs share.

    The lock also ends with the process that holds it. Raises Busy when another process holds it for
    longer than `wait_s` seconds.
    """
    ROOT.mkdir(parents=True, exist_ok=True)
    path = ROOT / f"{LOCK}{name}"
    deadline_s = time.monotonic() + wait_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, path):
                break
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                os.close(descriptor)
                raise Busy(f"another process is working on lab {name!r}: try again later") from None
            time.sleep(0.02)
        os.close(descriptor)
    try:
        yield
    finally:
        if name:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    """False when the lock file was removed, and perhaps made anew, while we waited for it."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
