"""Labs in guests, seen from the host:

which there are, starting one, running a command in one, ending it.
"""

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
from typing import Any

from ri2n_lab.cluster import state
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_lab.guests.link import Frame, Kind, Parser, encode, json_frame
from ri2n_sdn.errors import NotAvailable
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
    """The record of a lab in a guest: what `lab ls` shows, and where its keeper is."""

    name: str
    kernel: str
    owner: str
    phase: str  # "making" or "up"
    pid: int  # the keeper's
    # when that process started, in clock ticks, so that its number used anew is not taken for it
    pid_start: int
    created_s: float  # Unix time
    limit_s: float
    topology: dict[str, Any]
    inside: list[dict[str, Any]] = field(
        default_factory=list
    )  # name, phase, datapath, faults, helpers, controller

    @property
    def alive(self) -> bool:
        """Whether its keeper runs; otherwise it is the rest of a crash."""
        return process_start(self.pid) == self.pid_start

    @property
    def folder(self) -> Path:
        """Its folder on the host."""
        return state.run_dir(self.name)


class Connection:
    """A socket to a keeper that speaks frames; NotAvailable when the keeper is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._parser = Parser()
        self._frames: list[Frame] = []

    def send(self, data: bytes) -> None:
        """Send encoded frames."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.read()  # what it said before it went
            raise NotAvailable("the guest has ended") from None

    def receive(self) -> Frame:
        """The next frame."""
        while not self._frames:
            self._frames = self.read()
        return self._frames.pop(0)

    def read(self) -> list[Frame]:
        """All frames that have come; waits for at least some bytes.

        NotAvailable with the keeper's last words.
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
        """End the connection, and with it what runs over it."""
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_guest_labs() -> list[GuestLab]:
    """Every lab in a guest on this machine, by name, those without a keeper too."""
    found = []
    for path in sorted(state.ROOT.glob(f"*/{RECORD}")):
        with suppress(OSError, ValueError, TypeError):
            found.append(GuestLab(**json.loads(path.read_text())))
    return found


def find_guest_lab(name: str) -> GuestLab | None:
    """The lab in a guest of this name, or None."""
    return next((lab for lab in all_guest_labs() if lab.name == name), None)


def check_free(name: str) -> None:
    """NotAvailable when a lab of this name exists, on the host or in a guest.

    What a crash left is removed.
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
    """Start a keeper, which boots a guest for a lab of this name; the connection over which READY
    will come.

    Until it is told to KEEP the guest, the keeper ends it when this connection ends. The guest is
    ended after `limit_s` real seconds, and when it does not answer for `hang_s`.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-m", "ri2n_lab.guests.keeper", str(theirs.fileno())]
        # In a session of its own and nobody's child: it outlives us.
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
    document = {
        "name": name,
        "kernel": kernel,
        "owner": state.owner(),
        "limit_s": limit_s,
        "hang_s": hang_s,
    }
    document |= {"seed": seed, "topology": topology.model_dump(mode="json")}
    connection.send(json_frame(Kind.START, document))
    return connection


def await_ready(connection: Connection) -> None:
    """Return when the guest of a keeper just started takes commands.

    NotAvailable when it never will.
    """
    while connection.receive().kind is not Kind.READY:
        pass


def keep(connection: Connection) -> None:
    """Let the guest stay when this connection, of who started it, ends."""
    connection.send(encode(Kind.KEEP))
    while connection.receive().kind is not Kind.KEEP:
        pass


def give_up(connection: Connection) -> None:
    """End the guest, over any connection to its keeper; return when nothing is left of it."""
    with suppress(NotAvailable):
        connection.socket.settimeout(END_WAIT_S)
        connection.send(encode(Kind.END))
        while connection.receive().kind is not Kind.END:
            pass


def connect(lab: GuestLab) -> Connection:
    """A connection to the keeper of a lab; NotAvailable when it is not there."""
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
    """End the guest of a lab and remove what it consists of on the host; twice is no error."""
    if lab.alive:
        with suppress(NotAvailable), connect(lab) as connection:
            give_up(connection)
    if lab.alive:  # it does not listen: the guest dies with it
        with suppress(ProcessLookupError):
            os.kill(lab.pid, 9)
        _await_end(lab)
    _remove(lab)


def sweep() -> None:
    """Remove what is left of guests whose keeper is gone."""
    for lab in all_guest_labs():
        if not lab.alive:
            _remove(lab)


def write_record(lab: GuestLab) -> None:
    """Replace the record at once."""
    draft = lab.folder / f"{RECORD}.new"
    draft.write_text(json.dumps(asdict(lab), indent=1))
    draft.replace(lab.folder / RECORD)


def process_start(pid: int) -> int | None:
    """When a process started, in clock ticks since boot.

    None when there is none, or it is dead and not yet reaped.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _await_end(lab: GuestLab) -> None:
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
        if now is not None and not now.alive:  # not one that was made anew meanwhile
            state.remove_folder(lab.name)
