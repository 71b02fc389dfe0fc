# SPDX-License-Identifier: Apache-2.0
"""Labs in guests, seen from the host: list them, start one, connect to one, end it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_lab.cluster import state
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_lab.guests.link import Frame, Kind, Parser, encode, json_frame
from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "Connection",
    "GuestLab",
    "all_guest_labs",
    "await_ready",
    "check_free",
    "connect",
    "end",
    "find_guest_lab",
    "give_up",
    "keep",
    "process_start",
    "start_keeper",
    "sweep",
    "write_record",
]

RECORD = "guest.json"
SOCKET = "keeper.sock"
END_WAIT_S = 30.0


@dataclass(frozen=True)
class GuestLab:
    """The record of a lab in a guest: what `lab ls` shows, and which process its keeper is."""

    name: str
    kernel: str
    owner: str
    phase: str  # "making" or "up"
    pid: int  # the keeper's
    # When the keeper started, in clock ticks: another process with the same pid is not the keeper.
    pid_start: int
    created_s: float  # Unix time
    limit_s: float
    topology: dict[str, Any]
    # The labs inside, each with name, phase, datapath, faults, helpers, fast and controller.
    inside: list[dict[str, Any]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether its keeper runs; otherwise the record is what a crash left."""
        return process_start(self.pid) == self.pid_start

    @property
    def folder(self) -> Path:
        """Its folder on the host."""
        return state.run_dir(self.name)


class Connection:
    """A connection to a keeper, over which frames go.

    Its methods raise NotAvailable when the keeper is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._parser = Parser()
        self._frames: list[Frame] = []

    def send(self, data: bytes) -> None:
        """Send encoded frames."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.read()  # raises with the keeper's reason, if it gave one
            raise NotAvailable("the guest has ended") from None

    def receive(self) -> Frame:
        """The next frame."""
        while not self._frames:
            self._frames = self.read()
        return self._frames.pop(0)

    def read(self) -> list[Frame]:
        """All frames that have arrived; waits for at least some bytes.

        Raises NotAvailable, with the keeper's message, when the keeper ends the connection.
        """
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            raise NotAvailable("the guest's keeper does not answer") from None
        except OSError:
            data = b""
        if not data:
            raise NotAvailable("the guest has ended")
        frames = self._frames + self._parser.feed(data)
        self._frames = []
        for frame in frames:
            if frame.kind is Kind.ERROR:
                raise NotAvailable(frame.payload.decode(errors="replace"))
        return frames

    def close(self) -> None:
        """End the connection, and with it the command that runs over it."""
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_guest_labs() -> list[GuestLab]:
    """Every lab in a guest on this machine, sorted by name, also those without a keeper."""
    labs = []
    for path in sorted(state.ROOT.glob(f"*/{RECORD}")):
        with suppress(OSError, ValueError, TypeError):
            labs.append(GuestLab(**json.loads(path.read_text())))
    return labs


def find_guest_lab(name: str) -> GuestLab | None:
    """The lab in a guest of this name, or None."""
    return next((lab for lab in all_guest_labs() if lab.name == name), None)


def check_free(name: str) -> None:
    """Raise NotAvailable when a lab of this name exists, on the host or in a guest.

    What a crash left of guests is removed first.
    """
    folder = state.run_dir(state.check_name(name))
    sweep()
    if (folder / RECORD).exists() or (folder / "state.json").exists():
        raise NotAvailable(f"lab {name!r} exists already: `ri2n lab down {name}` removes it")


def start_keeper(
    topology: Topology,
    name: str,
    kernel: str,
    *,
    limit_s: float,
    hang_s: float | None = None,
    seed: int = 1,
) -> Connection:
    """Start a keeper, which boots a guest for a lab of this name, and return the connection to it.

    The frame READY will come over this connection (`await_ready`). When the connection ends, the
    keeper ends the guest, unless it was told to KEEP it (`keep`). The guest is ended after
    `limit_s` real seconds, and when it does not answer for `hang_s` seconds (None: HANG_S of
    keeper.py). `seed` decides all random numbers in virtual time.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-m", "ri2n_lab.guests.keeper", str(theirs.fileno())]
        # The keeper outlives this process: it has a session of its own and is no child of this one.
        subprocess.run(
            ["setsid", "--fork", *argv],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "RI2N_LAB_ROOT": str(state.ROOT)},
            pass_fds=[theirs.fileno()],
        )
    connection = Connection(ours)
    document = {"name": name, "kernel": kernel, "owner": state.owner(), "limit_s": limit_s}
    document |= {"hang_s": hang_s, "seed": seed, "topology": topology.model_dump(mode="json")}
    connection.send(json_frame(Kind.START, document))
    return connection


def await_ready(connection: Connection) -> None:
    """Wait until the guest of a keeper that was just started takes commands.

    Raises NotAvailable when it never will.
    """
    while connection.receive().kind is not Kind.READY:
        pass


def keep(connection: Connection) -> None:
    """Let the guest stay when `connection`, that of the process that started it, ends."""
    connection.send(encode(Kind.KEEP))
    while connection.receive().kind is not Kind.KEEP:
        pass


def give_up(connection: Connection) -> None:
    """End the guest over any connection to its keeper, and wait until nothing of it is left."""
    with suppress(NotAvailable):
        connection.socket.settimeout(END_WAIT_S)
        connection.send(encode(Kind.END))
        while connection.receive().kind is not Kind.END:
            pass


def connect(lab: GuestLab) -> Connection:
    """A new connection to the keeper of a lab; NotAvailable when there is no keeper."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_path(lab.folder / SOCKET) as path:
            connection.connect(path)
    except PermissionError:
        connection.close()
        raise NotAvailable("a lab needs root: use sudo") from None
    except OSError:
        connection.close()
        raise NotAvailable(
            f"the guest of lab {lab.name!r} has ended: `ri2n lab down {lab.name}` removes what is "
            "left"
            if not lab.alive
            else f"the guest of lab {lab.name!r} is not up yet, or is ending"
        ) from None
    return Connection(connection)


def end(lab: GuestLab) -> None:
    """End the guest of a lab and remove its files on the host; to call it twice is no error."""
    if lab.alive:
        with suppress(NotAvailable), connect(lab) as connection:
            give_up(connection)
    if lab.alive:  # the keeper does not listen; the guest dies with it
        with suppress(ProcessLookupError):
            os.kill(lab.pid, 9)
        _await_end(lab)
    _remove(lab)


def sweep() -> list[GuestLab]:
    """Remove what is left of guests whose keeper is gone, and return those guests."""
    gone = [lab for lab in all_guest_labs() if not lab.alive]
    for lab in gone:
        _remove(lab)
    return gone


def write_record(lab: GuestLab) -> None:
    """Replace the record in one step."""
    draft = lab.folder / f"{RECORD}.new"
    draft.write_text(json.dumps(asdict(lab), indent=1))
    draft.replace(lab.folder / RECORD)


def process_start(pid: int) -> int | None:
    """When a process started, in clock ticks since boot.

    None when there is no such process, or it is dead and not yet reaped.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _await_end(lab: GuestLab) -> None:
    """Wait until the keeper has ended, at most END_WAIT_S seconds."""
    try:
        descriptor = os.pidfd_open(lab.pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [], END_WAIT_S)
    finally:
        os.close(descriptor)


def _remove(lab: GuestLab) -> None:
    with state.locked(lab.name):
        now = find_guest_lab(lab.name)
        if now is not None and not now.alive:  # nobody has made it anew meanwhile
            state.remove_folder(lab.name)
